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
