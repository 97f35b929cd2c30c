// Checks an object against the structural schema of a CRD the way a strict API server does: types, enums, patterns, required fields, and no
// field that the schema does not know. Rules in CEL are left to the real API server (test/kube).

export interface Schema {
  type?: string;
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  enum?: unknown[];
  pattern?: string;
  minLength?: number;
  maxLength?: number;
  minimum?: number;
  maximum?: number;
  minItems?: number;
  maxItems?: number;
  anyOf?: Schema[];
  oneOf?: Schema[];
  not?: Schema;
  additionalProperties?: Schema | boolean;
  'x-kubernetes-preserve-unknown-fields'?: boolean;
  'x-kubernetes-int-or-string'?: boolean;
}

const typeOf = (value: unknown): string =>
  Array.isArray(value) ? 'array' : value === null ? 'null' : Number.isInteger(value) ? 'integer' : typeof value;

function isType(wanted: string, value: unknown): boolean {
  const type = typeOf(value);
  return type === wanted || (wanted === 'number' && type === 'integer');
}

/** What is wrong, each as `path: sentence`; nothing when all is well. */
export function faults(schema: Schema, value: unknown, path = ''): string[] {
  if (schema['x-kubernetes-int-or-string'])
    return isType('integer', value) || isType('string', value) ? [] : [`${path}: ${typeOf(value)}`];
  if (schema.type !== undefined && !isType(schema.type, value))
    return [`${path}: ${typeOf(value)} is not ${schema.type}`];
  return [...own(schema, value, path), ...combined(schema, value, path), ...inside(schema, value, path)];
}

function own(schema: Schema, value: unknown, path: string): string[] {
  const found: string[] = [];
  const say = (isBad: boolean, sentence: string): void => {
    if (isBad) found.push(`${path}: ${sentence}`);
  };
  if (schema.enum !== undefined) say(!schema.enum.includes(value), `${JSON.stringify(value)} is not in the enum`);
  if (typeof value === 'string') {
    if (schema.pattern !== undefined)
      say(!new RegExp(schema.pattern).test(value), `${value} does not match ${schema.pattern}`);
    say(value.length < (schema.minLength ?? 0) || value.length > (schema.maxLength ?? Infinity), 'length');
  }
  if (typeof value === 'number')
    say(value < (schema.minimum ?? -Infinity) || value > (schema.maximum ?? Infinity), `${value} is out of range`);
  if (Array.isArray(value))
    say(value.length < (schema.minItems ?? 0) || value.length > (schema.maxItems ?? Infinity), 'number of items');
  return found;
}

function combined(schema: Schema, value: unknown, path: string): string[] {
  const fits = (other: Schema): boolean => own(other, value, path).length + missing(other, value, path).length === 0;
  if (schema.anyOf !== undefined && !schema.anyOf.some(fits)) return [`${path}: fits none of anyOf`];
  if (schema.oneOf !== undefined && schema.oneOf.filter(fitsWhole).length !== 1)
    return [`${path}: does not fit exactly one of oneOf`];
  return [];

  function fitsWhole(other: Schema): boolean {
    if (other.not !== undefined) return !(other.not.anyOf ?? [other.not]).some(fits);
    return fits(other);
  }
}

function missing(schema: Schema, value: unknown, path: string): string[] {
  if (typeof value !== 'object' || value === null) return [];
  return (schema.required ?? []).filter((key) => !(key in value)).map((key) => `${path}.${key}: is required`);
}

function inside(schema: Schema, value: unknown, path: string): string[] {
  if (Array.isArray(value))
    return value.flatMap((item, i) => (schema.items ? faults(schema.items, item, `${path}[${i}]`) : []));
  if (typeof value !== 'object' || value === null) return [];
  return [
    ...missing(schema, value, path),
    ...Object.entries(value).flatMap(([key, child]) => {
      const at = `${path}.${key}`;
      const known = schema.properties?.[key] ?? schema.additionalProperties;
      if (typeof known === 'object') return faults(known, child, at);
      if (known === true || schema['x-kubernetes-preserve-unknown-fields']) return [];
      return [`${at}: unknown field`];
    }),
  ];
}
