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

/** Whether this is a bigint of 64 bits, without a sign. */
export function isU64(number: unknown): number is bigint {
  return typeof number === 'bigint' && number >= 0n && number <= U64_MAX;
}

function refused(argument: string, value: unknown, min: bigint | number, max: bigint | number): IdsError {
  // A number that is whole, and perhaps another one than was written.
  const isInexact = typeof value === 'number' && Number.isInteger(value) && !Number.isSafeInteger(value);
  const advice = isInexact ? ': a number above 2^53 - 1 is not exact, write a bigint, with an n at its end' : '';
  const what = `${argument} is ${said(value)}, it must be a whole number from ${min} to ${max}${advice}`;
  return new IdsError('number-invalid', what, { argument });
}

/**
 * A whole number that a JavaScript number holds exactly. `named` are the bounds that the message names, where what is
 * beyond them is refused in words of its own later.
 *
 * @throws {IdsError} `number-invalid`
 */
export function checkedNumber(
  argument: string,
  value: unknown,
  min: number,
  max: number,
  named: readonly [min: number, max: number] = [min, max],
): number {
  const number = typeof value === 'bigint' && BigInt(min) <= value && value <= BigInt(max) ? Number(value) : value;
  if (typeof number !== 'number' || !Number.isSafeInteger(number) || number < min || number > max) {
    throw refused(argument, value, ...named);
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
