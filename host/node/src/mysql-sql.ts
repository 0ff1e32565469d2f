/**
 * What is sent to a database and checked of it: read from the file that the Rust adapter is tested against, so that all
 * hosts send the same.
 *
 * @module
 */

import { readFileSync } from 'node:fs';

/** A change of a tag's row, as tables of version 1 take it, and as those with stripes do. */
export interface Change {
  readonly plain: string;
  readonly striped: string;
}

/** What a column must hold as it is given. */
export type Holds = 'name' | 'bytes' | 'whole' | 'id';

/** A table, and what grants rest on. */
export interface Shape {
  readonly name: string;
  readonly ddl: string;
  /** The columns of a unique key: these and no other. */
  readonly key: readonly string[];
  readonly columns: readonly (readonly [name: string, holds: Holds])[];
}

type Statements<Name extends string> = { readonly [name in Name]: string };

interface Shared {
  /** The oldest version of the tables that is served, and the one that is created. */
  readonly versions: readonly [number, number];
  readonly lease_version: number;
  readonly settings: readonly (readonly [name: string, literal: string])[];
  readonly checked: readonly string[];
  readonly facts: readonly string[];
  readonly room: readonly string[];
  readonly session: Statements<'read_whole_lists' | 'begin' | 'commit' | 'roll_back'>;
  readonly lookups: Statements<'columns' | 'keys' | 'keys_end' | 'triggers'>;
  readonly store: Statements<'read' | 'recorded' | 'insert' | 'replace' | 'stripe' | 'alone'>;
  readonly identity: Statements<'ddl' | 'read' | 'insert'>;
  readonly place: Statements<'row' | 'made' | 'on_mariadb' | 'on_mysql' | 'known' | 'add_versioning'>;
  readonly segments: Statements<'find' | 'find_locked' | 'floor' | 'row_stripe' | 'begun'> & {
    readonly [name in 'allocate' | 'release' | 'count' | 'insert']: Change;
  };
  readonly leases: Statements<
    | 'read_store'
    | 'has_store'
    | 'time_floor'
    | 'has_tags'
    | 'granted_time'
    | 'kept'
    | 'insert_store'
    | 'raise_horizon'
    | 'look'
    | 'lock'
    | 'bind'
    | 'previous'
    | 'oldest'
    | 'count'
    | 'workers'
    | 'list'
    | 'grant_first'
    | 'grant_again'
    | 'extend'
    | 'release'
  >;
  readonly tables: { readonly store: Shape; readonly tag: Shape; readonly leases: readonly Shape[] };
  readonly errors: readonly (readonly [first: number, last: number, kind: ErrorKind, advice: string])[];
  readonly ends_connection: readonly (readonly [first: number, last: number])[];
}

/** What an error number says of a statement that writes. */
export type ErrorKind = 'unavailable' | 'outcome-unknown' | 'refused';

/** The very file of the Rust adapter, which the build copies next to this module. */
const FILE = new URL('./sql/mysql/shared.json', import.meta.url);

export const SQL = JSON.parse(readFileSync(FILE, 'utf8')) as Shared;

/** An argument of a statement: a whole number of 64 bits, bytes, text, or nothing. */
export type Argument = bigint | Uint8Array | string | null;

/**
 * The statement with its arguments in the places of its marks.
 *
 * The types are those that a prepared statement has: an unsigned number, binary, text. Nothing that an argument holds
 * can end its literal, in whatever SQL mode.
 */
export function bound(statement: string, args: readonly Argument[]): string {
  const parts = statement.split('?');
  if (parts.length !== args.length + 1) {
    throw new RangeError(`${args.length} arguments were given to a statement with ${parts.length - 1} marks`);
  }
  return parts.reduce((sql, part, at) => sql + literal(args[at - 1] as Argument) + part);
}

function literal(value: Argument): string {
  if (value === null) {
    return 'NULL';
  }
  if (typeof value === 'bigint') {
    if (value < 0n || value >= 1n << 64n) {
      throw new RangeError(`${value} does not fit 64 bits`);
    }
    return `CAST(${value} AS UNSIGNED)`;
  }
  return typeof value === 'string' ? `_utf8mb4 ${hexadecimal(value)}` : hexadecimal(value);
}

/** Text or bytes as a constant that nothing can break out of. */
export function hexadecimal(value: string | Uint8Array): string {
  const bytes = typeof value === 'string' ? Buffer.from(value, 'utf8') : Buffer.from(value);
  return `X'${bytes.toString('hex')}'`;
}
