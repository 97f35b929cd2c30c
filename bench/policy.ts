// A pick: lookup of a prompt of 256 keys, costs, and the choice, for 4, 64 and 1,000 pods under load, by each policy.
//
//   node bench/policy.ts [--json] [--tiny]
import { POLICY_CODES } from '../control-plane/engine/frames.ts';
import { Table } from '../control-plane/engine/table.ts';
import { main, type Case } from './measure.ts';

const KEYS = 256;
const BLOCK_BYTES = 256;

export async function policyCases(tiny: boolean): Promise<Case[]> {
  const cases: Case[] = [];
  for (const pods of [4, 64, 1000]) {
    const table = await Table.create({ pods, blocks: tiny ? 8000 : 400_000 });
    const keys = BigUint64Array.from({ length: KEYS }, (_, i) =>
      BigInt.asUintN(64, BigInt(i + 1) * 0x9e3779b97f4a7c15n),
    );
    const weights = new Uint32Array(KEYS).fill(BLOCK_BYTES);
    const now = 1_000_000;
    for (let i = 0; i < pods; i++) {
      const pod = table.setPod({ pool: 0, podId: i + 1, capacityTokens: 400_000 });
      const held = (i * 37) % (KEYS + 1);
      table.touch(pod, now, 0n, keys.subarray(0, held), weights);
      for (let k = 0; k < i % 5; k++) table.dispatch(pod, 500, now);
      table.exports.loadSlownessLearn(pod, 4e-5 + i * 1e-8);
      table.metrics(pod, now, { running: i % 5, waiting: 0, kvUsage: 0.3 });
    }
    const { exports: e } = table;
    const keysAt = e.tableKeys() >>> 0;
    const endsAt = e.tableNumbers() >>> 0;
    const memory = table.engine.exports.memory.buffer;
    new BigUint64Array(memory, keysAt, KEYS).set(keys);
    new Uint32Array(memory, endsAt, KEYS).set(weights.map((_, i) => (i + 1) * BLOCK_BYTES));
    for (const [name, policy] of Object.entries(POLICY_CODES)) {
      cases.push({
        name: `pick by ${name}, ${pods} pods, lookup of 256 keys included`,
        operations: 2000,
        run: (count) => {
          for (let i = 0; i < count; i++) {
            e.residencyLookupAt(0, keysAt, endsAt, KEYS);
            e.policyPick(0, policy, KEYS * BLOCK_BYTES + 4000, keys[0] ?? 1n, now);
          }
        },
      });
    }
  }
  return cases;
}

if (import.meta.main) await main('policy', policyCases);
