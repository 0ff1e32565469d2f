/**
 * Segments and leases in one SQLite file, in the tables that the `unalike` command and its server use.
 *
 * Every grant is on the disk before anybody hears of it: the file runs with write-ahead logging and `synchronous =
 * FULL`, each grant is one statement, and a statement is stepped to its end (which is the commit) before its rows are
 * believed. The file must lie on a local disk: write-ahead logging does not work over network file systems.
 *
 * Outside the promise: a file that is deleted, or restored from an old backup, takes its knowledge of what was granted
 * with it. A program that has the file open notices before its next grant that it was deleted, moved or replaced (or
 * the files beside it), and grants nothing any more.
 *
 * @module
 */

import { resolve } from 'node:path';
import { Worker } from 'node:worker_threads';

import { DEFAULT_LEASE_LIMITS, leaseLost, validateAcquire, validateExtend, validateLimits } from './lease-rules.js';
import { completeOptions, DEFAULT_TAG_OPTIONS, validateAllocate, validateTag, whole } from './names.js';
import { checkedOptions, FLAG, NUMBER, wholeFrom, wordOf, type Kinds } from './options.js';
import type { DriverName } from './sqlite-driver.js';
import { BUSY_TIMEOUT_MAX_MS, readPlace } from './sqlite-path.js';
import type { Answer, Begin, Method, Request } from './sqlite-worker.js';
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
import { after, guarded, unref, type Timer } from './wait.js';

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
  /** How far a holder's clock may be from the store's. 10 s by default. */
  readonly maxSkewMs?: bigint | number;
  /**
   * How long a request waits for its turn in this process, and again for other processes: 0 to 600000 ms, 5 s by
   * default.
   */
  readonly busyTimeoutMs?: number;
  /**
   * `node:sqlite`, which Node has from 22.13 on, or the package `better-sqlite3`, which must be installed. By default
   * the first that there is. All stores of a process must have the same: two SQLites in one process undo each other's
   * locks.
   */
  readonly driver?: DriverName;
}

/** Beyond the two waits, so long may a disk take before a request is given up. */
const DISK_MS = 30_000;

/** The flags of Node's that the thread needs, too. */
const THREAD_FLAGS: readonly string[] = ['--experimental-sqlite', '--no-warnings'];

/** Requests that grant nothing, whether their answer comes or is lost. */
const READS: ReadonlySet<Method | 'close'> = new Set<Method | 'close'>(['identity', 'bindFormat', 'close']);

interface Waiting {
  readonly method: Method | 'close';
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: StoreError) => void;
  readonly timer: Timer | null;
}

/**
 * Segments and leases in one SQLite file, shared by all processes of a machine.
 *
 * A thread of its own waits for the disk and for other processes. It keeps no process alive that has no request open.
 *
 * Raising, ending, importing and resizing stay with the `unalike` command. A store that is a stripe of a set is
 * refused: use it through the `unalike` server.
 *
 * ```js
 * import { SqliteStore } from 'unalike/sqlite';
 *
 * const store = await SqliteStore.open('/var/lib/ids.sqlite');
 * const segment = await store.allocate('order', 100n, 0n);
 * await store.close();
 * ```
 */
export class SqliteStore implements SegmentStore, LeaseStore {
  /** The file, for messages. */
  readonly address: string;
  readonly #worker: Worker;
  readonly #busyTimeoutMs: number;
  readonly #waiting = new Map<number, Waiting>();
  #nextId = 0;
  /** Whether the thread has connections that its end would close, and must not. */
  #keepsOpen = false;
  /** Why nothing is granted any more. */
  #ended: string | null = null;

  private constructor(begin: Begin) {
    checkOpened(typeof begin === 'object' && begin?.rules !== undefined, 'SqliteStore');
    this.address = begin.path;
    this.#busyTimeoutMs = begin.busyTimeoutMs;
    // A thread takes over the flags of the program, and does not begin with some (`--input-type`).
    const execArgv = process.execArgv.filter((flag) => THREAD_FLAGS.includes(flag));
    this.#worker = new Worker(new URL('./sqlite-worker.js', import.meta.url), { workerData: begin, execArgv });
    this.#worker.on('message', guarded((answer: Answer) => this.#settle(answer)));
    this.#worker.on('error', guarded((error: Error) => this.#end(`its thread failed: ${error.message}`)));
    this.#worker.on('exit', () => this.#end('its thread has ended'));
    this.#worker.unref();
  }

  /**
   * Opens the file, or creates it, and proves that it can be written to. A file of the schema before is brought to this
   * one; programs of the version before that have it open go on.
   *
   * @param path The file; SQLite puts a `-wal` and a `-shm` file beside it. A path, or a URL as the `unalike` command
   *   takes it: `sqlite://PATH[?create=false&busy-timeout-ms=5000]`.
   * @throws {StoreError} `refused` when the file or its directory is missing, is not writable, or belongs to another
   *   program or to a newer version of this one; `corrupt` when it is no database or a damaged one; `unavailable` when
   *   another process keeps it locked. Each says what to do.
   */
  static async open(path: string, options: SqliteOptions = {}): Promise<SqliteStore> {
    const begin = readOptions(path, options);
    const store = new SqliteStore(begin);
    let isNew: unknown;
    try {
      isNew = await store.#wait(0, 'openTag');
    } catch (error) {
      if (!store.#keepsOpen) {
        await store.#worker.terminate();
      }
      throw error;
    }
    if (isNew === true) {
      // Whoever mistyped a path must hear that the numbers of another store do not go on here.
      const made = `${begin.path}: made a new store (${await store.identity()})`;
      process.emitWarning(`${made}: every tag begins here at its first number`, 'UnalikeWarning');
    }
    return store;
  }

  async allocate(tag: string, count: bigint, atLeast: bigint): Promise<Segment> {
    validateAllocate(tag, count, atLeast);
    return (await this.#ask('allocate', tag, count, atLeast)) as Segment;
  }

  /** Takes numbers back: {@link SegmentStore.release}. */
  release(tag: string, tail: TailRelease): Promise<boolean>;
  /** Ends a lease: {@link LeaseStore.release}. */
  release(namespace: string, worker: number, grantId: bigint, endMs: bigint): Promise<boolean>;
  async release(name: string, what: TailRelease | number, grantId?: bigint, endMs?: bigint): Promise<boolean> {
    if (typeof what === 'number') {
      return (await this.#ask('releaseLease', name, what, grantId, endMs)) as boolean;
    }
    validateTag(name);
    return (await this.#ask('releaseTail', name, { start: what.start, version: what.version })) as boolean;
  }

  async openTag(tag: string): Promise<TagRecord> {
    validateTag(tag);
    return (await this.#ask('openTag', tag)) as TagRecord;
  }

  /**
   * Creates a tag, whatever is said of first use; the limit of tags applies.
   *
   * @throws {StoreError} `tag-exists`, `tag-limit`, `tag-invalid`, and what the file brings.
   */
  async createTag(tag: string, options: Partial<TagOptions> = {}): Promise<TagRecord> {
    const all = completeOptions(tag, options);
    return (await this.#ask('createTag', tag, all)) as TagRecord;
  }

  async bindFormat(owner: FormatOwner, part: FormatPart, first: bigint | null): Promise<bigint | null> {
    return (await this.#ask('bindFormat', owner, part, first)) as bigint | null;
  }

  async identity(): Promise<string> {
    return (await this.#ask('identity')) as string;
  }

  async acquire(request: LeaseAcquire): Promise<Lease> {
    validateAcquire(request);
    return (await this.#ask('acquire', request)) as Lease;
  }

  async extend(request: LeaseExtend): Promise<Lease> {
    validateExtend(request);
    if (typeof request.grantId !== 'bigint' || typeof request.worker !== 'number') {
      throw leaseLost(request.namespace, request.worker);
    }
    return (await this.#ask('extend', request)) as Lease;
  }

  leaseIdentity(): Promise<string> {
    return this.identity();
  }

  async leaveLeases(namespace: string): Promise<void> {
    await this.#ask('leaveLeases', namespace);
  }

  /** Waits for the requests before, closes the file, and ends the thread. Requests fail from now on. */
  async close(): Promise<void> {
    if (this.#ended !== null) {
      return;
    }
    const closed = this.#ask('close');
    this.#ended = 'the store was closed';
    await closed.catch(() => undefined);
    if (!this.#keepsOpen) {
      await this.#worker.terminate();
    }
  }

  #ask(method: Method | 'close', ...args: readonly unknown[]): Promise<unknown> {
    if (this.#ended !== null) {
      return Promise.reject(new StoreError('unavailable', `${this.address}: ${this.#ended}`, { isFinal: true }));
    }
    this.#nextId += 1;
    const id = this.#nextId;
    const turnUntilNs = process.hrtime.bigint() + BigInt(Math.max(this.#busyTimeoutMs, 1)) * 1_000_000n;
    const waiting = this.#wait(id, method);
    try {
      this.#worker.postMessage({ id, method, args, turnUntilNs } satisfies Request);
    } catch (error) {
      // An argument that cannot be sent: nothing was.
      const what = `${this.address}: the request cannot be read: ${(error as Error).message}`;
      this.#take(id)?.reject(new StoreError('refused', what, { cause: error }));
    }
    return waiting;
  }

  #wait(id: number, method: Method | 'close'): Promise<unknown> {
    return new Promise((resolve, reject) => {
      // The waits for the turn, for other processes (a tag that is created has several), and for the disk.
      const limitMs = 8 * this.#busyTimeoutMs + DISK_MS;
      const timer = after(() => this.#lose(id, `no answer within ${limitMs} ms`), limitMs);
      unref(timer);
      this.#waiting.set(id, { method, resolve, reject, timer });
      // As long as somebody waits, the process goes on.
      this.#worker.ref();
    });
  }

  #take(id: number): Waiting | undefined {
    const waiting = this.#waiting.get(id);
    if (waiting !== undefined) {
      this.#waiting.delete(id);
      clearTimeout(waiting.timer ?? undefined);
      if (this.#waiting.size === 0) {
        this.#worker.unref();
      }
    }
    return waiting;
  }

  #settle(answer: Answer): void {
    this.#keepsOpen = answer.keepsOpen;
    // What comes for a request that was given up is burnt.
    const waiting = this.#take(answer.id);
    if (waiting === undefined) {
      return;
    }
    if ('kind' in answer) {
      waiting.reject(new StoreError(answer.kind, answer.message));
    } else {
      waiting.resolve(answer.value);
    }
  }

  /** Nobody knows whether it was done. */
  #lose(id: number, why: string): void {
    const waiting = this.#take(id);
    if (waiting !== undefined) {
      const kind = READS.has(waiting.method) || id === 0 ? 'unavailable' : 'outcome-unknown';
      waiting.reject(new StoreError(kind, `${this.address}: ${why}`));
    }
  }

  #end(why: string): void {
    this.#ended ??= `${why}: open another store`;
    for (const id of [...this.#waiting.keys()]) {
      this.#lose(id, why);
    }
  }
}

const OPTIONS: Kinds<SqliteOptions> = {
  create: FLAG,
  createTags: FLAG,
  tagsMax: NUMBER,
  maxHorizonMs: NUMBER,
  maxSkewMs: NUMBER,
  busyTimeoutMs: wholeFrom(0, BUSY_TIMEOUT_MAX_MS),
  driver: wordOf(['node:sqlite', 'better-sqlite3']),
};

function readOptions(path: string, given: SqliteOptions): Begin {
  const options = checkedOptions('options', given, OPTIONS, refusedByStore);
  const place = readPlace(path);
  const twice = (['create', 'busyTimeoutMs'] as const).find(
    (name) => place[name] !== undefined && options[name] !== undefined,
  );
  if (twice !== undefined) {
    throw new StoreError('refused', `the address of the store has a parameter beside the option ${twice}: give one`);
  }
  const busyTimeoutMs = place.busyTimeoutMs ?? options.busyTimeoutMs ?? 5_000;
  const limits = {
    maxHorizonMs: whole('maxHorizonMs', options.maxHorizonMs ?? DEFAULT_LEASE_LIMITS.maxHorizonMs),
    maxSkewMs: whole('maxSkewMs', options.maxSkewMs ?? DEFAULT_LEASE_LIMITS.maxSkewMs),
  };
  validateLimits(limits);
  return {
    // An absolute path is always a file: SQLite reads ":memory:" as something that forgets.
    path: resolve(place.path),
    create: place.create ?? options.create ?? true,
    busyTimeoutMs,
    driver: options.driver ?? null,
    rules: {
      createTags: options.createTags ?? true,
      newTags: DEFAULT_TAG_OPTIONS,
      tagsMax: whole('tagsMax', options.tagsMax ?? 1_000_000n),
      limits,
    },
  };
}
