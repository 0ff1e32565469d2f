/**
 * The thread that waits for SQLite, so that the program does not: its event loop goes on while a grant is flushed, or
 * while another process holds the file.
 *
 * @module
 */

import { debuglog } from 'node:util';
import { parentPort, workerData } from 'node:worker_threads';

import { driver, type DriverName } from './sqlite-driver.js';
import { keepsOpen, SqliteFile } from './sqlite-file.js';
import { Statements, type Rules } from './sqlite-statements.js';
import { StoreError, type StoreErrorKind } from './store.js';

/** What the thread is begun with. */
export interface Begin {
  readonly path: string;
  readonly create: boolean;
  readonly busyTimeoutMs: number;
  readonly driver: DriverName | null;
  readonly rules: Rules;
}

/** The methods that may be asked for. */
export type Method =
  | 'allocate'
  | 'releaseTail'
  | 'openTag'
  | 'createTag'
  | 'bindFormat'
  | 'identity'
  | 'acquire'
  | 'extend'
  | 'releaseLease'
  | 'leaveLeases';

/** A request: whoever has no turn up to this instant, by `process.hrtime`, is told so, and nothing is done. */
export interface Request {
  readonly id: number;
  readonly method: Method | 'close';
  readonly args: readonly unknown[];
  readonly turnUntilNs: bigint;
}

/**
 * The answer; `id` 0 is that of the beginning: whether this made the store. `keepsOpen` says that the thread must not
 * be ended.
 */
export type Answer = { readonly id: number; readonly keepsOpen: boolean } & (
  | { readonly value: unknown }
  | { readonly kind: StoreErrorKind; readonly message: string }
);

/** Shown with `NODE_DEBUG=unalike`. */
const LOG = debuglog('unalike');

if (parentPort !== null) {
  serve(parentPort, workerData as Begin);
}

function serve(port: NonNullable<typeof parentPort>, begin: Begin): void {
  const answer = (id: number, work: () => unknown): void => {
    let answered: Answer;
    try {
      const value = work();
      answered = { id, value, keepsOpen: keepsOpen() };
    } catch (error) {
      if (!(error instanceof StoreError)) {
        throw error;
      }
      answered = { id, kind: error.kind, message: error.message, keepsOpen: keepsOpen() };
    }
    port.postMessage(answered);
  };
  let file: SqliteFile | null = null;
  let statements: Statements | null = null;
  answer(0, () => {
    file = new SqliteFile(begin.path, { ...begin, driver: driver(begin.driver) });
    statements = new Statements(file, begin.rules, (tag, next) => {
      LOG('%s: created a tag on first use: tag=%j next=%s', begin.path, tag, String(next));
    });
    return file.isNew;
  });
  port.on('message', ({ id, method, args, turnUntilNs }: Request) => {
    if (method === 'close') {
      answer(id, () => file?.close());
      if (!keepsOpen()) {
        port.close();
      }
      return;
    }
    answer(id, () => {
      if (process.hrtime.bigint() > turnUntilNs) {
        const what = 'no turn within the busy timeout: too many requests are waiting';
        throw new StoreError('unavailable', `${begin.path}: ${what}`);
      }
      const open = statements as unknown as Record<Method, (...args: readonly unknown[]) => unknown>;
      return open[method](...args);
    });
  });
}
