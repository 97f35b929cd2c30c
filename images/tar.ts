// A tar archive of one file, the same bytes for the same content: no time, no owner. Layers of images are such archives.

const blockBytes = 512;

function header(name: string, sizeBytes: number): Buffer {
  const block = Buffer.alloc(blockBytes);
  const octal = (value: number, digits: number): string => `${value.toString(8).padStart(digits, '0')}\0`;
  const put = (text: string, at: number): void => void block.write(text, at, 'latin1');
  // The fields of a POSIX ustar header, by their offsets.
  put(name, 0);
  put(octal(0o644, 7), 100);
  put(octal(0, 7), 108);
  put(octal(0, 7), 116);
  put(octal(sizeBytes, 11), 124);
  put(octal(0, 11), 136);
  put(' '.repeat(8), 148);
  put('0', 156);
  put('ustar\x0000', 257);
  const sum = block.reduce((total, byte) => total + byte, 0);
  put(`${octal(sum, 6)} `, 148);
  return block;
}

/** `name` has at most 99 bytes of ASCII. */
export function tarOf(name: string, content: Uint8Array): Buffer {
  if (!/^[\x21-\x7e]{1,99}$/.test(name)) throw new Error(`not a name for an archive: ${name}`);
  const padding = Buffer.alloc((blockBytes - (content.length % blockBytes)) % blockBytes);
  const end = Buffer.alloc(2 * blockBytes);
  return Buffer.concat([header(name, content.length), content, padding, end]);
}
