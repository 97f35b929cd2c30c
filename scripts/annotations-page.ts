// Writes docs/ANNOTATIONS.md from the table in control-plane/annotations.ts. `node scripts/annotations-page.ts` writes the page; a test holds
// page and table together.

import { writeFileSync } from 'node:fs';
import { format } from 'prettier';
import {
  ANNOTATION_FAULTS,
  ANNOTATION_PREFIX,
  POD_ANNOTATIONS,
  POOL_ANNOTATIONS,
  type Annotation,
} from '../control-plane/annotations.ts';

export const annotationsPagePath = new URL('../docs/ANNOTATIONS.md', import.meta.url);

const faults: Record<(typeof ANNOTATION_FAULTS)[number], string> = {
  'unknown-key':
    'a key under the prefix that is not in the tables: a misspelling, or an annotation of the other object',
  'bad-value': 'a value that is not what the table says',
  conflict: 'a value that contradicts another one',
};

function table(rows: readonly Annotation[]): string {
  const cells = rows.map(
    ({ key, type, default: absent, help, applied }) =>
      `| \`${ANNOTATION_PREFIX}${key}\` | ${type} | \`${absent}\` | ${help} | ${applied} |`,
  );
  return ['| annotation | value | default | what it does | in force |', '| - | - | - | - | - |', ...cells].join('\n');
}

export async function annotationsPage(): Promise<string> {
  const page = `# Annotations

This page is written by scripts/annotations-page.ts from the table in control-plane/annotations.ts.

A control plane that runs in Kubernetes reads the settings of a pool from the annotations of its InferencePool (or of its Service, for a pool
that is attached by one), and those of a pod from the pod. They can be changed at any time; nothing has to be restarted. What the control plane
was started with (\`warmpath control-plane --policy\`, \`--mode\` and so on) takes the place of the default. Values are taken literally:
no blanks, no other spelling.

## On an InferencePool or a Service

${table(POOL_ANNOTATIONS)}

## On a Pod

They hold for all ports of the pod.

${table(POD_ANNOTATIONS)}

## When something is wrong with one

| fault | what it is |
| - | - |
${ANNOTATION_FAULTS.map((fault) => `| \`${fault}\` | ${faults[fault]} |`).join('\n')}

The last good value of that annotation stays in force, or the default if there never was a good one. What a
pool has in force outlives the control plane (in the Secret \`warmpath-pools\`); what a pod has does not. The others take effect all the same. It shows in four places: as an Event on the object (\`kubectl describe\`), in the metric
\`warmpath_annotation_faults\`, in a line of the control plane's log, and in what \`GET /v1/state\` tells.
`;
  return format(page, { parser: 'markdown', printWidth: 120, singleQuote: true });
}

if (import.meta.main) writeFileSync(annotationsPagePath, await annotationsPage());
