// Endpoints as people write them (10.0.0.7:8000, [2001:db8::7]:8000, http://localhost:8000) and as the wire carries them
// (16 bytes and a port). Host names are not resolved: a pick must name an address that Envoy's cluster also has.
import { isIPv4, isIPv6 } from 'node:net';
import { invalid } from './errors.ts';

export interface Address {
  /** ip:port with IPv6 in brackets and in its shortest form: the key of an endpoint. A mapped IPv4 is written as IPv4. */
  text: string;
  bytes: Uint8Array;
  port: number;
}

const EXPECTED = 'an endpoint such as 10.0.0.7:8000, [2001:db8::7]:8000 or http://127.0.0.1:8000';

function mapped(ip: string): Uint8Array {
  const bytes = new Uint8Array(16);
  bytes[10] = 0xff;
  bytes[11] = 0xff;
  ip.split('.').forEach((part, index) => (bytes[12 + index] = Number(part)));
  return bytes;
}

function fromIPv6(ip: string): Uint8Array {
  // A dotted tail is turned into two groups, then the one gap is filled with zeros.
  const dotted = /^(.*:)(\d+)\.(\d+)\.(\d+)\.(\d+)$/.exec(ip);
  const plain = dotted
    ? `${dotted[1]}${(Number(dotted[2]) * 256 + Number(dotted[3])).toString(16)}:${(Number(dotted[4]) * 256 + Number(dotted[5])).toString(16)}`
    : ip;
  const [head = '', tail] = plain.split('::');
  const left = head === '' ? [] : head.split(':');
  const right = tail === undefined || tail === '' ? [] : tail.split(':');
  const groups = [...left, ...Array<string>(8 - left.length - right.length).fill('0'), ...right];
  const bytes = new Uint8Array(16);
  groups.forEach((group, index) => {
    const value = Number.parseInt(group, 16);
    bytes[index * 2] = value >> 8;
    bytes[index * 2 + 1] = value & 255;
  });
  return bytes;
}

export function parseAddress(value: unknown, key: string): Address {
  if (typeof value !== 'string') throw invalid(key, value, EXPECTED);
  const parts = /^(?:http:\/\/)?(?:\[([^\]]+)\]|([^:/[\]]+)):(\d{1,5})\/?$/.exec(value.trim());
  const port = Number(parts?.[3]);
  const host = parts?.[2] === 'localhost' ? '127.0.0.1' : (parts?.[2] ?? parts?.[1] ?? '');
  if (parts === null || port < 1 || port > 65535) throw invalid(key, value, EXPECTED);
  if (parts[1] === undefined && isIPv4(host)) return { text: `${host}:${port}`, bytes: mapped(host), port };
  if (parts[1] !== undefined && isIPv6(host) && !host.includes('%')) {
    const bytes = fromIPv6(host);
    // The wire knows no difference between the two spellings of an IPv4 address, so here there is none either.
    const isMapped = bytes.subarray(0, 10).every((byte) => byte === 0) && bytes[10] === 0xff && bytes[11] === 0xff;
    const text = isMapped ? bytes.subarray(12).join('.') : new URL(`http://[${host}]`).hostname;
    return { text: `${text}:${port}`, bytes, port };
  }
  throw invalid(key, value, EXPECTED);
}
