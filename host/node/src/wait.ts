/**
 * Waiting that always ends.
 *
 * @module
 */

import { IdsError } from './errors.js';
import { shown } from './names.js';
import { said } from './said.js';

/** An `AbortSignal`, as far as it is used. */
export interface AbortSignalLike {
  readonly aborted: boolean;
  readonly reason?: unknown;
  addEventListener(type: 'abort', listener: () => void): void;
  removeEventListener(type: 'abort', listener: () => void): void;
}

/** Milliseconds of a clock that never goes back. */
export function monotonicMs(): number {
  return performance.now();
}

/**
 * What runs by itself: in a timer, a microtask or an event. Nobody is there to catch what it throws, and that would end
 * the process. Calls will tell what is wrong; what they cannot know of is a warning.
 */
export function guarded<Args extends unknown[]>(act: (...args: Args) => unknown): (...args: Args) => void {
  return (...args) => {
    try {
      const outcome = act(...args);
      if (outcome instanceof Promise) {
        outcome.catch(warn);
      }
    } catch (error) {
      warn(error);
    }
  };
}

function warn(error: unknown): void {
  const { process } = globalThis as { process?: { emitWarning?: (what: string, type: string) => void } };
  process?.emitWarning?.(`something failed in the background: ${String(error)}`, 'UnalikeWarning');
}

/** What a timer is known by: a number in browsers, which Node's timers stand in for. */
export type Timer = number;

/** A timer whose work throws nothing. */
export function after(act: () => unknown, ms: number): Timer {
  return setTimeout(guarded(act), ms) as unknown as Timer;
}

/** A timer that comes again and again. */
export function every(act: () => unknown, ms: number): Timer {
  return setInterval(guarded(act), ms) as unknown as Timer;
}

/** A microtask. */
export function soon(act: () => unknown): void {
  queueMicrotask(guarded(act));
}

/** The longest time that a timer takes. */
export const TIMER_MAX_MS = 0x7fff_ffff;

/** Has a timer not keep the process alive. Browsers' timers are numbers, and keep nothing alive. */
export function unref(timer: unknown): void {
  (timer as { unref?: () => void }).unref?.();
}

/**
 * Those who wait for one event. All of them hear of the next one, in the order in which they came.
 */
export class Event {
  private listeners = new Set<() => void>();

  /** Tells all who wait now. */
  fire(): void {
    if (this.listeners.size === 0) {
      return;
    }
    const told = this.listeners;
    this.listeners = new Set();
    for (const listener of told) {
      listener();
    }
  }

  /**
   * Waits for the event, at most so many milliseconds. Answers whether it came. A wait keeps the process alive:
   * somebody awaits it, and it ends.
   *
   * @throws {IdsError} `aborted`
   */
  async next(limitMs: number, name: string, signal?: AbortSignalLike): Promise<boolean> {
    const { listeners } = this;
    let told = (): void => undefined;
    let abort = (): void => undefined;
    let timer: Timer | undefined;
    try {
      // Two promises: where requests end apart, one that another request has kept goes on only when the platform lets
      // it in, and an object of Cloudflare's that lets nothing else in (`blockConcurrencyWhile`) would never hear of it.
      const heard = new Promise<boolean>((resolve) => {
        told = (): void => resolve(true);
        listeners.add(told);
      });
      const own = new Promise<boolean>((resolve, reject) => {
        abort = (): void => reject(aborted(name, signal));
        timer = after(() => resolve(false), Math.min(Math.max(limitMs, 0), TIMER_MAX_MS));
        signal?.addEventListener('abort', abort);
      });
      return await Promise.race([heard, own]);
    } finally {
      // Here, and not where the event is fired: that may be in another request, which cannot end this one's timers.
      listeners.delete(told);
      clearTimeout(timer);
      // The signal's code is the program's: it runs when whoever told the event is done.
      signal?.removeEventListener('abort', abort);
    }
  }
}

/** @throws {IdsError} `aborted`, if the signal says so; `options-invalid`, if it is none. */
export function checkAborted(name: string, signal: AbortSignalLike | undefined): void {
  // Once: what is read may be code of the program's.
  const isAborted: unknown = signal?.aborted;
  if (isAborted === true) {
    throw aborted(name, signal);
  }
  checkSignal(signal, isAborted);
}

/** What is no signal would throw when a wait ends, where nobody catches it. @throws {IdsError} `options-invalid` */
function checkSignal(signal: unknown, isAborted: unknown): void {
  if (signal === undefined || signal === null) {
    return;
  }
  const { addEventListener, removeEventListener } = signal as Partial<AbortSignalLike>;
  const listens = typeof addEventListener === 'function' && typeof removeEventListener === 'function';
  if (listens && typeof isAborted === 'boolean') {
    return;
  }
  const isController = typeof (signal as { abort?: unknown }).abort === 'function';
  const what = isController
    ? 'an AbortController, it must be an AbortSignal: pass controller.signal'
    : `${said(signal)}, it must be an AbortSignal: pass controller.signal, or AbortSignal.timeout(200)`;
  throw new IdsError('options-invalid', `signal is ${what}`, { argument: 'signal' });
}

/** What a call is told that its signal gave up. */
export function aborted(name: string, signal: AbortSignalLike | undefined): IdsError {
  return new IdsError('aborted', `the call for ids of ${shown(name)} was given up by its signal`, {}, signal?.reason);
}

/**
 * A promise, or what `late` makes of it after so many milliseconds. The timer keeps the process alive only where
 * somebody awaits the end.
 */
export function within<Value>(
  promise: Promise<Value>,
  limitMs: number,
  late: () => Value,
  isAwaited = false,
): Promise<Value> {
  return new Promise((resolve, reject) => {
    const timer = after(
      () => {
        try {
          resolve(late());
        } catch (error) {
          reject(error as Error);
        }
      },
      Math.min(limitMs, TIMER_MAX_MS),
    );
    if (!isAwaited) {
      unref(timer);
    }
    promise.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
