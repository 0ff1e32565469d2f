/**
 * What every open generator has; how a call waits for the store.
 *
 * @module
 */

import type { Answer, Core, ComponentError } from './component.js';
import { contextsHere } from './contexts.js';
import { because, closed, IdsError, isLasting, refusedOptions } from './errors.js';
import type { GrantOrder } from './grant-order.js';
import type { Handle, Lane, Opening } from './lane.js';
import { shown } from './names.js';
import { checkedNumber } from './numbers.js';
import { ANY, checkedOptions, NUMBER, type Kinds } from './options.js';
import { ID_MAX, StoreError, type Lease } from './store.js';
import type { Storage } from './storage.js';
import { checkAborted, Event, monotonicMs, TIMER_MAX_MS, type AbortSignalLike } from './wait.js';

/** How a call waits. */
export interface WaitOptions {
  /** How long it waits at most, in milliseconds: 0 to 2^31 - 1. That of the `Ids` by default. */
  readonly waitMaxMs?: number;
  /** Gives the call up: it is rejected with the kind `aborted`. No id is lost by that in buffered mode. */
  readonly signal?: AbortSignalLike;
}

const WAIT: Kinds<WaitOptions> = { waitMaxMs: NUMBER, signal: ANY };

/** How a call waits, where that was said. @throws {IdsError} `options-invalid` */
export function checkedWait(options: WaitOptions | undefined): WaitOptions {
  return options === undefined ? NO_WAIT : checkedOptions('wait', options, WAIT, refusedOptions);
}

const NO_WAIT: WaitOptions = Object.freeze({});

/** What generators are opened in. */
export interface Environment {
  readonly storage: Storage;
  readonly lane: Lane;
  readonly waitMaxMs: number;
}

/** What a call brought: something, or what to wait for. */
export type Outcome<Value> =
  | { readonly tag: 'ready'; readonly value: Value }
  | { readonly tag: 'pending' }
  | { readonly tag: 'wait'; readonly waitMs: number };

export const PENDING: Outcome<never> = Object.freeze({ tag: 'pending' });

/** A generator of any kind. */
export abstract class Generator<Opened extends Handle> implements Opening<Opened> {
  readonly granted: GrantOrder | undefined = undefined;
  lastError: StoreError | undefined;
  lease: Lease | undefined;
  /** How many calls had to wait, and how many ended with an error. */
  waits = 0;
  refused = 0;
  isStopped = false;
  protected readonly changed = new Event();
  private isPending = false;

  constructor(
    readonly environment: Environment,
    readonly name: string,
  ) {}

  abstract open(core: Core): Answer<Opened>;

  /** The component has said `pending`, and nothing was answered since: asking it again would bring the same. */
  protected get isStillPending(): boolean {
    this.endOverdue();
    return this.isPending;
  }

  /** What is overdue is answered by that. */
  private endOverdue(): void {
    if (this.isPending) {
      this.environment.lane.giveUpOverdue(this);
    }
  }

  lost(): void {
    this.isPending = false;
    this.changed.fire();
  }

  answered(): void {
    this.isPending = false;
    this.changed.fire();
  }

  /** Ends it here: calls fail from now on, and so do those that wait. */
  stop(): void {
    this.isStopped = true;
    this.answered();
  }

  /** What the clock shows: to be read before anything of the generator is. @throws {IdsError} */
  nowMs(): number {
    return this.environment.lane.nowMs();
  }

  /** Calls the component, if the generator may still be used. @throws {IdsError} */
  call<Value>(act: (handle: Opened) => Value): Value {
    this.checkOpen();
    return this.environment.lane.call(this, act);
  }

  /** @throws {IdsError} `closed` */
  checkOpen(): void {
    if (this.isStopped) {
      throw closed(this.name);
    }
  }

  /** The component's answer as an outcome. @throws {IdsError} */
  outcome<Value>(answer: Answer<Value>): Outcome<Value> {
    if (answer.tag === 'ok') {
      return { tag: 'ready', value: answer.val };
    }
    const error = answer.val;
    switch (error.tag) {
      case 'pending':
        this.isPending = true;
        return PENDING;
      case 'wait':
        return { tag: 'wait', waitMs: millis(error.val) };
      case 'store-failed':
        if (error.val > 0n && !isLasting(this.lastError)) {
          return { tag: 'wait', waitMs: millis(error.val) };
        }
        throw this.failed();
      default:
        throw this.errorOf(error);
    }
  }

  /** The greatest id that it hands out. */
  protected get bound(): bigint {
    return ID_MAX;
  }

  private errorOf(error: ComponentError): IdsError {
    const name = shown(this.name);
    switch (error.tag) {
      case 'clock-moved-back': {
        const behindMs = millis(error.val);
        const what = `the clock went back by ${behindMs} ms, which is more than the clock policy of ${name} bridges`;
        return new IdsError('clock-moved-back', what, { behindMs });
      }
      case 'clock-before-epoch': {
        const firstMs = millis(error.val);
        const begins = `the clock is before the layout of ${name} begins, at ${isoOf(firstMs)}`;
        const what = `${begins}: set the clock, or the layout's epoch is wrong`;
        return new IdsError('clock-before-epoch', what, { firstMs });
      }
      case 'exhausted': {
        const isByStore = this.lastError?.kind === 'exhausted';
        const idMax = this.bound;
        if (idMax < ID_MAX && !isByStore) {
          const limit = `${idMax}, the greatest that is allowed (the digits of its template, bits or idMax set it)`;
          const what = `${name} is exhausted: no number is left up to ${limit}`;
          return new IdsError('exhausted', what, { idMax, left: 0 });
        }
        const what = isByStore ? 'its store has no more' : 'no number, or no timestamp of its layout, is left';
        return new IdsError('exhausted', `${name} is exhausted: ${what}`, { left: 0 }, this.lastError);
      }
      case 'grant-refused':
        return new IdsError('grant-refused', `a grant for ${name} was refused: ${GRANT_FAULTS[error.val]}`, {
          fault: error.val,
        });
      case 'closed':
        return closed(this.name);
      case 'invalid-argument':
        if (error.val === 'round') {
          // Another generator's trap took the instance away in which the round was begun.
          return new IdsError('rebuilt', `the round of ${name} was lost: try again`, { retryAfterMs: 1 });
        }
        return new IdsError('component', `the component refused an argument that was checked: ${error.val}`);
      default:
        return new IdsError('component', `the component answered ${error.tag}, which was not expected`);
    }
  }

  protected failed(): IdsError {
    // What a store says whose answers were fine, when the component has no use for them.
    const cause = this.lastError ?? new StoreError('unavailable', 'the clock is ahead of every lease');
    const ended = this.leaseEnded(cause);
    return ended ?? new IdsError('store', `no ids for ${shown(this.name)}: ${cause.message}`, {}, cause);
  }

  /** The story of the lease that has ended, which says more than any other. */
  private leaseEnded(cause: StoreError | undefined): IdsError | undefined {
    let nowMs = 0;
    try {
      nowMs = this.lease === undefined ? 0 : this.nowMs();
    } catch {
      // What ended the call is told, and not what ails the clock.
      return undefined;
    }
    const { lease } = this;
    if (lease === undefined || BigInt(nowMs) < lease.validUntilMs) {
      return undefined;
    }
    const [worker, endedMs] = [lease.worker, millis(lease.validUntilMs)];
    const ended = `the lease of worker ${worker} ended at ${isoOf(endedMs)}, and there is no other`;
    const what = `no ids for ${shown(this.name)}: ${ended}`;
    return new IdsError('lease-ended', what + because(cause), { worker, endedMs }, cause);
  }

  timeout(startedMs: number): IdsError {
    const waitedMs = Math.round(monotonicMs() - startedMs);
    const cause = this.lastError;
    const what = `no ids for ${shown(this.name)} within ${waitedMs} ms${because(cause)}`;
    return this.leaseEnded(cause) ?? new IdsError('timeout', what, { waitedMs }, cause);
  }

  /** How long a call waits. @throws {IdsError} `number-invalid` */
  waitMaxMs({ waitMaxMs: given }: WaitOptions): number {
    return given === undefined ? this.environment.waitMaxMs : checkedNumber('waitMaxMs', given, 0, TIMER_MAX_MS);
  }

  /** Tries again after each answer of the store, and whenever told to, until something comes or time is up. */
  async untilReady<Value>(attempt: () => Outcome<Value>, options?: WaitOptions): Promise<Value> {
    try {
      const wait = checkedWait(options);
      return await this.waitFor(attempt, this.waitMaxMs(wait), wait.signal);
    } catch (error) {
      this.refused += 1;
      throw error;
    }
  }

  private async waitFor<Value>(
    attempt: () => Outcome<Value>,
    waitMaxMs: number,
    signal: AbortSignalLike | undefined,
  ): Promise<Value> {
    checkAborted(this.name, signal);
    const startedMs = monotonicMs();
    let hasWaited = false;
    for (;;) {
      this.endOverdue();
      const outcome = attempt();
      if (outcome.tag === 'ready') {
        return outcome.value;
      }
      if (!hasWaited) {
        hasWaited = true;
        this.waits += 1;
      }
      const left = waitMaxMs - (monotonicMs() - startedMs);
      if (outcome.tag === 'pending') {
        const lookMs = Math.min(left, contextsHere().lookEveryMs);
        if (left <= 0 || (!(await this.changed.next(lookMs, this.name, signal)) && lookMs === left)) {
          throw this.timeout(startedMs);
        }
        continue;
      }
      const wait = Math.max(outcome.waitMs, 1);
      if (wait > left && this.lastError === undefined) {
        const what = `no ids for ${shown(this.name)} before ${wait} ms have passed`;
        throw new IdsError('not-yet', what, { waitMs: wait });
      }
      await this.pause(Math.min(wait, left), signal);
      if (wait >= left) {
        throw this.timeout(startedMs);
      }
    }
  }

  /** Waits that long, or until the generator is stopped. What is answered meanwhile changes nothing. */
  private async pause(waitMs: number, signal: AbortSignalLike | undefined): Promise<void> {
    const until = monotonicMs() + waitMs;
    for (let left = waitMs; left > 0; left = until - monotonicMs()) {
      await this.changed.next(left, this.name, signal);
      if (this.isStopped) {
        throw closed(this.name);
      }
    }
  }
}

/** What was wrong with a grant, in the words of the Rust library, and what to do. */
const GRANT_FAULTS = {
  malformed: "the store's grant is not an interval of ids. It is not used: look at the store",
  overlap:
    "the store's grant overlaps or precedes one that it gave before. It is not used: look at the store, which may " +
    'have been restored from an old copy',
  worker: 'the store granted a worker id that does not fit the layout. It is not used: look at the store',
};

/** An instant for people. */
function isoOf(ms: number): string {
  const date = new Date(ms);
  return Number.isNaN(date.getTime()) ? `${ms} ms` : date.toISOString();
}

/** Milliseconds as a number: beyond 2^53, the nearest. */
export function millis(ms: bigint): number {
  return Number(ms);
}
