// The outages: what breaks, how it is mended, and what right picks are meanwhile.

import type { Stage } from './stage.ts';

export interface Outage {
  name: string;
  what: string;
  begin: (stage: Stage) => void | Promise<void>;
  /** Without it the outage lasts to the end. */
  end?: (stage: Stage) => void | Promise<void>;
  /** The control plane is not there when Envoy starts. */
  isAbsentAtStart?: true;
  losesSecret?: true;
  /** From when the time to right picks runs: `begun` is when what was killed is there again. */
  since: 'begin' | 'begun' | 'end';
  /** What the faulty replica should get while it is broken: nothing, less than half of its share, or what it always got. */
  faulty: 'nothing' | 'little' | 'share';
  /** Whether not a single request may fail: always, since Envoy can retry whatever was not answered. */
  failedMax: number;
}

const replica = (
  name: string,
  what: string,
  begin: Outage['begin'],
  end: Outage['end'] | null,
  faulty: Outage['faulty'],
): Outage => ({ name, what, begin, ...(end ? { end } : {}), since: 'begin', faulty, failedMax: 0 });

const unaffected = (name: string, what: string, begin: Outage['begin'], end: Outage['begin'] | null): Outage => ({
  name,
  what,
  begin,
  ...(end ? { end } : {}),
  since: 'begin',
  faulty: 'share',
  failedMax: 0,
});

const metrics = (fault: 'missing' | 'renamed' | 'stale' | 'nan', what: string): Outage =>
  unaffected(
    `metrics-${fault}`,
    what,
    ({ fleets }) => fleets.warmpath.breakMetrics(fault),
    ({ fleets }) => fleets.warmpath.breakMetrics('none'),
  );

const fault = (name: string, what: string, kind: 'error' | 'busy' | 'freeze'): Outage =>
  replica(
    name,
    what,
    (stage) => stage.each(({ first }) => first.tell({ kind: 'fault', fault: kind })),
    (stage) => stage.each(({ first }) => first.tell({ kind: 'fault', fault: 'none' })),
    'nothing',
  );

export const outages: readonly Outage[] = [
  {
    ...unaffected(
      'control-plane-absent',
      'no control plane when Envoy starts; it comes later',
      () => {},
      ({ controlPlane }) => controlPlane.start(),
    ),
    isAbsentAtStart: true,
    since: 'end',
  },
  unaffected(
    'control-plane-stopped',
    'the control plane is killed and does not come back',
    ({ controlPlane }) => controlPlane.kill(),
    null,
  ),
  unaffected(
    'control-plane-frozen',
    'the control plane accepts and never answers (SIGSTOP), later goes on',
    ({ controlPlane }) => controlPlane.freeze(),
    ({ controlPlane }) => controlPlane.thaw(),
  ),
  unaffected(
    'control-plane-restarted',
    'the control plane is killed and started anew with the same secret file',
    async ({ controlPlane }) => {
      await controlPlane.kill();
      await controlPlane.start();
    },
    null,
  ),
  {
    ...unaffected(
      'control-plane-new-secret',
      'the control plane is killed and started anew without its secret: all keys change',
      async ({ controlPlane }) => {
        await controlPlane.kill();
        await controlPlane.start();
      },
      null,
    ),
    losesSecret: true,
    since: 'begun',
  },
  metrics('missing', 'the metrics pages of all replicas are 404'),
  metrics('renamed', 'all metric families have other names'),
  metrics('stale', 'all metrics pages show what they showed when the outage began'),
  metrics('nan', 'all metrics are NaN'),
  replica(
    'replica-killed',
    'a replica is killed: its connections break, new ones are refused',
    (stage) => stage.each(({ first }) => first.kill()),
    null,
    'nothing',
  ),
  {
    ...replica(
      'replica-restarted',
      'a replica is killed and started at the same address, with an empty cache',
      (stage) => stage.each((fleet) => fleet.restart()),
      null,
      'share',
    ),
    since: 'begun',
  },
  replica(
    'replica-frozen',
    'a replica accepts and never answers (SIGSTOP), later goes on',
    (stage) => stage.each(({ first }) => first.freeze()),
    (stage) => stage.each(({ first }) => first.thaw()),
    'nothing',
  ),
  fault(
    'replica-stuck',
    'the engine of a replica makes no tokens, while its server answers headers and metrics',
    'freeze',
  ),
  replica(
    'replica-slow',
    'a replica is 10 times slower',
    (stage) => stage.each(({ first }) => first.tell({ kind: 'slow', factor: 10 })),
    (stage) => stage.each(({ first }) => first.tell({ kind: 'slow', factor: 1 })),
    'little',
  ),
  fault('replica-500', 'a replica answers everything 500 at once', 'error'),
  fault('replica-503', 'a replica answers everything 503 at once', 'busy'),
];
