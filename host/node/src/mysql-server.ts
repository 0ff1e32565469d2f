/**
 * What a grant rests on, besides its own rows: which server it is, that its commits last, and how the session is set.
 *
 * All of it is looked at on every new connection, and stated again as a condition of every statement that grants. The
 * Rust adapter's `fence.rs` and `record.rs` say why; the tests compare each answer with theirs.
 *
 * @module
 */

import { hexadecimal, SQL } from './mysql-sql.js';
import { StoreError } from './store.js';

/** Before the position in a server's own domain, and before those in all, as identities have it. */
const OF_DOMAIN = 'gtid_slave_pos';
const OF_ALL = 'gtid_slave_positions';

/** Between the mark and the name of a Galera cluster, as identities have it. */
const OF_CLUSTER = ' wsrep_cluster_name ';

/** What servers answer for `server_uuid` that speak the protocol and have none: all of them the same. */
const UNKNOWN_UUID = '00000000-0000-0000-0000-000000000000';

const OF_VTGATE = "each statement goes to a server of vtgate's choice, and what one says holds for no other";

/** What others have in their versions that speak the protocol of MySQL, and why they are not used. */
const OTHER_SERVERS: readonly (readonly [string, string])[] = [
  [
    'tidb',
    'TiDB answers with settings of MySQL that mean nothing there, and with the same server_uuid on every server',
  ],
  ['vitess', OF_VTGATE],
  ['planetscale', OF_VTGATE],
];

/** The options of Galera with which a node goes on without the majority. */
const SPLIT_BRAIN: readonly string[] = ['pc.ignore_sb', 'pc.ignore_quorum'];

/** What a server says that does not know who it is. */
const UNKNOWN = 'unknown';

/** The statement that reads {@link ServerFacts}. */
export const READ_FACTS = `SHOW VARIABLES WHERE Variable_name IN (${[
  ...SQL.facts,
  ...SQL.settings.map(([name]) => name),
]
  .map((name) => `'${name}'`)
  .join(', ')})`;

/** What a server says of itself, on the connection in hand. */
export class ServerFacts {
  readonly #values: ReadonlyMap<string, string>;

  constructor(values: Iterable<readonly [string, string]>) {
    this.#values = new Map(values);
  }

  /** A variable's value; empty when the server has no such variable. */
  value(name: string): string {
    return this.#values.get(name) ?? '';
  }

  #has(name: string): boolean {
    return this.#values.has(name);
  }

  #isOn(name: string): boolean {
    return ['ON', '1'].includes(this.value(name));
  }

  /**
   * Which server this is, with this mark in the record of it.
   *
   * @throws {Error} When nothing tells it from other servers.
   */
  identity(mark: bigint): string {
    if (this.cluster !== null) {
      return `mark ${hex128(mark)}${OF_CLUSTER}${this.cluster}`;
    }
    const uuid = this.value('server_uuid');
    if (!['', UNKNOWN, UNKNOWN_UUID].includes(uuid)) {
      return `server_uuid ${uuid}`;
    }
    const [server, domain] = [this.#figure('server_id'), this.#figure('gtid_domain_id')];
    if (server === null || domain === null) {
      throw new Error(
        'it has neither a server_uuid nor a server_id with a gtid_domain_id, so nothing tells it from other servers: ' +
          'use MySQL 5.6, MariaDB 10.0 or newer, or vouch for it (identity=assumed)',
      );
    }
    return marked(mark, server, domain, `${OF_DOMAIN} ${this.#position(domain) ?? 'none'}`);
  }

  /** The same of a server that was adopted: what it applied in whichever domain is a part of it. */
  #adoptedIdentity(mark: bigint): string {
    const ofDomain = this.identity(mark);
    const [server, domain] = [this.#figure('server_id'), this.#figure('gtid_domain_id')];
    if (server === null || domain === null || markIn(ofDomain) === null || this.cluster !== null) {
      return ofDomain;
    }
    const positions = this.#positions();
    return marked(mark, server, domain, `${OF_ALL} ${positions.length === 0 ? 'none' : positions.join(',')}`);
  }

  /**
   * The identity in the form of a recorded one, with its mark.
   *
   * @throws {Error} As {@link ServerFacts.identity}.
   */
  identityAs(recorded: string): string {
    const mark = markIn(recorded) ?? 0n;
    return recorded.includes(OF_ALL) ? this.#adoptedIdentity(mark) : this.identity(mark);
  }

  /** The name of the cluster that it is a node of: of Galera, which Percona XtraDB Cluster is too. */
  get cluster(): string | null {
    return ['', 'none'].includes(this.value('wsrep_provider')) ? null : this.value('wsrep_cluster_name');
  }

  /** How far replication has come in each domain, in the order of their texts. */
  #positions(): string[] {
    return this.#listed()
      .filter((position) => position !== '')
      .sort();
  }

  #listed(): string[] {
    return this.value('gtid_slave_pos')
      .split(',')
      .map((position) => position.trim());
  }

  get isMariadb(): boolean {
    return this.value('version').includes('MariaDB');
  }

  #figure(name: string): bigint | null {
    return unsigned(this.value(name));
  }

  /** How far replication has come in this domain. */
  #position(domain: bigint): string | undefined {
    return this.#listed().find((position) => position.startsWith(`${domain}-`));
  }

  /** Whether the changes that came to it last were once made under its own `server_id`. */
  #hasOwnChanges(): boolean {
    const [server, domain] = [this.#figure('server_id'), this.#figure('gtid_domain_id')];
    return server !== null && domain !== null && (this.#position(domain)?.startsWith(`${domain}-${server}-`) ?? false);
  }

  /**
   * The error when this server is not the recorded one: one that took over may lack the last commits of the one before,
   * and numbers would repeat.
   */
  anotherServer(at: string, recorded: string, found: string): StoreError {
    let what =
      `the server at ${at} is another one than before (${found}, not ${recorded}). If it took over from that one, it ` +
      'may lack its last commits: lift its tags above everything that was handed out with `unalike store adopt ' +
      '--lift COUNT`, and then restart the programs that knew the other one';
    if (this.#hasOwnChanges()) {
      what +=
        '. If it is the one before, it follows a replica of its own, and its own changes came back to it: stop that ' +
        'first (STOP SLAVE; RESET SLAVE ALL), since each change that comes back makes it another one again; then ' +
        'adopt it (--lift 1 will do, as it lost nothing), and restart the programs';
    }
    return refused(what);
  }

  /**
   * Whether this server is the one of a record as it was written before there were marks, where that can be told: it is
   * found where that one was, and no data ever came to it from another server.
   */
  isUnmarked(recorded: string): boolean {
    const uid = this.value('server_uid');
    const host = this.value('hostname');
    const [found, isKnown] =
      uid === ''
        ? [`${host}:${this.value('port')}${this.value('datadir')}`, host !== '']
        : [`server_uid ${uid}`, uid !== UNKNOWN];
    return isKnown && found === recorded && this.#has('gtid_slave_pos') && this.value('gtid_slave_pos') === '';
  }

  /** What is wrong, unless a commit that was reported is on the disk, and in the binary log if there is one. */
  faultOfDurability(): string | null {
    const flush = this.value('innodb_flush_log_at_trx_commit');
    if (flush !== '1') {
      return (
        `innodb_flush_log_at_trx_commit is ${flush}: a crash would lose commits, and numbers would repeat; set ` +
        'it to 1'
      );
    }
    const sync = this.value('sync_binlog');
    if (this.#isOn('log_bin') && sync !== '1') {
      return (
        `the binary log is on and sync_binlog is ${sync}: a replica that takes over after a crash would lack ` +
        'commits, and numbers would repeat; set it to 1'
      );
    }
    return null;
  }

  /** What is wrong, unless replicas are sent what was changed. */
  faultOfLog(): string | null {
    return this.#isOn('log_bin') && this.value('binlog_format') === 'STATEMENT'
      ? 'binlog_format is STATEMENT: replicas would run statements again, and not make the same changes; set it to ' +
          'MIXED or ROW'
      : null;
  }

  /** What is wrong, unless what it says of itself means what it means on MySQL and MariaDB. */
  faultOfKind(): string | null {
    const version = this.value('version');
    const other = OTHER_SERVERS.find(([name]) => version.toLowerCase().includes(name));
    return other === undefined
      ? null
      : `its version is ${version}: ${other[1]}; use MySQL or MariaDB itself, or another store`;
  }

  /**
   * What is wrong, unless a node of a cluster may be used: nothing that it says tells whether the cluster lost commits,
   * so the operator has to promise that it does not.
   */
  faultOfCluster(isVouched: boolean): string | null {
    const { cluster } = this;
    if (cluster === null) {
      return null;
    }
    if (!isVouched) {
      return (
        `it is a node of the Galera cluster ${JSON.stringify(cluster)}: begun anew with a node that was behind, the ` +
        'cluster would lose commits, nothing in it would tell, and numbers would repeat. Promise that it never is, ' +
        'or that you run `unalike store adopt` after it was (identity=assumed)'
      );
    }
    if (!this.#isOn('wsrep_on')) {
      return (
        `wsrep_on is OFF in a session on a node of the Galera cluster ${JSON.stringify(cluster)}: what it changes ` +
        'would not reach the other nodes, and numbers would repeat; set it to ON, and look at init_connect'
      );
    }
    const options = this.value('wsrep_provider_options')
      .split(';')
      .map((option) => option.split('=').map((part) => part.trim()))
      .map(([name = '', value = '']): [string, string] => [name, value.toLowerCase()]);
    const alone = options.find(
      ([name, value]) => SPLIT_BRAIN.includes(name) && !['false', 'no', 'off', '0'].includes(value),
    );
    return alone === undefined
      ? null
      : `${alone[0]} is ${alone[1]} in wsrep_provider_options: nodes that lose sight of each other would each go on, ` +
          'and numbers would repeat; set it to false';
  }

  /**
   * What is wrong, unless `init_connect` does no more than set a session: a temporary table of one of our names, which
   * it may make, stands before ours in the session, and is gone with it.
   */
  faultOfInitConnect(): string | null {
    const statements = this.value('init_connect').split(';');
    const other = statements.map((statement) => statement.trim()).find((statement) => !onlySets(statement));
    return other === undefined
      ? null
      : `init_connect runs ${JSON.stringify(other)} in every session, and may so put other tables before those that ` +
          'grants are made from: leave nothing there but SET';
  }

  /** Whether nothing can be written, except by users who are exempt from it. */
  get onlyReads(): boolean {
    return this.#isOn('read_only');
  }

  /** What is wrong, unless the session is as grants need it. `before` was read on the same connection. */
  faultOfSession(before: ServerFacts): string | null {
    for (const [name, literal] of SQL.settings) {
      if (this.#has(name) && !says(this.value(name), literal)) {
        return (
          `the session variable ${name} is ${JSON.stringify(this.value(name))}, and grants need ${literal}: it could ` +
          'not be ' +
          "set; look for it in the server's configuration, in init_connect, and in a proxy between"
        );
      }
    }
    if (this.#isOn('in_transaction')) {
      return (
        'a transaction is open on a new connection: what is granted in it would never be committed; look at ' +
        'init_connect, and at a proxy between'
      );
    }
    if (this.#has('timestamp') && this.value('timestamp') === before.value('timestamp')) {
      return (
        `the session variable timestamp stands at ${JSON.stringify(this.value('timestamp'))}: the server's clock ` +
        'cannot be read; look at init_connect, and at a proxy between'
      );
    }
    return null;
  }

  /** The statement that sets the session variables which are otherwise than grants need them. */
  sessionStatement(lockWaitSeconds: number, idleSeconds: number): string {
    let statement =
      `SET SESSION innodb_lock_wait_timeout = ${lockWaitSeconds}, lock_wait_timeout = ${lockWaitSeconds}, ` +
      `wait_timeout = ${idleSeconds}`;
    for (const [name, literal] of SQL.settings) {
      if (this.#has(name) && !says(this.value(name), literal) && !SQL.checked.includes(name)) {
        statement += `, ${name} = ${literal}`;
      }
    }
    for (const name of SQL.room.filter((name) => this.#has(name))) {
      statement += `, ${name} = DEFAULT`;
    }
    return statement;
  }

  /** The conditions of statements that run on this very server, in a session that was checked. */
  fence(isDurable: boolean, identity: string | null, recorded: string | null): Fence {
    const all: Equal[] = [];
    for (const [name, literal] of SQL.settings) {
      if (this.#has(name)) {
        all.push([`@@${name}`, literal]);
      }
    }
    const logs = this.#isOn('log_bin');
    all.push(['@@global.read_only', '0'], ['@@global.log_bin', logs ? '1' : '0']);
    if (logs && this.#has('binlog_format')) {
      all.push(["@@binlog_format = 'STATEMENT'", '0']);
    }
    if (isDurable) {
      all.push(['@@global.innodb_flush_log_at_trx_commit', '1']);
      if (logs) {
        all.push(['@@global.sync_binlog', '1']);
      }
    }
    if (this.cluster !== null) {
      all.push(['@@wsrep_on', '1'], ['@@wsrep_cluster_name', hexadecimal(this.cluster)]);
    } else if (identity !== null) {
      this.#identify(identity, all);
    }
    const alone = this.#has('in_transaction') ? ' AND @@in_transaction = 0' : '';
    return new Fence(allOf(all), alone, recorded);
  }

  #identify(identity: string, all: Equal[]): void {
    if (identity.startsWith('server_uuid ')) {
      all.push(['@@server_uuid', hexadecimal(this.value('server_uuid'))]);
      return;
    }
    // Both are numbers, or there would be no identity.
    const [server, domain] = [this.#figure('server_id') ?? 0n, this.#figure('gtid_domain_id') ?? 0n];
    all.push(['@@global.server_id', String(server)], ['@@gtid_domain_id', String(domain)]);
    const found = (what: string): string => `LOCATE(${hexadecimal(what)}, CONCAT(',', @@global.gtid_slave_pos, ','))`;
    if (identity.includes(OF_ALL)) {
      // In whichever order: as many bytes, and each of them.
      all.push(['LENGTH(@@global.gtid_slave_pos)', String(Buffer.byteLength(this.value('gtid_slave_pos')))]);
      all.push(...this.#positions().map((position): Equal => [`${found(`,${position},`)} > 0`, '1']));
    } else {
      const position = this.#position(domain);
      all.push(position === undefined ? [found(`,${domain}-`), '0'] : [`${found(`,${position},`)} > 0`, '1']);
    }
  }
}

function marked(mark: bigint, server: bigint, domain: bigint, position: string): string {
  return `mark ${hex128(mark)} server_id ${server} gtid_domain_id ${domain} ${position}`;
}

/** The conditions under which a statement may grant. */
export class Fence {
  readonly #ofStore: string;
  readonly #other: string;
  readonly #alone: string;
  readonly #ofRow: string;

  constructor(conditions: string, alone: string, recorded: string | null) {
    const server = recorded === null ? null : hexadecimal(recorded);
    this.#ofStore = server === null ? conditions : `${conditions} AND server = ${server}`;
    // Without a lock, since the session reads what is committed.
    this.#other =
      server === null
        ? conditions
        : `${conditions} AND EXISTS (SELECT 1 FROM unalike_store WHERE id = 1 AND server = ${server})`;
    this.#alone = this.#other + alone;
    // Whoever records another server marks all rows anew in the same transaction: a row's mark says what the record says.
    const hasMarkedRows = recorded !== null && new StoreRecord(recorded).era !== 0n;
    this.#ofRow = hasMarkedRows ? conditions + alone : this.#alone;
  }

  /**
   * The statement with these conditions where it says `{fence}`; `{fence alone}` if it is a transaction of its own;
   * `{fence of the store}` if it concerns the row of `unalike_store`; and `{fence of a row}` if it is a transaction of its
   * own and its condition compares a row's `stripe_set`.
   */
  putInto(statement: string): string {
    return statement
      .split('{fence of the store}')
      .join(this.#ofStore)
      .split('{fence}')
      .join(this.#other)
      .split('{fence alone}')
      .join(this.#alone)
      .split('{fence of a row}')
      .join(this.#ofRow);
  }
}

/**
 * What `unalike_store` says of its server: `SERVER`, `SERVER era MARK REACHED`, or
 * `SERVER lifted unalike=1000,-leaf=50 era MARK REACHED`.
 */
export class StoreRecord {
  /** The server. */
  readonly server: string;
  /**
   * What marks the rows of `unalike_tag` that were written since the store was made, or its tables were lifted for a
   * server; else 0.
   */
  readonly era: bigint;
  /** By dialect: whether its tables were lifted for this server too. */
  readonly #lifted: ReadonlyMap<string, boolean>;

  constructor(text: string) {
    const read = readLifted(text) ?? readBorn(text);
    // What cannot be read is no server that there is.
    this.server = read?.server ?? text;
    this.era = read?.era ?? 0n;
    this.#lifted = read?.lifted ?? new Map();
  }

  /** Whether the server took over from another one. */
  get wasAdopted(): boolean {
    return this.#lifted.size > 0;
  }

  /** Whether the tables of unalike's own go on above what the servers before may have granted. */
  get isValid(): boolean {
    return !this.wasAdopted || this.#lifted.get('unalike') === true;
  }
}

interface ReadRecord {
  readonly server: string;
  readonly lifted: ReadonlyMap<string, boolean>;
  readonly era: bigint;
}

function readLifted(text: string): ReadRecord | null {
  const at = text.lastIndexOf(' lifted ');
  if (at < 0) {
    return null;
  }
  const [list, ...eras] = text.slice(at + ' lifted '.length).split(' era ');
  const lifted = new Map<string, boolean>();
  for (const entry of (list as string).split(',')) {
    const equals = entry.indexOf('=');
    if (equals < 0 || unsigned(entry.slice(equals + 1)) === null) {
      return null;
    }
    const name = entry.slice(0, equals);
    lifted.set(name.startsWith('-') ? name.slice(1) : name, !name.startsWith('-'));
  }
  const era = eras.length > 0 ? readEra(eras.join(' era ')) : 0n;
  return era === null ? null : { server: text.slice(0, at), lifted, era };
}

/** Of a store whose tables were never lifted. */
function readBorn(text: string): ReadRecord | null {
  const at = text.lastIndexOf(' era ');
  const era = at < 0 ? null : readEra(text.slice(at + ' era '.length));
  return era === null ? null : { server: text.slice(0, at), lifted: new Map(), era };
}

/** The mark in `MARK REACHED`. */
function readEra(said: string): bigint | null {
  const space = said.indexOf(' ');
  const mark = space < 0 ? null : hexNumber(said.slice(0, space));
  return unsigned(said.slice(space + 1)) === null ? null : mark;
}

/** The record of a new store on this server, whose rows have this mark. */
export function bornRecord(server: string, mark: bigint): string {
  return `${server} era ${hex128(mark)} 0`;
}

/** Whether a record names a Galera cluster. */
export function namesCluster(recorded: string): boolean {
  return markIn(recorded) !== null && recorded.includes(OF_CLUSTER);
}

/** What the record of a server that has a mark says it is. */
export function markIn(recorded: string): bigint | null {
  return recorded.startsWith('mark ') ? hexNumber(recorded.slice('mark '.length).split(' ')[0] as string) : null;
}

/** 128 bits in 32 hexadecimal digits. */
export function hex128(number: bigint): string {
  return number.toString(16).padStart(32, '0');
}

/** A number of 128 bits at most, from hexadecimal digits. */
export function hexNumber(text: string): bigint | null {
  const digits = text.startsWith('+') ? text.slice(1) : text;
  const number = /^[0-9a-f]+$/i.test(digits) ? BigInt(`0x${digits}`) : null;
  return number !== null && number < 1n << 128n ? number : null;
}

/** A number of 64 bits, from decimal digits. */
export function unsigned(text: string): bigint | null {
  const number = /^\+?[0-9]+$/.test(text) ? BigInt(text.startsWith('+') ? text.slice(1) : text) : null;
  return number !== null && number < 1n << 64n ? number : null;
}

/** The error of what is refused, in the words of every store. */
export function refused(what: string): StoreError {
  return new StoreError('refused', `the store refused: ${what}`);
}

function onlySets(statement: string): boolean {
  const [first = '', second = ''] = statement.split(/\s+/).map(asciiUpper);
  switch (first) {
    case '':
    case 'COMMIT':
    case 'ROLLBACK':
      return true;
    // `SET STATEMENT .. FOR` runs any other one; `BEGIN NOT ATOMIC` runs many.
    case 'SET':
      return second !== 'STATEMENT' && !second.startsWith('STATEMENT/');
    case 'BEGIN':
      return second === '' || second === 'WORK';
    case 'START':
      return second === 'TRANSACTION';
    default:
      return false;
  }
}

/** Whether a value, as `SHOW VARIABLES` gives it, is what a statement says in this way. */
function says(value: string, literal: string): boolean {
  const isAlike = (other: string): boolean => asciiUpper(value) === asciiUpper(other);
  switch (literal) {
    case '1':
      return isAlike('ON') || value === '1';
    case '0':
      // Some are seconds with decimals.
      return isAlike('OFF') || (/^[+-]?[0-9]+(\.[0-9]*)?$/.test(value) && Number(value) === 0);
    default:
      return isAlike(literal.replace(/^'+|'+$/g, ''));
  }
}

/** What a statement finds, and what it must be. */
type Equal = readonly [found: string, needed: string];

/**
 * One condition that holds when all of these do: one row of values equals another. As a list of conditions they would
 * cost the server three times as much.
 */
function allOf(all: readonly Equal[]): string {
  const row = (values: readonly string[]): string => `(${values.join(', ')})`;
  return `${row(all.map(([found]) => found))} = ${row(all.map(([, needed]) => needed))}`;
}

function asciiUpper(text: string): string {
  return text.replace(/[a-z]/g, (letter) => letter.toUpperCase());
}
