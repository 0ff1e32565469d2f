/**
 * Options that callers give, also from JavaScript: what is no object, a name that nobody knows and a value of another
 * kind are refused. JavaScript would take each of them without a word.
 *
 * @module
 */

import { said } from './said.js';

/** What a value must be. */
export interface Kind {
  /** In words: "it must be ..". */
  readonly must: string;
  /** No message shows the value. */
  readonly isSecret?: boolean;
  fits(value: unknown): boolean;
}

/** The kinds of all options of one call. */
export type Kinds<Options> = { readonly [Name in keyof Required<Options>]: Kind };

/** Makes the error of the caller's. */
export type Refuse = (message: string, argument: string) => Error;

export const FLAG: Kind = { must: 'true or false', fits: (value) => typeof value === 'boolean' };
export const TEXT: Kind = { must: 'a text', fits: (value) => typeof value === 'string' };
export const SECRET: Kind = { ...TEXT, isSecret: true };
export const CALL: Kind = { must: 'a function', fits: (value) => typeof value === 'function' };
export const OBJECT: Kind = {
  must: 'an object',
  fits: (value) => typeof value === 'object' && value !== null && !Array.isArray(value),
};
/** An object of several parts, one of which is shown. */
export function objectAs(example: string): Kind {
  return { ...OBJECT, must: `an object, such as ${example}` };
}
/** Of any size: whoever uses it says which numbers there may be. */
export const NUMBER: Kind = {
  must: 'a number',
  fits: (value) => value === null || !['object', 'function', 'symbol'].includes(typeof value),
};
export const BIGINT: Kind = { must: 'a bigint', fits: (value) => typeof value === 'bigint' };
/** What is looked at where it is used. */
export const ANY: Kind = { must: '', fits: () => true };

/** One of these words. */
export function wordOf(words: readonly string[]): Kind {
  const quoted = words.map((word) => JSON.stringify(word));
  const must = quoted.length > 1 ? `${quoted.slice(0, -1).join(', ')} or ${quoted.at(-1)}` : String(quoted[0]);
  return { must, fits: (value) => typeof value === 'string' && words.includes(value) };
}

/** A whole number in these bounds. */
export function wholeFrom(least: number, most: number): Kind {
  const fits = (value: unknown): boolean => Number.isInteger(value) && least <= Number(value) && Number(value) <= most;
  return { must: `a whole number from ${least} to ${most}`, fits };
}

/**
 * The options, read once: a copy of those that are given. `argument` names them all. A text in their place is not
 * shown: it may be a URL with a password.
 *
 * @throws What `refuse` makes.
 */
export function checkedOptions<Options extends object>(
  argument: string,
  given: unknown,
  kinds: Kinds<Options>,
  refuse: Refuse,
  required: readonly (keyof Options & string)[] = [],
): Options {
  const names = Object.keys(kinds) as (keyof Options & string)[];
  const known = `there are ${names.length > 1 ? `${names.slice(0, -1).join(', ')} and ` : ''}${names.at(-1)}`;
  if (!OBJECT.fits(given)) {
    const what = typeof given === 'string' ? 'a text' : said(given);
    throw refuse(`${argument} is ${what}, it must be an object: ${known}`, argument);
  }
  const unknown = Object.keys(given as object).find((name) => !Object.hasOwn(kinds, name));
  if (unknown !== undefined) {
    throw refuse(`${argument} has ${said(unknown)}, which is not known: ${known}`, argument);
  }
  const options: Partial<Options> = {};
  for (const name of names) {
    const value = (given as Options)[name];
    if (value === undefined && !required.includes(name)) {
      continue;
    }
    const { must, isSecret, fits } = kinds[name];
    if (!fits(value)) {
      // A part of an option is told with that option: several have one of this name.
      const told = name === 'kind' ? `${argument}.${name}` : name;
      const type = `${told} must be ${must}, and is of the type ${typeof value}`;
      throw refuse(isSecret === true ? type : `${told} is ${said(value)}, it must be ${must}`, name);
    }
    options[name] = value;
  }
  return options as Options;
}
