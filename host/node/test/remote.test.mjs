// The store over HTTP, against real servers.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';

import { Ids, StoreError } from '../dist/index.js';
import { RemoteStore } from '../dist/remote.js';
import { folderOf, freePort, nextOfRust, Proxy, Seen, Server, until } from './fixtures.mjs';

const kind = (expected) => (error) => {
  assert.ok(error instanceof StoreError, String(error?.stack ?? error));
  assert.equal(error.kind, expected, error.message);
  return true;
};

async function sqlite(t, name = 'ids.sqlite') {
  return `sqlite://${join(await folderOf(t), name)}`;
}

test('segments, sub-keys, tails, modes and snowflakes of a server', async (t) => {
  const server = await Server.start(t, await sqlite(t));
  const store = await RemoteStore.open(server.url);
  assert.match(await store.identity(), /^[0-9a-f]{32}$/);
  assert.equal(await store.leaseIdentity(), await store.identity());
  const ids = await Ids.open({ segments: store, leases: store });
  const orders = await ids.sequence('order');
  assert.deepEqual([await orders.next(), await orders.next()], [1n, 2n]);
  const chat = await ids.sequenceOf('Bücher / 100%?#', 'ä&b');
  assert.equal(await chat.next(), 1n);
  const flakes = await ids.snowflake('default', 'twitter');
  const seen = new Seen();
  seen.add(await flakes.take(10_000));
  await store.createTag('ticket', { ...(await store.openTag('order')).options, mode: 'ordered' });
  await assert.rejects(store.createTag('ticket'), kind('tag-exists'));
  const tickets = await ids.sequence('ticket', { mode: 'ordered' });
  assert.deepEqual(await Promise.all([tickets.next(), tickets.next()]), [1n, 2n]);
  await ids.close();
  const again = await Ids.open({ segments: store });
  t.after(() => again.close());
  const next = await (await again.sequence('order')).next();
  assert.ok(next > 2n && next < 10n, `${next}: the tail came back`);
});

test('great numbers are exact', async (t) => {
  const server = await Server.start(t, await sqlite(t));
  const store = await RemoteStore.open(server.url);
  const start = (1n << 62n) + 12_345_678_901n;
  const { options } = await store.openTag('order');
  await store.createTag('great', { ...options, start });
  assert.equal((await store.allocate('great', 3n, 0n)).start, start);
  assert.equal((await store.allocate('great', 3n, start + 1_000_000_007n)).start, start + 1_000_000_007n);
});

test('what is refused is told by its kind, and granted nothing', async (t) => {
  const server = await Server.start(t, await sqlite(t));
  const store = await RemoteStore.open(server.url);
  await assert.rejects(store.allocate('', 1n, 0n), kind('tag-invalid'));
  await assert.rejects(store.allocate('..', 1n, 0n), kind('refused'));
  await assert.rejects(store.allocate('order', 0n, 0n), kind('refused'));
  await assert.rejects(store.allocate('order', 1n, 1n << 63n), kind('exhausted'));
  const layout = { ...layoutOfTwitter, sequenceBits: 11 };
  const acquire = { namespace: 'default', layout, holder: '', preferredWorker: null, nowMs: BigInt(Date.now()), horizonMs: 1000n };
  await assert.rejects(store.acquire(acquire), (error) => !error.isRetryable && error.failure === 'refused');
  const late = { ...acquire, layout: layoutOfTwitter, nowMs: acquire.nowMs - 3_600_000n };
  await assert.rejects(store.acquire(late), kind('clock-skew'));
  assert.equal((await store.allocate('order', 1n, 0n)).start, 1n);
});

const layoutOfTwitter = {
  timestampBits: 41, datacenterBits: 5, workerBits: 5, sequenceBits: 12, order: 'worker-first', epochMs: 1288834974657n,
  tickMs: 1,
};

test('addresses and pins that are none are refused, and no secret is told', async () => {
  for (const urls of ['ids.example', 'ftp://a', 'http://', 'http://a,,b', ['http://a', 'http://a'], 'http://a/v1',
    'http://u:hunter2@a', 'http://a?token=hunter2', [], 'http://a#b']) {
    await assert.rejects(RemoteStore.open(urls), (error) => !error.message.includes('hunter2') && kind('refused')(error));
  }
  await assert.rejects(RemoteStore.open('http://a', { store: '5eed' }), kind('refused'));
  await assert.rejects(RemoteStore.open('http://a', { token: 'a\nb' }), kind('refused'));
  await assert.rejects(RemoteStore.open('http://a', { requestTimeoutMs: 0 }), /requestTimeoutMs/);
  await assert.rejects(RemoteStore.open(`http://127.0.0.1:${await freePort()}`), kind('unavailable'));
});

test('through kill -9 and restarts no id comes twice, beside the Rust program on the same store', async (t) => {
  const url = await sqlite(t);
  const port = await freePort();
  let server = await Server.start(t, url, { port });
  const store = await RemoteStore.open(server.url, { requestTimeoutMs: 2_000 });
  const ids = await Ids.open({ segments: store, leases: store, waitMaxMs: 20_000 });
  t.after(() => ids.close());
  const orders = await ids.sequence('order', { step: { kind: 'fixed', step: 50n } });
  const [seen, flakesSeen] = [new Seen(), new Seen()];
  const flakes = await ids.snowflake('default', 'twitter');
  let isOver = false;
  const drawing = Array.from({ length: 8 }, async () => {
    while (!isOver) {
      seen.add(await orders.take(7), 'in Node');
      flakesSeen.add(await flakes.take(20));
    }
  });
  for (let round = 0; round < 4; round += 1) {
    const before = seen.ids.size;
    await until('ids flow', () => seen.ids.size > before + 500);
    await server.kill();
    seen.add(await nextOfRust(url, 'order', 30), 'in Rust');
    server = await Server.start(t, url, { port });
  }
  isOver = true;
  await Promise.all(drawing);
});

test('the next server is asked after one that granted nothing', async (t) => {
  const url = await sqlite(t);
  const [one, other] = [await Server.start(t, url), await Server.start(t, url)];
  const store = await RemoteStore.open([one.url, other.url]);
  const seen = new Seen();
  const draw = async () => {
    const { start, end } = await store.allocate('order', 10n, 0n);
    seen.add(Array.from({ length: Number(end - start) }, (_, at) => start + BigInt(at)));
  };
  await draw();
  await one.kill();
  for (let at = 0; at < 5; at += 1) {
    await draw();
  }
  // Several must agree when a store is opened, unless it is named.
  await assert.rejects(RemoteStore.open([one.url, other.url]), kind('unavailable'));
  const pinned = await RemoteStore.open([one.url, other.url], { store: await store.identity() });
  assert.ok((await pinned.allocate('order', 10n, 0n)).start > 50n);
});

test('servers with different stores are refused, at the start and later', async (t) => {
  const port = await freePort();
  const [first, second] = [await sqlite(t), await sqlite(t, 'other.sqlite')];
  let one = await Server.start(t, first, { port });
  const other = await Server.start(t, second);
  await assert.rejects(RemoteStore.open([one.url, other.url]), kind('refused'));
  const store = await RemoteStore.open(one.url);
  await assert.rejects(RemoteStore.open(other.url, { store: await store.identity() }), kind('refused'));
  const ids = await Ids.open({ segments: store, waitMaxMs: 5_000 });
  t.after(() => ids.close());
  const orders = await ids.sequence('order', { step: { kind: 'fixed', step: 10n } });
  assert.equal(await orders.next(), 1n);
  await one.kill();
  one = await Server.start(t, second, { port });
  await assert.rejects(store.allocate('order', 10n, 0n), (error) => /was expected/.test(error.message) && kind('refused')(error));
  await assert.rejects(store.allocate('order', 10n, 0n), kind('refused'));
  assert.equal((await nextOfRust(first, 'order', 1))[0] > 1n, true);
});

test('no proxy makes an id come twice', async (t) => {
  const server = await Server.start(t, await sqlite(t));
  const ways = ['well', 'twice', 'cached', 'lost', 'cut', 'late', 'nameless', 'gateway'];
  // What only looks is passed on as it is.
  const proxy = await Proxy.start(t, server.url, (number, request) =>
    request.url.includes('/segments?') ? ways[number % ways.length] : 'well');
  const store = await RemoteStore.open(proxy.url, { requestTimeoutMs: 300 });
  const seen = new Seen();
  const kinds = { granted: 0 };
  for (let at = 0; at < ways.length * 4; at += 1) {
    try {
      const { start, end } = await store.allocate('order', 10n, 0n);
      seen.add(Array.from({ length: Number(end - start) }, (_, n) => start + BigInt(n)));
      kinds.granted += 1;
    } catch (error) {
      assert.ok(error instanceof StoreError, String(error.stack));
      kinds[error.kind] = (kinds[error.kind] ?? 0) + 1;
    }
  }
  // Of eight ways two bring a grant that may be used; of all others nobody knows.
  assert.deepEqual(kinds, { granted: 8, 'outcome-unknown': 24 });
  const ids = await Ids.open({ segments: store, waitMaxMs: 20_000 });
  t.after(() => ids.close());
  const orders = await ids.sequence('order', { step: { kind: 'fixed', step: 10n } });
  for (let at = 0; at < 20; at += 1) {
    seen.add(await orders.take(9));
  }
});
