/**
 * The connections to one server, and what is checked of it before it is trusted.
 *
 * @module
 */

import type { Connection, ConnectionOptions } from 'mysql2';

import { loadDriver } from './load-driver.js';
import type { Settings } from './mysql-options.js';
import { hex128, READ_FACTS, refused, ServerFacts, StoreRecord, type Fence } from './mysql-server.js';
import { bound, SQL, type Argument, type ErrorKind } from './mysql-sql.js';
import { ID_MAX, StoreError, type StoreErrorKind } from './store.js';
import { after } from './wait.js';

export const DUPLICATE_ENTRY = 1062;
export const NO_SUCH_TABLE = 1146;
export const UNKNOWN_COLUMN = 1054;
export const TABLE_ACCESS_DENIED = 1142;
export const SYNTAX_ERROR = 1064;
export const ACCESS_DENIED = 1227;

/**
 * A connection that nobody used for so long is asked for a sign of life before it is used: the server may have been
 * started anew meanwhile. One that breaks within this time is noticed when it is used, and its statement is burnt.
 */
const IDLE_TRUSTED_MS = 1000;
/** A connection that nobody used for so long is not used again: a firewall between may have forgotten it. */
const IDLE_MAX_MS = 300_000;
/** No connection is used for longer: load spreads again over servers that share an address. */
const LIFETIME_MAX_MS = 1_800_000;

/** The driver. @throws {StoreError} `refused`, when it is not installed. */
export function loadMysql(): Promise<typeof import('mysql2')> {
  return loadDriver('stores in MySQL and MariaDB', 'mysql2', () => import('mysql2'));
}

const ONLY_READS = 'the server only reads just now: is it a replica, or failing over?';
const TLS = "no TLS with a server that can be trusted: check ssl-mode and ssl-ca, and the server's certificate";

/** A row: each column as the server sends it. */
export type Row = Readonly<Record<string, Buffer | null>>;

/** What a statement answered. */
export interface Reply {
  readonly rows: readonly Row[];
  /** The rows that its condition matched, whether it changed them or not. */
  readonly affected: bigint;
  /** What `LAST_INSERT_ID` was set to by this very statement. */
  readonly insertId: bigint;
}

/** The server that connections must lead to. */
interface Expected {
  /** What it says it is; `null` where any server will do. */
  readonly identity: string | null;
  /** What stands in `unalike_store`. */
  readonly recorded: string;
  readonly fence: Fence;
}

/** A pool of connections to one database, all of them checked. */
export class Database {
  readonly settings: Settings;
  #expected: Expected | null = null;
  /** Where the data are, and the statement that says so, once that is known. */
  #expectedPlace: { readonly statement: string; readonly here: string } | null = null;
  /** When somebody last looked there. */
  #lookedAt = -Infinity;
  /** When a connection last broke: those that are older are probably broken too, and are not used again. */
  #brokeAt = -Infinity;
  /** The one that was used last is used next, so that those of a burst become idle. */
  readonly #idle: Link[] = [];
  readonly #waiting: (() => void)[] = [];
  #inUse = 0;
  #isClosed = false;

  constructor(settings: Settings) {
    this.settings = settings;
  }

  /** Host, port and database. */
  get at(): string {
    return this.settings.at;
  }

  /** From now on every connection must lead to this server, and to a store that has this record of it. */
  expect(facts: ServerFacts, identity: string | null, recorded: string): void {
    const fence = facts.fence(!this.settings.assumeDurable, identity, identity === null ? null : recorded);
    this.#expected = { identity, recorded, fence };
  }

  /** From now on the data must be at this place, as the statement says it. */
  expectPlace(statement: string, here: string): void {
    this.#expectedPlace = { statement, here };
  }

  /**
   * Refuses a server that was adopted with the tables of other dialects, and not with unalike's own. Answers whether it
   * was adopted.
   */
  checkAdopted(): boolean {
    if (this.#expected === null || this.#expected.identity === null) {
      return false;
    }
    const record = new StoreRecord(this.#expected.recorded);
    if (record.isValid) {
      return record.wasAdopted;
    }
    throw refused(
      `the server at ${this.at} took over from another one, and was adopted with the tables of other dialects in ` +
        `this database (${this.#expected.recorded}): those of the dialect unalike may lack the last commits. Run ` +
        '`unalike store adopt --lift COUNT` with this URL as well, and then restart the programs that use this ' +
        'database',
    );
  }

  /** What rows of this era say, in the tables of a store that stands alone. */
  get rowSet(): Buffer {
    const era = this.#expected === null ? 0n : new StoreRecord(this.#expected.recorded).era;
    return Buffer.from(hex128(era), 'hex');
  }

  /** A statement that grants, with the conditions that every grant rests on. */
  fenced(statement: string): string {
    if (!statement.includes('{fence')) {
      throw new Error(`a statement without a fence: ${statement}`);
    }
    // Before a server is known, nothing is granted.
    return this.#expected === null
      ? statement.replace(/\{fence[a-z ]*\}/g, '1 = 0')
      : this.#expected.fence.putInto(statement);
  }

  /**
   * Says why a statement was held back by its fence, unless it was not.
   *
   * @throws {StoreError} `refused` on another server, or on one that may lose commits; `unavailable` where another
   *   connection may do. The connections that are open are not used again.
   */
  async checkFence(): Promise<void> {
    await this.turn('looking at the server', async (turn) => {
      const before = await turn.look();
      const facts = await turn.look();
      const rows = await turn.tryRows(SQL.store.recorded, [], NO_SUCH_TABLE);
      // A store that is gone is another one.
      const recorded = rows?.[0] === undefined ? '' : text(this, rows[0], 'server');
      try {
        this.#check(facts, recorded);
        const fault = facts.faultOfSession(before) ?? (facts.onlyReads ? ONLY_READS : null);
        if (fault !== null) {
          throw unavailable(`${this.at}: ${fault}`);
        }
        if (this.#expectedPlace !== null) {
          const here = await turn.place(this.#expectedPlace.statement);
          if (here !== this.#expectedPlace.here) {
            throw anotherPlace(this.at, here);
          }
        }
      } catch (error) {
        // Those that were opened before may all lead there.
        this.#noteBroken();
        throw error;
      }
      turn.giveBack();
    });
  }

  /** The error of a statement that its fence held back. */
  async heldBack(doing: string): Promise<StoreError> {
    try {
      await this.checkFence();
    } catch (error) {
      return error as StoreError;
    }
    // On this connection it would not have been.
    this.#noteBroken();
    return this.#noConnection(doing, 'the connection led to another server, or was set otherwise: try again');
  }

  /** Runs one statement that writes, in a transaction of its own. */
  execute(doing: string, sql: string, args: readonly Argument[]): Promise<Reply> {
    return this.turn(doing, async (turn) => {
      const reply = await turn.execute(sql, args);
      turn.giveBack();
      return reply;
    });
  }

  /** Runs one statement that reads. */
  rows(doing: string, sql: string, args: readonly Argument[]): Promise<readonly Row[]> {
    return this.turn(doing, async (turn) => {
      const rows = await turn.rows(sql, args);
      turn.giveBack();
      return rows;
    });
  }

  /**
   * A connection for some statements, all of them within the time that a request may take. Unless it is given back, it
   * is closed: nobody knows what is still under way on it.
   */
  async turn<T>(doing: string, work: (turn: Turn) => Promise<T>): Promise<T> {
    const deadline = now() + this.settings.requestTimeoutMs;
    const link = await this.#take(doing);
    const turn = new Turn(this, link, doing, deadline);
    try {
      return await work(turn);
    } finally {
      turn.drop();
    }
  }

  /** A transaction on the expected server; nobody else creates a tag or changes the stripe until it ends. */
  transactionAlone<T>(doing: string, work: (turn: Turn) => Promise<T>): Promise<T> {
    return this.turn(doing, async (turn) => {
      await turn.begin();
      const rows = await turn.rows(this.fenced(SQL.store.alone), []);
      if (rows.length === 0) {
        turn.drop();
        throw await this.heldBack(doing);
      }
      return work(turn);
    });
  }

  /** Closes what nobody uses now; the others are closed when they are given back. */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const wake of this.#waiting.splice(0)) {
      wake();
    }
    const idle = this.#idle.splice(0);
    await Promise.all(idle.map((link) => link.farewell(this.settings.connectTimeoutMs)));
  }

  get #waitMaxMs(): number {
    return Math.min(this.settings.connectTimeoutMs, this.settings.requestTimeoutMs);
  }

  async #take(doing: string): Promise<Link> {
    const waitMs = this.#waitMaxMs;
    const deadline = now() + waitMs;
    await this.#place(doing, deadline);
    try {
      for (let link = this.#idle.pop(); link !== undefined; link = this.#idle.pop()) {
        if (await this.#mayBeUsedAgain(link)) {
          link.hold();
          return link;
        }
        link.destroy();
      }
      return await this.#connect(deadline);
    } catch (error) {
      this.#leave();
      throw error instanceof TimedOut ? this.#noConnection(doing, noAnswer(waitMs)) : error;
    }
  }

  /** Waits for its turn among as many as there may be connections. */
  async #place(doing: string, deadline: number): Promise<void> {
    while (!this.#isClosed && this.#inUse >= this.settings.connectionsMax) {
      const isTime = await new Promise<boolean>((resolve) => {
        const wake = (): void => {
          clearTimeout(timer);
          resolve(false);
        };
        const giveUp = (): void => {
          this.#waiting.splice(this.#waiting.indexOf(wake), 1);
          resolve(true);
        };
        const timer = after(giveUp, Math.max(0, deadline - now()));
        this.#waiting.push(wake);
      });
      if (isTime) {
        throw this.#noConnection(doing, noAnswer(this.#waitMaxMs));
      }
    }
    if (this.#isClosed) {
      throw this.#noConnection(doing, 'the store was closed', true);
    }
    this.#inUse += 1;
  }

  #leave(): void {
    this.#inUse -= 1;
    this.#waiting.shift()?.();
  }

  async #mayBeUsedAgain(link: Link): Promise<boolean> {
    const idleMs = now() - link.usedAt;
    const isSuspect = link.isBroken || link.openedAt <= this.#brokeAt;
    if (isSuspect || idleMs > IDLE_MAX_MS || now() - link.openedAt > LIFETIME_MAX_MS) {
      return false;
    }
    const isTimeToLook = this.#expectedPlace !== null && now() - this.#lookedAt > IDLE_TRUSTED_MS;
    if (idleMs > IDLE_TRUSTED_MS || isTimeToLook) {
      // Half of the time, so that the other half is left for a new connection.
      link.hold();
      if (!(await this.#isAlive(link, now() + this.#waitMaxMs / 2))) {
        this.#noteBroken();
        return false;
      }
    }
    return true;
  }

  async #connect(deadline: number): Promise<Link> {
    const link = await Link.open(this.settings, deadline);
    try {
      await this.#lookAt(link, deadline);
      return link;
    } catch (error) {
      link.destroy();
      throw error;
    }
  }

  /** Whether it gives a sign of life, and the data are where they were. */
  async #isAlive(link: Link, deadline: number): Promise<boolean> {
    if (this.#expectedPlace === null) {
      return link.ping(deadline);
    }
    try {
      await this.#lookForPlace(link, deadline);
      return true;
    } catch {
      // Whoever opens the next one says what it was.
      return false;
    }
  }

  async #lookForPlace(link: Link, deadline: number): Promise<void> {
    if (this.#expectedPlace === null) {
      return;
    }
    this.#lookedAt = now();
    let here: string | null;
    try {
      here = placeIn((await link.send(this.#expectedPlace.statement, deadline)).rows);
    } catch (error) {
      const code = error instanceof TimedOut ? null : codeOf(error);
      if (code !== NO_SUCH_TABLE && code !== UNKNOWN_COLUMN) {
        throw error instanceof TimedOut ? error : readError(this.at, LOOKING_FOR_PLACE, error);
      }
      here = null;
    }
    if (here !== this.#expectedPlace.here) {
      throw anotherPlace(this.at, here);
    }
  }

  /** Sets a new connection up and checks where it leads. */
  async #lookAt(link: Link, deadline: number): Promise<void> {
    const send = async (sql: string): Promise<Reply> => {
      try {
        return await link.send(sql, deadline);
      } catch (error) {
        throw error instanceof TimedOut ? error : readError(this.at, 'setting a connection up', error);
      }
    };
    await send(SQL.session.read_whole_lists);
    const before = factsIn(await send(READ_FACTS));
    // Whole seconds. A wait for a lock that ends before the request does leaves no doubt about what was done. And the
    // server is not to close what is idle before it is dropped here.
    const lockWaitSeconds = Math.max(1, Math.floor(this.settings.requestTimeoutMs / 1000) - 1);
    await send(before.sessionStatement(lockWaitSeconds, (2 * IDLE_MAX_MS) / 1000));
    await send(SQL.session.roll_back);
    const facts = factsIn(await send(READ_FACTS));
    this.#check(facts, null);
    const fault = facts.faultOfSession(before);
    if (fault !== null) {
      throw this.#refused(fault);
    }
    try {
      await this.#lookForPlace(link, deadline);
    } catch (error) {
      if (!(error instanceof StoreError) || error.kind !== 'refused') {
        throw error;
      }
      // Of other data, and of a store that was adopted since, this says more.
      let row: Row | undefined;
      try {
        [row] = (await link.send(SQL.store.recorded, deadline)).rows;
      } catch (fault) {
        if (fault instanceof TimedOut || codeOf(fault) !== NO_SUCH_TABLE) {
          throw fault instanceof TimedOut ? fault : readError(this.at, LOOKING_FOR_PLACE, fault);
        }
      }
      this.#check(facts, row === undefined ? '' : text(this, row, 'server'));
      throw error;
    }
  }

  /** Checks the server, and what is recorded there if that was read. */
  #check(facts: ServerFacts, recorded: string | null): void {
    const kind = facts.faultOfKind();
    if (kind !== null) {
      throw this.#refused(kind);
    }
    const durability = this.settings.assumeDurable ? null : facts.faultOfDurability();
    if (durability !== null) {
      throw this.#refused(`${durability} (or vouch for it: durability=assumed)`);
    }
    const fault =
      facts.faultOfCluster(this.settings.assumeIdentity) ?? facts.faultOfLog() ?? facts.faultOfInitConnect();
    if (fault !== null) {
      throw this.#refused(fault);
    }
    if (this.#expected === null || this.#expected.identity === null) {
      return;
    }
    const { identity, recorded: expected } = this.#expected;
    const found = this.identityOf(() => facts.identityAs(identity));
    if (found !== identity) {
      throw facts.anotherServer(this.at, identity, found);
    }
    if (recorded !== null && recorded !== expected) {
      if (new StoreRecord(recorded).server === new StoreRecord(expected).server) {
        throw this.#refused(
          `tables in its database were lifted since this program began (${recorded}, not ${expected}): restart this ` +
            'program',
        );
      }
      throw facts.anotherServer(this.at, expected, recorded);
    }
  }

  /** An identity, or the error that there is none. */
  identityOf(read: () => string): string {
    try {
      return read();
    } catch (error) {
      throw this.#refused((error as Error).message);
    }
  }

  #refused(why: string): StoreError {
    return refused(`the server at ${this.at}: ${why}`);
  }

  /** No connection, so nothing was done. */
  #noConnection(doing: string, why: string, isFinal = false): StoreError {
    return new StoreError('unavailable', unavailable(`${doing}, at ${this.at}: ${why}`).message, { isFinal });
  }

  #noteBroken(): void {
    this.#brokeAt = now();
  }

  /** A statement failed: those who know that its connection is gone close the others, too. */
  noteFailure(error: unknown): void {
    const code = codeOf(error);
    const isGone =
      code === null
        ? !(error instanceof StoreError)
        : SQL.ends_connection.some(([first, last]) => first <= code && code <= last);
    if (isGone) {
      this.#noteBroken();
    }
  }

  takeBack(link: Link, isAsNew: boolean): void {
    if (isAsNew && !this.#isClosed && !link.isBroken) {
      link.rest();
      this.#idle.push(link);
    } else {
      link.destroy();
    }
    this.#leave();
  }
}

/** A connection in use. */
export class Turn {
  readonly #database: Database;
  readonly #doing: string;
  readonly #deadline: number;
  #link: Link | null;

  constructor(database: Database, link: Link, doing: string, deadline: number) {
    this.#database = database;
    this.#link = link;
    this.#doing = doing;
    this.#deadline = deadline;
  }

  /** Runs a statement that writes. After an error nothing more can be done. */
  async execute(sql: string, args: readonly Argument[]): Promise<Reply> {
    const statement = bound(sql, args);
    try {
      return await this.#run(statement);
    } catch (error) {
      throw writeError(this.#database.at, this.#doing, error);
    }
  }

  /**
   * The same, where some of the server's error numbers are the caller's business: the statement was not done then, and
   * the connection is as good as before.
   */
  async tryExecute(sql: string, args: readonly Argument[], expected: readonly number[]): Promise<Reply | number> {
    const statement = bound(sql, args);
    try {
      return await this.#run(statement);
    } catch (error) {
      const code = codeOf(error);
      if (code !== null && expected.includes(code)) {
        return code;
      }
      throw writeError(this.#database.at, this.#doing, error);
    }
  }

  /** The same for a statement that reads, and one such number; `null` when the server answers with it. */
  async tryRows(sql: string, args: readonly Argument[], expected: number): Promise<readonly Row[] | null> {
    const statement = bound(sql, args);
    try {
      return (await this.#run(statement)).rows;
    } catch (error) {
      if (codeOf(error) === expected) {
        return null;
      }
      throw readError(this.#database.at, this.#doing, error);
    }
  }

  /** The same, where several of the server's error numbers are the caller's business. */
  async tryText(sql: string, expected: readonly number[]): Promise<readonly Row[] | number> {
    try {
      return (await this.#run(sql)).rows;
    } catch (error) {
      const code = codeOf(error);
      if (code !== null && expected.includes(code)) {
        return code;
      }
      throw readError(this.#database.at, this.#doing, error);
    }
  }

  /** Runs a statement that reads. */
  async rows(sql: string, args: readonly Argument[]): Promise<readonly Row[]> {
    const statement = bound(sql, args);
    try {
      return (await this.#run(statement)).rows;
    } catch (error) {
      throw readError(this.#database.at, this.#doing, error);
    }
  }

  /** What the server says of itself. */
  async look(): Promise<ServerFacts> {
    try {
      return factsIn(await this.#run(READ_FACTS));
    } catch (error) {
      throw readError(this.#database.at, this.#doing, error);
    }
  }

  /** Where the data are; `null` where no table says it. */
  async place(statement: string): Promise<string | null> {
    try {
      return placeIn((await this.#run(statement)).rows);
    } catch (error) {
      const code = codeOf(error);
      if (code === NO_SUCH_TABLE || code === UNKNOWN_COLUMN) {
        return null;
      }
      throw readError(this.#database.at, LOOKING_FOR_PLACE, error);
    }
  }

  /** Begins a transaction, on a connection that has none. Without a commit it is rolled back. */
  async begin(): Promise<void> {
    await this.rows(SQL.session.begin, []);
  }

  /** Commits, and gives the connection back. */
  async commit(): Promise<void> {
    await this.execute(SQL.session.commit, []);
    this.giveBack();
  }

  /** Rolls back, and gives the connection back. */
  async rollBack(): Promise<void> {
    await this.rows(SQL.session.roll_back, []);
    this.giveBack();
  }

  /** Nothing is under way on the connection: it is as good as new. */
  giveBack(): void {
    this.#end(true);
  }

  /** Closes the connection, unless it was given back. */
  drop(): void {
    this.#end(false);
  }

  #end(isAsNew: boolean): void {
    const link = this.#link;
    this.#link = null;
    if (link !== null) {
      this.#database.takeBack(link, isAsNew);
    }
  }

  async #run(sql: string): Promise<Reply> {
    if (this.#link === null) {
      throw new Error('the connection was given back');
    }
    try {
      return await this.#link.send(sql, this.#deadline);
    } catch (error) {
      this.#database.noteFailure(error);
      throw error instanceof TimedOut
        ? new TimedOut(`no answer within ${this.#database.settings.requestTimeoutMs} ms`)
        : error;
    }
  }
}

/** The time is up; the statement may have been done. */
class TimedOut extends Error {}

/** A connection of the driver, with a deadline for everything. */
class Link {
  readonly openedAt = now();
  usedAt = now();
  isBroken = false;
  readonly #connection: Connection;

  private constructor(connection: Connection) {
    this.#connection = connection;
    // Without a listener, the death of a connection that nobody uses would end the process.
    connection.on('error', () => {
      this.isBroken = true;
    });
    // Answers out of order: they are nobody's. The driver's types do not know this event.
    (connection as unknown as NodeJS.EventEmitter).on('warn', () => {
      this.isBroken = true;
    });
  }

  static async open(settings: Settings, deadline: number): Promise<Link> {
    const modes = settings.sslMode === 'preferred' ? [true, false] : [settings.sslMode !== 'disabled'];
    for (const [at, hasTls] of modes.entries()) {
      try {
        return await Link.#openOnce(connectionOptions(settings, hasTls), deadline);
      } catch (error) {
        const isPlain = (error as { code?: unknown }).code === 'HANDSHAKE_NO_SSL_SUPPORT';
        if (!isPlain || at + 1 === modes.length) {
          throw error instanceof TimedOut ? error : connectError(settings.at, error);
        }
      }
    }
    throw new Error('there is always one mode');
  }

  static async #openOnce(options: ConnectionOptions, deadline: number): Promise<Link> {
    const { createConnection } = await loadMysql();
    const connection = createConnection(options);
    const link = new Link(connection);
    return await new Promise((resolve, reject) => {
      const timer = after(() => fail(new TimedOut()), Math.max(0, deadline - now()));
      const fail = (error: Error): void => {
        clearTimeout(timer);
        link.destroy();
        reject(error);
      };
      connection.once('error', fail);
      connection.once('connect', () => {
        clearTimeout(timer);
        connection.off('error', fail);
        resolve(link);
      });
    });
  }

  /** Sends a statement as it is. */
  send(sql: string, deadline: number): Promise<Reply> {
    return new Promise((resolve, reject) => {
      const timer = after(
        () => {
          this.destroy();
          reject(new TimedOut());
        },
        Math.max(0, deadline - now()),
      );
      this.#connection.query({ sql, typeCast: false }, (error, result) => {
        clearTimeout(timer);
        if (error) {
          this.isBroken ||= codeOf(error) === null;
          reject(error);
        } else if (this.isBroken) {
          reject(new Error('the connection broke'));
        } else {
          try {
            resolve(replyOf(result));
          } catch (fault) {
            reject(fault as Error);
          }
        }
      });
    });
  }

  ping(deadline: number): Promise<boolean> {
    return new Promise((resolve) => {
      const timer = after(() => resolve(false), Math.max(0, deadline - now()));
      this.#connection.ping((error) => {
        clearTimeout(timer);
        resolve(!error);
      });
    });
  }

  get #stream(): { destroy(): void; ref?(): void; unref?(): void } {
    return (this.#connection as unknown as { stream: { destroy(): void; ref?(): void; unref?(): void } }).stream;
  }

  /** Is in use. */
  hold(): void {
    this.#stream.ref?.();
  }

  /** Keeps no process alive that has nothing else to do. */
  rest(): void {
    this.usedAt = now();
    this.#stream.unref?.();
  }

  /** At once and without a word: on a server that hangs, a farewell would hang too. */
  destroy(): void {
    this.isBroken = true;
    this.#connection.destroy();
    this.#stream.destroy();
  }

  /** A farewell, so that the server notes no broken connection; one that does not take it is dropped. */
  farewell(timeoutMs: number): Promise<void> {
    if (this.isBroken) {
      this.destroy();
      return Promise.resolve();
    }
    this.hold();
    return new Promise((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        this.destroy();
        resolve();
      };
      const timer = after(done, timeoutMs);
      this.#connection.end(done);
    });
  }
}

function connectionOptions(settings: Settings, hasTls: boolean): ConnectionOptions {
  const options: ConnectionOptions = {
    host: settings.host,
    port: settings.port,
    user: settings.user,
    database: settings.database,
    charset: 'utf8mb4_general_ci',
    // Rows count that were matched, whether they were changed or not. What the session ignores is set later.
    flags: ['FOUND_ROWS', '-LOCAL_FILES', '-IGNORE_SPACE', '-ODBC'],
    supportBigNumbers: true,
    bigNumberStrings: true,
    // Everything has a deadline of its own.
    connectTimeout: 0,
    trace: false,
  };
  if (settings.password !== undefined) {
    options.password = settings.password;
  }
  if (hasTls) {
    const isVerified = settings.sslMode === 'verify_ca' || settings.sslMode === 'verify_identity';
    options.ssl = { rejectUnauthorized: isVerified, verifyIdentity: settings.sslMode === 'verify_identity' };
    if (settings.sslCa !== undefined) {
      options.ssl.ca = settings.sslCa;
    }
  }
  return options;
}

function replyOf(result: unknown): Reply {
  if (Array.isArray(result)) {
    return { rows: result as Row[], affected: 0n, insertId: 0n };
  }
  const { affectedRows, insertId } = result as { affectedRows: unknown; insertId: unknown };
  return { rows: [], affected: exact(affectedRows), insertId: exact(insertId) };
}

/** A number of the driver's, which is text where a double does not hold it. */
function exact(value: unknown): bigint {
  if (typeof value === 'string' || (typeof value === 'number' && Number.isSafeInteger(value))) {
    return BigInt(value);
  }
  throw new Error(`the driver read the number ${String(value)}, which a double does not hold`);
}

const LOOKING_FOR_PLACE = 'looking where the store is';

function placeIn(rows: readonly Row[]): string | null {
  return rows[0]?.['place']?.toString('latin1') ?? null;
}

/** The error of data that are not where the store was. */
export function anotherPlace(at: string, here: string | null): StoreError {
  return refused(
    `the data at ${at} are not those that were used before: they were loaded from a dump, or the table ` +
      `unalike_identity was built anew (its time here is ${here ?? 'unknown'}, which is not recorded in it). They may ` +
      'lack what was granted since: lift the tags above everything that was handed out with `unalike store restored ' +
      '--lift COUNT`, and then restart the programs',
  );
}

function factsIn(reply: Reply): ServerFacts {
  const shown = (value: Buffer | null | undefined): string => value?.toString('utf8') ?? '';
  return new ServerFacts(reply.rows.map((row) => [shown(row['Variable_name']), shown(row['Value'])]));
}

function noAnswer(waitMs: number): string {
  return `no connection within ${waitMs} ms: no MySQL or MariaDB server answers there, or too many requests wait`;
}

/** The server's error number; none for an error of the driver's or of the network's. */
function codeOf(error: unknown): number | null {
  const { errno, sqlState, sqlMessage } = error as { errno?: unknown; sqlState?: unknown; sqlMessage?: unknown };
  const isServers = typeof sqlState === 'string' || typeof sqlMessage === 'string';
  return isServers && typeof errno === 'number' && errno > 0 ? errno : null;
}

/**
 * The error of a statement that writes, or of its commit: whether the commit may stand although no success was
 * reported. An answer that did not come leaves that open, and so does everything that is not known.
 */
function writeError(at: string, doing: string, error: unknown): StoreError {
  if (error instanceof StoreError) {
    return error;
  }
  const [kind, advice] = judge(codeOf(error));
  return failure(kind, `${doing}, at ${at}: ${advice}`, error);
}

/** The error of a statement that only reads, or of connecting: nothing can have been granted. */
function readError(at: string, doing: string, error: unknown): StoreError {
  if (error instanceof StoreError) {
    return error;
  }
  const [kind, advice] = judge(codeOf(error));
  return failure(kind === 'outcome-unknown' ? 'unavailable' : kind, `${doing}, at ${at}: ${advice}`, error);
}

function judge(code: number | null): readonly [ErrorKind, string] {
  if (code === null) {
    return ['outcome-unknown', 'the connection broke'];
  }
  const row = SQL.errors.find(([first, last]) => first <= code && code <= last);
  return row === undefined ? ['refused', 'the server refused the statement'] : [row[2], row[3]];
}

function connectError(at: string, error: unknown): StoreError {
  if (codeOf(error) !== null) {
    return readError(at, 'connecting', error);
  }
  const code = (error as { code?: unknown }).code;
  const isTls = typeof code === 'string' && /^(HANDSHAKE_|ERR_TLS|ERR_SSL|ERR_OSSL|CERT_)/.test(code);
  return isTls
    ? failure('refused', `${at}: ${TLS}`, error)
    : failure('unavailable', `the server at ${at} cannot be reached`, error);
}

const WORDS: { readonly [kind in 'unavailable' | 'outcome-unknown' | 'refused' | 'corrupt']: string } = {
  unavailable: 'the store is unavailable',
  'outcome-unknown': "the store's answer was lost, so the grant is abandoned",
  refused: 'the store refused',
  corrupt: "the store's data cannot be used",
};

function failure(kind: keyof typeof WORDS & StoreErrorKind, what: string, cause: unknown): StoreError {
  // Of several addresses that all failed there is no message.
  const { message, code } = cause as { message?: string; code?: string };
  return new StoreError(kind, `${WORDS[kind]}: ${what}: ${message || code || 'no more is known'}`, { cause });
}

/** The error that nothing was done, and that it may work later. */
export function unavailable(what: string): StoreError {
  return new StoreError('unavailable', `${WORDS.unavailable}: ${what}`);
}

/** The error of a value in the database that should not be there. */
export function damaged(at: string, what: string): StoreError {
  return new StoreError('corrupt', `${WORDS.corrupt}: ${at}: ${what}; find out who changed it`);
}

/** A column of bytes. */
export function bytes(database: Database, row: Row, column: string): Buffer {
  const value = row[column];
  if (value === undefined || value === null) {
    throw damaged(database.at, `${column} is missing in a row`);
  }
  return value;
}

/** A column of text. */
export function text(database: Database, row: Row, column: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes(database, row, column));
  } catch (error) {
    throw error instanceof StoreError ? error : damaged(database.at, `${column} is not text`);
  }
}

/** A column of whole numbers of 64 bits. */
export function figure(database: Database, row: Row, column: string): bigint {
  const value = bytes(database, row, column).toString('latin1');
  if (!/^[0-9]{1,20}$/.test(value)) {
    throw damaged(database.at, `${column} is ${value}, and is a whole number of 0 or more`);
  }
  return BigInt(value);
}

/** A column of whole numbers of 63 bits. */
export function number(database: Database, row: Row, column: string): bigint {
  const value = figure(database, row, column);
  if (value > ID_MAX) {
    throw damaged(database.at, `${column} is ${value}, and is 0 to 2^63 - 1`);
  }
  return value;
}

/** Whether a column has no value. */
export function isNull(row: Row, column: string): boolean {
  return row[column] === null;
}

/** Milliseconds of a clock that nobody sets. */
function now(): number {
  return performance.now();
}
