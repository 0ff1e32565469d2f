/**
 * What asks the stores for an instance of the component: each request ends in bounded time, and what is given back is
 * followed to its end.
 *
 * @module
 */

import type { ComponentLease, GrantHalves, Result } from './component.js';
import { contextsHere } from './contexts.js';
import { asStoreError } from './errors.js';
import { GrantOrder } from './grant-order.js';
import { randomBits } from './lease-rules.js';
import { shown, validatePublic } from './names.js';
import {
  ID_MAX,
  StoreError,
  type Layout,
  type Lease,
  type LeaseStore,
  type Segment,
  type SegmentStore,
  type StoreFailure,
} from './store.js';
import type { InstanceTickets, Starter, Tickets } from './tickets.js';
import { Event, guarded, monotonicMs, within } from './wait.js';

/** So many tails are given back at once. */
const RELEASES_AT_ONCE = 16;
/** So much later than its own timer would have, others end a request. */
const OVERDUE_MS = 1_000;

/** Who hears of the answers to the requests that the component makes while it is called for them. */
export interface Asker {
  /** The tag or namespace. */
  readonly name: string;
  /** Where a successor in another instance begins. */
  readonly granted: GrantOrder | undefined;
  /** The newest failure that the component was told of; none after a success. */
  lastError: StoreError | undefined;
  /** The newest lease that the component was told of. */
  lease: Lease | undefined;
  /** An answer is there. */
  answered(): void;
}

/** The stores of one `Ids`, and what is on its way to and from them. */
export class Storage {
  /** When each request that is under way began. */
  private readonly underWay = new Map<symbol, number>();
  private readonly settled = new Event();
  private readonly releases: (() => Promise<unknown>)[] = [];
  private readonly releasing = new Map<symbol, number>();
  private isHolding = false;
  private ownHolder: string | undefined;

  constructor(
    readonly segments: SegmentStore | undefined,
    readonly leases: LeaseStore | undefined,
    private readonly givenHolder: string | undefined,
    readonly preferredWorker: number | null,
    /** No request takes longer; one that does is given up, and its grant burnt. */
    readonly requestTimeoutMs: number,
  ) {}

  /** The name of this holder. A random one is drawn when it is needed: in Workers there is none outside of requests. */
  get holder(): string {
    this.ownHolder ??= this.givenHolder ?? `unnamed-${randomBits(8).toString(16).padStart(16, '0')}`;
    return this.ownHolder;
  }

  /** The store of segments. @throws {StoreError} `refused` */
  segmentStore(): SegmentStore {
    if (this.segments === undefined) {
      throw new StoreError('refused', 'no segment store was given: Ids.open({ segments })');
    }
    return this.segments;
  }

  /** The store of leases. @throws {StoreError} `refused` */
  leaseStore(): LeaseStore {
    if (this.leases === undefined) {
      throw new StoreError('refused', 'no lease store was given: Ids.open({ leases })');
    }
    return this.leases;
  }

  /**
   * One request, which is given up in time. It begins after this call has returned: a store that calls back would find
   * the component busy.
   */
  async request<Value>(ask: () => Promise<Value>): Promise<Value> {
    const mark = Symbol();
    this.underWay.set(mark, monotonicMs());
    try {
      const limitMs = this.requestTimeoutMs;
      return await within(Promise.resolve().then(ask), limitMs, () => {
        throw new StoreError('outcome-unknown', `no answer within ${limitMs} ms`);
      });
    } catch (error) {
      throw asStoreError(error);
    } finally {
      this.underWay.delete(mark);
      if (this.underWay.size === 0) {
        this.settled.fire();
      }
    }
  }

  /** Gives something back: nobody waits for it but a graceful end. */
  giveBack(ask: () => Promise<unknown>): void {
    this.releases.push(ask);
    this.releaseNext();
  }

  /** Has what comes from here on wait, and go out when the answered function is called. */
  holdReleases(): () => void {
    this.isHolding = true;
    return () => {
      this.isHolding = false;
      this.releaseNext();
    };
  }

  private releaseNext(): void {
    this.forgetOverdue(this.releasing);
    while (!this.isHolding && this.releasing.size < RELEASES_AT_ONCE) {
      const ask = this.releases.shift();
      if (ask === undefined) {
        return;
      }
      const mark = Symbol();
      this.releasing.set(mark, monotonicMs());
      const done = (): void => {
        this.releasing.delete(mark);
        this.releaseNext();
      };
      // What is not taken back is a gap.
      contextsHere().keep(this.request(ask).then(done, done));
    }
  }

  /** Whether what began then has ended, and whoever would have said so is gone. */
  isOverdue(beganMs: number): boolean {
    // A clock that was set back says nothing of how long it has been.
    return Math.abs(monotonicMs() - beganMs) > this.requestTimeoutMs + OVERDUE_MS;
  }

  private forgetOverdue(began: Map<symbol, number>): void {
    for (const [mark, beganMs] of began) {
      if (this.isOverdue(beganMs)) {
        began.delete(mark);
      }
    }
  }

  /** Waits until nothing is on its way, as long as it goes on, but no longer than a request may take without an end. */
  async settle(): Promise<boolean> {
    const until = monotonicMs() + this.requestTimeoutMs;
    for (;;) {
      this.forgetOverdue(this.underWay);
      if (this.underWay.size === 0 && this.releases.length === 0) {
        return true;
      }
      const left = until - monotonicMs();
      if (left <= 0) {
        // A graceful end that takes longer gives up: what is on its way is a gap.
        this.releases.length = 0;
        return false;
      }
      await this.settled.next(left, '');
    }
  }
}

/** What an instance's imports do: it asks the stores, and tells who asked. */
export class Requests implements Starter {
  /** For whom the component is called now. */
  asker: Asker | undefined;
  private readonly asked = new Map<bigint, Asker>();
  /** How each open request is given up, and when it began. */
  private readonly open = new Map<bigint, { readonly beganMs: number; readonly giveUp: () => void }>();
  /** What this instance knows of each asker's grants: nothing of those of its predecessors but where they ended. */
  private readonly known = new Map<Asker, GrantOrder>();
  /** Answers in full, until the component takes them in. */
  private readonly errors = new Map<bigint, StoreError>();

  constructor(
    private readonly storage: Storage,
    private readonly tickets: InstanceTickets,
  ) {}

  allocate(ticket: bigint, tag: string, count: bigint, atLeast: bigint): void {
    const { asker } = this;
    this.start(this.tickets.segments, ticket, async () => {
      const name = nameOf(asker, tag);
      validatePublic(name);
      return ofSegment(await this.storage.segmentStore().allocate(name, count, atLeast));
    });
  }

  releaseTail(tag: string, start: bigint, version: bigint): void {
    const { asker } = this;
    const { segments } = this.storage;
    if (segments !== undefined) {
      this.storage.giveBack(async () => await segments.release(nameOf(asker, tag), { start, version }));
    }
  }

  granted(ticket: bigint, answer: Result<Segment, StoreFailure>): Result<Segment, StoreFailure> {
    const asker = this.told(ticket, answer);
    if (asker?.granted === undefined || answer.tag === 'err') {
      return answer;
    }
    const known = this.known.get(asker) ?? new GrantOrder(asker.granted.successorFloor());
    this.known.set(asker, known);
    const [fault, knownFault] = [asker.granted.admit(answer.val), known.admit(answer.val)];
    // The component refuses by itself what it can know of. What one of several stores granted to its predecessor is
    // known here alone.
    return fault === 'overlap' && knownFault === undefined ? { tag: 'err', val: 'refused' } : answer;
  }

  acquire(ticket: bigint, said: string, layout: Layout, now: bigint, horizonMs: bigint): void {
    const { asker } = this;
    const { holder, preferredWorker } = this.storage;
    this.start(this.tickets.leases, ticket, async () => {
      const namespace = nameOf(asker, said);
      const store = this.storage.leaseStore();
      return ofLease(await store.acquire({ namespace, layout, holder, preferredWorker, nowMs: now, horizonMs }));
    });
  }

  extend(
    ticket: bigint,
    said: string,
    layout: Layout,
    worker: number,
    grantId: GrantHalves,
    now: bigint,
    horizonMs: bigint,
  ): void {
    const { asker } = this;
    this.start(this.tickets.leases, ticket, async () => {
      const namespace = nameOf(asker, said);
      const request = { namespace, layout, worker, grantId: joined(grantId), nowMs: now, horizonMs };
      return ofLease(await this.storage.leaseStore().extend(request));
    });
  }

  releaseLease(namespace: string, worker: number, grantId: GrantHalves, end: bigint): void {
    const { asker } = this;
    const { leases } = this.storage;
    if (leases !== undefined) {
      this.storage.giveBack(async () => await leases.release(nameOf(asker, namespace), worker, joined(grantId), end));
    }
  }

  leased(ticket: bigint, answer: Result<ComponentLease, StoreFailure>): void {
    const asker = this.told(ticket, answer);
    if (asker !== undefined && answer.tag === 'ok') {
      const { worker, grantId, notBefore, validUntil } = answer.val;
      asker.lease = { worker, grantId: joined(grantId), notBeforeMs: notBefore, validUntilMs: validUntil };
    }
  }

  /** Gives up what one asker asked for, where nobody else has in time. What it was granted is burnt. */
  giveUpOverdue(asker: Asker): void {
    for (const [ticket, { beganMs, giveUp }] of this.open) {
      if (this.asked.get(ticket) === asker && this.storage.isOverdue(beganMs)) {
        giveUp();
      }
    }
  }

  /** Forgets what one asker never asked about: an answer that comes is burnt. */
  forget(gone: Asker): void {
    this.known.delete(gone);
    for (const [ticket, asker] of this.asked) {
      if (asker === gone) {
        this.asked.delete(ticket);
        this.errors.delete(ticket);
        this.tickets.segments.forget(ticket);
        this.tickets.leases.forget(ticket);
      }
    }
  }

  private told(ticket: bigint, answer: Result<unknown, StoreFailure>): Asker | undefined {
    const asker = this.asked.get(ticket);
    if (asker !== undefined) {
      asker.lastError = answer.tag === 'err' ? this.errors.get(ticket) : undefined;
    }
    this.asked.delete(ticket);
    this.errors.delete(ticket);
    return asker;
  }

  private start<Value>(tickets: Tickets<Value>, ticket: bigint, ask: () => Promise<Value>): void {
    const { asker } = this;
    if (asker !== undefined) {
      this.asked.set(ticket, asker);
    }
    const answered = (answer: Result<Value, StoreFailure>, error?: StoreError): void => {
      this.open.delete(ticket);
      if (tickets.answer(ticket, answer)) {
        if (error !== undefined) {
          this.errors.set(ticket, error);
        }
        asker?.answered();
      }
    };
    const failed = (error: StoreError): void => answered({ tag: 'err', val: error.failure }, error);
    const giveUp = (): void =>
      failed(new StoreError('outcome-unknown', 'no answer: the request that asked the store has ended'));
    this.open.set(ticket, { beganMs: monotonicMs(), giveUp });
    const asking = this.storage
      .request(async () => checked(await ask()))
      .then(
        guarded((value: Value) => answered({ tag: 'ok', val: value })),
        guarded(failed),
      );
    contextsHere().keep(asking);
  }
}

/**
 * The name that a store is asked for: that of whoever asks, which came from the program. The component says it, too;
 * one that changed on its way through it would be granted the numbers of another.
 *
 * @throws {StoreError} `refused`
 */
function nameOf(asker: Asker | undefined, said: string): string {
  if (asker?.name !== said) {
    const by = asker === undefined ? 'nobody' : shown(asker.name);
    throw new StoreError('refused', `the component asked for ${shown(said)} while it was called for ${by}: not asked`);
  }
  return asker.name;
}

/** Read once: what a store gives may be an object that answers otherwise the next time. */
function ofSegment({ start, end, stride, generation, version }: Segment): Segment {
  return { start, end, stride, generation, version };
}

/**
 * A store's grant whose numbers are what they must be: one that came through a double is refused here, before it could
 * trap the component or be another number.
 *
 * @throws {StoreError} `outcome-unknown`: it is burnt.
 */
function checked<Value>(grant: Value): Value {
  for (const [name, value] of Object.entries(grant as object)) {
    const isNumber = name === 'worker';
    const fits = isNumber
      ? Number.isInteger(value) && value >= 0 && value <= 0xffff_ffff
      : name === 'grantId' || (typeof value === 'bigint' && 0n <= value && value <= (ID_MAX << 1n) + 1n);
    if (!fits) {
      const what = `the store granted something with the ${name} ${String(value)}, which is no whole number of 64 bits`;
      throw new StoreError('outcome-unknown', `${what}: it is not used`);
    }
  }
  return grant;
}

const LOW = (1n << 64n) - 1n;

function joined({ high, low }: GrantHalves): bigint {
  return (high << 64n) | low;
}

function ofLease({ worker, grantId, notBeforeMs, validUntilMs }: Lease): ComponentLease {
  if (typeof grantId !== 'bigint' || grantId < 0n || grantId >> 128n !== 0n) {
    throw new StoreError('outcome-unknown', `the store granted a lease whose id ${String(grantId)} has no 128 bits`);
  }
  const halves = { high: grantId >> 64n, low: grantId & LOW };
  return { worker, grantId: halves, notBefore: notBeforeMs, validUntil: validUntilMs };
}
