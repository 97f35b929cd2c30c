// The table's two operations: how long a lookup takes by pods and by how much of the table is in the processor's caches, and
// how long a touch takes for each block, first seen and seen again.
//
//   node bench/residency.ts [--json] [--tiny]
import { Table } from '../control-plane/engine/table.ts';
import { main, type Case } from './measure.ts';

const KEYS = 256;
const BLOCK_BYTES = 256;
const none = new BigUint64Array(KEYS);
const MIX = 0x9e3779b97f4a7c15n;

/** Prompts of 256 blocks whose first half is shared by `sharers` of them in a row. */
function promptKeys(prompts: number, sharers: number): BigUint64Array[] {
  return Array.from({ length: prompts }, (_, prompt) =>
    BigUint64Array.from({ length: KEYS }, (_unused, block) => {
      const owner = block < KEYS / 2 ? Math.floor(prompt / sharers) : prompt + 1_000_000;
      return BigInt.asUintN(64, BigInt(owner * KEYS + block + 1) * MIX) ^ 0x5bd1e995n;
    }),
  );
}

async function tableOf(pods: number, blocks: number): Promise<Table> {
  const table = await Table.create({ pods, blocks });
  for (let i = 0; i < pods; i++) table.setPod({ pool: 0, podId: i + 1, capacityTokens: (blocks / pods) * 64 });
  return table;
}

export async function residencyCases(tiny: boolean): Promise<Case[]> {
  const cases: Case[] = [];
  const ends = Uint32Array.from({ length: KEYS }, (_, i) => (i + 1) * BLOCK_BYTES);
  const weights = new Uint32Array(KEYS).fill(BLOCK_BYTES);
  for (const [pods, blocks] of [
    [4, 25_000],
    [64, 400_000],
    [1000, 1_000_000],
  ] as const) {
    const table = await tableOf(pods, tiny ? 25_000 : blocks);
    const prompts = promptKeys(tiny ? 16 : Math.floor(blocks / KEYS), 8);
    for (const [i, keys] of prompts.entries()) table.touch((i * 7) % pods, i + 1, 0n, keys, weights);
    const { exports: e } = table;
    const keysAt = e.tableKeys() >>> 0;
    const endsAt = e.tableNumbers() >>> 0;
    const memory = table.engine.exports.memory.buffer;
    const keysRegion = new BigUint64Array(memory, keysAt, KEYS);
    new Uint32Array(memory, endsAt, KEYS).set(ends);
    let turn = 0;
    const lookup = (count: number, step: number): void => {
      for (let i = 0; i < count; i++) {
        turn = (turn + step) % prompts.length;
        keysRegion.set(prompts[turn] ?? none);
        e.residencyLookupAt(0, keysAt, endsAt, KEYS);
      }
    };
    cases.push(
      { name: `lookup of 256 keys, ${pods} pods, hot`, operations: 2000, run: (count) => lookup(count, 0) },
      { name: `lookup of 256 keys, ${pods} pods, cold`, operations: 1000, run: (count) => lookup(count, 397) },
    );
    if (pods !== 64) continue;
    let now = 1_000_000;
    const touch = (count: number, step: number): void => {
      for (let i = 0; i < count; i++) {
        turn = (turn + step) % prompts.length;
        now++;
        table.touch((turn * 7) % pods, now, 0n, prompts[turn] ?? [], weights);
      }
    };
    let fresh = 0n;
    const freshKeys = new BigUint64Array(KEYS);
    cases.push(
      { name: 'touch of 256 held keys, 64 pods, hot', operations: 500, run: (count) => touch(count, 0) },
      { name: 'touch of 256 held keys, 64 pods, cold', operations: 500, run: (count) => touch(count, 397) },
      {
        name: 'touch of 256 new keys, 64 pods, oldest out',
        operations: 500,
        run: (count) => {
          for (let i = 0; i < count; i++) {
            for (let k = 0; k < KEYS; k++) freshKeys[k] = BigInt.asUintN(64, ++fresh * MIX);
            table.touch(i % pods, ++now, 0n, freshKeys, weights);
          }
        },
      },
    );
  }
  return cases;
}

if (import.meta.main) await main('residency', residencyCases);
