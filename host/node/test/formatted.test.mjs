// Ids as a format shows them, and the format that is bound to their tag: in every kind of store, on real servers, and
// with the `unalike` command over the same store.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import http from 'node:http';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';

import { Formats, Ids, IdsError, MemoryStore, PRESETS, StoreError } from '../dist/index.js';
import { MysqlStore } from '../dist/mysql.js';
import { formatName } from '../dist/names.js';
import { RedisStore } from '../dist/redis.js';
import { RemoteStore } from '../dist/remote-node.js';
import { SqliteStore } from '../dist/sqlite.js';
import { folderOf, needed, Server } from './fixtures.mjs';
import { freshDatabase } from './mariadb.mjs';
import { RedisProcess } from './redis-servers.mjs';

// Every new store warns that it is one.
process.removeAllListeners('warning').on('warning', () => undefined);

const formats = await Formats.load();
const NOON_MS = Date.UTC(2026, 10, 22, 12);
const HOUR_MS = 3_600_000;
const SECRET = '5a3c0b9d1e7f4826a1b2c3d4e5f60718';
const OTHER_SECRET = '00000000000000000000000000000007';
const BOM = '\ufeff';
const DAILY = { template: 'ORD-{yyyyMMdd}-{id:06}', bits: 19, restart: 'day', utcOffsetMinutes: 480 };

/** What every opening of an `Ids` is closed by, at the end of the test. */
function opener(t, store, more = {}) {
  return async () => {
    const ids = await Ids.open({ segments: store, leases: store, waitMaxMs: 20_000, renewLeases: false, ...more });
    t.after(() => ids.close());
    return ids;
  };
}

const is = (kind, words = /./) => (error) => {
  assert.ok(error instanceof IdsError || error instanceof StoreError, String(error?.stack ?? error));
  assert.equal(error.kind, kind, error.message);
  assert.match(error.message, words);
  return true;
};

const bound = (words) => (error) => {
  assert.ok(is('format-bound', words)(error));
  assert.ok(!error.isRetryable && error.storeError.kind === 'format-bound' && error.storeError.failure === 'refused');
  return true;
};

test('texts are dated and counted by one reading of the clock', async (t) => {
  let reads = 0;
  let nowMs = NOON_MS;
  const now = () => {
    reads += 1;
    return nowMs;
  };
  const ids = await opener(t, new MemoryStore(), { now })();
  const format = formats.format({ ...DAILY, template: 'ORD-{yyyyMMdd}-{id:06}-{gene:4}' });
  const orders = await ids.formatted('order', format);
  assert.equal(await orders.next(123_456_789n), 'ORD-20261122-000001-05');
  const batch = await orders.take(2, 123_456_789n);
  assert.equal(batch.length, 2);
  assert.deepEqual([...batch], ['ORD-20261122-000002-05', 'ORD-20261122-000003-05']);
  assert.deepEqual(batch.toArray(), [...batch], 'as often as they are asked for');
  assert.equal(JSON.stringify({ batch }), '{"batch":["ORD-20261122-000002-05","ORD-20261122-000003-05"]}');
  assert.equal(orders.read('ORD-20261122-000003-05').id, 3n);
  assert.equal(orders.name, 'order');
  // Midnight in that zone, and back over it.
  nowMs += 4 * HOUR_MS;
  assert.equal(await orders.next(5n), 'ORD-20261123-000001-05');
  nowMs -= 4 * HOUR_MS;
  assert.equal(await orders.next(5n), 'ORD-20261122-000004-05');
  assert.deepEqual(
    ids.openSequences().map(({ tag, sub }) => [tag, sub]),
    [
      ['order', '@2026-11-22'],
      ['order', '@2026-11-23'],
    ],
  );
  // Each reading is of another day: what is counted in a day shows that day.
  const seen = new Set();
  for (let turn = 0; turn < 20; turn += 1) {
    const text = await orders.next(5n);
    assert.ok(!seen.has(text), `${text} came twice`);
    seen.add(text);
    nowMs = NOON_MS + (reads % 2) * 24 * HOUR_MS;
  }
  // Sub-keys have numbers of their own, in the format of their tag.
  const shop = await ids.formattedOf('order', 'shop', format);
  assert.match(await shop.next(5n), /-000001-05$/);
  assert.ok(ids.openSequences().some(({ sub }) => /^shop@2026-11-2[23]$/.test(sub)));
});

test('a date that changes between two readings of the clock is that of the period', async (t) => {
  let days = 0;
  const ids = await opener(t, new MemoryStore(), { now: () => NOON_MS + 24 * HOUR_MS * (days += 1) })();
  const orders = await ids.formatted('order', formats.format(DAILY));
  for (let turn = 0; turn < 10; turn += 1) {
    const text = await orders.next();
    const period = formats.format(DAILY).period(Number(orders.read(text).span.fromMs));
    const open = ids.openSequences().map(({ sub }) => sub);
    assert.ok(open.includes(`@${period}`), `${text} is none of ${open}`);
    assert.match(text, /-000001$/, 'each day is another one');
  }
});

test('calls that come at once share the row of a new period, and their wait includes its look-up', async (t) => {
  let nowMs = NOON_MS;
  const store = new MemoryStore();
  const ids = await opener(t, store, { now: () => nowMs, requestTimeoutMs: 200 })();
  const orders = await ids.formatted('order', formats.format(DAILY));
  nowMs += 24 * HOUR_MS;
  const texts = await Promise.all(Array.from({ length: 20 }, () => orders.next()));
  const expected = Array.from({ length: 20 }, (_, at) => `ORD-20261123-${String(at + 1).padStart(6, '0')}`);
  assert.deepEqual(texts.sort(), expected);
  nowMs += 24 * HOUR_MS;
  store.openTag = () => new Promise(() => undefined);
  await assert.rejects(orders.next(undefined, { waitMaxMs: 20 }), is('timeout'));
  await assert.rejects(orders.next(undefined, { signal: AbortSignal.timeout(20) }), is('aborted'));
  delete store.openTag;
  store.allocate = () => new Promise(() => undefined);
  await assert.rejects(orders.next(undefined, { waitMaxMs: 20 }), is('timeout'));
  delete store.allocate;
  await ids.close();
  await assert.rejects(orders.next(), is('closed'));
});

test('what would be refused afterwards costs no id', async (t) => {
  const ids = await opener(t, new MemoryStore(), { now: () => NOON_MS })();
  const orders = await ids.formatted('order', formats.format({ ...DAILY, template: '{yyyyMMdd}-{id}-{gene:4}' }));
  await assert.rejects(orders.next(), is('format', /give the shard key that it is taken from/));
  await assert.rejects(orders.next(-1n), is('number-invalid', /^shardKey is -1n/));
  await assert.rejects(orders.next(1n << 64n), is('number-invalid', /^shardKey is 18446744073709551616n/));
  await assert.rejects(orders.take(0, 5n), is('number-invalid', /^count is 0/));
  await assert.rejects(orders.nextNumber(5n), is('format-misfit', /only whole texts are unique/));
  await assert.rejects(orders.takeNumbers(2, 5n), is('format-misfit', /no numbers are given/));
  assert.equal(await orders.next(5n), '20261122-1-05');
  const plain = await ids.formatted('plain', formats.format({ template: 'A{id}', geneBits: 4 }));
  await assert.rejects(plain.next(), is('format', /give the shard key/));
  assert.deepEqual(await plain.takeNumbers(2, 37n), [(1n << 4n) | 5n, (2n << 4n) | 5n]);
  assert.equal(await plain.next(37n), 'A53');
  const bare = await ids.formatted('bare', formats.format({ template: '{id}' }));
  await assert.rejects(bare.next(5n), is('format', /leave it out/));
  assert.deepEqual([await bare.next(), await bare.nextNumber()], ['1', 2n]);
});

test('a sequence ends before a text would be too long, and so does each period', async (t) => {
  let nowMs = NOON_MS;
  const ids = await opener(t, new MemoryStore(), { now: () => nowMs })();
  const orders = await ids.formatted('order', formats.format({ ...DAILY, template: '{yyyyMMdd}-{id:02}' }));
  assert.equal((await orders.take(99)).toArray().at(-1), '20261122-99');
  await assert.rejects(orders.next(), (error) => error.kind === 'exhausted' && error.figures.idMax === 99n);
  await assert.rejects(orders.next(), is('exhausted', /up to 99, .* \(the digits of its template, bits or idMax/));
  nowMs += 24 * HOUR_MS;
  assert.equal(await orders.next(), '20261123-01');
  const few = await ids.formatted('few', formats.format({ template: '{id:02}' }), { idMax: 3n });
  assert.deepEqual((await few.take(3)).toArray(), ['01', '02', '03']);
  await assert.rejects(few.next(), (error) => error.kind === 'exhausted' && error.figures.idMax === 3n);
});

test('ids of a snowflake are dated by their own tick, and a format that does not fit takes none', async (t) => {
  const store = new MemoryStore();
  const open = opener(t, store);
  const ids = await open();
  const flakes = await ids.formattedSnowflake('web', 'twitter', formats.format({ template: 'W{id}', geneBits: 4 }));
  const text = await flakes.next(37n);
  const { id, number, gene, span } = flakes.read(text);
  assert.equal(gene, 5n);
  assert.equal(number, (id << 4n) | 5n);
  assert.equal(formats.unpack(number, 'twitter').sequence % 16, 5);
  const startMs = PRESETS.twitter.epochMs + formats.unpack(number, 'twitter').ticks;
  assert.deepEqual(span, { fromMs: startMs, untilMs: startMs + 1n });
  assert.equal((await flakes.nextNumber(37n)) % 16n, 5n);
  assert.deepEqual(
    ids.openSnowflakes().map(({ layout }) => layout.sequenceBits),
    [8],
  );

  const dated = formats.format({ template: '{yyyyMMdd}-{id}' });
  const days = await ids.formattedSnowflake('days', 'twitter', dated);
  const [first] = await days.take(1);
  const date = new Date(Number(days.read(first).span.fromMs)).toISOString().slice(0, 10);
  assert.equal(first.slice(0, 8), date.replaceAll('-', ''));
  assert.throws(() => days.read(`20101104${first.slice(8)}`), is('format', /the date beside the id/));

  let asked = 0;
  const listening = new Proxy(store, {
    get: (of, name) => (typeof of[name] === 'function' ? (...args) => ((asked += 1), of[name](...args)) : of[name]),
  });
  const watched = await opener(t, listening)();
  for (const [layout, options, fault, words] of [
    ['twitter', { template: '{id:010}' }, 'width', /ids of the layout reach 9223372036854775807, .* above 9999999999/],
    ['twitter', { template: '{id}', bits: 62 }, 'width', /give it more bits or digits/],
    ['twitter', { template: '{yyyy}{id}', restart: 'year' }, 'restart', /no counter that could start again/],
    ['sonyflake', { template: '{id}', geneBits: 4 }, 'gene', /4 bits for a gene .* stand last/],
    ['twitter', { template: '{id}', geneBits: 13 }, 'gene', /13 bits for a gene/],
  ]) {
    await assert.rejects(watched.formattedSnowflake('x', layout, formats.format(options)), (error) => {
      assert.ok(is('format-misfit', words)(error));
      assert.equal(error.figures.fault, fault);
      return true;
    });
  }
  const invalid = { ...PRESETS.leaf, timestampBits: 60 };
  const plain = formats.format({ template: '{id}' });
  await assert.rejects(watched.formattedSnowflake('x', invalid, plain), is('layout-invalid'));
  assert.equal(asked, 0, 'no store was asked');

  const other = formats.format({ template: '{id}W', geneBits: 4 });
  await assert.rejects(
    (await open()).formattedSnowflake('web', 'twitter', other),
    bound(/^the snowflake "web" is bound .*; `unalike tags format --snowflake -- 'web'`/),
  );
  // Without a store of segments nothing is compared.
  const leases = await opener(t, undefined, { segments: undefined, leases: store })();
  assert.match(await (await leases.formattedSnowflake('web', 'twitter', other)).next(1n), /^\d+W$/);
});

test('the kept names are those of the Rust library, and no caller comes to them', async (t) => {
  const of = (kind, name, part, row = 1) => formatName({ kind, name }, part, row);
  const shape = { kind: 'shape' };
  const key = { kind: 'key', id: 255, bits: 63 };
  assert.equal(of('tag', 'order', shape), 'unalike-formats\u001ftag 1 shape:order');
  const third = { kind: 'key', id: 3, bits: 24 };
  assert.equal(of('tag', 'order', third, 12), 'unalike-formats\u001ftag 12 key 3 of 24 bits:order');
  assert.equal(of('snowflake', 'order', shape), 'unalike-formats\u001fsnowflake 1 shape:order');
  for (const name of ['order ', 'x'.repeat(128), '\u{1f600}'.repeat(32), `${BOM}${'x'.repeat(125)}`]) {
    const stored = of('snowflake', name, key, 1_000);
    assert.ok(Buffer.byteLength(stored) <= 128 && /~[0-9a-f]{16}$/.test(stored), stored);
    assert.ok(stored.includes(`:${[...name][0]}`), 'no letter is dropped from the beginning');
    assert.notEqual(of('snowflake', name.replace([...name][0], 'y'), key, 1_000), stored);
  }
  const store = new MemoryStore();
  const ids = await opener(t, store)();
  const format = formats.format({ template: '{id}' });
  for (const name of ['unalike-formats', ' Unalike-Formats', 'redis-leases', 'a\u0000', '', 'a\u001fb']) {
    await assert.rejects(ids.formatted(name, format), is('name-invalid'), JSON.stringify(name));
  }
  for (const [owner, part, first] of [
    [{ kind: 'tag', name: 'a\u001fb' }, shape, 1n],
    [{ kind: 'tags', name: 'a' }, shape, 1n],
    [{ kind: 'tag', name: 'a' }, { kind: 'key', id: 256, bits: 3 }, 1n],
    [{ kind: 'tag', name: 'a' }, { kind: 'key', id: 1.5, bits: 3 }, 1n],
    [{ kind: 'tag', name: 'a' }, shape, 0n],
    [{ kind: 'tag', name: 'a' }, shape, 1n << 63n],
    [{ kind: 'tag', name: 'a' }, shape, 7],
  ]) {
    const isRefused = ({ kind }) => kind === 'tag-invalid' || kind === 'refused';
    await assert.rejects(store.bindFormat(owner, part, first), isRefused);
  }
  for (const wrong of [undefined, null, 'A{id}', { template: 'A{id}' }]) {
    await assert.rejects(ids.formatted('order', wrong), is('options-invalid', /^format is .*, it must be a Format/));
    await assert.rejects(ids.formattedSnowflake('web', 'twitter', wrong), is('options-invalid'));
  }
});

/** Every kind of store that keeps formats, each with how to open it again. */
const STORES = {
  memory: async () => {
    const store = new MemoryStore();
    return async () => store;
  },
  SQLite: async (t) => {
    const path = join(await folderOf(t), 'ids.sqlite');
    return () => SqliteStore.open(path);
  },
  'MySQL or MariaDB': async () => {
    const url = await freshDatabase();
    return () => MysqlStore.open(url);
  },
  Redis: async (t) => {
    const folder = await folderOf(t);
    const redis = await RedisProcess.start(t, folder);
    const path = join(folder, 'ids.sqlite');
    return async () => RedisStore.open({ url: `${redis.url}?raise-min=100`, backing: await SqliteStore.open(path) });
  },
  'an unalike server': async (t) => {
    const folder = await folderOf(t);
    const configuration = join(folder, 'unalike.toml');
    await writeFile(configuration, '[snowflakes.web]\nlayout = "twitter"\n');
    const store = `sqlite://${join(folder, 'ids.sqlite')}`;
    const server = await Server.start(t, store, { more: ['--config', configuration] });
    return () => RemoteStore.open(server.url);
  },
};

for (const [kind, begin] of Object.entries(STORES)) {
  test(`a tag is shown in the format that it had first, in each program: ${kind}`, async (t) => {
    const again = await begin(t);
    /** As another program: a store and an `Ids` of its own. */
    const program = async () => {
      const store = await again();
      t.after(() => store.close());
      return await opener(t, store)();
    };
    const keys = [{ id: 1, secret: SECRET }];
    const first = { ...DAILY, template: 'ORD-{yyyyMMdd}-{id:08}', bits: 24, keyIdBits: 2, keys, context: 'order' };
    const show = async (options) => await (await program()).formatted('order', formats.format(options));
    const text = await (await show(first)).next();
    assert.match(text, /^ORD-\d{8}-\d{8}$/);
    const shape = /its template, restart, or a width is another one\. Use the format/;
    const key = /: the key 1 has another secret or context\. Use the format/;
    for (let turn = 0; turn < 2; turn += 1) {
      for (const [change, words] of [
        [{ template: '{yyyyMMdd}-{id:08}' }, shape],
        [{ restart: 'never' }, shape],
        [{ bits: 26 }, shape],
        [{ geneBits: 2 }, shape],
        [{ keyIdBits: 3 }, shape],
        [{ keys: [{ id: 1, secret: OTHER_SECRET }] }, key],
        [{ context: 'orders' }, key],
      ]) {
        await assert.rejects(show({ ...first, ...change }), (error) => {
          assert.match(error.message, /^the tag "order" is .* `unalike tags format -- 'order'`/);
          return bound(words)(error);
        });
      }
    }
    // Both at once are both told.
    const both = { template: '{yyyyMMdd}-{id:08}', keys: [{ id: 1, secret: OTHER_SECRET }] };
    await assert.rejects(show({ ...first, ...both }), bound(/a width is another one; the key 1 has another secret/));
    await assert.rejects(
      (await program()).formattedOf('order', 'shop', formats.format({ ...first, ...both })),
      bound(/^the tag "order"/),
      'a sub-key is shown as its tag',
    );
    // The zone of the date, a key more and a key less repeat nothing.
    const later = [{ id: 2, secret: OTHER_SECRET }, ...keys];
    for (const change of [{ utcOffsetMinutes: 0 }, { keys: later }, { keys: later.slice(0, 1) }]) {
      assert.notEqual(await (await show({ ...first, ...change })).next(), text);
    }
    // A snowflake has a format of its own.
    const flakes = async (template) =>
      await (await program()).formattedSnowflake('web', 'twitter', formats.format({ template }));
    await (await flakes('W{id}')).next();
    await assert.rejects(flakes('{id}W'), bound(/^the snowflake "web"/));
    await (await flakes('W{id}')).next();
  });

  test(`of formats that come first at once one is shown: ${kind}`, async (t) => {
    const again = await begin(t);
    const all = Array.from({ length: 8 }, async (_, place) => {
      const store = await again();
      t.after(() => store.close());
      const format = formats.format({ template: `${'ABCD'[place % 4]}{id}` });
      return await (await (await opener(t, store)()).formatted('order', format)).next();
    });
    const shown = [];
    for (const { status, value, reason } of await Promise.allSettled(all)) {
      if (status === 'fulfilled') {
        shown.push(value);
      } else {
        assert.ok(bound(/its template, restart, or a width/)(reason));
      }
    }
    assert.equal(new Set(shown.map((text) => text[0])).size, 1, shown.join());
    assert.deepEqual([shown.length, new Set(shown).size], [2, 2]);
  });
}

test('a format is compared before its tag is opened, and bound after it', async (t) => {
  const asked = [];
  const inner = new MemoryStore({ createTags: false });
  const store = new Proxy(inner, {
    get: (of, name) =>
      typeof of[name] !== 'function'
        ? of[name]
        : (...args) => {
            asked.push([name, args[2]]);
            return of[name](...args);
          },
  });
  const ids = await opener(t, store, { requestTimeoutMs: 200 })();
  const format = formats.format({ template: 'A{id}' });
  await assert.rejects(ids.formatted('order', format), (error) => error.storeError.kind === 'tag-unknown');
  const owner = { kind: 'tag', name: 'order' };
  assert.equal(await inner.bindFormat(owner, { kind: 'shape' }, null), null, 'nothing is bound');
  await inner.createTag('order');
  asked.length = 0;
  await ids.formatted('order', format);
  assert.deepEqual(asked, [
    ['bindFormat', null],
    ['openTag', undefined],
    ['bindFormat', format.shape()],
  ]);
  asked.length = 0;
  await ids.formatted('order', format);
  await ids.formatted('order', formats.format({ template: 'A{id}' }));
  assert.deepEqual(asked, [], 'what is known is not asked for');
  const { bindFormat } = inner;
  inner.bindFormat = async () => 5;
  await assert.rejects(ids.formatted('other', format), (error) => error.storeError.kind === 'corrupt');
  inner.bindFormat = () => new Promise(() => undefined);
  const late = is('timeout', /^the format of "other" was/);
  await assert.rejects(ids.formatted('other', format, {}, { waitMaxMs: 20 }), late);
  const signal = AbortSignal.timeout(20);
  await assert.rejects(ids.formatted('other', format, {}, { signal }), is('aborted'));
  inner.bindFormat = bindFormat;
});

test('a key for a few bits hides nothing', async (t) => {
  const store = new MemoryStore();
  const ids = await opener(t, store)();
  const of = (bits) =>
    formats.format({ template: '{id}', bits, geneBits: 2, keyIdBits: 2, keys: [{ id: 1, secret: SECRET }] });
  const refused = is('format', /^a key for 19 bits hides nothing, and 20 at least must be left: bits without/);
  await assert.rejects(ids.formatted('order', of(23)), refused);
  await assert.rejects(ids.formattedSnowflake('web', 'twitter', of(23)), refused);
  assert.equal(await store.bindFormat({ kind: 'tag', name: 'order' }, { kind: 'shape' }, null), null);
  assert.ok(await (await ids.formatted('order', of(24))).next(0n));
});

test('a name that is too long with its period binds nothing', async (t) => {
  const store = new MemoryStore();
  const ids = await opener(t, store)();
  const long = 'x'.repeat(120);
  await assert.rejects(ids.formatted(long, formats.format(DAILY)), is('name-invalid'));
  await assert.rejects(ids.formattedOf('order', long.slice(8), formats.format(DAILY)), is('name-invalid'));
  for (const name of [long, 'order']) {
    assert.equal(await store.bindFormat({ kind: 'tag', name }, { kind: 'shape' }, null), null);
  }
});

test('a store that keeps no formats compares none', async (t) => {
  class Ours {
    inner = new MemoryStore();
    allocate = (...args) => this.inner.allocate(...args);
    release = (...args) => this.inner.release(...args);
    openTag = (...args) => this.inner.openTag(...args);
    identity = async () => '1'.repeat(32);
    close = async () => undefined;
  }
  const store = new Ours();
  for (const template of ['A{id}', '{id}A']) {
    const ids = await opener(t, store, { leases: undefined })();
    assert.equal((await (await ids.formatted('order', formats.format({ template }))).next()).length, 2);
    await ids.close();
  }
  const folder = await folderOf(t);
  const redis = await RedisProcess.start(t, folder);
  const above = await RedisStore.open({ url: redis.url, backing: store, leasesIn: 'redis' });
  t.after(() => above.close());
  const owner = { kind: 'tag', name: 'order' };
  assert.equal(await above.bindFormat(owner, { kind: 'shape' }, 5n), null);
});

test('a server is told the shape with each request for numbers of the tag, and of no other', async (t) => {
  const name = '0'.repeat(32);
  const step = { policy: 'fixed', step: '10' };
  const refill = { policy: 'remaining', count: '0' };
  const bindings = new Map();
  const heard = [];
  let isOld = false;
  let refusesBare;
  let meanwhile = () => undefined;
  const server = http.createServer((request, response) => {
    const url = new URL(request.url, 'http://server');
    const [, , kind, of, ...what] = url.pathname.split('/');
    const query = Object.fromEntries(url.searchParams);
    heard.push([decodeURIComponent(of ?? kind), what.join('/'), query]);
    let answer = { store: name };
    let status = 200;
    if (what[0] === 'format' && isOld) {
      status = 404;
      answer = { type: 'urn:unalike:problem:route-unknown', detail: 'there is no such route' };
    } else if (what[0] === 'format') {
      const key = `${kind} ${of} ${query.part} ${query.key_id} ${query.key_bits}`;
      if (query.first !== undefined && !bindings.has(key)) {
        bindings.set(key, query.first);
      }
      answer.bound = bindings.get(key) ?? null;
    } else if (of === refusesBare && query.shape !== meanwhile()) {
      status = 409;
      answer = { type: 'urn:unalike:problem:format-bound', detail: 'the store has it in another format' };
    } else if (what[0] === 'open') {
      const { sub } = query;
      answer.tag = { tag: of, sub, start: '1', mode: 'buffered', step, refill, watermark: '0', version: '0' };
    } else if (what[1] === 'release') {
      answer.released = true;
    } else if (what[0] === 'segments') {
      const segment = { start: '1', end: '11', stride: '1', generation: '0', version: '1' };
      answer = { ...answer, tag: of, sub: query.sub, segment };
    }
    response.writeHead(status, { 'x-request-id': request.headers['x-request-id'] });
    response.end(JSON.stringify(answer));
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => server.close());
  const remote = () => RemoteStore.open(`http://127.0.0.1:${server.address().port}`);
  const shapesOf = (tag) =>
    heard.filter(([of, what]) => of === tag && what !== 'format').map(([, what, { shape }]) => [what, shape]);

  const options = { ...DAILY, keyIdBits: 1, keys: [{ id: 1, secret: SECRET }], context: 'order', bits: 23 };
  const format = formats.format({ ...options, template: 'ORD-{yyyyMMdd}-{id:07}' });
  const [{ check }] = format.keyChecks();
  const shape = String(format.shape());
  for (const round of ['first', 'again']) {
    heard.length = 0;
    const store = await remote();
    const ids = await Ids.open({ segments: store, now: () => NOON_MS });
    await (await ids.formatted('order', format)).next();
    await (await ids.sequence('bare')).next();
    await ids.close();
    await store.close();
    // What a server knows to be shown so is told from the first request on.
    const opened = round === 'first' ? undefined : shape;
    assert.deepEqual(shapesOf('order'), [['open', opened], ['segments', shape], ['segments/release', shape]], round);
    assert.ok(shapesOf('bare').every(([, told]) => told === undefined));
    const asked = heard.filter(([, what]) => what === 'format').map(([, , query]) => query);
    const looks = [{ part: 'shape' }, { part: 'key', key_id: '1', key_bits: '22' }];
    const binds = [{ ...looks[0], first: shape }, { ...looks[1], first: String(check) }];
    assert.deepEqual(asked, round === 'first' ? [...looks, ...binds] : looks);
  }
  // Somebody else binds a format between the look and the opening.
  for (const [theirs, words] of [
    [format.shape(), undefined],
    [1n << 62n, /^the tag "race" is bound to another format/],
  ]) {
    bindings.clear();
    refusesBare = 'race';
    meanwhile = () => {
      bindings.set('sequences race shape undefined undefined', String(theirs));
      return String(theirs);
    };
    const store = await remote();
    const ids = await Ids.open({ segments: store, now: () => NOON_MS });
    const showing = ids.formatted('race', format).then((shown) => shown.next());
    await (words === undefined ? showing : assert.rejects(showing, bound(words)));
    await ids.close();
    await store.close();
  }
  bindings.set('sequences order shape undefined undefined', shape);
  // Whoever is refused does not come to the numbers by saying what is bound.
  heard.length = 0;
  const store = await remote();
  t.after(() => store.close());
  const ids = await opener(t, store, { leases: undefined })();
  await assert.rejects(ids.formatted('order', formats.format({ template: '{id}' })), bound(/^the tag "order"/));
  await (await ids.sequence('order')).next();
  assert.ok(shapesOf('order').every(([, told]) => told === undefined));
  isOld = true;
  await assert.rejects(ids.formatted('late', format), (error) => {
    assert.equal(error.storeError.kind, 'refused');
    return is('store', /update the servers before/)(error);
  });
});

test("a server and the programs behind it show a tag in the format of the server's configuration", async (t) => {
  const folder = await folderOf(t);
  const configuration = join(folder, 'unalike.toml');
  const shown = [`template = "${DAILY.template}"`, 'bits = 19', 'restart = "day"', 'utc_offset = "+08:00"'];
  await writeFile(configuration, ['[tags.order]', ...shown].join('\n'));
  const store = `sqlite://${join(folder, 'ids.sqlite')}`;
  const server = await Server.start(t, store, { more: ['--config', configuration] });
  const program = async () => {
    const remote = await RemoteStore.open(server.url);
    t.after(() => remote.close());
    return await opener(t, remote)();
  };
  const seen = new Set();
  for (let turn = 0; turn < 2; turn += 1) {
    const other = formats.format({ ...DAILY, template: '{yyyyMMdd}-{id:06}' });
    await assert.rejects((await program()).formatted('order', other), bound(/^the tag "order"/));
    await assert.rejects((await program()).sequence('order'), is('store'));
    const texts = (await (await (await program()).formatted('order', formats.format(DAILY))).take(3)).toArray();
    const answer = await (await fetch(`${server.url}/v1/sequences/order/ids?count=3`)).text();
    for (const text of [...texts, ...answer.match(/ORD-\d{8}-\d{6}/g)]) {
      assert.ok(!seen.has(text), `${text} came twice`);
      seen.add(text);
    }
  }
  assert.equal(seen.size, 12);
});

const SHARED = {
  'one SQLite file': async (t) => {
    const path = join(await folderOf(t), 'ids.sqlite');
    return { args: ['--store', `sqlite://${path}`], open: () => SqliteStore.open(path) };
  },
  'one database': async () => {
    const url = await freshDatabase();
    return { args: ['--store', url], open: () => MysqlStore.open(url) };
  },
  'one Redis': async (t) => {
    const folder = await folderOf(t);
    const redis = `${(await RedisProcess.start(t, folder)).url}?raise-min=100`;
    const path = join(folder, 'ids.sqlite');
    const open = async () => RedisStore.open({ url: redis, backing: await SqliteStore.open(path) });
    return { args: ['--store', redis, '--backing', `sqlite://${path}`], open };
  },
};

for (const [what, begin] of Object.entries(SHARED)) {
  test(`Node and the command show one format, and the same periods, in ${what}`, async (t) => {
    const { args, open } = await begin(t);
    const folder = await folderOf(t);
    const command = async (tag, template, { secret = SECRET, restart = 'year' } = {}) => {
      const path = join(folder, 'unalike.toml');
      const lines = [`[tags.${JSON.stringify(tag)}]`, `template = ${JSON.stringify(template)}`];
      const keyed = ['bits = 23', 'key_id_bits = 1', 'keys = [1]', '[keys.1]', 'secret_env = "ID_KEY"'];
      await writeFile(path, [...lines, `restart = "${restart}"`, ...keyed].join('\n'));
      const env = { ...process.env, ID_KEY: secret };
      const { stdout, stderr } = await promisify(execFile)(
        needed('UNALIKE_BIN'),
        ['next', tag, '-n', '2', '--config', path, ...args],
        { env },
      ).catch((error) => error);
      return stdout.trim() === '' ? stderr : stdout.trim().split('\n');
    };
    const formatOf = (tag, template, { secret = SECRET, restart = 'year' } = {}) =>
      formats.format({ template, restart, bits: 23, keyIdBits: 1, keys: [{ id: 1, secret }], context: tag });
    const node = async (tag, template, more) => {
      const store = await open();
      const ids = await Ids.open({ segments: store, waitMaxMs: 20_000 });
      try {
        return (await (await ids.formatted(tag, formatOf(tag, template, more))).take(2)).toArray();
      } catch (error) {
        return error.message;
      } finally {
        await ids.close();
        await store.close();
      }
    };
    // The second name is too long for its kept row as it is.
    for (const [at, tag] of ['order', 'bill', `${BOM}${'x'.repeat(112)}`].entries()) {
      const template = 'ORD-{yyyy}-{id:07}';
      const other = '{yyyy}-{id:07}';
      const hosts = at % 2 === 0 ? [node, command] : [command, node];
      const texts = [];
      for (const host of [...hosts, ...hosts]) {
        const shown = await host(tag, template);
        assert.ok(Array.isArray(shown), String(shown));
        texts.push(...shown);
        assert.match(String(await host(tag, other)), /is bound to another format in the store/);
        assert.match(String(await host(tag, template, { secret: OTHER_SECRET })), /the key 1 has another secret/);
        assert.match(String(await host(tag, template, { restart: 'never' })), /is bound to another format/);
      }
      assert.equal(new Set(texts).size, 8, texts.join());
      // One row has counted them: their ids are the first of the year, with no gap but what a host held.
      const read = texts.map((text) => formatOf(tag, template).read(text).id);
      assert.deepEqual(read.slice(0, 2), [1n, 2n]);
      assert.equal(new Set(read).size, 8, read.join());
      const { stdout } = await promisify(execFile)(needed('UNALIKE_BIN'), ['tags', 'list', ...args]);
      const periods = stdout.match(/@\S+/g);
      assert.deepEqual(periods, new Array(at + 1).fill(`@${new Date().getUTCFullYear()}`), 'one row for each tag');
    }
  });
}
