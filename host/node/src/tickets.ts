/**
 * The requests that the component starts, each named by a ticket, and the import tables that it is given.
 *
 * Nobody waits here. An answer is matched by its ticket in the table of the instance that asked: one that comes after
 * the instance is gone, or after its request was given up, is burnt.
 *
 * @module
 */

import type { ComponentLease, CoreImports, GrantHalves, Result } from './component.js';
import type { Layout, Segment, StoreFailure } from './store.js';

/**
 * Tickets are unique in the process, whichever instance they belong to. They begin at a random number above 2^63, so
 * that a bit that is lost on the way, the highest or the lowest, names no ticket.
 */
let newest = (1n << 63n) + BigInt(Math.floor(Math.random() * 2 ** 48)) * 0x4001n;

/** The open requests of one kind of one instance. */
export class Tickets<Value> {
  private readonly open = new Map<bigint, Result<Value, StoreFailure> | undefined>();

  /** Another ticket, whose answer is awaited from now on. */
  issue(): bigint {
    newest += 1n;
    this.open.set(newest, undefined);
    return newest;
  }

  /** Puts an answer there. Answers whether anybody will see it: if not, it is burnt. */
  answer(ticket: bigint, answer: Result<Value, StoreFailure>): boolean {
    if (!this.open.has(ticket) || this.open.get(ticket) !== undefined) {
      return false;
    }
    this.open.set(ticket, answer);
    return true;
  }

  /** `undefined` while it runs, then its answer, once. */
  poll(ticket: bigint): Result<Value, StoreFailure> | undefined {
    if (!this.open.has(ticket)) {
      return { tag: 'err', val: 'outcome-unknown' };
    }
    const answer = this.open.get(ticket);
    if (answer !== undefined) {
      this.open.delete(ticket);
    }
    return answer;
  }

  /** Forgets a request whose answer nobody awaits any more. */
  forget(ticket: bigint): void {
    this.open.delete(ticket);
  }

  /** Forgets all of them. */
  clear(): void {
    this.open.clear();
  }
}

/** What an instance's imports do beyond tickets. None of it may throw or wait. */
export interface Starter {
  allocate(ticket: bigint, tag: string, count: bigint, atLeast: bigint): void;
  releaseTail(tag: string, start: bigint, version: bigint): void;
  /** The component takes an answer in. */
  granted(ticket: bigint, answer: Result<Segment, StoreFailure>): Result<Segment, StoreFailure>;
  acquire(ticket: bigint, namespace: string, layout: Layout, now: bigint, horizonMs: bigint): void;
  extend(
    ticket: bigint,
    namespace: string,
    layout: Layout,
    worker: number,
    grantId: GrantHalves,
    now: bigint,
    horizonMs: bigint,
  ): void;
  releaseLease(namespace: string, worker: number, grantId: GrantHalves, end: bigint): void;
  /** The component takes an answer in. */
  leased(ticket: bigint, answer: Result<ComponentLease, StoreFailure>): void;
}

/** The tickets of one instance of the component. */
export class InstanceTickets {
  readonly segments = new Tickets<Segment>();
  readonly leases = new Tickets<ComponentLease>();

  /** The import tables. */
  imports(starter: Starter): CoreImports {
    const { segments, leases } = this;
    return {
      'unalike:ids/segments': {
        allocate(tag, count, atLeast) {
          const ticket = segments.issue();
          starter.allocate(ticket, tag, count, atLeast);
          return ticket;
        },
        poll(ticket) {
          const answer = segments.poll(ticket);
          return answer === undefined ? undefined : starter.granted(ticket, answer);
        },
        release(tag, start, version) {
          starter.releaseTail(tag, start, version);
        },
      },
      'unalike:ids/leases': {
        acquire(namespace, layout, now, horizonMs) {
          const ticket = leases.issue();
          starter.acquire(ticket, namespace, layout, now, horizonMs);
          return ticket;
        },
        extend(namespace, layout, worker, grantId, now, horizonMs) {
          const ticket = leases.issue();
          starter.extend(ticket, namespace, layout, worker, grantId, now, horizonMs);
          return ticket;
        },
        poll(ticket) {
          const answer = leases.poll(ticket);
          if (answer !== undefined) {
            starter.leased(ticket, answer);
          }
          return answer;
        },
        release(namespace, worker, grantId, end) {
          starter.releaseLease(namespace, worker, grantId, end);
        },
      },
    };
  }
}
