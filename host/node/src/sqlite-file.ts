/**
 * The connections to a store's file, and whether that is still the file that others find.
 *
 * Whoever deletes, moves or replaces the file of a store, or one of the two beside it, leaves the programs that have it
 * open with files that nobody else sees. They and a program that opens what is there now would be granted the same
 * numbers. So every grant is followed by a look, by name, at the files: while those that are open are found, whoever
 * comes later opens these, and what was committed before the look is in them. Once others were found, or none, the
 * store grants nothing more, also when the file is put back: what others were granted meanwhile is not in it. The
 * connections stay open until the store is closed, so the log (`-wal`) and its index (`-shm`) stay the same files, and
 * another one under either name is an operator's doing.
 *
 * The file is opened by no means but SQLite's: closing a file drops all locks that this process holds on it. Whether
 * some other code did that is looked at, too (`sqlite-locks`).
 *
 * @module
 */

import { existsSync, readFileSync, realpathSync, statSync, type BigIntStats } from 'node:fs';
import { basename, dirname, join } from 'node:path';

import { ClockSteps, type Expiry } from './lease-rules.js';
import { damaged, GRANTING, type Database, type Row, type Rows, type Value } from './sqlite-database.js';
import {
  CODES,
  resultCode,
  type Connection,
  type Driver,
  type Opening,
} from './sqlite-driver.js';
import { Mark, Watch, type File, type Three } from './sqlite-locks.js';
import { StoreError, type StoreErrorKind } from './store.js';

/** Marks the file as unalike's, in its header: "unal" in ASCII. */
const APPLICATION_ID = 0x756e616cn;
/** The version of the schema, in the file's header. */
const USER_VERSION = 2n;
/** The version before, which `upgrade` makes into this one. */
const USER_VERSION_BEFORE = 1n;
/** How long to wait for another process that is just creating the file, before the next look at it. */
const RETRY_MS = 5;

const NAMES = [
  'schema',
  'upgrade',
  'lacks_identity',
  'give_identity',
  'counts_sub_keys',
  'count_tags_alone',
  'clock',
  ...GRANTING,
] as const;

/** In a package the files lie beside the code; in a checkout they are where the Rust adapter has them. */
const PLACES = ['./sql/sqlite/', '../../../adapters/sqlite/src/sql/'];

/** The very statements of the Rust adapter, by the names of their files. */
const SQL = readStatements();

function readStatements(): Readonly<Record<(typeof NAMES)[number], string>> {
  const place = PLACES.map((place) => new URL(place, import.meta.url)).find((place) => existsSync(place));
  if (place === undefined) {
    throw new Error('the folder sql/sqlite is missing beside the code: install the package again');
  }
  const read = (name: string) => [name, readFileSync(new URL(`${name}.sql`, place), 'utf8')];
  return Object.fromEntries(NAMES.map(read)) as Record<(typeof NAMES)[number], string>;
}

/** What must not be closed: that would close what is not SQLite's any more, or drop the locks of others. */
const KEPT: Connection[][] = [];

/** Whether this thread has connections that must not be closed, as its end would. */
export function keepsOpen(): boolean {
  return KEPT.length > 0;
}

/** The open file. Everything here blocks. */
export class SqliteFile implements Database {
  readonly path: string;
  readonly sql = SQL;
  /** Whether this made the store. */
  readonly isNew: boolean;
  readonly #busyTimeoutMs: number;
  readonly #driver: Driver;
  readonly #steps = new ClockSteps();
  readonly #writer: Connection;
  readonly #reader: Connection;
  readonly #mark: Mark;
  readonly #paths: Three<string>;
  readonly #files: Three<File>;
  readonly #watch: Watch;
  /** Which name lost its file, and how. */
  #loss: readonly [path: string, what: string] | null = null;

  /** @throws {StoreError} */
  constructor(path: string, options: { create: boolean; busyTimeoutMs: number; driver: Driver }) {
    this.path = path;
    this.#busyTimeoutMs = options.busyTimeoutMs;
    this.#driver = options.driver;
    lookAtFile(path, options.create);
    this.#mark = new Mark(resolved(path), options.driver.copy);
    const opened: Connection[] = [];
    const open = (opening: Opening): Connection => {
      const connection = this.#connect(opening);
      opened.push(connection);
      this.#set(connection);
      return connection;
    };
    let isWatched = true;
    try {
      if (existsSync(path)) {
        this.#checkHeader();
      }
      this.#writer = open(options.create ? 'create' : 'existing');
      this.isNew = this.#prepareFile();
      this.#reader = open('existing');
      // SQLite keeps the other two beside the file itself, wherever a symbolic link to it is.
      const real = realpathSync(path);
      this.#paths = [path, `${real}-wal`, `${real}-shm`];
      this.#files = this.#hold();
      isWatched = false;
      this.#watch = new Watch(this.#paths, this.#files);
      isWatched = true;
      this.#proveWritable();
    } catch (error) {
      if (isWatched) {
        opened.forEach((connection) => connection.close());
        this.#mark.remove();
      } else {
        KEPT.push(opened);
      }
      throw error;
    }
    try {
      // What it shows from now on is compared with this. One that cannot be read is told of by who needs it.
      this.readClock();
    } catch (error) {
      if (!(error instanceof StoreError)) {
        throw error;
      }
    }
  }

  /**
   * Runs one statement that writes, to its end, and answers its rows. They come before its commit, so they count only
   * after it; and only if the files that are open are still those that others find.
   */
  write(doing: string, sql: string, args: readonly Value[] = []): Row[] {
    this.check();
    let rows: Row[];
    try {
      rows = this.#writer.all(sql, args);
    } catch (error) {
      throw writeError(this.path, doing, error);
    }
    this.check(true);
    return rows;
  }

  /** Runs one statement that reads. */
  read(doing: string, sql: string, args: readonly Value[] = []): Row[] {
    this.check();
    try {
      return this.#reader.all(sql, args);
    } catch (error) {
      throw readError(this.path, doing, error);
    }
  }

  /** Several statements that read at one instant; they keep nobody from writing. */
  reading<T>(doing: string, work: (rows: Rows) => T): T {
    this.check();
    const failed = (error: unknown) => (error instanceof StoreError ? error : readError(this.path, doing, error));
    try {
      this.#reader.exec('BEGIN');
      return work((sql, args) => this.#reader.all(sql, args));
    } catch (error) {
      throw failed(error);
    } finally {
      rollBack(this.#reader);
    }
  }

  /** The store's clock, in Unix milliseconds. */
  readClock(): bigint {
    const askedNs = process.hrtime.bigint();
    const [row] = this.read('reading the clock', SQL.clock);
    const nowMs = row === undefined ? null : Object.values(row)[0];
    if (typeof nowMs !== 'bigint' || nowMs < 0n) {
      throw new StoreError('unavailable', `the store's clock is before 1970 (${String(nowMs)} ms): set it`);
    }
    this.#steps.read(askedNs, process.hrtime.bigint(), nowMs);
    return nowMs;
  }

  /** Which leases have ended, by this reading of the clock. */
  expiry(storeMs: bigint, maxHorizonMs: bigint): Expiry {
    return this.#steps.expiry(process.hrtime.bigint(), storeMs, maxHorizonMs);
  }

  /**
   * Refuses to go on when other files than those that are open have their names, or none has, or that was noticed
   * before, or when the locks on them are gone.
   *
   * Some looks at what the kernel has at hand: microseconds, before a flush of milliseconds.
   *
   * @param isGranted Looks also whether a second copy of SQLite may have disregarded the lock meanwhile.
   */
  check(isGranted = false): void {
    if (isGranted) {
      this.#watch.checkAlone();
    } else {
      this.#watch.check();
    }
    this.#paths.forEach((path, at) => {
      if (this.#loss !== null) {
        throw gone(...this.#loss);
      }
      const found = find(path);
      const held = this.#files[at] as File;
      if (found === null || found[0] !== held[0] || found[1] !== held[1]) {
        this.#loss = [path, found === null ? DELETED : 'was replaced'];
        throw gone(...this.#loss);
      }
    });
  }

  close(): void {
    if (!this.#watch.isSound()) {
      KEPT.push([this.#reader, this.#writer]);
      return;
    }
    this.#reader.close();
    this.#writer.close();
    this.#mark.remove();
  }

  #connect(opening: Opening): Connection {
    try {
      return this.#driver(this.path, opening);
    } catch (error) {
      throw openError(this.path, error);
    }
  }

  #set(connection: Connection): void {
    let synchronous: unknown;
    try {
      connection.exec(`PRAGMA busy_timeout = ${this.#busyTimeoutMs}`);
      connection.exec('PRAGMA foreign_keys = ON');
      connection.exec('PRAGMA synchronous = FULL');
      // On macOS fsync alone leaves data in the drive's cache; elsewhere these two do nothing.
      connection.exec('PRAGMA fullfsync = ON');
      connection.exec('PRAGMA checkpoint_fullfsync = ON');
      synchronous = connection.all('PRAGMA synchronous')[0]?.['synchronous'];
    } catch (error) {
      throw openError(this.path, error);
    }
    if (synchronous !== 2n) {
      const what = `this SQLite cannot be told to flush each commit (synchronous is ${String(synchronous)})`;
      throw new StoreError('refused', `${this.path}: ${what}`);
    }
  }

  /**
   * Refuses a file that is not ours before anything could change it.
   *
   * What is seen may be older than the log, so it is looked at again later. It may also be half of what another process
   * is just writing while it creates the file, so a refusal needs a second look.
   */
  #checkHeader(): void {
    const look = (): void => {
      const connection = this.#connect('look');
      try {
        this.#schemaVersion(connection);
      } catch (error) {
        throw error instanceof StoreError ? error : openError(this.path, error);
      } finally {
        connection.close();
      }
    };
    try {
      look();
    } catch {
      sleep(RETRY_MS);
      look();
    }
  }

  /** The version of the store's schema, one that this program can use; `null` when the file is empty. */
  #schemaVersion(connection: Connection): bigint | null {
    const applicationId = value(connection, 'PRAGMA application_id');
    const version = value(connection, 'PRAGMA user_version');
    if (applicationId === APPLICATION_ID) {
      if (version === USER_VERSION_BEFORE || version === USER_VERSION) {
        return version;
      }
      if (version > USER_VERSION) {
        const known = `schema ${version}, this one knows ${USER_VERSION}`;
        const what = `${this.path} was written by a newer version of unalike (${known}): upgrade this process`;
        throw new StoreError('refused', what);
      }
      throw damaged(this.path, `its schema has the version ${version}`);
    }
    const isEmpty =
      applicationId === 0n && version === 0n && value(connection, 'SELECT count(*) FROM sqlite_schema') === 0n;
    if (isEmpty) {
      return null;
    }
    const whose = `the database of another program (application id 0x${applicationId.toString(16)})`;
    throw new StoreError('refused', `${this.path} is ${whose}: name another file`);
  }

  /**
   * Creates the tables in a new file, or checks those of an old one, and switches the file to write-ahead logging.
   * Answers whether it created them.
   */
  #prepareFile(): boolean {
    let version: bigint | null;
    try {
      // In a transaction, so that all of it is read before or after another process creates the tables.
      this.#writer.exec('BEGIN');
      version = this.#schemaVersion(this.#writer);
    } catch (error) {
      throw error instanceof StoreError ? error : openError(this.path, error);
    } finally {
      rollBack(this.#writer);
    }
    const isNew = version !== USER_VERSION && this.#writeSchema();
    this.#changeSchema('counting tags without their sub-keys', SQL.counts_sub_keys, SQL.count_tags_alone);
    this.#changeSchema('giving the store an identity', SQL.lacks_identity, SQL.give_identity);
    for (let triesLeft = Math.floor(this.#busyTimeoutMs / RETRY_MS); ; triesLeft -= 1) {
      try {
        const mode = this.#writer.all('PRAGMA journal_mode = WAL').map((row) => row['journal_mode']);
        if (mode.length === 1 && mode[0] === 'wal') {
          return isNew;
        }
        const what = `write-ahead logging is not possible there (journal mode ${JSON.stringify(mode)})`;
        throw new StoreError('refused', `${this.path}: ${what}: use a local disk`);
      } catch (error) {
        if (error instanceof StoreError) {
          throw error;
        }
        // Two processes that start at once: SQLite does not wait by itself in this statement.
        const code = resultCode(error);
        if ((code !== CODES.BUSY && code !== CODES.LOCKED) || triesLeft <= 0) {
          throw writeError(this.path, 'switching to write-ahead logging', error);
        }
        sleep(RETRY_MS);
      }
    }
  }

  /** Creates the tables, or upgrades them; answers whether it created them. */
  #writeSchema(): boolean {
    let isNew = false;
    this.#exclusively('writing the schema', () => {
      // Another process may have been quicker.
      const version = this.#schemaVersion(this.#writer);
      if (version !== USER_VERSION) {
        isNew = version === null;
        this.#writer.exec(isNew ? SQL.schema : SQL.upgrade);
      }
    });
    return isNew;
  }

  /** Runs statements that change the schema of an earlier program, if this question has the answer 1 or more. */
  #changeSchema(doing: string, isDue: string, statements: string): void {
    try {
      if (value(this.#writer, isDue) === 0n) {
        return;
      }
    } catch (error) {
      throw openError(this.path, error);
    }
    this.#exclusively(doing, () => {
      // Another process may have been quicker.
      if (value(this.#writer, isDue) > 0n) {
        this.#writer.exec(statements);
      }
    });
  }

  #exclusively(doing: string, work: () => void): void {
    try {
      this.#writer.exec('BEGIN EXCLUSIVE');
      work();
      this.#writer.exec('COMMIT');
    } catch (error) {
      rollBack(this.#writer);
      throw error instanceof StoreError ? error : writeError(this.path, doing, error);
    }
  }

  /** Holds on to the files as they are now, of a store that is in write-ahead mode. */
  #hold(): Three<File> {
    checkMount(this.path);
    try {
      this.#reader.exec('PRAGMA query_only = ON');
      // A connection opens the log, and its index, when it first reads.
      this.#reader.all('SELECT id FROM store');
    } catch (error) {
      throw openError(this.path, error);
    }
    const [file, log, index] = this.#paths;
    return [lookAt(file), lookAt(log), lookAt(index)];
  }

  /** Takes the write lock and gives it back. */
  #proveWritable(): void {
    try {
      // It writes nothing, but SQLite takes the lock first.
      this.#writer.all('UPDATE store SET tags = tags WHERE id = 0');
    } catch (error) {
      throw readError(this.path, 'checking that the store can be written to', error);
    }
  }
}

function rollBack(connection: Connection): void {
  try {
    connection.exec('ROLLBACK');
  } catch {
    // There was none, or SQLite has rolled back by itself after an error.
  }
}

function value(connection: Connection, sql: string): bigint {
  const [row] = connection.all(sql);
  const found = row === undefined ? null : Object.values(row)[0];
  return typeof found === 'bigint' ? found : 0n;
}

/** Where the file is, or is to be made. */
function resolved(path: string): string {
  return existsSync(path) ? realpathSync(path) : join(realpathSync(dirname(path)), basename(path));
}

function sleep(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

/** Checks what can be seen without opening the file. */
function lookAtFile(path: string, create: boolean): void {
  let found: BigIntStats | undefined;
  try {
    found = statSync(path, { bigint: true, throwIfNoEntry: false });
  } catch (error) {
    const what = `${path} cannot be looked at: this user must be able to enter its directory`;
    throw new StoreError('refused', what, { cause: error });
  }
  if (found === undefined) {
    const directory = dirname(path);
    if (!statSync(directory, { throwIfNoEntry: false })?.isDirectory()) {
      throw new StoreError('refused', `the directory ${directory} does not exist: create it`);
    }
    if (existsSync(`${path}-wal`)) {
      throw new StoreError(
        'refused',
        `${path} does not exist, and its log ${path}-wal does: it was deleted or moved while a program had it ` +
          'open. Stop all programs that use the store and put the file back beside its log. If it is lost, remove ' +
          'the log, put a backup or a new store there (unalike tags create), and run `unalike store restored --lift ' +
          'COUNT` before any program uses it',
      );
    }
    if (!create) {
      const what = `${path} does not exist, and is not to be made here (create is false): check the path`;
      throw new StoreError('refused', what);
    }
    return;
  }
  if (found.isDirectory()) {
    throw new StoreError('refused', `${path} is a directory: name a file in it`);
  }
  if (found.size === 0n && !create) {
    const what = 'restore it from a backup, or have it made anew (create) if nothing was ever handed out from it';
    throw new StoreError('refused', `${path} is empty: ${what}`);
  }
}

/** What became of a file that has no name any more. */
const DELETED = 'was deleted or moved';

function lookAt(path: string): File {
  const found = find(path);
  if (found === null) {
    throw gone(path, DELETED);
  }
  return found;
}

/** The file that has this name; `null` if none has. */
function find(path: string): File | null {
  let found: BigIntStats | undefined;
  try {
    found = statSync(path, { bigint: true, throwIfNoEntry: false });
  } catch (error) {
    const why = 'so nobody knows whether it is still the one that others use';
    const what = `${path} cannot be looked at, ${why}: this user must be able to enter its directory`;
    throw new StoreError('unavailable', what, { cause: error });
  }
  if (found === undefined) {
    return null;
  }
  if (process.platform === 'win32') {
    // There a file that is open is not deleted.
    return [0n, 0n];
  }
  if (found.nlink > 1n) {
    // Another name has another log: programs that use both grant the same numbers.
    throw new StoreError(
      'refused',
      `${path} has ${found.nlink} names (hard links), and a program that uses another one would grant the same ` +
        "numbers: remove the others; a copy of the file is made with `sqlite3 FILE 'VACUUM INTO ..'`",
    );
  }
  return [found.dev, found.ino];
}

/**
 * Refuses a file that was mounted by itself, as containers do with single files: its log would lie in another
 * directory, which the next container has not, and what was committed last would be lost with it.
 */
function checkMount(path: string): void {
  let mounts: string;
  try {
    mounts = readFileSync('/proc/self/mountinfo', 'utf8');
  } catch {
    return;
  }
  // Spaces and the like are written as octal numbers.
  const octal = (character: string) => `\\${character.charCodeAt(0).toString(8).padStart(3, '0')}`;
  const written = realpathSync(path).replace(/[\\ \t\n]/g, octal);
  if (mounts.split('\n').some((line) => line.split(' ')[4] === written)) {
    throw new StoreError(
      'refused',
      `${path} is mounted as a single file, so its log (${path}-wal) would lie elsewhere, and with it what was ` +
        'granted last: mount the directory that the file is in',
    );
  }
}

function gone(path: string, what: string): StoreError {
  return new StoreError(
    'refused',
    `${path} ${what} while this process had it open: whoever opens the store now would be granted numbers that ` +
      'were granted before, so this process grants none any more. Stop all programs that use the store. If the ' +
      'database itself is in its place, a second copy of SQLite may have removed what is beside it: start them again, ' +
      'with one copy. If the file is there under another name, move it back, with its -wal and -shm, and start them ' +
      'again. If it is lost, put a backup or a new store there (unalike tags create), and run ' +
      '`unalike store restored --lift COUNT` before any program uses it',
  );
}

type Advice = readonly [StoreErrorKind, string];

const HELD: Advice = ['unavailable', "another process holds the file's write lock for longer than the busy timeout"];
const ROLLED_BACK: Advice = ['unavailable', 'the statement was broken off and rolled back'];
const MAY_NOT: Advice = [
  'refused',
  'this process may not write: make the file and its directory writable for its user',
];
const NO_DATABASE: Advice = [
  'corrupt',
  'is not a SQLite database: name another file. If unalike made this one, its beginning was overwritten: stop ' +
    'all processes, restore it from a backup, and raise every tag above what was handed out since (or start a new ' +
    'file under new tags)',
];
const ADVICE: ReadonlyMap<number, Advice> = new Map<number, Advice>([
  [CODES.BUSY, HELD],
  [CODES.LOCKED, HELD],
  [CODES.PROTOCOL, HELD],
  // The pages did not fit the write-ahead log, so its commit record was never written, and SQLite has rolled the
  // transaction back: nothing was granted.
  [
    CODES.FULL,
    [
      'unavailable',
      'the disk that the file is on is full, so nothing was written and nothing was granted: free some space ' +
        'there, and it goes on by itself',
    ],
  ],
  [CODES.CANTOPEN, ['unavailable', 'the file or its -wal or -shm file cannot be opened']],
  [CODES.NOMEM, ROLLED_BACK],
  [CODES.INTERRUPT, ROLLED_BACK],
  [CODES.ABORT, ROLLED_BACK],
  [CODES.SCHEMA, ROLLED_BACK],
  [CODES.READONLY, MAY_NOT],
  [CODES.PERM, MAY_NOT],
  [CODES.AUTH, MAY_NOT],
  // SQLite says the same of a page that makes no sense and of one that the disk could not read.
  [
    CODES.CORRUPT,
    [
      'corrupt',
      'the disk reported an input/output error while it read the file, or the file is damaged. Look for disk ' +
        "errors in the system's log (dmesg) first: if there are some, the file may be whole, so stop all programs " +
        'that use it, copy it with its -wal and -shm to a disk that works, and start them there. If there are ' +
        'none, stop them, restore the file from a backup, and raise every tag above what was handed out since (or ' +
        'start a new file under new tags)',
    ],
  ],
  [CODES.NOTADB, NO_DATABASE],
  [CODES.FORMAT, NO_DATABASE],
  [
    CODES.IOERR,
    [
      'outcome-unknown',
      'the disk reported an input/output error while it read or wrote the file or its -wal. It goes on by itself ' +
        "when the disk works again; look at the system's log (dmesg), and if the errors stay, stop all programs " +
        'that use the file and move it, with its -wal and -shm, to another disk',
    ],
  ],
]);

/**
 * The error of a statement that writes, or of its commit.
 *
 * The question that matters is whether the commit may be in the file although it was reported as failed. SQLite rolls a
 * transaction back in the file on every error but one kind: after an I/O error (a failed fsync above all) the commit
 * record may have reached the disk, and a recovery would find it valid. So I/O errors, and everything that is not
 * known, are of unknown outcome.
 */
function writeError(path: string, doing: string, error: unknown): StoreError {
  const code = resultCode(error);
  // Our own statements are refused only when a row breaks an invariant of the schema; it was rolled back.
  const refused: Advice = ['refused', 'SQLite refused the statement'];
  const advice: Advice =
    code === null ? ['outcome-unknown', 'the connection broke'] : (ADVICE.get(code) ?? refused);
  const what = advice === NO_DATABASE ? `${path} ${advice[1]}` : `${doing}, in ${path}: ${advice[1]}`;
  return new StoreError(advice[0], `${what} (${(error as Error).message})`);
}

/** The error of a statement that only reads: nothing can have been granted. */
function readError(path: string, doing: string, error: unknown): StoreError {
  const told = writeError(path, doing, error);
  return told.kind === 'outcome-unknown' ? new StoreError('unavailable', told.message) : told;
}

/** The error of opening the file: what exists and cannot be opened is a matter of permissions. */
function openError(path: string, error: unknown): StoreError {
  if (resultCode(error) === CODES.CANTOPEN) {
    const what = 'it cannot be opened: this user must be able to read and write the file and its directory';
    return new StoreError('refused', `opening ${path}: ${what} (${(error as Error).message})`);
  }
  return readError(path, 'opening', error);
}
