// The language of a prompt by its script, as outcomes tell requests apart.
import fc from 'fast-check';
import { beforeAll, expect, test } from 'vitest';
import { KeyReader } from '../../control-plane/engine/keys.ts';

let reader: KeyReader;
beforeAll(async () => {
  reader = await KeyReader.create();
});

const PATH = '/v1/chat/completions';
const chat = (text: unknown, extra: object = {}): Buffer =>
  Buffer.from(JSON.stringify({ model: 'qwen', messages: [{ role: 'user', content: text }], ...extra }));

const texts = {
  latin: 'The quick brown fox jumps over the lazy dog. ',
  cyrillic: 'Съешь же ещё этих мягких французских булок, да выпей чаю. ',
  cjk: '我能吞下玻璃而不伤身体。いろはにほへと、ちりぬるを。다람쥐 헌 쳇바퀴에 타고파. ',
  other: 'נהניתי מאוד לקרוא את הספר הזה. الحروف العربية جميلة. ξεσκεπάζω την ψυχοφθόρα βδελυγμία. ',
};

test.each(Object.entries(texts))('%s, short and long, plain and escaped, however it is cut', (language, text) => {
  for (const times of [1, 3, 40, 2000]) {
    const plain = chat(text.repeat(times));
    const escaped = Buffer.from(
      plain.toString().replaceAll(/[\u0080-\uffff]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`),
    );
    expect(reader.language(PATH, plain)).toBe(language);
    expect(reader.language(PATH, escaped)).toBe(language);
    const cuts = [1, 50, 77, 300, 301, plain.length >> 1];
    expect(reader.language(PATH, plain, cuts)).toBe(language);
  }
});

test('marks, tools, a picture and names in another script do not change it; most of the text does', () => {
  expect(reader.language(PATH, chat('Übermäßig schöne Größen où ça naît déjà. '.repeat(9)))).toBe('latin');
  const tools = [{ type: 'function', function: { name: 'look_up', description: 'Looks something up. '.repeat(200) } }];
  expect(reader.language(PATH, chat(texts.cyrillic.repeat(9), { tools }))).toBe('cyrillic');
  const picture = { type: 'image_url', image_url: { url: `data:image/png;base64,${'iVBORw0KGgo'.repeat(9000)}` } };
  expect(reader.language(PATH, chat([{ type: 'text', text: texts.cjk.repeat(9) }, picture]))).toBe('cjk');
  expect(reader.language(PATH, chat(texts.latin.repeat(3) + texts.cyrillic.repeat(20)))).toBe('cyrillic');
  expect(reader.language(PATH, chat('1234 5678 — … 90'))).toBe('other');
  expect(reader.language('/v1/completions', Buffer.from('{"model":"m","prompt":[1,2,3,4]}'))).toBe('other');
});

test('of any text: one of the four', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 900 }), (text) => {
      expect(['other', 'latin', 'cyrillic', 'cjk']).toContain(reader.language(PATH, chat(text)));
    }),
  );
});
