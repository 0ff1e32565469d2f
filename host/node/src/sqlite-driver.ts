/**
 * SQLite as this Node has it: `node:sqlite` where there is one, the package better-sqlite3 else.
 *
 * Both block the thread that calls them, so only the thread of `sqlite-worker.js` does. All whole numbers are `bigint`.
 *
 * @module
 */

import { statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

import type { Row, Value } from './sqlite-database.js';
import { StoreError } from './store.js';

/** Which driver: the first that there is, unless one is named. */
export type DriverName = 'node:sqlite' | 'better-sqlite3';

/** One connection. */
export interface Connection {
  /** Runs one statement, whose arguments are numbered, to its end: its commit, if it writes. */
  all(sql: string, args?: readonly Value[]): Row[];
  /** Runs statements. */
  exec(sql: string): void;
  close(): void;
}

/** How a file is opened. */
export type Opening =
  /** Only to look: nothing is written. */
  | 'look'
  | 'existing'
  | 'create';

/** Opens connections. */
export interface Driver {
  (path: string, opening: Opening): Connection;
  /** Tells this copy of SQLite from others in this process: hexadecimal digits. */
  readonly copy: string;
}

/** An error of SQLite's: its primary result code, or `null` where the driver failed by itself. */
export function resultCode(error: unknown): number | null {
  const { errcode, code } = error as { errcode?: unknown; code?: unknown };
  if (typeof errcode === 'number') {
    return errcode & 0xff;
  }
  // better-sqlite3 has the names of the extended codes.
  const name = typeof code === 'string' && code.startsWith('SQLITE_') ? code.slice(7) : '';
  return NAMES.find(([known]) => name === known || name.startsWith(`${known}_`))?.[1] ?? null;
}

/** The primary result codes, by name: <https://www.sqlite.org/rescode.html>. */
export const CODES = {
  ERROR: 1,
  INTERNAL: 2,
  PERM: 3,
  ABORT: 4,
  BUSY: 5,
  LOCKED: 6,
  NOMEM: 7,
  READONLY: 8,
  INTERRUPT: 9,
  IOERR: 10,
  CORRUPT: 11,
  NOTFOUND: 12,
  FULL: 13,
  CANTOPEN: 14,
  PROTOCOL: 15,
  SCHEMA: 17,
  TOOBIG: 18,
  CONSTRAINT: 19,
  MISMATCH: 20,
  MISUSE: 21,
  AUTH: 23,
  FORMAT: 24,
  RANGE: 25,
  NOTADB: 26,
} as const;

const NAMES = Object.entries(CODES);

/**
 * The driver of this name, or the first that there is.
 *
 * @throws {StoreError} `refused` when there is none.
 */
export function driver(name: DriverName | null): Driver {
  const found = (name !== 'better-sqlite3' && ofNode()) || (name !== 'node:sqlite' && ofPackage());
  if (!found) {
    const what = name === null ? 'neither node:sqlite nor the package better-sqlite3' : `no ${name}`;
    const node = `this Node is ${process.version}`;
    throw new StoreError('refused', `there is ${what} (${node}): npm install better-sqlite3, or use Node 22.13 or newer`);
  }
  return found;
}

interface NodeStatement {
  setReadBigInts(enabled: boolean): void;
  all(named: Record<string, Value>): Row[];
}

interface NodeDatabase {
  prepare(sql: string): NodeStatement;
  exec(sql: string): void;
  close(): void;
}

type NodeSqlite = { DatabaseSync: new (path: string | URL, options?: { readOnly?: boolean }) => NodeDatabase };

function ofNode(): Driver | null {
  const { getBuiltinModule } = process as { getBuiltinModule?: (name: string) => unknown };
  const found = getBuiltinModule?.('node:sqlite') as NodeSqlite | undefined;
  if (found === undefined) {
    return null;
  }
  const { DatabaseSync } = found;
  const open = (path: string, opening: Opening): NodeDatabase => {
    if (!takesUrls()) {
      return new DatabaseSync(path, { readOnly: opening === 'look' });
    }
    const url = pathToFileURL(path);
    // An immutable connection reads only the file, takes no lock and leaves no other files behind.
    url.search = { look: 'mode=ro&immutable=1', existing: 'mode=rw', create: 'mode=rwc' }[opening];
    return new DatabaseSync(url);
  };
  const connect = (path: string, opening: Opening) => {
    const database = open(path, opening);
    return connection(database, (sql) => {
      const statement = database.prepare(sql);
      statement.setReadBigInts(true);
      return (args) => statement.all(args);
    });
  };
  return Object.assign(connect, { copy: copyIn(process.execPath) });
}

/** A library is loaded once, by whatever path: what tells its file from others tells the copy. */
function copyIn(library: string): string {
  const { dev, ino } = statSync(library, { bigint: true });
  return dev.toString(16) + ino.toString(16).padStart(16, '0');
}

/** Parameters in the address of a file came with Node 22.15 and 23.10. */
function takesUrls(): boolean {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  return major > 23 || (major === 23 && minor >= 10) || (major === 22 && minor >= 15);
}

interface PackageStatement {
  all(named: Record<string, Value>): Row[];
  run(named: Record<string, Value>): unknown;
  readonly reader: boolean;
}

interface PackageDatabase {
  prepare(sql: string): PackageStatement;
  exec(sql: string): unknown;
  defaultSafeIntegers(enabled: boolean): unknown;
  close(): unknown;
}

type Package = new (path: string, options: { readonly: boolean; fileMustExist: boolean }) => PackageDatabase;

function ofPackage(): Driver | null {
  const require = createRequire(import.meta.url);
  let Database: Package;
  try {
    Database = require('better-sqlite3') as Package;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'MODULE_NOT_FOUND') {
      return null;
    }
    throw error;
  }
  const connect = (path: string, opening: Opening) => {
    const database = new Database(path, { readonly: opening === 'look', fileMustExist: opening !== 'create' });
    database.defaultSafeIntegers(true);
    return connection(database, (sql) => {
      const statement = database.prepare(sql);
      return (args) => {
        if (statement.reader) {
          return statement.all(args);
        }
        statement.run(args);
        return [];
      };
    });
  };
  let library = require.resolve('better-sqlite3');
  try {
    library = require.resolve('better-sqlite3/build/Release/better_sqlite3.node');
  } catch {
    // It was built elsewhere: each copy of the package has its own, most likely.
  }
  return Object.assign(connect, { copy: copyIn(library) });
}

type Run = (args: Record<string, Value>) => Row[];

function connection(
  database: { exec(sql: string): unknown; close(): unknown },
  prepare: (sql: string) => Run,
): Connection {
  const prepared = new Map<string, Run>();
  return {
    all(sql, args = []) {
      let run = prepared.get(sql);
      if (run === undefined) {
        // Neither driver binds arguments by number: `?1` becomes `:p1`.
        run = prepare(sql.replace(/\?(\d+)/g, ':p$1'));
        prepared.set(sql, run);
      }
      return run(Object.fromEntries(args.map((arg, at) => [`p${at + 1}`, arg])));
    },
    exec: (sql) => void database.exec(sql),
    close: () => void database.close(),
  };
}
