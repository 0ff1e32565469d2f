/**
 * Ordered sequences: callers that wait are served together, by rounds.
 *
 * A caller queues; the driver begins one round for all that are queued *then*, so a request is served only from an
 * allocation that started after it arrived. A caller that went away leaves a gap: its share is never given to a later
 * one.
 *
 * @module
 */

import { restOf } from './batch.js';
import type { Answer, Core, CoreOrdered, Run } from './component.js';
import { contextsHere } from './contexts.js';
import { closed, IdsError } from './errors.js';
import { checkedWait, Generator, type Environment, type Outcome, type WaitOptions } from './generator.js';
import { GrantOrder } from './grant-order.js';
import { U32_MAX } from './numbers.js';
import { aborted, after, checkAborted, every, guarded, monotonicMs } from './wait.js';

/** So much later than it had to, a driver that has not gone on is gone. */
const DRIVER_GONE_MS = 1_000;

interface Waiter {
  left: number;
  readonly runs: Run[];
  readonly startedMs: number;
  /** Its caller goes away then. */
  readonly deadlineMs: number;
  readonly answer: (answer: Run[] | unknown, isError: boolean) => void;
  /** Has its own request drive the rounds from now on: once. */
  drive: ((mark: symbol) => void) | undefined;
  isGone: boolean;
}

interface Deferred<Value> {
  readonly promise: Promise<Value>;
  readonly resolve: (value: Value) => void;
  readonly reject: (error: Error) => void;
}

function deferred<Value>(): Deferred<Value> {
  let [resolve, reject]: [Deferred<Value>['resolve'], Deferred<Value>['reject']] = [() => {}, () => {}];
  const promise = new Promise<Value>((...both) => {
    [resolve, reject] = both;
  });
  return { promise, resolve, reject };
}

/** The rounds of one tag, and the callers that wait for them, in the order in which they came. */
export class Rounds extends Generator<CoreOrdered> {
  override readonly granted = new GrantOrder();
  /** Ids that rounds brought. */
  issued = 0n;
  private queue: Waiter[] = [];
  /** For whom the present round is. */
  private served: readonly Waiter[] = [];
  /** Who follows the rounds, and until when it has gone on if it is still there. */
  private driver: symbol | undefined;
  private drivenUntilMs = 0;

  constructor(
    environment: Environment,
    name: string,
    readonly idMax: bigint,
  ) {
    super(environment, name);
  }

  /** Whether rounds are being followed. */
  get isDriven(): boolean {
    return this.driver !== undefined;
  }

  protected override get bound(): bigint {
    return this.idMax;
  }

  override open(core: Core): Answer<CoreOrdered> {
    return core.openOrdered(this.name, this.granted.successorFloor(), this.idMax);
  }

  /** Ends it, and tells all that wait for a round that is not begun. */
  override stop(): void {
    super.stop();
    const waiting = this.queue;
    this.queue = [];
    for (const waiter of waiting) {
      waiter.answer(closed(this.name), true);
    }
  }

  async take(count: number, options?: WaitOptions): Promise<Run[]> {
    this.checkOpen();
    const wait = checkedWait(options);
    const { signal } = wait;
    checkAborted(this.name, signal);
    const waitMaxMs = this.waitMaxMs(wait);
    const startedMs = monotonicMs();
    let abort = (): void => undefined;
    let timer: unknown;
    let look: unknown;
    // Another request keeps the first promise, and this one's own look keeps the second: as in `Event.next`.
    const own = deferred<Run[]>();
    try {
      let outcome: (() => void) | undefined;
      const answered = new Promise<Run[]>((resolve, reject) => {
        let drive: Waiter['drive'];
        // What follows runs in the request that made the promise, whichever keeps it.
        void new Promise<symbol>((turn) => (drive = turn)).then(
          guarded((mark: symbol) => this.follow(waiter, mark)),
        );
        const waiter: Waiter = {
          left: count,
          runs: [],
          startedMs,
          deadlineMs: startedMs + waitMaxMs,
          isGone: false,
          drive,
          answer: (answer, isError) => {
            if (waiter.isGone) {
              return;
            }
            waiter.isGone = true;
            this.refused += isError ? 1 : 0;
            const settle = (how: Pick<typeof own, 'resolve' | 'reject'>): void =>
              isError ? how.reject(answer as Error) : how.resolve(answer as Run[]);
            outcome = () => settle(own);
            settle({ resolve, reject });
          },
        };
        abort = (): void => waiter.answer(aborted(this.name, signal), true);
        signal?.addEventListener('abort', abort);
        timer = after(() => waiter.answer(this.timeout(startedMs), true), waitMaxMs);
        this.queue.push(waiter);
        if (this.driver === undefined) {
          // All who call in the same turn are in the first round.
          this.appoint(waiter);
        }
        if (contextsHere().areMany) {
          look = every(() => {
            outcome?.();
            return this.replaceGone(waiter);
          }, contextsHere().lookEveryMs);
        }
      });
      return await Promise.race([answered, own.promise]);
    } finally {
      clearTimeout(timer as number);
      clearInterval(look as number);
      // The signal's code is the program's: it runs when whoever answered is done with all waiters.
      signal?.removeEventListener('abort', abort);
    }
  }

  /** Goes on in the place of a driver whose request was cut, and begins its round again. */
  private async replaceGone(waiter: Waiter): Promise<void> {
    if (!waiter.isGone && (this.driver === undefined || monotonicMs() > this.drivenUntilMs)) {
      this.queue = [...this.served, ...this.queue];
      await this.follow(waiter, this.nextDriver());
    }
  }

  /** Drives, and has the present request live for it. */
  private follow(waiter: Waiter, mark: symbol): Promise<void> {
    const driving = this.drive(waiter, mark);
    contextsHere().keep(driving);
    return driving;
  }

  /** Has this caller's request follow the rounds, or nobody. */
  private appoint(waiter: Waiter | undefined): void {
    const drive = waiter?.drive;
    if (waiter === undefined || drive === undefined) {
      this.driver = undefined;
      return;
    }
    waiter.drive = undefined;
    drive(this.nextDriver());
  }

  private nextDriver(): symbol {
    this.served = [];
    this.driver = Symbol();
    this.drivenUntilMs = monotonicMs() + DRIVER_GONE_MS;
    return this.driver;
  }

  /**
   * Round after round, until nobody waits, or until this driver was replaced. Where its request ends once its caller
   * is served, one that still waits goes on in its place.
   */
  private async drive(me: Waiter, mark: symbol): Promise<void> {
    try {
      while (this.driver === mark) {
        if (me.isGone && contextsHere().areMany) {
          this.appoint(this.queue.find((waiter) => !waiter.isGone && waiter.drive !== undefined));
          return;
        }
        const waiting = this.nextWaiting();
        if (waiting.length === 0) {
          this.appoint(undefined);
          return;
        }
        this.served = waiting;
        try {
          this.share(await this.round(waiting), waiting);
        } catch (error) {
          // The round began after its callers came: each is told how long it waited itself.
          const isLate = error instanceof IdsError && error.kind === 'timeout';
          for (const waiter of waiting) {
            waiter.answer(isLate ? this.timeout(waiter.startedMs) : error, true);
          }
        }
        if (this.driver === mark) {
          this.served = [];
        }
      }
    } finally {
      // Whatever was thrown: the next caller drives.
      if (this.driver === mark) {
        this.driver = undefined;
      }
    }
  }

  /** Those for whom the next round is: as many as one run can hold, and the rest waits for the round after it. */
  private nextWaiting(): Waiter[] {
    const there = this.queue.filter((waiter) => !waiter.isGone);
    let sum = 0;
    let served = 0;
    for (const { left } of there) {
      if (sum + left > U32_MAX) {
        break;
      }
      sum += left;
      served += 1;
    }
    this.queue = there.slice(served);
    return there.slice(0, served);
  }

  /**
   * One allocation for all of them; another if the store could not do it, since theirs started after they came. Given
   * up when the last of them has gone.
   */
  private round(waiting: readonly Waiter[]): Promise<Run> {
    const count = waiting.reduce((sum, waiter) => sum + waiter.left, 0);
    const last = waiting.reduce((latest, { deadlineMs }) => Math.max(latest, deadlineMs), 0);
    let begun: bigint | undefined;
    const attempt = (): Outcome<Run> => {
      const outcome = attemptOnce();
      const waitMs = outcome.tag === 'wait' ? outcome.waitMs : contextsHere().lookEveryMs;
      this.drivenUntilMs = monotonicMs() + waitMs + DRIVER_GONE_MS;
      return outcome;
    };
    const attemptOnce = (): Outcome<Run> => {
      this.checkOpen();
      const now = BigInt(this.nowMs());
      if (begun === undefined) {
        const outcome = this.outcome(this.call((ordered) => ordered.begin(now, count)));
        if (outcome.tag !== 'ready') {
          return outcome;
        }
        begun = outcome.value;
      }
      const round = begun;
      const outcome = this.outcome(this.call((ordered) => ordered.claim(now, round)));
      if (outcome.tag === 'wait') {
        // The round failed and is over; the next attempt begins another.
        begun = undefined;
      }
      return outcome;
    };
    return this.untilReady(attempt, { waitMaxMs: Math.max(Math.ceil(last - monotonicMs()), 0) });
  }

  /** Gives each caller its share. Whoever the store granted too little for stays first in the queue. */
  private share(run: Run, waiting: readonly Waiter[]): void {
    this.issued += BigInt(run.count);
    const short: Waiter[] = [];
    let left: Run | undefined = run;
    for (const waiter of waiting) {
      const count = Math.min(waiter.left, left?.count ?? 0);
      if (left !== undefined && count > 0) {
        waiter.runs.push({ first: left.first, stride: left.stride, count });
        waiter.left -= count;
        left = restOf(left, count);
      }
      if (waiter.isGone) {
        // Its ids are a gap.
        continue;
      }
      if (waiter.left === 0) {
        waiter.answer(waiter.runs, false);
      } else {
        short.push(waiter);
      }
    }
    this.queue = [...short, ...this.queue];
  }
}
