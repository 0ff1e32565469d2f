// Arguments that are none, as programs without TypeScript give them: each is refused in words that name it, and none is
// taken without a word.

import assert from 'node:assert/strict';
import net from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { DEFAULT_TAG_OPTIONS, Formats, Ids, IdsError, MemoryStore, StoreError } from '../dist/index.js';
import { MysqlStore } from '../dist/mysql.js';
import { RedisStore } from '../dist/redis.js';
import { RemoteStore } from '../dist/remote-node.js';
import { SqliteStore } from '../dist/sqlite.js';
import { folderOf } from './fixtures.mjs';
import { freshDatabase } from './mariadb.mjs';
import { RedisProcess } from './redis-servers.mjs';

process.removeAllListeners('warning').on('warning', () => undefined);

const told = (words, kinds = []) => (error) => {
  assert.ok(error instanceof IdsError || error instanceof StoreError, String(error?.stack ?? error));
  assert.ok(error.message.includes(words), `${error.message} does not say: ${words}`);
  assert.ok(kinds.length === 0 || kinds.includes(error.kind), error.kind);
  return true;
};

async function opened(t) {
  const store = new MemoryStore();
  const ids = await Ids.open({ segments: store, leases: store });
  t.after(() => ids.close());
  return ids;
}

test('what is no options, no option or no value of one is refused by its name', async (t) => {
  const ids = await opened(t);
  const store = new MemoryStore();
  const orders = await ids.sequence('order');
  const flakes = await ids.snowflake('default', 'twitter');
  const step = { kind: 'fixed', step: 5n };
  for (const [call, words] of [
    [() => Ids.open(), 'options is undefined, it must be an object: there are segments, leases,'],
    [() => Ids.open(null), 'options is null, it must be an object'],
    [() => Ids.open(store, store), 'options has '],
    [() => Ids.open({ segment: store }), 'options has "segment", which is not known: there are segments, leases, '],
    [() => Ids.open({ segments: null }), 'segments is null, it must be a store'],
    [() => Ids.open({ leases: {} }), 'leases is an object without the method acquire, it must be a store'],
    [() => Ids.open({ segments: store, now: 5 }), 'now is 5, it must be a function'],
    [() => Ids.open({ segments: store, holder: 7 }), 'holder is 7, it must be a text'],
    [() => Ids.open({ segments: store, renewLeases: 'no' }), 'renewLeases is "no", it must be true or false'],
    [() => Ids.open({ segments: store, waitMaxMs: {} }), 'waitMaxMs is an object, it must be a number'],
    [() => Ids.open({ segments: store, waitMaxMs: '5' }), 'waitMaxMs is "5", it must be a whole number from 0 to'],
    [() => ids.sequence('a', null), 'options is null, it must be an object: there are step, refill, prefetch,'],
    [() => ids.sequence('a', 5), 'options is 5, it must be an object'],
    [() => ids.sequence('a', [step]), 'options is an array, it must be an object'],
    [() => ids.sequence('a', { steps: step }), 'options has "steps", which is not known'],
    [() => ids.sequence('a', { step: 5 }), 'step is 5, it must be an object'],
    [() => ids.sequence('a', { step: null }), 'step is null, it must be an object'],
    [() => ids.sequence('a', { step: { kind: 'x' } }), 'kind is "x", it must be "fixed" or "adaptive"'],
    [() => ids.sequence('a', { step: { ...step, to: 1 } }), 'step has "to", which is not known'],
    [() => ids.sequence('a', { step: 5 }), "step is 5, it must be an object, such as { kind: 'fixed', step: 100n }"],
    [() => ids.sequence('a', { step: {} }), 'step.kind is undefined, it must be "fixed" or "adaptive"'],
    [() => ids.sequence('a', { refill: { kind: 'x' } }), 'refill.kind is "x", it must be "share-consumed" or "rema'],
    [() => ids.sequence('a', { refill: 'x' }), "is \"x\", it must be an object, such as { kind: 'share-consumed', "],
    [() => ids.sequence('a', { mode: 'x' }), 'there is no mode "x": it must be "buffered" or "ordered"'],
    [() => ids.sequence('order', { mode: 'x' }), 'there is no mode "x": it must be "buffered" or "ordered"'],
    [() => ids.sequence('a', {}, null), 'wait is null, it must be an object: there are waitMaxMs and signal'],
    [() => ids.sequence('a', {}, { waitMs: 5 }), 'wait has "waitMs", which is not known'],
    [() => ids.sequenceOf('a', null), 'a name is a text, and null was given'],
    [() => ids.sequence(5n), 'a name is a text, and 5n was given'],
    [() => ids.snowflake('n', null), 'the layout is null: give a Layout, or the name of one'],
    [() => ids.snowflake('n'), 'the layout is undefined: give a Layout, or the name of one'],
    [() => ids.snowflake('n', 5n), 'the layout is 5n: give a Layout, or the name of one'],
    [() => ids.snowflake('n', { epoch: 5n }), 'the layout has "epoch", which is not known'],
    [() => ids.snowflake('n', { order: 5n }), 'order is 5n, it must be "worker-first" or "sequence-first"'],
    [() => ids.snowflake('n', 'twitter', null), 'options is null, it must be an object: there are clock, horizonMs'],
    [() => ids.snowflake('n', 'twitter', { horizon: 5 }), 'options has "horizon", which is not known'],
    // Meant as seconds.
    [() => ids.snowflake('n', 'twitter', { horizonMs: 60 }), 'horizonMs is 60, it must be 300 to 31622400000 millisec'],
    [() => ids.snowflake('n', 'twitter', { horizonMs: 299n }), 'horizonMs is 299, it must be 300 to 31622400000 milli'],
    [() => ids.snowflake('n', 'twitter', { horizonMs: -1 }), 'horizonMs is -1, it must be 300 to 31622400000 millis'],
    [() => ids.snowflake('n', 'twitter', { clock: 'keep' }), "must be an object, such as { kind: 'keep', max"],
    [() => ids.snowflake('n', 'twitter', { clock: { kind: 5n } }), 'kind is 5n, it must be "reject", "wait" or "keep"'],
    [() => ids.snowflake('n', 'twitter', { spread: null }), 'spread is null, it must be an object'],
    [() => ids.snowflake('n', 'twitter', { spread: { kind: 'all' } }), 'kind is "all", it must be "none", "rotating"'],
    [() => orders.next(null), 'wait is null, it must be an object'],
    [() => orders.next(5), 'wait is 5, it must be an object'],
    [() => orders.take(5, { timeout: 5 }), 'wait has "timeout", which is not known: there are waitMaxMs and signal'],
    [() => orders.next({ signal: 5 }), 'signal is 5, it must be an AbortSignal'],
    [() => flakes.next({ signal: {} }), 'signal is an object, it must be an AbortSignal'],
    [() => flakes.take(1, 'x'), 'wait is a text, it must be an object'],
  ]) {
    await assert.rejects(async () => await call(), told(words), String(call));
  }
  assert.equal(await orders.next({ waitMaxMs: undefined, signal: undefined }), 1n);
  assert.equal(await ids.sequence('order', { step: undefined }), orders);
});

test('formats refuse what is no option', async () => {
  const formats = await Formats.load();
  for (const [call, words] of [
    [() => formats.format(null), 'options is null, it must be an object: there are template, '],
    [() => formats.format('{id}'), 'options is a text, it must be an object'],
    [() => formats.format({ template: '{id}', bit: 5 }), 'options has "bit", which is not known'],
    [() => formats.format({}), 'template must be a text, and is of the type undefined'],
    [() => formats.format({ template: '{id}', keys: 5 }), 'keys must be a list of keys, and is of the type number'],
    [() => formats.format({ template: '{id}', keys: [null] }), 'a key is null, it must be an object'],
    [() => formats.format({ template: '{id}', restart: 5n }), 'restart is 5n, it must be'],
    [() => formats.encode(5n, 5n), 'notation is 5n, it must be one of'],
    [() => formats.unpack(5n, null), 'the layout is null: give a Layout, or the name of one'],
    [() => formats.pack(null, 'twitter'), 'parts is null, it must be an object'],
  ]) {
    assert.throws(call, told(words), String(call));
  }
});

test('stores refuse what is no option', async (t) => {
  const path = join(await folderOf(t), 'ids.sqlite');
  const backing = new MemoryStore();
  const mysql = 'mysql://root@127.0.0.1:1/ids';
  const kinds = ['refused', 'tag-invalid', 'number-invalid', 'options-invalid'];
  for (const [call, words] of [
    [() => new MemoryStore(null), 'options is null, it must be an object'],
    [() => new MemoryStore({ now: 5 }), 'now is 5, it must be a function'],
    [() => new MemoryStore({ createTag: true }), 'options has "createTag", which is not known'],
    [() => backing.createTag('a', null), 'its options are null, they must be an object'],
    [() => backing.createTag('a', { ...DEFAULT_TAG_OPTIONS, steps: 1 }), 'its options have "steps", which is'],
    [() => backing.createTag('a', { ...DEFAULT_TAG_OPTIONS, step: 5n }), 'its step is 5n, it must be an object'],
    [() => backing.createTag('a', { ...DEFAULT_TAG_OPTIONS, step: { kind: 'x' } }), 'its step has no kind "x"'],
    [() => backing.createTag('a', { ...DEFAULT_TAG_OPTIONS, refill: null }), 'its refill is null, it must be an'],
    [() => backing.createTag('a', { ...DEFAULT_TAG_OPTIONS, mode: 5n }), 'its mode is 5n, it must be "buffered" or'],
    [() => new SqliteStore(path), 'stores are opened, and not constructed: write await SqliteStore.open(..)'],
    [() => new MysqlStore(mysql), 'stores are opened, and not constructed: write await MysqlStore.open(..)'],
    [() => new RedisStore({ url: 'redis://x', backing }), 'and not constructed: write await RedisStore.open(..)'],
    [() => new RemoteStore('http://x'), 'and not constructed: write await RemoteStore.open(..)'],
    [() => SqliteStore.open(), 'the path of the store is undefined: is its environment variable set?'],
    [() => SqliteStore.open(5n), 'the path of the store is of the type bigint, it must be a text'],
    [() => SqliteStore.open(path, null), 'options is null, it must be an object: there are create, '],
    [() => SqliteStore.open(path, { driver: 'x' }), 'options has "driver", which is not known: there are create, '],
    [() => SqliteStore.open(path, { busyTimeoutMs: '5' }), 'busyTimeoutMs is "5", it must be a whole number from 0 to'],
    [() => SqliteStore.open(path, { busyTimeoutMs: 5n }), 'busyTimeoutMs is 5n, it must be a whole number from 0 to'],
    [() => SqliteStore.open(path, { create: 'no' }), 'create is "no", it must be true or false'],
    [() => SqliteStore.open(path, { createTags: 0 }), 'createTags is 0, it must be true or false'],
    [() => SqliteStore.open(path, { tagsMax: '5' }), 'tagsMax is "5", it must be a whole number'],
    [() => SqliteStore.open(path, { maxSkewMs: {} }), 'maxSkewMs is an object, it must be a number'],
    [() => MysqlStore.open(), 'the address of the store is undefined: is its environment variable set?'],
    [() => MysqlStore.open(5), 'the address of the store is of the type number, it must be a text'],
    [() => MysqlStore.open({}), "url is missing: give { url: 'mysql://"],
    [() => MysqlStore.open({ url: 5 }), 'url is of the type number, it must be a text'],
    [() => MysqlStore.open({ url: mysql, passwords: 'secret' }), 'options has "passwords", which is not known'],
    [() => MysqlStore.open({ url: mysql, password: ['secret'] }), 'password must be a text, and is of the type object'],
    [() => MysqlStore.open({ url: mysql, createTags: 'no' }), 'createTags is "no", it must be true or false'],
    [() => MysqlStore.open({ url: mysql, tagsMax: 5 }), 'tagsMax is 5, it must be a bigint'],
    [() => MysqlStore.open({ url: mysql, maxHorizonMs: 5 }), 'maxHorizonMs is 5, it must be a bigint'],
    [() => MysqlStore.open({ url: mysql, maxHorizonMs: 0n }), 'max_horizon_ms is 0, it must be 1 to '],
    [() => MysqlStore.open({ url: mysql, warn: () => undefined }), 'options has "warn", which is not known'],
    [() => RedisStore.open(), 'the options are undefined: write RedisStore.open({ url, backing })'],
    [() => RedisStore.open('redis://127.0.0.1:1/0'), 'write RedisStore.open({ url, backing })'],
    [() => RedisStore.open({ backing }), 'url is undefined: is its environment variable set?'],
    [() => RedisStore.open({ url: 'redis://127.0.0.1:1/0', backing, prefix: 'x' }), 'options has "prefix", which is'],
    [() => RedisStore.open({ url: 'redis://127.0.0.1:1/0', backing, leaseLimits: 5 }), 'leaseLimits is 5, it must be'],
    [
      () => RedisStore.open({ url: 'redis://127.0.0.1:1/0', backing, leaseLimits: { maxHorizonMs: 5, maxSkewMs: 1n } }),
      'max_horizon_ms is 5, it must be 1 to ',
    ],
    [() => RemoteStore.open(), 'the address of the servers is undefined: is its environment variable set?'],
    [() => RemoteStore.open(5), 'the address of the servers is of the type number, it must be a text'],
    [() => RemoteStore.open(['http://a', 5]), 'the address of the servers is of the type number, it must be a'],
    [() => RemoteStore.open('http://127.0.0.1:1', null), 'options is null, it must be an object: there are token, '],
    [() => RemoteStore.open('http://127.0.0.1:1', { tokens: 'secret' }), 'options has "tokens", which is not known'],
    [() => RemoteStore.open('http://127.0.0.1:1', { token: 5 }), 'the token is of the type number, it must be a text'],
    [() => RemoteStore.open('http://127.0.0.1:1', { store: 5 }), 'store is 5, it must be 32 hexadecimal digits'],
    [() => RemoteStore.open('https://127.0.0.1:1', { sslCa: 5 }), 'sslCa is 5, it must be a text'],
  ]) {
    await assert.rejects(async () => await call(), told(words, kinds), String(call));
    await assert.rejects(async () => await call(), (error) => !error.message.includes('secret'));
  }
});

test('a server that speaks no TLS is told of, and what to write', async (t) => {
  const server = net.createServer((socket) => {
    socket.on('error', () => undefined);
    socket.once('data', () => socket.end('HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n'));
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => server.close());
  const open = RemoteStore.open(`https://127.0.0.1:${server.address().port}`);
  await assert.rejects(open, told('the server speaks no TLS: write http:// in place of https://'));
});

test('a store that was closed is told of at once, and not asked again', async (t) => {
  const folder = await folderOf(t);
  const open = {
    sqlite: () => SqliteStore.open(join(folder, 'ids.sqlite')),
    mysql: async () => MysqlStore.open(await freshDatabase()),
    redis: async () => {
      const backing = await SqliteStore.open(join(folder, 'backing.sqlite'));
      return RedisStore.open({ url: (await RedisProcess.start(t, folder)).url, backing });
    },
  };
  for (const [of, opening] of Object.entries(open)) {
    const store = await opening();
    // Time enough to see that it is not waited for: the test would run into its own limit.
    const ids = await Ids.open({ segments: store, leases: store, waitMaxMs: 2 ** 31 - 1 });
    const orders = await ids.sequence('order', { step: { kind: 'fixed', step: 5n } });
    await orders.next();
    await store.close();
    const flakes = await ids.snowflake('default', 'twitter');
    const final = (error) => {
      assert.equal(error.kind, 'store', `${of}: ${error.message}`);
      assert.match(error.message, /the store was closed/);
      assert.equal(error.isRetryable, false);
      return true;
    };
    await assert.rejects(orders.take(1_000), final);
    await assert.rejects(flakes.next(), final);
    await assert.rejects(ids.sequence('other'), final);
    await ids.close();
  }
});

test('who waits for an ordered id is told how long it waited, and not how long a round took', async (t) => {
  const store = new MemoryStore();
  await store.createTag('ticket', { ...DEFAULT_TAG_OPTIONS, mode: 'ordered' });
  store.allocate = async () => {
    await sleep(3);
    throw new StoreError('unavailable', 'the disk is away');
  };
  const ids = await Ids.open({ segments: store });
  t.after(() => ids.close());
  const tickets = await ids.sequence('ticket');
  const waits = [];
  // Each comes while a round of those before is under way, and is in one that begins later.
  for (let caller = 0; caller < 80; caller += 1) {
    waits.push(tickets.next({ waitMaxMs: 300 }).then(assert.fail, (error) => error));
    await sleep(4);
  }
  for (const error of await Promise.all(waits)) {
    assert.equal(error.kind, 'timeout');
    assert.ok(error.figures.waitedMs >= 299, error.message);
    assert.match(error.message, /: the disk is away$/);
  }
});
