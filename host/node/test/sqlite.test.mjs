// The store in a SQLite file: on real files, with other processes and threads, and with the `unalike` command at once.
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
import { Worker } from 'node:worker_threads';
import { SqliteStore } from '../dist/sqlite.js';
import { Store } from '../dist/stores.js';
import { needed } from './fixtures.mjs';

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

/** Runs a program in another process. */
function other(code, ...args) {
  return execFileSync(process.execPath, ['--no-warnings', '--input-type=module', '-e', code, ...args], {
    encoding: 'utf8',
  }).trim();
}

/**
 * Runs statements in another process, since this one must not open the file by other means than the store's; answers
 * what the last one answers.
 */
function sql(path, ...statements) {
  const code = `
import json, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
for statement in sys.argv[2:]:
    rows = connection.execute(statement).fetchall()
connection.close()
print(json.dumps([[str(value) for value in row] for row in rows]))
  `;
  const args = ['-c', code, path, ...statements];
  return JSON.parse(execFileSync(needed('UNALIKE_TEST_PYTHON'), args, { encoding: 'utf8' }));
}

function unalike(path, ...args) {
  const options = { encoding: 'utf8', cwd: dirname(path), stdio: ['ignore', 'pipe', 'pipe'] };
  return execFileSync(needed('UNALIKE_BIN'), [...args, '--store', `sqlite://${path}`], options).trim().split('\n');
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

test('numbers ascend and none comes twice', async () => {
  const store = await SqliteStore.open(newPath());
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

test('a tail is given back once, and by its version', async () => {
  const store = await SqliteStore.open(newPath());
  const { version } = await store.allocate('order', 10n, 0n);
  assert.equal(await store.release('order', { start: 5n, version: version + 1n }), false);
  assert.equal(await store.release('order', { start: 1n << 63n, version }), false);
  assert.equal(await store.release('order', { start: 5n, version }), true);
  assert.equal(await store.release('order', { start: 5n, version }), false);
  assert.equal((await store.allocate('order', 1n, 0n)).start, 5n);
  await store.close();
});

test('options are kept with all their bits, and the last number is granted', async () => {
  const store = await SqliteStore.open(newPath());
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

test('first use may be forbidden, and tags are counted without sub-keys', async () => {
  const path = newPath();
  const store = await SqliteStore.open(path, { createTags: false, tagsMax: 1 });
  assert.match(await refusal('tag-unknown', () => store.openTag('order')), /unalike tags create/);
  await store.createTag('order');
  await store.allocate('order\x1fa', 1n, 0n);
  await store.allocate('order\x1fb', 1n, 0n);
  assert.match(await refusal('tag-limit', () => store.createTag('other')), /1 tags, its limit/);
  await store.close();
  assert.deepEqual(sql(path, 'SELECT tags FROM store'), [['1']]);
});

test('new names begin above the floor, but for times', async () => {
  const path = newPath();
  const store = await SqliteStore.open(path);
  await store.allocate('unalike-new-names\x1ffloor', 1n, 0n);
  sql(path, "UPDATE tag SET watermark = 1000, settled = 1000 WHERE instr(tag, 'floor')");
  assert.equal((await store.allocate('order', 1n, 0n)).start, 1_001n);
  assert.equal((await store.allocate('redis-leases\x1fdefault', 1n, 0n)).start, 1n);
  await store.close();
});

test('a stripe is refused', async () => {
  const path = newPath();
  const store = await SqliteStore.open(path);
  await store.allocate('order', 1n, 0n);
  const place = "stripe_set = x'000000000000000000000000005eed00', stripe_index = 1, stripe_count = 3";
  sql(path, `UPDATE store SET ${place}`);
  const calls = [() => store.allocate('order', 1n, 0n), () => store.createTag('a'), () => store.openTag('b')];
  for (const call of calls) {
    const what = await refusal('refused', call);
    assert.match(what, /is stripe 1 of 3 in the set 000000000000000000000000005eed00: use it together/);
  }
  assert.equal(await store.release('order', { start: 1n, version: 1n }), false);
  sql(path, 'UPDATE store SET stripe_index = 1 << 31');
  assert.match(await refusal('refused', () => store.allocate('order', 1n, 0n)), /fenced while its tags are moved/);
  await store.close();
});

test('a file that was restored goes on above what was lost, and leases nothing that may still run', async () => {
  const path = newPath();
  let store = await SqliteStore.open(path);
  assert.deepEqual(numbers(await store.allocate('order', 2n, 0n)), [1n, 2n]);
  const before = await store.acquire(acquire());
  await store.close();
  unalike(path, 'store', 'restored', '--lift', '1000');
  store = await SqliteStore.open(path);
  assert.deepEqual(numbers(await store.allocate('order', 1n, 0n)), [1003n]);
  assert.deepEqual(numbers(await store.allocate('late', 1n, 0n)), [1001n]);
  await refusal('lease-lost', () => store.extend({ ...acquire(), ...before }));
  for (const namespace of ['default', 'lost']) {
    const message = await refusal('quarantined', () => store.acquire(acquire({ namespace })));
    assert.match(message, /may have forgotten leases/);
  }
  await store.close();
});

test('workers are granted, extended and released', async () => {
  const path = newPath();
  const store = await SqliteStore.open(path);
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

test('the file is as the Rust adapter makes it', async () => {
  const [ours, theirs] = [newPath(), newPath()];
  await (await SqliteStore.open(ours)).close();
  unalike(theirs, 'next', 'order');
  const query = 'SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name';
  assert.deepEqual(sql(ours, query), sql(theirs, query));
  for (const pragma of ['application_id', 'user_version', 'journal_mode']) {
    assert.deepEqual(sql(ours, `PRAGMA ${pragma}`), sql(theirs, `PRAGMA ${pragma}`));
  }
});

test('a file that is not ours is left as it is', async () => {
  for (const [statements, kind, words] of [
    [['CREATE TABLE theirs (a)', 'PRAGMA application_id = 7'], 'refused', /database of another program/],
    [['CREATE TABLE theirs (a)'], 'refused', /database of another program/],
    [['PRAGMA application_id = 1970168172', 'PRAGMA user_version = 3'], 'refused', /newer version of unalike/],
    [['PRAGMA application_id = 1970168172', 'PRAGMA user_version = 0'], 'corrupt', /its schema has the version 0/],
  ]) {
    const path = newPath();
    sql(path, ...statements);
    const before = readFileSync(path);
    assert.match(await refusal(kind, () => SqliteStore.open(path)), words);
    assert.deepEqual(readFileSync(path), before);
    assert.deepEqual(readdirSync(dirname(path)), ['ids.sqlite']);
  }
});

test('what cannot be a store is refused', async () => {
  const path = newPath();
  assert.match(await refusal('refused', () => SqliteStore.open(folder)), /is a directory/);
  const nowhere = () => SqliteStore.open(join(folder, 'none', 'ids.sqlite'));
  assert.match(await refusal('refused', nowhere), /does not exist: create it/);
  assert.match(await refusal('refused', () => SqliteStore.open(path, { create: false })), /is not to be made here/);
  writeFileSync(path, '');
  assert.match(await refusal('refused', () => SqliteStore.open(path, { create: false })), /is empty/);
  writeFileSync(path, 'no database, but a text that is longer than its header would be'.repeat(20));
  assert.match(await refusal('corrupt', () => SqliteStore.open(path)), /is not a SQLite database/);
  unlinkSync(path);
  writeFileSync(`${path}-wal`, 'left');
  assert.match(await refusal('refused', () => SqliteStore.open(path)), /its log/);
  for (const wrong of [{ busyTimeoutMs: 600_001 }, { maxHorizonMs: 0 }, { tagsMax: 1.5 }, { tagsMax: -1n }]) {
    await refusal('refused', () => SqliteStore.open(newPath(), wrong));
  }
  await refusal('refused', () => SqliteStore.open('a\0b'));
});

for (const suffix of ['', '-wal', '-shm']) {
  for (const deed of ['deleted', 'moved', 'replaced']) {
    test(`a file${suffix} that was ${deed} grants nothing`, async () => {
      const path = newPath();
      const store = await SqliteStore.open(path);
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
        const again = await SqliteStore.open(path);
        assert.equal((await again.allocate('order', 1n, 0n)).start, 11n);
        await again.close();
      }
    });
  }
}

test('a second name of the file is refused', async () => {
  const path = newPath();
  const store = await SqliteStore.open(path);
  linkSync(path, `${path}.other`);
  assert.match(await refusal('refused', () => store.allocate('order', 1n, 0n)), /2 names \(hard links\)/);
  unlinkSync(`${path}.other`);
  assert.equal((await store.allocate('order', 1n, 0n)).start, 1n);
  await store.close();
});

test('a file that another process keeps locked is unavailable, and the program goes on meanwhile', async () => {
  const path = newPath();
  const store = await SqliteStore.open(path, { busyTimeoutMs: 300 });
  const code = `
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
connection.close()
  `;
  const stdio = ['pipe', 'pipe', 'inherit'];
  const holder = spawn(needed('UNALIKE_TEST_PYTHON'), ['-c', code, path], { stdio });
  const ended = new Promise((resolve) => holder.on('exit', resolve));
  const [line] = await once(createInterface(holder.stdout), 'line');
  assert.equal(line, 'locked');
  let turns = 0;
  const counter = setInterval(() => (turns += 1), 1);
  const both = [store.allocate('order', 1n, 0n), store.allocate('order', 1n, 0n)];
  const settled = await Promise.allSettled(both);
  clearInterval(counter);
  assert.deepEqual(settled.map(({ reason }) => reason?.kind), ['unavailable', 'unavailable']);
  const messages = settled.map(({ reason }) => reason.message);
  assert(messages.some((message) => /another process holds the file's write lock/.test(message)), messages[0]);
  assert(messages.every((message) => /no turn within the busy timeout|another process holds/.test(message)));
  assert(turns > 5, `the event loop turned ${turns} times`);
  holder.stdin.end();
  await ended;
  assert.equal((await store.allocate('order', 1n, 0n)).start, 1n);
  await store.close();
});

test('a store that is open keeps no process alive, and one that is asked does', () => {
  const code = `
    import { SqliteStore } from ${JSON.stringify(SQLITE)};
    const store = await SqliteStore.open(process.argv[1]);
    store.allocate('order', 10n, 0n).then(({ end }) => console.log(String(end)));
  `;
  assert.equal(other(code, newPath()), '11');
});

test('a store that cannot be opened keeps no process alive', () => {
  const code = `
    import { SqliteStore } from ${JSON.stringify(SQLITE)};
    await SqliteStore.open('/').catch((error) => console.log(error.kind));
  `;
  assert.equal(other(code), 'refused');
});

test('processes and the Rust command share a file through kill -9', async () => {
  const path = newPath();
  const code = `
    import { SqliteStore } from ${JSON.stringify(SQLITE)};
    const store = await SqliteStore.open(process.argv[1], { busyTimeoutMs: 60_000 });
    for (;;) {
      const { start, end } = await store.allocate('order', 3n, 0n);
      console.log(start + ' ' + end);
    }
  `;
  const start = () => {
    const args = ['--no-warnings', '--input-type=module', '-e', code, path];
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
  const store = await SqliteStore.open(path, { busyTimeoutMs: 60_000 });
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

test('a tag that first use creates is told with NODE_DEBUG', async () => {
  const code = `
    import { SqliteStore } from ${JSON.stringify(SQLITE)};
    const store = await SqliteStore.open(process.argv[1]);
    await store.createTag('made');
    for (const tag of ['order', 'order', 'made', 'order\\u001fa']) await store.allocate(tag, 1n, 0n);
    await store.close();
  `;
  const args = ['--no-warnings', '--input-type=module', '-e', code];
  const told = async (env) => (await promisify(execFile)(process.execPath, [...args, newPath()], { env })).stderr;
  const lines = (await told({ ...process.env, NODE_DEBUG: 'unalike' })).split('\n').filter((line) => line !== '');
  assert.equal(lines.length, 1, lines.join('\n'));
  assert.match(lines[0], /created a tag on first use tag="order" next=1$/);
  assert.equal(await told({ ...process.env, NODE_DEBUG: '' }), '');
});

test('several stores of one process have the same file', async () => {
  const path = newPath();
  const stores = await Promise.all(Array.from({ length: 3 }, () => SqliteStore.open(path)));
  await stores[0].close();
  const granted = await Promise.all([1, 2, 1, 2].map((at) => stores[at].allocate('order', 1n, 0n)));
  assert.equal(new Set(granted.flatMap(numbers)).size, 4);
  await stores[1].close();
  stores[1] = await SqliteStore.open(path);
  assert.equal((await stores[1].allocate('order', 1n, 0n)).start, 5n);
  assert.equal((await stores[2].allocate('order', 1n, 0n)).start, 6n);
  await Promise.all(stores.map((store) => store.close()));
  const left = readdirSync('/proc/self/fd').map((number) => linkOf(number));
  assert(!left.some((target) => target.includes(dirname(path)) || target.includes(`unalike-sqlite-${process.pid}`)));
});

function linkOf(descriptor) {
  try {
    return readlinkSync(`/proc/self/fd/${descriptor}`);
  } catch {
    return '';
  }
}

const ON_LINUX = { skip: process.platform !== 'linux' && 'it looks at /proc' };

/** What a program says: JSON. */
function saidBy(path, code, ...args) {
  const begin = `
    import { openSync, readFileSync } from 'node:fs';
    import { SqliteStore } from ${JSON.stringify(SQLITE)};
    const [path, copy] = process.argv.slice(1);
    const said = [];
    const failed = (error) => error.kind + ' ' + error.message;
    const ask = async (work) => said.push(await work().then(() => 'granted', failed));
  `;
  return JSON.parse(other(`${begin}${code}; console.log(JSON.stringify(said));`, path, ...args));
}

test('a second copy of the package is refused, and the first goes on', ON_LINUX, () => {
  const copied = join(folder, 'copy');
  cpSync(new URL('../dist/', import.meta.url).pathname, join(copied, 'dist'), { recursive: true, dereference: true });
  writeFileSync(join(copied, 'package.json'), '{"type":"module"}');
  const [first, second, third, after, last] = saidBy(
    newPath(),
    `
    const { SqliteStore: Second } = await import(copy + '/dist/sqlite.js');
    const store = await SqliteStore.open(path);
    await ask(() => store.allocate('order', 1n, 0n));
    await ask(() => Second.open(path));
    await ask(() => Second.open(path));
    await ask(() => store.allocate('order', 1n, 0n));
    await store.close();
    await ask(async () => (await Second.open(path)).close());
    `,
    copied,
  );
  assert.deepEqual([first, after, last], ['granted', 'granted', 'granted']);
  assert.match(second, /^refused .*another copy of this library/);
  assert.match(third, /^refused .*another copy of this library/);
});

// What a second SQLite in the process does: it opens the index of the log for itself, and closes the files.
for (const [what, deed, words] of [
  ['has its index open', "openSync(path + '-shm', 'r')", /^refused .*something else in .* has .*ids\.sqlite-shm open/],
  ['has read the file', 'readFileSync(path)', /^refused .*ids\.sqlite: this process has lost its locks/],
  ['has read its index', "readFileSync(path + '-shm')", /^refused .*ids\.sqlite-shm: .* has lost its locks/],
]) {
  test(`a store grants nothing once other code of the program ${what}`, ON_LINUX, () => {
    const path = newPath();
    const [first, ...others] = saidBy(
      path,
      `
      const store = await SqliteStore.open(path);
      await ask(() => store.allocate('order', 1n, 0n));
      ${deed};
      await ask(() => store.allocate('order', 1n, 0n));
      await ask(() => store.allocate('order', 1n, 0n));
      await ask(() => SqliteStore.open(path));
      await store.close();
      `,
    );
    assert.equal(first, 'granted');
    others.forEach((said) => assert.match(said, words));
    assert(Number(unalike(path, 'next', 'order')[0]) > 1);
  });
}

const hasNodeSqlite = process.getBuiltinModule?.('node:sqlite') !== undefined;
test('a store notices node:sqlite in its file', { skip: !hasNodeSqlite && 'this Node has no node:sqlite' }, () => {
  for (const close of ['', 'raw.close();']) {
    const [first, ...others] = saidBy(
      newPath(),
      `
      const store = await SqliteStore.open(path);
      await ask(() => store.allocate('order', 1n, 0n));
      const { DatabaseSync } = process.getBuiltinModule('node:sqlite');
      const raw = new DatabaseSync(path);
      raw.prepare('SELECT * FROM tag').all();
      ${close}
      await ask(() => store.allocate('order', 1n, 0n));
      await ask(() => store.allocate('order', 1n, 0n));
      await store.close();
      `,
    );
    assert.equal(first, 'granted');
    others.forEach((said) => assert.match(said, /^refused .*a second copy of (unalike or of )?SQLite/));
  }
});

/** A thread with a store of its own that posts what it is granted, many requests at once, until it is ended. */
function thread(path) {
  const code = `
    const { parentPort, workerData } = require('node:worker_threads');
    import(${JSON.stringify(SQLITE)}).then(async ({ SqliteStore }) => {
      const store = await SqliteStore.open(workerData, { busyTimeoutMs: 60_000 });
      const grant = async () => {
        for (;;) {
          const { start, end } = await store.allocate('order', 3n, 0n);
          parentPort.postMessage([start, end]);
        }
      };
      await Promise.all(Array.from({ length: 4 }, grant));
    });
  `;
  const worker = new Worker(code, { eval: true, workerData: path });
  const granted = [];
  const failed = new Promise((_, reject) => worker.on('error', reject));
  const begun = new Promise((resolve) => {
    worker.on('message', ([start, end]) => {
      granted.push(...numbers({ start, end }));
      if (granted.length >= 90) {
        resolve();
      }
    });
  });
  return { worker, granted, begun: Promise.race([begun, failed]) };
}

test('threads share a file, and one that is ended in the middle of its grants takes nothing with it', async () => {
  const path = newPath();
  const store = await SqliteStore.open(path, { busyTimeoutMs: 60_000 });
  const threads = Array.from({ length: 3 }, () => thread(path));
  const taken = [];
  for (const { worker, begun } of threads) {
    await begun;
    for (let at = 0; at < 10; at += 1) {
      taken.push(...numbers(await store.allocate('order', 5n, 0n)));
    }
    await worker.terminate();
    taken.push(...numbers(await store.allocate('order', 5n, 0n)));
    taken.push(...unalike(path, 'next', 'order', '-n', '20').map(BigInt));
  }
  taken.push(...threads.flatMap(({ granted }) => granted));
  assert(taken.length > 400 && new Set(taken).size === taken.length, `${taken.length} numbers`);
  await store.close();
  const again = await SqliteStore.open(path);
  assert((await again.allocate('order', 1n, 0n)).start > taken.reduce((one, other) => (one > other ? one : other)));
  await again.close();
});

test('a store that is closed, twice and while requests run, tells them all', async () => {
  const store = await SqliteStore.open(newPath());
  const running = Array.from({ length: 20 }, () => store.allocate('order', 1n, 0n));
  const settling = Promise.allSettled(running);
  await Promise.all([store.close(), store.close()]);
  const settled = await settling;
  const told = settled.filter(({ status }) => status === 'rejected').map(({ reason }) => reason);
  assert.ok(told.every(({ kind }) => kind === 'unavailable' || kind === 'outcome-unknown'), String(told[0]));
  await store.close();
  for (const call of [() => store.identity(), () => store.acquire(acquire()), () => store.openTag('order')]) {
    assert.match(await refusal('unavailable', call), /was closed/);
  }
});

test('a new store is a warning, and one that is there is none', async () => {
  const path = newPath();
  const code = `
    import { SqliteStore } from ${JSON.stringify(SQLITE)};
    process.on('warning', ({ name, message }) => console.log(name, message));
    await (await SqliteStore.open(process.argv[1])).close();
  `;
  assert.match(other(code, path), /^UnalikeWarning made a new store: every tag begins here at its first number/);
  assert.equal(other(code, path), '');
});

test('Store opens a file by its URL: alone, for leases, and as a stripe of a set', async () => {
  const path = newPath();
  const store = await Store.open(`sqlite://${path}?busy-timeout-ms=1000`);
  assert.deepEqual(numbers(await store.allocate('order', 2n, 0n)), [1n, 2n]);
  const lease = await store.acquire(acquire());
  await store.close();
  const same = await SqliteStore.open(path);
  assert.equal((await same.allocate('order', 1n, 0n)).start, 3n);
  assert.equal(await same.release('default', lease.worker, lease.grantId, lease.notBeforeMs + 1n), true);
  await same.close();
  const stripes = [newPath(), newPath()];
  const set = await Store.open(stripes.map((stripe) => `sqlite://${stripe}`), { leases: `sqlite://${path}` });
  const granted = [await set.allocate('order', 2n, 0n), await set.allocate('order', 2n, 0n)];
  assert.deepEqual(granted.map(({ stride }) => stride), [2n, 2n]);
  assert.equal((await set.acquire(acquire())).worker < 4, true);
  await set.close();
  const alone = await SqliteStore.open(stripes[0]);
  assert.match(await refusal('refused', () => alone.allocate('order', 1n, 0n)), /is stripe 0 of 2 in the set/);
  await alone.close();
});

test('a path that no URL can say is refused, and a relative one counts from the working directory', async () => {
  for (const name of ['a?b', 'a#b', 'a%20b']) {
    const message = await refusal('refused', () => SqliteStore.open(join(folder, name)));
    assert.match(message, /rename the file/);
  }
  const code = `
    import { SqliteStore } from ${JSON.stringify(SQLITE)};
    process.chdir(process.argv[1]);
    const opening = SqliteStore.open('ids.sqlite');
    process.chdir('/');
    const store = await opening;
    console.log(store.address);
    await store.close();
  `;
  const path = newPath();
  assert.equal(other(code, dirname(path)), path);
});
