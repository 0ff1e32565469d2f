/**
 * Segments and leases in Redis: as fast as `HINCRBY`, strictly increasing, and safe from whatever Redis loses.
 *
 * A durable store grants Redis a large interval of numbers, whose end is the tag's *ceiling*, and Redis hands out its
 * parts. The ceiling is durable before Redis learns of it. The numbers belong to one *incarnation* of Redis, its
 * `run_id` and `master_replid`: a Redis that was restarted, restored or failed over hands out nothing until it has got
 * another interval, so losing data costs a gap and never a duplicate. The time that leases may reach to is granted in
 * the same way.
 *
 * Keys and scripts are those of the `unalike` server, so that programs in Node, Python and Rust share one Redis and one
 * durable store.
 *
 * @module
 */

import { createHash } from 'node:crypto';

import { checkAddress } from './address.js';
import { DEFAULT_LEASE_LIMITS, validateLimits, type LeaseLimits } from './lease-rules.js';
import { completeOptions, validateAllocate, validateNewTag, validatePublic, validateTag } from './names.js';
import { ANY, checkedOptions, OBJECT, type Kinds } from './options.js';
import { RedisLeases } from './redis-leases.js';
import { RedisSegments } from './redis-segments.js';
import { RedisServer } from './redis-server.js';
import { readRedisUrl, type RedisSettings } from './redis-url.js';
import { said } from './said.js';
import {
  checkOpened,
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

/** What {@link RedisStore.open} is given. */
export interface RedisStoreOptions {
  /**
   * `redis[s]://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE][?PARAMETERS]`; `rediss` is TLS. The parameters are those of
   * the `unalike` server:
   *
   * | parameter | meaning | default |
   * | --- | --- | --- |
   * | `ssl-ca` | after `rediss://`: a file with the certificates of the authorities to trust | the system's |
   * | `prefix` | what unalike's keys begin with; programs with another one see other tags | `unalike` |
   * | `raise-min`, `raise-max` | how many numbers the ceiling is raised by: 1 to 2^53 - 1 | 100000, 2^40 |
   * | `connect-timeout-ms` | how long opening a connection may take, 1 to 600000 | 1000 |
   * | `request-timeout-ms` | how long a command may take; then its connection is destroyed, its grant burnt | 1000 |
   * | `raise-timeout-ms` | how long a request waits while the ceiling is raised | 1000 |
   * | `password-file`, `password-env` | where the password is, instead of before the `@` | |
   *
   * In the user's name and the password, `%`, `/`, `?`, `#` and `@` are written `%25`, `%2F`, `%3F`, `%23` and `%40`.
   */
  readonly url: string;
  /** The durable store that grants what Redis hands out, and keeps the tags: SQLite or MySQL, say. */
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

function isLeaseStore(store: SegmentStore): store is SegmentStore & LeaseStore {
  const methods = ['acquire', 'extend', 'release'] as const;
  return methods.every((name) => typeof (store as unknown as Partial<LeaseStore>)[name] === 'function');
}

/** The durable store, if the leases are kept there. */
function leasesOf(backing: SegmentStore, { leasesIn, leaseLimits }: Partial<RedisStoreOptions>): LeaseStore | null {
  if (leasesIn !== undefined && leasesIn !== 'backing' && leasesIn !== 'redis') {
    throw new StoreError('refused', `leasesIn is ${said(leasesIn)}, it must be 'backing' or 'redis'`);
  }
  const isInRedis = leasesIn === 'redis' || (leasesIn === undefined && !isLeaseStore(backing));
  if (isInRedis) {
    return null;
  }
  if (!isLeaseStore(backing)) {
    throw new StoreError('refused', "the durable store leases no workers: leave leasesIn out, or write leasesIn: 'redis'");
  }
  if (leaseLimits !== undefined) {
    const what = 'leaseLimits are those of leases in Redis, and these are in the durable store';
    throw new StoreError('refused', `${what}: give them to that store (maxHorizonMs), or write leasesIn: 'redis'`);
  }
  return backing;
}

/** A durable store that creates tags by a request of its own. */
interface CreatesTags {
  createTag(tag: string, options: TagOptions): Promise<TagRecord>;
}

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
 * Neither Redis Cluster nor Sentinel is supported, and Redis must be of version 7 or newer. Not covered are keys that
 * somebody copies (`COPY`, `RESTORE`, `SWAPDB`) within one running server.
 */
export class RedisStore implements SegmentStore, LeaseStore {
  readonly #server: RedisServer;
  readonly #segments: RedisSegments;
  readonly #backing: SegmentStore;
  readonly #settings: RedisSettings;
  readonly #limits: LeaseLimits;
  /** The durable store, if leases are kept there. */
  readonly #leasesThere: LeaseStore | null;
  /** Opened when leases are first asked for. */
  #leases: Promise<RedisLeases> | null = null;
  #closing: Promise<void> | null = null;

  private constructor(
    server: RedisServer,
    segments: RedisSegments,
    backing: SegmentStore,
    settings: RedisSettings,
    limits: LeaseLimits,
    leasesThere: LeaseStore | null,
  ) {
    checkOpened(server instanceof RedisServer, 'RedisStore');
    this.#server = server;
    this.#segments = segments;
    this.#backing = backing;
    this.#settings = settings;
    this.#limits = limits;
    this.#leasesThere = leasesThere;
  }

  /**
   * Connects and checks the server, and that its numbers are granted by this durable store.
   *
   * @throws {StoreError} `unavailable` when the server does not answer; `refused` when it denies access, is a node of a
   * cluster or too old, when Redis knows another durable store, and for a URL that cannot be used. Each says what to
   * do.
   */
  static async open(options: RedisStoreOptions): Promise<RedisStore> {
    // Without TypeScript anything may come here.
    const all: unknown = options;
    if (typeof all === 'string' || all instanceof URL) {
      throw new StoreError('refused', 'the options are an address alone: write RedisStore.open({ url, backing })');
    }
    if (typeof all !== 'object' || all === null) {
      throw new StoreError('refused', `the options are ${String(all)}: write RedisStore.open({ url, backing })`);
    }
    const checked = checkedOptions('options', options, OPTIONS, refusedByStore);
    const { url, backing, leaseLimits = DEFAULT_LEASE_LIMITS } = checked;
    validateLimits(leaseLimits);
    const settings = readRedisUrl(checkAddress('url', url));
    const given: unknown = backing;
    const isStore =
      typeof given === 'object' &&
      given !== null &&
      (['allocate', 'openTag', 'identity', 'close'] as const).every((name) => typeof backing[name] === 'function');
    if (!isStore) {
      throw new StoreError(
        'refused',
        'Redis needs a durable store behind it (backing): open a SqliteStore or a MysqlStore. To use Redis without ' +
          'one, run ' +
          'the `unalike` server with --backing none, and ask it over HTTP',
      );
    }
    const leasesThere = leasesOf(backing, checked);
    const server = await RedisServer.connect(settings);
    try {
      const segments = await RedisSegments.open(server, backing, settings);
      return new RedisStore(server, segments, backing, settings, leaseLimits, leasesThere);
    } catch (error) {
      await server.close();
      throw error;
    }
  }

  async allocate(tag: string, count: bigint, atLeast: bigint): Promise<Segment> {
    validateAllocate(tag, count, atLeast);
    validatePublic(tag);
    return this.#segments.allocate(tag, count, atLeast);
  }

  async release(tag: string, tail: TailRelease): Promise<boolean>;
  async release(namespace: string, worker: number, grantId: bigint, endMs: bigint): Promise<boolean>;
  async release(name: string, what: TailRelease | number, grantId?: bigint, endMs?: bigint): Promise<boolean> {
    if (typeof what === 'object') {
      validateTag(name);
      validatePublic(name);
      return this.#segments.release(name, what);
    }
    const isRight =
      Number.isInteger(what) && what >= 0 && typeof grantId === 'bigint' && typeof endMs === 'bigint' && endMs >= 0n;
    if (!isRight) {
      throw new StoreError('refused', 'a lease is released by its worker, its grant id and the end of its use');
    }
    return (await this.#leasesOf()).release(name, what, grantId, endMs);
  }

  async openTag(tag: string): Promise<TagRecord> {
    validateTag(tag);
    validatePublic(tag);
    return this.#backing.openTag(tag);
  }

  /**
   * Creates a tag, in the durable store.
   *
   * @throws {StoreError} `tag-exists`, `tag-invalid`, `tag-limit`; `refused` where the durable store creates none.
   */
  async createTag(tag: string, given: Partial<TagOptions> = {}): Promise<TagRecord> {
    const options = completeOptions(tag, given);
    validateNewTag(tag);
    validatePublic(tag);
    const backing = this.#backing as SegmentStore & Partial<CreatesTags>;
    if (typeof backing.createTag !== 'function') {
      throw new StoreError(
        'refused',
        'the durable store behind Redis creates no tags by request: use `unalike tags create`',
      );
    }
    return backing.createTag(tag, options);
  }

  /** Formats are kept in the durable store. */
  async bindFormat(owner: FormatOwner, part: FormatPart, first: bigint | null): Promise<bigint | null> {
    return (await this.#backing.bindFormat?.(owner, part, first)) ?? null;
  }

  async identity(): Promise<string | null> {
    return this.#identityOf('sequences');
  }

  async acquire(request: LeaseAcquire): Promise<Lease> {
    return (await this.#leasesOf()).acquire(request);
  }

  async extend(request: LeaseExtend): Promise<Lease> {
    return (await this.#leasesOf()).extend(request);
  }

  async leaseIdentity(): Promise<string | null> {
    if (this.#leasesThere !== null) {
      return this.#leasesThere.leaseIdentity();
    }
    return this.#identityOf('leases');
  }

  /** Closes the connections, those of the durable store, too. Requests fail from then on. */
  async close(): Promise<void> {
    this.#closing ??= (async () => {
      this.#segments.close();
      await this.#server.close();
      await this.#backing.close();
    })();
    await this.#closing;
  }

  async #leasesOf(): Promise<Pick<LeaseStore, 'acquire' | 'extend' | 'release'>> {
    if (this.#leasesThere !== null) {
      return this.#leasesThere;
    }
    this.#leases ??= RedisLeases.open(this.#server, this.#backing, this.#settings, this.#limits).catch(
      (error: unknown) => {
        // The next request tries again.
        this.#leases = null;
        throw error;
      },
    );
    return this.#leases;
  }

  /** The name of that part of what the durable store grants which Redis hands out. */
  async #identityOf(part: 'sequences' | 'leases'): Promise<string | null> {
    const identity = await this.#backing.identity();
    if (identity === null) {
      return null;
    }
    const digest = createHash('sha256')
      .update(Buffer.from(identity, 'hex'))
      .update(`redis ${part} ${this.#settings.prefix}`);
    return digest.digest('hex').slice(0, 32);
  }
}
