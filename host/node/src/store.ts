/**
 * The ports to stores: what a store grants, how it is asked, and why it grants nothing.
 *
 * All numbers of ids are `bigint`: none passes through a double.
 *
 * @module
 */

/** @internal Options of a store that are none. */
export function refusedByStore(message: string): StoreError {
  return new StoreError('refused', message);
}

/** Without TypeScript a constructor can be called that is none of the program's. @internal */
export function checkOpened(isOpened: boolean, name: string): void {
  if (!isOpened) {
    throw refusedByStore(`stores are opened, and not constructed: write await ${name}.open(..)`);
  }
}

/** The greatest id: 2^63 - 1. */
export const ID_MAX = (1n << 63n) - 1n;

/** Stands between a tag and its sub-key in the name under which a store keeps the sub-key's numbers. */
export const SUB_SEPARATOR = '\u001f';

/** Numbers `start`, `start + stride`, .. below `end`, granted to one holder for ever. */
export interface Segment {
  /** The first number: at least 1. */
  readonly start: bigint;
  /** The first number of the same remainder that is not granted; `end - stride` is at most 2^63 - 1. */
  readonly end: bigint;
  /** The distance between numbers: 1, or the number of stripes. */
  readonly stride: bigint;
  /** Counts deliberate restarts of the tag's numbering. */
  readonly generation: bigint;
  /** The version of the tag's row after this grant: a release must name it. */
  readonly version: bigint;
}

/** The unused end of a segment, which its holder gives back. */
export interface TailRelease {
  /** The first number that was not used. */
  readonly start: bigint;
  /** The version that came with the newest grant. */
  readonly version: bigint;
}

/** How many numbers a segment asks for. */
export type StepPolicy =
  | { readonly kind: 'fixed'; readonly step: bigint }
  | {
      readonly kind: 'adaptive';
      /** The first step. */
      readonly step: bigint;
      /** 1 or more. */
      readonly min: bigint;
      /** At least `min`. */
      readonly max: bigint;
      /** A step that was used within less time doubles. In milliseconds. */
      readonly growBelowMs: bigint;
      /** A step that lasted longer halves. In milliseconds, at least `growBelowMs`. */
      readonly shrinkAboveMs: bigint;
    };

/** When the next segment is asked for. */
export type RefillPolicy =
  /** When this share of the current segment is used: 0 to 100 percent. */
  | { readonly kind: 'share-consumed'; readonly percent: number }
  /** When fewer than this many numbers are left. */
  | { readonly kind: 'remaining'; readonly numbers: bigint };

/** How callers of a tag are served; bound to the tag in its store. */
export type Mode = 'buffered' | 'ordered';

/** What a tag is created with. */
export interface TagOptions {
  /** The first number that is ever granted: 1 to 2^63 - 1. */
  readonly start: bigint;
  readonly step: StepPolicy;
  readonly refill: RefillPolicy;
  readonly mode: Mode;
}

/** A tag as its store keeps it. */
export interface TagRecord {
  readonly tag: string;
  readonly options: TagOptions;
  /** The greatest number that may have been handed out; `start - 1` or more before the first grant. */
  readonly watermark: bigint;
}

/** Whose ids a format shows: those of a tag, its sub-keys and its periods, or those of a snowflake's namespace. */
export interface FormatOwner {
  readonly kind: 'tag' | 'snowflake';
  readonly name: string;
}

/** Something of a format that a store keeps a number of. */
export type FormatPart =
  /** Its template, restart and widths. */
  | { readonly kind: 'shape' }
  /** The key with this number, where it permutes so many bits. */
  | { readonly kind: 'key'; readonly id: number; readonly bits: number };

/** Grants intervals of numbers under a tag, each to one holder for ever. */
export interface SegmentStore {
  /**
   * Grants up to `count` numbers (1 or more) under `tag`, none below `atLeast`: fewer perhaps, never none. A tag that
   * does not exist is created first, if the store allows that; a sub-key of a tag that exists always is.
   *
   * It asks once. A store that cannot know whether a grant was made throws `outcome-unknown`, and never offers that
   * grant again.
   *
   * @throws {StoreError}
   */
  allocate(tag: string, count: bigint, atLeast: bigint): Promise<Segment>;
  /**
   * Takes numbers back, from `tail.start` to the tag's watermark, if the tag's row still has `tail.version`. Answers
   * whether it took them.
   *
   * @throws {StoreError} The caller then leaves a gap.
   */
  release(tag: string, tail: TailRelease): Promise<boolean>;
  /**
   * The tag as the store keeps it; created when it does not exist and the store allows that.
   *
   * @throws {StoreError}
   */
  openTag(tag: string): Promise<TagRecord>;
  /**
   * The random name of the store's data, 32 hexadecimal digits: the same after a restart and a move, another one in each
   * store that was begun by itself. `null` in a store that has none.
   *
   * @throws {StoreError}
   */
  identity(): Promise<string | null>;
  /**
   * Notes that a Redis which this store grants its time keeps the leases of a namespace, and not the store itself: at
   * its first use, in one step, also between processes. A store that leases no workers has nothing to note.
   *
   * @throws {StoreError} `leases-elsewhere` when the store leases workers of the namespace itself.
   */
  leaveLeases?(namespace: string): Promise<void>;
  /**
   * Answers which number is bound of a part of a format; `null` where none is. With a number as `first` (1 to
   * 2^63 - 1), a store that has none binds this one before, in one step, also between processes, and for ever.
   *
   * A store without this method, and one that always answers `null`, keeps no formats: none is compared.
   *
   * @throws {StoreError}
   */
  bindFormat?(owner: FormatOwner, part: FormatPart, first: bigint | null): Promise<bigint | null>;
  /** Closes the connections. Not needed for safety. */
  close(): Promise<void>;
}

/** Bit widths, epoch and tick of a snowflake id, as in the component's WIT. */
export interface Layout {
  readonly timestampBits: number;
  readonly datacenterBits: number;
  readonly workerBits: number;
  readonly sequenceBits: number;
  readonly order: 'worker-first' | 'sequence-first';
  /** The instant at which tick 0 begins, in Unix milliseconds. */
  readonly epochMs: bigint;
  /** Length of one tick, in milliseconds. */
  readonly tickMs: number;
}

/** A worker id and the half-open interval of timestamps in which its holder may use it. */
export interface Lease {
  readonly worker: number;
  /** Minted by the store at each successful acquire, and never used again: 128 bits. */
  readonly grantId: bigint;
  /** The first timestamp that may be used, in Unix milliseconds. */
  readonly notBeforeMs: bigint;
  /** The first timestamp that may not, in Unix milliseconds. */
  readonly validUntilMs: bigint;
}

/** A request for a worker id. */
export interface LeaseAcquire {
  /** Which set of worker ids: ids are unique within it. */
  readonly namespace: string;
  /** The layout of the ids; binds the namespace at first use. */
  readonly layout: Layout;
  /** A stable name of the holder, for preference and display only. Empty: no preference. */
  readonly holder: string;
  /** A worker that the holder would like to have, when it is free. */
  readonly preferredWorker: number | null;
  /** The holder's clock, in Unix milliseconds. */
  readonly nowMs: bigint;
  /** How far ahead the lease shall reach, in milliseconds. */
  readonly horizonMs: bigint;
}

/** A request to prolong a lease. */
export interface LeaseExtend {
  readonly namespace: string;
  readonly layout: Layout;
  readonly worker: number;
  readonly grantId: bigint;
  /** The holder's clock, in Unix milliseconds. */
  readonly nowMs: bigint;
  /** How far ahead the lease shall reach, in milliseconds. */
  readonly horizonMs: bigint;
}

/** Grants worker ids over intervals of timestamps that never overlap for one worker of one namespace. */
export interface LeaseStore {
  /**
   * Grants a worker. Never idempotent: each success is an interval that was never granted before.
   *
   * @throws {StoreError}
   */
  acquire(request: LeaseAcquire): Promise<Lease>;
  /**
   * Moves the end of a running lease to `horizonMs` beyond the store's present, never back.
   *
   * @throws {StoreError} `lease-lost` when (worker, grant id) is not the worker's newest lease, its end is fixed, or its
   * end has passed and the store has no time that joins it.
   */
  extend(request: LeaseExtend): Promise<Lease>;
  /**
   * Ends a lease at `endMs`, the end of the last tick that its holder used. Answers whether it did.
   *
   * @throws {StoreError} The lease then runs out by itself.
   */
  release(namespace: string, worker: number, grantId: bigint, endMs: bigint): Promise<boolean>;
  /** As {@link SegmentStore.identity}, of the leases. */
  leaseIdentity(): Promise<string | null>;
  /** Closes the connections. Not needed for safety. */
  close(): Promise<void>;
}

/** Why a store granted nothing. The first eight are what the component is told; see {@link StoreError.failure}. */
export type StoreErrorKind =
  /** Nothing was done; it may work later. */
  | 'unavailable'
  /** The store may have done it, but its answer was lost. Whatever it granted is burnt. */
  | 'outcome-unknown'
  /** The tag does not exist and is not created on first use. */
  | 'tag-unknown'
  /** No number up to 2^63 - 1 is left, or the tag was ended. */
  | 'exhausted'
  /** Every worker id of the namespace is under a lease. */
  | 'workers-exhausted'
  /** No lease with this worker and grant id is running. */
  | 'lease-lost'
  /** The holder's clock is too far from the store's. */
  | 'clock-skew'
  /** The store will not do it: no permission, not supported, an argument out of range. */
  | 'refused'
  /** The tag exists already. */
  | 'tag-exists'
  /** The name, or an option of the tag, is out of range. */
  | 'tag-invalid'
  /** As many tags exist as the store may have. */
  | 'tag-limit'
  /** The numbers up to the tag's ceiling are handed out, and the durable store has not raised it yet. */
  | 'ceiling-reached'
  /** The store may have forgotten leases that still run, so it grants none until the last of them has ended. */
  | 'quarantined'
  /** The ids have the time of the store's own clock, which stands before that of the last one. */
  | 'clock-behind'
  /** The ids have the time of the store's own clock, and no timestamp of their layout is left. */
  | 'timestamps-ended'
  /** The namespace is bound to another layout. */
  | 'layout-mismatch'
  /** The tag, or the snowflake, is bound to another format, and two ids could look the same. */
  | 'format-bound'
  /** The leases of the namespace are kept in another place, of which the store has a record. */
  | 'leases-elsewhere'
  /** The store's place among stripes is not the one that a change of it expected. */
  | 'place-changed'
  /** The store's data is damaged or is not unalike's. */
  | 'corrupt';

/** What the component is told of a {@link StoreErrorKind}: the cases of `store-error` in its WIT. */
export type StoreFailure =
  | 'unavailable'
  | 'outcome-unknown'
  | 'tag-unknown'
  | 'exhausted'
  | 'workers-exhausted'
  | 'lease-lost'
  | 'clock-skew'
  | 'refused';

/** Why a store gave nothing. */
export class StoreError extends Error {
  override readonly name = 'StoreError';
  readonly kind: StoreErrorKind;
  /** Whether the store will say so for ever: it was closed. Nobody waits for it, or asks again. */
  readonly isFinal: boolean;

  /** `message` says what happened, which value, and what to do. */
  constructor(kind: StoreErrorKind, message: string, options?: { cause?: unknown; isFinal?: boolean }) {
    super(message, options);
    this.kind = kind;
    this.isFinal = options?.isFinal ?? false;
  }

  /** Another copy of this package may have made it: a store of one is used by the `Ids` of the other. */
  static override [Symbol.hasInstance](value: unknown): boolean {
    if (this !== StoreError || typeof value !== 'object' || value === null) {
      return Function.prototype[Symbol.hasInstance].call(this, value);
    }
    const { name, kind, failure, isRetryable } = value as Partial<StoreError>;
    const isNamed = name === 'StoreError' && typeof kind === 'string';
    return isNamed && typeof failure === 'string' && typeof isRetryable === 'boolean';
  }

  /** What the component is told. */
  get failure(): StoreFailure {
    switch (this.kind) {
      case 'ceiling-reached':
      case 'quarantined':
      case 'clock-behind':
        return 'unavailable';
      case 'timestamps-ended':
        return 'exhausted';
      case 'tag-exists':
      case 'tag-invalid':
      case 'tag-limit':
      case 'layout-mismatch':
      case 'format-bound':
      case 'leases-elsewhere':
      case 'place-changed':
      case 'corrupt':
        return 'refused';
      default:
        return this.kind;
    }
  }

  /** Whether the same request may succeed later. */
  get isRetryable(): boolean {
    return !this.isFinal && !['tag-unknown', 'exhausted', 'refused'].includes(this.failure);
  }

  /** Whether a grant may have been made that nobody received. */
  get mayHaveGranted(): boolean {
    return this.kind === 'outcome-unknown';
  }
}
