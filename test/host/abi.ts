// The numbers of proxy-wasm ABI 0.2.1 that the Node host needs, and the byte forms of its values.

export const Status = {
  ok: 0,
  notFound: 1,
  badArgument: 2,
  invalidMemoryAccess: 6,
  empty: 7,
  casMismatch: 8,
  internalFailure: 10,
  unimplemented: 12,
} as const;

export const Action = { continue: 0, stop: 1, stopAndBuffer: 2 } as const;

export const MapKind = {
  requestHeaders: 0,
  requestTrailers: 1,
  responseHeaders: 2,
  responseTrailers: 3,
  callHeaders: 6,
  callTrailers: 7,
} as const;

export const BufferKind = {
  requestBody: 0,
  responseBody: 1,
  callBody: 4,
  vmConfiguration: 6,
  pluginConfiguration: 7,
} as const;

export const logLevels = ['trace', 'debug', 'info', 'warn', 'error', 'critical'] as const;
export type LogLevel = (typeof logLevels)[number];

/** Headers in order; a name may occur more than once. */
export type HeaderPairs = [name: string, value: string][];
/** What tests write: either the pairs or a plain object. */
export type Headers = Record<string, string> | HeaderPairs;
export type PropertyValue = string | number | boolean | Uint8Array;

const encoder = new TextEncoder();
const decoder = new TextDecoder();

export const utf8 = (text: string): Uint8Array => encoder.encode(text);
export const fromUtf8 = (bytes: Uint8Array): string => decoder.decode(bytes);

export function toPairs(headers: Headers): HeaderPairs {
  const pairs = Array.isArray(headers) ? headers : Object.entries(headers);
  return pairs.map(([name, value]) => [name.toLowerCase(), value]);
}

/** As Envoy answers: text as it is, numbers and times as 8 bytes, truth as one. */
export function propertyBytes(value: PropertyValue): Uint8Array {
  if (typeof value === 'string') return utf8(value);
  if (value instanceof Uint8Array) return value;
  if (typeof value === 'boolean') return Uint8Array.of(value ? 1 : 0);
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigInt64(0, BigInt(Math.trunc(value)), true);
  return bytes;
}

/** | u32 n | n x { u32 nameBytes, u32 valueBytes } | n x { name, 0, value, 0 } | */
export function encodePairs(pairs: HeaderPairs): Uint8Array {
  const texts = pairs.flat().map(utf8);
  const bytes = new Uint8Array(4 + texts.reduce((sum, text) => sum + 4 + text.length + 1, 0));
  const view = new DataView(bytes.buffer);
  view.setUint32(0, pairs.length, true);
  let at = 4 + texts.length * 4;
  for (const [i, text] of texts.entries()) {
    view.setUint32(4 + i * 4, text.length, true);
    bytes.set(text, at);
    at += text.length + 1;
  }
  return bytes;
}

export function decodePairs(bytes: Uint8Array): HeaderPairs {
  if (bytes.length < 4) return [];
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const n = view.getUint32(0, true);
  let at = 4 + n * 8;
  const pairs: HeaderPairs = [];
  for (let i = 0; i < n; i++) {
    const nameEnd = at + view.getUint32(4 + i * 8, true);
    const valueEnd = nameEnd + 1 + view.getUint32(8 + i * 8, true);
    if (valueEnd > bytes.length) throw new Error('a header map from the filter runs past its end');
    pairs.push([fromUtf8(bytes.slice(at, nameEnd)), fromUtf8(bytes.slice(nameEnd + 1, valueEnd))]);
    at = valueEnd + 1;
  }
  return pairs;
}
