// The store over HTTP, against real servers.

import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import http from 'node:http';
import net from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';

import { openNode } from '../dist/http-node.js';
import { openFetch, setHttp } from '../dist/http.js';
import { Ids, StoreError } from '../dist/index.js';
import { RemoteStore } from '../dist/remote-node.js';
import {
  certificates,
  deafServer,
  folderOf,
  freePort,
  nextOfRust,
  Proxy,
  Seen,
  Server,
  TlsProxy,
  until,
} from './fixtures.mjs';

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
  const acquire = {
    namespace: 'default',
    layout,
    holder: '',
    preferredWorker: null,
    nowMs: BigInt(Date.now()),
    horizonMs: 1000n,
  };
  await assert.rejects(store.acquire(acquire), (error) => !error.isRetryable && error.failure === 'refused');
  const late = { ...acquire, layout: layoutOfTwitter, nowMs: acquire.nowMs - 3_600_000n };
  await assert.rejects(store.acquire(late), kind('clock-skew'));
  assert.equal((await store.allocate('order', 1n, 0n)).start, 1n);
});

const layoutOfTwitter = {
  timestampBits: 41,
  datacenterBits: 5,
  workerBits: 5,
  sequenceBits: 12,
  order: 'worker-first',
  epochMs: 1288834974657n,
  tickMs: 1,
};

test('addresses and pins that are none are refused, and no secret is told', async () => {
  for (const urls of [
    'ids.example',
    'ftp://a',
    'http://',
    'http://a,,b',
    ['http://a', 'http://a'],
    'http://a/v1',
    'http://a\\v1',
    'http://u:hunter2@a',
    'http://a?token=hunter2',
    [],
    'http://a#b',
    'http://u:hunter2?@a',
    'http://a?password=hunter2',
    'http://a?ssl-ca=/ca.pem',
    'http://a?store=5eed',
    'http://a?timeout=1',
    'http://a?request-timeout-ms=0',
    'http://a?connect-timeout-ms=600001',
    'http://a?request-timeout-ms=1&request-timeout-ms=1',
    ['http://a?request-timeout-ms=1', 'http://b?request-timeout-ms=1'],
  ]) {
    await assert.rejects(
      RemoteStore.open(urls),
      (error) => !error.message.includes('hunter2') && kind('refused')(error),
    );
  }
  for (const [urls, words] of [
    [undefined, /^the address of the servers is undefined: is its environment variable set\?$/],
    [null, /is null: is its environment variable set/],
    ['', /is empty: is its environment variable set/],
    [['http://a', undefined], /is undefined/],
    [new URL('http://a'), /is an object of the class URL, it must be a text: give its href/],
    [7, /is of the type number, it must be a text/],
    ['http://a:1,http://b:2', /has a scheme after a comma, and further hosts have none of their own/],
  ]) {
    await assert.rejects(RemoteStore.open(urls), (error) => words.test(error.message) && kind('refused')(error));
  }
  for (const [token, words] of [
    [5, /^the token is of the type number, it must be a text, or left out$/],
    [null, /^the token is null/],
    ['', /^the token is empty: is its environment variable set/],
    ['Bearer hunter2', /^the token begins with Bearer: leave Bearer out$/],
    ['hunter2\n', /^the token has a space or the end of a line around it: trim it$/],
    ['hunt\ner2', /^the token has letters that no header may have$/],
  ]) {
    const refused = (error) => words.test(error.message) && kind('refused')(error);
    await assert.rejects(RemoteStore.open('http://a', { token }), refused);
  }
  await assert.rejects(RemoteStore.open('http://a', { store: '5eed' }), kind('refused'));
  await assert.rejects(RemoteStore.open('http://a', { token: 'a\nb' }), kind('refused'));
  await assert.rejects(RemoteStore.open('http://a', { requestTimeoutMs: 0 }), /requestTimeoutMs/);
  await assert.rejects(RemoteStore.open('http://a', { connectTimeoutMs: 1.5 }), /connectTimeoutMs/);
  await assert.rejects(RemoteStore.open('http://a', { sslCa: '/ca.pem' }), /ssl-ca, which needs https/);
  const twice = RemoteStore.open('http://a?connect-timeout-ms=1', { connectTimeoutMs: 1 });
  await assert.rejects(twice, /twice, or beside the option connectTimeoutMs/);
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
  // A request that was written to a connection just as it broke may have been served, and is not sent again.
  await draw().catch(kind('outcome-unknown'));
  for (let at = 0; at < 5; at += 1) {
    await draw();
  }
  // Several must agree when a store is opened, unless it is named.
  await assert.rejects(RemoteStore.open([one.url, other.url]), kind('unavailable'));
  const pinned = await RemoteStore.open([one.url, other.url], { store: await store.identity() });
  assert.ok((await pinned.allocate('order', 10n, 0n)).start > 60n);
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
  await assert.rejects(
    store.allocate('order', 10n, 0n),
    (error) => /was expected/.test(error.message) && kind('refused')(error),
  );
  await assert.rejects(store.allocate('order', 10n, 0n), kind('refused'));
  assert.equal((await nextOfRust(first, 'order', 1))[0] > 1n, true);
});

test('what is no unalike server, and a token that is missing, are told with what to do', async (t) => {
  const other = http.createServer((_, response) => response.writeHead(502).end('<html>'));
  await new Promise((resolve) => other.listen(0, '127.0.0.1', resolve));
  t.after(() => other.close());
  const url = `http://127.0.0.1:${other.address().port}`;
  await assert.rejects(RemoteStore.open(url), (error) => {
    assert.match(error.message, /was answered with the status 502 by something that is no unalike server/);
    return kind('unavailable')(error);
  });
  const tokens = join(await folderOf(t), 'tokens.toml');
  const token = 'the-token-of-the-test';
  await writeFile(tokens, `[[tokens]]\nname = "a"\ntoken = "${token}"\nscope = "lease"\n`, { mode: 0o600 });
  const server = await Server.start(t, await sqlite(t), { more: ['--tokens', tokens] });
  const without = async () => await (await RemoteStore.open(server.url)).allocate('order', 1n, 0n);
  await assert.rejects(without(), (error) => {
    assert.match(error.message, /; give it as the option token$/);
    return kind('refused')(error);
  });
  const store = await RemoteStore.open(server.url, { token });
  assert.equal((await store.allocate('order', 1n, 0n)).start, 1n);
});

for (const [how, open, takes] of [
  ['over connections of its own', openNode, 20],
  ['by fetch', openFetch, 3],
]) {
  test(`no proxy makes an id come twice: ${how}`, async (t) => {
    setHttp(open);
    t.after(() => setHttp(openNode));
    await drawThroughProxies(t, takes);
  });
}

async function drawThroughProxies(t, takes) {
  const server = await Server.start(t, await sqlite(t));
  const ways = ['well', 'twice', 'cached', 'lost', 'cut', 'late', 'nameless', 'gateway'];
  let [asked, way] = [0, ''];
  const proxy = await Proxy.start(t, server.url, (_, request) => {
    // What only looks is passed on as it is.
    if (!request.url.includes('/segments?')) {
      return 'well';
    }
    way = ways[asked % ways.length];
    asked += 1;
    return way;
  });
  const store = await RemoteStore.open(proxy.url, { requestTimeoutMs: 1_000 });
  const seen = new Seen();
  const granted = new Set();
  for (let at = 0; at < ways.length * 3; at += 1) {
    try {
      const { start, end } = await store.allocate('order', 10n, 0n);
      seen.add(Array.from({ length: Number(end - start) }, (_, n) => start + BigInt(n)), way);
      granted.add(way);
    } catch (error) {
      kind('outcome-unknown')(error);
    }
  }
  assert.equal(asked, ways.length * 3, 'what may have been granted is asked for once');
  // Two ways bring a grant that may be used; of all others nobody knows.
  assert.deepEqual([...granted].sort(), ['twice', 'well']);
  const ids = await Ids.open({ segments: store, waitMaxMs: 30_000 });
  t.after(() => ids.close());
  const orders = await ids.sequence('order', { step: { kind: 'fixed', step: 10n } });
  for (let at = 0; at < takes; at += 1) {
    seen.add(await orders.take(9), 'through the host');
  }
}

test('fetch has no authorities and no limit of its own for connections', (t) => {
  setHttp(openFetch);
  t.after(() => setHttp(openNode));
  return Promise.all([
    assert.rejects(RemoteStore.open('https://a', { sslCa: '/ca.pem' }), /sslCa is for Node/),
    assert.rejects(RemoteStore.open('http://a', { connectTimeoutMs: 1 }), /connectTimeoutMs is for Node/),
  ]);
});

test('a server behind TLS is believed by the authority that is named, and by no other', async (t) => {
  const server = await Server.start(t, await sqlite(t));
  const [folder, other] = [await folderOf(t), await folderOf(t)];
  const files = await certificates(folder);
  const proxy = await TlsProxy.start(t, server, files);
  const untrusted = (error) => {
    assert.match(error.message, /no authority that this program trusts.*sslCa or ssl-ca=PATH/);
    return kind('unavailable')(error);
  };
  await assert.rejects(RemoteStore.open(proxy.url), untrusted);
  await assert.rejects(RemoteStore.open(proxy.url, { sslCa: (await certificates(other)).ca }), untrusted);
  const address = proxy.url.replace('localhost', '127.0.0.1');
  await assert.rejects(RemoteStore.open(address, { sslCa: files.ca }), /write a name into the address/);
  assert.equal(proxy.bytes, 0, 'nothing is told to a server that is not believed');

  const store = await RemoteStore.open(proxy.url, { sslCa: files.ca });
  const same = await RemoteStore.open(`${proxy.url}?ssl-ca=${encodeURIComponent(files.ca)}`);
  const seen = new Seen();
  for (let at = 0; at < 10; at += 1) {
    const { start } = await [store, same][at % 2].allocate('order', 1n, 0n);
    seen.add([start]);
  }
  assert.equal(seen.ids.size, 10);
  assert.ok(proxy.bytes > 0);

  const [empty, broken] = [join(folder, 'empty.pem'), join(folder, 'broken.pem')];
  await writeFile(empty, 'no certificate\n');
  await writeFile(broken, '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n');
  for (const [sslCa, why] of [
    [join(folder, 'nowhere.pem'), /nowhere.pem: ENOENT/],
    [empty, /empty.pem: there is none/],
    [broken, /broken.pem: /],
  ]) {
    const failed = RemoteStore.open(proxy.url, { sslCa });
    await assert.rejects(failed, (error) => why.test(error.message) && kind('refused')(error));
  }
});

test('a server that opens no connection in time is passed over', { timeout: 60_000 }, async (t) => {
  const server = await Server.start(t, await sqlite(t));
  const files = await certificates(await folderOf(t));
  const proxy = await TlsProxy.start(t, server, files);
  // It takes connections, and never says a word of TLS.
  const sockets = [];
  const mute = net.createServer((socket) => sockets.push(socket.on('error', () => undefined)));
  await new Promise((resolve) => mute.listen(0, '127.0.0.1', resolve));
  t.after(() => {
    mute.close();
    sockets.forEach((socket) => socket.destroy());
  });
  const store = await (await RemoteStore.open(server.url)).identity();
  // Only the limit for connections can end these waits within the test's time.
  const limits = { connectTimeoutMs: 500, requestTimeoutMs: 600_000 };
  for (const [bad, good, more] of [
    [await deafServer(t), server.url, {}],
    [`https://127.0.0.1:${mute.address().port}`, proxy.url, { sslCa: files.ca }],
  ]) {
    const alone = RemoteStore.open(bad, { ...limits, ...more });
    await assert.rejects(alone, (error) => /none within 500 ms/.test(error.message) && kind('unavailable')(error));
    const both = await RemoteStore.open([bad, good], { ...limits, ...more, store });
    const seen = new Seen();
    for (let at = 0; at < 3; at += 1) {
      const { start } = await both.allocate('order', 1n, 0n);
      seen.add([start]);
    }
    assert.equal(seen.ids.size, 3);
  }
});
