// Names and texts cross to the component, to stores and to other programs as they are: no letter is dropped, joined
// with another or read as another one. Decoders of text drop U+FEFF from the beginning, where nobody tells them not to.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import http from 'node:http';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { DEFAULT_TAG_OPTIONS, Formats, Ids, IdsError, MemoryStore, StoreError } from '../dist/index.js';
import { MysqlStore } from '../dist/mysql.js';
import { RedisStore } from '../dist/redis.js';
import { RemoteStore } from '../dist/remote-node.js';
import { SqliteStore } from '../dist/sqlite.js';
import { Requests, Storage } from '../dist/storage.js';
import { InstanceTickets } from '../dist/tickets.js';
import { folderOf, needed, Seen, Server } from './fixtures.mjs';
import { freshDatabase } from './mariadb.mjs';
import { RedisProcess } from './redis-servers.mjs';

// Every new store warns that it is one.
process.removeAllListeners('warning').on('warning', () => undefined);

const BOM = '\ufeff';
/** No two of these are one name. */
const NAMES = [
  ...['order', `${BOM}order`, `${BOM}${BOM}order`, `order${BOM}`, `or${BOM}der`, 'Order', 'ORDER', 'order\u200b'],
  // One letter by each of two normal forms, and letters that compatibility or case would join.
  ...['caf\u00e9', 'cafe\u0301', 'Caf\u00c9', '\u212b', '\u00c5', 'A\u030a', '\ufb01', 'fi', 'stra\u00dfe', 'strasse'],
  ...['\ufffd', '?', '\u{1f600}', '\u{1f601}', '\u{10ffff}', '\u0131', 'i', '%EF%BB%BForder', '%ef%bb%bforder'],
];
/** Those that are none. */
const INVALID = ['a\u0000', '\u0000a', '\ud800', 'a\udfff', '\udc00\ud800', `${BOM}\ud83d`, 'a\u0085', '\u007f', ''];
const LAYOUT = {
  timestampBits: 41,
  datacenterBits: 0,
  workerBits: 0,
  sequenceBits: 12,
  order: 'worker-first',
  epochMs: 1_288_834_974_657n,
  tickMs: 1,
};
const shared = { ...LAYOUT, workerBits: 2 };

const shown = (name) =>
  JSON.stringify(name).replace(/[^ -~]/g, (letter) => `\\u{${letter.codePointAt(0).toString(16)}}`);

const kind = (expected) => (error) => {
  assert.ok(error instanceof IdsError || error instanceof StoreError, String(error?.stack ?? error));
  assert.equal(error.kind, expected, error.message);
  return true;
};

/** A store that writes down what it is asked for. */
class Listening {
  heard = [];

  constructor(inner) {
    this.inner = inner;
    for (const method of ['allocate', 'release', 'openTag', 'acquire', 'extend']) {
      this[method] = (...args) => {
        const [first] = args;
        this.heard.push([method, typeof first === 'object' ? first.namespace : first]);
        return this.inner[method](...args);
      };
    }
  }
}

test('the component asks for each name as it was given, and the store hears no other', async () => {
  for (const name of NAMES) {
    let nowMs = 1_700_000_000_000;
    const now = () => nowMs;
    const store = new Listening(new MemoryStore({ now }));
    const ids = await Ids.open({ segments: store, leases: store, renewLeases: false, now });
    await (await ids.sequence(name)).next();
    const flakes = await ids.snowflake(name, LAYOUT);
    await flakes.next();
    nowMs += 30_000;
    await flakes.next();
    await ids.close();
    const methods = store.heard.map(([method]) => method);
    assert.deepEqual(methods, ['openTag', 'allocate', 'acquire', 'extend', 'release', 'release'], shown(name));
    assert.ok(
      store.heard.every(([, heard]) => heard === name),
      `${shown(name)}: ${JSON.stringify(store.heard)}`,
    );
  }
});

test('a request for another name than that of whoever asks is refused, and reaches no store', async () => {
  const store = new Listening(new MemoryStore());
  const tickets = new InstanceTickets();
  const storage = new Storage(store, store, '', null, 1_000);
  const requests = new Requests(storage, tickets);
  const { 'unalike:ids/segments': segments, 'unalike:ids/leases': leases } = tickets.imports(requests);
  const answers = async (ticket, of) => {
    await storage.settle();
    return of.poll(ticket);
  };
  const refused = { tag: 'err', val: 'refused' };
  const grantId = { high: 1n, low: 2n };
  for (const asker of [undefined, { name: `${BOM}order`, granted: undefined, answered() {} }]) {
    requests.asker = asker;
    assert.deepEqual(await answers(segments.allocate('order', 10n, 0n), segments), refused);
    assert.deepEqual(await answers(leases.acquire('order', LAYOUT, 1n, 1_000n), leases), refused);
    assert.deepEqual(await answers(leases.extend('order', LAYOUT, 0, grantId, 1n, 1_000n), leases), refused);
    segments.release('order', 5n, 1n);
    leases.release('order', 0, grantId, 5n);
    await storage.settle();
  }
  assert.deepEqual(store.heard, []);
  requests.asker = { name: 'order', granted: undefined, answered() {} };
  assert.equal((await answers(segments.allocate('order', 10n, 0n), segments)).tag, 'ok');
  assert.deepEqual(store.heard, [['allocate', 'order']]);
});

test('formats write and read every letter of their templates', async () => {
  const formats = await Formats.load();
  for (const name of NAMES.filter((name) => !name.includes('%'))) {
    const format = formats.format({ template: `${name}-{id}`, bits: 20, context: name });
    const text = format.write(7n, 0);
    assert.equal(text, `${name}-7`, shown(text));
    assert.equal(format.read(text).id, 7n);
  }
});

/** Every kind of store, on servers of its own where there are any. */
async function stores(t) {
  const folder = await folderOf(t);
  const path = join(folder, 'ids.sqlite');
  const sqlite = await SqliteStore.open(path);
  const mysql = await MysqlStore.open(await freshDatabase());
  const redisProcess = await RedisProcess.start(t, folder);
  const backing = await SqliteStore.open(join(folder, 'backing.sqlite'));
  const redis = await RedisStore.open({ url: `${redisProcess.url}?raise-min=100`, backing });
  const configuration = join(folder, 'unalike.toml');
  // The server holds a worker of each.
  const layout = 'layout = "41/1/12 epoch 1288834974657 tick 1 ms"';
  const snowflakes = NAMES.map((name) => `[snowflakes.${JSON.stringify(name)}]\n${layout}\n`);
  await writeFile(configuration, snowflakes.join(''));
  const server = await Server.start(t, `sqlite://${join(folder, 'served.sqlite')}`, {
    more: ['--config', configuration],
  });
  const remote = await RemoteStore.open(server.url);
  const all = { memory: new MemoryStore(), sqlite, mysql, redis, remote };
  t.after(() => Promise.all(Object.values(all).map((store) => store.close())));
  return all;
}

test('in every store, each name has numbers and workers of its own, and what is no name is refused', async (t) => {
  for (const [of, store] of Object.entries(await stores(t))) {
    const ids = await Ids.open({ segments: store, leases: store, waitMaxMs: 20_000 });
    for (const name of NAMES) {
      const sequence = await ids.sequence(name);
      assert.deepEqual([...(await sequence.take(3))], [1n, 2n, 3n], `${of}: ${shown(name)}`);
      assert.equal((await store.openTag(name)).tag, name);
    }
    // There is one worker for us in each, so a namespace that is another one's has none left.
    const layout = of === 'remote' ? { ...LAYOUT, workerBits: 1 } : LAYOUT;
    for (const name of NAMES) {
      const flakes = await ids.snowflake(name, layout);
      await flakes.next();
    }
    await ids.close();
    const again = await Ids.open({ segments: store, leases: store, waitMaxMs: 20_000 });
    for (const name of NAMES) {
      const id = await (await again.sequence(name)).next();
      assert.ok(id >= 4n, `${of}: ${shown(name)} went on at ${id}`);
    }
    for (const name of INVALID) {
      const what = `${of}: ${shown(name)}`;
      await assert.rejects(again.sequence(name), kind('name-invalid'), what);
      await assert.rejects(again.snowflake(name, LAYOUT), kind('name-invalid'), what);
      await assert.rejects(store.openTag(name), kind('tag-invalid'), what);
      await assert.rejects(store.allocate(name, 10n, 0n), kind('tag-invalid'), what);
      await assert.rejects(store.release(name, { start: 1n, version: 1n }), kind('tag-invalid'), what);
      await assert.rejects(store.createTag(name), kind('tag-invalid'), what);
      const lease = { namespace: name, layout: LAYOUT, nowMs: BigInt(Date.now()), horizonMs: 1_000n };
      const acquire = store.acquire({ ...lease, holder: '', preferredWorker: null });
      await assert.rejects(acquire, StoreError, what);
      await assert.rejects(store.extend({ ...lease, worker: 0, grantId: 1n }), StoreError, what);
    }
    await again.close();
  }
});

test('an answer whose bytes are no text, or that begins with a mark, is read as no other', async (t) => {
  const store = '0'.repeat(32);
  const step = { policy: 'fixed', step: '1' };
  const refill = { policy: 'remaining', count: '1' };
  const tag = { tag: '?', start: '1', mode: 'buffered', step, refill, watermark: '0', version: '0' };
  const [before, after] = JSON.stringify({ store, tag }).split('?');
  const named = (letter) => Buffer.concat([Buffer.from(before), Buffer.from(letter), Buffer.from(after)]);
  let answer;
  const server = http.createServer((request, response) => {
    response.writeHead(200, { 'x-request-id': request.headers['x-request-id'] });
    response.end(request.url === '/v1/store' ? JSON.stringify({ store }) : answer);
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => server.close());
  const remote = await RemoteStore.open(`http://127.0.0.1:${server.address().port}`);
  t.after(() => remote.close());
  answer = named('\ufffd');
  assert.equal((await remote.openTag('\ufffd')).tag, '\ufffd');
  for (const wrong of [named([0xff]), Buffer.concat([Buffer.from(BOM), answer])]) {
    answer = wrong;
    await assert.rejects(remote.openTag('\ufffd'), kind('unavailable'));
  }
  answer = Buffer.concat([named('a'), Buffer.from([0xe2, 0x82])]);
  await assert.rejects(remote.openTag('a'), kind('unavailable'));
});

const TOGETHER = [`${BOM}order`, 'order', `order${BOM}`, 'caf\u00e9', 'cafe\u0301'];

/** Ids that the Python package takes. */
function ofPython(task) {
  return new Promise((resolve, reject) => {
    const script = fileURLToPath(new URL('children/draw.py', import.meta.url));
    const child = execFile(needed('UNALIKE_TEST_PYTHON'), [script], (error, stdout) =>
      error === null ? resolve(JSON.parse(stdout)) : reject(error),
    );
    child.stdin.end(JSON.stringify(task));
  });
}

async function ofCommand(args, name) {
  const { stdout } = await promisify(execFile)(needed('UNALIKE_BIN'), ['next', name, '-n', '5', ...args]);
  return stdout.trim().split('\n').map(BigInt);
}

const SHARED = {
  'one SQLite file': async (t) => {
    const path = join(await folderOf(t), 'ids.sqlite');
    return { task: { sqlite: path }, args: ['--store', `sqlite://${path}`], open: () => SqliteStore.open(path) };
  },
  'one database': async () => {
    const mysql = await freshDatabase();
    return { task: { mysql }, args: ['--store', mysql], open: () => MysqlStore.open(mysql) };
  },
  'one Redis': async (t) => {
    const folder = await folderOf(t);
    const redis = `${(await RedisProcess.start(t, folder)).url}?raise-min=100`;
    const path = join(folder, 'ids.sqlite');
    const open = async () => RedisStore.open({ url: redis, backing: await SqliteStore.open(path) });
    return { task: { sqlite: path, redis }, args: ['--store', redis, '--backing', `sqlite://${path}`], open };
  },
};

for (const [what, begin] of Object.entries(SHARED)) {
  test(`Node, Python and the command share names in ${what}, and no id of one comes twice`, async (t) => {
    const { task, args, open } = await begin(t);
    const store = await open();
    await store.createTag(`${BOM}ticket`, { ...DEFAULT_TAG_OPTIONS, mode: 'ordered' });
    const tags = [...TOGETHER, `${BOM}ticket`];
    const all = { ...task, tags, namespaces: TOGETHER, count: 7 };
    const ids = await Ids.open({ segments: store, leases: store, waitMaxMs: 20_000 });
    const seen = new Map(tags.map((name) => [name, new Seen()]));
    const stamped = new Map(TOGETHER.map((name) => [name, new Seen()]));
    const draw = async () => {
      for (const name of tags) {
        seen.get(name).add(await (await ids.sequence(name)).take(9), `under ${shown(name)}, in Node`);
      }
      for (const name of TOGETHER) {
        stamped.get(name).add(await (await ids.snowflake(name, shared)).take(9), `in ${shown(name)}, in Node`);
      }
    };
    await draw();
    for (const name of tags) {
      assert.ok(seen.get(name).ids.has(1n), `${shown(name)} does not begin at 1`);
    }
    for (let round = 0; round < 2; round += 1) {
      const drawn = await ofPython(all);
      for (const [name, texts] of Object.entries(drawn.tags)) {
        seen.get(name).add(texts.map(BigInt), `under ${shown(name)}, in Python`);
      }
      for (const [name, texts] of Object.entries(drawn.namespaces)) {
        stamped.get(name).add(texts.map(BigInt), `in ${shown(name)}, in Python`);
      }
      for (const name of tags) {
        seen.get(name).add(await ofCommand(args, name), `under ${shown(name)}, by the command`);
      }
      await draw();
    }
    assert.equal((await ids.sequence(`${BOM}ticket`)).mode, 'ordered');
    await ids.close();
    await store.close();
  });
}
