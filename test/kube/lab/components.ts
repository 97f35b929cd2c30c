// The real parts of a cluster for the tests of test/kube: kube-apiserver and etcd, and istiod with the definitions of its kinds. They are built from
// the Go module registry alone (nobody publishes them as packages) and kept in the cache folder, by version. Cold it takes about 20
// CPU-minutes, warm none. `node test/kube/lab/components.ts` builds what is missing; with --check it only says, by its exit code, whether all is there.

import { execFile, spawn } from 'node:child_process';
import { access, cp, mkdir, mkdtemp, readdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { cacheDirectory } from '../../../envoy/fetch.ts';

const run = promisify(execFile);

export const kubernetesVersion = '1.36.3';
/** Istio's main branch of 27 August 2026, which became 1.31. */
export const istioVersion = 'v0.0.0-20260827124520-eed52ebb66ad';

export interface Components {
  apiserver: string;
  etcd: string;
  istiod: string;
  /** Files with the definitions of Istio's kinds and of the Gateway API's. */
  definitions: string[];
}

/** Something is missing, and cannot be built here. */
export class ComponentsUnavailable extends Error {
  override name = 'ComponentsUnavailable';
}

const complete = 'complete';
const say = (text: string): void => void process.stderr.write(`warmpath: ${text}\n`);
const folders = (): { kubernetes: string; istio: string } => ({
  kubernetes: join(cacheDirectory(), `kubernetes-${kubernetesVersion}`),
  istio: join(cacheDirectory(), `istio-${istioVersion}`),
});

const isComplete = async (folder: string): Promise<boolean> =>
  access(join(folder, complete)).then(
    () => true,
    () => false,
  );

export async function componentsCached(): Promise<boolean> {
  const { kubernetes, istio } = folders();
  return (await isComplete(kubernetes)) && (await isComplete(istio));
}

export async function ensureComponents(): Promise<Components> {
  const { kubernetes, istio } = folders();
  await ensure(kubernetes, buildKubernetes);
  await ensure(istio, buildIstio);
  const definitions = (await readdir(join(istio, 'definitions'))).toSorted();
  return {
    apiserver: join(kubernetes, 'kube-apiserver'),
    etcd: join(kubernetes, 'etcd'),
    istiod: join(istio, 'istiod'),
    definitions: definitions.map((file) => join(istio, 'definitions', file)),
  };
}

/** Everything is made in a folder of this process's own, and one rename shows the result. */
async function ensure(folder: string, build: (work: string) => Promise<void>): Promise<void> {
  if (await isComplete(folder)) return;
  await mkdir(cacheDirectory(), { recursive: true });
  await run('go', ['version']).catch(() => {
    throw new ComponentsUnavailable('Go is not on this machine; Kubernetes and Istio are built with it');
  });
  const work = await mkdtemp(join(cacheDirectory(), '.build-'));
  try {
    await build(work);
    await rm(join(work, 'source'), { recursive: true, force: true });
    await writeFile(join(work, complete), '');
    await rm(folder, { recursive: true, force: true });
    // Another process may have been faster; what it made is the same.
    await rename(work, folder).catch(async (error: unknown) => {
      if (!(await isComplete(folder))) throw error;
    });
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

async function module(path: string, version: string): Promise<{ Dir: string; GoMod: string }> {
  const { stdout } = await run('go', ['mod', 'download', '-json', `${path}@${version}`]).catch(
    (error: Error & { stdout?: string; stderr?: string }) => {
      throw new ComponentsUnavailable(
        `${path}@${version} cannot be had: ${error.stdout || error.stderr || error.message}`,
      );
    },
  );
  return JSON.parse(stdout) as { Dir: string; GoMod: string };
}

async function source(work: string, files: Record<string, string>): Promise<string> {
  const folder = join(work, 'source');
  for (const [path, text] of Object.entries(files)) {
    await mkdir(join(folder, path, '..'), { recursive: true });
    await writeFile(join(folder, path), text);
  }
  return folder;
}

/** Compiles one command, and tells every now and then how far it is. */
async function compile(folder: string, packagePath: string, output: string, linkerFlags: string): Promise<void> {
  const name = output.slice(output.lastIndexOf('/') + 1);
  const startedMs = Date.now();
  const seconds = (): string => `${Math.round((Date.now() - startedMs) / 1000)} s`;
  let packages = 0;
  let tail = '';
  const flags = ['-mod=mod', '-trimpath', '-v', '-ldflags', `-s -w ${linkerFlags}`];
  const child = spawn('nice', ['-n', '10', 'go', 'build', ...flags, '-o', output, packagePath], {
    cwd: folder,
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    packages += text.split('\n').length - 1;
    tail = (tail + text).slice(-2000);
  });
  say(`building ${name} (once; about 10 CPU-minutes)`);
  const ticker = setInterval(() => say(`building ${name}: ${packages} packages in ${seconds()}`), 20_000);
  const code = await new Promise<number | null>((resolve, reject) => {
    child.on('error', reject);
    child.on('close', resolve);
  }).finally(() => clearInterval(ticker));
  if (code !== 0) throw new ComponentsUnavailable(`go build of ${name} failed:\n${tail}`);
  say(`${name} is built, in ${seconds()}`);
}

const apiserverMain = `package main

import (
	"os"
	_ "time/tzdata"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() { os.Exit(cli.Run(app.NewAPIServerCommand())) }
`;

const etcdMain = `package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
`;

async function buildKubernetes(work: string): Promise<void> {
  const version = `v${kubernetesVersion}`;
  const { GoMod } = await module('k8s.io/kubernetes', version);
  const { stdout } = await run('go', ['mod', 'edit', '-json', GoMod]);
  const { Go, Godebug, Replace } = JSON.parse(stdout) as {
    Go: string;
    Godebug?: { Key: string; Value: string }[];
    Replace?: { Old: { Path: string }; New: { Path: string } }[];
  };
  // In its own repository Kubernetes takes its libraries from a folder beside it; published they are v0 of the same version.
  const staged = (Replace ?? []).filter(({ New }) => New.Path.startsWith('./staging/')).map(({ Old }) => Old.Path);
  const library = version.replace('v1.', 'v0.');
  const goMod = [
    'module warmpath/kube-apiserver',
    `go ${Go}`,
    ...(Godebug ?? []).map(({ Key, Value }) => `godebug ${Key}=${Value}`),
    `require k8s.io/kubernetes ${version}`,
    ...staged.map((path) => `replace ${path} => ${path} ${library}`),
    '',
  ].join('\n');
  const folder = await source(work, { 'go.mod': goMod, 'main.go': apiserverMain, 'etcd/main.go': etcdMain });
  const [major, minor] = kubernetesVersion.split('.');
  const stamp = 'k8s.io/component-base/version';
  const stamps = {
    gitVersion: version,
    gitMajor: major,
    gitMinor: minor,
    gitTreeState: 'clean',
    buildDate: '2026-01-01T00:00:00Z',
  };
  const flags = Object.entries(stamps).map(([key, value]) => `-X ${stamp}.${key}=${value}`);
  await compile(folder, '.', join(work, 'kube-apiserver'), flags.join(' '));
  await compile(folder, './etcd', join(work, 'etcd'), '');
}

const istiodMain = `package main

import (
	"os"

	"istio.io/istio/pilot/cmd/pilot-discovery/app"
	"istio.io/istio/pkg/log"
)

func main() {
	log.EnableKlogWithCobra()
	if err := app.NewRootCommand().Execute(); err != nil {
		log.Error(err)
		os.Exit(1)
	}
}
`;

async function buildIstio(work: string): Promise<void> {
  const { Dir, GoMod } = await module('istio.io/istio', istioVersion);
  const { stdout } = await run('go', ['mod', 'edit', '-json', GoMod]);
  const { Go, Require } = JSON.parse(stdout) as { Go: string; Require: { Path: string; Version: string }[] };
  const goMod = `module warmpath/istiod\n\ngo ${Go}\n\nrequire istio.io/istio ${istioVersion}\n`;
  const folder = await source(work, { 'go.mod': goMod, 'main.go': istiodMain });
  await compile(folder, '.', join(work, 'istiod'), '');
  const definitions = join(work, 'definitions');
  await mkdir(definitions);
  const gatewayApi = Require.find(({ Path }) => Path === 'sigs.k8s.io/gateway-api')?.Version ?? '';
  const { Dir: gatewayDir } = await module('sigs.k8s.io/gateway-api', gatewayApi);
  const standard = join(gatewayDir, 'config', 'crd', 'standard');
  for (const file of (await readdir(standard)).filter((name) => name.startsWith('gateway.networking'))) {
    await cp(join(standard, file), join(definitions, file));
  }
  await cp(join(Dir, 'manifests', 'charts', 'base', 'files', 'crd-all.gen.yaml'), join(definitions, 'istio.yaml'));
}

if (import.meta.main) {
  if (process.argv.includes('--check')) {
    process.exitCode = (await componentsCached()) ? 0 : 1;
  } else {
    try {
      for (const path of Object.values(await ensureComponents()).flat()) process.stdout.write(`${path}\n`);
    } catch (error) {
      if (!(error instanceof ComponentsUnavailable)) throw error;
      say(error.message);
      process.exitCode = 1;
    }
  }
}
