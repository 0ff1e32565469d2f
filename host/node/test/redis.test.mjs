// The store in Redis as Node has it: on real servers, over SQLite files and durable stores of a program's own. What the
// Rust host decides has its tests there.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { Worker } from 'node:worker_threads';

import { DEFAULT_TAG_OPTIONS } from '../dist/names.js';
import { MemoryStore } from '../dist/memory.js';
import { RedisStore } from '../dist/redis.js';
import { SqliteStore } from '../dist/sqlite.js';
import { ID_MAX, StoreError } from '../dist/store.js';
import { Store } from '../dist/stores.js';
import { certificates, deferred, folderOf, freePort, needed, ODD_OPTIONS, stopped } from './fixtures.mjs';
import { RedisProcess, Switched } from './redis-servers.mjs';

// Every new SQLite file warns that it is one.
process.removeAllListeners('warning').on('warning', () => undefined);

const LAYOUT = {
  timestampBits: 41,
  datacenterBits: 0,
  workerBits: 4,
  sequenceBits: 12,
  order: 'worker-first',
  epochMs: 1_288_834_974_657n,
  tickMs: 1,
};

/** A Redis, a durable store in a file, and what opens stores over both. */
async function shared(t, ...settings) {
  const folder = await folderOf(t);
  const redis = await RedisProcess.start(t, folder, ...settings);
  const path = join(folder, 'ids.sqlite');
  const stores = [];
  t.after(() => Promise.all(stores.map((store) => store.close())));
  const open = async (parameters = 'raise-min=100') => {
    const backing = new Switched(await SqliteStore.open(path));
    const store = await RedisStore.open({ url: `${redis.url}?${parameters}`, backing });
    stores.push(store);
    return { store, backing };
  };
  return { folder, redis, path, open };
}

/** Repeats until it works: for what fails for a while only. */
async function eventually(request) {
  for (let tries = 0; ; tries += 1) {
    try {
      return await request();
    } catch (error) {
      if (!error.isRetryable || tries === 600) {
        throw error;
      }
      await sleep(20);
    }
  }
}

/** The same where others last a while, too: what a durable store said is remembered for a moment. */
function eventuallyOf(kinds, request) {
  return eventually(() =>
    request().catch((error) => {
      throw kinds.includes(error.kind) ? Object.assign(new Error(error.message), { isRetryable: true }) : error;
    }),
  );
}

/** All numbers of what was granted; they must differ. */
function numbers(segments) {
  const all = segments.flatMap(({ start, end }) =>
    Array.from({ length: Number(end - start) }, (_, at) => start + BigInt(at)),
  );
  assert.equal(new Set(all).size, all.length, 'a number was granted twice');
  return all;
}

const kind =
  (expected, text = /./) =>
  (error) =>
    error.kind === expected && text.test(error.message);

test('what cannot be used is refused in words, without the password', async () => {
  for (const [url, message] of [
    ['http://h', /scheme is "http", it must be redis: write redis:\/\/HOST\/DATABASE/],
    ['mysql://ids:hidden@h/ids', /scheme is "mysql"/],
    ['hidden', /cannot be read/],
    ['redis-sentinel://h', /redis\+sentinel/],
    ['redis://ids:hidden/x@h', /is not a URL|cannot be read/],
    ['redis://ids:hidden#x@h', /is not a URL/],
    ['redis://h?no-such=1', /no-such/],
    ['redis://h?password=hidden', /password/],
    ['redis://:hidden@h?password-env=PATH', /more than one way/],
    ['redis://h?password-env=NO_SUCH_VARIABLE', /has no text/],
  ]) {
    await assert.rejects(
      RedisStore.open({ url, backing: new MemoryStore() }),
      (error) => kind('refused', message)(error) && !error.message.includes('hidden'),
      url,
    );
  }
  await assert.rejects(RedisStore.open({ url: 'redis://127.0.0.1:1' }), kind('refused', /backing: 'none'/));
});

test('numbers beyond 2^53 and up to the last one are exact', async (t) => {
  const { open } = await shared(t);
  const { store } = await open();
  await store.createTag('big', { ...DEFAULT_TAG_OPTIONS, start: 9_007_199_254_740_993n });
  const first = await store.allocate('big', 2n, 0n);
  assert.deepEqual([first.start, first.end], [9_007_199_254_740_993n, 9_007_199_254_740_995n]);
  const tail = { start: first.start + 1n, version: first.version };
  assert.equal(await store.release('big', tail), true);
  assert.equal(await store.release('big', tail), false, 'a second time');
  assert.equal((await store.allocate('big', 1n, 0n)).start, 9_007_199_254_740_994n);
  await store.createTag('last', { ...DEFAULT_TAG_OPTIONS, start: ID_MAX - 2n });
  const last = numbers([await store.allocate('last', 2n, 0n), await store.allocate('last', 9n, 0n)]);
  assert.deepEqual(last, [ID_MAX - 2n, ID_MAX - 1n, ID_MAX]);
  await assert.rejects(store.allocate('last', 1n, 0n), kind('exhausted'));
  await assert.rejects(store.allocate('big', 1n, ID_MAX + 1n), kind('exhausted'));
});

test("tags go to the durable store and back as they are, and kept names are nobody's", async (t) => {
  const { folder, redis, open } = await shared(t);
  const { store, backing } = await open();
  assert.deepEqual((await store.createTag('strict', ODD_OPTIONS)).options, ODD_OPTIONS);
  assert.deepEqual((await store.openTag('strict')).options, ODD_OPTIONS);
  assert.deepEqual((await backing.openTag('strict')).options, ODD_OPTIONS);
  assert.deepEqual((await store.openTag('plain')).options, DEFAULT_TAG_OPTIONS);
  await assert.rejects(store.createTag('strict', DEFAULT_TAG_OPTIONS), kind('tag-exists'));
  for (const name of [
    'redis-leases',
    'redis-leases\u001fdefault',
    'order\u001fredis-clock:1',
    'unalike-new-names\u001ffloor',
  ]) {
    await assert.rejects(store.allocate(name, 1n, 0n), kind('tag-invalid'), name);
    await assert.rejects(store.openTag(name), kind('tag-invalid'), name);
    await assert.rejects(store.release(name, { start: 1n, version: 1n }), kind('tag-invalid'), name);
  }
  const closed = await RedisStore.open({
    url: `${redis.url}?prefix=other`,
    backing: await SqliteStore.open(join(folder, 'closed.sqlite'), { createTags: false }),
  });
  t.after(() => closed.close());
  await assert.rejects(closed.allocate('unknown', 1n, 0n), kind('tag-unknown'));
});

test('leases in Redis have the limits of the options, and errors their kinds', async (t) => {
  const { redis, path } = await shared(t);
  const leaseLimits = { maxHorizonMs: 100_000n, maxSkewMs: 5_000n };
  const backing = await SqliteStore.open(path);
  const store = await RedisStore.open({ url: redis.url, backing, leasesIn: 'redis', leaseLimits });
  t.after(() => store.close());
  const now = () => BigInt(Date.now());
  const acquire = (more) =>
    store.acquire({
      ...{ namespace: 'default', layout: LAYOUT, holder: '', preferredWorker: null, nowMs: now(), horizonMs: 2_000n },
      ...more,
    });
  await assert.rejects(acquire({ nowMs: now() - 6_000n }), kind('clock-skew', /5000 ms apart is the limit/));
  const lease = await acquire({ preferredWorker: 7 });
  const { worker, grantId, notBeforeMs } = lease;
  assert.ok(worker === 7 && grantId > 0n && grantId < 1n << 128n, `${worker} ${grantId}`);
  assert.ok(lease.validUntilMs > now() && lease.validUntilMs <= now() + 3_000n);
  const extend = (more) =>
    store.extend({ namespace: 'default', layout: LAYOUT, worker, grantId, nowMs: now(), horizonMs: 900_000n, ...more });
  const longer = await extend();
  assert.deepEqual({ ...longer, validUntilMs: 0n }, { ...lease, validUntilMs: 0n });
  assert.ok(longer.validUntilMs > lease.validUntilMs);
  assert.ok(longer.validUntilMs <= now() + 101_000n, 'as far as the option allows');
  await assert.rejects(extend({ grantId: grantId ^ 1n }), kind('lease-lost'));
  await assert.rejects(extend({ worker: 8 }), kind('lease-lost'));
  const one = { namespace: 'one', layout: { ...LAYOUT, workerBits: 0 } };
  await assert.rejects(extend({ layout: one.layout }), kind('layout-mismatch'));
  await acquire(one);
  await assert.rejects(acquire(one), kind('workers-exhausted', /all 1 worker ids/));
  assert.equal(await store.release('default', 7, grantId ^ 1n, notBeforeMs), false);
  assert.equal(await store.release('default', 7, grantId, notBeforeMs), true);
  assert.match(await store.leaseIdentity(), /^[0-9a-f]{32}$/);
  assert.notEqual(await store.leaseIdentity(), await store.identity());
});

test('what a durable store of the program does wrong is told, and granted to nobody', async (t) => {
  const { redis, path } = await shared(t);
  class Own extends Switched {
    wrong;

    async allocate(...request) {
      const segment = await super.allocate(...request);
      return typeof this.wrong === 'function' ? this.wrong(segment) : { ...segment, ...this.wrong };
    }
  }
  const backing = new Own(await SqliteStore.open(path));
  const url = `${redis.url}?raise-min=10&raise-max=10&raise-timeout-ms=5000`;
  const store = await RedisStore.open({ url, backing });
  t.after(() => store.close());
  const thrown = (error) => () => {
    throw error;
  };
  const unfit = /the durable store granted .* which Redis cannot hand out/;
  for (const [at, [wrong, expected, text]] of [
    [thrown(new TypeError('granted')), 'ceiling-reached', /the durable store failed: TypeError: granted/],
    [thrown('a text'), 'ceiling-reached', /the durable store failed: "a text"/],
    [thrown(new StoreError('outcome-unknown', 'it is lost')), 'ceiling-reached', /it is lost/],
    [thrown(new StoreError('exhausted', 'nothing is left')), 'exhausted', /nothing is left/],
    [thrown(new StoreError('refused', 'not today')), 'refused', /not today/],
    [() => undefined, 'ceiling-reached', /the durable store failed: TypeError/],
    [() => ({}), 'refused', /start undefined.* which Redis cannot hand out/],
    [{ start: -1n }, 'refused', unfit],
    [{ end: 15 }, 'refused', unfit],
    [{ end: '15' }, 'refused', unfit],
    [{ version: null }, 'refused', unfit],
    [{ stride: 2n }, 'refused', unfit],
    [{ start: 2n ** 64n }, 'refused', unfit],
    [{ version: 2n ** 64n + 1n }, 'refused', unfit],
    [{ end: 2n ** 63n + 9n }, 'refused', unfit],
  ].entries()) {
    const tag = `order-${at}`;
    backing.wrong = wrong;
    await assert.rejects(
      store.allocate(tag, 10n, 0n),
      (error) => kind(expected, text)(error) || assert.fail(`${tag}: ${error.kind} ${error.message}`),
    );
    backing.wrong = {};
    const { start } = await eventuallyOf(['exhausted', 'refused'], () => store.allocate(tag, 10n, 0n));
    assert.ok(start >= backing.granted.find((grant) => grant.tag === tag).end, `what was wrong with ${tag} is burnt`);
  }

  // Of its other answers.
  for (const [method, wrong, expected, text] of [
    ['openTag', undefined, 'outcome-unknown', /the durable store failed: TypeError/],
    ['openTag', { options: DEFAULT_TAG_OPTIONS, watermark: 5 }, 'outcome-unknown', /the durable store failed/],
    ['openTag', { options: DEFAULT_TAG_OPTIONS, watermark: 2n ** 64n }, 'refused', /watermark is 18446744073709551616/],
    ['openTag', { options: { ...DEFAULT_TAG_OPTIONS, start: 1.5 }, watermark: 0n }, 'outcome-unknown', /failed/],
    ['openTag', { options: { ...DEFAULT_TAG_OPTIONS, start: -1n }, watermark: 0n }, 'refused', /start is -1/],
    ['identity', 5, 'outcome-unknown', /the durable store failed/],
    ['identity', 'no name', 'refused', /"no name" is not the identity of a store/],
  ]) {
    backing[method] = async () => wrong;
    await assert.rejects(
      store[method]('order'),
      (error) => kind(expected, text)(error) || assert.fail(`${method}: ${error.kind} ${error.message}`),
    );
    delete backing[method];
  }
  backing.store.createTag = undefined;
  backing.createTag = undefined;
  await assert.rejects(store.createTag('new'), kind('refused', /creates no tags by request/));
});

test('a durable store that never answers keeps nobody waiting', async (t) => {
  const { redis } = await shared(t);
  class Silent extends MemoryStore {
    async identity() {
      return '0123456789abcdef0123456789abcdef';
    }

    async allocate() {
      await new Promise(() => {});
    }
  }
  const backing = new Silent();
  const store = await RedisStore.open({ url: `${redis.url}?raise-timeout-ms=100`, backing });
  const began = performance.now();
  await assert.rejects(store.allocate('order', 1n, 0n), kind('ceiling-reached'));
  assert.ok(performance.now() - began < 5_000, 'not as long as it is waited for');
  await store.close();
});

test('a durable store that was closed grants nothing, and what Redis has goes on', async (t) => {
  const { open } = await shared(t);
  const { store, backing } = await open();
  const granted = [await store.allocate('order', 10n, 0n)];
  await backing.close();
  const drain = async () => {
    for (;;) {
      granted.push(await store.allocate('order', 10n, 0n));
    }
  };
  await assert.rejects(drain(), kind('ceiling-reached', /closed/));
  assert.equal(numbers(granted).length, 100);
  await store.close();
  const last = await store.allocate('order', 1n, 0n).catch((error) => error);
  assert.ok(last.isFinal && kind('unavailable', /the store was closed/)(last), String(last));
});

test('the durable store is asked while nothing of the program waits', async (t) => {
  const { redis, path } = await shared(t);
  class Slow extends Switched {
    async allocate(...request) {
      this.entered?.resolve();
      await this.gate?.promise;
      return super.allocate(...request);
    }
  }
  const backing = new Slow(await SqliteStore.open(path));
  const url = `${redis.url}?raise-min=10&raise-max=10&raise-timeout-ms=60000`;
  const store = await RedisStore.open({ url, backing });
  t.after(() => store.close());
  [backing.gate, backing.entered] = [deferred(), deferred()];
  const waiting = Array.from({ length: 5 }, () => store.allocate('order', 1n, 0n));
  await backing.entered.promise;
  // A request from within is served by what is there, and the loop turns.
  assert.equal((await store.openTag('order')).tag, 'order');
  backing.gate.resolve();
  assert.equal(numbers(await Promise.all(waiting)).length, 5);
});

test('threads have stores of their own above one file, and end in the middle of a question', async (t) => {
  const { redis, path } = await shared(t);
  const child = new URL('./children/redis.mjs', import.meta.url);
  const start = (more) =>
    new Worker(child, { workerData: { url: `${redis.url}?raise-min=20&raise-max=20`, path, ...more } });
  const drawn = (worker) =>
    new Promise((resolve, reject) => {
      let ids;
      worker.on('message', (told) => (ids = told)).once('error', reject).once('exit', () => resolve(ids));
    });
  // Two are ended while their durable store is asked, one by a thread that does not look up.
  const ended = async (hangs) => {
    const worker = start({ tag: hangs, draws: 1, hangs });
    await new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject));
    await worker.terminate();
    return [];
  };
  const one = { tag: 'order', draws: 60 };
  const ids = await Promise.all([drawn(start(one)), ended('for ever'), ended('busily'), drawn(start(one))]);
  assert.deepEqual([ids.flat().length, new Set(ids.flat()).size], [120, 120]);
});

test('a durable store that is down, or another one, is told of', async (t) => {
  const { folder, redis, open } = await shared(t);
  const { store, backing } = await open();
  const granted = [await store.allocate('order', 1n, 0n)];
  const other = new Switched(await SqliteStore.open(join(folder, 'other.sqlite')));
  const another = kind('refused', /granted by another durable store/);
  await assert.rejects(RedisStore.open({ url: redis.url, backing: other }), another);
  // One that nobody could ask when it was opened.
  other.isDown = true;
  const late = await RedisStore.open({ url: redis.url, backing: other });
  t.after(() => late.close());
  await assert.rejects(late.allocate('new', 1n, 0n), kind('ceiling-reached', /switched off/));
  other.isDown = false;
  await assert.rejects(eventually(() => late.allocate('new', 1n, 0n)), another);
  assert.equal(other.granted.length, 0);
  backing.isDown = true;
  const drain = async () => {
    for (;;) {
      granted.push(await store.allocate('order', 10n, 0n));
    }
  };
  await assert.rejects(drain(), kind('ceiling-reached', /switched off/));
  assert.equal(numbers(granted).length, 100, 'all that Redis had');
  backing.isDown = false;
  granted.push(await eventually(() => store.allocate('order', 10n, 0n)));
  numbers(granted);
  assert.equal(await store.identity(), await (await open()).store.identity());
});

test('grants through a Redis that is killed, flushed and stopped come once', async (t) => {
  const { redis, open } = await shared(t, '--appendonly', 'yes', '--appendfsync', 'always');
  const parameters = 'raise-min=100&request-timeout-ms=500';
  const stores = [(await open(parameters)).store, (await open(parameters)).store];
  const granted = [];
  const draw = async () => {
    for (const store of stores) {
      granted.push(await eventually(() => store.allocate('order', 7n, 0n)));
    }
  };
  await draw();
  for (const change of [
    () => redis.restart(),
    async () => {
      await stopped(redis.child);
      const lost = await Promise.allSettled([1, 2, 3].map(() => stores[0].allocate('order', 7n, 0n)));
      const isLost = ({ reason }) => reason?.kind === 'outcome-unknown' && reason.isRetryable;
      assert.ok(lost.every(isLost), 'all that were sent');
      redis.child.kill('SIGCONT');
    },
    () => redis.ask('FLUSHALL'),
    () => redis.restart(),
  ]) {
    await change();
    await draw();
    await draw();
  }
  const all = numbers(granted);
  const ascending = all.toSorted((a, b) => (a < b ? -1 : 1));
  assert.deepEqual(all, ascending, 'whoever asks later has greater numbers');
});

test('a connection with TLS trusts only whom it is told to', async (t) => {
  const folder = await folderOf(t);
  const { ca, key, certificate } = await certificates(folder);
  const tlsPort = await freePort();
  const tls = ['--tls-port', String(tlsPort), '--tls-cert-file', certificate, '--tls-key-file', key];
  await RedisProcess.start(t, folder, ...tls, '--tls-ca-cert-file', ca, '--tls-auth-clients', 'no');
  const backing = await SqliteStore.open(join(folder, 'ids.sqlite'));
  t.after(() => backing.close());
  const url = `rediss://localhost:${tlsPort}/0`;
  await assert.rejects(RedisStore.open({ url, backing }), kind('refused', /no TLS with a server that can be trusted/));
  await assert.rejects(
    RedisStore.open({ url: `${url}?ssl-ca=${key}`, backing }),
    kind('refused', /holds no certificate/),
  );
  const store = await RedisStore.open({ url: `${url}?ssl-ca=${ca}`, backing });
  t.after(() => store.close());
  assert.equal((await store.allocate('order', 1n, 0n)).start, 1n);
});

test('a program ends by itself with an open store, and when it wants to in the middle of a question', async (t) => {
  const { redis, path } = await shared(t);
  const from = (name) => JSON.stringify(new URL(`../dist/${name}.js`, import.meta.url).href);
  const opening = `
    import { RedisStore } from ${from('redis')};
    import { SqliteStore } from ${from('sqlite')};
    const backing = await SqliteStore.open(${JSON.stringify(path)});
    const store = await RedisStore.open({ url: ${JSON.stringify(redis.url)}, backing });`;
  const ends = [
    "console.log((await store.allocate('order', 1n, 0n)).start > 0n);",
    "store.allocate('order', 1n, 0n).then(({ start }) => console.log(start > 0n));",
    "backing.allocate = () => new Promise(() => {}); store.allocate('a', 1n, 0n).catch(() => console.log(true));",
    "backing.allocate = async () => { console.log(true); process.exit(0); }; store.allocate('b', 1n, 0n);",
  ];
  const ran = ends.map((end) =>
    promisify(execFile)(process.execPath, ['--no-warnings', '--input-type=module', '-e', `${opening} ${end}`], {
      timeout: 30_000,
    }),
  );
  assert.deepEqual((await Promise.all(ran)).map(({ stdout }) => stdout), Array(4).fill('true\n'));
});

test('a namespace has one place, whatever stands behind Redis', async (t) => {
  const { redis, path, folder } = await shared(t);
  const request = {
    namespace: 'default',
    layout: LAYOUT,
    holder: 'a',
    preferredWorker: null,
    nowMs: BigInt(Date.now()),
    horizonMs: 60_000n,
  };
  const refuses = async (prefix, backing, words) => {
    const store = await RedisStore.open({ url: `${redis.url}?prefix=${prefix}`, backing, leasesIn: 'redis' });
    t.after(() => store.close());
    await assert.rejects(store.acquire(request), (error) => error.kind === 'refused' && words.test(error.message));
  };
  const durable = await SqliteStore.open(path);
  const methods = ['allocate', 'release', 'openTag', 'createTag', 'identity', 'acquire', 'extend', 'close'];
  const wrapper = Object.fromEntries(methods.map((name) => [name, (...given) => durable[name](...given)]));
  await refuses('wrapped', wrapper, /no method leaveLeases/);
  const inner = await RedisStore.open({ url: `${redis.url}?prefix=inner`, backing: await SqliteStore.open(path) });
  await refuses('outer', inner, /cannot stand behind one in Redis/);
  const elsewhere = await Store.open(needed('UNALIKE_TEST_ETCD') + '/' + folder.split('/').pop(), {
    leases: needed('UNALIKE_TEST_MYSQL'),
  });
  await refuses('elsewhere', elsewhere, /has its leases in another store/);
});

test('a URL names a SQLite file as the durable store', async (t) => {
  const { redis, path } = await shared(t);
  const store = await Store.open(`${redis.url}?raise-min=100`, { backing: `sqlite://${path}` });
  t.after(() => store.close());
  const { start } = await store.allocate('order', 10n, 0n);
  const durable = await SqliteStore.open(path);
  t.after(() => durable.close());
  assert.ok((await durable.openTag('order')).watermark >= start + 9n);
  const more = { holder: '', preferredWorker: null, nowMs: BigInt(Date.now()), horizonMs: 2_000n };
  const lease = await store.acquire({ namespace: 'default', layout: LAYOUT, ...more });
  assert.equal(await durable.release('default', lease.worker, lease.grantId, lease.validUntilMs), true);
});

test('an error that cannot be shown is told all the same', async (t) => {
  const { redis } = await shared(t);
  const error = Object.defineProperty(new Error('no'), 'message', { value: Symbol('odd') });
  const backing = Object.assign(new MemoryStore(), { allocate: () => Promise.reject(error) });
  backing.identity = () => Promise.resolve('0'.repeat(31) + '1');
  const store = await RedisStore.open({ url: redis.url, backing });
  t.after(() => store.close());
  await assert.rejects(store.allocate('order', 10n, 0n), StoreError);
});
