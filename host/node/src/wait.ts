/**
 * Waiting that always ends.
 *
 * @module
 */

import { IdsError } from './errors.js';
import { shown } from './names.js';

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
    const listeners = this.listeners;
    let told = (): void => {};
    let abort = (): void => {};
    let timer: unknown;
    try {
      return await new Promise<boolean>((resolve, reject) => {
        told = (): void => resolve(true);
        abort = (): void => reject(aborted(name, signal));
        timer = setTimeout(() => resolve(false), Math.min(Math.max(limitMs, 0), TIMER_MAX_MS));
        listeners.add(told);
        signal?.addEventListener('abort', abort);
      });
    } finally {
      // Here, and not where the event is fired: that may be in another request, which cannot end this one's timers.
      listeners.delete(told);
      clearTimeout(timer as number);
      signal?.removeEventListener('abort', abort);
    }
  }
}

/** @throws {IdsError} `aborted`, if the signal says so. */
export function checkAborted(name: string, signal: AbortSignalLike | undefined): void {
  if (signal?.aborted === true) {
    throw aborted(name, signal);
  }
}

function aborted(name: string, signal: AbortSignalLike | undefined): IdsError {
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
    const timer = setTimeout(
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
