/**
 * Where a generator begins again in another instance of the component.
 *
 * @module
 */

import { ID_MAX, type Segment } from './store.js';

/** So many stripes are told apart. */
const CLASSES_MAX = 1024;

/**
 * The grants of one tag, as far as their successors need them: they ascend per generation, stride and remainder. The
 * component checks the same; this is what survives its end.
 */
export class GrantOrder {
  private floor: bigint;
  private generation = 0n;
  private stride = 1n;
  /** The end of the newest grant of each remainder. */
  private readonly ends = new Map<bigint, bigint>();

  /** Nothing is below `floor`. */
  constructor(floor = 0n) {
    this.floor = floor;
  }

  /**
   * Above all that was granted; with several stripes above what each of them granted, since one that is behind still
   * has lower numbers.
   */
  successorFloor(): bigint {
    if (this.stride === 1n) {
      return this.ceiling();
    }
    if (BigInt(this.ends.size) !== this.stride) {
      return this.floor;
    }
    let lowest: bigint | undefined;
    for (const end of this.ends.values()) {
      lowest = lowest === undefined || end < lowest ? end : lowest;
    }
    return lowest === undefined || lowest < this.floor ? this.floor : lowest;
  }

  /** Takes a grant in. Answers why not, and then changes nothing. */
  admit(segment: Segment): 'malformed' | 'overlap' | undefined {
    const { start, end, stride, generation } = segment;
    if (start < 1n || stride < 1n || start >= end || (end - start) % stride !== 0n || end - stride > ID_MAX) {
      return 'malformed';
    }
    if (generation < this.generation) {
      return 'overlap';
    }
    const isNewGeneration = generation > this.generation && this.ends.size > 0;
    const remainder = start % stride;
    const known = this.ends.get(remainder);
    // Classes of different strides cut across each other: after a change of stride only the common ceiling counts.
    const restarts = stride !== this.stride || (known === undefined && this.ends.size >= CLASSES_MAX);
    let floor: bigint;
    if (isNewGeneration) {
      floor = 0n;
    } else if (restarts) {
      floor = this.ceiling();
    } else {
      floor = known !== undefined && known > this.floor ? known : this.floor;
    }
    if (start < floor) {
      return 'overlap';
    }
    if (isNewGeneration || restarts) {
      this.ends.clear();
      this.floor = floor;
    }
    this.generation = generation;
    this.stride = stride;
    this.ends.set(remainder, end);
    return undefined;
  }

  private ceiling(): bigint {
    let ceiling = this.floor;
    for (const end of this.ends.values()) {
      ceiling = end > ceiling ? end : ceiling;
    }
    return ceiling;
  }
}
