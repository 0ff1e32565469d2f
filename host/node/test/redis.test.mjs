// The store in Redis: on real servers that are killed, flushed, failed over, paused and full, over SQLite files, and
// with the `unalike` command at once.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { copyFile, writeFile } from 'node:fs/promises';
import net from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { Worker } from 'node:worker_threads';

import { DEFAULT_TAG_OPTIONS, timeTag } from '../dist/names.js';
import { MemoryStore } from '../dist/memory.js';
import { RedisStore } from '../dist/redis.js';
import { SqliteStore } from '../dist/sqlite.js';
import { StoreError } from '../dist/store.js';
import { Store } from '../dist/stores.js';
import { certificates, deferred, folderOf, freePort, needed, stopped, until } from './fixtures.mjs';
import { CuttingProxy, RedisProcess, scriptSha1, Switched } from './redis-servers.mjs';

// Every new SQLite file warns that it is one.
process.removeAllListeners('warning').on('warning', () => undefined);

const ID_MAX = (1n << 63n) - 1n;
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
  const open = async (parameters = 'raise-min=100', url = redis.url) => {
    const backing = new Switched(await SqliteStore.open(path));
    const store = await RedisStore.open({ url: `${url}?${parameters}`, backing });
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

const acquire = (store, more = {}) =>
  store.acquire({
    namespace: 'default',
    layout: LAYOUT,
    holder: '',
    preferredWorker: null,
    nowMs: BigInt(Date.now()),
    horizonMs: 2_000n,
    ...more,
  });

test('a URL that cannot be used is refused without its password', async (t) => {
  const folder = await folderOf(t);
  const file = join(folder, 'password');
  await writeFile(file, 'secret\n');
  for (const [url, message] of [
    ['http://h', /scheme is "http", it must be redis: write redis:\/\/HOST\/DATABASE/],
    ['mysql://ids:hidden@h/ids', /scheme is "mysql"/],
    ['hidden', /cannot be read/],
    ['redis-sentinel://h', /redis\+sentinel/],
    ['redis://h/x', /database/],
    ['redis://ids:hidden/x@h', /is not a URL|cannot be read/],
    ['redis://ids:hidden#x@h', /is not a URL/],
    ['redis://h?no-such=1', /no-such/],
    ['redis://h?ssl-ca=x', /rediss/],
    ['redis://h?prefix=a{b', /braces/],
    ['redis://h?raise-min=0', /1 to/],
    ['redis://h?raise-max=9007199254740992', /1 to/],
    ['redis://h?raise-min=9&raise-max=8', /in this order/],
    ['redis://h?request-timeout-ms=600001', /1 to 600000/],
    ['redis://h?password=hidden', /password/],
    [`redis://:hidden@h?password-file=${file}`, /more than one way/],
    ['redis://h?password-env=NO_SUCH_VARIABLE', /has no text/],
  ]) {
    await assert.rejects(
      RedisStore.open({ url, backing: new MemoryStore() }),
      (error) => kind('refused', message)(error) && !error.message.includes('hidden'),
      url,
    );
  }
});

test('many clients at once are granted different numbers, which only grow', async (t) => {
  const { open } = await shared(t);
  const clients = await Promise.all([open(), open(), open()]);
  const granted = await Promise.all(
    clients.flatMap(({ store }) =>
      [1, 2, 3].map(async (count) => {
        const own = [];
        for (let round = 0; round < 60; round += 1) {
          own.push(await store.allocate('order', BigInt(count), 0n));
        }
        for (let at = 1; at < own.length; at += 1) {
          assert.ok(own[at - 1].end <= own[at].start, 'a later request has greater numbers');
        }
        return own;
      }),
    ),
  );
  assert.ok(numbers(granted.flat()).length > 900);
});

test('numbers beyond 2^53 and up to the last one are exact', async (t) => {
  const { open } = await shared(t);
  const { store } = await open();
  await store.createTag('big', { ...DEFAULT_TAG_OPTIONS, start: 9_007_199_254_740_993n });
  const first = await store.allocate('big', 2n, 0n);
  assert.deepEqual([first.start, first.end], [9_007_199_254_740_993n, 9_007_199_254_740_995n]);
  assert.equal((await store.allocate('big', 1n, 0n)).start, 9_007_199_254_740_995n);
  await store.createTag('last', { ...DEFAULT_TAG_OPTIONS, start: ID_MAX - 2n });
  const last = numbers([await store.allocate('last', 2n, 0n), await store.allocate('last', 9n, 0n)]);
  assert.deepEqual(last, [ID_MAX - 2n, ID_MAX - 1n, ID_MAX]);
  await assert.rejects(store.allocate('last', 1n, 0n), kind('exhausted'));
  await assert.rejects(store.allocate('big', 1n, ID_MAX + 1n), kind('exhausted'));
});

test('a floor is kept, a tail is taken back once, and only the newest', async (t) => {
  const { open } = await shared(t);
  const { store } = await open();
  const other = (await open()).store;
  const first = await store.allocate('order', 10n, 0n);
  const within = await store.allocate('order', 20n, first.end + 5n);
  assert.deepEqual([within.start, within.end], [first.end + 5n, first.end + 20n], 'the floor lies within what is granted');
  assert.equal((await store.allocate('order', 5n, within.end + 20n)).start, within.end + 20n, 'and beyond it');
  const far = await store.allocate('order', 5n, 1_000_000n);
  assert.equal(far.start, 1_000_000n, 'beyond the ceiling');
  assert.equal(await store.release('order', { start: far.start + 2n, version: far.version + 1n }), false);
  assert.equal(await store.release('order', { start: far.start + 2n, version: far.version }), true);
  assert.equal(await store.release('order', { start: far.start + 2n, version: far.version }), false, 'a second time');
  const next = await store.allocate('order', 3n, 0n);
  assert.equal(next.start, far.start + 2n);
  await other.allocate('order', 1n, 0n);
  assert.equal(
    await store.release('order', { start: next.start, version: next.version }),
    false,
    'another grant followed',
  );
});

test("tags are those of the durable store, sub-keys are apart, and kept names are nobody's", async (t) => {
  const { folder, redis, open } = await shared(t);
  const { store } = await open();
  await store.createTag('strict', { ...DEFAULT_TAG_OPTIONS, mode: 'ordered' });
  assert.equal((await store.openTag('strict')).options.mode, 'ordered');
  await assert.rejects(store.createTag('strict', DEFAULT_TAG_OPTIONS), kind('tag-exists'));
  assert.equal((await store.allocate('strict\u001fa', 1n, 0n)).start, 1n);
  assert.equal((await store.allocate('strict\u001fb', 1n, 0n)).start, 1n);
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

test('a ceiling is raised in the background before it is reached, and the interval continues', async (t) => {
  const { redis, open } = await shared(t);
  const { store, backing } = await open();
  const first = await store.allocate('order', 80n, 0n);
  while (backing.granted.length < 2 || !/^[1-9]/.test(await redis.ask('HGET', 'unalike:{order}', 'raised_ms'))) {
    await sleep(5);
  }
  await eventually(async () => {
    const [end, nextEnd] = await redis.ask('HMGET', 'unalike:{order}', 'end', 'next_end');
    if (BigInt(end) !== backing.granted[1].end) {
      throw Object.assign(new Error(`${end} ${nextEnd}`), { isRetryable: true });
    }
    assert.equal(nextEnd, '');
  });
  backing.isDown = true;
  assert.equal((await store.allocate('order', 100n, 0n)).start, first.end, 'nobody had to wait');
});

test('while the durable store is down, numbers go on up to the ceiling, and go on when it is back', async (t) => {
  const { open } = await shared(t);
  const { store, backing } = await open();
  const granted = [await store.allocate('order', 1n, 0n)];
  backing.isDown = true;
  let failure;
  while (failure === undefined) {
    await store.allocate('order', 10n, 0n).then(
      (segment) => granted.push(segment),
      (error) => {
        failure = error;
      },
    );
  }
  assert.equal(failure.kind, 'ceiling-reached');
  assert.match(failure.message, /switched off/);
  assert.equal(numbers(granted).length, 100, 'all that Redis had');
  backing.isDown = false;
  granted.push(await eventually(() => store.allocate('order', 10n, 0n)));
  numbers(granted);
  // A store that opens while it is down hands out what Redis has.
  const late = new Switched(backing.store);
  late.isDown = true;
  const other = await RedisStore.open({ url: (await shared(t)).redis.url, backing: late });
  await assert.rejects(other.allocate('order', 1n, 0n), kind('ceiling-reached'));
  await other.close();
});

test('another durable store is refused, before and after', async (t) => {
  const { folder, redis, open } = await shared(t);
  const { store } = await open();
  await store.allocate('order', 1n, 0n);
  const path = join(folder, 'other.sqlite');
  const backing = new Switched(await SqliteStore.open(path));
  await assert.rejects(
    RedisStore.open({ url: redis.url, backing }),
    kind('refused', /granted by another durable store/),
  );
  // One that nobody could ask when it was opened.
  backing.isDown = true;
  const late = await RedisStore.open({ url: redis.url, backing });
  t.after(() => late.close());
  backing.isDown = false;
  await assert.rejects(late.allocate('new', 1n, 0n), kind('refused', /granted by another durable store/));
  assert.equal(backing.granted.length, 0);
  // Redis forgot which one it was: the one that grants is written down again.
  await redis.ask('FLUSHALL');
  const granted = [await store.allocate('order', 1n, 0n)];
  const refused = async () => {
    for (;;) {
      // What Redis has is anybody's. More is not.
      granted.push(await late.allocate('order', 50n, 0n));
    }
  };
  await assert.rejects(refused(), kind('refused', /granted by another durable store/));
  assert.equal(numbers(granted).length, 100);
  assert.equal(backing.granted.length, 0);
  assert.equal(await store.identity(), await (await open()).store.identity());
  assert.notEqual(await store.identity(), await store.leaseIdentity());
});

test('a Redis that is a store without a durable one is refused with one', async (t) => {
  const { redis, open } = await shared(t);
  await redis.ask('HSET', 'unalike:alone', 'marker', '0'.repeat(32));
  await assert.rejects(open(), kind('refused', /unalike:alone has its name.*--backing none/));
  await redis.ask('DEL', 'unalike:alone');
  const { store } = await open();
  assert.equal((await store.allocate('order', 1n, 0n)).start, 1n);
});

test('a durable store that lost data is noticed, and nothing of it is handed out', async (t) => {
  const { folder, redis, open, path } = await shared(t);
  const { store } = await open('raise-min=100&raise-max=200');
  const granted = [await store.allocate('order', 1n, 0n)];
  await acquire(store, { horizonMs: 5_000n });
  await store.close();
  const old = join(folder, 'old.sqlite');
  await copyFile(path, old);
  const newer = await open('raise-min=100&raise-max=200');
  while (newer.backing.granted.length < 3) {
    granted.push(await newer.store.allocate('order', 50n, 0n));
  }
  await acquire(newer.store, { horizonMs: 60_000n });
  await newer.store.close();
  // A raise of one number does not get beyond what Redis had.
  const url = `${redis.url}?raise-min=1&raise-max=1`;
  const durable = await SqliteStore.open(old);
  const { watermark } = await durable.openTag('order');
  const restored = await RedisStore.open({ url, backing: durable, leasesIn: 'redis' });
  t.after(() => restored.close());
  const drain = async () => {
    for (;;) {
      granted.push(await restored.allocate('order', 50n, 0n));
    }
  };
  await assert.rejects(drain(), kind('corrupt', /it lost data, or is another store/));
  numbers(granted);
  // Trying again uses the notice up as little as another program does.
  const again = await RedisStore.open({ url, backing: await SqliteStore.open(old), leasesIn: 'redis' });
  t.after(() => again.close());
  for (const one of [restored, restored, restored, again, again, again]) {
    await assert.rejects(one.allocate('order', 50n, 0n), kind('corrupt', /it lost data, or is another store/));
  }
  assert.equal((await durable.openTag('order')).watermark, watermark, 'nothing is granted that had to be burnt');
  await redis.ask('HSET', 'unalike:leases:{default}', 'incarnation', '');
  const time = await durable.openTag(timeTag('default'));
  for (const one of [restored, restored, restored, again, again, again]) {
    await assert.rejects(acquire(one), kind('corrupt', /it lost data, or is another store/));
  }
  assert.deepEqual(await durable.openTag(timeTag('default')), time, 'no time is granted that had to be burnt');
});

test('nothing comes twice when Redis is killed, flushed, or comes back with its old data', async (t) => {
  const { redis, open } = await shared(t, '--appendonly', 'yes', '--appendfsync', 'always');
  const { store } = await open();
  const other = (await open()).store;
  const granted = [];
  const draw = async () => {
    for (const one of [store, other]) {
      granted.push(await eventually(() => one.allocate('order', 7n, 0n)));
    }
  };
  await draw();
  for (const change of [
    () => redis.restart(),
    () => redis.ask('FLUSHALL'),
    () => redis.ask('SCRIPT', 'FLUSH'),
    () => redis.restart(),
    () => redis.ask('DEL', 'unalike:{order}'),
    async () => {
      await redis.ask('REPLICAOF', '127.0.0.1', String(await freePort()));
      await assert.rejects(store.allocate('order', 1n, 0n), kind('unavailable', /only reads/));
      await redis.ask('REPLICAOF', 'NO', 'ONE');
    },
  ]) {
    await change();
    await draw();
    await draw();
  }
  const all = numbers(granted);
  assert.deepEqual(
    all,
    all.toSorted((a, b) => (a < b ? -1 : 1)),
    'whoever asks later has greater numbers',
  );
});

test('a replica that is promoted with old data grants nothing of it', async (t) => {
  const { folder, redis, open, path } = await shared(t);
  const { store } = await open();
  const granted = [await store.allocate('order', 5n, 0n)];
  const replica = await RedisProcess.start(t, await folderOf(t), '--replicaof', '127.0.0.1', String(redis.port));
  while ((await replica.ask('HGET', 'unalike:{order}', 'left')) === null) {
    await sleep(10);
  }
  await assert.rejects(
    RedisStore.open({ url: replica.url, backing: await SqliteStore.open(path) }).then((opened) =>
      opened.allocate('order', 1n, 0n),
    ),
    kind('unavailable', /only reads/),
  );
  // It is behind from now on.
  await replica.ask('REPLICAOF', 'NO', 'ONE');
  granted.push(await store.allocate('order', 5n, 0n));
  const promoted = await RedisStore.open({
    url: `${replica.url}?raise-min=100`,
    backing: await SqliteStore.open(path),
  });
  t.after(() => promoted.close());
  for (let round = 0; round < 30; round += 1) {
    for (const one of [promoted, store]) {
      granted.push(await eventually(() => one.allocate('order', 5n, 0n)));
    }
  }
  numbers(granted);
  assert.ok(folder);
});

test('a request that gets no answer ends in time, and what it granted is burnt', async (t) => {
  const { redis, open } = await shared(t);
  const { store } = await open('raise-min=100&request-timeout-ms=200&connect-timeout-ms=200');
  const granted = [await store.allocate('order', 1n, 0n)];
  const clients = async () => (await redis.ask('CLIENT', 'LIST')).match(/cmd=evalsha/g)?.length ?? 0;
  const before = await clients();
  const { child } = redis;
  await stopped(child);
  await assert.rejects(store.allocate('order', 1n, 0n), kind('outcome-unknown'));
  await assert.rejects(store.allocate('order', 1n, 0n), kind('unavailable', /no connection/));
  child.kill('SIGCONT');
  granted.push(await eventually(() => store.allocate('order', 1n, 0n)));
  await redis.ask('CLIENT', 'PAUSE', '1000', 'WRITE');
  const late = await Promise.allSettled([1, 2, 3].map(() => store.allocate('order', 1n, 0n)));
  assert.ok(
    late.every(({ reason }) => reason?.kind === 'outcome-unknown'),
    'all that were sent, and only they',
  );
  await redis.ask('CLIENT', 'UNPAUSE');
  for (let round = 0; round < 20; round += 1) {
    granted.push(await eventually(() => store.allocate('order', 1n, 0n)));
  }
  numbers(granted);
  await until('the other connections are closed', async () => (await clients()) <= before + 1);
});

test('an answer that is lost right after the script was sent burns the grant', async (t) => {
  const { redis, open } = await shared(t);
  const proxy = await CuttingProxy.start(t, redis.port);
  const { store, backing } = await open('raise-min=100', proxy.url);
  const granted = [await store.allocate('order', 1n, 0n)];
  const [allocate, install] = [await scriptSha1('tag', 'allocate'), await scriptSha1('tag', 'durable', 'install')];
  proxy.cuts = (sent) => sent.includes(allocate);
  await assert.rejects(store.allocate('order', 1n, 0n), kind('outcome-unknown'));
  proxy.cuts = () => false;
  const next = await store.allocate('order', 1n, 0n);
  assert.equal(next.start, granted[0].end + 1n, 'what was granted to nobody is a gap');
  granted.push(next);
  // An installation that was made and not heard of: it is not made again, and its numbers are there.
  await store.allocate('other', 1n, 0n);
  await redis.ask('FLUSHALL');
  await redis.ask('SCRIPT', 'FLUSH');
  const before = backing.granted.length;
  const cut = proxy.cut;
  proxy.cuts = (sent) => sent.includes(install) && proxy.cut === cut;
  granted.push(await eventually(() => store.allocate('order', 1n, 0n)));
  assert.ok(proxy.cut > cut);
  assert.ok(backing.granted.length >= before + 1);
  for (let round = 0; round < 150; round += 1) {
    granted.push(await eventually(() => store.allocate('order', 3n, 0n)));
  }
  numbers(granted);
});

test('a server that is full, denies access, or is none is told of in words', async (t) => {
  const { folder, redis, open, path } = await shared(t);
  const { store } = await open();
  await store.allocate('order', 1n, 0n);
  await redis.ask('CONFIG', 'SET', 'maxmemory', '1');
  await assert.rejects(store.allocate('order', 1n, 0n), kind('unavailable', /memory is full/));
  await redis.ask('CONFIG', 'SET', 'maxmemory', '0');
  await store.allocate('order', 1n, 0n);
  await redis.ask('HSET', 'unalike:{order}', 'left', 'x');
  await assert.rejects(store.allocate('order', 1n, 0n), kind('corrupt', /left is x/));
  await redis.ask('SET', 'unalike:{text}', 'x');
  await assert.rejects(store.allocate('text', 1n, 0n), kind('corrupt'));

  const opened = async (url) => RedisStore.open({ url, backing: await SqliteStore.open(path) });
  const port = String(redis.port);
  const rights = ['~unalike:*', '+evalsha', '+script|load', '+info', '+time', '+hget', '+hmget', '+hset', '+hincrby'];
  await redis.ask('ACL', 'SETUSER', 'ids', 'on', '>hidden', ...rights, '+hgetall', '+hkeys', '+hdel');
  const allowed = await opened(`redis://ids:hidden@127.0.0.1:${port}`);
  t.after(() => allowed.close());
  await allowed.allocate('allowed', 1n, 0n);
  await acquire(allowed);
  await redis.ask('ACL', 'SETUSER', 'ids', '-hset');
  await assert.rejects(allowed.allocate('more', 1n, 0n), kind('refused', /the user may not do it/));
  for (const user of ['ids:hidden2', 'nobody:hidden2']) {
    await assert.rejects(
      opened(`redis://${user}@127.0.0.1:${port}`),
      (error) => kind('refused', /denied access/)(error) && !error.message.includes('hidden'),
    );
  }
  await redis.ask('CONFIG', 'SET', 'requirepass', 'hidden');
  await assert.rejects(opened(`redis://127.0.0.1:${port}`), kind('refused', /denied access/));
  await assert.rejects(opened(`redis://127.0.0.1:${port}/99`), kind('refused'));
  await assert.rejects(opened(`redis://:hidden@127.0.0.1:${port}/99`), kind('refused', /no such database/));
  await assert.rejects(opened(`rediss://:hidden@127.0.0.1:${port}`), (error) =>
    ['refused', 'unavailable'].includes(error.kind),
  );
  await assert.rejects(opened(`redis://127.0.0.1:${await freePort()}`), kind('unavailable', /nothing listens/));
  const cluster = await RedisProcess.start(
    t,
    folder,
    '--cluster-enabled',
    'yes',
    '--cluster-port',
    String(await freePort()),
  );
  await assert.rejects(opened(cluster.url), kind('refused', /Cluster/));
  await cluster.ask('CLUSTER', 'ADDSLOTSRANGE', '0', '16383');
  const ofCluster = await eventually(() => opened(`redis+cluster://127.0.0.1:${cluster.port}`));
  t.after(() => ofCluster.close());
  assert.equal(numbers([await eventually(() => ofCluster.allocate('clustered', 3n, 0n))]).length, 3);
  const sentinels = opened(`redis+sentinel://127.0.0.1:${await freePort()}/ids`);
  await assert.rejects(sentinels, kind('unavailable', /Sentinel/));

  // What speaks like Redis and does not say what it is.
  for (const [answer, message] of [
    ['redis_version:7.0.15', /names no redis_mode/],
    ['redis_mode:standalone\r\nredis_version:6.2.0', /7 or newer/],
    ['redis_mode:sentinel\r\nredis_version:7.0.0', /Sentinel/],
  ]) {
    const server = net.createServer((socket) => {
      socket.on('error', () => {}).on('data', () => socket.write(`$${answer.length}\r\n${answer}\r\n`));
    });
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
    t.after(() => server.close());
    await assert.rejects(opened(`redis://127.0.0.1:${server.address().port}`), kind('refused', message));
  }
  const silent = net.createServer((socket) => socket.on('error', () => {}));
  await new Promise((resolve) => silent.listen(0, '127.0.0.1', resolve));
  t.after(() => silent.close());
  await assert.rejects(
    opened(`redis://127.0.0.1:${silent.address().port}?connect-timeout-ms=100`),
    kind('unavailable', /within 100 ms/),
  );
  await assert.rejects(RedisStore.open({ url: redis.url }), kind('refused', /backing: 'none'/));
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

test('each namespace has its own tag of time', () => {
  assert.equal(timeTag('default'), 'redis-leases\u001fdefault');
  assert.equal(timeTag('x'.repeat(115)), `redis-leases\u001f${'x'.repeat(115)}`);
  // As the Rust program writes it.
  assert.match(timeTag('x'.repeat(116)), /^redis-leases\u001fx{98}~[0-9a-f]{16}$/);
  assert.notEqual(timeTag('x'.repeat(116)), timeTag('x'.repeat(117)));
  assert.ok(Buffer.byteLength(timeTag('\u{1f600}'.repeat(32))) <= 128);
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

test('an error that cannot be shown is told all the same', async (t) => {
  const { redis } = await shared(t);
  const error = Object.defineProperty(new Error('no'), 'message', { value: Symbol('odd') });
  const backing = Object.assign(new MemoryStore(), { allocate: () => Promise.reject(error) });
  backing.identity = () => Promise.resolve('0'.repeat(31) + '1');
  const store = await RedisStore.open({ url: redis.url, backing });
  t.after(() => store.close());
  await assert.rejects(store.allocate('order', 10n, 0n), StoreError);
});

test('leases of one worker never meet, whatever happens to Redis', async (t) => {
  const { redis, open } = await shared(t);
  const clients = [(await open()).store, (await open()).store];
  const granted = [];
  const draw = async (round) => {
    for (const store of clients) {
      const lease = await eventually(() =>
        acquire(store, { preferredWorker: 3, horizonMs: 300n, holder: `h${round}` }),
      );
      granted.push(lease);
      if (round % 2 === 0) {
        const { worker, grantId } = lease;
        const extended = await store
          .extend({ namespace: 'default', layout: LAYOUT, worker, grantId, nowMs: BigInt(Date.now()), horizonMs: 900n })
          .catch((error) => {
            assert.ok(error.isRetryable, error.message);
            return lease;
          });
        granted[granted.length - 1] = extended;
        const used = BigInt(Date.now()) < extended.validUntilMs ? BigInt(Date.now()) : extended.validUntilMs;
        if (await eventually(() => store.release('default', worker, grantId, used)).catch(() => false)) {
          granted[granted.length - 1] = {
            ...extended,
            validUntilMs: used > extended.notBeforeMs ? used : extended.notBeforeMs,
          };
        }
      }
    }
  };
  for (let round = 0; round < 3; round += 1) {
    await draw(2 * round);
    await draw(2 * round + 1);
    await (round === 1 ? redis.restart() : redis.ask('FLUSHALL'));
  }
  await draw(6);
  const byWorker = Map.groupBy ? Map.groupBy(granted, ({ worker }) => worker) : groups(granted);
  for (const leases of byWorker.values()) {
    leases.sort((a, b) => Number(a.notBeforeMs - b.notBeforeMs || a.validUntilMs - b.validUntilMs));
    for (let at = 1; at < leases.length; at += 1) {
      assert.ok(leases[at - 1].validUntilMs <= leases[at].notBeforeMs, 'two leases of one worker meet');
    }
  }
  assert.equal(new Set(granted.map(({ grantId }) => grantId)).size, granted.length);
});

function groups(leases) {
  const byWorker = new Map();
  for (const lease of leases) {
    byWorker.set(lease.worker, [...(byWorker.get(lease.worker) ?? []), lease]);
  }
  return byWorker;
}

test('a lease is extended and released by its grant id only', async (t) => {
  const { redis, open } = await shared(t);
  const { store, backing } = await open();
  const lease = await acquire(store);
  const { worker, grantId } = lease;
  const extend = (more = {}) =>
    store.extend({
      namespace: 'default',
      layout: LAYOUT,
      worker,
      grantId,
      nowMs: BigInt(Date.now()),
      horizonMs: 4_000n,
      ...more,
    });
  const extended = await extend();
  assert.ok(extended.validUntilMs > lease.validUntilMs && extended.notBeforeMs === lease.notBeforeMs);
  assert.equal((await extend({ horizonMs: 1n })).validUntilMs, extended.validUntilMs, 'never back');
  await assert.rejects(extend({ grantId: grantId ^ 1n }), kind('lease-lost'));
  await assert.rejects(extend({ layout: { ...LAYOUT, workerBits: 5 } }), kind('layout-mismatch'));
  await assert.rejects(extend({ nowMs: BigInt(Date.now()) - 60_000n }), kind('clock-skew'));
  assert.equal(await store.release('default', worker, grantId ^ 1n, lease.notBeforeMs), false);
  assert.equal(await store.release('default', worker, grantId, extended.validUntilMs + 1n), false);
  assert.equal(await store.release('default', worker, grantId, BigInt(Date.now())), true);
  await assert.rejects(extend(), kind('lease-lost'));
  for (let at = 0; at < 16; at += 1) {
    await eventually(() => acquire(store, { namespace: 'full' }));
  }
  await assert.rejects(acquire(store, { namespace: 'full' }), kind('workers-exhausted', /all 16 worker ids/));
  // Without the durable store leases go on as far as time was granted.
  backing.isDown = true;
  const last = await acquire(store, { horizonMs: 1_000n });
  assert.ok(last.validUntilMs > BigInt(Date.now()));
  await redis.ask('FLUSHALL');
  await assert.rejects(acquire(store), kind('unavailable', /has not granted Redis more time/));
  backing.isDown = false;
  // One that is kept without a durable store is none of ours.
  await redis.ask('HSET', 'unalike:leases:{alone}', 'generation', 'g', 'incarnation', '', 'begun_by', 'use');
  await assert.rejects(acquire(store, { namespace: 'alone' }), kind('refused', /kept the other way/));
});

test('a holder whose time is over is told so, and gets a lease anew', async (t) => {
  const { redis, open } = await shared(t);
  const { store, backing } = await open('raise-min=100&raise-timeout-ms=2000');
  const lease = await acquire(store, { horizonMs: 500n });
  const shownMs = BigInt(await redis.ask('HGET', 'unalike:leases:{default}', 'bound_ms'));
  // As if an answer had been lost, or as another Redis does.
  const lostUntilMs = (await backing.allocate(timeTag('default'), 700n, 0n)).end;
  // Time may have been granted in the background meanwhile.
  const boundMs = lostUntilMs - 700n;
  assert.ok(boundMs >= shownMs, `${boundMs} ${shownMs}`);
  while (BigInt(Date.now()) <= boundMs) {
    await sleep(5);
  }
  const { worker, grantId } = lease;
  const nowMs = BigInt(Date.now());
  const extend = store.extend({ namespace: 'default', layout: LAYOUT, worker, grantId, nowMs, horizonMs: 500n });
  await assert.rejects(extend, kind('lease-lost'));
  // With a clock that is behind, the time that is over is no place for a lease either.
  const late = await acquire(store, { nowMs: boundMs - 200n, horizonMs: 500n }).catch((error) => error);
  assert.ok(late.kind === 'quarantined' || late.notBeforeMs >= lostUntilMs, String(late));
  const next = await eventually(() => acquire(store, { preferredWorker: worker, horizonMs: 500n }));
  assert.ok(next.worker === worker && next.notBeforeMs >= lostUntilMs, `${next.notBeforeMs} ${lostUntilMs}`);
});

test("a lease whose answer was lost is nobody's", async (t) => {
  const { redis, open } = await shared(t);
  const proxy = await CuttingProxy.start(t, redis.port);
  const { store } = await open('raise-min=100', proxy.url);
  await acquire(store);
  const write = await scriptSha1('leases', 'leases_write');
  proxy.cuts = (sent) => sent.includes(write);
  await assert.rejects(acquire(store, { preferredWorker: 9 }), kind('outcome-unknown'));
  proxy.cuts = () => false;
  assert.notEqual((await acquire(store, { preferredWorker: 9 })).worker, 9, 'it is under a lease');
});

test('the unalike command and this program draw from one Redis, while it is killed and flushed', async (t) => {
  const { redis, open, path } = await shared(t, '--appendonly', 'yes');
  const { store } = await open();
  const ids = [];
  const command = async () => {
    const args = ['next', 'order', '-n', '5', '--store', `${redis.url}?raise-min=100`, '--backing', `sqlite://${path}`];
    const drawn = await promisify(execFile)(needed('UNALIKE_BIN'), args, { timeout: 60_000 }).catch((error) => error);
    // While Redis is down the command fails, and what it printed before counts.
    const lines = drawn.stdout.trim();
    ids.push(...(lines === '' ? [] : lines.split('\n').map(BigInt)));
    return drawn.code === undefined;
  };
  let works = 0;
  for (let round = 0; round < 6; round += 1) {
    const running = [command(), command()];
    for (let at = 0; at < 40; at += 1) {
      const { start, end } = await eventually(() => store.allocate('order', 3n, 0n));
      ids.push(...numbers([{ start, end }]));
      if (at === 20 && round % 2 === 1) {
        await (round % 4 === 1 ? redis.restart() : redis.ask('FLUSHALL'));
      }
    }
    works += (await Promise.all(running)).filter(Boolean).length;
  }
  assert.ok(works > 4, 'the command got ids');
  assert.equal(new Set(ids).size, ids.length, 'an id came twice');
});
