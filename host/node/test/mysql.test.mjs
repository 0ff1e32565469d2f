// The store in MySQL and MariaDB as Node has it, on real servers. What the Rust host decides has its tests there.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, test } from 'node:test';

import { MysqlStore } from '../dist/mysql.js';
import { ID_MAX, StoreError } from '../dist/store.js';
import { folderOf } from './fixtures.mjs';
import { eventually, freshDatabase, MariaDb, query } from './mariadb.mjs';

// Every new store warns that it is one.
process.removeAllListeners('warning').on('warning', () => undefined);

/** The stores of one test: a server has no end of connections for those of all. */
const opened = [];
afterEach(async () => {
  await Promise.all(opened.splice(0).map((store) => store.close()));
});

async function open(url, options = {}) {
  const store = await MysqlStore.open({ url, ...options });
  opened.push(store);
  return store;
}

/** The error of what must fail, which must be of this kind. */
async function failure(promise, kind, text = /./) {
  try {
    const value = await promise;
    assert.fail(`it answered ${JSON.stringify(value, (_, it) => (typeof it === 'bigint' ? String(it) : it))}`);
  } catch (error) {
    assert.ok(error instanceof StoreError, error.stack);
    assert.equal(error.kind, kind, error.message);
    assert.match(error.message, text);
    return error;
  }
}

test('numbers beyond what a double holds are exact, up to the last', async () => {
  const store = await open(await freshDatabase());
  const odd = 9_007_199_254_740_993n;
  await store.createTag('odd', { start: odd });
  for (let at = 0n; at < 6n; at += 1n) {
    const segment = await store.allocate('odd', 1n, 0n);
    assert.deepEqual([segment.start, segment.end], [odd + at, odd + at + 1n]);
  }
  assert.equal((await store.allocate('odd', 3n, odd + 1_001n)).start, odd + 1_001n);
  const top = (1n << 63n) - 10n;
  await store.createTag('top', { start: top });
  const first = await store.allocate('top', 3n, 0n);
  assert.deepEqual([first.start, first.end], [top, top + 3n]);
  const tail = { start: top + 1n, version: first.version };
  assert.equal(await store.release('top', tail), true);
  assert.equal(await store.release('top', tail), false, 'a second time');
  assert.equal(await store.release('top', { start: 0n, version: 0n }), false);
  const rest = await store.allocate('top', 1_000n, 0n);
  assert.deepEqual([rest.start, rest.end], [top + 1n, ID_MAX + 1n]);
  await failure(store.allocate('top', 1n, 0n), 'exhausted', /every number up to 9223372036854775807/);
  await failure(store.allocate('top', 1n, ID_MAX + 1n), 'exhausted');
  const all = await store.allocate('all', (1n << 64n) - 1n, 0n);
  assert.deepEqual([all.start, all.end], [1n, ID_MAX + 1n]);
});

test('leases have the limits of the options, and errors their kinds', async () => {
  const store = await open(await freshDatabase(), { maxHorizonMs: 100_000n, maxSkewMs: 5_000n });
  const layout = {
    ...{ timestampBits: 41, datacenterBits: 5, workerBits: 5, sequenceBits: 12, order: 'worker-first' },
    ...{ epochMs: 1_288_834_974_657n, tickMs: 1 },
  };
  const now = () => BigInt(Date.now());
  const acquire = (more) =>
    store.acquire({
      ...{ namespace: 'default', layout, holder: 'host-a', preferredWorker: null, nowMs: now(), horizonMs: 60_000n },
      ...more,
    });
  await failure(acquire({ nowMs: now() - 6_000n }), 'clock-skew', /5000 ms apart is the limit/);
  const lease = await acquire({ preferredWorker: 7 });
  const { worker, grantId, notBeforeMs } = lease;
  assert.ok(worker === 7 && grantId > 0n && grantId < 1n << 128n, `${worker} ${grantId}`);
  assert.ok(lease.validUntilMs > now() && lease.validUntilMs <= now() + 61_000n);
  const extend = (more) =>
    store.extend({ namespace: 'default', layout, worker, grantId, nowMs: now(), horizonMs: 120_000n, ...more });
  const longer = await extend();
  assert.deepEqual({ ...longer, validUntilMs: 0n }, { ...lease, validUntilMs: 0n });
  assert.ok(longer.validUntilMs > lease.validUntilMs);
  assert.ok(longer.validUntilMs <= now() + 101_000n, 'as far as the option allows');
  await failure(extend({ grantId: grantId ^ 1n }), 'lease-lost');
  await failure(extend({ worker: 8 }), 'lease-lost');
  const one = { namespace: 'one', layout: { ...layout, datacenterBits: 0, workerBits: 0 } };
  const words = /bound to the layout 41\/5\+5\/12.*use another namespace/;
  await failure(acquire({ layout: one.layout }), 'layout-mismatch', words);
  await acquire(one);
  await failure(acquire(one), 'workers-exhausted', /all 1 worker ids of "one"/);
  assert.equal(await store.release('default', 7, grantId ^ 1n, notBeforeMs), false);
  assert.equal(await store.release('default', 7, grantId, notBeforeMs), true);
  assert.match(await store.leaseIdentity(), /^[0-9a-f]{32}$/);
  assert.notEqual(await store.leaseIdentity(), await store.identity());
});

test('tags are made by first use, unless the options or the tables of another system say otherwise', async () => {
  const url = await freshDatabase();
  const closed = await open(url, { createTags: false });
  await failure(closed.openTag('order'), 'tag-unknown', /unalike tags create/);
  const store = await open(url);
  assert.equal((await store.openTag('order')).options.start, 1n);
  assert.equal((await closed.allocate('order', 1n, 0n)).start, 1n);
  const few = await open(url, { tagsMax: 2n });
  await few.openTag('second');
  await failure(few.openTag('third'), 'tag-limit', /has 2 tags, its limit/);
  await failure(few.createTag('order'), 'tag-exists');
  await query(
    url,
    'CREATE TABLE leaf_alloc (biz_tag VARCHAR(128) NOT NULL PRIMARY KEY, max_id BIGINT NOT NULL, step INT NOT ' +
      'NULL, description VARCHAR(256), update_time TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE ' +
      'CURRENT_TIMESTAMP) ENGINE = InnoDB',
    "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 2001, 1000)",
  );
  const leaf = await open(`${url}?dialect=leaf`);
  assert.ok((await leaf.allocate('order', 5n, 0n)).start >= 2_001n);
  await failure(leaf.openTag('other'), 'tag-unknown');
});

test('what cannot be used is refused in words, without the password', async () => {
  for (const [options, expected] of [
    ['mysql://root@h/ids?colour=red', /is unknown: there are dialect/],
    ['mysql://root@h/ids?password=s3cret', /belongs before the @/],
    ['mysql://root:s3cret@h/ids?password-env=PATH', /more than one way/],
    ['mysql://root@h/ids?password-env=UNALIKE_NO_SUCH', /has no text/],
    ['mysql://root@h/ids?password-file=/nowhere', /cannot be read/],
    ['mysql://:s3cret@h/ids', /names no user: write mysql:\/\/USER@HOST\/DATABASE$/],
    ['mysql://root:s3cret@h:port/ids', /port/],
    ['mysql://root:s3cret@x@h/y@ids', /percent-encoded/],
    ['postgres://root:s3cret@h/ids', /scheme is "postgres", it must be mysql/],
    ['s3cret', /cannot be read, and must be mysql: write mysql:\/\/USER@HOST\/DATABASE$/],
    [{ url: 'mysql://root:s3cret@h/ids', password: 's3cret' }, /more than one way/],
    [{ url: 'mysql://root@h/ids?password-env=PATH', password: 's3cret' }, /more than one way/],
    [{ url: 'mysql://h/ids', password: 's3cret' }, /names no user/],
    [{ url: 'mysql://root@h/ids', password: 's3cret\ud800' }, /not valid Unicode/],
    [{ url: 'mysql://root@h/ids', tagsMax: 0n }, /tags_max is 0/],
    [{ url: 'mysql://root@h/ids', tagsMax: 1n << 64n }, /tagsMax is 18446744073709551616/],
    [{ url: 'mysql://root@h/ids', maxSkewMs: 3_600_001n }, /lease_skew_max_ms is 3600001/],
  ]) {
    const { message } = await failure(MysqlStore.open(options), 'refused', expected);
    assert.doesNotMatch(message, /s3cret/);
  }
});

test('the password is in the URL, a file or the environment, or given beside', async (t) => {
  const url = new URL(await freshDatabase());
  const user = `u${randomBytes(4).toString('hex')}`;
  const password = "p@ss/wörd ?#'\\";
  const by = "'p@ss/wörd ?#\\'\\\\'";
  await query(url.href, `CREATE USER '${user}' IDENTIFIED BY ${by}`, `GRANT ALL ON *.* TO '${user}'`);
  url.username = user;
  url.password = '';
  await failure(MysqlStore.open(url.href), 'refused', /denied access/);
  const file = join(await folderOf(t), 'password');
  await writeFile(file, `${password}\n`);
  process.env.UNALIKE_TEST_PASSWORD = password;
  await open(`${url.href}?password-file=${encodeURIComponent(file)}`);
  await open(`${url.href}?password-env=UNALIKE_TEST_PASSWORD`);
  await open(url.href, { password });
  url.password = encodeURIComponent(password);
  await open(url.href);
  await open(url.href.replace('mysql:', 'MariaDB:'));
});

test('grants through a server that is killed come once', async (t) => {
  const server = await MariaDb.start();
  t.after(() => server.end());
  const stores = [await open(server.url()), await open(server.url())];
  await stores[0].openTag('order');
  const segments = [];
  const kinds = new Set();
  let isOver = false;
  const clients = stores.flatMap((store) =>
    [1, 2, 3, 4].map(async () => {
      while (!isOver) {
        try {
          segments.push(await store.allocate('order', 7n, 0n));
        } catch (error) {
          assert.ok(['unavailable', 'outcome-unknown'].includes(error.kind) && error.isRetryable, error.stack);
          kinds.add(error.kind);
          // A server that is down answers at once: leave it the processor.
          await new Promise((resolve) => setTimeout(resolve, 10));
        }
      }
    }),
  );
  const goOn = async () => {
    const goal = segments.length + 40;
    await eventually('grants go on', () => segments.length >= goal);
  };
  await goOn();
  await server.kill();
  await server.restart();
  await goOn();
  isOver = true;
  await Promise.all(clients);
  segments.sort((one, other) => (one.start < other.start ? -1 : 1));
  for (const [at, segment] of segments.entries()) {
    assert.ok(segment.start < segment.end);
    assert.ok(at === 0 || segments[at - 1].end <= segment.start, 'two grants overlap');
  }
  assert.ok(kinds.size > 0);
});
