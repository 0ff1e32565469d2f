/**
 * Whether the locks that SQLite took for this process are still there, and whether it is the only SQLite in it.
 *
 * SQLite uses POSIX record locks, which belong to a process as a whole. The process loses all its locks on a file when
 * _any_ descriptor of that file is closed in it: by a second copy of SQLite (two versions of a driver, say), or by code
 * that reads the file. Nothing tells. Two processes may then be granted the same numbers.
 *
 * SQLite takes two locks when it opens a store, and keeps them until it closes it: one on the file, one on the index of
 * its log (`-shm`). Linux shows in `/proc/self/fdinfo` by which descriptor a lock was taken. As long as both are shown
 * at the descriptors that took them, nothing was closed since. A second copy of SQLite that is still open has a
 * descriptor of the index of its own, so there is more than one. Both are looked at after each grant, before it is
 * believed. Elsewhere nothing is noticed.
 *
 * @module
 */

import { closeSync, fstatSync, openSync, readdirSync, readFileSync, readlinkSync, statSync, unlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';

import { StoreError } from './store.js';

/** What tells a file from any other, whatever its name. */
export type File = readonly [device: bigint, inode: bigint];

/** The file, its log and the index of that. */
export type Three<T> = readonly [T, T, T];

/** Which file, from which byte on, how many: <https://www.sqlite.org/walformat.html>, section 2.3. */
const IN_USE_LOCKS = [
  [0, 0x40000002n, 510n],
  [2, 128n, 1n],
] as const;

/** The list of the process is empty once its first thread has ended; that of a thread is the same. */
const OWN = '/proc/thread-self';
/** So much of a file's name is told by a mark, from its end, as in the Rust library. */
const NAME_MAX_BYTES = 150;

function isSame(one: File | null, other: File): boolean {
  return one !== null && one[0] === other[0] && one[1] === other[1];
}

/** What a descriptor of this process is; `null` if it is closed. */
function fileOf(descriptor: number): File | null {
  try {
    const { dev, ino } = fstatSync(descriptor, { bigint: true });
    return [dev, ino];
  } catch {
    return null;
  }
}

/** The numbers of all descriptors; `null` where the system does not list them. */
function descriptors(): number[] | null {
  try {
    return readdirSync(`${OWN}/fd`).map(Number);
  } catch (error) {
    return unlessFull('descriptors', error, null);
  }
}

function unlessFull<T>(what: string, error: unknown, otherwise: T): T {
  const { code, message } = error as NodeJS.ErrnoException;
  if (code === 'EMFILE' || code === 'ENFILE' || code === 'ENOMEM') {
    const why = `the ${what} of this process cannot be looked at, so nothing is granted (${message})`;
    throw new StoreError('unavailable', why, { cause: error });
  }
  return otherwise;
}

/** Those of a file. No file is opened for it. */
function descriptorsOf(file: File): number[] | null {
  return descriptors()?.filter((descriptor) => isSame(fileOf(descriptor), file)) ?? null;
}

/** What the system tells of a descriptor. */
function told(descriptor: number): string {
  try {
    return readFileSync(`${OWN}/fdinfo/${descriptor}`, 'latin1');
  } catch (error) {
    return unlessFull('locks', error, '');
  }
}

/** Whether this process took a POSIX lock of these bytes by a descriptor, and still has it. */
function hasLock(descriptor: number, start: bigint, length: bigint): boolean {
  // lock:  1: POSIX  ADVISORY  READ 6875 fe:00:10010755 128 128
  return told(descriptor).split('\n').some((line) => {
    const [name, , kind, , , , , first = '', last = ''] = line.split(/\s+/);
    const isPosix = name === 'lock:' && kind === 'POSIX' && BigInt(first) <= start;
    return isPosix && (last === 'EOF' || BigInt(last) >= start + length - 1n);
  });
}

/** The locks of one store as they were when it was opened. */
export class Watch {
  readonly #paths: Three<string>;
  readonly #index: File;
  readonly #isSeen: boolean;
  readonly #taken: { at: 0 | 2; file: File; descriptor: number; start: bigint; length: bigint }[] = [];

  /** @throws {StoreError} `refused` when they are not those of one SQLite alone. */
  constructor(paths: Three<string>, files: Three<File>) {
    this.#paths = paths;
    this.#index = files[2];
    const found = descriptorsOf(this.#index);
    this.#isSeen = found !== null;
    if (found === null) {
      return;
    }
    if (found.length !== 1) {
      throw openTwice(paths[2]);
    }
    // Linux shows the locks, too, where it shows this; other systems that imitate it show neither.
    if (!found.some((descriptor) => told(descriptor).includes('mnt_id:'))) {
      return;
    }
    for (const [at, start, length] of IN_USE_LOCKS) {
      const file = files[at];
      const descriptor = descriptorsOf(file)?.find((each) => hasLock(each, start, length));
      if (descriptor === undefined) {
        throw this.#lost(at);
      }
      this.#taken.push({ at, file, descriptor, start, length });
    }
  }

  /**
   * Refuses when a lock is gone: two looks at what the kernel has at hand.
   *
   * @throws {StoreError} `refused`
   */
  check(): void {
    for (const { at, file, descriptor, start, length } of this.#taken) {
      if (!isSame(fileOf(descriptor), file) || !hasLock(descriptor, start, length)) {
        throw this.#lost(at);
      }
    }
  }

  /**
   * Refuses when another copy of SQLite has the index open, too; and then as {@link check}. In this order: one that is
   * closed meanwhile takes the locks with it.
   *
   * @throws {StoreError} `refused`
   */
  checkAlone(): void {
    if (this.#isSeen && (descriptorsOf(this.#index) ?? []).length > 1) {
      throw openTwice(this.#paths[2]);
    }
    this.check();
  }

  /** Whether SQLite may close what it has open here. */
  isSound(): boolean {
    try {
      this.checkAlone();
      return true;
    } catch {
      return false;
    }
  }

  #lost(at: 0 | 2): StoreError {
    return new StoreError(
      'refused',
      `${this.#paths[at]}: this process has lost its locks, since something in it closed a descriptor of this ` +
        'file: a second copy of SQLite, or code that opened the file itself. Others may be granted the same numbers, ' +
        'so this process grants none any more. Restart it, with one copy of SQLite',
    );
  }
}

/** Two copies of SQLite in one process undo each other's locks. */
function openTwice(path: string): StoreError {
  return new StoreError(
    'refused',
    `something else in this process has ${path} open: a second copy of unalike or of SQLite, or code that opened the ` +
      "file itself. They undo each other's locks, and others would be granted the same numbers. Load one copy of each " +
      '(npm ls unalike better-sqlite3), and pass the same driver to every store; if the program opens the file with ' +
      'that driver, too, let it open this store first',
  );
}

/**
 * Tells the other threads and copies of this library that a file is open, or about to be, and by which copy of SQLite:
 * by the name of a file that is deleted at once, which they find among the descriptors of the process. The Rust and
 * Python libraries do so by a file in memory, which Node cannot make (`adapters/sqlite/src/copies.rs`).
 */
export class Mark {
  #descriptor: number | null = null;
  #file: File | null = null;

  /**
   * Before SQLite looks at the file.
   *
   * @param file Where it is, without symbolic links.
   * @param copy Tells this copy of SQLite from others: hexadecimal digits.
   * @throws {StoreError} `refused` when another copy has it open.
   */
  constructor(file: string, copy: string) {
    if (process.platform !== 'linux') {
      return;
    }
    const { dev, ino } = statSync(dirname(file), { bigint: true });
    const end = Buffer.from(basename(file)).subarray(-NAME_MAX_BYTES).toString('latin1');
    const name = `unalike-sqlite-${process.pid}-${dev.toString(16)}-${ino.toString(16)}-${end}-`;
    this.#set(Buffer.from(tmpdir()).toString('latin1'), name + copy);
    // After it was marked: of two copies that open the file at once, one sees the other's.
    const marks = marksOf(name, this.#descriptor);
    if (marks.some((by) => by !== copy)) {
      this.remove();
      throw openTwice(file);
    }
    // Where nothing can be marked, what other threads have open cannot be told from what other copies have.
    const index = statSync(`${file}-shm`, { bigint: true, throwIfNoEntry: false });
    if (this.#descriptor !== null && index !== undefined && marks.length === 0) {
      // SQLite empties the index when it sees nobody else's lock, and it does not see those of its own process.
      if ((descriptorsOf([index.dev, index.ino]) ?? []).length > 0) {
        this.remove();
        throw openTwice(`${file}-shm`);
      }
    }
  }

  /** After the last connection was closed. */
  remove(): void {
    const descriptor = this.#descriptor;
    this.#descriptor = null;
    if (descriptor !== null && this.#file !== null && isSame(fileOf(descriptor), this.#file)) {
      closeSync(descriptor);
    }
  }

  #set(folder: string, name: string): void {
    // Two stores of one thread may have the same file.
    for (let tries = 0; tries < 10; tries += 1) {
      const path = Buffer.from(join(folder, `${name} ${process.hrtime.bigint()}`), 'latin1');
      try {
        this.#descriptor = openSync(path, 'wx', 0o600);
        unlinkSync(path);
        this.#file = fileOf(this.#descriptor);
        return;
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EEXIST') {
          return;
        }
      }
    }
  }
}

/** By which copies a file is marked, apart from one mark. */
function marksOf(name: string, own: number | null): string[] {
  const found: string[] = [];
  for (const descriptor of descriptors() ?? []) {
    let target: string;
    try {
      target = readlinkSync(`${OWN}/fd/${descriptor}`, 'latin1');
    } catch {
      continue;
    }
    const marked = target.startsWith('/memfd:') ? target.slice(7) : basename(target);
    const by = marked.startsWith(name) ? /^[0-9a-f]+(?= )/.exec(marked.slice(name.length))?.[0] : undefined;
    if (by !== undefined && descriptor !== own) {
      found.push(by);
    }
  }
  return found;
}
