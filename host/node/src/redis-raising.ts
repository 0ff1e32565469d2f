/**
 * How a hash in Redis gets more from the durable store: by one client at a time, by one task of it, and not at once
 * again after a failure.
 *
 * All this only spares work and numbers. What keeps grants apart is how an interval is installed: under the generation
 * that was read before the durable store was asked, and at most once. Whatever comes of an installation but success,
 * the interval is burnt.
 *
 * @module
 */

import { randomBytes } from 'node:crypto';

import { shown } from './names.js';
import { CLAIM, RECOGNISE, SETTLE, type Script } from './redis-scripts.js';
import type { RedisServer, Reply } from './redis-server.js';
import { ID_MAX, StoreError, type Segment, type SegmentStore } from './store.js';
import { after, type Timer } from './wait.js';

/** Who gets more for a hash is let alone for this long. */
const CLAIM_MS = 3_000;
/** How often it is asked whether another client has got more, in milliseconds. */
export const ASK_AGAIN_MS = 10;
/** A durable store that has not answered after this long counts as one that failed. */
const ANSWER_MAX_MS = 10_000;
/**
 * The durable store is left alone this long after a failure, and twice as long after each further one, up to the
 * second.
 */
const BACKOFF_MS = [100, 5_000] as const;

/** The kinds of hashes. Their names are written in Redis: they stay. */
export type Kind = 'sequences' | 'leases';

/** A hash in Redis that gives out parts of what the durable store granted. */
export interface HashKey {
  /** Whose it is, as callers name it. */
  readonly tag: string;
  /** The tag that the durable store must know, or create, before there is such a hash. */
  readonly owner: string;
  readonly key: string;
}

/** What came of getting more: there is more, or enough; or somebody else is at it, for this long at most. */
export type Raise = { readonly kind: 'done' } | { readonly kind: 'elsewhere'; readonly leftMs: number };

export const DONE: Raise = Object.freeze({ kind: 'done' });

export function elsewhere(leftMs: number): Raise {
  return { kind: 'elsewhere', leftMs };
}

/** A word that nobody else has. */
export function nonce(): string {
  return randomBytes(16).toString('hex');
}

/** Milliseconds of a clock that nobody sets. */
export function monotonicMs(): number {
  return performance.now();
}

/** The tasks of this client that want more for one hash: one at a time. */
export class Turns {
  /** How often one got more. */
  raised = 0;
  #isTaken = false;
  readonly #waiting = new Set<() => void>();

  /** How many have or wait for a turn. */
  get isIdle(): boolean {
    return !this.#isTaken && this.#waiting.size === 0;
  }

  /** Takes the turn if nobody has it. */
  tryTake(): (() => void) | null {
    if (this.#isTaken) {
      return null;
    }
    this.#isTaken = true;
    let isOver = false;
    return () => {
      if (isOver) {
        return;
      }
      isOver = true;
      this.#isTaken = false;
      for (const next of this.#waiting) {
        this.#waiting.delete(next);
        next();
        return;
      }
    };
  }

  /** Waits for the turn, at most until the deadline: then `null`. Whoever gets one ends it by calling what it got. */
  async take(deadline: number): Promise<(() => void) | null> {
    for (let turn = this.tryTake(); ; turn = this.tryTake()) {
      if (turn !== null) {
        return turn;
      }
      const leftMs = deadline - monotonicMs();
      if (leftMs <= 0) {
        return null;
      }
      await new Promise<void>((resolve) => {
        const next = (): void => {
          clearTimeout(timer);
          resolve();
        };
        const timer = after(() => {
          this.#waiting.delete(next);
          resolve();
        }, leftMs);
        this.#waiting.add(next);
      });
    }
  }
}

/** What a promise answers before the deadline; `late()` after it. The promise goes on, and its failure is nobody's. */
async function within<T, U>(deadline: number, promise: Promise<T>, late: () => U): Promise<T | U> {
  let timer: Timer | undefined;
  promise.catch(() => {});
  const ends = new Promise<U>((resolve, reject) => {
    const end = (): void => {
      try {
        resolve(late());
      } catch (error) {
        reject(error as Error);
      }
    };
    timer = after(end, Math.max(0, deadline - monotonicMs()));
  });
  try {
    return await Promise.race([promise, ends]);
  } finally {
    clearTimeout(timer);
  }
}

/** The error of a request that found no numbers. */
function reached(tag: string, retryAfterMs: number, cause: StoreError | null): StoreError {
  const again = Math.max(1, Math.ceil(retryAfterMs));
  const why = cause === null ? '' : ` (${cause.message})`;
  return new StoreError(
    'ceiling-reached',
    `the tag ${shown(tag)} has reached its ceiling, which was not raised: try again in ${again} ms${why}`,
    cause === null ? {} : { cause },
  );
}

/** Gets more for the hashes of one kind. */
export class Raising {
  readonly #server: RedisServer;
  readonly #durable: SegmentStore;
  readonly #kind: Kind;
  readonly #durableKey: string;
  readonly #new: readonly (readonly [string, string])[];
  readonly #timeoutMs: number;
  /** Names this client where it claims a hash. */
  readonly #name = nonce();
  #identity: string | null = null;
  #failures = 0;
  /** Until when the durable store is left alone, and why. */
  #until = 0;
  #error: StoreError | null = null;

  constructor(
    server: RedisServer,
    durable: SegmentStore,
    settings: { readonly prefix: string; readonly raiseTimeoutMs: number },
    kind: Kind,
    fields: readonly (readonly [string, string])[],
  ) {
    this.#server = server;
    this.#durable = durable;
    this.#kind = kind;
    this.#durableKey = `${settings.prefix}:durable`;
    this.#new = fields;
    this.#timeoutMs = settings.raiseTimeoutMs;
  }

  /**
   * Refuses a durable store that is not the one that Redis knows. A Redis that knows none knows this one from now on.
   * While the durable store is down nobody can tell, and numbers that Redis has are handed out: before it gets more it
   * is asked again, in {@link claimed}.
   *
   * @throws {StoreError} `refused` for another durable store and for one that has no identity; what Redis fails with.
   */
  async recognise(): Promise<void> {
    const late = (): never => {
      throw new StoreError('unavailable', 'the durable store behind Redis does not answer');
    };
    let identity: string;
    try {
      identity = await within(this.deadline(), this.#identityOf(), late);
    } catch (error) {
      if (asStoreError(error, 'the durable store').isRetryable) {
        return;
      }
      throw error;
    }
    const keys = [this.#durableKey, this.#durableKey];
    const arguments_ = [this.#kind, identity];
    const reply = await this.#server.script('recognising the durable store', 'reads', RECOGNISE, keys, arguments_);
    if (reply.text() === 'other') {
      throw this.#otherDurable(reply.text(), identity);
    }
  }

  /** Until when a request that begins now may wait. */
  deadline(): number {
    return monotonicMs() + this.#timeoutMs;
  }

  /**
   * Asks the durable store; what may work later becomes the ceiling's error.
   *
   * @throws {StoreError}
   */
  async ask<T>(tag: string, request: () => Promise<T>): Promise<T> {
    const late = (): never => {
      const what = `the durable store did not answer for ${shown(tag)} in ${ANSWER_MAX_MS / 1_000} s`;
      throw new StoreError('outcome-unknown', what);
    };
    try {
      return await within(monotonicMs() + ANSWER_MAX_MS, request(), late);
    } catch (fault) {
      const error = asStoreError(fault, 'the durable store');
      throw error.isRetryable ? this.#failed(tag, error) : error;
    }
  }

  /**
   * Behind the greatest number that the durable store has granted under `tag`.
   *
   * @throws {StoreError} As {@link ask}; `refused` for a store that does not say it.
   */
  async grantedUntil(place: HashKey, tag: string): Promise<bigint> {
    const record = await this.ask(place.tag, () => this.#durable.openTag(tag));
    if (typeof record.watermark !== 'bigint') {
      throw new StoreError('refused', `the durable store's openTag gives ${shown(tag)} no watermark, a bigint`);
    }
    return record.watermark + 1n;
  }

  /**
   * What the durable store grants under `tag` for a hash: up to `count` numbers in a row, none below `atLeast`.
   *
   * @throws {StoreError} As {@link ask}; `refused` for a grant that is not so.
   */
  async grant(place: HashKey, tag: string, count: bigint, atLeast: bigint): Promise<Segment> {
    const granted = await this.ask(place.tag, () => this.#durable.allocate(tag, count, atLeast));
    // One that answers and grants nothing has not recovered.
    this.#failures = 0;
    this.#until = 0;
    this.#error = null;
    const { start, end, stride, generation, version } = granted;
    const isUsable =
      [start, end, stride, generation, version].every((number) => typeof number === 'bigint' && number >= 0n) &&
      stride === 1n &&
      generation === 0n &&
      start >= 1n &&
      start < end &&
      end - 1n <= ID_MAX &&
      end - start <= count &&
      start >= atLeast;
    if (!isUsable) {
      throw new StoreError(
        'refused',
        `the durable store granted ${start} to ${end} (stride ${stride}, generation ${generation}) for ` +
          `${shown(tag)}, which ` +
          `Redis cannot hand out: numbers without gaps, in one generation, no more than ${count} and none below ` +
          `${atLeast}, ` +
          'were asked for',
      );
    }
    return granted;
  }

  /**
   * Gives a hash what was granted for it, by a script that does so only for the generation and the incarnation that
   * were read before the durable store was asked. It is sent once: whatever comes of it but success, the grant is
   * burnt.
   *
   * @throws {StoreError} Whatever is not worth a retry.
   */
  async install(
    place: HashKey,
    script: Script,
    read: readonly [generation: string, incarnation: string],
    granted: { readonly start: bigint; readonly end: bigint },
    more: readonly string[],
  ): Promise<Raise> {
    const identity = await this.#identityOf();
    const args = [...read, nonce(), String(granted.start), String(granted.end), ...more, this.#kind, identity];
    const doing = `raising the ceiling of ${shown(place.tag)}, the key ${place.key}`;
    try {
      const reply = await this.#server.script(doing, 'writes', script, [place.key, this.#durableKey], args);
      return reply.text() === 'installed' ? DONE : elsewhere(ASK_AGAIN_MS);
    } catch (error) {
      if (error instanceof StoreError && error.isRetryable) {
        return elsewhere(ASK_AGAIN_MS);
      }
      throw error;
    }
  }

  /**
   * Waits until there is more, at most until the deadline. `raised` is how often there was when the caller asked,
   * `raise` gets more, and goes on although nobody may wait for it any more.
   *
   * @throws {StoreError}
   */
  async wait(tag: string, turns: Turns, raised: number, deadline: number, raise: () => Promise<Raise>): Promise<void> {
    const turn = await turns.take(deadline);
    if (turn === null) {
      throw reached(tag, ASK_AGAIN_MS, null);
    }
    if (turns.raised !== raised) {
      turn();
      return;
    }
    const backoff = this.#backoff();
    if (backoff !== null) {
      turn();
      throw reached(tag, backoff.leftMs, backoff.error);
    }
    const late = (): never => {
      throw reached(tag, ASK_AGAIN_MS, null);
    };
    const outcome = await within(deadline, raise().finally(turn), late);
    if (outcome.kind === 'done') {
      return;
    }
    const pauseMs = Math.min(ASK_AGAIN_MS, outcome.leftMs);
    if (monotonicMs() + pauseMs >= deadline) {
      throw reached(tag, outcome.leftMs, null);
    }
    await new Promise<void>((resolve) => after(resolve, pauseMs));
  }

  /** Gets more in the background, if nobody here is at it: before anybody needs it, so a failure is nobody's. */
  soon(turns: Turns, raise: () => Promise<Raise>): void {
    const turn = this.#backoff() === null ? turns.tryTake() : null;
    if (turn !== null) {
      raise()
        .finally(turn)
        .catch(() => {});
    }
  }

  /**
   * Gets more by `raise`, if no other client is at it.
   *
   * @throws {StoreError}
   */
  async claimed(place: HashKey, turns: Turns, raise: () => Promise<Raise>): Promise<Raise> {
    const leftMs = await this.#claim(place);
    if (leftMs !== null) {
      return elsewhere(leftMs);
    }
    try {
      const outcome = await raise();
      if (outcome.kind === 'done') {
        turns.raised += 1;
      } else {
        await this.#settleQuietly(place, null);
      }
      return outcome;
    } catch (error) {
      // Nobody needs to wait until the claim ends by itself. What cannot get more is left alone until it is looked
      // after again.
      const isFinal = error instanceof StoreError && !error.isRetryable;
      await this.#settleQuietly(place, isFinal ? 0n : null);
      throw error;
    }
  }

  /** Gives the claim up, and notes when more is due. */
  async settle(place: HashKey, low: bigint | null): Promise<void> {
    await this.#settled(place, this.#name, low);
  }

  /** Notes when more is due, whoever has a claim. */
  async noteLow(place: HashKey, low: bigint): Promise<void> {
    await this.#settled(place, '', low);
  }

  /** Where Redis is gone, so is the claim. */
  async #settleQuietly(place: HashKey, low: bigint | null): Promise<void> {
    await this.settle(place, low).catch(() => {});
  }

  async #settled(place: HashKey, claim: string, low: bigint | null): Promise<void> {
    const args = [claim, low === null ? '' : String(low)];
    await this.#server.script(`looking after ${shown(place.tag)}`, 'reads', SETTLE, [place.key], args);
  }

  /**
   * Claims a hash; answers how long another client has it, if one has. A hash that is missing is made, if the durable
   * store knows its tag or creates it.
   */
  async #claim(place: HashKey): Promise<number | null> {
    // It says nothing of how the durable store does now.
    const identity = this.#identity ?? (await this.ask(place.tag, () => this.#identityOf()));
    const claim = (generation: string): Promise<Reply> => {
      const args = [this.#name, String(CLAIM_MS), generation, ...this.#new.flat(), this.#kind, identity];
      const keys = [place.key, this.#durableKey];
      return this.#server.script(`claiming ${shown(place.tag)}`, 'reads', CLAIM, keys, args);
    };
    let reply = await claim('');
    let answer = reply.text();
    if (answer === 'missing') {
      await this.ask(place.tag, () => this.#durable.openTag(place.owner));
      reply = await claim(nonce());
      answer = reply.text();
    }
    if (answer === 'yours') {
      return null;
    }
    if (answer === 'other') {
      throw this.#otherDurable(reply.text(), identity);
    }
    return Number(reply.number());
  }

  async #identityOf(): Promise<string> {
    if (this.#identity === null) {
      const identity = await this.#durable.identity();
      if (identity === null || !/^[0-9a-f]{32}$/.test(identity)) {
        throw new StoreError(
          'refused',
          'the durable store behind Redis has no identity, by which Redis would know it again: take another one',
        );
      }
      this.#identity = identity;
    }
    return this.#identity;
  }

  #otherDurable(recorded: string, identity: string): StoreError {
    return new StoreError(
      'refused',
      `the numbers in ${this.#server.address} are granted by another durable store: the key ${this.#durableKey} has ` +
        `${recorded} for its ${this.#kind}, and the durable store of this program is ${identity}. Name the other ` +
        `one, or use ` +
        'another prefix; if its tags are to be moved to this one, run `unalike store rebind`',
    );
  }

  #backoff(): { leftMs: number; error: StoreError | null } | null {
    const leftMs = this.#until - monotonicMs();
    return leftMs > 0 ? { leftMs, error: this.#error } : null;
  }

  /** Notes that the durable store failed; the ceiling's error. */
  #failed(tag: string, error: StoreError): StoreError {
    const [first, most] = BACKOFF_MS;
    const waitMs = Math.min(first * 2 ** Math.min(this.#failures, 16), most);
    this.#failures += 1;
    this.#until = monotonicMs() + waitMs;
    this.#error = error;
    return reached(tag, waitMs, error);
  }
}

/** An error that is no store's may have come after a grant. */
function asStoreError(error: unknown, who: string): StoreError {
  if (error instanceof StoreError) {
    return error;
  }
  const what = error instanceof Error ? error.message : String(error);
  return new StoreError('outcome-unknown', `${who} failed: ${what}`, { cause: error });
}
