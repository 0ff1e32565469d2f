/**
 * What a store in a SQLite database grants: the segment port and the lease port, where it may block.
 *
 * Each grant is one statement. What decides a lease is read before, in one snapshot, and without the right to write;
 * what makes it safe is part of the statement that grants.
 *
 * @module
 */

import {
  checkClocks,
  choose,
  chooseWorker,
  faultOfLayout,
  isLeaseName,
  leaseLost,
  leasesElsewhere,
  NamespaceBinding,
  nthNeverUsed,
  quarantined,
  randomBits,
  validateAcquire,
  validateExtend,
  workersExhausted,
  workersOf,
  type Expiry,
  type BindingFigure,
  type LeaseLimits,
  type UsedWorker,
} from './lease-rules.js';
import {
  formatNames,
  formatOptions,
  isKept,
  isKeptTime,
  KEPT_FLOOR,
  KEPT_LEASE_FLOOR,
  shown,
  splitTag,
  timeTag,
  validateAllocate,
  validateNewTag,
  validateOptions,
  validatePublic,
  validateTag,
} from './names.js';
import { damaged, hexOf, type Database, type Row, type Rows, type Value } from './sqlite-database.js';
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
/** How often a request is tried that others were quicker than. Of those that try at once one gets on each time. */
const RACES_MAX = 256;

/** What the store's clients may do. */
export interface Rules {
  readonly createTags: boolean;
  readonly tagsMax: bigint;
  readonly limits: LeaseLimits;
  /** What tags are created with on first use. */
  readonly newTags: TagOptions;
}

/** The store in the thread that may block. Everything here blocks. */
export class Statements {
  readonly #file: Database;
  readonly #rules: Rules;
  readonly #told: ((tag: string, next: bigint) => void) | undefined;

  /** @param told Hears of each tag that first use creates. */
  constructor(file: Database, rules: Rules, told?: (tag: string, next: bigint) => void) {
    this.#file = file;
    this.#rules = rules;
    this.#told = told;
  }

  allocate(tag: string, count: bigint, atLeast: bigint): Segment {
    validateAllocate(tag, count, atLeast);
    // Twice, when the tag comes into being in between.
    for (let tries = 0; tries < 2; tries += 1) {
      const segment = this.#grant(tag, count, atLeast);
      if (segment !== null) {
        return segment;
      }
      const row = this.#find(tag);
      if (row?.watermark === ID_MAX) {
        throw exhausted(tag);
      }
      if (row === null) {
        this.#createOnFirstUse(tag);
      }
    }
    throw new StoreError('unavailable', `the tag ${shown(tag)} changes all the time: try again`);
  }

  releaseTail(tag: string, { start, version }: TailRelease): boolean {
    validateTag(tag);
    // No row has a number that does not fit.
    if (!isIn(start, 0n, ID_MAX) || !isIn(version, 0n, ID_MAX)) {
      return false;
    }
    return this.#file.write('releasing a tail', this.#file.sql.release, [tag, start, version, null]).length > 0;
  }

  openTag(tag: string): TagRecord {
    validateTag(tag);
    const record = this.#findOrCreate(tag);
    this.#checkStripe();
    return record;
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
        // Somebody else may be quicker.
        row = this.#insertNew(name, formatOptions(name, first)) ?? this.#find(name);
      }
      if (row === null) {
        break;
      }
      bound = row.options.start;
    }
    return bound;
  }

  identity(): string {
    const [row] = this.#file.read('reading the identity', 'SELECT mark FROM identity');
    if (row === undefined) {
      throw damaged(this.#file.path, 'it has no identity');
    }
    return hexOf(this.#blob(row, 'mark'));
  }

  /** Numbers from the tag's row; `null` if there is no row, or no number is left. */
  #grant(tag: string, count: bigint, atLeast: bigint): Segment | null {
    const args = [tag, atLeast, count < ID_MAX ? count : ID_MAX, null];
    const [row] = this.#file.write('allocating a segment', this.#file.sql.allocate, args);
    if (row === undefined) {
      this.#checkStripe();
      return null;
    }
    const start = this.#number(row, 'grant_start');
    // At most 2^63, for the watermark is a positive signed integer.
    const end = this.#number(row, 'watermark') + 1n;
    if (start < 1n || start < atLeast || end <= start || end - start > count) {
      throw damaged(this.#file.path, `the grant from ${start} to ${end} is not what was asked for`);
    }
    const [generation, version] = [this.#number(row, 'generation'), this.#number(row, 'version')];
    return { start, end, stride: 1n, generation, version };
  }

  #find(tag: string): TagRecord | null {
    const [row] = this.#file.read('reading a tag', 'SELECT * FROM tag WHERE tag = ?1', [tag]);
    return row === undefined ? null : this.#tag(row);
  }

  #findOrCreate(tag: string): TagRecord {
    const found = this.#find(tag) ?? this.#createOnFirstUse(tag) ?? this.#find(tag);
    if (found === null) {
      throw unknown(tag);
    }
    return found;
  }

  /**
   * A tag without a row, if first use may create it; `null` if somebody else was quicker. A sub-key of a tag that
   * exists, or may be created, always may be: it has the options of its tag, and ends with it.
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
    const made = this.#insertNew(tag, this.#rules.newTags);
    if (made !== null) {
      // A mistyped tag begins anew, and nothing else tells. Sub-keys come with each day or tenant.
      this.#told?.(tag, made.watermark + 1n);
    }
    return made;
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
    const [row] = this.#file.write('creating a tag', this.#file.sql.create, [
      tag,
      options.start,
      options.mode,
      ...policyColumns(options.step, options.refill),
      tagsMax < ID_MAX ? tagsMax : ID_MAX,
      null,
      // Times are not numbers.
      isKeptTime(tag) ? null : KEPT_FLOOR,
      sub === null ? null : owner,
    ]);
    if (row !== undefined) {
      return this.#tag(row);
    }
    if (this.#find(tag) !== null) {
      return null;
    }
    this.#checkStripe();
    const untilMs = isKeptTime(tag) ? (this.#find(KEPT_LEASE_FLOOR)?.watermark ?? 0n) : 0n;
    if (untilMs > this.#file.readClock()) {
      throw quarantined(sub ?? owner, untilMs);
    }
    if (sub !== null && this.#find(owner)?.watermark === ID_MAX) {
      throw exhausted(tag);
    }
    const what = `the tag ${shown(tag)} was not created: the store has ${tagsMax} tags, its limit`;
    throw new StoreError('tag-limit', what);
  }

  /** Refuses a store that is one of several stripes: this client joined none. */
  #checkStripe(): void {
    const sql = 'SELECT stripe_set, stripe_index, stripe_count FROM store';
    const [row] = this.#file.read('reading the place among stripes', sql);
    if (row === undefined) {
      throw damaged(this.#file.path, 'the row of the store is missing');
    }
    if (row['stripe_set'] !== null) {
      const set = hexOf(this.#blob(row, 'stripe_set'));
      const place = shownStripe(set, this.#number(row, 'stripe_index'), this.#number(row, 'stripe_count'));
      throw new StoreError('refused', `${this.#file.path} is ${place}`);
    }
  }

  #tag(row: Row): TagRecord {
    const figure = (column: string): bigint => {
      const value = row[column];
      if (typeof value !== 'bigint') {
        throw damaged(this.#file.path, `${column} of a tag is no whole number`);
      }
      return BigInt.asUintN(64, value);
    };
    const { step_policy: step, refill_policy: refill, mode } = row;
    const isKnown =
      (step === 'fixed' || step === 'adaptive') && (refill === 'share-consumed' || refill === 'remaining');
    if (!isKnown || (mode !== 'buffered' && mode !== 'ordered')) {
      throw damaged(this.#file.path, 'a tag has an unknown policy or mode');
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
      throw damaged(this.#file.path, (error as Error).message);
    }
    return { tag, options, watermark: this.#number(row, 'watermark') };
  }

  acquire(request: LeaseAcquire): Lease {
    validateAcquire(request);
    const storeMs = this.#checkClock(request.nowMs);
    for (let tries = 0; tries < RACES_MAX; tries += 1) {
      const lease = this.#tryAcquire(request, storeMs);
      if (lease !== null) {
        return lease;
      }
    }
    throw this.#raced('granting a lease');
  }

  extend(request: LeaseExtend): Lease {
    validateExtend(request);
    const { namespace, worker, grantId } = request;
    const storeMs = this.#checkClock(request.nowMs);
    const binding = this.#file.reading('reading a namespace', (rows) => this.#binding(rows, namespace));
    if (binding === null || !isLeaseName(worker, grantId)) {
      throw leaseLost(namespace, worker);
    }
    binding.checkLayout(namespace, request.layout);
    const endMs = binding.extendedEndMs(0n, storeMs, request.horizonMs);
    const args = [namespace, BigInt(worker), bytesOf(grantId), signedMs(endMs)];
    const [row] = this.#file.write('extending a lease', this.#file.sql.extend, args);
    if (row === undefined) {
      throw leaseLost(namespace, worker);
    }
    return this.#lease(row);
  }

  releaseLease(namespace: string, worker: number, grantId: bigint, endMs: bigint): boolean {
    if (!isLeaseName(worker, grantId) || !isIn(endMs, 0n, U64_MAX)) {
      return false;
    }
    for (let tries = 0; tries < RACES_MAX; tries += 1) {
      const [binding, row] = this.#file.reading('reading a lease', (rows) => [
        this.#binding(rows, namespace),
        this.#findLease(rows, namespace, worker),
      ]);
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
      if (this.#file.write('releasing a lease', this.#file.sql.end, args).length > 0) {
        return true;
      }
    }
    throw this.#raced('releasing a lease');
  }

  /** The store's clock, unless the holder's is too far off. */
  #checkClock(holderMs: bigint): bigint {
    const storeMs = this.#file.readClock();
    checkClocks(this.#rules.limits, { holderMs, storeMs });
    return storeMs;
  }

  /** Notes that a Redis keeps the leases of a namespace, unless this store does. */
  leaveLeases(namespace: string): void {
    const figures = new Map(NamespaceBinding.figuresInRedis());
    const figure = (name: BindingFigure): bigint => figures.get(name) ?? 0n;
    this.#file.write('noting that Redis keeps leases', this.#file.sql.bind_namespace, [
      namespace,
      figure('timestamp_bits'),
      figure('datacenter_bits'),
      figure('worker_bits'),
      figure('sequence_bits'),
      'worker-first',
      figure('epoch_ms'),
      figure('tick_ms'),
      figure('max_horizon_ms'),
    ]);
    this.#file.reading('reading a namespace', (rows) => {
      const [row] = rows('SELECT * FROM namespace WHERE namespace = ?1', [namespace]);
      if (row === undefined || this.#number(row, 'timestamp_bits') !== 0n) {
        throw leasesElsewhere(namespace, this.#hasGrantedTime(rows, namespace) ? 'in-both' : 'in-store');
      }
    });
  }

  /** Whether time was granted to leases of the namespace in Redis. */
  #hasGrantedTime(rows: Rows, namespace: string): boolean {
    const [row] = rows('SELECT count(*) AS granted FROM tag WHERE tag = ?1', [timeTag(namespace)]);
    return row !== undefined && this.#number(row, 'granted') !== 0n;
  }

  /** Grants a lease, if nobody else was quicker. */
  #tryAcquire(request: LeaseAcquire, storeMs: bigint): Lease | null {
    const { namespace, layout } = request;
    const [bound, binding, chosen] = this.#file.reading('looking for a worker', (rows) => {
      const bound = this.#binding(rows, namespace);
      if (this.#hasGrantedTime(rows, namespace)) {
        throw leasesElsewhere(namespace, bound === null ? 'in-redis' : 'in-both');
      }
      bound?.checkLayout(namespace, layout);
      bound?.checkQuarantine(namespace, storeMs);
      const binding = bound ?? NamespaceBinding.firstUse(layout, this.#rules.limits);
      const expiry = this.#file.expiry(storeMs, binding.maxHorizonMs);
      return [bound, binding, this.#choose(rows, request, expiry)];
    });
    const interval = binding.grant(chosen.endMs, { holderMs: request.nowMs, storeMs }, request.horizonMs);
    const { worker } = chosen;
    const lease: Lease = {
      worker,
      grantId: randomBits(16),
      notBeforeMs: interval.startMs,
      validUntilMs: interval.endMs,
    };
    if (bound === null) {
      this.#file.write('binding a namespace', this.#file.sql.bind_namespace, bindingColumns(namespace, binding));
      // What it is bound to now is what somebody else said, perhaps.
      return null;
    }
    const granted = this.#file.write('granting a lease', this.#file.sql.grant, [
      namespace,
      BigInt(worker),
      bytesOf(lease.grantId),
      request.holder,
      signedMs(interval.startMs),
      signedMs(interval.endMs),
      signedMs(storeMs),
    ]);
    return granted.length > 0 ? lease : null;
  }

  /** The worker that the rule chooses, with the greatest end recorded for it. */
  #choose(rows: Rows, request: LeaseAcquire, expiry: Expiry): UsedWorker {
    const { namespace, holder, preferredWorker } = request;
    if (!expiry.isPlain) {
      const all = rows('SELECT * FROM lease WHERE namespace = ?1 ORDER BY worker', [namespace]);
      const used = all.map((row) => [this.#used(row), this.#text(row, 'holder')] as const);
      return chooseWorker(request, expiry, randomBits(8), used);
    }
    let preferred: UsedWorker | null = null;
    if (preferredWorker !== null) {
      const row = this.#findLease(rows, namespace, preferredWorker);
      preferred = row === null ? { worker: preferredWorker, endMs: 0n } : this.#used(row);
    }
    const ended = [namespace, holder, signedMs(expiry.clockMs)];
    const [previous] = holder === '' ? [] : rows(this.#file.sql.previous, ended);
    const [oldest] = rows(this.#file.sql.oldest, [namespace]);
    const [count] = rows('SELECT count(*) AS used FROM lease WHERE namespace = ?1', [namespace]);
    const candidates = {
      workers: workersOf(request.layout),
      used: Number(this.#number(count ?? {}, 'used')),
      preferred,
      previous: previous === undefined ? null : this.#used(previous),
      oldest: oldest === undefined ? null : this.#used(oldest),
    };
    const choice = choose(candidates, expiry, randomBits(8));
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
      throw workersExhausted(request, expiry.clockMs);
    }
    return { worker, endMs: 0n };
  }

  #binding(rows: Rows, namespace: string): NamespaceBinding | null {
    const [row] = rows(this.#file.sql.namespace, [namespace]);
    if (row === undefined) {
      return null;
    }
    if (this.#number(row, 'timestamp_bits') === 0n) {
      throw leasesElsewhere(namespace, 'in-redis');
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
      throw damaged(this.#file.path, fault);
    }
    return new NamespaceBinding(layout, this.#number(row, 'max_horizon_ms'), this.#number(row, 'floor_ms'));
  }

  #findLease(rows: Rows, namespace: string, worker: number): Row | null {
    const sql = 'SELECT * FROM lease WHERE namespace = ?1 AND worker = ?2';
    return rows(sql, [namespace, BigInt(worker)])[0] ?? null;
  }

  #used(row: Row): UsedWorker {
    return { worker: this.#worker(row), endMs: this.#number(row, 'valid_until_ms') };
  }

  #worker(row: Row): number {
    const worker = this.#number(row, 'worker');
    if (worker > U32_MAX) {
      throw damaged(this.#file.path, 'a worker id is too great');
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
      throw damaged(this.#file.path, `${column} is ${String(value)}, and is never negative`);
    }
    return value;
  }

  #text(row: Row, column: string): string {
    const value = row[column];
    if (typeof value !== 'string') {
      throw damaged(this.#file.path, `${column} is no text`);
    }
    return value;
  }

  /** A column that holds 16 bytes. */
  #blob(row: Row, column: string): Uint8Array {
    const value = row[column];
    if (!(value instanceof Uint8Array) || value.length !== 16) {
      throw damaged(this.#file.path, `${column} has not 16 bytes`);
    }
    return value;
  }

  /** Somebody else was quicker each time. */
  #raced(doing: string): StoreError {
    const what = `${doing}, in ${this.#file.path}: other programs were quicker ${RACES_MAX} times: try again`;
    return new StoreError('unavailable', what);
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

/** What a store is that is one of several, and what to do. */
function shownStripe(set: string, index: bigint, count: bigint): string {
  // Marks of a resize: see the Rust library's stripes.
  if (index < 1n << 30n) {
    const what = `stripe ${index} of ${count} in the set ${set}`;
    return `${what}: use it together with all stores of its set, in their order, through the unalike server`;
  }
  const mark = index < 1n << 31n ? 'left, as its tags were moved to other stores' : 'fenced while its tags are moved';
  return (
    `${mark} (${set}): restart this program with the stores that have its tags now; if that was broken off, repeat ` +
    '`unalike stripes resize`, or `unalike store rebind`'
  );
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
