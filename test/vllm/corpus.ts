// Text for prompts, in languages whose bytes a tokenizer splits very differently: sentences drawn at random, with numbers among
// them, so that no two passages are alike and the same seed gives the same passage.

import type { Random } from '../../sim/random.ts';

const sentences = {
  english: [
    'The harbour was quiet when the first boats came back from the northern banks.',
    'Every invoice must name the order, the tax rate and the account that is to be charged.',
    'She measured the temperature twice a day and wrote both values into the same notebook.',
    'A cache that nobody trusts is slower than no cache at all.',
    'Please summarise the discussion above and list the open questions by their owner.',
    'The committee will publish its findings before the end of the month.',
    'Rain is expected in the west, with wind from the south and a chance of thunder.',
    'Customers who return a device within two weeks get their money back without questions.',
  ],
  german: [
    'Die Bäckerei öffnet um sechs Uhr, aber die ersten Kunden warten schon vorher vor der Tür.',
    'Für die Prüfung gelten dieselben Regeln wie im vergangenen Jahr, ausgenommen Übungsaufgaben.',
    'Der Zug nach Nürnberg fährt heute von Gleis vier und hat ungefähr zehn Minuten Verspätung.',
    'Größere Änderungen müssen schriftlich begründet und von zwei Personen geprüft werden.',
    'Wir möchten wissen, wie häufig dieser Fehler auftritt und welche Geräte betroffen sind.',
  ],
  russian: [
    'Утром на площади открылся рынок, и к полудню там уже не осталось свежей рыбы.',
    'Пожалуйста, проверьте договор ещё раз и отметьте все пункты, которые вызывают сомнение.',
    'Температура воды в озере поднялась до восемнадцати градусов, что необычно для мая.',
    'Система отвечает медленно, когда несколько пользователей одновременно загружают отчёты.',
    'Он вспомнил, что оставил ключи на столе рядом с незаконченным письмом.',
  ],
  chinese: [
    '会议推迟到星期四下午三点,请各部门提前准备好上个季度的数据。',
    '这座城市的老街保存得很好,每年都有许多游客前来参观。',
    '如果系统在一分钟之内没有响应,请先检查网络连接,然后再重新启动服务。',
    '他把书放回书架,关上灯,静静地听着窗外的雨声。',
    '请根据上面的材料写一段不超过两百字的摘要。',
  ],
  code: [
    'for (const [key, value] of Object.entries(headers)) { if (value !== undefined) out.push(`${key}: ${value}`); }',
    'def parse(line):\n    name, _, rest = line.partition(":")\n    return name.strip().lower(), rest.strip()',
    '{"level":"warn","msg":"retrying","attempt":3,"delay_ms":250,"url":"https://example.com/v1/items"}',
    "SELECT customer_id, SUM(amount) FROM payments WHERE paid_at >= DATE '2024-01-01' GROUP BY customer_id;",
    'if err := json.NewDecoder(r.Body).Decode(&in); err != nil {\n\treturn fmt.Errorf("decode: %w", err)\n}',
  ],
} as const;

export type Language = keyof typeof sentences;
export const languages = Object.keys(sentences) as Language[];

/** A passage of about that many bytes, numbered so that it is like no other. */
export function passage(random: Random, language: Language, bytes: number): string {
  const choice = sentences[language];
  const parts: string[] = [];
  let length = 0;
  while (length < bytes) {
    const part = `${choice[random.below(choice.length)]} ${random.below(10_000)}. `;
    parts.push(part);
    length += Buffer.byteLength(part);
  }
  return parts.join('').trimEnd();
}
