/**
 * The Durable Object of a store: one for each tag, one for each namespace of leases, and a root that knows them all.
 *
 * Each call is one synchronous transaction, so no other call comes between, and nothing has to be blocked for it. Its
 * answer leaves when the platform has confirmed that what was written is durable: that is awaited, and the output gate
 * of the object holds every answer until then besides. A write that fails takes the answer with it.
 *
 * @module
 */

import { DurableObject } from 'cloudflare:workers';

import { validatePublic } from './names.js';
import { hexOf, ObjectDatabase, schema, type ObjectState } from './object-database.js';
import { PROTOCOL, type ObjectAnswer, type ObjectRequest } from './object-protocol.js';
import { Statements } from './object-statements.js';
import {
  StoreError,
  type FormatOwner,
  type FormatPart,
  type LeaseAcquire,
  type LeaseExtend,
  type TagOptions,
  type TailRelease,
} from './store.js';

/** Beside the tables of the SQLite adapter: what this object is. */
const SCHEMA = `
CREATE TABLE object (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    version INTEGER NOT NULL,
    name TEXT NOT NULL,
    store TEXT,             -- the mark of the root, once that knows this object
    members INTEGER NOT NULL
) STRICT;
CREATE TABLE member (name TEXT NOT NULL PRIMARY KEY, mark TEXT NOT NULL) STRICT, WITHOUT ROWID;
`;
const VERSION = 1n;

/** What an object is. */
interface Self {
  readonly name: string;
  readonly mark: string;
  readonly store: string | null;
}

/**
 * The class that a Worker exports, so that its objects can be the store of {@link DurableStore}. It needs no more than
 * a name in the configuration, among `new_sqlite_classes`.
 *
 * @example
 * ```ts
 * export { UnalikeObject } from 'unalike/workers';
 * ```
 */
export class UnalikeObject extends DurableObject {
  /** What {@link DurableStore} calls, and nobody else. */
  async ask(request: ObjectRequest): Promise<ObjectAnswer> {
    const { storage } = this.ctx as ObjectState;
    let answer: ObjectAnswer;
    try {
      answer = storage.transactionSync(() => this.#answer(request));
    } catch (error) {
      if (!(error instanceof StoreError)) {
        throw error;
      }
      // The transaction was rolled back.
      answer = { kind: error.kind, message: error.message };
    }
    await storage.sync();
    return answer;
  }

  #answer(request: ObjectRequest): ObjectAnswer {
    const { protocol, object, method, args, rules } = request;
    const state = this.ctx as ObjectState;
    if (protocol !== PROTOCOL) {
      const what = `the Worker speaks version ${protocol} of the protocol, and the object ${PROTOCOL}`;
      throw new StoreError('refused', `${what}: deploy both from one version of unalike`);
    }
    if (state.id.name !== undefined && state.id.name !== object) {
      const what = `the object ${state.id.name} was asked for ${object}`;
      throw new StoreError('refused', `${what}: name objects as unalike does`);
    }
    const database = new ObjectDatabase(object, state.storage);
    let self = this.#self(database);
    const isRoot = !/^unalike:[^:]*:/.test(object);
    if (self === null) {
      if (request.mark !== null) {
        throw gone(object, request.mark, 'nothing');
      }
      const isTag = /^unalike:[^:]*:tag:/.test(object);
      const asksFor = ['allocate', 'openTag', 'look', ...(isTag ? ['bindFormat'] : [])];
      const isCreated = isRoot || rules.createTags || !asksFor.includes(method);
      if (!isCreated) {
        const [, tag = object] = /^unalike:[^:]*:tag:(.*)$/s.exec(object) ?? [];
        const what = `the tag ${JSON.stringify(tag)} is unknown: create it first (DurableStore.createTag)`;
        throw new StoreError('tag-unknown', what);
      }
      this.#checkName(object);
      self = this.#begin(database, object);
    }
    if (request.mark !== null && request.mark !== self.mark) {
      throw gone(object, request.mark, self.mark);
    }
    const store = isRoot ? self.mark : self.store;
    if (request.store !== null && store !== null && request.store !== store) {
      throw otherStore(object, request.store, store);
    }
    const done = (value: unknown): ObjectAnswer => ({ mark: self.mark, store, value });
    switch (method) {
      case 'look':
        return isRoot || store !== null ? done(null) : { mark: self.mark, isUnknown: true };
      case 'register':
        return done(this.#register(database, ...(args as [string, string]), rules.tagsMax));
      case 'replace': {
        const [name, mark] = args as [string, string];
        database.run('UPDATE member SET mark = ?2 WHERE name = ?1', [name, mark]);
        return done(null);
      }
      case 'confirm':
        database.run('UPDATE object SET store = ?1 WHERE store IS NULL', [args[0] as string]);
        return { mark: self.mark, store: store ?? (args[0] as string), value: null };
      case 'restore': {
        if (store !== null) {
          throw new StoreError('tag-exists', `${object} is there, and was never lost: it goes on as it is`);
        }
        const [tag, options] = args as [string, TagOptions];
        // As often as it is asked: the answer of the first time may have been lost.
        database.run('DELETE FROM tag WHERE tag = ?1', [tag]);
        return done(new Statements(database, rules).createTag(tag, options));
      }
      default:
        if (store === null) {
          return { mark: self.mark, isUnknown: true };
        }
        return done(this.#ofStore(new Statements(database, rules), method, args));
    }
  }

  #ofStore(statements: Statements, method: string, args: readonly unknown[]): unknown {
    switch (method) {
      case 'allocate': {
        const [tag, count, atLeast] = args as [string, bigint, bigint];
        validatePublic(tag);
        return statements.allocate(tag, count, atLeast);
      }
      case 'releaseTail':
        return statements.releaseTail(...(args as [string, TailRelease]));
      case 'openTag':
        validatePublic(args[0] as string);
        return statements.openTag(args[0] as string);
      case 'createTag':
        return statements.createTag(...(args as [string, TagOptions]));
      case 'bindFormat':
        return statements.bindFormat(...(args as [FormatOwner, FormatPart, bigint | null]));
      case 'acquire':
        return statements.acquire(args[0] as LeaseAcquire);
      case 'extend':
        return statements.extend(args[0] as LeaseExtend);
      case 'releaseLease':
        return statements.releaseLease(...(args as [string, number, bigint, bigint]));
      default:
        throw new StoreError('refused', `the object knows no method ${JSON.stringify(method)}`);
    }
  }

  /** What this object is; `null` if it is nothing yet, or was deleted. */
  #self(database: ObjectDatabase): Self | null {
    const isThere = database.run("SELECT 1 AS found FROM sqlite_master WHERE name = 'object'").length > 0;
    if (!isThere) {
      return null;
    }
    const sql = 'SELECT version, name, store, (SELECT mark FROM identity) AS mark FROM object';
    const [row] = database.run(sql);
    const { version, name, store = null, mark } = row ?? {};
    if (typeof version === 'bigint' && version > VERSION) {
      const what = `a newer version of unalike wrote ${String(name)} (schema ${version}, this one knows ${VERSION})`;
      throw new StoreError('refused', `${what}: deploy that version`);
    }
    const isWhole =
      version === VERSION &&
      typeof name === 'string' &&
      mark instanceof Uint8Array &&
      mark.length === 16 &&
      (store === null || typeof store === 'string');
    if (!isWhole) {
      throw new StoreError('corrupt', `${database.path} does not say what it is: find out who changed it`);
    }
    if (name !== database.path) {
      throw new StoreError('refused', `the object of ${name} was asked for ${database.path}: look at its id`);
    }
    return { name, mark: hexOf(mark), store };
  }

  #checkName(object: string): void {
    const [, kind, name] = /^unalike:[a-z0-9-]{1,64}(?::(tag|leases):(.+))?$/s.exec(object) ?? [];
    if (kind === 'tag') {
      validatePublic(name as string);
    }
    if (!/^unalike:[a-z0-9-]{1,64}($|:(tag|leases):.)/s.test(object)) {
      throw new StoreError('refused', `${JSON.stringify(object)} is no name of an object of unalike's`);
    }
  }

  #begin(database: ObjectDatabase, name: string): Self {
    const { sql } = (this.ctx as ObjectState).storage;
    sql.exec(schema());
    sql.exec(SCHEMA);
    database.run('INSERT INTO object (id, version, name, members) VALUES (1, ?1, ?2, 0)', [VERSION, name]);
    const self = this.#self(database);
    if (self === null) {
      throw new StoreError('corrupt', `${name} could not be begun`);
    }
    return self;
  }

  /** The mark by which the root knows a member: that which is given, if it knows none. */
  #register(database: ObjectDatabase, name: string, mark: string, tagsMax: bigint): string {
    const [known] = database.run('SELECT mark FROM member WHERE name = ?1', [name]);
    if (typeof known?.['mark'] === 'string') {
      return known['mark'];
    }
    const [row] = database.run('SELECT members FROM object');
    if (name.startsWith(`${database.path}:tag:`)) {
      if (typeof row?.['members'] !== 'bigint' || row['members'] >= tagsMax) {
        const what = `the store has ${String(row?.['members'])} tags, and ${tagsMax} is its limit`;
        throw new StoreError('tag-limit', `${name} was not created: ${what}`);
      }
      database.run('UPDATE object SET members = members + 1');
    }
    database.run('INSERT INTO member (name, mark) VALUES (?1, ?2)', [name, mark]);
    return mark;
  }
}

function gone(object: string, known: string, found: string): StoreError {
  const what = `the object ${object} was ${known}, and is ${found}: its storage was deleted`;
  const page = 'See what a deletion costs, in the page on Workers';
  return new StoreError('refused', `${what}, and its numbers would repeat. ${page}`);
}

function otherStore(object: string, known: string, found: string): StoreError {
  const what = `the object ${object} is of the store ${found}, and ${known} was expected: its numbers would repeat`;
  return new StoreError('refused', `${what} those of the other one`);
}
