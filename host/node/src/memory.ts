/**
 * Stores in memory: for tests, and for programs whose ids need not outlive the process.
 *
 * @module
 */

import { layoutText } from './layouts.js';
import { validateAcquire, validateExtend } from './lease-rules.js';
import {
  completeOptions,
  DEFAULT_TAG_OPTIONS,
  formatNames,
  formatOptions,
  shown,
  splitTag,
  validateAllocate,
  validateNewTag,
  validateTag,
} from './names.js';
import { CALL, checkedOptions, FLAG, OBJECT, type Kinds } from './options.js';
import {
  ID_MAX,
  refusedByStore,
  StoreError,
  type FormatOwner,
  type FormatPart,
  type Lease,
  type LeaseAcquire,
  type LeaseExtend,
  type LeaseStore,
  type Segment,
  type SegmentStore,
  type TagOptions,
  type TagRecord,
  type TailRelease,
} from './store.js';

interface Row {
  readonly options: TagOptions;
  next: bigint;
  version: bigint;
}

interface Workers {
  readonly layout: string;
  readonly workers: Map<number, { grantId: bigint; endMs: bigint }>;
}

/** Settings of a {@link MemoryStore}. */
export interface MemoryOptions {
  /** Whether a tag is created on first use: true by default. */
  readonly createTags?: boolean;
  /** What tags are created with on first use. Options that are not given are those of {@link DEFAULT_TAG_OPTIONS}. */
  readonly newTags?: Partial<TagOptions>;
  /** Another clock, for tests: Unix milliseconds. */
  readonly now?: () => number;
}

const OPTIONS: Kinds<MemoryOptions> = { createTags: FLAG, newTags: OBJECT, now: CALL };

/**
 * Both ports in memory. What it holds is gone with the process, and its ids begin again: nothing durable rests on it.
 */
export class MemoryStore implements SegmentStore, LeaseStore {
  private readonly rows = new Map<string, Row>();
  private readonly namespaces = new Map<string, Workers>();
  private newest = 0n;

  private readonly options: MemoryOptions;

  /** @throws {StoreError} `refused` */
  constructor(options: MemoryOptions = {}) {
    this.options = checkedOptions('options', options, OPTIONS, refusedByStore);
  }

  /**
   * Creates a tag. Options that are not given are those of {@link DEFAULT_TAG_OPTIONS}.
   *
   * @throws {StoreError} `tag-exists`, `tag-invalid`
   */
  async createTag(tag: string, given: Partial<TagOptions> = {}): Promise<TagRecord> {
    const options = completeOptions(tag, given);
    validateNewTag(tag);
    if (this.rows.has(tag)) {
      throw new StoreError('tag-exists', `the tag ${shown(tag)} exists already`);
    }
    this.rows.set(tag, { options, next: options.start, version: 0n });
    return { tag, options, watermark: options.start - 1n };
  }

  async allocate(tag: string, count: bigint, atLeast: bigint): Promise<Segment> {
    validateAllocate(tag, count, atLeast);
    const row = this.rowOf(tag);
    const start = row.next > atLeast ? row.next : atLeast;
    if (start > ID_MAX) {
      throw new StoreError('exhausted', `the tag ${shown(tag)} has no number left`);
    }
    const end = start + count > ID_MAX + 1n ? ID_MAX + 1n : start + count;
    row.next = end;
    row.version += 1n;
    return { start, end, stride: 1n, generation: 0n, version: row.version };
  }

  release(tag: string, tail: TailRelease): Promise<boolean>;
  release(namespace: string, worker: number, grantId: bigint, endMs: bigint): Promise<boolean>;
  async release(name: string, what: TailRelease | number, grantId?: bigint, endMs?: bigint): Promise<boolean> {
    if (typeof what === 'number') {
      const lease = this.namespaces.get(name)?.workers.get(what);
      if (lease === undefined || lease.grantId !== grantId || endMs === undefined || endMs >= lease.endMs) {
        return false;
      }
      this.newest += 1n;
      this.namespaces.get(name)?.workers.set(what, { grantId: this.newest, endMs });
      return true;
    }
    validateTag(name);
    const row = this.rows.get(name);
    if (row === undefined || row.version !== what.version || what.start >= row.next) {
      return false;
    }
    row.next = what.start;
    row.version += 1n;
    return true;
  }

  async openTag(tag: string): Promise<TagRecord> {
    validateTag(tag);
    const { options, next } = this.rowOf(tag);
    return { tag, options, watermark: next - 1n };
  }

  async bindFormat(owner: FormatOwner, part: FormatPart, first: bigint | null): Promise<bigint | null> {
    let bound: bigint | null = null;
    for (const name of formatNames(owner, part)) {
      if (bound === null && first !== null && !this.rows.has(name)) {
        this.rows.set(name, { options: formatOptions(name, first), next: first, version: 0n });
      }
      const row = this.rows.get(name);
      if (row === undefined) {
        break;
      }
      bound = row.options.start;
    }
    return bound;
  }

  async identity(): Promise<null> {
    return null;
  }

  async leaseIdentity(): Promise<null> {
    return null;
  }

  async acquire(request: LeaseAcquire): Promise<Lease> {
    validateAcquire(request);
    const { namespace, layout, preferredWorker } = request;
    // Before anything is read: a clock of the program's may call this store.
    const now = this.nowMs();
    const bound = layoutText(layout);
    const known = this.namespaces.get(namespace) ?? { layout: bound, workers: new Map() };
    if (known.layout !== bound) {
      const what = `the namespace ${JSON.stringify(namespace)} is bound to the layout ${known.layout}`;
      throw new StoreError('layout-mismatch', `${what}, and ${bound} was asked for`);
    }
    this.namespaces.set(namespace, known);
    const count = 2 ** (layout.datacenterBits + layout.workerBits);
    const isFree = (worker: number): boolean => (known.workers.get(worker)?.endMs ?? 0n) <= now;
    let worker = preferredWorker !== null && preferredWorker < count && isFree(preferredWorker) ? preferredWorker : -1;
    for (let other = 0; worker < 0 && other < count; other += 1) {
      worker = isFree(other) ? other : -1;
    }
    if (worker < 0) {
      throw new StoreError('workers-exhausted', `all ${count} workers of ${JSON.stringify(namespace)} are leased`);
    }
    const tick = BigInt(layout.tickMs);
    const end = known.workers.get(worker)?.endMs ?? 0n;
    const sinceEpoch = (end > now ? end : now) - layout.epochMs;
    const notBeforeMs = layout.epochMs + ((sinceEpoch + tick - 1n) / tick) * tick;
    const validUntilMs = endOf(layout, now + request.horizonMs);
    this.newest += 1n;
    known.workers.set(worker, { grantId: this.newest, endMs: validUntilMs });
    return { worker, grantId: this.newest, notBeforeMs, validUntilMs };
  }

  async extend(request: LeaseExtend): Promise<Lease> {
    validateExtend(request);
    const { namespace, layout, worker, grantId, horizonMs } = request;
    const now = this.nowMs();
    const lease = this.namespaces.get(namespace)?.workers.get(worker);
    if (lease?.grantId !== grantId) {
      throw new StoreError('lease-lost', `worker ${worker} of ${JSON.stringify(namespace)} is under another lease`);
    }
    const end = endOf(layout, now + horizonMs);
    lease.endMs = end > lease.endMs ? end : lease.endMs;
    return { worker, grantId, notBeforeMs: layout.epochMs, validUntilMs: lease.endMs };
  }

  /** Closes nothing. */
  async close(): Promise<void> {}

  private nowMs(): bigint {
    return BigInt(Math.floor(this.options.now?.() ?? Date.now()));
  }

  private rowOf(tag: string): Row {
    const known = this.rows.get(tag);
    if (known !== undefined) {
      return known;
    }
    const [parent, sub] = splitTag(tag);
    const isSub = sub !== null;
    const common = isSub ? this.rows.get(parent) : undefined;
    if (common === undefined && this.options.createTags === false) {
      throw new StoreError('tag-unknown', `the tag ${shown(tag)} does not exist, and is not created on first use`);
    }
    validateNewTag(tag);
    const options = common?.options ?? { ...DEFAULT_TAG_OPTIONS, ...this.options.newTags };
    const row = { options, next: options.start, version: 0n };
    this.rows.set(tag, row);
    return row;
  }
}

/** The last tick bound of a layout that is not after an instant. */
function endOf(layout: LeaseAcquire['layout'], atMs: bigint): bigint {
  const tick = BigInt(layout.tickMs);
  return layout.epochMs + ((atMs - layout.epochMs) / tick) * tick;
}
