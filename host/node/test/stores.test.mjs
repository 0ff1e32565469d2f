// Stores by their URLs, on real servers: what the Rust host has, Node has.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { cp, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { Ids } from '../dist/index.js';
import { PRESETS } from '../dist/layouts.js';
import { subTag } from '../dist/names.js';
import { ID_MAX, StoreError } from '../dist/store.js';
import { Store } from '../dist/stores.js';
import { deafServer, folderOf, needed, ODD_OPTIONS, Seen } from './fixtures.mjs';
import { freshDatabase } from './mariadb.mjs';
import { RedisProcess } from './redis-servers.mjs';

const run = promisify(execFile);
const child = fileURLToPath(new URL('./children/stores.mjs', import.meta.url));
const dist = fileURLToPath(new URL('../dist', import.meta.url));

// Every new store warns that it is one.
const warned = [];
process.removeAllListeners('warning').on('warning', (warning) => warned.push(warning));

/** Where a store of each kind is. */
const PLACES = {
  MariaDB: async () => ({ url: await freshDatabase(), options: {} }),
  PostgreSQL: async () => {
    const [server, name] = [needed('UNALIKE_TEST_POSTGRES'), `unalike_${randomBytes(6).toString('hex')}`];
    await run('psql', ['--quiet', server, '--command', `CREATE DATABASE ${name}`]);
    return { url: `${server.slice(0, server.lastIndexOf('/'))}/${name}`, options: {} };
  },
  etcd: async () => ({ url: `${needed('UNALIKE_TEST_ETCD')}/${randomBytes(6).toString('hex')}`, options: {} }),
  'Redis above MariaDB': async (t) => {
    const { url } = await RedisProcess.start(t, await folderOf(t));
    return { url, options: { backing: await freshDatabase() } };
  },
};

/** A store that ends with its test. */
async function open(t, url, options) {
  const store = await Store.open(url, options);
  t.after(() => store.close());
  return store;
}

/** A database for the tests that need no new one. */
let database;
const anyDatabase = () => (database ??= freshDatabase());

/** What a process of Node's says on its standard output, once it has ended by itself. */
async function ran(...args) {
  const { stdout } = await run(process.execPath, args, { timeout: 60_000, maxBuffer: 1 << 26 });
  return stdout;
}

const refused = (text, kind = 'refused') => (error) => {
  assert.ok(error instanceof StoreError, error.stack);
  assert.ok(!error.message.includes('hunter2'), error.message);
  assert.equal(error.kind, kind, error.message);
  assert.match(error.message, text);
  return true;
};

const acquiring = (more = {}) => ({
  namespace: 'default',
  layout: PRESETS.twitter,
  holder: '',
  preferredWorker: null,
  nowMs: BigInt(Date.now()),
  horizonMs: 60_000n,
  ...more,
});

async function sharing(t, url, options) {
  const below = 'backing' in options ? ['--backing', options.backing] : [];
  // The tag is made by the command.
  const { stdout } = await run(needed('UNALIKE_BIN'), ['next', 'order', '-n', '100', '--store', url, ...below]);
  const [orders, flakes] = [new Seen(), new Seen()];
  orders.add(stdout.trim().split('\n').map(BigInt));
  const store = await open(t, url, options);
  const made = await store.openTag('order');
  assert.ok(made.tag === 'order' && made.watermark >= 100n, `${made.watermark}`);
  const task = JSON.stringify({ url, options, orders: 400, flakes: 50 });
  const other = ran(child, task);
  const ids = await Ids.open({ segments: store, leases: store, waitMaxMs: 20_000 });
  const sequence = await ids.sequence('order', { step: { kind: 'fixed', step: 50n } });
  for (let at = 0; at < 400; at += 1) {
    orders.add([await sequence.next()]);
  }
  flakes.add(await (await ids.snowflake('default', 'twitter')).take(50));
  await ids.close();
  const drawn = JSON.parse(await other);
  orders.add(drawn.orders.map(BigInt));
  flakes.add(drawn.flakes.map(BigInt));
  assert.deepEqual([orders.ids.size, flakes.ids.size], [900, 100]);
}

async function using(t, url, options) {
  const store = await open(t, url, { ...options, tagsMax: 100n, createTags: true });
  const odd = ODD_OPTIONS.refill.numbers;
  assert.deepEqual((await store.createTag('invoice', ODD_OPTIONS)).options, ODD_OPTIONS);
  assert.deepEqual((await store.openTag('invoice')).options, ODD_OPTIONS);
  const plain = { step: { kind: 'fixed', step: 7n }, refill: { kind: 'share-consumed', percent: 20 } };
  assert.deepEqual((await store.createTag('plain', plain)).options, { start: 1n, mode: 'buffered', ...plain });
  await assert.rejects(store.createTag('invoice'), refused(/exists already/, 'tag-exists'));
  const { start, version } = await store.allocate('order', 10n, 0n);
  assert.ok([true, false].includes(await store.release('order', { start: start + 3n, version })));
  assert.equal(await store.release('order', { start: 2n ** 64n, version }), false);
  const sub = subTag('order', 'a/b +&?%é');
  assert.equal((await store.openTag(sub)).tag, sub);
  const last = await store.allocate('last', 5n, ID_MAX - 1n);
  assert.ok(last.end - last.stride <= ID_MAX && last.end > ID_MAX - 2n, `${last.end}`);
  await assert.rejects(async () => {
    for (;;) {
      await store.allocate('last', 1n, ID_MAX);
    }
  }, refused(/last/, 'exhausted'));
  assert.match(await store.identity(), /^[0-9a-f]{32}$/);
  const [owner, shape] = [{ kind: 'tag', name: 'order' }, { kind: 'shape' }];
  assert.equal(await store.bindFormat(owner, shape, null), null);
  assert.equal(await store.bindFormat(owner, shape, ID_MAX), ID_MAX);
  assert.equal(await store.bindFormat(owner, shape, 5n), ID_MAX);
  assert.equal(await store.bindFormat(owner, { kind: 'key', id: 1, bits: 24 }, odd), odd);

  // Of a namespace in which nobody has this worker.
  const namespace = 'alone';
  const lease = await store.acquire(acquiring({ namespace, preferredWorker: 7 }));
  assert.equal(lease.worker, 7);
  assert.ok(0n < lease.grantId && lease.grantId < 2n ** 128n, `${lease.grantId}`);
  assert.ok(lease.notBeforeMs < lease.validUntilMs, `${lease.notBeforeMs} to ${lease.validUntilMs}`);
  const { worker, grantId } = lease;
  const extended = await store.extend({ ...acquiring({ namespace, horizonMs: 90_000n }), worker, grantId });
  assert.ok(extended.grantId === grantId && extended.validUntilMs > lease.validUntilMs);
  for (const [other, grant] of [
    [8, grantId],
    [-1, grantId],
    [2 ** 32, grantId],
    [worker, grantId + 1n],
    [worker, -1n],
    [worker, 2n ** 128n],
  ]) {
    const request = { ...acquiring({ namespace }), worker: other, grantId: grant };
    await assert.rejects(store.extend(request), refused(/leased/, 'lease-lost'));
    assert.equal(await store.release(namespace, other, grant, lease.notBeforeMs), false);
  }
  assert.equal(await store.release(namespace, worker, grantId, 2n ** 64n), false);
  assert.equal(await store.release(namespace, worker, grantId, lease.notBeforeMs), true);
  assert.match(await store.leaseIdentity(), /^[0-9a-f]{32}$/);
  await store.close();
  await store.close();
  await assert.rejects(store.allocate('order', 1n, 0n), refused(/the store was closed/, 'unavailable'));
  assert.ok(await store.allocate('order', 1n, 0n).catch(({ isFinal }) => isFinal));
}

describe('any store by its URL', { concurrency: 4 }, () => {
  for (const [kind, place] of Object.entries(PLACES)) {
    test(`in ${kind}`, async (t) => {
      const { url, options } = await place(t);
      await t.test('processes and the command share it, and no id comes twice', (t) => sharing(t, url, options));
      await t.test('tags, tails, formats and leases', (t) => using(t, url, options));
    });
  }

  test('what only a store in Rust says is told to the component in words that it has', () => {
    const failures = { 'clock-behind': 'unavailable', 'timestamps-ended': 'exhausted', 'place-changed': 'refused' };
    for (const [kind, failure] of Object.entries(failures)) {
      assert.equal(new StoreError(kind, 'said the test').failure, failure);
    }
  });

  test('numbers that no store grants are refused, and none is wrapped', async (t) => {
    const store = await open(t, await anyDatabase());
    for (const [count, atLeast, kind] of [
      [0n, 0n, 'refused'],
      [-1n, 0n, 'refused'],
      [2n ** 64n, 0n, 'refused'],
      [2n ** 64n + 1n, 0n, 'refused'],
      [1n, -1n, 'refused'],
      [1n, 2n ** 63n, 'exhausted'],
      [1n, 2n ** 64n, 'exhausted'],
      [1, 0n, 'refused'],
      [1.5, 0n, 'refused'],
    ]) {
      await assert.rejects(store.allocate('first', count, atLeast), refused(/./, kind), `${count} from ${atLeast}`);
    }
    for (const start of [0n, -1n, 2n ** 63n, 2n ** 64n + 5n, 5]) {
      await assert.rejects(store.createTag('other', { start }), refused(/its start/, 'tag-invalid'), `${start}`);
    }
    for (const more of [{ nowMs: -1n }, { nowMs: 2n ** 64n }, { horizonMs: 2n ** 64n }, { preferredWorker: -1 }]) {
      await assert.rejects(store.acquire(acquiring(more)), refused(/./), JSON.stringify(Object.keys(more)));
    }
    for (const name of ['', 'a\0b', 'a\ud800', 'x'.repeat(129), 'unalike-formats', 5]) {
      await assert.rejects(store.createTag(name), refused(/./, 'tag-invalid'), String(name));
    }
    await assert.rejects(store.acquire(acquiring({ namespace: 'a\ud800' })), refused(/namespace/));
    assert.equal((await store.allocate('first', 1n, 0n)).start, 1n);
    // What the library itself makes of them.
    const { exports } = native();
    const [failed, stores] = await exports.Stores.open(JSON.stringify({ store: await anyDatabase() }));
    assert.equal(failed, null);
    for (const wrong of [-1n, 2n ** 64n, 2n ** 64n + 1n, -(2n ** 64n), 2n ** 200n]) {
      const [{ kind, message }] = await stores.allocate('first', wrong, 0n);
      assert.ok(kind === 'refused' && /the count is/.test(message), message);
      assert.equal((await stores.release('first', wrong, 0n))[0].kind, 'refused');
    }
    assert.equal((await stores.releaseLease('default', 2n ** 32n, 1n, 0n))[0].kind, 'refused');
    assert.equal((await stores.releaseLease('default', 1n, 2n ** 128n, 0n))[0].kind, 'refused');
    assert.throws(() => stores.allocate('first', 1, 0n));
    assert.throws(() => stores.allocate('first', '1', 0n));
    assert.equal((await stores.allocate('first', 1n, 0n))[1].start, 2n);
    await stores.close();
  });

  test('a thousand requests at once have numbers of their own, and nothing else waits for them', async (t) => {
    // They wait for a few connections.
    const store = await open(t, `${await anyDatabase()}?connect-timeout-ms=60000`);
    await store.openTag('order');
    let turns = 0;
    const turning = setInterval(() => (turns += 1), 1);
    const segments = await Promise.all(Array.from({ length: 1_000 }, () => store.allocate('order', 3n, 0n)));
    clearInterval(turning);
    const seen = new Seen();
    for (const { start, end } of segments) {
      assert.equal(end, start + 3n);
      seen.add([start, start + 1n, start + 2n]);
    }
    assert.ok(turns > 5, `the loop turned ${turns} times`);
  });

  test('what cannot be used is refused in words without a password', async () => {
    const mysql = 'mysql://ids:hunter2@h/ids';
    for (const [url, options, expected] of [
      [undefined, {}, /the address of the store is undefined: is its environment variable set/],
      ['', {}, /is empty/],
      [5, {}, /is of the type number/],
      [[], {}, /there is no store/],
      [[mysql, undefined], {}, /the address of a stripe is undefined/],
      [[mysql, mysql], {}, /given twice/],
      ['ids.sqlite', {}, /is not a URL/],
      ['sqlite:ids.sqlite', {}, /is not a URL/],
      [[mysql, 'sqlite://a#b'], {}, /others would read as another one/],
      ['oracle://ids:hunter2@h/ids', {}, /scheme "oracle" is unknown/],
      ['redis://ids:hunter2@h/0', {}, /--backing/],
      [mysql, { backing: 'none' }, /is not in Redis/],
      [mysql, { backing: 5 }, /backing must be a text/],
      [mysql, { colour: 'red' }, /options has "colour", which is not known/],
      [mysql, 'hunter2', /options is a text/],
      [`${mysql}?colour=red`, {}, /colour/],
      [mysql, { tagsMax: 0 }, /tags_max is 0/],
      [mysql, { tagsMax: -1 }, /tagsMax is -1/],
      [mysql, { tagsMax: 1.5 }, /tagsMax is 1.5/],
      [mysql, { createTags: 1 }, /createTags is 1, it must be true or false/],
      [mysql, { leaseHorizonMaxMs: 0 }, /leaseHorizonMaxMs is 0/],
      [mysql, { leaseSkewMaxMs: 3_600_001 }, /leaseSkewMaxMs is 3600001/],
      [mysql, { token: 'hunter2' }, /token is for unalike servers/],
      ['http://h', { token: ['hunter2'] }, /token must be a text/],
      ['http://ids:hunter2@h', {}, /no server takes/],
    ]) {
      await assert.rejects(Store.open(url, options), refused(expected), `${url} ${JSON.stringify(options)}`);
    }
    assert.throws(() => new Store(), refused(/await Store\.open/));
  });

  test('a store that is down, that says nothing, or that denies access is told in time', async () => {
    const began = performance.now();
    const unreachable = Store.open('postgres://ids:hunter2@127.0.0.1:1/ids?connect-timeout-ms=500');
    await assert.rejects(unreachable, refused(/127\.0\.0\.1:1/, 'unavailable'));
    const url = new URL(await anyDatabase());
    [url.username, url.password] = ['nobody', 'hunter2'];
    await assert.rejects(Store.open(url.href), refused(/denied|Access/i));
    assert.ok(performance.now() - began < 20_000);
  });

  test('a store that accepts no connection is given up', async (t) => {
    const { port } = new URL(await deafServer(t));
    const opening = Store.open(`mysql://ids:hunter2@127.0.0.1:${port}/ids?connect-timeout-ms=300`);
    await assert.rejects(opening, refused(/./, 'unavailable'));
  });

  test('what an operator should hear is a warning of the process', async (t) => {
    const url = await freshDatabase();
    await open(t, url);
    const name = new URL(url).pathname.slice(1);
    const [warning] = warned.filter(({ message }) => message.includes(name));
    assert.ok(warning?.name === 'UnalikeWarning' && /new store/.test(warning.message), String(warning));
  });

  test('a program ends by itself with an open store, and when it wants to with a request that is out', async () => {
    const url = JSON.stringify(await anyDatabase());
    const from = JSON.stringify(new URL('../dist/stores.js', import.meta.url).href);
    const opening = `import { Store } from ${from}; const store = await Store.open(${url});`;
    const ends = [
      'console.log(String((await store.allocate("order", 1n, 0n)).start));',
      'store.allocate("order", 1n, 0n).then(({ start }) => console.log(String(start)));',
      'store.allocate("order", 1n, 0n); console.log("out"); process.exit(0);',
      'for (let at = 0; at < 100; at += 1) store.allocate("order", 1n, 0n); console.log("out"); process.exit(0);',
    ];
    const said = await Promise.all(ends.map((end) => ran('--input-type=module', '-e', `${opening} ${end}`)));
    const words = said.map((text) => text.trim().replace(/^\d+$/, 'an id'));
    assert.deepEqual(words, ['an id', 'an id', 'out', 'out']);
  });

  test('threads open stores of their own and end, also where no other thread has the library', async () => {
    const url = await anyDatabase();
    const task = JSON.stringify({ url, options: {}, orders: 100, flakes: 20 });
    const code = `
      import { Worker } from 'node:worker_threads';
      const workerData = ${task};
      const start = () => new Worker(${JSON.stringify(child)}, { workerData, execArgv: ['--no-warnings'] });
      const draw = () => new Promise((resolve, reject) => {
        let drawn;
        start().once('message', (told) => (drawn = told)).once('error', reject).once('exit', () => resolve(drawn));
      });
      const drawn = await Promise.all([draw(), draw()]);
      // Two that are ended in the middle of it.
      await Promise.all([0, 60].map(async (ms) => {
        const worker = start();
        await new Promise((resolve) => worker.once('online', resolve));
        await new Promise((resolve) => setTimeout(resolve, ms));
        await worker.terminate();
      }));
      drawn.push(await draw());
      console.log(JSON.stringify(drawn));
    `;
    const drawn = JSON.parse(await ran('--input-type=module', '-e', code));
    const [orders, flakes] = [new Seen(), new Seen()];
    for (const each of drawn) {
      orders.add(each.orders.map(BigInt));
      flakes.add(each.flakes.map(BigInt));
    }
    assert.deepEqual([orders.ids.size, flakes.ids.size], [300, 60]);
  });

  test('without the library all else works, and the entries that need it say what to do', async (t) => {
    const folder = await folderOf(t);
    const isCode = (path) => !path.endsWith('unalike.node');
    await mkdir(join(folder, 'dist'));
    await writeFile(join(folder, 'package.json'), '{"type": "module"}');
    await cp(dist, join(folder, 'dist'), { recursive: true, filter: isCode });
    const code = `
      import { writeFile } from 'node:fs/promises';
      import { Ids, MemoryStore } from './dist/index.js';
      import { MysqlStore } from './dist/mysql.js';
      import { RedisStore } from './dist/redis.js';
      import { SqliteStore } from './dist/sqlite.js';
      import { Store } from './dist/stores.js';
      const ids = await Ids.open({ segments: new MemoryStore() });
      console.log(String(await (await ids.sequence('order')).next()));
      const said = ({ kind, message }) => console.log(kind, message);
      const open = () => Store.open('postgres://h/ids').catch(said);
      await open();
      await MysqlStore.open('mysql://ids@h/ids').catch(said);
      await SqliteStore.open('ids.sqlite').catch(said);
      await RedisStore.open({ url: 'redis://h', backing: new MemoryStore() }).catch(said);
      await writeFile(new URL('dist/unalike.node', import.meta.url), 'no library at all');
      await open();
    `;
    await writeFile(join(folder, 'program.mjs'), code);
    const [id, ...said] = (await ran(join(folder, 'program.mjs'))).trim().split('\n');
    assert.deepEqual([id, said.length], ['1', 5]);
    for (const each of said) {
      assert.match(each, /^refused this .*; unalike\/remote does without it\. .*npm run native\)/);
      assert.match(each, /unalike\.node/);
    }
  });
});

/** The library by itself. */
function native() {
  const module = { exports: {} };
  process.dlopen(module, join(dist, 'unalike.node'));
  return module;
}
