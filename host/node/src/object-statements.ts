/**
 * What the SQLite database of a Durable Object grants: the segment port and the lease port, by the statements of the
 * SQLite adapter.
 *
 * All of a call is in one transaction, and no other call comes between. What makes a grant safe is nevertheless part of
 * the statement that grants.
 *
 * @module
 */

import {
  checkClocks,
  choose,
  faultOfLayout,
  isLeaseName,
  leaseLost,
  NamespaceBinding,
  nthNeverUsed,
  randomBits,
  validateAcquire,
  validateExtend,
  workersExhausted,
  workersOf,
  type LeaseLimits,
  type UsedWorker,
} from './lease-rules.js';
import {
  formatNames,
  formatOptions,
  isKept,
  KEPT_FLOOR,
  shown,
  splitTag,
  validateAllocate,
  validateNewTag,
  validateOptions,
  validatePublic,
  validateTag,
} from './names.js';
import { damaged, hexOf, type ObjectDatabase, type Row, type Value } from './object-database.js';
import {
  ID_MAX,
  StoreError,
  type FormatOwner,
  type FormatPart,
  type Lease,
  type LeaseAcquire,
  type LeaseExtend,
  type RefillPolicy,
  type Segment,
  type StepPolicy,
  type TagOptions,
  type TagRecord,
  type TailRelease,
} from './store.js';

const U64_MAX = (1n << 64n) - 1n;
const U32_MAX = (1n << 32n) - 1n;

/** What the store's clients may do. */
export interface Rules {
  readonly createTags: boolean;
  readonly tagsMax: bigint;
  readonly limits: LeaseLimits;
  /** What tags are created with on first use. */
  readonly newTags: TagOptions;
}

/** The store in one transaction of its object. */
export class Statements {
  readonly #database: ObjectDatabase;
  readonly #rules: Rules;

  constructor(database: ObjectDatabase, rules: Rules) {
    this.#database = database;
    this.#rules = rules;
  }

  allocate(tag: string, count: bigint, atLeast: bigint): Segment {
    validateAllocate(tag, count, atLeast);
    let segment = this.#grant(tag, count, atLeast);
    if (segment === null && this.#find(tag) === null) {
      this.#createOnFirstUse(tag);
      segment = this.#grant(tag, count, atLeast);
    }
    if (segment === null) {
      throw exhausted(tag);
    }
    return segment;
  }

  releaseTail(tag: string, { start, version }: TailRelease): boolean {
    validateTag(tag);
    // No row has a number that does not fit.
    if (!isIn(start, 0n, ID_MAX) || !isIn(version, 0n, ID_MAX)) {
      return false;
    }
    return this.#database.run(this.#database.sql.release, [tag, start, version, null]).length > 0;
  }

  openTag(tag: string): TagRecord {
    validateTag(tag);
    return this.#findOrCreate(tag);
  }

  createTag(tag: string, options: TagOptions): TagRecord {
    validateOptions(tag, options);
    validatePublic(tag);
    const row = this.#insertNew(tag, options);
    if (row === null) {
      throw new StoreError('tag-exists', `the tag ${shown(tag)} exists already`);
    }
    return row;
  }

  bindFormat(owner: FormatOwner, part: FormatPart, first: bigint | null): bigint | null {
    let bound: bigint | null = null;
    for (const name of formatNames(owner, part)) {
      let row = this.#find(name);
      if (row === null && bound === null && first !== null) {
        row = this.#insertNew(name, formatOptions(name, first));
      }
      if (row === null) {
        break;
      }
      bound = row.options.start;
    }
    return bound;
  }

  /** Numbers from the tag's row; `null` if there is no row, or no number is left. */
  #grant(tag: string, count: bigint, atLeast: bigint): Segment | null {
    const args = [tag, atLeast, count < ID_MAX ? count : ID_MAX, null];
    const [row] = this.#database.run(this.#database.sql.allocate, args);
    if (row === undefined) {
      return null;
    }
    const start = this.#number(row, 'grant_start');
    // At most 2^63, for the watermark is a positive signed integer.
    const end = this.#number(row, 'watermark') + 1n;
    if (start < 1n || start < atLeast || end <= start || end - start > count) {
      throw damaged(this.#database.path, `the grant from ${start} to ${end} is not what was asked for`);
    }
    const [generation, version] = [this.#number(row, 'generation'), this.#number(row, 'version')];
    return { start, end, stride: 1n, generation, version };
  }

  #find(tag: string): TagRecord | null {
    const [row] = this.#database.run('SELECT * FROM tag WHERE tag = ?1', [tag]);
    return row === undefined ? null : this.#tag(row);
  }

  #findOrCreate(tag: string): TagRecord {
    const found = this.#find(tag) ?? this.#createOnFirstUse(tag);
    if (found === null) {
      throw unknown(tag);
    }
    return found;
  }

  /**
   * A tag without a row, if first use may create it. A sub-key of a tag that exists, or may be created, always may be:
   * it has the options of its tag, and ends with it.
   */
  #createOnFirstUse(tag: string): TagRecord | null {
    const [owner, sub] = splitTag(tag);
    if (sub !== null) {
      const { options, watermark } = this.#findOrCreate(owner);
      if (watermark >= ID_MAX) {
        throw exhausted(tag);
      }
      return this.#insertNew(tag, options);
    }
    if (!this.#rules.createTags && !isKept(tag)) {
      throw unknown(tag);
    }
    return this.#insertNew(tag, this.#rules.newTags);
  }

  /** A row under a name that a new tag may have; `null` if the tag exists, whatever its name is. */
  #insertNew(tag: string, options: TagOptions): TagRecord | null {
    try {
      validateNewTag(tag);
    } catch (error) {
      if (this.#find(tag) !== null) {
        return null;
      }
      throw error;
    }
    return this.#insert(tag, options);
  }

  #insert(tag: string, options: TagOptions): TagRecord | null {
    const tagsMax = isKept(tag) ? U64_MAX : this.#rules.tagsMax;
    const [owner, sub] = splitTag(tag);
    const [row] = this.#database.run(this.#database.sql.create, [
      tag,
      options.start,
      options.mode,
      ...policyColumns(options.step, options.refill),
      tagsMax < ID_MAX ? tagsMax : ID_MAX,
      null,
      KEPT_FLOOR,
      sub === null ? null : owner,
    ]);
    if (row !== undefined) {
      return this.#tag(row);
    }
    if (this.#find(tag) !== null) {
      return null;
    }
    if (sub !== null && this.#find(owner)?.watermark === ID_MAX) {
      throw exhausted(tag);
    }
    const what = `the tag ${shown(tag)} was not created: the store has ${tagsMax} tags, its limit`;
    throw new StoreError('tag-limit', what);
  }

  #tag(row: Row): TagRecord {
    const figure = (column: string): bigint => {
      const value = row[column];
      if (typeof value !== 'bigint') {
        throw damaged(this.#database.path, `${column} of a tag is no whole number`);
      }
      return BigInt.asUintN(64, value);
    };
    const { step_policy: step, refill_policy: refill, mode } = row;
    const isKnown =
      (step === 'fixed' || step === 'adaptive') && (refill === 'share-consumed' || refill === 'remaining');
    if (!isKnown || (mode !== 'buffered' && mode !== 'ordered')) {
      throw damaged(this.#database.path, 'a tag has an unknown policy or mode');
    }
    const tag = this.#text(row, 'tag');
    const options: TagOptions = {
      start: this.#number(row, 'start'),
      step:
        step === 'fixed'
          ? { kind: step, step: figure('step') }
          : {
              kind: step,
              step: figure('step'),
              min: figure('step_min'),
              max: figure('step_max'),
              growBelowMs: figure('grow_below_ms'),
              shrinkAboveMs: figure('shrink_above_ms'),
            },
      refill:
        refill === 'remaining'
          ? { kind: refill, numbers: figure('refill') }
          : { kind: refill, percent: Number(figure('refill')) },
      mode,
    };
    try {
      validateOptions(tag, options);
    } catch (error) {
      throw damaged(this.#database.path, (error as Error).message);
    }
    return { tag, options, watermark: this.#number(row, 'watermark') };
  }

  acquire(request: LeaseAcquire): Lease {
    validateAcquire(request);
    const { namespace, layout, nowMs, horizonMs } = request;
    const storeMs = this.#checkClock(nowMs);
    const bound = this.#binding(namespace);
    bound?.checkLayout(namespace, layout);
    bound?.checkQuarantine(namespace, storeMs);
    const binding = bound ?? NamespaceBinding.firstUse(layout, this.#rules.limits);
    const { worker, endMs } = this.#choose(request, storeMs);
    const interval = binding.grant(endMs, { holderMs: nowMs, storeMs }, horizonMs);
    const lease: Lease = {
      worker,
      grantId: randomBits(16),
      notBeforeMs: interval.startMs,
      validUntilMs: interval.endMs,
    };
    if (bound === null) {
      this.#database.run(this.#database.sql.bind_namespace, bindingColumns(namespace, binding));
    }
    const granted = this.#database.run(this.#database.sql.grant, [
      namespace,
      BigInt(worker),
      bytesOf(lease.grantId),
      request.holder,
      signedMs(interval.startMs),
      signedMs(interval.endMs),
      signedMs(storeMs),
    ]);
    if (granted.length === 0) {
      throw damaged(this.#database.path, `worker ${worker} was free, and its lease was not granted`);
    }
    return lease;
  }

  extend(request: LeaseExtend): Lease {
    validateExtend(request);
    const { namespace, worker, grantId } = request;
    const storeMs = this.#checkClock(request.nowMs);
    const binding = this.#binding(namespace);
    if (binding === null || !isLeaseName(worker, grantId)) {
      throw leaseLost(namespace, worker);
    }
    binding.checkLayout(namespace, request.layout);
    const endMs = binding.extendedEndMs(0n, storeMs, request.horizonMs);
    const args = [namespace, BigInt(worker), bytesOf(grantId), signedMs(endMs)];
    const [row] = this.#database.run(this.#database.sql.extend, args);
    if (row === undefined) {
      throw leaseLost(namespace, worker);
    }
    return this.#lease(row);
  }

  releaseLease(namespace: string, worker: number, grantId: bigint, endMs: bigint): boolean {
    if (!isLeaseName(worker, grantId) || !isIn(endMs, 0n, U64_MAX)) {
      return false;
    }
    const [binding, row] = [this.#binding(namespace), this.#findLease(namespace, worker)];
    const lease = row === null ? null : this.#lease(row);
    if (binding === null || lease === null || lease.grantId !== grantId || row?.['released'] !== 0n) {
      return false;
    }
    const endsMs = binding.releasedEndMs(lease, endMs);
    if (endsMs === null) {
      return false;
    }
    const ends = [signedMs(endsMs), signedMs(lease.validUntilMs)];
    const args = [namespace, BigInt(worker), bytesOf(grantId), ...ends];
    return this.#database.run(this.#database.sql.end, args).length > 0;
  }

  /** The store's clock, unless the holder's is too far off. */
  #checkClock(holderMs: bigint): bigint {
    const storeMs = this.#database.readClock();
    checkClocks(this.#rules.limits, { holderMs, storeMs });
    return storeMs;
  }

  /** The worker that the rule chooses, with the greatest end recorded for it. */
  #choose(request: LeaseAcquire, storeMs: bigint): UsedWorker {
    const { namespace, holder, preferredWorker } = request;
    const rows = (sql: string, args: readonly Value[]): Row[] => this.#database.run(sql, args);
    let preferred: UsedWorker | null = null;
    if (preferredWorker !== null) {
      const row = this.#findLease(namespace, preferredWorker);
      preferred = row === null ? { worker: preferredWorker, endMs: 0n } : this.#used(row);
    }
    const ended = [namespace, holder, signedMs(storeMs)];
    const [previous] = holder === '' ? [] : rows(this.#database.sql.previous, ended);
    const [oldest] = rows(this.#database.sql.oldest, [namespace]);
    const [count] = rows('SELECT count(*) AS used FROM lease WHERE namespace = ?1', [namespace]);
    const candidates = {
      workers: workersOf(request.layout),
      used: Number(this.#number(count ?? {}, 'used')),
      preferred,
      previous: previous === undefined ? null : this.#used(previous),
      oldest: oldest === undefined ? null : this.#used(oldest),
    };
    const choice = choose(candidates, storeMs, randomBits(8));
    if (choice.kind === 'worker') {
      return choice.used;
    }
    if (choice.kind === 'exhausted') {
      throw workersExhausted(request, choice.freeAtMs);
    }
    const used = rows('SELECT worker FROM lease WHERE namespace = ?1 ORDER BY worker', [namespace]);
    const worker = nthNeverUsed(
      choice.nth,
      used.map((row) => this.#worker(row)),
    );
    if (worker === null) {
      throw workersExhausted(request, storeMs);
    }
    return { worker, endMs: 0n };
  }

  #binding(namespace: string): NamespaceBinding | null {
    const [row] = this.#database.run(this.#database.sql.namespace, [namespace]);
    if (row === undefined) {
      return null;
    }
    const small = (column: string): number => Number(this.#number(row, column));
    const layout = {
      timestampBits: small('timestamp_bits'),
      datacenterBits: small('datacenter_bits'),
      workerBits: small('worker_bits'),
      sequenceBits: small('sequence_bits'),
      order: row['field_order'] === 'sequence-first' ? ('sequence-first' as const) : ('worker-first' as const),
      epochMs: this.#number(row, 'epoch_ms'),
      tickMs: small('tick_ms'),
    };
    const fault = faultOfLayout(layout);
    if (fault !== null) {
      throw damaged(this.#database.path, fault);
    }
    return new NamespaceBinding(layout, this.#number(row, 'max_horizon_ms'), this.#number(row, 'floor_ms'));
  }

  #findLease(namespace: string, worker: number): Row | null {
    const sql = 'SELECT * FROM lease WHERE namespace = ?1 AND worker = ?2';
    return this.#database.run(sql, [namespace, BigInt(worker)])[0] ?? null;
  }

  #used(row: Row): UsedWorker {
    return { worker: this.#worker(row), endMs: this.#number(row, 'valid_until_ms') };
  }

  #worker(row: Row): number {
    const worker = this.#number(row, 'worker');
    if (worker > U32_MAX) {
      throw damaged(this.#database.path, 'a worker id is too great');
    }
    return Number(worker);
  }

  #lease(row: Row): Lease {
    return {
      worker: this.#worker(row),
      grantId: BigInt(`0x${hexOf(this.#blob(row, 'grant_id'))}`),
      notBeforeMs: this.#number(row, 'not_before_ms'),
      validUntilMs: this.#number(row, 'valid_until_ms'),
    };
  }

  /** A column that holds a number of 0 or more. */
  #number(row: Row, column: string): bigint {
    const value = row[column];
    if (typeof value !== 'bigint' || value < 0n) {
      throw damaged(this.#database.path, `${column} is ${String(value)}, and is never negative`);
    }
    return value;
  }

  #text(row: Row, column: string): string {
    const value = row[column];
    if (typeof value !== 'string') {
      throw damaged(this.#database.path, `${column} is no text`);
    }
    return value;
  }

  /** A column that holds 16 bytes. */
  #blob(row: Row, column: string): Uint8Array {
    const value = row[column];
    if (!(value instanceof Uint8Array) || value.length !== 16) {
      throw damaged(this.#database.path, `${column} has not 16 bytes`);
    }
    return value;
  }
}

/** All policies, in the order in which the statements number them; all 64 bits are kept. */
function policyColumns(step: StepPolicy, refill: RefillPolicy): Value[] {
  const signed = (figure: bigint) => BigInt.asIntN(64, figure);
  const columns: Value[] =
    step.kind === 'fixed'
      ? ['fixed', signed(step.step), null, null, null, null]
      : ['adaptive', ...[step.step, step.min, step.max, step.growBelowMs, step.shrinkAboveMs].map(signed)];
  const share = refill.kind === 'remaining' ? signed(refill.numbers) : BigInt(refill.percent);
  return [...columns, refill.kind, share];
}

function bindingColumns(namespace: string, { layout, maxHorizonMs }: NamespaceBinding): Value[] {
  return [
    namespace,
    BigInt(layout.timestampBits),
    BigInt(layout.datacenterBits),
    BigInt(layout.workerBits),
    BigInt(layout.sequenceBits),
    layout.order,
    signedMs(layout.epochMs),
    BigInt(layout.tickMs),
    signedMs(maxHorizonMs),
  ];
}

function exhausted(tag: string): StoreError {
  const moved = 'it was moved or ended, as an import does, and its numbers continue elsewhere';
  const what = `the tag ${shown(tag)} is exhausted: ${moved}, or every number up to ${ID_MAX} has been granted`;
  return new StoreError('exhausted', what);
}

function unknown(name: string): StoreError {
  const [tag, sub] = splitTag(name);
  const how = 'create it first, with `unalike tags create` or, where that is allowed, by taking an id of it';
  const what =
    sub === null
      ? `the tag ${JSON.stringify(tag)} is unknown: ${how}`
      : `the tag ${JSON.stringify(tag)} has no sub-key ${JSON.stringify(sub)}: its first id creates it`;
  return new StoreError('tag-unknown', what);
}

/** An instant or a duration as a column holds it; those beyond are 292 million years away. */
function signedMs(ms: bigint): bigint {
  if (ms > ID_MAX) {
    throw new StoreError('refused', `${ms} ms is too great a time`);
  }
  return ms;
}

function bytesOf(grantId: bigint): Uint8Array {
  const digits = grantId.toString(16).padStart(32, '0');
  return Uint8Array.from({ length: 16 }, (_, at) => Number.parseInt(digits.slice(2 * at, 2 * at + 2), 16));
}

function isIn(value: bigint, least: bigint, greatest: bigint): boolean {
  return typeof value === 'bigint' && least <= value && value <= greatest;
}
