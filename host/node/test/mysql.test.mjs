import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, test } from 'node:test';
import { promisify } from 'node:util';

import { MysqlStore } from '../dist/mysql.js';
import { ID_MAX, StoreError, SUB_SEPARATOR } from '../dist/store.js';
import { certificates, folderOf, stopped } from './fixtures.mjs';
import { dump, eventually, freshDatabase, load, lock, MariaDb, Proxy, query, required, setClock } from './mariadb.mjs';

const run = promisify(execFile);

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

/** Ends with the test. */
function own(t, resource) {
  t.after(() => resource.end());
  return resource;
}

async function freshStore(options) {
  return open(await freshDatabase(), options);
}

/** The error of what must fail, which must be of this kind. */
async function failure(promise, ...kinds) {
  try {
    const value = await promise;
    assert.fail(`it answered ${JSON.stringify(value, (_, it) => (typeof it === 'bigint' ? String(it) : it))}`);
  } catch (error) {
    assert.ok(error instanceof StoreError, error.stack);
    assert.ok(kinds.includes(error.kind), `${error.kind}: ${error.message}`);
    return error;
  }
}

/** No two of these overlap. */
function assertDisjoint(segments) {
  const sorted = [...segments].sort((one, other) => (one.start < other.start ? -1 : 1));
  for (const [at, segment] of sorted.entries()) {
    assert.ok(segment.start < segment.end);
    assert.ok(at === 0 || sorted[at - 1].end <= segment.start, 'two grants overlap');
  }
}

/** An `unalike` server on this store, and its address. */
async function serve(url) {
  const directory = await mkdtemp(join(tmpdir(), 'unalike-'));
  const configuration = join(directory, 'unalike.toml');
  await writeFile(configuration, '[snowflakes.four]\nlayout = "41/2/12 epoch 1288834974657 tick 1 ms"\n');
  const options = ['--config', configuration, '--store', url, '--listen', '127.0.0.1:0'];
  const server = spawn(required('UNALIKE_BIN'), options, { stdio: ['ignore', 'pipe', 'ignore'] });
  server.once('exit', () => rm(directory, { recursive: true, force: true }));
  const killAtExit = () => server.kill('SIGKILL');
  process.once('exit', killAtExit);
  server.once('exit', () => process.off('exit', killAtExit));
  let said = '';
  for await (const piece of server.stdout) {
    said += piece;
    const address = /listening on (http:\S+)/.exec(said)?.[1];
    if (address !== undefined) {
      return { address, process: server };
    }
  }
  throw new Error(`the server ended: ${said}`);
}

/** Numbers that the `unalike` command takes. */
async function command(url, tag, count) {
  const { stdout } = await run(required('UNALIKE_BIN'), ['next', tag, '-n', String(count), '--store', url]);
  const numbers = stdout.trim().split('\n').map(BigInt);
  assert.equal(numbers.length, count);
  return numbers;
}

describe('segments in MySQL', () => {
  test('many clients are granted disjoint numbers, each at or above its floor', async () => {
    const url = await freshDatabase();
    const stores = await Promise.all([1, 2, 3].map(() => open(url)));
    const segments = [];
    const client = async (store, number) => {
      let last = 0n;
      for (let round = 0; round < 25; round += 1) {
        const floor = round % 3 === 0 ? last + BigInt(number * 7) : 0n;
        const count = BigInt(1 + ((round * 31 + number) % 50));
        const segment = await store.allocate('order', count, floor);
        assert.ok(segment.start >= floor && segment.start > last, 'starts ascend');
        assert.equal(segment.end - segment.start, count);
        last = segment.start;
        segments.push(segment);
      }
    };
    await Promise.all(stores.flatMap((store, at) => [1, 2, 3, 4, 5, 6].map((it) => client(store, at * 6 + it))));
    assert.equal(segments.length, 450);
    assertDisjoint(segments);
  });

  test('a tail is taken back once, and only while its version stands', async () => {
    const store = await freshStore();
    const first = await store.allocate('order', 100n, 0n);
    const tail = { start: first.start + 40n, version: first.version };
    assert.equal(await store.release('order', tail), true);
    assert.equal(await store.release('order', tail), false, 'a second time');
    const second = await store.allocate('order', 10n, 0n);
    assert.equal(second.start, tail.start);
    assert.equal(await store.release('order', tail), false, 'a late one');
    const third = await store.allocate('order', 10n, second.end);
    assert.equal(await store.release('order', { start: second.start, version: second.version }), false);
    // Who goes on from right behind its own grant holds one tail.
    assert.equal(await store.release('order', { start: second.start, version: third.version }), true);
    assert.equal((await store.allocate('order', 1n, 0n)).start, second.start);
    assert.equal(await store.release('unknown', tail), false);
    assert.equal(await store.release('order', { start: 0n, version: 0n }), false);
  });

  test('numbers beyond what a double holds are exact, up to the last', async () => {
    const store = await freshStore();
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
    assert.equal(await store.release('top', { start: top + 1n, version: first.version }), true);
    const rest = await store.allocate('top', 1_000n, 0n);
    assert.deepEqual([rest.start, rest.end], [top + 1n, ID_MAX + 1n]);
    const { message } = await failure(store.allocate('top', 1n, 0n), 'exhausted');
    assert.match(message, /every number up to 9223372036854775807/);
    await failure(store.allocate('top', 1n, ID_MAX + 1n), 'exhausted');
    const all = await store.allocate('all', (1n << 64n) - 1n, 0n);
    assert.deepEqual([all.start, all.end], [1n, ID_MAX + 1n]);
  });

  test('first use creates tags, unless it may not, and up to the limit', async () => {
    const url = await freshDatabase();
    const [open1, closed, few] = [
      await open(url),
      await open(url, { createTags: false }),
      await open(url, { tagsMax: 2n }),
    ];
    assert.match((await failure(closed.allocate('order', 1n, 0n), 'tag-unknown')).message, /unalike tags create/);
    await failure(closed.openTag('order'), 'tag-unknown');
    assert.equal((await open1.openTag('order')).options.start, 1n);
    assert.equal((await closed.allocate('order', 1n, 0n)).start, 1n);
    // Sub-keys are always created, and do not count.
    assert.equal((await closed.allocate(`order${SUB_SEPARATOR}shop`, 1n, 0n)).start, 1n);
    await few.openTag('second');
    assert.match((await failure(few.openTag('third'), 'tag-limit')).message, /has 2 tags, its limit/);
    await few.allocate(`second${SUB_SEPARATOR}a`, 1n, 0n);
    await failure(few.createTag('third'), 'tag-limit');
    await failure(few.createTag('order'), 'tag-exists');
    await failure(closed.allocate(`third${SUB_SEPARATOR}a`, 1n, 0n), 'tag-unknown');
    const tags = await query(url, 'SELECT tags FROM unalike_store');
    assert.equal(Number(tags[0].tags), 2);
  });

  test('a sub-key has the options of its tag, and ends with it', async () => {
    const url = await freshDatabase();
    const store = await open(url);
    const options = {
      start: 500n,
      mode: 'ordered',
      step: { kind: 'fixed', step: 7n },
      refill: { kind: 'remaining', numbers: (1n << 64n) - 1n },
    };
    assert.deepEqual((await store.createTag('order', options)).options, options);
    assert.deepEqual((await (await open(url)).openTag('order')).options, options);
    assert.deepEqual((await store.openTag(`order${SUB_SEPARATOR}a`)).options, options);
    assert.equal((await store.allocate(`order${SUB_SEPARATOR}a`, 5n, 0n)).start, 500n);
    await query(
      url,
      'UPDATE unalike_tag SET settled = 9223372036854775807, watermark = 9223372036854775807, ' +
        "stripe_version = version + 1, version = version + 1 WHERE tag = 'order'",
    );
    await failure(store.allocate('order', 1n, 0n), 'exhausted');
    await failure(store.allocate(`order${SUB_SEPARATOR}b`, 1n, 0n), 'exhausted');
    assert.equal((await store.allocate(`order${SUB_SEPARATOR}a`, 5n, 0n)).start, 505n, 'one that was there goes on');
  });

  test('new names begin above the floor, and what is kept does not', async () => {
    const url = await freshDatabase();
    const store = await open(url);
    await query(
      url,
      'INSERT INTO unalike_tag (tag, start, mode, step_policy, step, refill_policy, refill, settled, watermark) ' +
        'VALUES ' +
        "(CONCAT('unalike-new-names', CHAR(31), 'floor'), 1, 'buffered', 'fixed', 1, 'remaining', 1, 1000, 1000)",
    );
    assert.equal((await store.allocate('order', 1n, 0n)).start, 1_001n);
    assert.equal((await store.allocate(`redis-leases${SUB_SEPARATOR}x`, 1n, 0n)).start, 1n);
    await failure(store.createTag('redis-leases'), 'tag-invalid');
    for (const name of ['', 'a\u0000', 'x'.repeat(129), ' order']) {
      await failure(store.openTag(name), 'tag-invalid');
    }
    const name = `naïve '"\\ %_?${'\u{1f600}'}`;
    assert.equal((await store.openTag(name)).tag, name);
    assert.equal((await store.openTag('ORDER')).tag, 'ORDER');
    await failure(store.allocate('order', 0n, 0n), 'refused');
  });

  test('one tag that many create at once is created once', async () => {
    const url = await freshDatabase();
    const stores = await Promise.all([1, 2, 3, 4].map(() => open(url)));
    const segments = await Promise.all(
      stores.flatMap((store) => [1, 2, 3].map(() => store.allocate('order', 10n, 0n))),
    );
    assertDisjoint(segments);
    assert.equal(Number((await query(url, 'SELECT tags FROM unalike_store'))[0].tags), 1);
    const names = await Promise.all(stores.map((store) => store.identity()));
    assert.match(names[0], /^[0-9a-f]{32}$/);
    assert.equal(new Set(names).size, 1);
  });

  test('it makes the tables that the unalike command makes, and goes on in them', async () => {
    const [ours, theirs] = [await freshDatabase(), await freshDatabase()];
    await (await open(ours)).identity();
    await command(theirs, 'order', 5);
    for (const table of ['unalike_store', 'unalike_tag']) {
      const [made] = await query(ours, `SHOW CREATE TABLE ${table}`);
      const [expected] = await query(theirs, `SHOW CREATE TABLE ${table}`);
      assert.deepEqual(made, expected);
    }
    const record = (url) => query(url, 'SELECT server, schema_version FROM unalike_store');
    const form = /^mark [0-9a-f]{32} server_id \d+ gtid_domain_id \d+ gtid_slave_pos none era [0-9a-f]{32} 0$/;
    for (const url of [ours, theirs]) {
      const [{ server, schema_version }] = await record(url);
      assert.match(server, form);
      assert.equal(Number(schema_version), 2);
    }
    const before = await record(theirs);
    const store = await open(theirs);
    const segment = await store.allocate('order', 5n, 0n);
    assert.ok(segment.start > 5n);
    assert.deepEqual(await record(theirs), before);
    const numbers = await command(ours, 'order', 5);
    assert.equal(numbers[0], 1n);
  });

  test('with the unalike command at once, nothing comes twice', async () => {
    const url = await freshDatabase();
    const store = await open(url);
    const seen = new Set();
    let isDone = false;
    const ours = (async () => {
      while (!isDone) {
        const { start, end } = await store.allocate('order', 3n, 0n);
        for (let number = start; number < end; number += 1n) {
          assert.ok(!seen.has(number), `${number} came twice`);
          seen.add(number);
        }
      }
    })();
    const theirs = [];
    for (let round = 0; round < 3; round += 1) {
      theirs.push(...(await Promise.all([command(url, 'order', 20), command(url, 'order', 20)])).flat());
    }
    isDone = true;
    await ours;
    assert.equal(new Set(theirs).size, 120);
    assert.ok(theirs.every((number) => !seen.has(number)));
    assert.ok(seen.size > 0);
  });

  test('a stripe of a set is refused', async () => {
    const url = await freshDatabase();
    const store = await open(url);
    await store.allocate('order', 1n, 0n);
    await query(
      url,
      "UPDATE unalike_store SET stripe_set = X'000102030405060708090a0b0c0d0e0f', stripe_index = 1, stripe_count = " +
        '3, ' +
        'stripe_tags = tags',
      "UPDATE unalike_tag SET stripe_set = X'000102030405060708090a0b0c0d0e0f', stripe_version = version",
    );
    const attempts = [() => store.allocate('order', 1n, 0n), () => store.createTag('other')];
    for (const attempt of attempts) {
      const { message } = await failure(attempt(), 'refused');
      assert.match(message, /is stripe 1 of 3 in the set 000102030405060708090a0b0c0d0e0f: use it together with all/);
    }
  });

  test('the tables of another system are served in place, beside the unalike command', async () => {
    const url = await freshDatabase();
    await query(
      url,
      'CREATE TABLE leaf_alloc (biz_tag VARCHAR(128) NOT NULL PRIMARY KEY, max_id BIGINT NOT NULL, step INT NOT ' +
        'NULL, description VARCHAR(256), update_time TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE ' +
        'CURRENT_TIMESTAMP) ENGINE = InnoDB',
      "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 2001, 1000)",
    );
    const store = await open(`${url}?dialect=leaf`);
    const [theirs, ours] = [await command(`${url}?dialect=leaf`, 'order', 5), await store.allocate('order', 5n, 0n)];
    assert.ok(theirs[0] >= 2001n && ours.start > theirs.at(-1), `${theirs} ${ours.start}`);
    await failure(store.openTag('other'), 'tag-unknown');
  });

  test('a row that another server wrote is refused', async () => {
    const url = await freshDatabase();
    const store = await open(url);
    await store.allocate('order', 1n, 0n);
    await query(
      url,
      "UPDATE unalike_tag SET stripe_set = X'ff000000000000000000000000000000', stripe_version = version",
    );
    assert.match(
      (await failure(store.allocate('order', 1n, 0n), 'refused')).message,
      /unalike store adopt --lift COUNT/,
    );
  });
});

describe('a dump that is loaded again', () => {
  const copy = /not those that were used before: they were loaded from a dump.*unalike store restored --lift COUNT/;

  test('is refused until an operator says that the store was restored', async () => {
    const url = await freshDatabase();
    const store = await open(url);
    const granted = [await store.allocate('order', 10n, 0n)];
    const dumped = await dump(url);
    granted.push(await store.allocate('order', 10n, 0n));
    const late = [await store.allocate('late', 10n, 0n)];
    await store.close();
    await load(url, dumped);
    for (let tries = 0; tries < 4; tries += 1) {
      assert.match((await failure(MysqlStore.open(url), 'refused')).message, copy);
    }
    await run(required('UNALIKE_BIN'), ['store', 'restored', '--lift', '1000', '--store', url]);
    const restored = await open(url);
    granted.push(await restored.allocate('order', 10n, 0n));
    assertDisjoint(granted);
    late.push(await restored.allocate('late', 10n, 0n));
    assertDisjoint(late);
  });

  test('under a program that runs is noticed', async () => {
    const url = await freshDatabase();
    const store = await open(url);
    await store.allocate('order', 10n, 0n);
    await load(url, await dump(url));
    // It looks once a second.
    await new Promise((resolve) => setTimeout(resolve, 1_100));
    for (let tries = 0; tries < 3; tries += 1) {
      assert.match((await failure(store.allocate('order', 10n, 0n), 'refused')).message, copy);
    }
  });
});

describe('what grants rest on', () => {
  const broken = [
    ['a plain index', 'ALTER TABLE unalike_tag DROP PRIMARY KEY, ADD INDEX (tag)', /no unique key over exactly tag/],
    ['a key over a prefix', 'ALTER TABLE unalike_tag DROP PRIMARY KEY, ADD UNIQUE (tag(20))', /no unique key/],
    ['another engine', 'ALTER TABLE unalike_tag ENGINE = Aria', /is kept in Aria/i],
    ['a narrow column', 'ALTER TABLE unalike_tag MODIFY version INT UNSIGNED NOT NULL', /version int\(10\) unsigned/],
    ['names of text', 'ALTER TABLE unalike_tag MODIFY tag VARCHAR(128) NOT NULL', /compared byte by byte/],
    [
      'a trigger',
      'CREATE TRIGGER moves BEFORE UPDATE ON unalike_tag FOR EACH ROW SET NEW.watermark = OLD.watermark',
      /the trigger moves, which runs before/,
    ],
    ['no column', 'ALTER TABLE unalike_store DROP CONSTRAINT unalike_store_stripe, DROP COLUMN tags', /no column tags/],
  ];
  for (const [name, statement, expected] of broken) {
    test(`is refused with ${name}`, async () => {
      const url = await freshDatabase();
      await open(url);
      await query(url, statement);
      assert.match((await failure(MysqlStore.open(url), 'refused')).message, expected);
    });
  }

  test('is refused with a view in the place of the table', async () => {
    const url = await freshDatabase();
    await open(url);
    await query(url, 'RENAME TABLE unalike_tag TO tags', 'CREATE VIEW unalike_tag AS SELECT * FROM tags');
    assert.match((await failure(MysqlStore.open(url), 'refused')).message, /is a view/);
  });

  test('is refused without the table of tags, once there were some', async () => {
    const url = await freshDatabase();
    await (await open(url)).close();
    // A first start that was interrupted goes on.
    await query(url, 'DROP TABLE unalike_tag');
    const store = await open(url);
    await store.allocate('order', 3n, 0n);
    await store.close();
    await query(url, 'RENAME TABLE unalike_tag TO kept');
    for (const at of [url, url, `${url}?create=false`]) {
      const { message } = await failure(MysqlStore.open(at), 'refused');
      assert.match(message, /unalike_tag is missing.*has begun: restore it from a backup.*unalike store restored/);
    }
    await query(url, 'RENAME TABLE kept TO unalike_tag');
    assert.equal((await (await open(url)).allocate('order', 1n, 0n)).start, 4n);
  });

  test('nothing is created where that is not allowed', async () => {
    const url = await freshDatabase();
    const { message } = await failure(MysqlStore.open(`${url}?create=false`), 'refused');
    assert.match(message, /unalike_store is missing.*create=false.*unalike schema/);
    assert.equal((await query(url, 'SHOW TABLES')).length, 0);
    await open(url);
    assert.equal((await (await open(`${url}?create=false`)).allocate('order', 1n, 0n)).start, 1n);
  });

  test('tables of a later version are refused', async () => {
    const url = await freshDatabase();
    await open(url);
    await query(url, 'UPDATE unalike_store SET schema_version = 3');
    assert.match(
      (await failure(MysqlStore.open(url), 'refused')).message,
      /version 3.*serves 1 to 2: upgrade this program/,
    );
  });

  test('tables of version 1, without stripes, are served', async () => {
    const url = await freshDatabase();
    await open(url);
    await query(
      url,
      'ALTER TABLE unalike_store DROP CONSTRAINT unalike_store_stripe, DROP COLUMN stripe_set, DROP COLUMN ' +
        'stripe_index, DROP COLUMN stripe_count, DROP COLUMN stripe_tags',
      'ALTER TABLE unalike_tag DROP CONSTRAINT unalike_tag_stripe, DROP COLUMN stripe_set, DROP COLUMN stripe_version',
      'UPDATE unalike_store SET schema_version = 1',
    );
    const store = await open(url);
    const segment = await store.allocate('order', 10n, 0n);
    assert.equal(await store.release('order', { start: 5n, version: segment.version }), true);
    assert.equal((await store.allocate('order', 1n, 0n)).start, 5n);
    assert.deepEqual((await command(url, 'order', 1)).length, 1);
  });
});

describe('the URL', () => {
  const refusals = [
    ['mysql://root@h/ids?dialect=other', /dialect is "other"/],
    ['mysql://root@h/ids?colour=red', /is unknown: there are dialect/],
    ['mysql://root@h/ids?connections=0', /whole number from 1 to 10000/],
    ['mysql://root@h/ids?request-timeout-ms=600001', /from 1 to 600000/],
    ['mysql://root@h/ids?durability=yes', /checked or assumed/],
    ['mysql://root@h/ids?ssl-mode=on', /disabled, preferred/],
    ['mysql://root@h/ids?create=maybe', /true or false/],
    ['mysql://root@h/ids?password=s3cret', /belongs before the @/],
    ['mysql://root:s3cret@h/ids?password-env=PATH', /more than one way/],
    ['mysql://root@h/ids?password-env=UNALIKE_NO_SUCH', /has no text/],
    ['mysql://root@h/ids?password-file=/nowhere', /cannot be read/],
    ['mysql://root@h', /names no database/],
    ['mysql://h/ids', /the store's URL names no user: write mysql:\/\/USER@HOST\/DATABASE$/],
    ['mysql://:s3cret@h/ids', /names no user/],
    ['mysql://root:s3cret@h:port/ids', /port/],
    ['postgres://root:s3cret@h/ids', /scheme is "postgres", it must be mysql/],
    ['mysql://root:s3cret@x@h/y@ids', /percent-encoded/],
    ['s3cret', /cannot be read, and must be mysql: write mysql:\/\/USER@HOST\/DATABASE$/],
    [{ url: 'mysql://root:s3cret@h/ids', password: 's3cret' }, /more than one way/],
    [{ url: 'mysql://root@h/ids?password-env=PATH', password: 's3cret' }, /more than one way/],
    [{ url: 'mysql://h/ids', password: 's3cret' }, /names no user/],
    [{ url: 'mysql://root@h/ids', password: 's3cret\ud800' }, /not valid Unicode/],
    [{ url: 'mysql://root@h/ids', tagsMax: 0n }, /tags_max is 0/],
    [{ url: 'mysql://root@h/ids', tagsMax: 1n << 64n }, /tagsMax is 18446744073709551616/],
    [{ url: 'mysql://root@h/ids', maxSkewMs: 3_600_001n }, /lease_skew_max_ms is 3600001/],
  ];
  test('is refused in words, without the password', async () => {
    for (const [url, expected] of refusals) {
      const { message } = await failure(MysqlStore.open(url), 'refused');
      assert.match(message, expected);
      assert.doesNotMatch(message, /s3cret/);
    }
  });

  test('says where the password is', async () => {
    const url = new URL(await freshDatabase());
    const user = `u${randomBytes(4).toString('hex')}`;
    const password = "p@ss/wörd ?#'\\";
    await query(url.href, `CREATE USER '${user}' IDENTIFIED BY 'p@ss/wörd ?#\\'\\\\'`, `GRANT ALL ON *.* TO '${user}'`);
    url.username = user;
    url.password = '';
    assert.match((await failure(MysqlStore.open(url.href), 'refused')).message, /denied access/);
    const directory = await mkdtemp(join(tmpdir(), 'unalike-'));
    const file = join(directory, 'password');
    await writeFile(file, `${password}\n`);
    process.env.UNALIKE_TEST_PASSWORD = password;
    await open(`${url.href}?password-file=${encodeURIComponent(file)}`);
    await open(`${url.href}?password-env=UNALIKE_TEST_PASSWORD`);
    await open(url.href, { password });
    url.password = encodeURIComponent(password);
    await open(url.href);
    await open(url.href.replace('mysql:', 'MariaDB:'));
    await rm(directory, { recursive: true });
  });
});

describe('a server that fails', () => {
  test('killed in the middle of grants, repeats none', async (t) => {
    const server = own(t, await MariaDb.start());
    const stores = [await open(server.url()), await open(server.url())];
    await stores[0].openTag('order');
    const segments = [];
    const failures = new Set();
    let isOver = false;
    const clients = stores.flatMap((store) =>
      [1, 2, 3, 4].map(async () => {
        while (!isOver) {
          try {
            segments.push(await store.allocate('order', 7n, 0n));
          } catch (error) {
            assert.ok(['unavailable', 'outcome-unknown'].includes(error.kind), error.stack);
            failures.add(error.kind);
            // A server that is down answers at once: leave it the processor.
            await new Promise((resolve) => setTimeout(resolve, 10));
          }
        }
      }),
    );
    for (let round = 0; round < 3; round += 1) {
      const goal = segments.length + 40;
      await eventually('grants go on', () => segments.length >= goal);
      await server.stop('SIGKILL');
      await server.restart();
    }
    const goal = segments.length + 40;
    await eventually('grants go on', () => segments.length >= goal);
    isOver = true;
    await Promise.all(clients);
    assertDisjoint(segments);
    assert.ok(failures.size > 0);
  });

  test('that hangs keeps nobody waiting, and goes on afterwards', async (t) => {
    const server = own(t, await MariaDb.start());
    const store = await open(`${server.url()}?connect-timeout-ms=2000&request-timeout-ms=3000`);
    const before = await store.allocate('order', 10n, 0n);
    await stopped(server.process);
    const lost = await failure(store.allocate('order', 10n, 0n), 'outcome-unknown', 'unavailable');
    assert.match(lost.message, /no answer within 3000 ms|no connection within 2000 ms/);
    assert.match(
      (await failure(store.allocate('order', 10n, 0n), 'unavailable')).message,
      /no connection within 2000 ms/,
    );
    await failure(MysqlStore.open(`${server.url()}?connect-timeout-ms=1000`), 'unavailable');
    server.process.kill('SIGCONT');
    const later = await eventually('it serves again', () => store.allocate('order', 10n, 0n));
    assertDisjoint([before, later]);
  });

  test('whose answer is lost after the commit has its grant burnt', async (t) => {
    const url = await freshDatabase();
    const proxy = own(t, await Proxy.before(url));
    const store = await open(proxy.url);
    const first = await store.allocate('order', 10n, 0n);
    // The statement is prepared, so that the tag alone is sent.
    proxy.cutAt = 'order';
    const { message } = await failure(store.allocate('order', 10n, 0n), 'outcome-unknown');
    assert.match(message, /answer was lost, so the grant is abandoned: allocating a segment/);
    assert.equal(proxy.cuts, 1, 'it was sent once');
    await failure(store.release('order', { start: 5n, version: first.version }), 'outcome-unknown');
    proxy.cutAt = 'COMMIT AND';
    await failure(store.createTag('other'), 'outcome-unknown');
    proxy.cutAt = null;
    await failure(store.createTag('other'), 'tag-exists');
    const next = await store.allocate('order', 10n, 0n);
    assert.equal(next.start, first.end + 10n, 'what was burnt stays so');
  });

  test('where a row is locked for too long says so, and keeps no transaction open', async (t) => {
    const url = await freshDatabase();
    const store = await open(`${url}?request-timeout-ms=2500`);
    await store.allocate('order', 1n, 0n);
    const locker = own(t, await lock(url, 'SELECT * FROM unalike_store FOR UPDATE'));
    assert.match((await failure(store.createTag('other'), 'unavailable')).message, /holds the row for too long/);
    // The floor of new names is locked as well, behind a row that is not.
    await locker.say('COMMIT', "SELECT * FROM unalike_tag WHERE tag = 'order' FOR UPDATE");
    const ended = store.allocate(`order${SUB_SEPARATOR}a`, 1n, 0n);
    assert.match((await failure(ended, 'unavailable')).message, /holds the row for too long/);
    await locker.say('COMMIT');
    const open1 = `SELECT COUNT(*) AS open FROM information_schema.INNODB_TRX t JOIN information_schema.PROCESSLIST p
      ON p.id = t.trx_mysql_thread_id WHERE p.db = DATABASE()`;
    await eventually('no transaction is open', async () => Number((await query(url, open1))[0].open) === 0);
    assert.equal((await store.allocate('order', 1n, 0n)).start, 2n);
    assert.equal((await store.createTag('other')).tag, 'other');
  });

  test('that was replaced by a copy which lags is refused until it is adopted', async (t) => {
    const server = own(t, await MariaDb.start());
    const store = await open(server.url());
    await store.allocate('order', 10n, 0n);
    await server.stop('SIGTERM');
    const copy = await server.copyData();
    await server.restart();
    const lost = await eventually('it serves again', () => store.allocate('order', 10n, 0n));
    await server.stop('SIGTERM');
    const replica = own(t, new MariaDb(copy, server.port, ['--server-id=2']));
    await replica.restart();
    for (let tries = 0; tries < 2; tries += 1) {
      const { message } = await failure(
        eventually('it is there', () =>
          store.allocate('order', 10n, 0n).catch((error) => {
            if (error.kind === 'refused') {
              return Promise.resolve(error);
            }
            throw error;
          }),
        ).then((error) => Promise.reject(error)),
        'refused',
      );
      assert.match(message, /is another one than before \(.*server_id 2.*unalike store adopt --lift COUNT/);
    }
    assert.match((await failure(MysqlStore.open(server.url()), 'refused')).message, /another one than before/);
    await run(required('UNALIKE_BIN'), ['store', 'adopt', '--lift', '1000', '--store', server.url()]);
    // Who knew the other one has to be started again.
    await failure(store.allocate('order', 10n, 0n), 'refused');
    const adopted = await open(server.url());
    const next = await adopted.allocate('order', 10n, 0n);
    assertDisjoint([lost, next]);
    assert.ok(next.start > 1_000n);
    assert.ok((await adopted.allocate('new', 1n, 0n)).start > 1_000n, 'new names begin above the lift');
    const layout = {
      ...{ timestampBits: 41, datacenterBits: 5, workerBits: 5, sequenceBits: 12, order: 'worker-first' },
      ...{ epochMs: 1_288_834_974_657n, tickMs: 1 },
    };
    const lease = { namespace: 'default', layout, holder: '', preferredWorker: null, horizonMs: 60_000n };
    const { message } = await failure(adopted.acquire({ ...lease, nowMs: BigInt(Date.now()) }), 'quarantined');
    assert.match(message, /may have forgotten leases of "default": it grants none before/);
  });

  test('that may lose commits, or is set otherwise while it runs, grants nothing', async (t) => {
    const server = own(t, await MariaDb.start());
    const store = await open(server.url());
    const before = await store.allocate('order', 1n, 0n);
    const set = (what) => query(server.url(), `SET GLOBAL ${what}`);
    await set('innodb_flush_log_at_trx_commit = 2');
    assert.match((await failure(store.allocate('order', 1n, 0n), 'refused')).message, /a crash would lose commits/);
    await failure(store.createTag('other'), 'refused');
    await failure(MysqlStore.open(server.url()), 'refused');
    const vouched = await open(`${server.url()}?durability=assumed`);
    assert.equal((await vouched.allocate('order', 1n, 0n)).start, before.end);
    await set('innodb_flush_log_at_trx_commit = 1');
    await set('read_only = 1');
    assert.match((await failure(store.allocate('order', 1n, 0n), 'unavailable')).message, /only reads just now/);
    await set('read_only = 0');
    assert.equal((await store.allocate('order', 1n, 0n)).start, before.end + 1n);
  });

  test('with odd settings of sessions grants as any other, and commits', async (t) => {
    const server = own(
      t,
      await MariaDb.start(
        '--completion-type=CHAIN',
        '--autocommit=0',
        '--sql-mode=ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES,IGNORE_SPACE',
        '--transaction-isolation=SERIALIZABLE',
        '--init-connect=SET SESSION sql_select_limit = 1; SET NAMES latin1; SET insert_id = 77; BEGIN',
        '--character-set-server=latin1',
      ),
    );
    await query(server.url(), "CREATE USER plain IDENTIFIED BY ''", 'GRANT ALL ON ids.* TO plain', 'COMMIT');
    const url = server.url('ids', 'plain');
    const store = await open(url);
    const first = await store.allocate('ördér', 10n, 0n);
    assert.equal(await store.release('ördér', { start: 6n, version: first.version }), true);
    assert.equal((await store.allocate('ördér', 10n, 0n)).start, 6n);
    await store.createTag('other', { start: 5n });
    await server.stop('SIGKILL');
    await server.restart();
    const again = await open(url);
    assert.equal((await again.allocate('ördér', 1n, 0n)).start, 16n, 'what was granted was committed');
    assert.equal((await again.openTag('other')).options.start, 5n);
    await query(server.url(), "SET GLOBAL init_connect = 'CREATE TEMPORARY TABLE unalike_tag (a INT)'");
    assert.match((await failure(MysqlStore.open(url), 'refused')).message, /init_connect runs "CREATE TEMPORARY TABLE/);
  });

  test('with TLS is used over it, as far as it is asked for', async (t) => {
    const { ca: file, key, certificate } = await certificates(await folderOf(t));
    const server = own(t, await MariaDb.start(`--ssl-cert=${certificate}`, `--ssl-key=${key}`));
    await query(server.url(), 'CREATE USER safe REQUIRE SSL', 'GRANT ALL ON ids.* TO safe');
    const url = server.url('ids', 'safe');
    const named = url.replace('127.0.0.1', 'localhost');
    const ca = `ssl-ca=${encodeURIComponent(file)}`;
    await open(url);
    await open(`${url}?ssl-mode=required`);
    await open(`${url}?ssl-mode=verify_ca&${ca}`);
    await open(`${named}?ssl-mode=verify_identity&${ca}`);
    await failure(MysqlStore.open(`${url}?ssl-mode=disabled`), 'refused');
    for (const mode of ['verify_ca', 'verify_ca&ssl-ca=/nowhere.pem', `verify_identity&${ca}`]) {
      const { message } = await failure(MysqlStore.open(`${url}?ssl-mode=${mode}`), 'refused');
      assert.match(message, /no TLS with a server that can be trusted/);
    }
    const plain = own(t, await MariaDb.start('--skip-ssl'));
    await open(plain.url());
    const { message } = await failure(MysqlStore.open(`${plain.url()}?ssl-mode=required`), 'refused');
    assert.match(message, /no TLS with/);
  });
});

describe('leases in MySQL', () => {
  const LAYOUT = {
    timestampBits: 41,
    datacenterBits: 5,
    workerBits: 5,
    sequenceBits: 12,
    order: 'worker-first',
    epochMs: 1_288_834_974_657n,
    tickMs: 1,
  };
  const FOUR_WORKERS = { ...LAYOUT, datacenterBits: 0, workerBits: 2 };

  const now = () => BigInt(Date.now());
  const request = (options = {}) => ({
    namespace: 'default',
    layout: LAYOUT,
    holder: '',
    preferredWorker: null,
    nowMs: now(),
    horizonMs: 60_000n,
    ...options,
  });
  const extension = (lease, options = {}) => ({
    namespace: 'default',
    layout: LAYOUT,
    worker: lease.worker,
    grantId: lease.grantId,
    nowMs: now(),
    horizonMs: 120_000n,
    ...options,
  });

  /** No two intervals of one worker overlap. */
  function assertIntervalsDisjoint(leases) {
    const byWorker = Map.groupBy
      ? Map.groupBy(leases, (lease) => lease.worker)
      : leases.reduce((map, lease) => map.set(lease.worker, [...(map.get(lease.worker) ?? []), lease]), new Map());
    for (const [worker, intervals] of byWorker) {
      // An empty one comes before the one that begins where it does.
      intervals.sort((a, b) => Number(a.notBeforeMs - b.notBeforeMs || a.validUntilMs - b.validUntilMs));
      for (const [at, { notBeforeMs, validUntilMs }] of intervals.entries()) {
        assert.ok(notBeforeMs <= validUntilMs);
        assert.ok(
          at === 0 || intervals[at - 1].validUntilMs <= notBeforeMs,
          `worker ${worker} was leased twice at once`,
        );
      }
    }
    assert.equal(new Set(leases.map((lease) => lease.grantId)).size, leases.length);
  }

  test('many holders have one worker each, and never one that runs', async () => {
    const url = await freshDatabase();
    const stores = await Promise.all([1, 2, 3].map(() => open(url)));
    const leases = [];
    const holder = async (store, name) => {
      for (let round = 0; round < 8; round += 1) {
        let lease;
        try {
          lease = await store.acquire(request({ layout: FOUR_WORKERS, holder: name, horizonMs: 5_000n }));
        } catch (error) {
          assert.ok(['workers-exhausted', 'unavailable'].includes(error.kind), error.stack);
          continue;
        }
        if (round % 2 === 0) {
          lease = await store.extend(extension(lease, { layout: FOUR_WORKERS, horizonMs: 6_000n }));
        }
        const endMs = lease.notBeforeMs + BigInt(round % 3);
        assert.equal(await store.release('default', lease.worker, lease.grantId, endMs), true);
        leases.push({ ...lease, validUntilMs: endMs });
      }
    };
    await Promise.all(stores.flatMap((store, at) => [1, 2, 3].map((it) => holder(store, `holder-${at}-${it}`))));
    assert.ok(leases.length > 20);
    assertIntervalsDisjoint(leases);
  });

  test('a lease is extended and ended by its grant id alone', async () => {
    const store = await freshStore({ maxHorizonMs: 100_000n });
    const lease = await store.acquire(request({ holder: 'host-a', preferredWorker: 7 }));
    assert.equal(lease.worker, 7);
    assert.ok(lease.validUntilMs > now() && lease.validUntilMs <= now() + 61_000n);
    const longer = await store.extend(extension(lease));
    assert.deepEqual([longer.worker, longer.grantId, longer.notBeforeMs], [7, lease.grantId, lease.notBeforeMs]);
    assert.ok(longer.validUntilMs > lease.validUntilMs);
    assert.ok(longer.validUntilMs <= now() + 101_000n, 'as far as the namespace allows');
    const shorter = await store.extend(extension(lease, { horizonMs: 10n }));
    assert.equal(shorter.validUntilMs, longer.validUntilMs, 'never back');
    const stranger = { ...lease, grantId: lease.grantId + 1n };
    await failure(store.extend(extension(stranger)), 'lease-lost');
    await failure(store.extend(extension({ ...lease, worker: 8 })), 'lease-lost');
    assert.equal(await store.release('default', 7, stranger.grantId, lease.notBeforeMs), false);
    assert.equal(await store.release('default', 7, lease.grantId, longer.validUntilMs + 1n), false);
    const endMs = lease.notBeforeMs + 5n;
    assert.equal(await store.release('default', 7, lease.grantId, endMs), true);
    assert.equal(await store.release('default', 7, lease.grantId, endMs), false);
    await failure(store.extend(extension(lease)), 'lease-lost');
    const next = await eventually('the end has passed', () =>
      store.acquire(request({ holder: 'host-a' })).then((it) => (it.worker === 7 ? it : null)),
    );
    assert.ok(next.notBeforeMs >= endMs && next.grantId !== lease.grantId);
    assert.match(await store.leaseIdentity(), /^[0-9a-f]{32}$/);
    assert.notEqual(await store.leaseIdentity(), await store.identity());
  });

  test('what cannot be leased is refused, and binds nothing', async () => {
    const url = await freshDatabase();
    const store = await open(url);
    const skew = await failure(store.acquire(request({ nowMs: now() + 3_600_000n })), 'clock-skew');
    assert.match(skew.message, /10000 ms apart is the limit/);
    await failure(store.acquire(request({ preferredWorker: 1_024 })), 'refused');
    await failure(store.acquire(request({ horizonMs: 0n })), 'refused');
    await failure(store.acquire(request({ namespace: '' })), 'refused');
    const future = { ...LAYOUT, epochMs: now() + 3_600_000n };
    await failure(store.acquire(request({ layout: future })), 'refused');
    assert.equal((await query(url, 'SELECT * FROM unalike_lease_namespace')).length, 0);
    await store.acquire(request());
    const { message } = await failure(store.acquire(request({ layout: FOUR_WORKERS })), 'layout-mismatch');
    assert.match(message, /bound to the layout 41\/5\+5\/12.*use another namespace/);
    const four = { namespace: 'four', layout: FOUR_WORKERS };
    const all = await Promise.all([1, 2, 3, 4].map(() => store.acquire(request(four))));
    assert.deepEqual(all.map((lease) => lease.worker).sort(), [0, 1, 2, 3]);
    assert.match(
      (await failure(store.acquire(request(four)), 'workers-exhausted')).message,
      /all 4 worker ids of "four"/,
    );
    await assert.rejects(MysqlStore.open({ url, maxHorizonMs: 0n }), { kind: 'refused' });
  });

  test('the longest horizon of any program is recorded, and stays that of the namespace', async () => {
    const url = await freshDatabase();
    const [short, long] = [await open(url, { maxHorizonMs: 5_000n }), await open(url, { maxHorizonMs: 900_000n })];
    await short.acquire(request());
    await long.acquire(request({ namespace: 'other' }));
    const [{ max_horizon_ms }] = await query(url, 'SELECT max_horizon_ms FROM unalike_lease_store');
    assert.equal(Number(max_horizon_ms), 900_000);
    const lease = await long.acquire(request());
    assert.ok(lease.validUntilMs <= now() + 6_000n);
  });

  test("a lease whose answer was lost is nobody's, and its worker busy until its end", async (t) => {
    const url = await freshDatabase();
    const proxy = own(t, await Proxy.before(url));
    const store = await open(proxy.url);
    const one = request({ layout: { ...LAYOUT, datacenterBits: 0, workerBits: 1 }, horizonMs: 2_000n });
    const first = await store.acquire(one);
    proxy.cutAt = 'COMMIT AND';
    await failure(store.acquire({ ...one, nowMs: now() }), 'outcome-unknown');
    proxy.cutAt = 'UPDATE unalike_lease SET valid';
    await failure(store.extend(extension(first, { layout: one.layout })), 'outcome-unknown');
    proxy.cutAt = null;
    await failure(store.acquire({ ...one, nowMs: now() }), 'workers-exhausted');
    const rows = await query(url, 'SELECT worker, valid_until_ms FROM unalike_lease');
    assert.equal(rows.length, 2);
    const next = await eventually('the lost one ends', () => store.acquire({ ...one, nowMs: now() }));
    const before = rows.find((row) => Number(row.worker) === next.worker);
    assert.ok(next.notBeforeMs >= BigInt(before.valid_until_ms));
  });

  test('a clock that is set ahead ends no lease', async (t) => {
    const directory = await mkdtemp(join(tmpdir(), 'unalike-'));
    t.after(() => rm(directory, { recursive: true }));
    const clock = join(directory, 'clock');
    await setClock(clock, '+0s');
    const server = own(t, await MariaDb.startBy(clock));
    const store = await open(server.url());
    const two = { layout: { ...LAYOUT, datacenterBits: 0, workerBits: 1 }, horizonMs: 60_000n };
    const held = await store.acquire(request(two));
    await store.acquire(request(two));
    await setClock(clock, '+1d');
    const day = 86_400_000n;
    const ahead = () => request({ ...two, nowMs: now() + day });
    await eventually('the server shows tomorrow', () =>
      store.acquire(request(two)).catch((error) => error.kind === 'clock-skew'),
    );
    await failure(store.acquire(ahead()), 'workers-exhausted');
    assert.equal((await store.extend(extension(held, { ...two, nowMs: now() + day }))).worker, held.worker);
    // One that has not seen the step takes the clock as it is; its interval is behind all that were granted.
    const other = await open(server.url());
    const next = await other.acquire(ahead());
    assert.notEqual(next.worker, held.worker);
    assert.ok(next.notBeforeMs > held.validUntilMs);
  });

  test('with an unalike server on the same database, no worker is leased twice', async (t) => {
    const url = await freshDatabase();
    const store = await open(url);
    const { address, process: server } = await serve(url);
    t.after(() => server.kill('SIGKILL'));
    const ask = async (path, parameters) => {
      const answer = await fetch(`${address}/v1/snowflakes/four/${path}?${new URLSearchParams(parameters)}`, {
        method: 'POST',
      });
      const body = await answer.json();
      return answer.ok ? { ok: body } : { problem: body };
    };
    const layout = '41/2/12 epoch 1288834974657 tick 1 ms';
    const leases = [];
    let ofTheServer = 0;
    const theirs = async () => {
      for (let round = 0; round < 10; round += 1) {
        const { ok } = await ask('leases', { layout, now_ms: String(Date.now()), horizon_ms: '3000' });
        if (ok !== undefined) {
          const { worker, grant_id, not_before_ms, valid_until_ms } = ok.lease;
          const released = await ask(`leases/${worker}/release`, {
            grant_id,
            end_ms: String(BigInt(not_before_ms) + 2n),
          });
          assert.equal(released.ok?.released, true, JSON.stringify(released));
          const grantId = BigInt(`0x${grant_id}`);
          leases.push({
            worker,
            grantId,
            notBeforeMs: BigInt(not_before_ms),
            validUntilMs: BigInt(not_before_ms) + 2n,
          });
          ofTheServer += 1;
          assert.ok(BigInt(valid_until_ms) > BigInt(not_before_ms));
        }
      }
    };
    const ours = async () => {
      for (let round = 0; round < 6; round += 1) {
        try {
          const lease = await store.acquire(request({ namespace: 'four', layout: FOUR_WORKERS, horizonMs: 3_000n }));
          const endMs = lease.notBeforeMs + 2n;
          assert.equal(await store.release('four', lease.worker, lease.grantId, endMs), true);
          leases.push({ ...lease, validUntilMs: endMs });
        } catch (error) {
          assert.ok(['workers-exhausted', 'unavailable'].includes(error.kind), error.stack);
        }
      }
    };
    await Promise.all([theirs(), ours(), theirs(), ours(), theirs(), ours()]);
    assert.ok(ofTheServer > 0 && leases.length > ofTheServer, `${ofTheServer} of ${leases.length}`);
    assertIntervalsDisjoint(leases);
    const { ok } = await eventually('a worker is free', async () => {
      const answer = await ask('leases', { layout, now_ms: String(Date.now()), horizon_ms: '3000' });
      return answer.ok ? answer : null;
    });
    assert.equal(ok.store, await store.leaseIdentity());
    // An operator forbids the extension of ours.
    const mine = await store.acquire(request({ namespace: 'mine' }));
    await run(required('UNALIKE_BIN'), ['leases', 'release', '--store', url, 'mine', String(mine.worker)]);
    await failure(store.extend(extension(mine, { namespace: 'mine' })), 'lease-lost');
  });
});

describe('a process', () => {
  test('that is done ends although connections are open', async () => {
    const url = await freshDatabase();
    const program = `
      import { MysqlStore } from ${JSON.stringify(new URL('../dist/mysql.js', import.meta.url).href)};
      const store = await MysqlStore.open(${JSON.stringify(url)});
      await Promise.all([1, 2, 3].map(() => store.allocate('order', 1n, 0n)));
      console.log('done');
    `;
    const { stdout } = await run(process.execPath, ['--input-type=module', '-e', program], { timeout: 30_000 });
    assert.equal(stdout, 'done\n');
  });

  test('that closes its store is granted nothing more', async () => {
    const store = await freshStore();
    await store.allocate('order', 1n, 0n);
    await store.close();
    assert.match((await failure(store.allocate('order', 1n, 0n), 'unavailable')).message, /the store was closed/);
    await store.close();
  });

  test('with more requests than connections serves them in turn', async () => {
    const store = await open(`${await freshDatabase()}?connections=2`);
    const segments = await Promise.all(Array.from({ length: 60 }, () => store.allocate('order', 5n, 0n)));
    assertDisjoint(segments);
    assert.equal(segments.length, 60);
  });
});
