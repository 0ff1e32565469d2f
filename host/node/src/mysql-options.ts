/**
 * Where the database is, and how it is used: the URL, with the parameters that the `unalike` command knows.
 *
 * @module
 */

import { closeSync, openSync, readFileSync, readSync } from 'node:fs';

import { isIP } from 'node:net';

import { validateLimits } from './lease-rules.js';
import { refused } from './mysql-server.js';
import { BIGINT, CALL, checkedOptions, FLAG, SECRET, type Kinds } from './options.js';
import type { StoreError } from './store.js';

/** How {@link MysqlStore.open} is told what the URL does not say. */
export interface MysqlOptions {
  /**
   * `mysql://USER[:PASSWORD]@HOST[:PORT]/DATABASE[?PARAMETERS]`, or `mariadb:`.
   *
   * | parameter | meaning | default |
   * | --- | --- | --- |
   * | `ssl-mode` | `disabled`, `preferred`, `required`, `verify_ca`, `verify_identity` | `preferred` |
   * | `ssl-ca` | a file with the certificates of the authorities to trust | the system's |
   * | `create` | `false`: no table is created | `true` |
   * | `connections` | the most connections at a time, 1 to 10000 | 10 |
   * | `connect-timeout-ms`, `request-timeout-ms` | milliseconds, 1 to 600000 | 3000, 5000 |
   * | `durability` | `checked`, or `assumed`: a server that may lose a commit in a crash is taken | `checked` |
   * | `identity` | `checked`, or `assumed`: a server is taken that is not the one that was used before | `checked` |
   * | `password-file`, `password-env` | a file with the password, or the environment variable that holds it | |
   *
   * Another parameter is an error.
   */
  readonly url: string;
  /** The password, instead of one in the URL. */
  readonly password?: string;
  /** Whether tags are created on first use. `true` by default. */
  readonly createTags?: boolean;
  /** How many tags there may be, sub-keys not counted. A million by default. */
  readonly tagsMax?: bigint;
  /** How far ahead of the server's clock a lease may reach, in milliseconds: 1 to 366 days. Ten minutes by default. */
  readonly maxHorizonMs?: bigint;
  /** How far a holder's clock may be from the server's, in milliseconds. 10000 by default. */
  readonly maxSkewMs?: bigint;
  /** Is told what an operator should hear: that a new store was begun, above all. A process warning by default. */
  readonly warn?: (message: string) => void;
}

export type SslMode = 'disabled' | 'preferred' | 'required' | 'verify_ca' | 'verify_identity';

const SSL_MODES: readonly string[] = ['disabled', 'preferred', 'required', 'verify_ca', 'verify_identity'];

const PARAMETERS =
  'dialect, ssl-mode, ssl-ca, create, connections, connect-timeout-ms, request-timeout-ms, durability, identity, ' +
  'password-file and password-env';

const DIALECTS = ['leaf', 'tinyid', 'cosid', 'sequence-table', 'id-generator', 'batch', 'slow-ordered', 'ticket'];

const OPTIONS: Kinds<MysqlOptions> = {
  url: SECRET,
  password: SECRET,
  createTags: FLAG,
  tagsMax: BIGINT,
  maxHorizonMs: BIGINT,
  maxSkewMs: BIGINT,
  warn: CALL,
};

/** A password file may have this many bytes. */
const PASSWORD_BYTES_MAX = 4096;

/** What the options say, with all defaults. */
export interface Settings {
  /** Host, port and database, for messages. */
  readonly at: string;
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly password: string | undefined;
  readonly database: string;
  readonly sslMode: SslMode;
  readonly sslCa: string | undefined;
  readonly createTables: boolean;
  readonly connectionsMax: number;
  readonly connectTimeoutMs: number;
  readonly requestTimeoutMs: number;
  readonly assumeDurable: boolean;
  readonly assumeIdentity: boolean;
  readonly createTags: boolean;
  readonly tagsMax: bigint;
  readonly maxHorizonMs: bigint;
  readonly maxSkewMs: bigint;
  readonly warn: (message: string) => void;
}

/**
 * Reads the options.
 *
 * @throws {StoreError} `refused`, saying which part is wrong. No message holds the password.
 */
export function readOptions(given: MysqlOptions): Settings {
  const options = checkedOptions('options', given, OPTIONS, refused, ['url']);
  const url = readUrl(options.url);
  const host = url.hostname === '' ? 'localhost' : url.hostname;
  const port = url.port === '' ? 3306 : Number(url.port);
  const database = url.pathname.replace(/^\/+/, '');
  if (database === '') {
    throw refused("the store's URL names no database: write mysql://USER@HOST/DATABASE");
  }
  // A user that nobody wrote would be root.
  if (url.username === '') {
    throw refused("the store's URL names no user: write mysql://USER@HOST/DATABASE");
  }
  const passwords = options.password === undefined ? [] : [options.password];
  if (url.password !== '') {
    passwords.push(decoded(url.password, 'password'));
  }
  const settings = {
    at: `${host}:${port}/${database}`,
    host: host.replace(/^\[(.*)\]$/, '$1'),
    port,
    user: decoded(url.username, 'user'),
    database: decoded(database, 'database'),
    sslMode: 'preferred' as SslMode,
    sslCa: undefined as string | undefined,
    createTables: true,
    connectionsMax: 10,
    connectTimeoutMs: 3000,
    requestTimeoutMs: 5000,
    assumeDurable: false,
    assumeIdentity: false,
    createTags: options.createTags ?? true,
    tagsMax: options.tagsMax ?? 1_000_000n,
    maxHorizonMs: options.maxHorizonMs ?? 600_000n,
    maxSkewMs: options.maxSkewMs ?? 10_000n,
    warn: options.warn ?? ((message: string): void => process.emitWarning(message, 'UnalikeWarning')),
  };
  for (const [name, value] of url.searchParams) {
    switch (name) {
      case 'dialect':
        checkDialect(value);
        break;
      case 'ssl-mode': {
        const mode = value.toLowerCase();
        if (!SSL_MODES.includes(mode)) {
          throw wrong(name, value, 'disabled, preferred, required, verify_ca or verify_identity');
        }
        settings.sslMode = mode as SslMode;
        break;
      }
      case 'ssl-ca':
        settings.sslCa = readCertificates(value);
        break;
      case 'create':
        settings.createTables = chosen(name, value, { true: true, false: false }, 'true or false');
        break;
      case 'connections':
        settings.connectionsMax = whole(name, value, 10_000);
        break;
      case 'connect-timeout-ms':
        settings.connectTimeoutMs = whole(name, value, 600_000);
        break;
      case 'request-timeout-ms':
        settings.requestTimeoutMs = whole(name, value, 600_000);
        break;
      case 'durability':
        settings.assumeDurable = chosen(name, value, { checked: false, assumed: true }, 'checked or assumed');
        break;
      case 'identity':
        settings.assumeIdentity = chosen(name, value, { checked: false, assumed: true }, 'checked or assumed');
        break;
      case 'password-file':
        passwords.push(readPassword(value));
        break;
      case 'password-env':
        passwords.push(passwordOf(value));
        break;
      case 'password':
        throw refused("the store's password belongs before the @, into a password-file=PATH or a password-env=NAME");
      default:
        throw refused(`the store's parameter ${JSON.stringify(name)} is unknown: there are ${PARAMETERS}`);
    }
  }
  if (settings.sslMode === 'verify_identity' && isIP(settings.host) !== 0) {
    throw refused(
      `ssl-mode=verify_identity needs the name that the server's certificate has, and not the address ` +
        `${settings.host}: write the name into the URL, or use verify_ca`,
    );
  }
  if (typeof settings.tagsMax !== 'bigint' || settings.tagsMax < 0n || settings.tagsMax >= 1n << 64n) {
    throw refused(`tagsMax is ${settings.tagsMax}, it must be a bigint of 0 to 2^64 - 1`);
  }
  validateLimits(settings);
  if (passwords.length > 1) {
    throw refused("the store's password is given in more than one way");
  }
  return { ...settings, password: passwords[0] };
}

function readUrl(text: string): URL {
  let url;
  try {
    url = new URL(text);
  } catch {
    // Its own message would hold the URL, and so the password.
    throw refused("the store's URL cannot be read: write mysql://USER@HOST/DATABASE");
  }
  if (url.protocol !== 'mysql:' && url.protocol !== 'mariadb:') {
    throw refused(`the store's scheme is ${JSON.stringify(url.protocol.slice(0, -1))}, it must be mysql`);
  }
  // Else what follows such a character would be taken for the host's, and shown.
  if (url.pathname.includes('@') || url.hash !== '') {
    throw refused("the user and password in the store's URL must have @ / ? # percent-encoded (%40 %2F %3F %23)");
  }
  return url;
}

function decoded(text: string, what: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw refused(`the ${what} in the store's URL is not percent-encoded as UTF-8`);
  }
}

function checkDialect(name: string): void {
  if (DIALECTS.includes(name)) {
    throw refused(
      `this program uses unalike's own tables alone, and the dialect ${name} is for those of another system: run the ` +
        `\`unalike\` server with this URL, and take the numbers from it`,
    );
  }
  if (name !== 'unalike') {
    throw wrong('dialect', name, 'unalike');
  }
}

function wrong(name: string, value: string, what: string): StoreError {
  return refused(`the store's parameter ${name} is ${JSON.stringify(value)}, it must be ${what}`);
}

function chosen(name: string, value: string, choices: { [word: string]: boolean }, what: string): boolean {
  const found = Object.hasOwn(choices, value) ? choices[value] : undefined;
  if (found === undefined) {
    throw wrong(name, value, what);
  }
  return found;
}

function whole(name: string, value: string, greatest: number): number {
  const number = /^[0-9]{1,9}$/.test(value) ? Number(value) : 0;
  if (number < 1 || number > greatest) {
    throw wrong(name, value, `a whole number from 1 to ${greatest}`);
  }
  return number;
}

function readCertificates(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw refused(`the file ${JSON.stringify(path)}, which ssl-ca names, cannot be read: ${(error as Error).message}`);
  }
}

function passwordOf(variable: string): string {
  const password = process.env[variable];
  if (password === undefined) {
    throw refused(`the variable ${JSON.stringify(variable)}, which password-env names, has no text`);
  }
  return password;
}

function readPassword(path: string): string {
  const bytes = Buffer.alloc(PASSWORD_BYTES_MAX + 1);
  let length = 0;
  try {
    const file = openSync(path, 'r');
    try {
      for (let read = 1; read > 0 && length < bytes.length; length += read) {
        read = readSync(file, bytes, length, bytes.length - length, null);
      }
    } finally {
      closeSync(file);
    }
  } catch (error) {
    throw refused(`the password file ${path} cannot be read: ${(error as Error).message}`);
  }
  if (length > PASSWORD_BYTES_MAX) {
    throw refused(`the password file ${path} is longer than ${PASSWORD_BYTES_MAX} bytes`);
  }
  // Editors end a file with a line's end.
  const password = bytes.toString('utf8', 0, length).replace(/[\r\n]+$/, '');
  if (password === '') {
    throw refused(`the password file ${path} is empty`);
  }
  return password;
}
