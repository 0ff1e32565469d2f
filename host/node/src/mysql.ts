/**
 * Segments and leases in MySQL and MariaDB, in the tables that the `unalike` command and its server use.
 *
 * @module
 */

import { checkAddress } from './address.js';
import {
  bytes,
  damaged,
  DUPLICATE_ENTRY,
  figure,
  number,
  text,
  Database,
  type Row,
  type Turn,
  loadMysql,
} from './mysql-database.js';
import { MysqlLeases } from './mysql-leases.js';
import { readOptions, type MysqlOptions } from './mysql-options.js';
import { refused } from './mysql-server.js';
import { SQL, type Argument, type Change } from './mysql-sql.js';
import { currentVersion, identityOf, openStore, openTables, refuseUnnoticed } from './mysql-tables.js';
import {
  completeOptions,
  DEFAULT_TAG_OPTIONS,
  formatNames,
  formatOptions,
  isKept,
  isKeptTime,
  KEPT_FLOOR,
  shown,
  splitTag,
  validateAllocate,
  validateNewTag,
  validateOptions,
  validatePublic,
  validateTag,
} from './names.js';
import {
  checkOpened,
  ID_MAX,
  StoreError,
  type FormatOwner,
  type FormatPart,
  type Lease,
  type LeaseAcquire,
  type LeaseExtend,
  type LeaseStore,
  type RefillPolicy,
  type Segment,
  type SegmentStore,
  type StepPolicy,
  type TagOptions,
  type TagRecord,
  type TailRelease,
} from './store.js';

export type { MysqlOptions } from './mysql-options.js';

const U64_MAX = (1n << 64n) - 1n;

/** The options, of which the URL is the only one that must be there. @throws {StoreError} `refused` */
function optionsOf(options: unknown): MysqlOptions {
  if (typeof options !== 'object' || options === null || options instanceof URL) {
    return { url: checkAddress('the address of the store', options) };
  }
  if (!('url' in options)) {
    throw new StoreError('refused', "url is missing: give { url: 'mysql://USER@HOST/DATABASE' }");
  }
  return { ...(options as MysqlOptions), url: checkAddress('url', options.url) };
}

/**
 * Segments and leases in one database, over one pool of connections.
 *
 * Every connection is set and checked before it is used: commits must be durable, and the server must be the one that
 * was used before. Each statement that grants states the same as its condition. A statement whose answer is lost counts
 * as done, and what it granted is never offered again.
 *
 * Raising, ending, importing, resizing and adopting stay with the `unalike` command; where one is needed, the error
 * says which. A store that is a stripe of a set is refused, and so are the tables of other systems: use both through
 * the `unalike` server.
 *
 * ```js
 * import { MysqlStore } from 'unalike/mysql';
 *
 * const store = await MysqlStore.open('mysql://ids@db.example/ids?password-env=DB_PASSWORD');
 * const segment = await store.allocate('order', 100n, 0n);
 * await store.close();
 * ```
 */
export class MysqlStore implements SegmentStore, LeaseStore {
  readonly #database: Database;
  readonly #leases: MysqlLeases;
  /** Of the tables when they were last looked at; they may be newer by now. */
  #version: bigint;

  private constructor(database: Database, version: bigint) {
    checkOpened(database instanceof Database, 'MysqlStore');
    this.#database = database;
    this.#version = version;
    this.#leases = new MysqlLeases(database);
  }

  /**
   * Connects, checks the server, and creates the tables that are missing if that is allowed.
   *
   * @param options The URL, or an object with it: see {@link MysqlOptions}.
   * @throws {StoreError} `unavailable` when the server does not answer; `refused` when it denies access, when its
   *   commits are not durable, when it is another server than before, when its tables are missing, of another version
   * or not
   *   what grants can rest on, and for options that are wrong. Each says what to do.
   */
  static async open(options: string | MysqlOptions): Promise<MysqlStore> {
    const settings = readOptions(optionsOf(options));
    await loadMysql();
    const database = new Database(settings);
    try {
      const facts = await database.turn('looking at the server', async (turn) => {
        const facts = await turn.look();
        turn.giveBack();
        return facts;
      });
      const fault = settings.assumeDurable ? facts.faultOfDurability() : null;
      if (fault !== null) {
        settings.warn(
          `${settings.at}: commits may be lost (${fault}); durability=assumed takes the server all the same`,
        );
      }
      const version = await openStore(database, facts);
      if (database.checkAdopted()) {
        await refuseUnnoticed(database, facts);
      }
      await openTables(database, [SQL.tables.tag], SQL.segments.begun);
      return new MysqlStore(database, version);
    } catch (error) {
      await database.close();
      throw error;
    }
  }

  /** Host, port and database, for messages. */
  get address(): string {
    return this.#database.at;
  }

  async allocate(tag: string, count: bigint, atLeast: bigint): Promise<Segment> {
    validateAllocate(tag, count, atLeast);
    // Twice, when the tag comes into being in between.
    for (let tries = 0; tries < 2; tries += 1) {
      const segment = await this.#grant(tag, count, atLeast);
      if (segment !== null) {
        return segment;
      }
      const row = await this.#find(tag);
      if (row?.watermark === ID_MAX) {
        throw exhausted(tag);
      }
      if (row === null) {
        await this.#createOnFirstUse(tag);
      }
    }
    throw new StoreError(
      'unavailable',
      `the store is unavailable: the tag ${shown(tag)} changes all the time: try again`,
    );
  }

  /** Takes numbers back: {@link SegmentStore.release}. */
  release(tag: string, tail: TailRelease): Promise<boolean>;
  /** Ends a lease: {@link LeaseStore.release}. */
  release(namespace: string, worker: number, grantId: bigint, endMs: bigint): Promise<boolean>;
  release(name: string, what: TailRelease | number, grantId?: bigint, endMs?: bigint): Promise<boolean> {
    return typeof what === 'number'
      ? this.#leases.release(name, what, grantId as bigint, endMs as bigint)
      : this.#releaseTail(name, what);
  }

  async openTag(tag: string): Promise<TagRecord> {
    validateTag(tag);
    const row = await this.#findOrCreate(tag);
    await this.#checkStripe();
    return row;
  }

  /**
   * Creates a tag, whatever is said of first use; the limit of tags applies.
   *
   * @throws {StoreError} `tag-exists`, `tag-limit`, `tag-invalid`, and any error of the connection.
   */
  async createTag(tag: string, options: Partial<TagOptions> = {}): Promise<TagRecord> {
    const all = completeOptions(tag, options);
    validatePublic(tag);
    const row = await this.#insertNew(tag, all);
    if (row === null) {
      throw new StoreError('tag-exists', `the tag ${shown(tag)} exists already`);
    }
    return row;
  }

  async bindFormat(owner: FormatOwner, part: FormatPart, first: bigint | null): Promise<bigint | null> {
    let bound: bigint | null = null;
    for (const name of formatNames(owner, part)) {
      let row = await this.#find(name);
      if (row === null && bound === null && first !== null) {
        // Somebody else may be quicker.
        row = (await this.#insertNew(name, formatOptions(name, first))) ?? (await this.#find(name));
      }
      if (row === null) {
        break;
      }
      bound = row.options.start;
    }
    return bound;
  }

  identity(): Promise<string> {
    return identityOf(this.#database, 'unalike');
  }

  acquire(request: LeaseAcquire): Promise<Lease> {
    return this.#leases.acquire(request);
  }

  extend(request: LeaseExtend): Promise<Lease> {
    return this.#leases.extend(request);
  }

  leaseIdentity(): Promise<string> {
    return this.#leases.identity();
  }

  leaveLeases(namespace: string): Promise<void> {
    return this.#leases.leave(namespace);
  }

  close(): Promise<void> {
    return this.#database.close();
  }

  get #hasStripes(): boolean {
    return this.#version >= 2n;
  }

  #of(change: Change): string {
    return this.#hasStripes ? change.striped : change.plain;
  }

  /** What a statement with stripes has as one more argument. */
  #ofStripe(argument: Argument): Argument[] {
    return this.#hasStripes ? [argument] : [];
  }

  /** Numbers from the tag's row; `null` if there is none or no number is left. */
  async #grant(tag: string, count: bigint, atLeast: bigint): Promise<Segment | null> {
    const others = (count < ID_MAX ? count : ID_MAX) - 1n;
    const { sql, args, version } = this.#change(
      SQL.segments.allocate,
      tag,
      [atLeast, atLeast, atLeast, others, atLeast],
      [],
    );
    const reply = await this.#database.execute('allocating a segment', sql, args);
    if (reply.affected === 1n) {
      const start = reply.insertId;
      const rest = ID_MAX - start;
      const end = start + (others < rest ? others : rest) + 1n;
      if (start < 1n || start > ID_MAX || start < atLeast) {
        throw damaged(this.#database.at, `the grant from ${start} to ${end} is not what was asked for`);
      }
      return { start, end, stride: 1n, generation: 0n, version };
    }
    await this.#database.checkFence();
    await this.#checkRow(tag);
    return null;
  }

  async #releaseTail(tag: string, tail: TailRelease): Promise<boolean> {
    validateTag(tag);
    const { start, version } = tail;
    if (start < 1n || start > U64_MAX || version < 0n || version > U64_MAX) {
      return false;
    }
    const { sql, args } = this.#change(SQL.segments.release, tag, [start - 1n, start - 1n], [version, start, start]);
    return (await this.#database.execute('releasing a tail', sql, args)).affected === 1n;
  }

  /** A change of the tag's row, and the version that it proposes. */
  #change(
    change: Change,
    tag: string,
    assignments: readonly Argument[],
    conditions: readonly Argument[],
  ): { sql: string; args: Argument[]; version: bigint } {
    const version = proposeVersion();
    const args = [
      ...assignments,
      version,
      ...this.#ofStripe(version),
      encoded(tag),
      ...conditions,
      ...this.#ofStripe(this.#database.rowSet),
    ];
    return { sql: this.#database.fenced(this.#of(change)), args, version };
  }

  async #find(tag: string): Promise<TagRecord | null> {
    const rows = await this.#database.rows('reading a tag', SQL.segments.find, [encoded(tag)]);
    return rows[0] === undefined ? null : this.#tagRow(rows[0]);
  }

  async #findOrCreate(tag: string): Promise<TagRecord> {
    const found = (await this.#find(tag)) ?? (await this.#createOnFirstUse(tag)) ?? (await this.#find(tag));
    if (found === null) {
      throw unknown(tag);
    }
    return found;
  }

  /**
   * A tag without a row, if first use may create it; `null` if somebody else was quicker. A sub-key of a tag that
   * exists, or may be created, always may be: it has the options of its tag, and ends with it.
   */
  async #createOnFirstUse(tag: string): Promise<TagRecord | null> {
    const [owner, sub] = splitTag(tag);
    if (sub !== null) {
      return this.#insertNew(tag, optionsOfSubKeys(await this.#findOrCreate(owner), tag));
    }
    if (!this.#database.settings.createTags && !isKept(tag)) {
      throw unknown(tag);
    }
    return this.#insertNew(tag, DEFAULT_TAG_OPTIONS);
  }

  /** A row under a name that a new tag may have; `null` if the tag exists, whatever its name is. */
  async #insertNew(tag: string, options: TagOptions): Promise<TagRecord | null> {
    try {
      validateNewTag(tag);
    } catch (error) {
      if ((await this.#find(tag)) !== null) {
        return null;
      }
      throw error;
    }
    return this.#insert(tag, options);
  }

  async #insert(tag: string, options: TagOptions): Promise<TagRecord | null> {
    const tagsMax = isKept(tag) ? U64_MAX : this.#database.settings.tagsMax;
    const [counted, limit] = splitTag(tag)[1] === null ? [1n, tagsMax] : [0n, U64_MAX];
    const inserted = await this.#database.transactionAlone('creating a tag', async (turn) => {
      const count = [counted, ...this.#ofStripe(counted), limit, ...this.#ofStripe(Buffer.alloc(16))];
      if ((await turn.execute(this.#of(SQL.segments.count), count)).affected === 0n) {
        await turn.rollBack();
        return 'at the limit';
      }
      const floor = await this.#floor(turn);
      const ended = await this.#ownerEnded(turn, tag);
      if (ended !== null) {
        await turn.rollBack();
        return ended;
      }
      if (isKeptTime(tag)) {
        await checkNewTime(turn, this.#database, tag);
      }
      const watermark = firstWatermark(tag, options.start, floor);
      const row = [
        encoded(tag),
        options.start,
        options.mode,
        ...policyColumns(options.step, options.refill),
        watermark,
        watermark,
        ...this.#ofStripe(this.#database.rowSet),
      ];
      if (typeof (await turn.tryExecute(this.#of(SQL.segments.insert), row, [DUPLICATE_ENTRY])) === 'number') {
        await turn.rollBack();
        return null;
      }
      await turn.commit();
      return { tag, options, watermark };
    });
    if (inserted === 'at the limit') {
      await this.#checkStripe();
      if ((await this.#find(tag)) === null) {
        throw new StoreError(
          'tag-limit',
          `the tag ${shown(tag)} was not created: the store has ${tagsMax} tags, its limit`,
        );
      }
      return null;
    }
    if (inserted instanceof StoreError) {
      if ((await this.#find(tag)) === null) {
        throw inserted;
      }
      return null;
    }
    return inserted;
  }

  /** The floor of new names, which nobody makes or lifts before this transaction has ended. */
  async #floor(turn: Turn): Promise<bigint> {
    const rows = await turn.rows(SQL.segments.floor, [encoded(KEPT_FLOOR)]);
    return rows[0] === undefined ? 0n : number(this.#database, rows[0], 'watermark');
  }

  /**
   * The error of a new sub-key whose tag has ended. Until this transaction ends, nobody ends the tag: so whoever lists
   * its sub-keys afterwards sees this one.
   */
  async #ownerEnded(turn: Turn, name: string): Promise<StoreError | null> {
    const [tag, sub] = splitTag(name);
    const rows = sub === null ? [] : await turn.rows(SQL.segments.find_locked, [encoded(tag)]);
    // Without a row there is nothing to end.
    return rows[0] !== undefined && this.#tagRow(rows[0]).watermark >= ID_MAX ? exhausted(name) : null;
  }

  #tagRow(row: Row): TagRecord {
    const of = (column: string): bigint => figure(this.#database, row, column);
    const broken = (what: string): StoreError => damaged(this.#database.at, `unalike_tag has a row with ${what}`);
    const [step, refill] = [text(this.#database, row, 'step_policy'), text(this.#database, row, 'refill_policy')];
    const mode = text(this.#database, row, 'mode');
    if ((step !== 'fixed' && step !== 'adaptive') || (refill !== 'share-consumed' && refill !== 'remaining')) {
      throw broken(`the policies ${JSON.stringify(step)} and ${JSON.stringify(refill)}`);
    }
    if (mode !== 'buffered' && mode !== 'ordered') {
      throw broken(`the mode ${JSON.stringify(mode)}`);
    }
    const tag = text(this.#database, row, 'tag');
    const options: TagOptions = {
      start: of('start'),
      mode,
      step:
        step === 'fixed'
          ? { kind: step, step: of('step') }
          : {
              kind: step,
              step: of('step'),
              min: of('step_min'),
              max: of('step_max'),
              growBelowMs: of('grow_below_ms'),
              shrinkAboveMs: of('shrink_above_ms'),
            },
      refill:
        refill === 'remaining'
          ? { kind: refill, numbers: of('refill') }
          : { kind: refill, percent: Number(of('refill')) },
    };
    try {
      validateOptions(tag, options);
    } catch (error) {
      throw broken((error as Error).message);
    }
    const watermark = of('watermark');
    if (watermark > ID_MAX) {
      throw broken(`the watermark ${watermark}, and 2^63 - 1 is the greatest`);
    }
    return { tag, options, watermark };
  }

  /** Makes sure that the store stands alone: this host joins no stripes. */
  async #checkStripe(): Promise<void> {
    if (!this.#hasStripes) {
      this.#version = await currentVersion(this.#database);
      if (!this.#hasStripes) {
        return;
      }
    }
    const rows = await this.#database.rows('reading the stripe', SQL.store.stripe, []);
    if (rows[0] === undefined) {
      throw refused(`${this.#database.at}: the table unalike_store is missing or has no row: run \`unalike schema\``);
    }
    const set = bytes(this.#database, rows[0], 'stripe_set');
    if (set.every((byte) => byte === 0)) {
      return;
    }
    const [index, count] = [
      number(this.#database, rows[0], 'stripe_index'),
      number(this.#database, rows[0], 'stripe_count'),
    ];
    throw refused(`the store at ${this.#database.at} is ${stripeInWords(set.toString('hex'), index, count)}`);
  }

  /** Makes sure that the tag's row is of a store that stands alone, and of this client's era. */
  async #checkRow(tag: string): Promise<void> {
    await this.#checkStripe();
    if (!this.#hasStripes) {
      return;
    }
    const rows = await this.#database.rows("reading a row's stripe", SQL.segments.row_stripe, [encoded(tag)]);
    if (rows[0] === undefined || bytes(this.#database, rows[0], 'stripe_set').equals(this.#database.rowSet)) {
      return;
    }
    throw refused(
      `${this.#database.at}: the row of the tag ${JSON.stringify(tag)} was written by another server than the one ` +
        'that unalike_store records, or unalike_store was made anew since. End replication if it goes on here ' +
        '(MySQL: STOP REPLICA; RESET REPLICA ALL. MariaDB: STOP ALL SLAVES; RESET SLAVE ALL), lift the tags above everything that was handed out with ' +
        '`unalike store adopt --lift COUNT`, and restart the programs',
    );
  }
}

/** In the index of a mark of a resize: the store left, or is fenced. */
const LEFT = 1n << 30n;
const FENCED = 1n << 31n;

function stripeInWords(set: string, index: bigint, count: bigint): string {
  if (index < LEFT) {
    return (
      `stripe ${index} of ${count} in the set ${set}: use it together with all stores of its set, in their order; ` +
      'this program joins no stripes, so use them through the `unalike` server'
    );
  }
  const mark = index >= FENCED ? 'fenced while its tags are moved' : 'left, as its tags were moved to other stores';
  return (
    `${mark} (${set}): restart this program with the stores that have its tags now; if that was broken off, repeat ` +
    '`unalike stripes resize`, or `unalike store rebind`'
  );
}

let lastVersion = 0n;

/**
 * The version that a row shall have after the statement that is about to run, at least: the Rust adapter says why that
 * is enough. Proposals grow within a program, and with the clock across restarts.
 */
function proposeVersion(): bigint {
  // 2^47 ms are some 4,000 years.
  const millis = BigInt(Math.max(0, Date.now()));
  const clock = (millis < 1n << 47n ? millis : (1n << 47n) - 1n) << 16n;
  lastVersion = clock > lastVersion ? clock : lastVersion + 1n;
  return lastVersion;
}

/** The greatest number that counts as granted under a name that is created just now. */
/**
 * Refuses, in the transaction that is about to create it, a row of time that is granted to leases or clocks in Redis, for
 * as long as leases of the server before may run: it may have been lost, and what was granted under it is not known.
 *
 * @throws {StoreError} `quarantined`
 */
async function checkNewTime(turn: Turn, database: Database, name: string): Promise<void> {
  if ((await turn.rows(SQL.leases.has_store, [])).length === 0) {
    return;
  }
  const [row] = await turn.rows(SQL.leases.time_floor, []);
  if (row === undefined) {
    return;
  }
  const until = number(database, row, 'floor_ms');
  if (until > number(database, row, 'now_ms')) {
    await turn.rollBack();
    const when = new Date(Number(until)).toISOString();
    throw new StoreError(
      'quarantined',
      `the store may have forgotten leases of ${shown(name)}: it grants none before ${when}, when all that it could have ` +
        'granted have ended',
    );
  }
}

function firstWatermark(name: string, start: bigint, floor: bigint): bigint {
  const watermark = start - 1n + (isKeptTime(name) ? 0n : floor);
  return watermark < ID_MAX ? watermark : ID_MAX;
}

function optionsOfSubKeys(owner: TagRecord, name: string): TagOptions {
  if (owner.watermark >= ID_MAX) {
    throw exhausted(name);
  }
  return owner.options;
}

/** What a row says of its policies, in the order in which the statements name the columns. */
function policyColumns(step: StepPolicy, refill: RefillPolicy): Argument[] {
  const steps =
    step.kind === 'fixed'
      ? [step.step, null, null, null, null]
      : [step.step, step.min, step.max, step.growBelowMs, step.shrinkAboveMs];
  const left = refill.kind === 'remaining' ? refill.numbers : BigInt(refill.percent);
  return [step.kind, ...steps, refill.kind, left];
}

/** A name as it is kept: its bytes. */
function encoded(name: string): Buffer {
  return Buffer.from(name, 'utf8');
}

function exhausted(tag: string): StoreError {
  return new StoreError(
    'exhausted',
    `the tag ${shown(tag)} is exhausted: it was moved or ended, as an import does, and its numbers continue ` +
      `elsewhere, or every number up to ${ID_MAX} has been granted`,
  );
}

function unknown(name: string): StoreError {
  const [tag, sub] = splitTag(name);
  return new StoreError(
    'tag-unknown',
    sub === null
      ? `the tag ${JSON.stringify(tag)} is unknown: create it first, with \`unalike tags create\` or, where that is ` +
          'allowed, by taking an id of it'
      : `the tag ${JSON.stringify(tag)} has no sub-key ${JSON.stringify(sub)}: its first id creates it`,
  );
}
