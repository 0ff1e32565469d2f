/**
 * Where Redis is and how it is used, as a URL says it:
 * `redis[s]://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE][?PARAMETERS]`.
 *
 * @module
 */

import { closeSync, openSync, readSync } from 'node:fs';

import { NUMBERS_MAX } from './redis-growth.js';
import { StoreError } from './store.js';

/** Where Redis is, and how it is used. */
export interface RedisSettings {
  readonly host: string;
  readonly port: number;
  readonly database: number;
  readonly username: string | null;
  readonly password: string | null;
  /** Whether the connection is TLS. */
  readonly isTls: boolean;
  /** A file with the certificates of the authorities to trust; the system's where it is `null`. */
  readonly sslCa: string | null;
  /** What unalike's keys begin with. */
  readonly prefix: string;
  readonly raiseMin: bigint;
  readonly raiseMax: bigint;
  readonly connectTimeoutMs: number;
  readonly requestTimeoutMs: number;
  readonly raiseTimeoutMs: number;
}

const PARAMETERS =
  'ssl-ca, prefix, raise-min, raise-max, connect-timeout-ms, request-timeout-ms, raise-timeout-ms, password-file and ' +
  'password-env';

/** Parameters of the `unalike` server that mean nothing here, or only one thing. */
const OF_DIALECTS = ['shard', 'epoch', 'horizon-ms', 'keys', 'source-stopped'];

const PASSWORD_BYTES_MAX = 4_096;

/**
 * Reads a store's URL.
 *
 * @throws {StoreError} `refused`, saying which part is wrong. No message holds the password.
 */
export function readRedisUrl(text: string): RedisSettings {
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    // Its error holds the URL, and so the password.
    throw refused("the store's URL cannot be read: write redis://HOST:PORT/DATABASE");
  }
  const scheme = url.protocol.slice(0, -1);
  if (/^rediss?[-+](sentinel|cluster)$/.test(scheme)) {
    throw refused(
      `${scheme}: neither Sentinel nor Cluster is supported: give the address that leads to the master, redis://HOST`,
    );
  }
  if (scheme !== 'redis' && scheme !== 'rediss') {
    throw refused(`the store's scheme is ${JSON.stringify(scheme)}, it must be redis or rediss`);
  }
  // Whatever follows such a host may belong to a password, and is not shown.
  if (text.includes('#') || url.pathname.includes('@') || url.search.includes('@')) {
    throw refused(
      "the store's URL has a # or an @ behind its host: in the user's name and the password write %2F for /, %3F for " +
        '?, ' +
        '%23 for # and %40 for @, and %40 in a parameter',
    );
  }
  const database = url.pathname.replace(/^\/+|\/+$/g, '');
  if (database !== '' && !/^\d{1,9}$/.test(database)) {
    throw refused(
      `the store's URL names the database ${JSON.stringify(database)}, it must be a number: redis://HOST/0`,
    );
  }
  const settings = {
    host: url.hostname.replace(/^\[|\]$/g, '') || 'localhost',
    port: url.port === '' ? 6379 : Number(url.port),
    database: Number(database),
    username: decoded(url.username) || null,
    password: decoded(url.password) || null,
    isTls: scheme === 'rediss',
    sslCa: null as string | null,
    prefix: 'unalike',
    raiseMin: 100_000n,
    raiseMax: 1n << 40n,
    connectTimeoutMs: 1_000,
    requestTimeoutMs: 1_000,
    raiseTimeoutMs: 1_000,
  };
  const passwords: string[] = [];
  for (const [name, value] of url.searchParams) {
    const expected = (what: string): StoreError =>
      refused(`the store's parameter ${name} is ${JSON.stringify(value)}, it must be ${what}`);
    const whole = (least: bigint, most: bigint): bigint => {
      const number = /^\d{1,20}$/.test(value) ? BigInt(value) : -1n;
      if (number < least || number > most) {
        throw expected(`a whole number from ${least} to ${most}`);
      }
      return number;
    };
    const milliseconds = (): number => Number(whole(1n, 600_000n));
    switch (name) {
      case 'dialect':
        if (value !== 'unalike') {
          throw refused(
            `the store's parameter dialect is ${JSON.stringify(value)}: here there is only unalike; run the ` +
              '`unalike` server for the others, and ask it over HTTP',
          );
        }
        break;
      case 'ssl-ca':
        if (!settings.isTls) {
          throw refused("the store's parameter ssl-ca needs rediss://");
        }
        settings.sslCa = value;
        break;
      case 'prefix':
        if (value === '' || /[{}]|\p{Cc}/u.test(value)) {
          throw expected('a word without braces');
        }
        settings.prefix = value;
        break;
      case 'raise-min':
        settings.raiseMin = whole(1n, NUMBERS_MAX);
        break;
      case 'raise-max':
        settings.raiseMax = whole(1n, NUMBERS_MAX);
        break;
      case 'connect-timeout-ms':
        settings.connectTimeoutMs = milliseconds();
        break;
      case 'request-timeout-ms':
        settings.requestTimeoutMs = milliseconds();
        break;
      case 'raise-timeout-ms':
        settings.raiseTimeoutMs = milliseconds();
        break;
      case 'preheat':
        // What the `unalike` server does with its tags at the start. A program knows only the tags that it asks for.
        if (value !== 'true' && value !== 'false') {
          throw expected('true or false');
        }
        break;
      case 'durability':
        // It means something only without a durable store, and here there always is one.
        if (value !== 'checked' && value !== 'assumed') {
          throw expected('checked or assumed');
        }
        break;
      case 'password-file':
        passwords.push(readPassword(value));
        break;
      case 'password-env': {
        const password = process.env[value];
        if (password === undefined) {
          throw refused(`the variable ${JSON.stringify(value)}, which password-env names, is not set`);
        }
        passwords.push(password);
        break;
      }
      case 'password':
        throw refused("the store's password belongs before the @, into a password-file=PATH or a password-env=NAME");
      default:
        throw refused(
          OF_DIALECTS.includes(name)
            ? `the store's parameter ${name} belongs to a dialect that only the \`unalike\` server has`
            : `the store's parameter ${JSON.stringify(name)} is unknown: there are ${PARAMETERS}`,
        );
    }
  }
  if (passwords.length > 1 || (passwords.length === 1 && settings.password !== null)) {
    throw refused("the store's password is given in more than one way");
  }
  if (settings.raiseMin > settings.raiseMax) {
    throw refused(
      `raise-min is ${settings.raiseMin} and raise-max ${settings.raiseMax}, they must be 1 to ${NUMBERS_MAX}, in ` +
        `this order`,
    );
  }
  return { ...settings, password: passwords[0] ?? settings.password };
}

/** Host, port and database, for messages. */
export function redisAddress(settings: RedisSettings): string {
  const host = settings.host.includes(':') ? `[${settings.host}]` : settings.host;
  return `${host}:${settings.port}/${settings.database}`;
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    throw refused("in the store's user and password, % is written %25");
  }
}

/** What the file holds, without the end of its line. */
function readPassword(path: string): string {
  const bytes = Buffer.alloc(PASSWORD_BYTES_MAX + 1);
  let length = 0;
  try {
    const file = openSync(path, 'r');
    try {
      for (let read = -1; read !== 0 && length < bytes.length; length += read) {
        read = readSync(file, bytes, length, bytes.length - length, null);
      }
    } finally {
      closeSync(file);
    }
  } catch (error) {
    throw new StoreError('refused', `the password file ${path} cannot be read`, { cause: error });
  }
  if (length > PASSWORD_BYTES_MAX) {
    throw refused(`the password file ${path} is longer than ${PASSWORD_BYTES_MAX} bytes`);
  }
  return bytes.toString('utf8', 0, length).replace(/\r?\n$/, '');
}

function refused(what: string): StoreError {
  return new StoreError('refused', what);
}
