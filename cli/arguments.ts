// Parsers for option values, shared by all commands: each says which option, which value and what was expected, and ends in exit code 2.

import { InvalidArgumentError } from 'commander';

/** A whole number within bounds. */
export function wholeNumber(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (!/^\d+$/.test(text) || value < min || value > max) {
      throw new InvalidArgumentError(`Expected a whole number from ${min} to ${max}.`);
    }
    return value;
  };
}

/** A comma-separated list of names out of a fixed set, without repetition. */
export function namesOf<Name extends string>(names: readonly Name[]): (text: string) => Name[] {
  return (text) => {
    const found = text.split(',').map((name) => name.trim());
    for (const name of found) {
      if (!names.includes(name as Name)) {
        throw new InvalidArgumentError(`"${name}" is not known. Known: ${names.join(', ')}.`);
      }
    }
    if (new Set(found).size !== found.length) throw new InvalidArgumentError('A name is given twice.');
    return found as Name[];
  };
}

/** An http URL, collected into a list: the option can be given several times or with several values. */
export function urlList(text: string, before: string[] = []): string[] {
  const url = URL.parse(text);
  if (url === null || url.protocol !== 'http:' || url.hostname === '' || url.pathname !== '/' || url.search !== '') {
    throw new InvalidArgumentError('Expected http://HOST:PORT without a path.');
  }
  return [...before, url.origin];
}

/** NAMESPACE/NAME of an object in Kubernetes. */
export function objectName(text: string): { namespace: string; name: string } {
  const match = /^([^/]+)\/([^/]+)$/.exec(text);
  if (match === null) throw new InvalidArgumentError('Expected NAMESPACE/NAME.');
  return { namespace: match[1] ?? '', name: match[2] ?? '' };
}
