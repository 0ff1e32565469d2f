/**
 * A SQLite database of a store, as those ask it who grant from it: a file, or a Durable Object of Cloudflare's.
 *
 * @module
 */

import type { Expiry } from './lease-rules.js';
import { StoreError } from './store.js';

/** What a statement is given and answers. */
export type Value = bigint | string | Uint8Array | null;

/** One row, by the names of its columns. Whole numbers are bigints. */
export type Row = Readonly<Record<string, unknown>>;

/** Runs a statement that reads. */
export type Rows = (sql: string, args: readonly Value[]) => Row[];

/** The statements of the Rust adapter that grants rest on, by the names of their files. */
export const GRANTING = [
  'allocate',
  'release',
  'create',
  'bind_namespace',
  'namespace',
  'previous',
  'oldest',
  'grant',
  'extend',
  'end',
] as const;

/** Everything here blocks. */
export interface Database {
  /** For messages. */
  readonly path: string;
  readonly sql: Readonly<Record<(typeof GRANTING)[number], string>>;
  /** Runs one statement that writes, to its end, and answers its rows. */
  write(doing: string, sql: string, args?: readonly Value[]): Row[];
  /** Runs one statement that reads. */
  read(doing: string, sql: string, args?: readonly Value[]): Row[];
  /** Several statements that read at one instant. */
  reading<T>(doing: string, work: (rows: Rows) => T): T;
  /** The store's clock, in Unix milliseconds. */
  readClock(): bigint;
  /** Which leases have ended, by this reading of the clock. */
  expiry(storeMs: bigint, maxHorizonMs: bigint): Expiry;
}

/** What the store wrote is not there any more, or is something else. */
export function damaged(path: string, what: string): StoreError {
  const advice = 'restore the file from a backup, or find out who changed it';
  return new StoreError('corrupt', `${path}: ${what}; ${advice}`);
}

/** Bytes as hexadecimal digits. */
export function hexOf(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}
