// A pick: lookup of a prompt of 256 keys, costs, and the choice, for 4, 64 and 1,000 pods under load, by each policy; and cold picks, each of
// another chain of a table that is full, which no processor's cache holds.
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
            e.policyPick(0, policy, KEYS * BLOCK_BYTES + 4000, keys[0] ?? 1n, 0, now);
          }
        },
      });
    }
  }
  for (const pods of [64, 1000]) cases.push(await coldCase(pods, tiny));
  return cases;
}

/** Chains of random keys, each held by one pod, until the table is full. */
async function coldCase(pods: number, tiny: boolean): Promise<Case> {
  const blocks = tiny ? 8000 : 400_000;
  const table = await Table.create({ pods, blocks });
  const slots = Array.from({ length: pods }, (_, i) =>
    table.setPod({ pool: 0, podId: i + 1, capacityTokens: 100_000_000 }),
  );
  const chains = Math.floor(blocks / KEYS);
  const weights = new Uint32Array(KEYS).fill(BLOCK_BYTES);
  let state = 88_172_645_463_325_252n;
  const random = (): bigint => {
    state = BigInt.asUintN(64, state ^ (state << 13n));
    state ^= state >> 7n;
    state = BigInt.asUintN(64, state ^ (state << 17n));
    return state;
  };
  const keys = BigUint64Array.from({ length: chains * KEYS }, random);
  const now = 1_000_000;
  for (let i = 0; i < chains; i++) {
    const pod = slots[Number(random() % BigInt(pods))]!;
    table.touch(pod, now - chains + i, 0n, keys.subarray(i * KEYS, (i + 1) * KEYS), weights);
    if (i % 4 === 0) table.dispatch(pod, 500, now);
  }
  const { exports: e } = table;
  const keysAt = e.tableKeys() >>> 0;
  const endsAt = e.tableNumbers() >>> 0;
  const memory = table.engine.exports.memory.buffer;
  const region = new BigUint64Array(memory, keysAt, KEYS);
  new Uint32Array(memory, endsAt, KEYS).set(weights.map((_, i) => (i + 1) * BLOCK_BYTES));
  const mib = (memory.byteLength / 2 ** 20).toFixed(1);
  let next = 0;
  return {
    name: `pick by prefill-cost, ${pods} pods, cold: ${(chains * KEYS) / 1000}k keys, random chains, ${mib} MiB`,
    operations: 2000,
    run: (count) => {
      for (let i = 0; i < count; i++) {
        next = (next + 7919) % chains;
        region.set(keys.subarray(next * KEYS, (next + 1) * KEYS));
        e.residencyLookupAt(0, keysAt, endsAt, KEYS);
        e.policyPick(0, 0, KEYS * BLOCK_BYTES + 4000, region[0]!, 0, now);
      }
    },
  };
}

if (import.meta.main) await main('policy', policyCases);
