/// <reference lib="esnext.disposable" preserve="true" />
/**
 * Stores that the host in Rust talks to, in a library that the package is built with.
 *
 * @module
 */

import { fileURLToPath } from 'node:url';
import { debuglog } from 'node:util';

import { asStoreError, because } from './errors.js';
import { isLeaseName, leaseLost, validateAcquire, validateExtend, validateName } from './lease-rules.js';
import {
  completeOptions,
  formatName,
  formatOptions,
  validateAllocate,
  validatePublic,
  validateTag,
  whole,
} from './names.js';
import { isU64 } from './numbers.js';
import {
  checkOpened,
  StoreError,
  type FormatOwner,
  type FormatPart,
  type Layout,
  type Lease,
  type LeaseAcquire,
  type LeaseExtend,
  type LeaseStore,
  type Segment,
  type SegmentStore,
  type StoreErrorKind,
  type TagOptions,
  type TagRecord,
  type TailRelease,
} from './store.js';

/** How the library opens stores. */
export interface NativeOptions {
  readonly store: string | readonly string[];
  readonly backing?: string | undefined;
  readonly leases?: string | undefined;
  readonly token?: string | undefined;
  readonly createTags?: boolean | undefined;
  readonly tagsMax?: bigint | number | undefined;
  readonly leaseHorizonMaxMs?: bigint | number | undefined;
  readonly leaseSkewMaxMs?: bigint | number | undefined;
}

/** Why nothing was brought, or what was: the other one is `null`. */
type Brought<Value> = readonly [failed: { kind: StoreErrorKind; message: string } | null, value: Value | null];
type Asked<Value> = Promise<Brought<Value>>;

/** As `host/node/native` has them. */
export interface OptionParts {
  readonly start: bigint;
  readonly step: bigint;
  readonly adaptive?: { min: bigint; max: bigint; growBelowMs: bigint; shrinkAboveMs: bigint };
  readonly isShare: boolean;
  readonly refill: bigint;
  readonly isOrdered: boolean;
}

export interface RecordParts {
  readonly options: OptionParts;
  readonly watermark: bigint;
}

interface LayoutParts {
  readonly timestampBits: bigint;
  readonly datacenterBits: bigint;
  readonly workerBits: bigint;
  readonly sequenceBits: bigint;
  readonly isWorkerFirst: boolean;
  readonly epochMs: bigint;
  readonly tickMs: bigint;
}

interface AcquireParts extends Pick<LeaseAcquire, 'namespace' | 'holder' | 'nowMs' | 'horizonMs'> {
  readonly layout: LayoutParts;
  readonly preferredWorker: bigint | undefined;
}

interface ExtendParts extends Pick<LeaseExtend, 'namespace' | 'grantId' | 'nowMs' | 'horizonMs'> {
  readonly layout: LayoutParts;
  readonly worker: bigint;
}

/** A question to a store of the program's own: its method, and what that takes. */
export interface Question {
  readonly what: string;
  /** The tag, or the namespace. */
  readonly tag: string;
  readonly count?: bigint;
  readonly atLeast?: bigint;
  readonly start?: bigint;
  readonly version?: bigint;
  readonly options?: OptionParts;
}

/** What its method brought. */
export interface Answered {
  readonly segment?: Segment;
  readonly record?: RecordParts;
  readonly flag?: boolean;
  readonly name?: string;
}

/** Where it is told, once. */
export interface Answer {
  brought(answered: Answered): void;
  failed(kind: string, message: string): void;
}

/** Asks a store of the program's own. It returns at once, and throws nothing. */
export type Ask = (answer: Answer, question: Question) => void;

/** The stores of the library. */
export interface NativeStores {
  address(): string | null;
  allocate(tag: string, count: bigint, atLeast: bigint): Asked<Segment>;
  release(tag: string, start: bigint, version: bigint): Asked<boolean>;
  openTag(tag: string): Asked<RecordParts>;
  createTag(tag: string, options: OptionParts): Asked<RecordParts>;
  identity(): Asked<string | null>;
  bindFormat(
    ofSnowflake: boolean,
    name: string,
    key: { id: bigint; bits: bigint } | null,
    first: bigint | null,
  ): Asked<bigint | null>;
  leaveLeases(namespace: string): Asked<undefined>;
  acquire(request: AcquireParts): Asked<Lease>;
  extend(request: ExtendParts): Asked<Lease>;
  releaseLease(namespace: string, worker: bigint, grantId: bigint, endMs: bigint): Asked<boolean>;
  leaseIdentity(): Asked<string | null>;
  close(): Asked<undefined>;
}

interface Library {
  readonly Stores: {
    open(options: string): Asked<NativeStores>;
    openAbove(options: string, ask: Ask): Asked<NativeStores>;
  };
  keep(withNews: boolean): void;
  warnings(): { message: string; isNews: boolean }[];
}

/**
 * Opens stores; one in Redis above a store of the program's own, where there is one to ask.
 *
 * @throws {StoreError}
 */
export async function openStores(options: NativeOptions, ask?: Ask): Promise<NativeStores> {
  return await asked('opening a store', () => {
    const { Stores } = library();
    return ask === undefined ? Stores.open(nativeOptions(options)) : Stores.openAbove(nativeOptions(options), ask);
  });
}

/** Segments and leases in a store that the Rust host talks to. */
export class RustStore implements SegmentStore, LeaseStore {
  readonly #stores: NativeStores;
  readonly #address: string;
  #isClosed = false;

  protected constructor(stores: NativeStores) {
    checkOpened(typeof stores?.allocate === 'function', new.target.name);
    this.#stores = stores;
    this.#address = stores.address() ?? 'the store';
  }

  /** Host, port and database, for messages. */
  get address(): string {
    return this.#address;
  }

  async allocate(tag: string, count: bigint, atLeast: bigint): Promise<Segment> {
    validateAllocate(tag, count, atLeast);
    return await this.#ask((stores) => stores.allocate(tag, count, atLeast));
  }

  /** Takes numbers back: {@link SegmentStore.release}. */
  release(tag: string, tail: TailRelease): Promise<boolean>;
  /** Ends a lease: {@link LeaseStore.release}. */
  release(namespace: string, worker: number, grantId: bigint, endMs: bigint): Promise<boolean>;
  async release(name: string, what: TailRelease | number, grantId?: bigint, endMs?: bigint): Promise<boolean> {
    return typeof what === 'number'
      ? await this.#releaseLease(name, what, grantId as bigint, endMs as bigint)
      : await this.#releaseTail(name, what);
  }

  async openTag(tag: string): Promise<TagRecord> {
    validateTag(tag);
    return recordOf(tag, await this.#ask((stores) => stores.openTag(tag)));
  }

  /**
   * Creates a tag, whatever is said of first use; the limit of tags applies.
   *
   * @throws {StoreError} `tag-exists`, `tag-limit`, `tag-invalid`, and any error of the connection.
   */
  async createTag(tag: string, options: Partial<TagOptions> = {}): Promise<TagRecord> {
    const parts = optionParts(completeOptions(tag, options));
    validatePublic(tag);
    return recordOf(tag, await this.#ask((stores) => stores.createTag(tag, parts)));
  }

  async bindFormat(owner: FormatOwner, part: FormatPart, first: bigint | null): Promise<bigint | null> {
    // What is no owner, part or number is refused here.
    const kept = formatName(owner, part, 1);
    const number = first === null ? null : formatOptions(kept, first).start;
    const key = part.kind === 'key' ? { id: BigInt(part.id), bits: BigInt(part.bits) } : null;
    return await this.#ask((stores) => stores.bindFormat(owner.kind === 'snowflake', owner.name, key, number));
  }

  async identity(): Promise<string | null> {
    return await this.#ask((stores) => stores.identity());
  }

  async acquire(request: LeaseAcquire): Promise<Lease> {
    validateAcquire(request);
    const { namespace, holder, preferredWorker: worker, nowMs, horizonMs } = request;
    const layout = layoutParts(request.layout);
    const preferredWorker = worker === null ? undefined : BigInt(worker);
    return await this.#ask((stores) =>
      stores.acquire({ namespace, layout, holder, preferredWorker, nowMs, horizonMs }),
    );
  }

  async extend(request: LeaseExtend): Promise<Lease> {
    validateExtend(request);
    const { namespace, grantId, nowMs, horizonMs } = request;
    if (!isLeaseName(request.worker, grantId)) {
      throw leaseLost(namespace, request.worker);
    }
    const [layout, worker] = [layoutParts(request.layout), BigInt(request.worker)];
    return await this.#ask((stores) => stores.extend({ namespace, layout, worker, grantId, nowMs, horizonMs }));
  }

  async leaseIdentity(): Promise<string | null> {
    return await this.#ask((stores) => stores.leaseIdentity());
  }

  async leaveLeases(namespace: string): Promise<void> {
    validateName('namespace', namespace);
    await this.#ask((stores) => stores.leaveLeases(namespace));
  }

  /** Closes the connections. Not needed for safety. Requests fail from then on. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await asked('closing the store', () => this.#stores.close());
  }

  /** For `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #releaseTail(tag: string, { start, version }: TailRelease): Promise<boolean> {
    validateTag(tag);
    if (!isU64(start) || start === 0n || !isU64(version)) {
      return false;
    }
    return await this.#ask((stores) => stores.release(tag, start, version));
  }

  async #releaseLease(namespace: string, worker: number, grantId: bigint, endMs: bigint): Promise<boolean> {
    validateName('namespace', namespace);
    if (!isLeaseName(worker, grantId) || !isU64(endMs)) {
      return false;
    }
    return await this.#ask((stores) => stores.releaseLease(namespace, BigInt(worker), grantId, endMs));
  }

  async #ask<Value>(ask: (stores: NativeStores) => Asked<Value>): Promise<Value> {
    const closed = (cause?: unknown): StoreError =>
      new StoreError('unavailable', `${this.#address}: the store was closed`, { cause, isFinal: true });
    if (this.#isClosed) {
      throw closed();
    }
    try {
      return await asked(this.#address, () => ask(this.#stores));
    } catch (error) {
      // It may have been closed meanwhile.
      throw this.#isClosed && error instanceof StoreError && error.kind === 'unavailable' ? closed(error) : error;
    }
  }
}

/** What a call of the library brings. @throws {StoreError} */
async function asked<Value>(what: string, ask: () => Asked<Value>): Promise<Value> {
  let asking: Asked<Value>;
  try {
    asking = ask();
  } catch (error) {
    // Before anything was asked.
    throw error instanceof StoreError
      ? error
      : new StoreError('refused', `${what}: what no store can do was asked for${because(error)}`, { cause: error });
  }
  try {
    const [failed, value] = await asking;
    if (failed !== null) {
      throw new StoreError(failed.kind, failed.message);
    }
    return value as Value;
  } catch (error) {
    throw asStoreError(error);
  } finally {
    warn();
  }
}

/** Shown with `NODE_DEBUG=unalike`. */
const LOG = debuglog('unalike');

let loaded: Library | undefined;

/**
 * The library of the Rust host, which the package is built with.
 *
 * @throws {StoreError} `refused`
 */
function library(): Library {
  if (loaded === undefined) {
    const module = { exports: {} as Library };
    try {
      process.dlopen(module, fileURLToPath(new URL('./unalike.node', import.meta.url)));
    } catch (error) {
      const what =
        'this program cannot load the library of the Rust host, or this installation of unalike has none; ' +
        'unalike/remote does without it. Install a package for this platform, or build it in a clone of the ' +
        'repository (npm run native)';
      throw new StoreError('refused', `${what}${because(error)}`, { cause: error });
    }
    loaded = module.exports;
    loaded.keep(LOG.enabled);
  }
  return loaded;
}

/** Tells what the stores warned of, and their news. */
function warn(): void {
  for (const { message, isNews } of loaded?.warnings() ?? []) {
    if (isNews) {
      LOG('%s', message);
    } else {
      process.emitWarning(message, 'UnalikeWarning');
    }
  }
}

/** The options as the library reads them: JSON, with whole numbers of any size. */
function nativeOptions(given: NativeOptions): string {
  const { store, backing, leases, token, createTags, tagsMax, leaseHorizonMaxMs, leaseSkewMaxMs } = given;
  const options = {
    store,
    backing,
    leases,
    token,
    create_tags: createTags,
    tags_max: tagsMax === undefined ? undefined : whole('tagsMax', tagsMax),
    lease_horizon_max_ms: leaseHorizonMaxMs,
    lease_skew_max_ms: leaseSkewMaxMs,
  };
  const fields = Object.entries(options)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `"${name}":${typeof value === 'bigint' ? value : JSON.stringify(value)}`);
  return `{${fields.join()}}`;
}

export function recordOf(tag: string, { options, watermark }: RecordParts): TagRecord {
  const { start, step, adaptive, isShare, refill, isOrdered } = options;
  return {
    tag,
    options: {
      start,
      step: adaptive === undefined ? { kind: 'fixed', step } : { kind: 'adaptive', step, ...adaptive },
      refill: isShare
        ? { kind: 'share-consumed', percent: Number(refill) }
        : { kind: 'remaining', numbers: refill },
      mode: isOrdered ? 'ordered' : 'buffered',
    },
    watermark,
  };
}

export function optionParts({ start, step, refill, mode }: TagOptions): OptionParts {
  const isShare = refill.kind === 'share-consumed';
  const parts = {
    start,
    step: step.step,
    isShare,
    refill: isShare ? BigInt(refill.percent) : refill.numbers,
    isOrdered: mode === 'ordered',
  };
  if (step.kind === 'fixed') {
    return parts;
  }
  const { min, max, growBelowMs, shrinkAboveMs } = step;
  return { ...parts, adaptive: { min, max, growBelowMs, shrinkAboveMs } };
}

function layoutParts(layout: Layout): LayoutParts {
  return {
    timestampBits: BigInt(layout.timestampBits),
    datacenterBits: BigInt(layout.datacenterBits),
    workerBits: BigInt(layout.workerBits),
    sequenceBits: BigInt(layout.sequenceBits),
    isWorkerFirst: layout.order === 'worker-first',
    epochMs: layout.epochMs,
    tickMs: BigInt(layout.tickMs),
  };
}
