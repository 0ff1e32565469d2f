/**
 * The SQLite database of a Durable Object, for the statements of the SQLite adapter.
 *
 * Its numbers are JavaScript's, which round above 2^53. So whole numbers go in and out as texts, which SQLite casts,
 * and a number that comes out as such is refused where it may have been rounded.
 *
 * @module
 */

import { statements } from './glue/sqlite-sql.js';
import { StoreError } from './store.js';

/** What a statement is given and answers. */
export type Value = bigint | string | Uint8Array | null;

/** One row, by the names of its columns. Whole numbers are bigints. */
export type Row = Readonly<Record<string, unknown>>;

/** The statements of the SQLite adapter that objects grant by, by the names of their files. */
type Granting =
  | 'allocate'
  | 'release'
  | 'create'
  | 'bind_namespace'
  | 'namespace'
  | 'previous'
  | 'oldest'
  | 'grant'
  | 'extend'
  | 'end';

/** What is used of a Durable Object's storage. */
export interface ObjectStorage {
  readonly sql: {
    exec(sql: string, ...bindings: readonly (string | number | Uint8Array | null)[]): {
      toArray(): Record<string, unknown>[];
    };
  };
  transactionSync<T>(work: () => T): T;
  sync(): Promise<void>;
}

/** What is used of a Durable Object's state. */
export interface ObjectState {
  readonly id: { readonly name?: string };
  readonly storage: ObjectStorage;
}

/** The columns of the tables that are read whole; those of whole numbers end in `#`, and are read as texts. */
const COLUMNS: Readonly<Record<string, readonly string[]>> = {
  tag: [
    'tag',
    'start#',
    'mode',
    'step_policy',
    'step#',
    'step_min#',
    'step_max#',
    'grow_below_ms#',
    'shrink_above_ms#',
    'refill_policy',
    'refill#',
    'generation#',
    'grant_start#',
    'settled#',
    'watermark#',
    'version#',
  ],
  namespace: [
    'namespace',
    'timestamp_bits#',
    'datacenter_bits#',
    'worker_bits#',
    'sequence_bits#',
    'field_order',
    'epoch_ms#',
    'tick_ms#',
    'max_horizon_ms#',
  ],
  lease: [
    'namespace',
    'worker#',
    'grant_id',
    'holder',
    'not_before_ms#',
    'valid_until_ms#',
    'acquired_ms#',
    'released#',
  ],
};

/** Statements that answer rows, with their columns by name, and whole numbers as texts. */
const expanded = new Map<string, string>();

/** A statement without what it has in parentheses, which may name other tables. */
function withoutParentheses(sql: string): string {
  const outer = sql.replace(/\([^()]*\)/g, '');
  return outer === sql ? sql : withoutParentheses(outer);
}

function expand(sql: string): string {
  let known = expanded.get(sql);
  if (known === undefined) {
    const columns = COLUMNS[/\b(?:UPDATE|INTO|FROM) (\w+)/.exec(withoutParentheses(sql))?.[1] ?? ''] ?? [];
    const read = (column: string) => {
      const name = column.replace('#', '');
      return name === column ? name : `CAST(${name} AS TEXT) AS "${column}"`;
    };
    const named = (name: string) => columns.find((column) => column.replace('#', '') === name) ?? name;
    known = sql
      .replace(/\b(SELECT|RETURNING) \*/g, (_, word: string) => `${word} ${columns.map(read).join(', ')}`)
      .replace(
        /\bRETURNING (\w+(?:,\s+\w+)*)\s*$/,
        (_, names: string) => `RETURNING ${names.split(/,\s+/).map((name) => read(named(name))).join(', ')}`,
      );
    expanded.set(sql, known);
  }
  return known;
}

/** The schema of the SQLite adapter. The marks in a file's header are for files. */
export function schema(): string {
  return (statements['schema'] ?? '').replace(/^PRAGMA .*$/gm, '');
}

/** All in one transaction of the caller's. */
export class ObjectDatabase {
  readonly sql = statements as Readonly<Record<Granting, string>>;

  constructor(
    /** For messages. */
    readonly path: string,
    private readonly storage: ObjectStorage,
  ) {}

  /** The object's clock, in Unix milliseconds. The platform sets it, and nobody else. */
  readClock(): bigint {
    const now = Math.floor(Date.now());
    if (!Number.isSafeInteger(now) || now < 0) {
      throw new StoreError('unavailable', `the store's clock is before 1970 (${now} ms)`);
    }
    return BigInt(now);
  }

  /** Runs one statement to its end, and answers its rows. */
  run(sql: string, args: readonly Value[] = []): Row[] {
    // Without the cast a text is greater than any number.
    const cast = expand(sql).replace(/\?(\d+)/g, (place, number: string) =>
      typeof args[Number(number) - 1] === 'bigint' ? `CAST(${place} AS INTEGER)` : place,
    );
    const bindings = args.map((arg) => (typeof arg === 'bigint' ? String(arg) : arg));
    return this.storage.sql.exec(cast, ...bindings).toArray().map((row) => this.read64(row));
  }

  private read64(row: Record<string, unknown>): Row {
    const read: Record<string, unknown> = {};
    for (const [name, value] of Object.entries(row)) {
      if (typeof value === 'number') {
        if (!Number.isSafeInteger(value)) {
          throw damaged(this.path, `${name} is ${value}, and no whole number below 2^53`);
        }
        read[name] = BigInt(value);
      } else if (value instanceof ArrayBuffer) {
        read[name] = new Uint8Array(value);
      } else if (name.endsWith('#')) {
        read[name.slice(0, -1)] = typeof value === 'string' ? BigInt(value) : value;
      } else {
        read[name] = value;
      }
    }
    return read;
  }
}

/** What the store wrote is not there any more, or is something else. */
export function damaged(path: string, what: string): StoreError {
  return new StoreError('corrupt', `${path}: ${what}; find out who changed it`);
}

/** Bytes as hexadecimal digits. */
export function hexOf(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}
