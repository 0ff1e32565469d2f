/**
 * Segments and leases in one SQLite file, in the tables that the `unalike` command and its server use.
 *
 * @module
 */

import { resolve } from 'node:path';

import { checkAddress } from './address.js';
import { DEFAULT_LEASE_LIMITS, validateLimits } from './lease-rules.js';
import { whole } from './names.js';
import { checkedOptions, FLAG, NUMBER, wholeFrom, type Kinds } from './options.js';
import { openStores, RustStore } from './rust-store.js';
import { refusedByStore } from './store.js';

/** What a store's clients may do, and how long they wait. */
export interface SqliteOptions {
  /** Create the file when it does not exist; its directory must exist. `true` by default. */
  readonly create?: boolean;
  /** Whether tags are created on first use. `true` by default. */
  readonly createTags?: boolean;
  /** How many tags there may be, sub-keys not counted. 1,000,000 by default. */
  readonly tagsMax?: bigint | number;
  /** How far ahead of the clock a lease may reach: 1 ms to 366 days. 10 minutes by default. */
  readonly maxHorizonMs?: bigint | number;
  /** How far a holder's clock may be from the store's: up to an hour, 10 s by default. */
  readonly maxSkewMs?: bigint | number;
  /**
   * How long a request waits for other processes, and for its turn in this one (there a second at least): 0 to 600000
   * ms, 5 s by default.
   */
  readonly busyTimeoutMs?: number;
}

const OPTIONS: Kinds<SqliteOptions> = {
  create: FLAG,
  createTags: FLAG,
  tagsMax: NUMBER,
  maxHorizonMs: NUMBER,
  maxSkewMs: NUMBER,
  busyTimeoutMs: wholeFrom(0, 600_000),
};

/**
 * Segments and leases in one SQLite file, shared by all processes of a machine.
 *
 * Every grant is on the disk before anybody hears of it. The file must lie on a local disk: write-ahead logging does
 * not work over network file systems. A file that is deleted, or restored from an old backup, takes its knowledge of
 * what was granted with it. A program that has the file open notices before its next grant that it was deleted, moved
 * or replaced (or the files beside it), and grants nothing any more.
 *
 * Raising, ending, importing and resizing stay with the `unalike` command. A store that is a stripe of a set is
 * refused: open the set with `Store` of `unalike/stores`, or use it through the `unalike` server.
 *
 * ```js
 * import { SqliteStore } from 'unalike/sqlite';
 *
 * const store = await SqliteStore.open('/var/lib/ids.sqlite');
 * const segment = await store.allocate('order', 100n, 0n);
 * await store.close();
 * ```
 */
export class SqliteStore extends RustStore {
  /**
   * Opens the file, or creates it, and proves that it can be written to. A file of the schema before is brought to this
   * one; programs of the version before that have it open go on.
   *
   * @param path The file; SQLite puts a `-wal` and a `-shm` file beside it. A path without `?`, `#` and
   *   percent-encoded characters, or a URL as the `unalike` command takes it:
   *   `sqlite://PATH[?create=false&busy-timeout-ms=5000]`.
   * @throws {StoreError} `refused` when the file or its directory is missing, is not writable, or belongs to another
   *   program or to a newer version of this one; `corrupt` when it is no database or a damaged one; `unavailable` when
   *   another process keeps it locked. Each says what to do.
   */
  static async open(path: string, options: SqliteOptions = {}): Promise<SqliteStore> {
    const checked = checkedOptions('options', options, OPTIONS, refusedByStore);
    const { createTags, tagsMax, maxHorizonMs, maxSkewMs } = checked;
    const limits = {
      maxHorizonMs: whole('maxHorizonMs', maxHorizonMs ?? DEFAULT_LEASE_LIMITS.maxHorizonMs),
      maxSkewMs: whole('maxSkewMs', maxSkewMs ?? DEFAULT_LEASE_LIMITS.maxSkewMs),
    };
    validateLimits(limits);
    const stores = await openStores({
      store: urlOf(path, checked),
      createTags,
      tagsMax,
      leaseHorizonMaxMs: limits.maxHorizonMs,
      leaseSkewMaxMs: limits.maxSkewMs,
    });
    return new SqliteStore(stores);
  }
}

/** The URL of a path or a URL, with what the options say of it. @throws {StoreError} `refused` */
function urlOf(given: unknown, { create, busyTimeoutMs }: SqliteOptions): string {
  const text = checkAddress('the path of the store', given);
  if (text.includes('\0') || !text.isWellFormed()) {
    throw refusedByStore(`the path ${JSON.stringify(text)} is not usable: name a file`);
  }
  let url = text.startsWith('sqlite:') ? text : urlOfPath(text);
  const parameters = [
    ['create', 'create', create],
    ['busyTimeoutMs', 'busy-timeout-ms', busyTimeoutMs],
  ] as const;
  for (const [option, parameter, value] of parameters.filter(([, , value]) => value !== undefined)) {
    if (new RegExp(`[?&]${parameter}=`).test(url)) {
      throw refusedByStore(`the address of the store has a parameter beside the option ${option}: give one`);
    }
    url += `${url.includes('?') ? '&' : '?'}${parameter}=${value}`;
  }
  return url;
}

function urlOfPath(path: string): string {
  if (path.startsWith(':memory:')) {
    const what = 'is no file, and numbers must be kept: name a file, or use MemoryStore';
    throw refusedByStore(`the path ${JSON.stringify(path)} ${what}`);
  }
  const scheme = /^(file:|[a-z][a-z0-9+.-]+:\/\/)/i.exec(path)?.[1];
  if (scheme !== undefined) {
    throw refusedByStore(`the path of the store begins with ${scheme}, it must be a path or sqlite://PATH`);
  }
  // As it is when the store is opened, wherever the program goes afterwards.
  const absolute = resolve(path);
  if (absolute.includes('?')) {
    throw refusedByStore(`the path ${JSON.stringify(absolute)} has a ?, which ends a path in URLs: rename the file`);
  }
  return `sqlite://${absolute}`;
}
