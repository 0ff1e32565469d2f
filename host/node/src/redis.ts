/**
 * Segments and leases in Redis: as fast as `HINCRBY`, strictly increasing, and safe from whatever Redis loses.
 *
 * A durable store grants Redis a large interval of numbers, whose end is the tag's *ceiling*, and Redis hands out its
 * parts. The ceiling is durable before Redis learns of it. The numbers belong to one *incarnation* of Redis, its
 * `run_id` and `master_replid`: a Redis that was restarted, restored or failed over hands out nothing until it has got
 * another interval, so losing data costs a gap and never a duplicate. The time that leases may reach to is granted in
 * the same way.
 *
 * Keys and scripts are those of the `unalike` command and its server, so that programs in Node, Python and Rust share
 * one Redis and one durable store.
 *
 * @module
 */

import { checkUrl } from './address.js';
import { DEFAULT_LEASE_LIMITS, validateLimits, type LeaseLimits } from './lease-rules.js';
import { validateNewTag, validatePublic, validateTag } from './names.js';
import { ANY, checkedOptions, OBJECT, type Kinds } from './options.js';
import { asking } from './own-store.js';
import { openStores, RustStore, type NativeStores } from './rust-store.js';
import { said } from './said.js';
import {
  refusedByStore,
  StoreError,
  type FormatOwner,
  type FormatPart,
  type Lease,
  type LeaseAcquire,
  type LeaseExtend,
  type LeaseStore,
  type Segment,
  type SegmentStore,
  type TagOptions,
  type TagRecord,
  type TailRelease,
} from './store.js';
import { within } from './wait.js';

/** What {@link RedisStore.open} is given. */
export interface RedisStoreOptions {
  /**
   * `redis[s]://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE][?PARAMETERS]`; `rediss` is TLS. The master that Sentinels name
   * is `redis+sentinel://HOST,HOST/MASTER`, a Cluster `redis+cluster://HOST,HOST`. The parameters are those of the
   * `unalike` command:
   *
   * | parameter | meaning | default |
   * | --- | --- | --- |
   * | `ssl-ca` | after `rediss://`: a file with the certificates of the authorities to trust | the system's |
   * | `prefix` | what unalike's keys begin with; programs with another one see other tags | `unalike` |
   * | `raise-min`, `raise-max` | how many numbers the ceiling is raised by: 1 to 2^53 - 1 | 100000, 2^40 |
   * | `connect-timeout-ms` | how long opening a connection may take, 1 to 600000 | 1000 |
   * | `request-timeout-ms` | how long a command may take; then its connection is given up, its grant burnt | 1000 |
   * | `raise-timeout-ms` | how long a request waits while the ceiling is raised | 1000 |
   * | `password-file`, `password-env` | where the password is, instead of before the `@` | |
   *
   * In the user's name and the password, `%`, `/`, `?`, `#` and `@` are written `%25`, `%2F`, `%3F`, `%23` and `%40`.
   */
  readonly url: string;
  /**
   * The durable store that grants what Redis hands out, and keeps the tags: SQLite or MySQL, say. One that a URL names
   * can be given to `Store` of `unalike/stores` by that URL, with Redis. What it does not answer within 10 s counts as
   * lost.
   */
  readonly backing: SegmentStore;
  /**
   * Where the leases of snowflakes are kept: `'backing'`, in the durable store itself, as in every host of unalike, or
   * `'redis'`. By default in the durable store, unless that leases no workers. A namespace has one place: the other one
   * is refused (`leases-elsewhere`).
   */
  readonly leasesIn?: 'backing' | 'redis';
  /**
   * What leases in Redis are allowed: ten minutes ahead, and clocks within 10 s of each other, by default. Those in the
   * durable store have its limits.
   */
  readonly leaseLimits?: LeaseLimits;
}

const OPTIONS: Kinds<RedisStoreOptions> = { url: ANY, backing: ANY, leasesIn: ANY, leaseLimits: OBJECT };

/**
 * A store in Redis.
 *
 * ```js
 * import { RedisStore } from 'unalike/redis';
 * import { SqliteStore } from 'unalike/sqlite';
 *
 * const backing = await SqliteStore.open('ids.sqlite');
 * const store = await RedisStore.open({ url: 'redis://cache.example/0', backing });
 * const { start, end } = await store.allocate('order', 1000n, 0n);
 * ```
 *
 * Redis must be of version 7 or newer. Not covered are keys that somebody copies (`COPY`, `RESTORE`, `SWAPDB`) within
 * one running server.
 */
export class RedisStore extends RustStore {
  readonly #backing: SegmentStore;
  /** The durable store, if leases are kept there. */
  readonly #leasesThere: LeaseStore | null;
  #closing: Promise<void> | null = null;

  private constructor(stores: NativeStores, backing: SegmentStore, leasesThere: LeaseStore | null) {
    super(stores);
    this.#backing = backing;
    this.#leasesThere = leasesThere;
  }

  /**
   * Connects and checks the server, and that its numbers are granted by this durable store.
   *
   * @throws {StoreError} `unavailable` when the server does not answer; `refused` when it denies access or is too old,
   *   when Redis knows another durable store, and for a URL that cannot be used. Each says what to do.
   */
  static async open(options: RedisStoreOptions): Promise<RedisStore> {
    // Without TypeScript anything may come here.
    const all: unknown = options;
    if (typeof all === 'string' || all instanceof URL) {
      throw refusedByStore('the options are an address alone: write RedisStore.open({ url, backing })');
    }
    if (typeof all !== 'object' || all === null) {
      throw refusedByStore(`the options are ${String(all)}: write RedisStore.open({ url, backing })`);
    }
    const checked = checkedOptions('options', options, OPTIONS, refusedByStore);
    const { backing, leaseLimits = DEFAULT_LEASE_LIMITS } = checked;
    validateLimits(leaseLimits);
    const isScheme = (scheme: string): boolean => scheme.startsWith('redis');
    const url = checkUrl('url', checked.url, isScheme, ['redis', 'redis://HOST/DATABASE']);
    checkBacking(backing);
    const leasesThere = leasesOf(backing, checked);
    const stores = await openStores(
      {
        store: url,
        leases: leasesThere === null ? url : 'none',
        leaseHorizonMaxMs: leaseLimits.maxHorizonMs,
        leaseSkewMaxMs: leaseLimits.maxSkewMs,
      },
      asking(backing),
    );
    return new RedisStore(stores, backing, leasesThere);
  }

  override async allocate(tag: string, count: bigint, atLeast: bigint): Promise<Segment> {
    validateOwn(tag);
    return await super.allocate(tag, count, atLeast);
  }

  override release(tag: string, tail: TailRelease): Promise<boolean>;
  override release(namespace: string, worker: number, grantId: bigint, endMs: bigint): Promise<boolean>;
  override async release(name: string, what: TailRelease | number, grantId = 0n, endMs = 0n): Promise<boolean> {
    if (typeof what === 'number') {
      const there = this.#leasesThere;
      return await (there === null
        ? super.release(name, what, grantId, endMs)
        : inTime('ending a lease', there.release(name, what, grantId, endMs)));
    }
    validateOwn(name);
    return await super.release(name, what);
  }

  override async openTag(tag: string): Promise<TagRecord> {
    validateOwn(tag);
    return await super.openTag(tag);
  }

  /**
   * Creates a tag, in the durable store.
   *
   * @throws {StoreError} `tag-exists`, `tag-invalid`, `tag-limit`; `refused` where the durable store creates none.
   */
  override async createTag(tag: string, options: Partial<TagOptions> = {}): Promise<TagRecord> {
    validateNewTag(tag);
    return await super.createTag(tag, options);
  }

  /** Formats are kept in the durable store. */
  override async bindFormat(owner: FormatOwner, part: FormatPart, first: bigint | null): Promise<bigint | null> {
    return (await inTime('looking up a format', this.#backing.bindFormat?.(owner, part, first))) ?? null;
  }

  override async acquire(request: LeaseAcquire): Promise<Lease> {
    const there = this.#leasesThere;
    return await (there === null ? super.acquire(request) : inTime('leasing a worker', there.acquire(request)));
  }

  override async extend(request: LeaseExtend): Promise<Lease> {
    const there = this.#leasesThere;
    return await (there === null ? super.extend(request) : inTime('extending a lease', there.extend(request)));
  }

  override async leaseIdentity(): Promise<string | null> {
    const there = this.#leasesThere;
    return await (there === null ? super.leaseIdentity() : inTime('asking for its name', there.leaseIdentity()));
  }

  /** Closes the connections, those of the durable store, too. Requests fail from then on. */
  override async close(): Promise<void> {
    this.#closing ??= super.close().finally(() => inTime('closing it', this.#backing.close()));
    await this.#closing;
  }
}

/** After how long an answer of the durable store is given up, as the library does. */
const ANSWER_MAX_MS = 10_000;

/** What the durable store answers in time. @throws {StoreError} `outcome-unknown` */
async function inTime<Value>(what: string, answer: Promise<Value> | Value): Promise<Value> {
  const late = (): never => {
    const message = `${what}: the durable store brought no answer within ${ANSWER_MAX_MS / 1_000} s`;
    throw new StoreError('outcome-unknown', message);
  };
  return await within(Promise.resolve(answer), ANSWER_MAX_MS, late, true);
}

function validateOwn(tag: string): void {
  validateTag(tag);
  validatePublic(tag);
}

/** @throws {StoreError} `refused` */
function checkBacking(backing: unknown): void {
  const methods = ['allocate', 'openTag', 'identity', 'close'] as const;
  const given = backing as Partial<SegmentStore> | null | undefined;
  if (!methods.every((name) => typeof given?.[name] === 'function')) {
    throw refusedByStore(
      'Redis needs a durable store behind it (backing): open a SqliteStore or a MysqlStore. To use Redis without ' +
        "one, and have ids that are only as safe as it is, write Store.open(url, { backing: 'none' }) (unalike/stores)",
    );
  }
}

function isLeaseStore(store: SegmentStore): store is SegmentStore & LeaseStore {
  const methods = ['acquire', 'extend', 'release'] as const;
  return methods.every((name) => typeof (store as unknown as Partial<LeaseStore>)[name] === 'function');
}

/** The durable store, if the leases are kept there. @throws {StoreError} `refused` */
function leasesOf(backing: SegmentStore, { leasesIn, leaseLimits }: Partial<RedisStoreOptions>): LeaseStore | null {
  if (leasesIn !== undefined && leasesIn !== 'backing' && leasesIn !== 'redis') {
    throw refusedByStore(`leasesIn is ${said(leasesIn)}, it must be 'backing' or 'redis'`);
  }
  if (leasesIn === 'redis' || (leasesIn === undefined && !isLeaseStore(backing))) {
    return null;
  }
  if (!isLeaseStore(backing)) {
    throw refusedByStore("the durable store leases no workers: leave leasesIn out, or write leasesIn: 'redis'");
  }
  if (leaseLimits !== undefined) {
    const what = 'leaseLimits are those of leases in Redis, and these are in the durable store';
    throw refusedByStore(`${what}: give them to that store (maxHorizonMs), or write leasesIn: 'redis'`);
  }
  return backing;
}
