// The store in a SQLite file: on real files, with other processes, and with the `unalike` command at once, over each
// driver that this Node has.
import assert from 'node:assert/strict';
import { execFile, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  cpSync,
  linkSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { SqliteStore } from '../dist/sqlite.js';

const hasNodeSqlite = process.getBuiltinModule?.('node:sqlite') !== undefined;
const DRIVERS = hasNodeSqlite ? ['node:sqlite', 'better-sqlite3'] : ['better-sqlite3'];
const ID_MAX = (1n << 63n) - 1n;
const LAYOUT = {
  timestampBits: 41,
  datacenterBits: 0,
  workerBits: 2,
  sequenceBits: 12,
  order: 'worker-first',
  epochMs: 1_288_834_974_657n,
  tickMs: 1,
};

const folder = mkdtempSync(join(tmpdir(), 'unalike-sqlite-'));
after(() => rmSync(folder, { recursive: true }));
// Every new store warns that it is one.
process.removeAllListeners('warning').on('warning', () => undefined);

let files = 0;
function newPath() {
  files += 1;
  return join(mkdtempSync(join(folder, `${files}-`)), 'ids.sqlite');
}

const SQLITE = new URL('../dist/sqlite.js', import.meta.url).href;
const DRIVER = new URL('../dist/sqlite-driver.js', import.meta.url).href;

/** Runs a program in another process: this one must not open the file by other means than the store's. */
function other(code, ...args) {
  return execFileSync(process.execPath, ['--no-warnings', '--input-type=module', '-e', code, ...args], {
    encoding: 'utf8',
  }).trim();
}

/** Runs statements in another process; answers what the last one answers. */
function sql(driver, path, ...statements) {
  const code = `
    import { driver } from ${JSON.stringify(DRIVER)};
    const [name, path, last, ...first] = process.argv.slice(1);
    const connection = driver(name)(path, 'create');
    first.forEach((statement) => connection.exec(statement));
    const rows = last === '' ? [] : connection.all(last).map((row) => Object.values(row).map(String));
    connection.close();
    console.log(JSON.stringify(rows));
  `;
  const last = statements.pop();
  return JSON.parse(other(code, driver, path, last, ...statements));
}

function unalike(path, ...args) {
  const binary = process.env.UNALIKE_BIN;
  assert(binary, 'UNALIKE_BIN names no unalike binary: run tests/run --test hosts');
  const options = { encoding: 'utf8', cwd: dirname(path), stdio: ['ignore', 'pipe', 'pipe'] };
  return execFileSync(binary, [...args, '--store', `sqlite://${path}`], options).trim().split('\n');
}

const numbers = ({ start, end }) => Array.from({ length: Number(end - start) }, (_, at) => start + BigInt(at));
const now = () => BigInt(Date.now());
const acquire = (changes = {}) => ({
  namespace: 'default',
  layout: LAYOUT,
  holder: '',
  preferredWorker: null,
  nowMs: now(),
  horizonMs: 60_000n,
  ...changes,
});

/** Calls, and answers what the error says, which must be of this kind. */
async function refusal(kind, call) {
  let message;
  await assert.rejects(call, (error) => {
    message = error.message;
    assert.equal(error.kind, kind, error.stack);
    return true;
  });
  return message;
}

for (const driver of DRIVERS) {
  const open = (path, options = {}) => SqliteStore.open(path, { driver, ...options });
  const it = (name, body) => test(`${driver}: ${name}`, body);

  it('numbers ascend and none comes twice', async () => {
    const store = await open(newPath());
    assert.deepEqual(await store.allocate('order', 10n, 0n), {
      start: 1n,
      end: 11n,
      stride: 1n,
      generation: 0n,
      version: 1n,
    });
    assert.equal((await store.allocate('order', 10n, 0n)).start, 11n);
    assert.equal((await store.allocate('order', 10n, 100n)).start, 100n);
    const granted = await Promise.all(Array.from({ length: 100 }, () => store.allocate('order', 3n, 0n)));
    assert.equal(new Set(granted.flatMap(numbers)).size, 300);
    await store.close();
    assert.match(await refusal('unavailable', () => store.allocate('order', 1n, 0n)), /was closed/);
  });

  it('a tail is given back once, and by its version', async () => {
    const store = await open(newPath());
    const { version } = await store.allocate('order', 10n, 0n);
    assert.equal(await store.release('order', { start: 5n, version: version + 1n }), false);
    assert.equal(await store.release('order', { start: 1n << 63n, version }), false);
    assert.equal(await store.release('order', { start: 5n, version }), true);
    assert.equal(await store.release('order', { start: 5n, version }), false);
    assert.equal((await store.allocate('order', 1n, 0n)).start, 5n);
    await store.close();
  });

  it('options are kept with all their bits, and the last number is granted', async () => {
    const store = await open(newPath());
    const adaptive = {
      kind: 'adaptive',
      step: 5n,
      min: 1n,
      max: ID_MAX,
      growBelowMs: (1n << 63n) + 1n,
      shrinkAboveMs: (1n << 64n) - 1n,
    };
    for (const [tag, step, refill] of [
      ['fixed', { kind: 'fixed', step: ID_MAX }, { kind: 'remaining', numbers: (1n << 64n) - 1n }],
      ['adaptive', adaptive, { kind: 'share-consumed', percent: 100 }],
    ]) {
      const options = { start: (1n << 53n) + 1n, step, refill, mode: 'ordered' };
      const record = { tag, options, watermark: 1n << 53n };
      assert.deepEqual(await store.createTag(tag, options), record);
      assert.deepEqual(await store.openTag(tag), record);
      assert.equal((await store.allocate(`${tag}\x1fsub`, 1n, 0n)).start, (1n << 53n) + 1n);
    }
    await refusal('tag-exists', () => store.createTag('fixed'));
    await refusal('tag-invalid', () => store.createTag('redis-leases'));
    await refusal('tag-invalid', () => store.createTag(' tag'));
    assert.equal((await store.allocate('order', ID_MAX, ID_MAX)).end, ID_MAX + 1n);
    await refusal('exhausted', () => store.allocate('order', 1n, 0n));
    await refusal('exhausted', () => store.allocate('order\x1fsub', 1n, 0n));
    await store.close();
  });

  it('first use may be forbidden, and tags are counted without sub-keys', async () => {
    const path = newPath();
    const store = await open(path, { createTags: false, tagsMax: 1 });
    assert.match(await refusal('tag-unknown', () => store.openTag('order')), /unalike tags create/);
    await store.createTag('order');
    await store.allocate('order\x1fa', 1n, 0n);
    await store.allocate('order\x1fb', 1n, 0n);
    assert.match(await refusal('tag-limit', () => store.createTag('other')), /1 tags, its limit/);
    await store.close();
    assert.deepEqual(sql(driver, path, 'SELECT tags FROM store'), [['1']]);
  });

  it('new names begin above the floor, but for times', async () => {
    const path = newPath();
    const store = await open(path);
    await store.allocate('unalike-new-names\x1ffloor', 1n, 0n);
    sql(driver, path, "UPDATE tag SET watermark = 1000, settled = 1000 WHERE instr(tag, 'floor')", '');
    assert.equal((await store.allocate('order', 1n, 0n)).start, 1_001n);
    assert.equal((await store.allocate('redis-leases\x1fdefault', 1n, 0n)).start, 1n);
    await store.close();
  });

  it('a stripe is refused', async () => {
    const path = newPath();
    const store = await open(path);
    await store.allocate('order', 1n, 0n);
    const place = "stripe_set = x'000000000000000000000000005eed00', stripe_index = 1, stripe_count = 3";
    sql(driver, path, `UPDATE store SET ${place}`, '');
    const calls = [() => store.allocate('order', 1n, 0n), () => store.openTag('order'), () => store.openTag('b')];
    for (const call of calls) {
      const what = await refusal('refused', call);
      assert.match(what, /is stripe 1 of 3 in the set 000000000000000000000000005eed00: use it together/);
    }
    assert.equal(await store.release('order', { start: 1n, version: 1n }), false);
    sql(driver, path, 'UPDATE store SET stripe_index = 1 << 31', '');
    assert.match(await refusal('refused', () => store.allocate('order', 1n, 0n)), /fenced while its tags are moved/);
    await store.close();
  });

  it('a file that was restored goes on above what was lost, and leases nothing that may still run', async () => {
    const path = newPath();
    let store = await open(path);
    assert.deepEqual(numbers(await store.allocate('order', 2n, 0n)), [1n, 2n]);
    const before = await store.acquire(acquire());
    await store.close();
    unalike(path, 'store', 'restored', '--lift', '1000');
    store = await open(path);
    assert.deepEqual(numbers(await store.allocate('order', 1n, 0n)), [1003n]);
    assert.deepEqual(numbers(await store.allocate('late', 1n, 0n)), [1001n]);
    await refusal('lease-lost', () => store.extend({ ...acquire(), ...before }));
    for (const namespace of ['default', 'lost']) {
      const message = await refusal('quarantined', () => store.acquire(acquire({ namespace })));
      assert.match(message, /may have forgotten leases/);
    }
    await store.close();
  });

  it('workers are granted, extended and released', async () => {
    const path = newPath();
    const store = await open(path);
    const leases = [];
    for (const preferredWorker of [2, null, null, 2]) {
      leases.push(await store.acquire(acquire({ holder: 'a', preferredWorker })));
    }
    assert.equal(leases[0].worker, 2);
    assert.deepEqual(leases.map(({ worker }) => worker).sort(), [0, 1, 2, 3]);
    assert.match(await refusal('workers-exhausted', () => store.acquire(acquire())), /all 4 worker ids/);
    const [{ worker, grantId, notBeforeMs, validUntilMs }] = leases;
    const extend = { namespace: 'default', layout: LAYOUT, worker, grantId, nowMs: now(), horizonMs: 1_000_000n };
    const extended = await store.extend(extend);
    assert(extended.validUntilMs > validUntilMs && extended.validUntilMs <= now() + 600_000n);
    assert.equal(extended.notBeforeMs, notBeforeMs);
    await refusal('lease-lost', () => store.extend({ ...extend, grantId: 7n }));
    const other = { ...LAYOUT, tickMs: 7 };
    assert.match(await refusal('layout-mismatch', () => store.extend({ ...extend, layout: other })), /41\/2\/12/);
    await refusal('layout-mismatch', () => store.acquire(acquire({ layout: other })));
    await refusal('clock-skew', () => store.acquire(acquire({ nowMs: now() + 60_000n })));
    await refusal('refused', () => store.acquire(acquire({ horizonMs: 0n })));
    assert.equal(await store.release('default', worker, grantId, extended.validUntilMs + 1n), false);
    assert.equal(await store.release('default', worker, grantId, notBeforeMs + 5n), true);
    assert.equal(await store.release('default', worker, grantId, notBeforeMs + 5n), false);
    await refusal('lease-lost', () => store.extend(extend));
    // Its workers are free from then on.
    while (now() < notBeforeMs + 5n) {
      await sleep(1);
    }
    const again = await store.acquire(acquire());
    assert(again.worker === worker && again.notBeforeMs >= notBeforeMs + 5n);
    await store.close();
    assert.match(unalike(path, 'tags', 'list').join(' '), /./);
  });

  it('the file is as the Rust adapter makes it', async () => {
    const [ours, theirs] = [newPath(), newPath()];
    await (await open(ours)).close();
    unalike(theirs, 'next', 'order');
    const query = 'SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name';
    assert.deepEqual(sql(driver, ours, query), sql(driver, theirs, query));
    for (const pragma of ['application_id', 'user_version', 'journal_mode']) {
      assert.deepEqual(sql(driver, ours, `PRAGMA ${pragma}`), sql(driver, theirs, `PRAGMA ${pragma}`));
    }
  });

  it('a file that is not ours is left as it is', async () => {
    for (const [statements, kind, words] of [
      [['CREATE TABLE theirs (a)', 'PRAGMA application_id = 7'], 'refused', /database of another program/],
      [['CREATE TABLE theirs (a)', ''], 'refused', /database of another program/],
      [['PRAGMA application_id = 1970168172', 'PRAGMA user_version = 3'], 'refused', /newer version of unalike/],
      [['PRAGMA application_id = 1970168172', 'PRAGMA user_version = 0'], 'corrupt', /its schema has the version 0/],
    ]) {
      const path = newPath();
      sql(driver, path, ...statements);
      const before = readFileSync(path);
      assert.match(await refusal(kind, () => open(path)), words);
      assert.deepEqual(readFileSync(path), before);
      assert.deepEqual(readdirSync(dirname(path)), ['ids.sqlite']);
    }
  });

  it('what cannot be a store is refused', async () => {
    const path = newPath();
    assert.match(await refusal('refused', () => open(folder)), /is a directory/);
    assert.match(await refusal('refused', () => open(join(folder, 'none', 'ids.sqlite'))), /does not exist: create it/);
    assert.match(await refusal('refused', () => open(path, { create: false })), /is not to be made here/);
    writeFileSync(path, '');
    assert.match(await refusal('refused', () => open(path, { create: false })), /is empty/);
    writeFileSync(path, 'no database, but a text that is longer than its header would be'.repeat(20));
    assert.match(await refusal('corrupt', () => open(path)), /is not a SQLite database/);
    unlinkSync(path);
    writeFileSync(`${path}-wal`, 'left');
    assert.match(await refusal('refused', () => open(path)), /its log/);
    for (const wrong of [{ busyTimeoutMs: 600_001 }, { maxHorizonMs: 0 }, { tagsMax: 1.5 }, { tagsMax: -1n }]) {
      await refusal('refused', () => open(newPath(), wrong));
    }
    await refusal('refused', () => SqliteStore.open('a\0b'));
  });

  for (const suffix of ['', '-wal', '-shm']) {
    for (const deed of ['deleted', 'moved', 'replaced']) {
      it(`a file${suffix} that was ${deed} grants nothing`, async () => {
        const path = newPath();
        const store = await open(path);
        await store.allocate('order', 10n, 0n);
        const { worker, grantId } = await store.acquire(acquire());
        const victim = `${path}${suffix}`;
        if (deed === 'moved') {
          renameSync(victim, `${victim}.moved`);
        } else if (deed === 'deleted') {
          unlinkSync(victim);
        } else {
          writeFileSync(`${victim}.new`, '');
          renameSync(`${victim}.new`, victim);
        }
        for (const call of [
          () => store.allocate('order', 1n, 0n),
          () => store.release('order', { start: 5n, version: 1n }),
          () => store.acquire(acquire()),
          () => store.extend({ ...acquire(), worker, grantId }),
          () => store.release('default', worker, grantId, now()),
          () => store.identity(),
        ]) {
          assert.match(await refusal('refused', call), /while this process had it open/);
        }
        if (deed === 'moved') {
          renameSync(`${victim}.moved`, victim);
          const call = () => store.allocate('order', 1n, 0n);
          assert.match(await refusal('refused', call), /while this process had it open/);
        }
        await store.close();
        if (deed === 'moved') {
          const again = await open(path);
          assert.equal((await again.allocate('order', 1n, 0n)).start, 11n);
          await again.close();
        }
      });
    }
  }

  it('a second name of the file is refused', async () => {
    const path = newPath();
    const store = await open(path);
    linkSync(path, `${path}.other`);
    assert.match(await refusal('refused', () => store.allocate('order', 1n, 0n)), /2 names \(hard links\)/);
    unlinkSync(`${path}.other`);
    assert.equal((await store.allocate('order', 1n, 0n)).start, 1n);
    await store.close();
  });

  it('a file that another process keeps locked is unavailable, and the program goes on meanwhile', async () => {
    const path = newPath();
    const store = await open(path, { busyTimeoutMs: 300 });
    const code = `
      import { driver } from ${JSON.stringify(DRIVER)};
      const connection = driver(process.argv[1])(process.argv[2], 'existing');
      connection.exec('BEGIN IMMEDIATE');
      console.log('locked');
      // The connection is used afterwards, so that nobody collects it before.
      process.stdin.resume().on('end', () => connection.close());
    `;
    const args = ['--no-warnings', '--input-type=module', '-e', code, driver, path];
    const holder = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'] });
    const ended = new Promise((resolve) => holder.on('exit', resolve));
    const [line] = await once(createInterface(holder.stdout), 'line');
    assert.equal(line, 'locked');
    let turns = 0;
    const counter = setInterval(() => (turns += 1), 1);
    const both = [store.allocate('order', 1n, 0n), store.allocate('order', 1n, 0n)];
    const settled = await Promise.allSettled(both);
    clearInterval(counter);
    assert.deepEqual(settled.map(({ reason }) => reason?.kind), ['unavailable', 'unavailable']);
    assert.match(settled[0].reason.message, /another process holds the file's write lock/);
    assert.match(settled[1].reason.message, /no turn within the busy timeout|another process holds/);
    assert(turns > 5, `the event loop turned ${turns} times`);
    holder.stdin.end();
    await ended;
    assert.equal((await store.allocate('order', 1n, 0n)).start, 1n);
    await store.close();
  });

  it('a store that is open keeps no process alive, and one that is asked does', () => {
    const code = `
      import { SqliteStore } from ${JSON.stringify(SQLITE)};
      const store = await SqliteStore.open(process.argv[2], { driver: process.argv[1] });
      store.allocate('order', 10n, 0n).then(({ end }) => console.log(String(end)));
    `;
    assert.equal(other(code, driver, newPath()), '11');
  });

  it('a store that cannot be opened ends its thread', () => {
    const code = `
      import { SqliteStore } from ${JSON.stringify(SQLITE)};
      await SqliteStore.open('/', { driver: process.argv[1] }).catch((error) => console.log(error.kind));
    `;
    assert.equal(other(code, driver), 'refused');
  });

  it('processes and the Rust command share a file through kill -9', async () => {
    const path = newPath();
    const code = `
      import { SqliteStore } from ${JSON.stringify(SQLITE)};
      const store = await SqliteStore.open(process.argv[2], { driver: process.argv[1], busyTimeoutMs: 60_000 });
      for (;;) {
        const { start, end } = await store.allocate('order', 3n, 0n);
        console.log(start + ' ' + end);
      }
    `;
    const start = () => {
      const args = ['--no-warnings', '--input-type=module', '-e', code, driver, path];
      const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
      const ranges = [];
      let rest = '';
      const begun = new Promise((resolve) => {
        child.stdout.setEncoding('utf8').on('data', (text) => {
          const lines = `${rest}${text}`.split('\n');
          // What follows the last end of a line may be cut off by the kill.
          rest = lines.pop();
          ranges.push(...lines.map((line) => line.split(' ').map(BigInt)));
          resolve();
        });
      });
      return { child, ranges, begun, ended: new Promise((resolve) => child.stdout.on('close', resolve)) };
    };
    const children = [start(), start()];
    const store = await open(path, { busyTimeoutMs: 60_000 });
    const taken = [];
    for (const { child, begun, ended } of children) {
      await begun;
      for (let at = 0; at < 30; at += 1) {
        taken.push(...numbers(await store.allocate('order', 5n, 0n)));
      }
      taken.push(...unalike(path, 'next', 'order', '-n', '20').map(BigInt));
      child.kill('SIGKILL');
      await ended;
    }
    taken.push(...numbers(await store.allocate('order', 5n, 0n)));
    taken.push(...unalike(path, 'next', 'order', '-n', '20').map(BigInt));
    await store.close();
    taken.push(...children.flatMap(({ ranges }) => ranges.flatMap(([from, to]) => numbers({ start: from, end: to }))));
    assert(taken.length > 400 && new Set(taken).size === taken.length, `${taken.length} numbers`);
  });

  it('a tag that first use creates is told with NODE_DEBUG', async () => {
    const code = `
      import { SqliteStore } from ${JSON.stringify(SQLITE)};
      const store = await SqliteStore.open(process.argv[1], { driver: process.argv[2] });
      await store.createTag('made');
      for (const tag of ['order', 'order', 'made', 'order\\u001fa']) await store.allocate(tag, 1n, 0n);
      await store.close();
    `;
    const args = ['--no-warnings', '--input-type=module', '-e', code];
    const told = async (env) =>
      (await promisify(execFile)(process.execPath, [...args, newPath(), driver], { env })).stderr;
    const lines = (await told({ ...process.env, NODE_DEBUG: 'unalike' })).split('\n').filter((line) => line !== '');
    assert.equal(lines.length, 1, lines.join('\n'));
    assert.match(lines[0], /ids\.sqlite: created a tag on first use: tag="order" next=1$/);
    assert.equal(await told({ ...process.env, NODE_DEBUG: '' }), '');
  });

  it('several stores of one process have the same file', async () => {
    const path = newPath();
    const stores = await Promise.all(Array.from({ length: 3 }, () => open(path)));
    await stores[0].close();
    const granted = await Promise.all([1, 2, 1, 2].map((at) => stores[at].allocate('order', 1n, 0n)));
    assert.equal(new Set(granted.flatMap(numbers)).size, 4);
    await stores[1].close();
    stores[1] = await open(path);
    assert.equal((await stores[1].allocate('order', 1n, 0n)).start, 5n);
    assert.equal((await stores[2].allocate('order', 1n, 0n)).start, 6n);
    await Promise.all(stores.map((store) => store.close()));
    const left = readdirSync('/proc/self/fd').map((number) => linkOf(number));
    assert(!left.some((target) => target.includes(dirname(path)) || target.includes(`unalike-sqlite-${process.pid}`)));
  });
}

function linkOf(descriptor) {
  try {
    return readlinkSync(`/proc/self/fd/${descriptor}`);
  } catch {
    return '';
  }
}

/** A copy of the package with a driver of its own. */
let copied;
function copyOfPackage() {
  if (copied === undefined) {
    copied = join(folder, 'copy');
    const modules = new URL('../node_modules/', import.meta.url).pathname;
    cpSync(new URL('../dist/', import.meta.url).pathname, join(copied, 'dist'), { recursive: true });
    for (const name of ['better-sqlite3', 'bindings', 'file-uri-to-path']) {
      const is = (from) => !/obj|\/deps\/|\/src\//.test(from.slice(modules.length));
      cpSync(join(modules, name), join(copied, 'node_modules', name), { recursive: true, filter: is });
    }
    writeFileSync(join(copied, 'package.json'), '{"type":"module"}');
  }
  return copied;
}

const ON_LINUX = { skip: process.platform !== 'linux' && 'it looks at /proc' };

/** What a program says that has two copies of the driver: JSON. */
function twoCopies(path, code) {
  const begin = `
    import { createRequire } from 'node:module';
    import { readFileSync } from 'node:fs';
    import { SqliteStore } from ${JSON.stringify(SQLITE)};
    const [path, copy] = process.argv.slice(1);
    const { SqliteStore: Second } = await import(copy + '/dist/sqlite.js');
    const Raw = createRequire(copy + '/package.json')('better-sqlite3');
    const driver = 'better-sqlite3';
    const said = [];
    const failed = (error) => error.kind + ' ' + error.message;
    const ask = async (work) => said.push(await work().then(() => 'granted', failed));
    const open = () => SqliteStore.open(path, { driver });
  `;
  const options = { encoding: 'utf8', timeout: 60_000 };
  const args = ['--no-warnings', '--input-type=module', '-e', `${begin}${code}; console.log(JSON.stringify(said));`];
  return JSON.parse(execFileSync(process.execPath, [...args, path, copyOfPackage()], options));
}

test('a second copy of the package and its driver is refused, and the first goes on', ON_LINUX, () => {
  const [first, second, third, after, last] = twoCopies(
    newPath(),
    `
    const store = await open();
    await ask(() => store.allocate('order', 1n, 0n));
    await ask(() => Second.open(path, { driver }));
    await ask(() => Second.open(path, { driver }));
    await ask(() => store.allocate('order', 1n, 0n));
    await store.close();
    await ask(async () => (await Second.open(path, { driver })).close());
    `,
  );
  assert.deepEqual([first, after, last], ['granted', 'granted', 'granted']);
  assert.match(second, /^refused .*second copy of (unalike or of )?SQLite/);
  assert.match(third, /^refused .*second copy of (unalike or of )?SQLite/);
});

test('a store notices another copy of the driver that opens its file', ON_LINUX, () => {
  for (const close of ['', 'raw.close();']) {
    const path = newPath();
    const [first, ...others] = twoCopies(
      path,
      `
      const store = await open();
      await ask(() => store.allocate('order', 1n, 0n));
      const raw = new Raw(path);
      raw.prepare('SELECT * FROM tag').all();
      ${close}
      await ask(() => store.allocate('order', 1n, 0n));
      await ask(() => store.allocate('order', 1n, 0n));
      await store.close();
      `,
    );
    assert.equal(first, 'granted');
    others.forEach((said) => assert.match(said, /^refused .*second copy of (unalike or of )?SQLite/));
    assert(Number(unalike(path, 'next', 'order')[0]) > 1);
  }
});

test('a store is not opened beside another copy of the driver', ON_LINUX, () => {
  const said = twoCopies(
    newPath(),
    `
    await (await open()).close();
    const raw = new Raw(path);
    raw.prepare('SELECT * FROM tag').all();
    await ask(open);
    raw.prepare('SELECT * FROM tag').all();
    raw.close();
    await ask(async () => (await open()).close());
    `,
  );
  assert.match(said[0], /^refused .*second copy of (unalike or of )?SQLite.*let it open this store first/);
  assert.equal(said[1], 'granted');
});

test('code that reads a file of the store drops the locks', ON_LINUX, () => {
  for (const ends of [[''], ['-shm'], ['', '-shm']]) {
    const said = twoCopies(
      newPath(),
      `
      const store = await open();
      await ask(() => store.allocate('order', 1n, 0n));
      ${JSON.stringify(ends)}.forEach((end) => readFileSync(path + end));
      await ask(() => store.allocate('order', 1n, 0n));
      await ask(open);
      await store.close();
      `,
    );
    assert.equal(said[0], 'granted');
    assert.match(said[1], new RegExp(`^refused .*ids.sqlite${ends[0]}: this process has lost its locks`));
    assert.match(said[2], /^refused .*this process has lost its locks/);
  }
});
