/**
 * The one error of the library.
 *
 * @module
 */

import { shown } from './names.js';
import { StoreError, type StoreErrorKind } from './store.js';

/** What happened, for programs that tell cases apart. */
export type IdsErrorKind =
  /**
   * The store did not answer in time, and nothing was buffered. Figures: `waitedMs`. Cause: what the store said last.
   */
  | 'timeout'
  /** Ids can be handed out only later than the call may wait. Figures: `waitMs`. */
  | 'not-yet'
  /** The store refused, and waiting does not help. Cause: the {@link StoreError}. */
  | 'store'
  /** The lease has ended and there is no other. Figures: `worker`, `endedMs`. Cause: what the store said last. */
  | 'lease-ended'
  /** The store broke its promise; its grant is burnt. An incident: look at the store. Figures: `fault`. */
  | 'grant-refused'
  /** The clock went back beyond the policy. Figures: `behindMs`. */
  | 'clock-moved-back'
  /** The clock stands before the first usable tick of the layout. Figures: `firstMs`. */
  | 'clock-before-epoch'
  /** No number, or no timestamp of the layout, is left. Final. Figures: `idMax` if that ended it, `left`. */
  | 'exhausted'
  /** The generator, or all of them, were closed. Final. */
  | 'closed'
  /** A number that is none, or is out of range. Nothing was wrapped, rounded or cut. Figures: `argument`. */
  | 'number-invalid'
  /** The name of a tag, sub-key or namespace is not valid. Cause: a {@link StoreError} with the details. */
  | 'name-invalid'
  /** Options that contradict each other or are out of range. Figures: `argument`. */
  | 'options-invalid'
  /** A layout that cannot exist, or whose name is unknown. */
  | 'layout-invalid'
  /** It is open in this process with other options. */
  | 'open-otherwise'
  /** The tag has another mode in its store. */
  | 'mode-bound'
  /**
   * The tag, or the snowflake, is bound to another format in its store, and two ids could look the same. Cause: the
   * {@link StoreError}, which says what differs.
   */
  | 'format-bound'
  /**
   * A format does not fit a tag or a snowflake, or what is asked of it. Figures: `fault`, which is `restart`, `gene`,
   * `width` or `numbers-repeat`.
   */
  | 'format-misfit'
  /** The component failed and is built anew; what its generators held is a gap. Try again. Figures: `retryAfterMs`. */
  | 'rebuilt'
  /** The component cannot be loaded or used here. */
  | 'component'
  /** The call was given up by its `AbortSignal`. Cause: the signal's reason. */
  | 'aborted'
  /**
   * A format cannot be made, an id cannot be shown, or a text cannot be read. Figures: `fault`, `position`. Cause:
   * what the component said.
   */
  | 'format';

/** The figures of an {@link IdsError}; each kind says which it has. */
export interface IdsErrorFigures {
  readonly waitedMs?: number;
  readonly waitMs?: number;
  readonly worker?: number;
  /** Unix milliseconds. */
  readonly endedMs?: number;
  readonly behindMs?: number;
  /** Unix milliseconds. */
  readonly firstMs?: number;
  readonly idMax?: bigint;
  /** How many ids are left for a call that asks for no more. */
  readonly left?: number;
  readonly argument?: string;
  readonly fault?: string;
  /** In bytes. */
  readonly position?: number;
  readonly retryAfterMs?: number;
}

const RETRYABLE: ReadonlySet<IdsErrorKind> = new Set<IdsErrorKind>([
  'timeout',
  'not-yet',
  'lease-ended',
  'grant-refused',
  'clock-moved-back',
  'clock-before-epoch',
  'rebuilt',
]);

/**
 * Why no ids were handed out. None were lost.
 *
 * @example
 * ```ts
 * try {
 *   return await orders.next();
 * } catch (error) {
 *   if (error instanceof IdsError && error.isRetryable) {
 *     response.setHeader('retry-after', Math.ceil((error.retryAfterMs ?? 1000) / 1000));
 *     return response.writeHead(503).end();
 *   }
 *   throw error;
 * }
 * ```
 */
export class IdsError extends Error {
  override readonly name = 'IdsError';
  readonly kind: IdsErrorKind;
  readonly figures: IdsErrorFigures;

  constructor(kind: IdsErrorKind, message: string, figures: IdsErrorFigures = {}, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.kind = kind;
    this.figures = figures;
  }

  /** Another copy of this package may have made it. */
  static override [Symbol.hasInstance](value: unknown): boolean {
    if (this !== IdsError || typeof value !== 'object' || value === null) {
      return Function.prototype[Symbol.hasInstance].call(this, value);
    }
    const { name, kind, figures } = value as Partial<IdsError>;
    return name === 'IdsError' && typeof kind === 'string' && typeof figures === 'object';
  }

  /** What the store said, where a store is the cause. */
  get storeError(): StoreError | undefined {
    return this.cause instanceof StoreError ? this.cause : undefined;
  }

  /** Whether the same call may succeed later. */
  get isRetryable(): boolean {
    if (this.kind === 'store' || this.kind === 'lease-ended') {
      return this.storeError?.isRetryable ?? this.kind === 'lease-ended';
    }
    return RETRYABLE.has(this.kind);
  }

  /** How long to wait before the same call may succeed, in milliseconds, where that can be said. */
  get retryAfterMs(): number | undefined {
    if (!this.isRetryable) {
      return undefined;
    }
    const { behindMs, waitMs, retryAfterMs } = this.figures;
    return retryAfterMs ?? waitMs ?? behindMs ?? 1000;
  }
}

/** What stays so for longer than a caller waits is told at once. */
const LASTING: ReadonlySet<StoreErrorKind> = new Set<StoreErrorKind>([
  'workers-exhausted',
  'clock-skew',
  'quarantined',
]);

/** @internal */
export function isLasting(error: StoreError | undefined): boolean {
  return error !== undefined && (error.isFinal || LASTING.has(error.kind));
}

/** @internal Options that are none. */
export function refusedOptions(message: string, argument: string): IdsError {
  return new IdsError('options-invalid', message, { argument });
}

/** @internal */
export function because(cause: unknown): string {
  return cause instanceof Error ? `: ${cause.message}` : '';
}

/** @internal */
export function closed(name: string): IdsError {
  return new IdsError('closed', `${shown(name)} is closed`);
}

/** @internal Any error as one of a store: what a driver threw that nobody expected leaves the outcome open. */
export function asStoreError(error: unknown): StoreError {
  if (error instanceof StoreError) {
    return error;
  }
  const what = error instanceof Error ? error.message : String(error);
  return new StoreError('outcome-unknown', `the store failed in a way that it does not know: ${what}`, {
    cause: error,
  });
}
