/**
 * The connection to one Redis server: opened when it is needed, checked before it is used, destroyed when an answer is
 * late; and the scripts that run there.
 *
 * Nothing is ever sent twice: neither the driver nor this module repeats a command whose answer was lost. The one
 * exception is a script that the server says it does not know, which has therefore not run.
 *
 * @module
 */

import { readFileSync } from 'node:fs';
import { Redis, type RedisOptions } from 'ioredis';

import {
  CLUSTER,
  NoAnswer,
  NotSent,
  codeOf,
  connectError,
  damaged,
  isBroken,
  requestError,
  type Access,
} from './redis-errors.js';
import type { Script } from './redis-scripts.js';
import { redisAddress, type RedisSettings } from './redis-url.js';
import { StoreError } from './store.js';
import { after, type Timer } from './wait.js';

/** The oldest server whose scripts can ask who they run on (`INFO` of two sections). */
const VERSION_MIN = 7;

/** A connection that nobody uses is asked for a sign of life after this long, so that a dead one is found out. */
const KEEPALIVE_MS = 15_000;

/**
 * The protocol without a greeting, which a server with a password refuses before the password. ioredis 6 has another
 * default, and ioredis 5 knows no other one, nor this option.
 */
const SECOND_PROTOCOL = { protocol: 2 } as RedisOptions;

/** A server that forgets a script again and again is told it so many times for one request. */
const TELLS_MAX = 10;

/** The parts of a socket that are used. */
interface Socket {
  ref(): unknown;
  unref(): unknown;
  destroy(): unknown;
}

/** One connection, and how many requests wait on it. */
class Connection {
  readonly #redis: Redis;
  #pending = 0;

  constructor(options: RedisOptions) {
    this.#redis = new Redis(options);
  }

  get isUsable(): boolean {
    return this.#redis.status === 'ready';
  }

  /** Connects, within the time that it is given. */
  async connect(limitMs: number): Promise<void> {
    let fault: unknown;
    this.#redis.on('error', (error: unknown) => {
      fault ??= error;
    });
    try {
      await this.#within(limitMs, this.#redis.connect());
    } catch (error) {
      throw error instanceof NoAnswer ? error : (fault ?? error);
    }
  }

  /** Sends a command once and waits for its answer, at most this long: then the connection is destroyed. */
  async send(limitMs: number, name: string, args: readonly string[]): Promise<unknown> {
    if (!this.isUsable) {
      throw new NotSent();
    }
    if (this.#pending++ === 0) {
      this.#socket?.ref();
    }
    try {
      return await this.#within(limitMs, this.#redis.call(name, ...args));
    } finally {
      if (--this.#pending === 0) {
        // A program that has nothing else to do may end.
        this.#socket?.unref();
      }
    }
  }

  /** Lets nothing more be sent or received. */
  destroy(): void {
    const socket = this.#socket;
    this.#redis.disconnect();
    socket?.destroy();
  }

  get #socket(): Socket | undefined {
    return (this.#redis as unknown as { stream?: Socket }).stream;
  }

  async #within<T>(limitMs: number, answer: Promise<T>): Promise<T> {
    let timer: Timer | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = after(() => {
        reject(new NoAnswer(`nothing came within ${limitMs} ms`));
        this.destroy();
      }, limitMs);
    });
    // Whichever comes second is nobody's.
    answer.catch(() => {});
    try {
      return await Promise.race([answer, late]);
    } finally {
      clearTimeout(timer);
    }
  }
}

/** One server. */
export class RedisServer {
  readonly address: string;
  readonly #settings: RedisSettings;
  readonly #options: RedisOptions;
  #connection: Connection | null = null;
  /** One connection is opened at a time. */
  #opening: Promise<Connection> | null = null;
  #isClosed = false;

  private constructor(settings: RedisSettings) {
    this.#settings = settings;
    this.address = redisAddress(settings);
    this.#options = {
      host: settings.host,
      port: settings.port,
      lazyConnect: true,
      connectTimeout: settings.connectTimeoutMs,
      keepAlive: KEEPALIVE_MS,
      noDelay: true,
      // Numbers that Redis answers never pass through doubles.
      stringNumbers: true,
      // Nothing is ever sent again, and nothing waits for another connection.
      retryStrategy: null,
      reconnectOnError: null,
      maxRetriesPerRequest: 0,
      enableOfflineQueue: false,
      autoResendUnfulfilledCommands: false,
      autoResubscribe: false,
      enableAutoPipelining: false,
      // What the server is, is asked here.
      enableReadyCheck: false,
      disableClientInfo: true,
      ...SECOND_PROTOCOL,
      ...(settings.isTls ? { tls: tlsOptions(settings) } : {}),
    };
  }

  /**
   * Connects and checks the server.
   *
   * @throws {StoreError} `unavailable` when it does not answer, `refused` when it cannot be used.
   */
  static async connect(settings: RedisSettings): Promise<RedisServer> {
    const server = new RedisServer(settings);
    await server.#current();
    return server;
  }

  /**
   * Runs a script on a key, and one that it looks at beside it; answers its fields.
   *
   * @throws {StoreError} What `access` makes of the driver's error, saying what was being done.
   */
  async script(
    doing: string,
    access: Access,
    script: Script,
    keys: readonly string[],
    args: readonly string[],
  ): Promise<Reply> {
    const connection = await this.#current();
    const limitMs = this.#settings.requestTimeoutMs;
    const call = ['EVALSHA', script.sha1, String(keys.length), ...keys, ...args] as const;
    try {
      let answer: unknown;
      for (let told = 0; ; told += 1) {
        try {
          answer = await connection.send(limitMs, call[0], call.slice(1));
          break;
        } catch (error) {
          if (codeOf(error) !== 'NOSCRIPT' || told === TELLS_MAX) {
            throw error;
          }
          await connection.send(limitMs, 'SCRIPT', ['LOAD', script.text]).catch((fault: unknown) => {
            // The script was not run: nothing is in doubt.
            throw requestFault(fault);
          });
        }
      }
      return new Reply(`the key ${keys[0]} on ${this.address}`, answer);
    } catch (error) {
      if (isBroken(error)) {
        this.#giveUp(connection);
      }
      if (error instanceof NotRun) {
        throw requestError(this.address, doing, 'reads', error.cause);
      }
      throw requestError(this.address, doing, access, error);
    }
  }

  /** Closes the connection; requests fail from now on. */
  async close(): Promise<void> {
    this.#isClosed = true;
    const connection = this.#connection;
    this.#connection = null;
    connection?.destroy();
    await this.#opening?.catch(() => {});
  }

  /** Another one may have taken its place already. */
  #giveUp(broken: Connection): void {
    if (this.#connection === broken) {
      this.#connection = null;
    }
    broken.destroy();
  }

  async #current(): Promise<Connection> {
    if (this.#isClosed) {
      throw this.#closed();
    }
    if (this.#connection?.isUsable === true) {
      return this.#connection;
    }
    this.#connection = null;
    this.#opening ??= this.#open().finally(() => {
      this.#opening = null;
    });
    return this.#opening;
  }

  /** Opens a connection and checks it, all within the time for that. */
  async #open(): Promise<Connection> {
    const limitMs = this.#settings.connectTimeoutMs;
    const began = performance.now();
    const left = (): number => Math.max(1, limitMs - (performance.now() - began));
    const connection = new Connection(this.#options);
    try {
      await connection.connect(limitMs);
      await this.#check(connection, left);
    } catch (error) {
      connection.destroy();
      if (error instanceof NoAnswer) {
        throw new StoreError(
          'unavailable',
          `no connection to ${this.address} within ${limitMs} ms: is it a Redis server, and is rediss:// or redis:// ` +
            `right?`,
        );
      }
      throw error instanceof StoreError ? error : connectError(this.address, error);
    }
    if (this.#isClosed) {
      connection.destroy();
      throw this.#closed();
    }
    this.#connection = connection;
    return connection;
  }

  #closed(): StoreError {
    return new StoreError('unavailable', `${this.address}: the store was closed`, { isFinal: true });
  }

  /** Checks that the server is one that can be used. */
  async #check(connection: Connection, left: () => number): Promise<void> {
    const { username, password, database } = this.#settings;
    const at = this.address;
    if (username !== null) {
      // A user without a password is one whom Redis asks for none.
      await connection.send(left(), 'AUTH', [username, password ?? '']);
    } else if (password !== null) {
      await connection.send(left(), 'AUTH', [password]);
    }
    const info = String(await connection.send(left(), 'INFO', ['server']));
    const of = (name: string): string | undefined =>
      info
        .split(/\r?\n/)
        .find((line) => line.startsWith(`${name}:`))
        ?.slice(name.length + 1)
        .trim();
    // Valkey calls it so.
    const mode = of('redis_mode') ?? of('server_mode');
    if (mode === undefined) {
      // It may be anything: a node of a Cluster, or something between that answers for several.
      throw new StoreError(
        'refused',
        `${at}: its answer to INFO names no redis_mode, so it may be a Cluster or a proxy before several servers: ` +
          `give the ` +
          'address of one server that stands alone',
      );
    }
    if (mode === 'cluster') {
      throw new StoreError('refused', `${at}: ${CLUSTER}`);
    }
    if (mode === 'sentinel') {
      throw new StoreError(
        'refused',
        `${at} is a Sentinel, which keeps no data: give the address that leads to the master`,
      );
    }
    if (mode !== 'standalone') {
      throw new StoreError('refused', `${at} runs in the mode ${JSON.stringify(mode)}, which is not supported`);
    }
    const version = of('redis_version') ?? 'of unknown version';
    const major = /^(\d+)\./.exec(version)?.[1];
    if (major === undefined || Number(major) < VERSION_MIN) {
      throw new StoreError('refused', `${at} is Redis ${version}, it must be ${VERSION_MIN} or newer`);
    }
    if (database !== 0) {
      await connection.send(left(), 'SELECT', [String(database)]);
    }
  }
}

/** The script was not run: what failed was to tell the server its text. */
class NotRun extends Error {}

function requestFault(cause: unknown): unknown {
  return new NotRun('the script was not told', { cause });
}

function tlsOptions(settings: RedisSettings): NonNullable<RedisOptions['tls']> {
  if (settings.sslCa === null) {
    return {};
  }
  const what = `the certificates in ${settings.sslCa} (ssl-ca) cannot be read`;
  let pem: string;
  try {
    pem = readFileSync(settings.sslCa, 'utf8');
  } catch (error) {
    throw new StoreError('refused', what, { cause: error });
  }
  if (!pem.includes('-----BEGIN CERTIFICATE-----')) {
    throw new StoreError('refused', `${what}: it holds no certificate in PEM`);
  }
  return { ca: pem };
}

const U64_MAX = (1n << 64n) - 1n;

/** A script's answer, field by field. */
export class Reply {
  readonly #at: string;
  readonly #fields: readonly unknown[];
  #next = 0;

  constructor(at: string, answer: unknown) {
    this.#at = at;
    this.#fields = Array.isArray(answer) ? answer : [];
  }

  /** @throws {StoreError} `corrupt` when there is none. */
  text(): string {
    const field = this.#fields[this.#next++];
    if (typeof field !== 'string') {
      throw this.damaged('a field is missing');
    }
    return field;
  }

  /** @throws {StoreError} `corrupt` when there is none. */
  number(): bigint {
    const text = this.text();
    const number = /^\d{1,20}$/.test(text) ? BigInt(text) : -1n;
    if (number < 0n || number > U64_MAX) {
      throw this.damaged(`${JSON.stringify(text)} is not a number`);
    }
    return number;
  }

  /** A number, or `null` where the field is empty. @throws {StoreError} `corrupt` when it is neither. */
  numberOrNone(): bigint | null {
    if (this.#fields[this.#next] === '') {
      this.#next += 1;
      return null;
    }
    return this.number();
  }

  /** What is left of it, names with their values. @throws {StoreError} `corrupt` when a value is missing. */
  pairs(): Map<string, string> {
    const pairs = new Map<string, string>();
    while (this.#next < this.#fields.length) {
      pairs.set(this.text(), this.text());
    }
    return pairs;
  }

  /** Something in the answer that should not be there. */
  damaged(what: string): StoreError {
    return damaged(this.#at, what);
  }
}
