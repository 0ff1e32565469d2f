/**
 * Numbers that callers give: each is checked before anything is made of it. JavaScript would wrap, round or cut them
 * without a word.
 *
 * @module
 */

import { IdsError } from './errors.js';
import { said } from './said.js';

/** The greatest number of 32 bits. */
export const U32_MAX = 0xffff_ffff;
/** The greatest number of 64 bits. */
export const U64_MAX = (1n << 64n) - 1n;

function refused(argument: string, value: unknown, min: bigint | number, max: bigint | number): IdsError {
  const what = `${argument} is ${said(value)}, it must be a whole number from ${min} to ${max}`;
  return new IdsError('number-invalid', what, { argument });
}

/**
 * A whole number that a JavaScript number holds exactly.
 *
 * @throws {IdsError} `number-invalid`
 */
export function checkedNumber(argument: string, value: unknown, min: number, max: number): number {
  const number = typeof value === 'bigint' && BigInt(min) <= value && value <= BigInt(max) ? Number(value) : value;
  if (typeof number !== 'number' || !Number.isSafeInteger(number) || number < min || number > max) {
    throw refused(argument, value, min, max);
  }
  // Of the two zeros, the one without a sign.
  return number + 0;
}

/**
 * A whole number of 64 bits: a bigint, or a number that is exact.
 *
 * @throws {IdsError} `number-invalid`
 */
export function checkedBigint(argument: string, value: unknown, min: bigint = 0n, max: bigint = U64_MAX): bigint {
  if (typeof value === 'bigint') {
    if (min <= value && value <= max) {
      return value;
    }
  } else if (typeof value === 'number' && Number.isSafeInteger(value)) {
    const number = BigInt(value);
    if (min <= number && number <= max) {
      return number;
    }
  }
  throw refused(argument, value, min, max);
}

/** How many ids a call asks for. @throws {IdsError} `number-invalid` */
export function checkedCount(argument: string, value: unknown): number {
  return checkedNumber(argument, value, 1, U32_MAX);
}
