/**
 * The rules of every lease store, as pure functions: which worker is offered, and where its interval begins and ends.
 *
 * Invariant: an interval begins at or after the greatest end recorded for its worker, and both of its bounds lie on
 * the layout's tick grid, so two leases of one worker never share a tick. Clocks decide who is offered what and how
 * long, never whether intervals are disjoint.
 *
 * A store adds what only it can: its own clock, a durable record per worker, and one transaction around reading the
 * record and writing it. The Rust stores have the same rules, and more; `tests/vectors/leases.json` holds what they
 * answer.
 *
 * Instants and durations are `bigint` of 0 to 2^64 - 1, in milliseconds unless a name says otherwise.
 *
 * @module
 */

import { faultOfLayout } from './layouts.js';
import { StoreError, type Layout, type Lease, type LeaseAcquire, type LeaseExtend } from './store.js';

export { faultOfLayout };

const U64_MAX = (1n << 64n) - 1n;
const U32_MAX = 0xffff_ffff;

/** The longest horizon: 366 days. A lease that long is a static assignment. */
export const HORIZON_MAX_MS = 366n * 24n * 60n * 60n * 1_000n;

/** What a lease store allows its holders. */
export interface LeaseLimits {
  /**
   * How far ahead of the store's clock a lease may reach, in milliseconds: 1 to {@link HORIZON_MAX_MS}. It becomes a
   * constant of each namespace when that is first used; later limits do not change it.
   */
  readonly maxHorizonMs: bigint;
  /** How far a holder's clock may be from the store's, in milliseconds. */
  readonly maxSkewMs: bigint;
}

/** Ten minutes ahead, and clocks within 10 s of each other. */
export const DEFAULT_LEASE_LIMITS: LeaseLimits = Object.freeze({ maxHorizonMs: 600_000n, maxSkewMs: 10_000n });

/** The two clocks of a request, in Unix milliseconds. */
export interface Clocks {
  readonly holderMs: bigint;
  readonly storeMs: bigint;
}

/**
 * Checks the limits themselves.
 *
 * @throws {StoreError} `refused`
 */
export function validateLimits(limits: LeaseLimits): void {
  if (!isIn(limits.maxHorizonMs, 1n, HORIZON_MAX_MS)) {
    const rule = `it must be 1 to ${HORIZON_MAX_MS} (366 days)`;
    throw new StoreError('refused', `max_horizon_ms is ${limits.maxHorizonMs}, ${rule}`);
  }
  if (!isIn(limits.maxSkewMs, 0n, U64_MAX)) {
    throw new StoreError('refused', `max_skew_ms is ${limits.maxSkewMs}, it must be 0 to 2^64 - 1, a bigint`);
  }
}

/**
 * Checks that the two clocks are close enough.
 *
 * @throws {StoreError} `clock-skew`
 */
export function checkClocks(limits: LeaseLimits, { holderMs, storeMs }: Clocks): void {
  const apart = holderMs < storeMs ? storeMs - holderMs : holderMs - storeMs;
  if (apart > limits.maxSkewMs) {
    const clocks = `the clock is ${rfc3339(holderMs)}, the store's is ${rfc3339(storeMs)}`;
    throw new StoreError('clock-skew', `${clocks}, and ${limits.maxSkewMs} ms apart is the limit: set the clock`);
  }
}

/**
 * A layout for people: the widths in the order of the bits, then epoch and tick, as
 * `41/5+5/12 epoch 1288834974657 tick 1 ms` or `39/8/16 sequence-first epoch 1735689600000 tick 10 ms`. Different
 * layouts are written differently.
 */
export function layoutText(layout: Layout): string {
  const { timestampBits, datacenterBits, workerBits, sequenceBits, epochMs, tickMs } = layout;
  const worker = datacenterBits > 0 ? `${datacenterBits}+${workerBits}` : `${workerBits}`;
  const widths = isSequenceFirst(layout)
    ? `${timestampBits}/${sequenceBits}/${worker} sequence-first`
    : `${timestampBits}/${worker}/${sequenceBits}`;
  return `${widths} epoch ${epochMs} tick ${tickMs} ms`;
}

/** Whether two layouts are the same in every field. */
export function isSameLayout(one: Layout, other: Layout): boolean {
  return layoutText(one) === layoutText(other);
}

/** The greatest worker id, datacenter included. */
function workerMax(layout: Layout): number {
  return 2 ** (layout.datacenterBits + layout.workerBits) - 1;
}

/** How many worker ids there are, datacenter included: 1 to 2^31. */
export function workersOf(layout: Layout): number {
  return workerMax(layout) + 1;
}

/** When this tick begins, in Unix milliseconds; 2^64 - 1 where that cannot be said in 64 bits. */
export function tickStartMs(layout: Layout, tick: bigint): bigint {
  return saturated(layout.epochMs + tick * BigInt(layout.tickMs));
}

/** The beginning of the first tick that begins at this instant or later, in Unix milliseconds. */
export function roundUpMs(layout: Layout, atMs: bigint): bigint {
  const tickMs = BigInt(layout.tickMs);
  const sinceMs = atMs > layout.epochMs ? atMs - layout.epochMs : 0n;
  return tickStartMs(layout, (sinceMs + tickMs - 1n) / tickMs);
}

/** The beginning of the tick in which this instant lies, in Unix milliseconds; the epoch for all that is before. */
export function roundDownMs(layout: Layout, atMs: bigint): bigint {
  const sinceMs = atMs > layout.epochMs ? atMs - layout.epochMs : 0n;
  return tickStartMs(layout, sinceMs / BigInt(layout.tickMs));
}

/** Half-open: `startMs` is in it, `endMs` is not. */
export interface Interval {
  readonly startMs: bigint;
  readonly endMs: bigint;
}

/** What a namespace was bound to when it was first used; never changes. */
export class NamespaceBinding {
  /** The layout of its ids: a valid one. */
  readonly layout: Layout;
  /** How far ahead of the store's clock its leases may reach, in milliseconds. */
  readonly maxHorizonMs: bigint;
  /**
   * No lease starts before this instant, in Unix milliseconds: the end of a quarantine, where the store may have
   * forgotten leases. 0 where it forgets none.
   */
  readonly floorMs: bigint;

  /** A binding as a store has it. Its layout must be valid: see {@link faultOfLayout}. */
  constructor(layout: Layout, maxHorizonMs: bigint, floorMs: bigint) {
    this.layout = layout;
    this.maxHorizonMs = maxHorizonMs;
    this.floorMs = floorMs;
  }

  /**
   * The binding of a namespace that is used for the first time.
   *
   * @throws {StoreError} `refused` when the horizon has no room for a tick of the layout.
   */
  static firstUse(layout: Layout, limits: LeaseLimits): NamespaceBinding {
    validateLayout(layout);
    validateLimits(limits);
    if (limits.maxHorizonMs < BigInt(layout.tickMs)) {
      const why = `shorter than a tick of the layout ${layoutText(layout)}: no lease would hold one`;
      throw new StoreError('refused', `max_horizon_ms is ${limits.maxHorizonMs}, ${why}`);
    }
    return new NamespaceBinding(layout, limits.maxHorizonMs, 0n);
  }

  /**
   * Refuses everything while the store may have forgotten leases that still run.
   *
   * @throws {StoreError} `quarantined`
   */
  checkQuarantine(namespace: string, storeMs: bigint): void {
    if (this.floorMs > storeMs) {
      throw quarantined(namespace, this.floorMs);
    }
  }

  /**
   * Checks that a request is for the layout that the namespace is bound to.
   *
   * @throws {StoreError} `layout-mismatch`
   */
  checkLayout(namespace: string, offered: Layout): void {
    if (!isSameLayout(offered, this.layout)) {
      const bound = `the namespace ${JSON.stringify(namespace)} is bound to the layout ${layoutText(this.layout)}`;
      const what = `${bound}, and ${layoutText(offered)} was offered: use another namespace`;
      throw new StoreError('layout-mismatch', what);
    }
  }

  /**
   * The interval of a new lease of a worker whose greatest recorded end is `recordedEndMs` (0 if it was never used).
   *
   * It begins at the earlier clock, so that a holder whose clock is behind need not wait for it, and at the beginning
   * of the tick in which that clock is: the tick is the worker's own from the recorded end on.
   *
   * @throws {StoreError} `refused` when it would hold no tick.
   */
  grant(recordedEndMs: bigint, { holderMs, storeMs }: Clocks, horizonMs: bigint): Interval {
    const boundMs = later(recordedEndMs, this.floorMs);
    const earlierMs = holderMs < storeMs ? holderMs : storeMs;
    const startMs = later(roundUpMs(this.layout, boundMs), roundDownMs(this.layout, earlierMs));
    const endMs = this.#horizonEndMs(storeMs, horizonMs);
    if (startMs >= endMs) {
      const begin = `${rfc3339(startMs)}, where the lease could begin`;
      const end = `${rfc3339(endMs)}, where it would have to end`;
      const what = `no tick of the layout ${layoutText(this.layout)} lies between ${begin}, and ${end}`;
      throw new StoreError('refused', `${what}; the store's clock is ${rfc3339(storeMs)}`);
    }
    if (startMs < boundMs) {
      throw new Error("a lease never begins before its predecessor's end");
    }
    return { startMs, endMs };
  }

  /** Where a lease that ends at `validUntilMs` ends after an extension: never earlier. */
  extendedEndMs(validUntilMs: bigint, storeMs: bigint, horizonMs: bigint): bigint {
    return later(validUntilMs, this.#horizonEndMs(storeMs, horizonMs));
  }

  /**
   * Where this lease ends when its holder gives it back at `endMs`; `null` when that is past its end.
   *
   * Never before its start, whatever the holder says: what lies there belongs to predecessors.
   */
  releasedEndMs(lease: Pick<Lease, 'notBeforeMs' | 'validUntilMs'>, endMs: bigint): bigint | null {
    const { notBeforeMs, validUntilMs } = lease;
    if (endMs > validUntilMs) {
      return null;
    }
    const roundedMs = later(roundUpMs(this.layout, endMs), notBeforeMs);
    return roundedMs < validUntilMs ? roundedMs : validUntilMs;
  }

  #horizonEndMs(storeMs: bigint, horizonMs: bigint): bigint {
    const reachMs = horizonMs < this.maxHorizonMs ? horizonMs : this.maxHorizonMs;
    return roundDownMs(this.layout, saturated(storeMs + reachMs));
  }
}

/** A worker that was granted before, or is asked for by number. */
export interface UsedWorker {
  readonly worker: number;
  /** The greatest end recorded for it, in Unix milliseconds; 0 if it was never granted. */
  readonly endMs: bigint;
}

/** What a store must look up to choose a worker; each is one indexed read in a store that has many. */
export interface Candidates {
  /** How many worker ids the layout has. */
  readonly workers: number;
  /** How many of them were ever granted. */
  readonly used: number;
  /** The worker that the holder asked for. */
  readonly preferred: UsedWorker | null;
  /** Of the ended leases of this holder's name, the worker of the one that ended last. */
  readonly previous: UsedWorker | null;
  /** Of all workers ever granted, the one that ended, or will end, first. */
  readonly oldest: UsedWorker | null;
}

/** Which worker is offered. */
export type Choice =
  | { readonly kind: 'worker'; readonly used: UsedWorker }
  /** One that was never granted: its place among those, counted from 0. See {@link nthNeverUsed}. */
  | { readonly kind: 'never-used'; readonly nth: bigint }
  /** None: all are under a lease, of which the first ends then, in Unix milliseconds. */
  | { readonly kind: 'exhausted'; readonly freeAtMs: bigint };

/**
 * Chooses a worker: the preferred one when it is free, else the holder's previous one when its interval has ended, else
 * one that was never used, else the one that ended longest ago.
 *
 * `random` (64 bits) places the choice among the workers that were never used: at random, so that even separate stores
 * seldom meet.
 */
export function choose(candidates: Candidates, clockMs: bigint, random: bigint): Choice {
  const { workers, used, preferred, previous, oldest } = candidates;
  for (const candidate of [preferred, previous]) {
    if (candidate !== null && candidate.endMs <= clockMs) {
      return { kind: 'worker', used: candidate };
    }
  }
  if (workers > used) {
    return { kind: 'never-used', nth: random % BigInt(workers - used) };
  }
  if (oldest !== null && oldest.endMs <= clockMs) {
    return { kind: 'worker', used: oldest };
  }
  // A layout has one worker at least, so a store that has no oldest has one that was never used.
  return { kind: 'exhausted', freeAtMs: oldest === null ? clockMs : oldest.endMs };
}

/** All workers of the namespace are under a lease, of which the first ends at `freeAtMs`, in Unix milliseconds. */
export function workersExhausted(acquire: LeaseAcquire, freeAtMs: bigint): StoreError {
  const what = `all ${workersOf(acquire.layout)} worker ids of ${JSON.stringify(acquire.namespace)} are under a lease`;
  return new StoreError('workers-exhausted', `${what}; the next is free at ${rfc3339(freeAtMs)}`);
}

/** The store may have forgotten leases that run until then. */
export function quarantined(namespace: string, untilMs: bigint): StoreError {
  const what = `the store may have forgotten leases of ${JSON.stringify(namespace)}`;
  const until = `it grants none before ${rfc3339(untilMs)}, when all that it could have granted have ended`;
  return new StoreError('quarantined', `${what}: ${until}`);
}

/** Whether a lease can have this worker and this grant id. */
export function isLeaseName(worker: number, grantId: bigint): boolean {
  return isInteger(worker, 0xffff_ffff) && isIn(grantId, 0n, (1n << 128n) - 1n);
}

/** No lease with this worker and grant id is running. */
export function leaseLost(namespace: string, worker: number): StoreError {
  const what = `worker ${worker} of ${JSON.stringify(namespace)} is no longer leased to this holder`;
  return new StoreError('lease-lost', what);
}

/**
 * The `nth` worker, counted from 0, that is not among `used`, which ascends without repetition; `null` past 2^32 - 1.
 */
export function nthNeverUsed(nth: bigint, used: Iterable<number>): number | null {
  let worker = nth;
  for (const other of used) {
    if (BigInt(other) > worker) {
      break;
    }
    worker += 1n;
  }
  return worker <= BigInt(U32_MAX) ? Number(worker) : null;
}

/**
 * Checks a request for a worker id.
 *
 * @throws {StoreError} `refused` when a name is not well formed, the preferred worker does not fit the layout, the
 * horizon is shorter than a tick, or a number is none of 64 bits.
 */
export function validateAcquire(acquire: LeaseAcquire): void {
  const { layout, preferredWorker } = acquire;
  validateName('namespace', acquire.namespace);
  if (acquire.holder !== '') {
    validateName('holder', acquire.holder);
  }
  validateLayout(layout);
  if (preferredWorker !== null && !isInteger(preferredWorker, workerMax(layout))) {
    const workers = `the workers of the layout ${layoutText(layout)} are 0 to ${workerMax(layout)}`;
    throw new StoreError('refused', `worker ${preferredWorker} is preferred, but ${workers}`);
  }
  validateTimes(acquire);
}

/**
 * Checks a request to prolong a lease.
 *
 * @throws {StoreError} `refused` as {@link validateAcquire}.
 */
export function validateExtend(extend: LeaseExtend): void {
  validateName('namespace', extend.namespace);
  validateLayout(extend.layout);
  validateTimes(extend);
}

/**
 * Checks the name of a namespace or of a holder.
 *
 * @throws {StoreError} `refused`
 */
export function validateName(what: 'namespace' | 'holder', name: string): void {
  const isName =
    typeof name === 'string' &&
    name !== '' &&
    name.isWellFormed() &&
    !/\p{Cc}/u.test(name) &&
    new TextEncoder().encode(name).length <= 128;
  if (!isName) {
    const shown = JSON.stringify([...String(name)].slice(0, 32).join(''));
    const rule = 'a name is 1 to 128 bytes of UTF-8 without control characters';
    throw new StoreError('refused', `the ${what} ${shown} is not valid: ${rule}`);
  }
}

function validateLayout(layout: Layout): void {
  const fault = faultOfLayout(layout);
  if (fault !== null) {
    throw new StoreError('refused', `the layout is not valid: ${fault}`);
  }
}

function validateTimes({ layout, nowMs, horizonMs }: LeaseAcquire | LeaseExtend): void {
  for (const [what, value] of [['clock', nowMs], ['horizon', horizonMs]] as const) {
    if (!isIn(value, 0n, U64_MAX)) {
      throw new StoreError('refused', `the ${what} is ${value} ms, it must be a bigint of 0 to 2^64 - 1`);
    }
  }
  if (horizonMs < BigInt(layout.tickMs)) {
    const why = `shorter than a tick of the layout ${layoutText(layout)}: no lease would hold one`;
    throw new StoreError('refused', `a horizon of ${horizonMs} ms was asked for, ${why}`);
  }
}

/** An instant in Unix milliseconds, for people: RFC 3339 in UTC, with milliseconds. */
export function rfc3339(unixMs: bigint): string {
  // The last millisecond of the year 9999, which JavaScript's own dates reach.
  return unixMs > 253_402_300_799_999n ? 'after the year 9999' : new Date(Number(unixMs)).toISOString();
}

/** So many random bytes, as a number: 8 to choose a worker by, 16 for a grant id, which nobody else has. */
export function randomBits(bytes: 8 | 16): bigint {
  const drawn = globalThis.crypto.getRandomValues(new Uint8Array(bytes));
  return drawn.reduce((bits, byte) => (bits << 8n) | BigInt(byte), 0n);
}

function isSequenceFirst(layout: Layout): boolean {
  return layout.order === 'sequence-first';
}

function later(one: bigint, other: bigint): bigint {
  return one > other ? one : other;
}

function saturated(value: bigint): bigint {
  return value > U64_MAX ? U64_MAX : value;
}

function isIn(value: bigint, least: bigint, greatest: bigint): boolean {
  return typeof value === 'bigint' && least <= value && value <= greatest;
}

function isInteger(value: number, greatest: number): boolean {
  return Number.isInteger(value) && value >= 0 && value <= greatest;
}
