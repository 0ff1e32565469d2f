/**
 * Snowflakes: ids of a timestamp, a worker and a sequence, under a lease.
 *
 * The component hands out the rest of a tick as one run; its ids are handed out while the clock is in that tick, and
 * what is left when the clock has moved on is dropped, so that an id's timestamp is the time of its issue.
 *
 * @module
 */

import { Batch, restOf } from './batch.js';
import type {
  Answer,
  ComponentClock,
  ComponentSnowflakeOptions,
  ComponentSnowflakeStatus,
  ComponentSpread,
  Core,
  CoreSnowflake,
  Run,
} from './component.js';
import { IdsError, refusedOptions } from './errors.js';
import { Generator, millis, PENDING, type Environment, type Outcome, type WaitOptions } from './generator.js';
import { checkedCount, checkedNumber, U32_MAX } from './numbers.js';
import { checkedOptions, NUMBER, objectAs, wordOf, type Kinds } from './options.js';
import type { Layout } from './store.js';
import { soon } from './wait.js';

/** What to do when the clock is behind a time that was seen before. Uniqueness does not depend on it. */
export type ClockPolicy =
  /** Refuse until it has caught up (Twitter). */
  | { readonly kind: 'reject' }
  /** Wait for twice the difference, up to a difference of `maxMs` (Leaf: 5); refuse beyond. */
  | { readonly kind: 'wait'; readonly maxMs: number }
  /** Go on with the last timestamp, up to a difference of `maxMs` (the default: 2000); refuse beyond. */
  | { readonly kind: 'keep'; readonly maxMs: number };

/** The first sequence of each tick, for those who spread rows by `id % 2^n`. */
export type Spread =
  | { readonly kind: 'none' }
  /** One further with each tick that is used. `bits`: 1 to the layout's sequence bits. */
  | { readonly kind: 'rotating'; readonly bits: number }
  /** A mix of seed and tick. */
  | { readonly kind: 'random'; readonly bits: number };

/** How a snowflake generator works. */
export interface SnowflakeOptions {
  /** What to do when the clock goes back: keep for 2 s by default. */
  readonly clock?: ClockPolicy;
  /**
   * How far ahead of now a lease is asked for, 300 ms to 366 days; 60 s by default. Renewal starts when a third has
   * passed, so an outage of the lease store is ridden out for two thirds of it at least.
   */
  readonly horizonMs?: number;
  /** How far ahead of the clock a tick may begin when the one before is spent: 10 ms by default; 0: never. */
  readonly aheadMaxMs?: number;
  /** Where in a tick the sequences begin: at 0 by default. */
  readonly spread?: Spread;
}

/** Figures of an open snowflake generator, for metrics. */
export interface SnowflakeStatus {
  /** Ids that were handed out by this process since the generator was opened. */
  readonly issued: bigint;
  /** The worker under lease. */
  readonly worker: number | undefined;
  /** The end of the lease, in Unix milliseconds; 0 without one. */
  readonly validUntilMs: number;
  /** The end of the greatest tick used, in Unix milliseconds; 0 before the first. */
  readonly usedUntilMs: number;
  /** Whether a request to the lease store is under way. */
  readonly inFlight: boolean;
  /** How far the newest timestamp is ahead of the clock, in milliseconds; 0 if it is not. */
  readonly aheadMs: number;
  /** Calls that had to wait for a lease or for the next tick. */
  readonly waits: number;
  /** Calls that ended with an error and no id. */
  readonly refused: number;
}

const HORIZON_MAX_MS = 366 * 86_400_000;
/** As the server has it: a lease is renewed when a third of it has passed, and a shorter one would end meanwhile. */
const HORIZON_MIN_MS = 300;
/** How often leases that are idle are looked at, at least and at most, in milliseconds. */
const RENEW_EVERY_MIN_MS = 50;
const RENEW_EVERY_MAX_MS = 1_000;

/** How often a lease with this horizon is looked at: it is due when a third of it has passed. */
export function renewEveryMs(horizonMs: bigint): number {
  return Math.min(Math.max(Math.floor(Number(horizonMs) / 6), RENEW_EVERY_MIN_MS), RENEW_EVERY_MAX_MS);
}

const OPTIONS: Kinds<SnowflakeOptions> = {
  clock: objectAs("{ kind: 'keep', maxMs: 2000 }"),
  horizonMs: NUMBER,
  aheadMaxMs: NUMBER,
  spread: objectAs("{ kind: 'random', bits: 8 }"),
};
const CLOCK: Kinds<{ kind: ClockPolicy['kind']; maxMs: unknown }> = {
  kind: wordOf(['reject', 'wait', 'keep']),
  maxMs: NUMBER,
};
const SPREAD: Kinds<{ kind: Spread['kind']; bits: unknown }> = {
  kind: wordOf(['none', 'rotating', 'random']),
  bits: NUMBER,
};

/**
 * The options as the component takes them.
 *
 * @throws {IdsError} `number-invalid`, `options-invalid`
 */
export function snowflakeOptions(layout: Layout, options: unknown): ComponentSnowflakeOptions {
  const given = checkedOptions('options', options, OPTIONS, refusedOptions);
  const horizonMs = checkedNumber('horizonMs', given.horizonMs ?? 60_000, Number.MIN_SAFE_INTEGER, HORIZON_MAX_MS);
  if (horizonMs < HORIZON_MIN_MS) {
    const rule = `it must be ${HORIZON_MIN_MS} to ${HORIZON_MAX_MS} milliseconds (60000 is one minute)`;
    throw new IdsError('number-invalid', `horizonMs is ${horizonMs}, ${rule}`, { argument: 'horizonMs' });
  }
  const aheadMaxMs = checkedNumber('aheadMaxMs', given.aheadMaxMs ?? 10, 0, Number.MAX_SAFE_INTEGER);
  return {
    layout,
    clock: clockOf(given.clock ?? { kind: 'keep', maxMs: 2_000 }),
    horizonMs: BigInt(horizonMs),
    aheadMaxMs: BigInt(aheadMaxMs),
    floor: 0n,
    spread: spreadOf(given.spread ?? { kind: 'none' }, layout),
    seed: 0n,
  };
}

function clockOf(clock: unknown): ComponentClock {
  const { kind, maxMs } = checkedOptions('clock', clock, CLOCK, refusedOptions, ['kind']);
  return kind === 'reject'
    ? { tag: 'reject' }
    : { tag: kind, val: BigInt(checkedNumber('clock.maxMs', maxMs, 0, Number.MAX_SAFE_INTEGER)) };
}

function spreadOf(spread: unknown, layout: Layout): ComponentSpread {
  const { kind, bits } = checkedOptions('spread', spread, SPREAD, refusedOptions, ['kind']);
  if (kind === 'none') {
    return { tag: 'none' };
  }
  if (layout.order !== 'worker-first') {
    throw refusedOptions('a spread needs a layout whose lowest bits are the sequence', 'spread');
  }
  return { tag: kind, val: checkedNumber('spread.bits', bits, 1, layout.sequenceBits) };
}

/** The end of the tick of an id, in Unix milliseconds. */
export function tickEndMs(layout: Layout, id: bigint): bigint {
  const { datacenterBits, workerBits, sequenceBits, epochMs, tickMs } = layout;
  return epochMs + ((id >> BigInt(datacenterBits + workerBits + sequenceBits)) + 1n) * BigInt(tickMs);
}

/**
 * The snowflake ids of one lease namespace.
 *
 * Ids ascend within the process under each worker; it takes another one only after its clock was ahead of true time by
 * more than a horizon. No id is handed out twice in its namespace, whatever the clocks do.
 */
export interface Snowflake extends AsyncIterable<bigint> {
  /** The lease namespace. */
  readonly namespace: string;
  /** The layout of the ids. */
  readonly layout: Layout;
  /** The next id. Waits, if need be, for a lease or for the next tick. @throws {IdsError} */
  next(options?: WaitOptions): Promise<bigint>;
  /**
   * The next id if there is one without waiting; if there is none, what is missing was asked for. @throws {IdsError}
   */
  tryNext(): bigint | undefined;
  /**
   * The next `count` ids, 1 to 2^32 - 1, in ascending order, over as many ticks as it takes. Ids that a call had when
   * it failed are a gap. `waitMaxMs` is for each tick.
   *
   * @throws {IdsError}
   */
  take(count: number, options?: WaitOptions): Promise<Batch>;
  /** One id after the other, until the generator is closed. */
  [Symbol.asyncIterator](): AsyncIterator<bigint, undefined>;
  /** Figures for metrics. @throws {IdsError} `closed`, `rebuilt` */
  status(): SnowflakeStatus;
}

/** @internal */
export class LeasedSnowflake extends Generator<CoreSnowflake> implements Snowflake {
  /** The end of the greatest tick that a run came from: where a rebuilt component begins. */
  private usedUntilMs = 0n;
  private rest: Run | undefined;
  /** While which times the run in hand is handed out. */
  private fromMs = 0;
  private untilMs = 0;
  private reserved = 0n;
  private readonly keptMs: number;

  constructor(
    environment: Environment,
    namespace: string,
    private readonly options: ComponentSnowflakeOptions,
  ) {
    super(environment, namespace);
    this.keptMs = options.clock.tag === 'keep' ? Number(options.clock.val) : 0;
  }

  get namespace(): string {
    return this.name;
  }

  get layout(): Layout {
    return this.options.layout;
  }

  override open(core: Core): Answer<CoreSnowflake> {
    const seed = BigInt(Math.floor(Math.random() * 2 ** 53));
    return core.openSnowflake(this.name, { ...this.options, floor: this.usedUntilMs, seed });
  }

  override answered(): void {
    super.answered();
    // Taken in as soon as it comes: with the next call it could come after the end of the lease that it prolongs.
    soon(() => this.renew());
  }

  next(options?: WaitOptions): Promise<bigint> {
    // A clock that shows nonsense throws: inside of `untilReady`, and not here.
    return this.untilReady(() => this.attempt(1), options).then((run) => run.first);
  }

  tryNext(): bigint | undefined {
    try {
      const outcome = this.attempt(1);
      return outcome.tag === 'ready' ? outcome.value.first : undefined;
    } catch (error) {
      this.refused += 1;
      throw error;
    }
  }

  async take(count: number, options?: WaitOptions): Promise<Batch> {
    const runs: Run[] = [];
    for (let left = checkedCount('count', count); left > 0; ) {
      const most = left;
      const run = await this.untilReady(() => this.attempt(most), options);
      runs.push(run);
      left -= run.count;
    }
    return new Batch(runs);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<bigint, undefined> {
    for (;;) {
      let id: bigint;
      try {
        id = await this.next();
      } catch (error) {
        if (error instanceof IdsError && error.kind === 'closed') {
          return undefined;
        }
        throw error;
      }
      yield id;
    }
  }

  status(): SnowflakeStatus {
    this.checkOpen();
    const now = this.nowMs();
    const status = this.call((snowflake) => snowflake.status(BigInt(now)));
    const usedUntilMs = millis(status.usedUntil);
    return {
      issued: this.reserved - BigInt(this.rest?.count ?? 0),
      worker: status.worker,
      validUntilMs: millis(status.validUntil),
      usedUntilMs,
      inFlight: status.inFlight,
      aheadMs: Math.max(usedUntilMs - this.layout.tickMs - now, 0),
      waits: this.waits,
      refused: this.refused,
    };
  }

  /** Opens it in the component. @throws {IdsError} */
  begin(nowMs: number): void {
    this.call((snowflake): ComponentSnowflakeStatus => snowflake.status(BigInt(nowMs)));
  }

  /** Asks for what is due. */
  renew(): void {
    if (this.isStopped || !this.environment.lane.has(this)) {
      return;
    }
    try {
      const now = this.nowMs();
      this.call((snowflake): ComponentSnowflakeStatus => snowflake.status(BigInt(now)));
    } catch (error) {
      if (!(error instanceof IdsError)) {
        throw error;
      }
      // What is wrong with it, calls will tell.
    }
  }

  /** Up to `max` ids of the run in hand, if it is its time. */
  private taken(max: number, now: number): Run | undefined {
    const { rest } = this;
    if (rest === undefined || this.isStopped || now < this.fromMs || now >= this.untilMs) {
      return undefined;
    }
    const count = Math.min(rest.count, max);
    this.rest = restOf(rest, count);
    return { first: rest.first, stride: rest.stride, count };
  }

  private attempt(max: number): Outcome<Run> {
    this.checkOpen();
    const now = this.nowMs();
    const taken = this.taken(max, now);
    if (taken !== undefined) {
      return { tag: 'ready', value: taken };
    }
    if (this.isStillPending && !this.isStopped) {
      return PENDING;
    }
    let untilMs = 0n;
    const answer = this.call((snowflake) => {
      // The whole rest of the tick: what is not used in time is worth nothing later.
      const answer = snowflake.reserve(BigInt(now), U32_MAX);
      if (answer.tag === 'ok') {
        // Recorded before anything can take this instance's place.
        untilMs = tickEndMs(this.layout, answer.val.first);
        this.usedUntilMs = untilMs;
      }
      return answer;
    });
    const outcome = this.outcome(answer);
    if (outcome.tag !== 'ready') {
      return outcome;
    }
    const run = outcome.value;
    // What is left of an earlier tick must not come after this one's.
    this.reserved += BigInt(run.count) - BigInt(this.rest?.count ?? 0);
    const count = Math.min(run.count, max);
    this.rest = restOf(run, count);
    // A clock that goes back as far as the policy bridges finds the run still in hand: the last tick is kept.
    this.fromMs = now - this.keptMs;
    this.untilMs = millis(untilMs);
    return { tag: 'ready', value: { first: run.first, stride: run.stride, count } };
  }
}
