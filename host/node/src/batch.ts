/**
 * Many ids at once.
 *
 * @module
 */

import type { Run } from './component.js';

/** The last id of a run. */
export function lastOf(run: Run): bigint {
  return run.first + BigInt(run.count - 1) * run.stride;
}

/** A run without its first ids; `undefined` if none is left. */
export function restOf(run: Run, used: number): Run | undefined {
  const count = run.count - used;
  return count > 0 ? { first: run.first + BigInt(used) * run.stride, stride: run.stride, count } : undefined;
}

/**
 * Ids in ascending order, not always consecutive. It holds runs and makes each id when it is asked for.
 *
 * @example
 * ```ts
 * const batch = await orders.take(1_000);
 * for (const id of batch) insert(id);
 * batch.length; // 1000
 * ```
 */
export class Batch implements Iterable<bigint> {
  /** How many ids. */
  readonly length: number;
  /** The runs that they are: `first`, `first + stride`, .., `count` of them. */
  readonly runs: readonly Run[];

  /** @internal */
  constructor(runs: readonly Run[]) {
    this.runs = runs;
    this.length = runs.reduce((sum, run) => sum + run.count, 0);
  }

  *[Symbol.iterator](): Iterator<bigint> {
    for (const { first, stride, count } of this.runs) {
      let id = first;
      for (let left = count; left > 0; left -= 1) {
        yield id;
        id += stride;
      }
    }
  }

  /** All of them, in an array. */
  toArray(): bigint[] {
    const ids = new Array<bigint>(this.length);
    let at = 0;
    for (const { first, stride, count } of this.runs) {
      let id = first;
      for (let left = count; left > 0; left -= 1) {
        ids[at] = id;
        at += 1;
        id += stride;
      }
    }
    return ids;
  }
}

/** Runs that crossed and of which nobody has an id, in the order in which they came. */
export class Runs {
  private readonly runs: Run[] = [];
  /** How many ids they are. */
  count = 0;

  push(run: Run): void {
    const last = this.runs.at(-1);
    this.count += run.count;
    // A store that grants one number at a time must not fill the memory.
    if (last !== undefined && last.stride === run.stride && lastOf(last) + last.stride === run.first) {
      const count = last.count + run.count;
      if (count <= 0xffff_ffff) {
        this.runs[this.runs.length - 1] = { first: last.first, stride: last.stride, count };
        return;
      }
    }
    this.runs.push(run);
  }

  pushFirst(run: Run): void {
    this.count += run.count;
    this.runs.unshift(run);
  }

  shift(): Run | undefined {
    const run = this.runs.shift();
    this.count -= run?.count ?? 0;
    return run;
  }

  /** The first ids, as many as are wanted, of which there are enough. */
  take(count: number): Run[] {
    const taken: Run[] = [];
    for (let left = count; left > 0; ) {
      const run = this.shift();
      if (run === undefined) {
        break;
      }
      const used = Math.min(run.count, left);
      const rest = restOf(run, used);
      if (rest !== undefined) {
        this.pushFirst(rest);
      }
      taken.push({ first: run.first, stride: run.stride, count: used });
      left -= used;
    }
    return taken;
  }
}
