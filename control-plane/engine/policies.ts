// The policies by name and by their number on the wire, and where those that need a key find it.

/** Policies by their number on the wire. `prefill-cost-first` is for replays and tests; a gateway that is told so takes the default. */
export const POLICY_CODES = {
  'prefill-cost': 0,
  'least-request': 1,
  'round-robin': 2,
  'first-block-hash': 3,
  'prefill-cost-first': 4,
  weighted: 5,
  session: 6,
  'prefix-header': 7,
} as const;
export type EnginePolicy = keyof typeof POLICY_CODES;
export type PolicyName = Exclude<EnginePolicy, 'prefill-cost-first'>;
/** What a pool can be set to. */
export const POLICIES = (Object.keys(POLICY_CODES) as EnginePolicy[]).filter(
  (name): name is PolicyName => name !== 'prefill-cost-first',
);

/** Where the policies session and prefix-header find their key. */
export const KEY_SOURCES = ['header', 'cookie'] as const;
export interface PolicyKey {
  source: (typeof KEY_SOURCES)[number];
  name: string;
}

export const SESSION_KEY_TYPE = "a header's name, or cookie:NAME, of 1 to 64 letters, digits and -_.";
export const PREFIX_HEADER_TYPE = "a header's name of 1 to 64 letters, digits and -_.";

const headerName = /^[A-Za-z0-9][-A-Za-z0-9_.]{0,63}$/;

/** Where the sessions of a pool have their name: a header, whose case does not matter, or `cookie:NAME`. */
export function readSessionKey(text: string): PolicyKey | undefined {
  const isCookie = text.startsWith('cookie:');
  const name = isCookie ? text.slice('cookie:'.length) : text;
  if (!headerName.test(name)) return undefined;
  return isCookie ? { source: 'cookie', name } : { source: 'header', name: name.toLowerCase() };
}

/** The header in which clients send a hash of their own. */
export function readPrefixHeader(text: string): PolicyKey | undefined {
  return headerName.test(text) ? { source: 'header', name: text.toLowerCase() } : undefined;
}

/** What a policy goes by beside the prompt, if it goes by anything. */
export function policyKeyOf(policy: PolicyName, sessionKey: string, prefixHeader: string): PolicyKey | undefined {
  if (policy === 'session') return readSessionKey(sessionKey);
  return policy === 'prefix-header' ? readPrefixHeader(prefixHeader) : undefined;
}
