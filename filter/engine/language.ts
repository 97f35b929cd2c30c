// The language of a prompt, as far as its script tells: latin, cyrillic, CJK or another one. Tokenizers give each a ratio of bytes to tokens of
// its own, so what is reported of predictions is told apart by it (docs/WIRE.md, outcomes).
//
// It is a guess from samples: 32 bytes at the end of each block of text. Letters are counted by the first byte of their UTF-8 form and
// weighed by its length. Media, tools and names are not looked at.
import { AT_LETTERS, recordOf } from './record';

export const LANGUAGE_OTHER: u32 = 0;
export const LANGUAGE_LATIN: u32 = 1;
export const LANGUAGE_CYRILLIC: u32 = 2;
export const LANGUAGE_CJK: u32 = 3;

export const SAMPLE_BYTES: u32 = 32;

function count(mask: v128): u32 {
  return <u32>popcnt(i8x16.bitmask(mask));
}

function add(rec: usize, language: u32, bytes: u32): void {
  const where = rec + AT_LETTERS + (language << 2);
  store<u32>(where, load<u32>(where) + bytes);
}

/** Counts the letters among 32 bytes of text. */
export function languageSample(rec: usize, ptr: usize): void {
  for (let at: usize = 0; at < SAMPLE_BYTES; at += 16) {
    const bytes = v128.load(ptr + at);
    // A to Z and a to z.
    const folded = i8x16.sub(v128.or(bytes, i8x16.splat(0x20)), i8x16.splat(0x61));
    let latin = count(i8x16.lt_u(folded, i8x16.splat(26)));
    if (v128.any_true(v128.and(bytes, i8x16.splat(<i8>0x80)))) {
      // C3 to C9: letters with marks; D0 to D3: Cyrillic; E3 to ED: Chinese, Japanese, Korean; what else lies from C3 to E1: other scripts. E2 is
      // punctuation.
      const marked = count(i8x16.lt_u(i8x16.sub(bytes, i8x16.splat(<i8>0xc3)), i8x16.splat(7)));
      const cyrillic = count(i8x16.lt_u(i8x16.sub(bytes, i8x16.splat(<i8>0xd0)), i8x16.splat(4)));
      const all = count(i8x16.lt_u(i8x16.sub(bytes, i8x16.splat(<i8>0xc3)), i8x16.splat(31)));
      latin += marked << 1;
      add(rec, LANGUAGE_CYRILLIC, cyrillic << 1);
      add(rec, LANGUAGE_CJK, 3 * count(i8x16.lt_u(i8x16.sub(bytes, i8x16.splat(<i8>0xe3)), i8x16.splat(11))));
      add(rec, LANGUAGE_OTHER, (all - marked - cyrillic) << 1);
    }
    add(rec, LANGUAGE_LATIN, latin);
  }
}

/** The language of the prompt that was read in a slot. */
export function scanLanguage(slot: i32): u32 {
  const rec = recordOf(slot);
  let language = LANGUAGE_OTHER;
  if (rec == 0) return language;
  for (let other: u32 = LANGUAGE_LATIN; other <= LANGUAGE_CJK; other++) {
    if (load<u32>(rec + AT_LETTERS + (other << 2)) > load<u32>(rec + AT_LETTERS + (language << 2))) language = other;
  }
  return language;
}
