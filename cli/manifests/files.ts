// A manifest file: why it exists, as its first lines say, and its objects. Files are text only at the very end, so that tests and
// --json see objects.

import { stringify } from 'yaml';

export interface KubeObject {
  apiVersion: string;
  kind: string;
  metadata: { name: string; namespace?: string; labels?: Record<string, string>; annotations?: Record<string, string> };
  [field: string]: unknown;
}

export interface ManifestFile {
  /** Below the folder that all of it is written to. */
  path: string;
  comment: string;
  objects: object[];
}

export const partOf = { 'app.kubernetes.io/part-of': 'warmpath' };

/** An object with the label that all of ours carry. */
export function kubeObject(
  apiVersion: string,
  kind: string,
  metadata: KubeObject['metadata'],
  fields: object = {},
): KubeObject {
  const { name, namespace, labels, ...rest } = metadata;
  return {
    apiVersion,
    kind,
    metadata: { name, ...(namespace === undefined ? {} : { namespace }), labels: { ...partOf, ...labels }, ...rest },
    ...fields,
  };
}

const lineWidth = 110;

/** Folds a comment at blanks; an empty line in it stays one. */
function commentLines(comment: string): string {
  const lines: string[] = [];
  for (const paragraph of comment.split('\n')) {
    let line = '#';
    for (const word of paragraph.split(' ')) {
      if (line.length + 1 + word.length > lineWidth) {
        lines.push(line);
        line = '#';
      }
      line += word === '' ? '' : ` ${word}`;
    }
    lines.push(line);
  }
  return lines.join('\n');
}

export const yamlOf = (object: object): string =>
  stringify(object, { lineWidth: 0, singleQuote: true, aliasDuplicateObjects: false });

/** The text of a file. */
export function fileText({ comment, objects }: Pick<ManifestFile, 'comment' | 'objects'>): string {
  return `${commentLines(comment)}\n${objects.map(yamlOf).join('---\n')}`;
}

/** Several files as one stream of documents, as `kubectl apply -f -` takes it. */
export function streamText(files: readonly ManifestFile[]): string {
  return files.map((file) => `---\n${fileText(file)}`).join('');
}
