/**
 * Where a file of SQLite's is: a path, or a URL as the `unalike` command takes it.
 *
 * @module
 */

import { existsSync } from 'node:fs';

import { checkAddress } from './address.js';
import { StoreError } from './store.js';

/** What a path or a URL says. */
export interface SqlitePlace {
  readonly path: string;
  readonly create?: boolean;
  readonly busyTimeoutMs?: number;
}

export const BUSY_TIMEOUT_MAX_MS = 600_000;

/**
 * Reads a path, or `sqlite://PATH[?PARAMETERS]` with the parameters `create` and `busy-timeout-ms`. The path is taken
 * as it is written, to the first `?`.
 *
 * @throws {StoreError} `refused`, saying which part is wrong, and what can be written.
 */
export function readPlace(given: unknown): SqlitePlace {
  const text = checkAddress('the path of the store', given);
  if (text.includes('\0') || !text.isWellFormed()) {
    throw new StoreError('refused', `the path ${JSON.stringify(text)} is not usable: name a file`);
  }
  if (text.startsWith(':memory:')) {
    const what = 'is no file, and numbers must be kept: name a file, or use MemoryStore';
    throw new StoreError('refused', `the path ${JSON.stringify(text)} ${what}`);
  }
  if (!text.startsWith('sqlite:')) {
    const scheme = /^(file:|[a-z][a-z0-9+.-]+:\/\/)/i.exec(text)?.[1];
    if (scheme !== undefined) {
      const what = `the path of the store begins with ${scheme}, it must be a path or sqlite://PATH`;
      throw new StoreError('refused', what);
    }
    return { path: text };
  }
  return readUrl(text);
}

function readUrl(text: string): SqlitePlace {
  const rest = text.slice('sqlite://'.length);
  const [, path = '', query = ''] = /^([^?]*)\??(.*)$/s.exec(rest) ?? [];
  // Earlier versions took all of it for the path.
  const isLeft = rest !== path && existsSync(rest);
  const left = `; a file ${JSON.stringify(rest)} is there, which earlier versions made of such a URL`;
  const wrong = (what: string): StoreError =>
    new StoreError(
      'refused',
      `the store ${JSON.stringify(text)} ${what}${isLeft ? `${left}: rename it to go on with it` : ''}`,
    );
  if (!text.startsWith('sqlite://')) {
    throw wrong('must be a path or a URL like sqlite://PATH');
  }
  if (path === '') {
    throw wrong('names no file: write sqlite://PATH');
  }
  if (path.startsWith(':memory:') || path.startsWith('file:')) {
    const what = 'which means no plain file to SQLite, and numbers must be kept';
    throw wrong(`names ${JSON.stringify(path)}, ${what}: name one, sqlite://PATH`);
  }
  if (path.includes('#') || /%[0-9a-f]{2}/i.test(path)) {
    throw wrong(
      `has a path that others would read as another one, ${JSON.stringify(path)}: a path is taken as it is written, ` +
        'and may have neither a # nor a % with two hexadecimal digits after it; name or rename the file without',
    );
  }
  const place: { path: string; create?: boolean; busyTimeoutMs?: number } = { path };
  for (const pair of query.split('&').filter((part) => part !== '')) {
    const [, name = '', value = ''] = /^([^=]*)=?(.*)$/s.exec(pair) ?? [];
    if (name === 'create' && (value === 'true' || value === 'false')) {
      place.create = value === 'true';
    } else if (name === 'busy-timeout-ms' && /^[0-9]{1,6}$/.test(value) && Number(value) <= BUSY_TIMEOUT_MAX_MS) {
      place.busyTimeoutMs = Number(value);
    } else if (name === 'create' || name === 'busy-timeout-ms') {
      const range = `busy-timeout-ms a whole number from 0 to ${BUSY_TIMEOUT_MAX_MS}`;
      throw wrong(`has ${name}=${value}: create is true or false, ${range}`);
    } else {
      const known = 'there are create (true or false) and busy-timeout-ms';
      throw wrong(`has the parameter ${JSON.stringify(name)}, which is unknown: ${known}`);
    }
  }
  return place;
}
