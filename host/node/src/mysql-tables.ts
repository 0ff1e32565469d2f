/**
 * The tables: that they are there, that they are what grants rest on, and whose server they are on.
 *
 * @module
 */

import { randomBytes } from 'node:crypto';

import {
  ACCESS_DENIED,
  anotherPlace,
  damaged,
  NO_SUCH_TABLE,
  number,
  SYNTAX_ERROR,
  TABLE_ACCESS_DENIED,
  text,
  UNKNOWN_COLUMN,
  type Database,
  type Row,
} from './mysql-database.js';
import {
  bornRecord,
  hex128,
  hexNumber,
  markIn,
  namesCluster,
  refused,
  StoreRecord,
  type ServerFacts,
} from './mysql-server.js';
import { SQL, type Holds, type Shape } from './mysql-sql.js';
import { ID_MAX, type StoreError } from './store.js';

const DOING = 'looking at tables';

/** A table that is to have system versioning has it already. */
const VERSIONED = 4135;

/** What the row of `unalike_store` says. */
interface Recorded {
  /** The version of unalike's own tables. */
  readonly version: bigint;
  readonly server: string;
}

/** What the server says of a table. */
interface FoundTable {
  /** With the kind and the engine of the table in each. */
  readonly columns: Row[];
  /** The columns of each unique key, by name, with commas between. */
  readonly keys: string[];
  /** Their names, and what they do. */
  readonly triggers: (readonly [name: string, body: string])[];
}

/**
 * Looks at tables, and creates those that are missing if that is allowed; unless `begun` answers a row: one is there
 * only if the tables were. Then those that are missing were lost, and would begin anew.
 *
 * @throws {StoreError} `refused` when one is missing and may not be created, when one was lost, and when grants cannot
 * rest on one.
 */
export async function openTables(database: Database, shapes: readonly Shape[], begun?: string): Promise<void> {
  let found = await find(database, shapes);
  const missing = shapes.filter((shape) => !found.has(shape.name));
  if (missing[0] !== undefined && begun !== undefined) {
    await refuseLost(database, missing[0], begun);
  }
  if (missing[0] !== undefined && !database.settings.createTables) {
    throw tableIsMissing(database, missing[0].name);
  }
  if (missing.length > 0) {
    for (const shape of missing) {
      await database.execute('creating a table', shape.ddl, []);
    }
    found = await find(database, shapes);
  }
  for (const shape of shapes) {
    const table = found.get(shape.name);
    if (table === undefined) {
      throw refused(`${database.at}: the table ${shape.name} was there a moment ago, and is gone`);
    }
    judge(database, shape, table);
  }
}

async function refuseLost(database: Database, shape: Shape, begun: string): Promise<void> {
  const rows = await database.turn(DOING, async (turn) => {
    // A server denies access to a table of which it does not say whether it is there.
    const rows = await turn.tryText(begun, [NO_SUCH_TABLE, TABLE_ACCESS_DENIED]);
    turn.giveBack();
    return rows;
  });
  if (typeof rows === 'number' || rows.length === 0) {
    return;
  }
  // Another program may have made the tables, and begun, since this one looked.
  if (!(await find(database, [shape])).has(shape.name)) {
    throw refused(
      `the table ${shape.name} is missing (or this user has no privilege on it), and the store at ${database.at} has ` +
        'begun: restore it from a backup, then run `unalike store restored --lift COUNT`',
    );
  }
}

function tableIsMissing(database: Database, table: string): StoreError {
  return refused(
    `${database.at}: the table ${table} is missing, and tables are not to be created (create=false): run the ` +
      'statements that `unalike schema` prints',
  );
}

async function find(database: Database, shapes: readonly Shape[]): Promise<Map<string, FoundTable>> {
  const names = shapes.map((shape) => shape.name);
  const places = names.map(() => '?').join(', ');
  const rows = (select: string, end: string): Promise<readonly Row[]> =>
    database.rows(DOING, `${select} (${places}) ${end}`, names);
  // One that is looked up may have been found under another case, where the server takes both for one.
  const asked = (row: Row): string | undefined => {
    const found = text(database, row, 'table_name');
    return names.find((name) => names.length === 1 || name === found);
  };
  const tables = new Map<string, FoundTable>();
  for (const row of await rows(SQL.lookups.columns, '')) {
    const name = asked(row);
    if (name !== undefined) {
      const table = tables.get(name) ?? { columns: [], keys: [], triggers: [] };
      table.columns.push(row);
      tables.set(name, table);
    }
  }
  if (tables.size === 0) {
    return tables;
  }
  for (const row of await rows(SQL.lookups.keys, SQL.lookups.keys_end)) {
    tables.get(asked(row) ?? '')?.keys.push(text(database, row, 'names'));
  }
  for (const row of await rows(SQL.lookups.triggers, '')) {
    tables.get(asked(row) ?? '')?.triggers.push([text(database, row, 'name'), text(database, row, 'body')]);
  }
  return tables;
}

/** Refuses a table that grants cannot rest on. */
function judge(database: Database, shape: Shape, found: FoundTable): void {
  const table = shape.name;
  const wrong = (what: string): StoreError => refused(`${database.at}: the table ${table} ${what}`);
  const seen = new Set<string>();
  for (const row of found.columns) {
    const of = (column: string): string => text(database, row, column);
    const [kind, engine] = [of('kind_of_table'), of('engine')];
    if (kind === 'VIEW') {
      throw wrong('is a view, and grants come only from tables: rename the table to it');
    }
    if (kind !== 'BASE TABLE') {
      throw wrong(`is not a plain table but ${kind}: numbers could repeat; make it a plain one`);
    }
    if (engine.toLowerCase() !== 'innodb') {
      throw wrong(
        `is kept in ${engine}, which can lose commits, and numbers would repeat: ALTER TABLE ${table} ENGINE = InnoDB`,
      );
    }
    const name = of('name');
    const holds = shape.columns.find(([column]) => column === name)?.[1];
    if (holds === undefined) {
      continue;
    }
    if (of('generation_expression') !== '') {
      throw wrong(`computes its column ${name} from others, and must take what is given: make it an ordinary one`);
    }
    if (!fits(holds, of('kind'))) {
      throw wrong(`has the column ${name} ${of('kind')}, which must be ${HOLDS[holds]}`);
    }
    seen.add(name);
  }
  const lacking = shape.columns.find(([name]) => !seen.has(name));
  if (lacking !== undefined) {
    throw wrong(`has no column ${lacking[0]}: \`unalike schema\` prints what is needed`);
  }
  const key = shape.key.map((name) => name.toLowerCase()).sort();
  if (!found.keys.includes(key.join(','))) {
    const names = shape.key.join(', ');
    throw wrong(
      `has no unique key over exactly ${names} (whole columns, no prefix, not USING HASH): the same numbers could be ` +
        `granted twice; add one (ALTER TABLE ${table} ADD UNIQUE (${names}))`,
    );
  }
  for (const [name, body] of found.triggers) {
    // It can change no column that it does not name.
    const words = new Set(body.split(/[^\p{L}\p{N}_]+/u));
    const named = shape.columns.find(([column]) => words.has(column))?.[0];
    const what = named ?? (body === '' ? 'what this user may not read' : undefined);
    if (what !== undefined) {
      throw wrong(
        `has the trigger ${name}, which runs before a row is written and names ${what}: it could change what is ` +
          'granted; drop it, or have it run AFTER',
      );
    }
  }
}

const HOLDS: { readonly [holds in Holds]: string } = {
  name: 'a name: VARCHAR or VARBINARY',
  bytes: 'compared byte by byte: VARBINARY or BINARY, as `unalike schema` prints it',
  whole: 'a whole number: BIGINT',
  id: 'a whole number of 63 bits: BIGINT',
};

function fits(holds: Holds, columnType: string): boolean {
  const kind = columnType.split(/[ (]/)[0] as string;
  switch (holds) {
    case 'name':
      return ['varchar', 'char', 'varbinary'].includes(kind);
    case 'bytes':
      return ['varbinary', 'binary'].includes(kind);
    case 'whole':
      return integerLimit(kind, columnType) > 0n;
    case 'id':
      return integerLimit(kind, columnType) >= ID_MAX;
  }
}

/** The greatest number that fits a column of this type; 0 where it holds no whole numbers. */
function integerLimit(kind: string, columnType: string): bigint {
  const bits = { tinyint: 8n, smallint: 16n, mediumint: 24n, int: 32n, bigint: 64n }[kind];
  return bits === undefined ? 0n : (1n << (columnType.includes('unsigned') ? bits : bits - 1n)) - 1n;
}

/**
 * Reads the row of `unalike_store`, or writes it into a new database, and makes sure that the server is the one it
 * names: it alone, from now on. Answers the version of the tables.
 *
 * @throws {StoreError} `refused` when the tables are missing and may not be created, when they are of another version,
 *   and when the server is another one than before, or the data are a copy of those that were used before.
 */
export async function openStore(database: Database, facts: ServerFacts): Promise<bigint> {
  const version = await openRecord(database, facts);
  await openPlace(database, facts);
  return version;
}

async function openRecord(database: Database, facts: ServerFacts): Promise<bigint> {
  const { assumeDurable, assumeIdentity } = database.settings;
  const newIdentity = (): string =>
    assumeIdentity && facts.cluster === null ? 'assumed' : database.identityOf(() => facts.identity(random128()));
  let row = (await readStore(database)) ?? (await createStore(database, bornRecord(newIdentity(), random128() || 1n)));
  await openTables(database, [SQL.tables.store]);
  // The record of a cluster is looked at all the same: a node of it that runs alone is not the cluster.
  if (assumeIdentity && !namesCluster(row.server)) {
    database.expect(facts, null, row.server);
    return row.version;
  }
  if (markIn(row.server) === null && facts.isUnmarked(row.server)) {
    // Somebody else may do the same.
    const identity = newIdentity();
    const replace = facts.fence(!assumeDurable, identity, null).putInto(SQL.store.replace);
    const { server } = row;
    const updated = await database.turn('recording the server', async (turn) => {
      const reply = await turn.tryExecute(replace, [identity, server], [TABLE_ACCESS_DENIED]);
      turn.giveBack();
      return reply;
    });
    if (typeof updated === 'number') {
      // Who only leases may not. It goes on with the record as it is, until somebody else changes it.
      database.expect(
        facts,
        database.identityOf(() => facts.identity(0n)),
        server,
      );
      return row.version;
    }
    row = (await readStore(database)) ?? noRow(database);
  }
  const found = database.identityOf(() => facts.identityAs(row.server));
  const record = new StoreRecord(row.server);
  if (record.server !== found) {
    throw facts.anotherServer(database.at, record.server, found);
  }
  database.expect(facts, found, row.server);
  return row.version;
}

/**
 * Makes sure that the data are where the store was, and that every connection from now on finds them there. A store
 * that knows no place is given this one. The Rust adapter's `place.rs` says why.
 */
async function openPlace(database: Database, facts: ServerFacts): Promise<void> {
  // The operator vouches for whatever is there.
  if (database.settings.assumeIdentity) {
    return;
  }
  const statement = facts.isMariadb ? SQL.place.on_mariadb : SQL.place.on_mysql;
  const [known, found] = await database.turn('looking where the store is', async (turn) => {
    const rows = (await turn.tryRows(SQL.place.known, [], NO_SUCH_TABLE)) ?? [];
    const here = await turn.place(statement);
    turn.giveBack();
    return [rows.map((row) => text(database, row, 'dialect')), here] as const;
  });
  let here = found;
  if (known.length === 0) {
    here = await makePlace(database, facts, statement);
    if (here === null) {
      database.settings.warn(
        `a dump of the store in ${database.at} that is loaded again cannot be told from the store: use MySQL 8, ` +
          'MariaDB 10.3.4 or newer, and let a user with the privileges CREATE and ALTER open it once, or run the ' +
          'statements that `unalike schema` prints',
      );
      return;
    }
    const doing = 'recording where the store is';
    await database.execute(doing, SQL.identity.insert, [`${SQL.place.made}${here}`, hex128(random128())]);
  } else if (here === null || !known.includes(`${SQL.place.made}${here}`)) {
    throw anotherPlace(database.at, here);
  }
  database.expectPlace(statement, here);
}

/** Makes what says the place, where that is missing; `null` where this user may not. */
function makePlace(database: Database, facts: ServerFacts, statement: string): Promise<string | null> {
  return database.turn('making a place for the store', async (turn) => {
    if (database.settings.createTables) {
      await turn.tryExecute(SQL.identity.ddl, [], [TABLE_ACCESS_DENIED]);
      const looked = await turn.tryText(statement, [NO_SUCH_TABLE, UNKNOWN_COLUMN]);
      if (facts.isMariadb && looked === UNKNOWN_COLUMN) {
        // Somebody else may do the same. Versions before 10.3 know no versioning.
        await turn.tryExecute(SQL.place.add_versioning, [], [TABLE_ACCESS_DENIED, VERSIONED, SYNTAX_ERROR]);
      }
    }
    if (facts.isMariadb) {
      const args = [SQL.place.row, hex128(random128())];
      await turn.tryExecute(SQL.identity.insert, args, [NO_SUCH_TABLE, TABLE_ACCESS_DENIED]);
    }
    const here = await turn.place(statement);
    turn.giveBack();
    return here;
  });
}

/** The version of the tables as it is now. */
export async function currentVersion(database: Database): Promise<bigint> {
  return ((await readStore(database)) ?? noRow(database)).version;
}

/** The row; `null` when the table is missing or has no row. */
async function readStore(database: Database): Promise<Recorded | null> {
  const rows = await database.turn('reading unalike_store', async (turn) => {
    const rows = await turn.tryRows(SQL.store.read, [], NO_SUCH_TABLE);
    turn.giveBack();
    return rows;
  });
  const row = rows?.[0];
  if (row === undefined) {
    return null;
  }
  const version = number(database, row, 'schema_version');
  const [oldest, newest] = SQL.versions;
  if (version < oldest || version > newest) {
    const advice = version > newest ? 'upgrade this program' : 'upgrade the tables with the program before this one';
    throw refused(
      `${database.at}: its tables have the version ${version}, and this program serves ${oldest} to ${newest}: ` +
        `${advice}`,
    );
  }
  return { version, server: text(database, row, 'server') };
}

async function createStore(database: Database, record: string): Promise<Recorded> {
  // Each of these statements is a transaction of its own in MySQL, and each may be repeated. Where the table was made
  // by hand, only the row is missing, and the user may not be one who creates tables.
  let inserted = await insertStore(database, record);
  if (inserted === null && database.settings.createTables) {
    await database.execute('creating unalike_store', SQL.tables.store.ddl, []);
    inserted = await insertStore(database, record);
  }
  if (inserted === null) {
    throw tableIsMissing(database, SQL.tables.store.name);
  }
  if (inserted === 1n) {
    // Whoever mistyped a database must hear that the numbers of another store do not go on here.
    database.settings.warn(`made a new store in ${database.at}: recorded its server (${record})`);
  }
  // As somebody else may have written it, a moment before.
  return (await readStore(database)) ?? noRow(database);
}

/** Writes the row unless there is one; `null` without a table, else how many rows were written. */
function insertStore(database: Database, identity: string): Promise<bigint | null> {
  return database.turn('filling unalike_store', async (turn) => {
    const reply = await turn.tryExecute(SQL.store.insert, [BigInt(SQL.versions[1]), identity], [NO_SUCH_TABLE]);
    turn.giveBack();
    return typeof reply === 'number' ? null : reply.affected;
  });
}

function noRow(database: Database): never {
  throw refused(`${database.at}: the table unalike_store is missing or has no row: run \`unalike schema\``);
}

/**
 * Refuses an adopted server that follows another one, where nothing in its statements would notice what it applies.
 *
 * @throws {StoreError} `refused`, saying what to run.
 */
export async function refuseUnnoticed(database: Database, facts: ServerFacts): Promise<void> {
  if (facts.isMariadb) {
    return;
  }
  const source = await database.turn('looking for replication', async (turn) => {
    let found: string | null = null;
    // MySQL before 8.0.22 knows the second one.
    for (const statement of ['SHOW REPLICA STATUS', 'SHOW SLAVE STATUS']) {
      const reply = await turn.tryText(statement, [SYNTAX_ERROR, ACCESS_DENIED]);
      if (typeof reply !== 'number') {
        found = reply[0] === undefined ? null : sourceIn(reply[0]);
        break;
      }
      if (reply === ACCESS_DENIED) {
        break;
      }
    }
    turn.giveBack();
    return found;
  });
  if (source !== null) {
    throw refused(
      `the server at ${database.at} was adopted, and replicates from ${source}: what it applies may write old rows ` +
        'over those that were lifted. End that (STOP REPLICA; RESET REPLICA ALL), and adopt it again',
    );
  }
}

function sourceIn(row: Row): string {
  const host = row['Master_Host'] ?? row['Source_Host'];
  return host === undefined || host === null || host.length === 0 ? 'another server' : host.toString('utf8');
}

/**
 * The random name of what is kept under this word, 32 hexadecimal digits; made when somebody first asks for it.
 *
 * @throws {StoreError} `refused` when the table is missing and must not be created, and any error of the connection.
 */
export async function identityOf(database: Database, dialect: string): Promise<string> {
  let found = await readIdentity(database, dialect);
  if (typeof found === 'string') {
    return found;
  }
  if (found === null) {
    if (!database.settings.createTables) {
      throw tableIsMissing(database, 'unalike_identity');
    }
    await database.turn('creating unalike_identity', async (turn) => {
      const reply = await turn.tryExecute(SQL.identity.ddl, [], [TABLE_ACCESS_DENIED]);
      turn.giveBack();
      if (typeof reply === 'number') {
        throw tableIsMissing(database, 'unalike_identity');
      }
    });
  }
  // Of two who come at once, one name stays.
  const mark = random128().toString(16).padStart(32, '0');
  await database.execute('naming the store in unalike_identity', SQL.identity.insert, [dialect, mark]);
  found = await readIdentity(database, dialect);
  if (typeof found !== 'string') {
    throw damaged(database.at, 'unalike_identity has lost the row that was just written');
  }
  return found;
}

/** No table (`null`), no row (`undefined`), or the name. */
async function readIdentity(database: Database, dialect: string): Promise<string | null | undefined> {
  const rows = await database.turn('reading unalike_identity', async (turn) => {
    const rows = await turn.tryRows(SQL.identity.read, [dialect], NO_SUCH_TABLE);
    turn.giveBack();
    return rows;
  });
  const row = rows?.[0];
  if (row === undefined) {
    return rows === null ? null : undefined;
  }
  const mark = text(database, row, 'mark');
  const identity = hexNumber(mark);
  if (identity === null) {
    throw damaged(database.at, `${JSON.stringify(mark)} in unalike_identity is no name`);
  }
  return identity.toString(16).padStart(32, '0');
}

/** 128 random bits. */
export function random128(): bigint {
  return BigInt(`0x${randomBytes(16).toString('hex')}`);
}
