/**
 * Segments and leases in MySQL and MariaDB, in the tables that the `unalike` command and its server use.
 *
 * @module
 */

import { checkAddress, checkUrl } from './address.js';
import { DEFAULT_LEASE_LIMITS, validateLimits } from './lease-rules.js';
import { BIGINT, checkedOptions, FLAG, SECRET, type Kinds } from './options.js';
import { openStores, RustStore } from './rust-store.js';
import { refusedByStore } from './store.js';

/** How {@link MysqlStore.open} is told what the URL does not say. */
export interface MysqlOptions {
  /**
   * `mysql://USER[:PASSWORD]@HOST[:PORT]/DATABASE[?PARAMETERS]`, or `mariadb:`.
   *
   * | parameter | meaning | default |
   * | --- | --- | --- |
   * | `dialect` | whose tables they are: those of `leaf`, `tinyid`, `cosid` and others in place | `unalike` |
   * | `ssl-mode` | `disabled`, `preferred`, `required`, `verify_ca`, `verify_identity` | `preferred` |
   * | `ssl-ca` | with a mode that verifies: a file with the authorities to trust | the system's |
   * | `create` | `false`: no table is created | `true` |
   * | `connections` | the most connections at a time, 1 to 10000 | 10 |
   * | `connect-timeout-ms`, `request-timeout-ms` | milliseconds, 1 to 600000 | 3000, 5000 |
   * | `durability` | `checked`, or `assumed`: a server that may lose a commit in a crash is taken | `checked` |
   * | `identity` | `checked`, or `assumed`: a server is taken that is not the one that was used before | `checked` |
   * | `password-file`, `password-env` | a file with the password, or the environment variable that holds it | |
   *
   * All others of the `unalike` command are known, too.
   */
  readonly url: string;
  /** The password, instead of one in the URL. */
  readonly password?: string;
  /** Whether tags are created on first use. By default they are in tables of unalike's own. */
  readonly createTags?: boolean;
  /** How many tags there may be, sub-keys not counted. A million by default. */
  readonly tagsMax?: bigint;
  /** How far ahead of the server's clock a lease may reach, in milliseconds: 1 to 366 days. Ten minutes by default. */
  readonly maxHorizonMs?: bigint;
  /** How far a holder's clock may be from the server's, in milliseconds: up to an hour, 10000 by default. */
  readonly maxSkewMs?: bigint;
}

const OPTIONS: Kinds<MysqlOptions> = {
  url: SECRET,
  password: SECRET,
  createTags: FLAG,
  tagsMax: BIGINT,
  maxHorizonMs: BIGINT,
  maxSkewMs: BIGINT,
};

const FORM = ['mysql', 'mysql://USER@HOST/DATABASE'] as const;

/**
 * Segments and leases in one database, over one pool of connections.
 *
 * Every connection is set and checked before it is used: commits must be durable, and the server must be the one that
 * was used before. Each statement that grants states the same as its condition. A statement whose answer is lost counts
 * as done, and what it granted is never offered again.
 *
 * Raising, ending, importing, resizing and adopting stay with the `unalike` command; where one is needed, the error
 * says which.
 *
 * ```js
 * import { MysqlStore } from 'unalike/mysql';
 *
 * const store = await MysqlStore.open('mysql://ids@db.example/ids?password-env=DB_PASSWORD');
 * const segment = await store.allocate('order', 100n, 0n);
 * await store.close();
 * ```
 */
export class MysqlStore extends RustStore {
  /**
   * Connects, checks the server, and creates the tables that are missing if that is allowed.
   *
   * @param options The URL, or an object with it: see {@link MysqlOptions}.
   * @throws {StoreError} `unavailable` when the server does not answer; `refused` when it denies access, when its
   *   commits are not durable, when it is another server than before, when its tables are missing, of another version
   *   or not what grants can rest on, and for options that are wrong. Each says what to do.
   */
  static async open(options: string | MysqlOptions): Promise<MysqlStore> {
    const { url, password, createTags, tagsMax, maxHorizonMs, maxSkewMs } = optionsOf(options);
    const limits = {
      maxHorizonMs: maxHorizonMs ?? DEFAULT_LEASE_LIMITS.maxHorizonMs,
      maxSkewMs: maxSkewMs ?? DEFAULT_LEASE_LIMITS.maxSkewMs,
    };
    validateLimits(limits);
    const isScheme = (scheme: string): boolean => scheme === 'mysql' || scheme === 'mariadb';
    const stores = await openStores({
      store: withPassword(checkUrl('url', url, isScheme, FORM), password),
      createTags,
      tagsMax,
      leaseHorizonMaxMs: limits.maxHorizonMs,
      leaseSkewMaxMs: limits.maxSkewMs,
    });
    return new MysqlStore(stores);
  }
}

/** The options, of which the URL is the only one that must be there. @throws {StoreError} `refused` */
function optionsOf(options: unknown): MysqlOptions {
  if (typeof options !== 'object' || options === null || options instanceof URL) {
    return { url: checkAddress('the address of the store', options) };
  }
  if (!('url' in options)) {
    throw refusedByStore(`url is missing: give { url: '${FORM[1]}' }`);
  }
  checkAddress('url', options.url);
  return checkedOptions('options', options, OPTIONS, refusedByStore, ['url']);
}

/** @throws {StoreError} `refused` */
function withPassword(url: string, password: string | undefined): string {
  // One that is empty may be right.
  if (password === undefined || password === '') {
    return url;
  }
  if (!password.isWellFormed()) {
    throw refusedByStore('the password is not valid Unicode');
  }
  const [, scheme, user, rest] = /^([a-z]+):\/\/([^?]+)(@[^@?]*(?:\?.*)?)$/s.exec(url) ?? [];
  if (user === undefined) {
    throw refusedByStore(`the store's URL names no user: write ${FORM[1]}`);
  }
  if (user.includes(':')) {
    throw refusedByStore("the store's password is given in more than one way: keep one");
  }
  return `${scheme}://${user}:${encodeURIComponent(password)}${rest}`;
}
