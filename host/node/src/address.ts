/**
 * Addresses of stores: what is no text is often a variable that nobody set.
 *
 * @module
 */

import { StoreError } from './store.js';

/**
 * The address, which must be a text. `what` names it, as in `the address` or `the option url`.
 *
 * @throws {StoreError} `refused`. No message holds the address, which may have a password in it.
 */
export function checkAddress(what: string, address: unknown): string {
  if (typeof address === 'string' && address !== '') {
    return address;
  }
  const isMissing = address === undefined || address === null || address === '';
  const said = address === '' ? 'empty' : String(address);
  throw new StoreError(
    'refused',
    isMissing
      ? `${what} is ${said}: is its environment variable set?`
      : address instanceof URL
        ? `${what} is an object of the class URL, it must be a text: give its href`
        : `${what} is of the type ${typeof address}, it must be a text`,
  );
}

/**
 * The URL of a store, with its scheme in small letters. `form` is what such a URL looks like, and `named` its scheme.
 *
 * @throws {StoreError} `refused`. No message holds the URL.
 */
export function checkUrl(
  what: string,
  address: unknown,
  isScheme: (scheme: string) => boolean,
  [named, form]: readonly [named: string, form: string],
): string {
  const url = checkAddress(what, address);
  const end = url.indexOf('://');
  const scheme = url.slice(0, Math.max(end, 0)).toLowerCase();
  if (!isScheme(scheme)) {
    // What is none may be a part of a password.
    const said = /^[a-z0-9]+$/.test(scheme) ? `is ${JSON.stringify(scheme)}, it` : 'cannot be read, and';
    throw new StoreError('refused', `the store's scheme ${said} must be ${named}: write ${form}`);
  }
  return scheme + url.slice(end);
}
