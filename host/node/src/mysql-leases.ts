/**
 * Leases: one row per worker of a namespace, in tables of their own beside whatever keeps tags.
 *
 * Invariant: an interval begins at or after the greatest end that was ever recorded for its worker. The statement that
 * grants states it as its condition, and a worker has one row, so it holds whatever was read before and however many
 * ask at once. The lock on the namespace's row only has acquires wait for each other.
 *
 * @module
 */

import {
  checkClocks,
  choose,
  chooseWorker,
  ClockSteps,
  IN_REDIS,
  isLeaseName,
  leaseLost,
  leasesElsewhere,
  NamespaceBinding,
  nthNeverUsed,
  randomBits,
  rfc3339,
  validateAcquire,
  validateExtend,
  validateLimits,
  workerMax,
  workersExhausted,
  workersOf,
  type LeaseLimits,
  type UsedWorker,
} from './lease-rules.js';
import {
  bytes,
  damaged,
  DUPLICATE_ENTRY,
  isNull,
  number,
  text,
  unavailable,
  type Database,
  type Row,
  type Turn,
} from './mysql-database.js';
import { refused } from './mysql-server.js';
import { SQL } from './mysql-sql.js';
import { identityOf, openTables } from './mysql-tables.js';
import { timeTag } from './names.js';
import { StoreError, type Lease, type LeaseAcquire, type LeaseExtend } from './store.js';

/** A worker's newest lease. */
interface LeaseRecord {
  readonly lease: Lease;
  readonly holder: string;
  /** Whether its end is fixed, so that it is never extended. */
  readonly isFinal: boolean;
}

/** What the server said of itself, a namespace and a worker, at one instant. */
interface Look {
  /** The server's clock, in Unix milliseconds. */
  readonly storeMs: bigint;
  readonly binding: NamespaceBinding | null;
  readonly record: LeaseRecord | null;
}

const U64_MAX = (1n << 64n) - 1n;

/** Leases in one database, over the connections of a store. */
export class MysqlLeases {
  readonly #database: Database;
  readonly #limits: LeaseLimits;
  /** Where the server's clock was set, as far as this process has seen. */
  readonly #steps = new ClockSteps();
  /** The tables are looked at when the first lease is asked for. */
  #opened: Promise<void> | null = null;

  constructor(database: Database) {
    const { maxHorizonMs, maxSkewMs } = database.settings;
    this.#database = database;
    this.#limits = { maxHorizonMs, maxSkewMs };
    validateLimits(this.#limits);
  }

  async acquire(request: LeaseAcquire): Promise<Lease> {
    validateAcquire(request);
    const asked = performance.now();
    await this.#open();
    const { namespace } = request;
    const preferred = request.preferredWorker ?? 0;
    const granted = await this.#database.turn('acquiring a worker', async (turn) => {
      const before = await this.#look(turn, namespace, preferred);
      try {
        this.#checkClock(request.nowMs, before.storeMs, asked);
        before.binding?.checkLayout(namespace, request.layout);
      } catch (error) {
        turn.giveBack();
        throw error;
      }
      await turn.begin();
      if (before.binding === null) {
        // Binds the namespace, if nobody else was quicker, and keeps other acquires in it waiting.
        const figures = NamespaceBinding.firstUse(request.layout, this.#limits).figures();
        await turn.execute(SQL.leases.bind, [Buffer.from(namespace), ...figures.map(([, figure]) => figure)]);
      } else {
        await turn.rows(SQL.leases.lock, [Buffer.from(namespace)]);
      }
      const seen = await this.#look(turn, namespace, preferred);
      if (await this.#hasGrantedTime(turn, namespace)) {
        await turn.rollBack();
        throw leasesElsewhere(namespace, before.binding === null ? 'in-redis' : 'in-both');
      }
      const chosen = await this.#choose(turn, request, seen);
      const lease = chosen instanceof StoreError ? chosen : this.#grant(request, seen, chosen);
      if (chosen instanceof StoreError || lease instanceof StoreError) {
        // A request that is refused binds nothing.
        await turn.rollBack();
        throw lease;
      }
      const isFirst = chosen.endMs === 0n;
      const grant = [
        grantIdBytes(lease.grantId),
        Buffer.from(request.holder),
        lease.notBeforeMs,
        lease.validUntilMs,
        seen.storeMs,
        Buffer.from(namespace),
        BigInt(lease.worker),
        ...(isFirst ? [] : [lease.notBeforeMs]),
      ];
      const sql = this.#database.fenced(isFirst ? SQL.leases.grant_first : SQL.leases.grant_again);
      const written = await turn.tryExecute(sql, grant, [DUPLICATE_ENTRY]);
      if (typeof written === 'number' || written.affected !== 1n) {
        await turn.rollBack();
        return { lease, isWritten: false };
      }
      await turn.commit();
      return { lease, isWritten: true };
    });
    if (!granted.isWritten) {
      await this.#database.checkFence();
      // Its holder extended it since it was looked at.
      const what = `worker ${granted.lease.worker} of ${JSON.stringify(namespace)} was prolonged a moment ago`;
      throw unavailable(`${what}: try again`);
    }
    return granted.lease;
  }

  async extend(request: LeaseExtend): Promise<Lease> {
    validateExtend(request);
    const asked = performance.now();
    const { namespace, worker, grantId } = request;
    const lost = (): StoreError => leaseLost(namespace, worker);
    if (!isLeaseName(worker, grantId)) {
      throw lost();
    }
    await this.#open();
    const answer = await this.#database.turn('extending a lease', async (turn) => {
      const seen = await this.#look(turn, namespace, worker);
      let running;
      try {
        this.#checkClock(request.nowMs, seen.storeMs, asked);
        seen.binding?.checkLayout(namespace, request.layout);
        running = runningIn(seen, grantId);
        if (running === null) {
          throw lost();
        }
      } catch (error) {
        turn.giveBack();
        return error as StoreError;
      }
      const { binding, lease } = running;
      const endMs = binding.extendedEndMs(lease.validUntilMs, seen.storeMs, request.horizonMs);
      const args = [endMs, Buffer.from(namespace), BigInt(worker), grantIdBytes(grantId)];
      const updated = await turn.execute(this.#database.fenced(SQL.leases.extend), args);
      turn.giveBack();
      if (updated.affected !== 1n) {
        // Released, or granted to another since it was looked at.
        return lost();
      }
      if (updated.insertId < endMs) {
        const what = `an extension to ${rfc3339(endMs)} gave ${rfc3339(updated.insertId)}`;
        throw damaged(this.#database.at, what);
      }
      return { ...lease, validUntilMs: updated.insertId };
    });
    if (answer instanceof Error) {
      // Another server may know nothing of the lease.
      await this.#database.checkFence();
      throw answer;
    }
    return answer;
  }

  async release(namespace: string, worker: number, grantId: bigint, endMs: bigint): Promise<boolean> {
    if (!isLeaseName(worker, grantId) || endMs < 0n || endMs > U64_MAX) {
      return false;
    }
    await this.#open();
    return this.#database.turn('releasing a lease', async (turn) => {
      const seen = await this.#look(turn, namespace, worker);
      const running = runningIn(seen, grantId);
      const end = running?.binding.releasedEndMs(running.lease, endMs) ?? null;
      if (end === null) {
        turn.giveBack();
        return false;
      }
      // An extension that came in between only moved the end further away.
      const args = [end, Buffer.from(namespace), BigInt(worker), grantIdBytes(grantId), end];
      const updated = await turn.execute(this.#database.fenced(SQL.leases.release), args);
      turn.giveBack();
      return updated.affected === 1n;
    });
  }

  identity(): Promise<string> {
    return identityOf(this.#database, 'leases');
  }

  /**
   * Notes that a Redis keeps the leases of a namespace, unless this store does. Where nobody made the tables of leases,
   * and this user may not, nothing is leased in them, and the time that Redis is granted says where the leases are.
   */
  async leave(namespace: string): Promise<void> {
    try {
      await this.#open();
    } catch (error) {
      const isRefused = error instanceof StoreError && error.kind === 'refused';
      if (isRefused && (await this.#database.rows('looking for leases', SQL.leases.has_store, [])).length === 0) {
        return;
      }
      throw error;
    }
    const kept = await this.#database.turn('noting that Redis keeps leases', async (turn) => {
      const figures = NamespaceBinding.figuresInRedis().map(([, figure]) => figure);
      await turn.execute(SQL.leases.bind, [Buffer.from(namespace), ...figures]);
      const [row] = await turn.rows(SQL.leases.kept, [Buffer.from(namespace)]);
      const hasTime = await this.#hasGrantedTime(turn, namespace);
      turn.giveBack();
      if (row === undefined) {
        throw damaged(this.#database.at, 'unalike_lease_store has no row');
      }
      const isHere = number(this.#database, row, 'version') !== IN_REDIS;
      return isHere ? leasesElsewhere(namespace, hasTime ? 'in-both' : 'in-store') : null;
    });
    if (kept !== null) {
      throw kept;
    }
  }

  /**
   * Whether time was granted to leases of the namespace in Redis. The tags of other dialects are not looked at: a Redis
   * above them has its mark written at its next start.
   */
  async #hasGrantedTime(turn: Turn, namespace: string): Promise<boolean> {
    if ((await turn.rows(SQL.leases.has_tags, [])).length === 0) {
      return false;
    }
    return (await turn.rows(SQL.leases.granted_time, [Buffer.from(timeTag(namespace))])).length > 0;
  }

  /** Makes sure of the tables, once; after a failure again. */
  #open(): Promise<void> {
    this.#opened ??= this.#openTables().catch((error) => {
      this.#opened = null;
      throw error;
    });
    return this.#opened;
  }

  async #openTables(): Promise<void> {
    const doing = 'reading unalike_lease_store';
    const database = this.#database;
    const { maxHorizonMs } = this.#limits;
    // The row is written once all of them are there.
    await openTables(database, SQL.tables.leases, SQL.leases.read_store);
    let rows = await database.rows(doing, SQL.leases.read_store, []);
    if (rows.length === 0) {
      await database.execute(doing, SQL.leases.insert_store, [BigInt(SQL.lease_version), maxHorizonMs]);
      // As somebody else may have written it, a moment before.
      rows = await database.rows(doing, SQL.leases.read_store, []);
    }
    if (rows[0] === undefined) {
      throw damaged(database.at, 'unalike_lease_store has no row');
    }
    const version = number(database, rows[0], 'version');
    if (version !== BigInt(SQL.lease_version)) {
      throw refused(
        `${database.at}: its tables of leases have the version ${version}, and this program serves ` +
          `${SQL.lease_version} alone: upgrade the program`,
      );
    }
    if (number(database, rows[0], 'max_horizon_ms') < maxHorizonMs) {
      // Whoever takes the server's place must know how far ahead a lease may reach.
      const raise = database.fenced(SQL.leases.raise_horizon);
      if ((await database.execute(doing, raise, [maxHorizonMs])).affected === 0n) {
        throw await database.heldBack(doing);
      }
    }
    // The other tables: what is missing in them is known from the beginning.
    await database.turn('looking at the tables of leases', async (turn) => {
      await this.#look(turn, '', 0);
      turn.giveBack();
    });
  }

  /** What the server says now: its clock, and of a namespace and a worker of it. */
  async #look(turn: Turn, namespace: string, worker: number): Promise<Look> {
    const asked = process.hrtime.bigint();
    const [row] = await turn.rows(SQL.leases.look, [Buffer.from(namespace), BigInt(worker)]);
    if (row === undefined) {
      throw damaged(this.#database.at, "the server's clock gives no row");
    }
    const storeMs = number(this.#database, row, 'store_ms');
    this.#steps.read(asked, process.hrtime.bigint(), storeMs);
    return {
      storeMs,
      binding: isNull(row, 'version') ? null : this.#binding(row, namespace),
      record: isNull(row, 'worker') ? null : this.#record(row),
    };
  }

  /**
   * Refuses a holder's clock that is off. It is looked at before the request waits for locks: afterwards every holder's
   * clock would look slow.
   */
  #checkClock(holderMs: bigint, storeMs: bigint, asked: number): void {
    // While the request waited for a connection and for this answer, the holder's clock went on.
    const latestMs = holderMs + BigInt(Math.floor(performance.now() - asked));
    const nearestMs = storeMs < holderMs ? holderMs : storeMs < latestMs ? storeMs : latestMs;
    try {
      checkClocks(this.#limits, { holderMs: nearestMs, storeMs });
    } catch {
      // As the holder sent it.
      checkClocks(this.#limits, { holderMs, storeMs });
    }
  }

  #binding(row: Row, namespace: string): NamespaceBinding {
    if (number(this.#database, row, 'version') === IN_REDIS) {
      throw leasesElsewhere(namespace, 'in-redis');
    }
    try {
      return NamespaceBinding.read((figure) => number(this.#database, row, figure));
    } catch (error) {
      throw error instanceof RangeError
        ? damaged(this.#database.at, `a row of unalike_lease_namespace is not a binding: ${error.message}`)
        : error;
    }
  }

  #worker(row: Row): number {
    const worker = number(this.#database, row, 'worker');
    if (worker > 0xffff_ffffn) {
      throw damaged(this.#database.at, `there is no worker ${worker}`);
    }
    return Number(worker);
  }

  #usedWorker(row: Row): UsedWorker {
    return { worker: this.#worker(row), endMs: number(this.#database, row, 'valid_until_ms') };
  }

  #record(row: Row): LeaseRecord {
    const grantId = bytes(this.#database, row, 'grant_id');
    if (grantId.length !== 16) {
      throw damaged(this.#database.at, "a lease's grant id has not 16 bytes");
    }
    const lease = {
      worker: this.#worker(row),
      grantId: BigInt(`0x${grantId.toString('hex')}`),
      notBeforeMs: number(this.#database, row, 'not_before_ms'),
      validUntilMs: number(this.#database, row, 'valid_until_ms'),
    };
    if (lease.notBeforeMs > lease.validUntilMs) {
      throw damaged(this.#database.at, `the lease of worker ${lease.worker} ends before it begins`);
    }
    const isFinal = number(this.#database, row, 'is_final') !== 0n;
    return { lease, holder: text(this.#database, row, 'holder'), isFinal };
  }

  /** The worker that the rule chooses, with the greatest end recorded for it; or why there is none. */
  async #choose(turn: Turn, request: LeaseAcquire, seen: Look): Promise<UsedWorker | StoreError> {
    const namespace = Buffer.from(request.namespace);
    const random = randomBits(8);
    const maxHorizonMs = seen.binding?.maxHorizonMs ?? this.#limits.maxHorizonMs;
    const expiry = this.#steps.expiry(process.hrtime.bigint(), seen.storeMs, maxHorizonMs);
    if (!expiry.isPlain) {
      const records = (await turn.rows(SQL.leases.list, [namespace])).map((row) => this.#record(row));
      const used = records.map(
        ({ lease, holder }) => [{ worker: lease.worker, endMs: lease.validUntilMs }, holder] as const,
      );
      return orRefusal(() => chooseWorker(request, expiry, random, used));
    }
    const one = async (sql: string, ...args: (Buffer | bigint)[]): Promise<UsedWorker | null> => {
      const [row] = await turn.rows(sql, [namespace, ...args]);
      return row === undefined ? null : this.#usedWorker(row);
    };
    const preferred =
      request.preferredWorker === null
        ? null
        : { worker: request.preferredWorker, endMs: seen.record?.lease.validUntilMs ?? 0n };
    const previous =
      request.holder === '' ? null : await one(SQL.leases.previous, Buffer.from(request.holder), seen.storeMs);
    const oldest = await one(SQL.leases.oldest);
    const [count] = await turn.rows(SQL.leases.count, [namespace]);
    const used = count === undefined ? 0 : Number(number(this.#database, count, 'used'));
    const workers = workersOf(request.layout);
    const choice = choose({ workers, used, preferred, previous, oldest }, expiry, random);
    switch (choice.kind) {
      case 'worker':
        return choice.used;
      case 'exhausted':
        return workersExhausted(request, choice.freeAtMs);
      case 'never-used': {
        const rows = await turn.rows(SQL.leases.workers, [namespace]);
        const worker = nthNeverUsed(
          choice.nth,
          rows.map((row) => this.#worker(row)),
        );
        if (worker === null) {
          return workersExhausted(request, seen.storeMs);
        }
        return { worker, endMs: 0n };
      }
    }
  }

  /** The lease of the chosen worker; or why it cannot be granted. */
  #grant(request: LeaseAcquire, { binding, storeMs }: Look, chosen: UsedWorker): Lease | StoreError {
    const { namespace } = request;
    return orRefusal(() => {
      if (binding === null) {
        // It is bound from the one row there.
        const what = `the lease namespace ${JSON.stringify(namespace)} was not bound: unalike_lease_store has no row`;
        throw damaged(this.#database.at, what);
      }
      binding.checkLayout(namespace, request.layout);
      binding.checkQuarantine(namespace, storeMs);
      if (chosen.worker > workerMax(binding.layout)) {
        const what = `${JSON.stringify(namespace)} has leased the worker ${chosen.worker}, which its layout has not`;
        throw damaged(this.#database.at, what);
      }
      const clocks = { holderMs: request.nowMs, storeMs };
      const { startMs, endMs } = binding.grant(chosen.endMs, clocks, request.horizonMs);
      return { worker: chosen.worker, grantId: randomBits(16), notBeforeMs: startMs, validUntilMs: endMs };
    });
  }
}

/**
 * Namespace and lease, if the lease runs under this grant id and may be extended and released. One that began before
 * the end of a quarantine may be another's by now.
 */
function runningIn({ binding, record }: Look, grantId: bigint): { binding: NamespaceBinding; lease: Lease } | null {
  if (binding === null || record === null || record.isFinal) {
    return null;
  }
  const { lease } = record;
  return lease.grantId === grantId && lease.notBeforeMs >= binding.floorMs ? { binding, lease } : null;
}

/** What a rule answers, or the error by which it refuses: a value, as the transaction is to be rolled back then. */
function orRefusal<T>(rule: () => T): T | StoreError {
  try {
    return rule();
  } catch (error) {
    if (error instanceof StoreError) {
      return error;
    }
    throw error;
  }
}

function grantIdBytes(grantId: bigint): Buffer {
  return Buffer.from(grantId.toString(16).padStart(32, '0'), 'hex');
}
