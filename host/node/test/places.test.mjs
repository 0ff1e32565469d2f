// One namespace, one place: a Redis and the durable store behind it, each of which could lease its workers, opened by
// this package and by the `unalike` command, on real servers.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';

import { PRESETS } from '../dist/layouts.js';
import { MysqlStore } from '../dist/mysql.js';
import { RedisStore } from '../dist/redis.js';
import { SqliteStore } from '../dist/sqlite.js';
import { folderOf, needed } from './fixtures.mjs';
import { freshDatabase } from './mariadb.mjs';
import { RedisProcess } from './redis-servers.mjs';

// Every new SQLite file warns that it is one.
process.removeAllListeners('warning').on('warning', () => undefined);

const DURABLE = {
  SQLite: async (folder) => {
    const path = join(folder, 'ids.sqlite');
    return { url: `sqlite://${path}`, open: () => SqliteStore.open(path) };
  },
  MariaDB: async () => {
    const url = await freshDatabase();
    return { url, open: () => MysqlStore.open(url) };
  },
};

/** A Redis above a durable store, and what opens both places as a new program does. */
async function shared(t, kind) {
  const folder = await folderOf(t);
  const redis = await RedisProcess.start(t, folder);
  const durable = await DURABLE[kind](folder);
  const stores = [];
  t.after(() => Promise.all(stores.map((store) => store.close())));
  const open = async (leasesIn) => {
    const backing = await durable.open();
    // Slow machines.
    const url = `${redis.url}?raise-timeout-ms=20000&request-timeout-ms=20000`;
    const more = leasesIn === undefined ? {} : { leasesIn };
    const store = await RedisStore.open({ url, backing, ...more });
    stores.push(store);
    return store;
  };
  /** What the `unalike` command says when it takes a snowflake with these settings. */
  const command = async (namespace, ...more) => {
    const args = ['--store', redis.url, '--backing', durable.url, ...more, 'next', namespace, '--snowflake'];
    const { stdout, stderr } = await promisify(execFile)(needed('UNALIKE_BIN'), args, { cwd: folder }).catch(
      (error) => error,
    );
    return stdout.trim() || stderr;
  };
  const openDurable = async () => {
    stores.push(await durable.open());
    return stores.at(-1);
  };
  return { redis, open, openDurable, command, inRedis: ['--leases', redis.url] };
}

const acquire = (store, namespace) =>
  store.acquire({
    namespace,
    layout: PRESETS.twitter,
    holder: '',
    preferredWorker: null,
    nowMs: BigInt(Date.now()),
    horizonMs: 10_000n,
  });

const elsewhere = (text) => (error) =>
  error.kind === 'leases-elsewhere' && error.failure === 'refused' && !error.isRetryable && text.test(error.message);
const IN_STORE = /"default" are kept in the durable store itself/;
const IN_REDIS = /"default" are kept in a Redis above this store/;

for (const kind of Object.keys(DURABLE)) {
  test(`every host keeps leases in the same place by default, above ${kind}, and the other one is refused`, async (t) => {
    const { redis, open, command, inRedis } = await shared(t, kind);
    await acquire(await open(), 'default');
    assert.equal(await redis.ask('EXISTS', 'unalike:leases:{default}'), 0, 'the leases are in the durable store');
    assert.match(await command('default'), /^[0-9]+$/);
    await assert.rejects(acquire(await open('redis'), 'default'), elsewhere(IN_STORE));
    assert.match(await command('default', ...inRedis), IN_STORE);
    assert.equal(await redis.ask('EXISTS', 'unalike:leases:{default}'), 0, 'a refusal changes nothing');
    await acquire(await open('backing'), 'default');
  });

  test(`a namespace that is begun in Redis stays there, above ${kind}`, async (t) => {
    const { redis, open, command, inRedis } = await shared(t, kind);
    await acquire(await open('redis'), 'default');
    assert.equal(await redis.ask('EXISTS', 'unalike:leases:{default}'), 1);
    await assert.rejects(acquire(await open(), 'default'), elsewhere(IN_REDIS));
    assert.match(await command('default'), IN_REDIS);
    assert.match(await command('default', ...inRedis), /^[0-9]+$/);
    await redis.kill();
    await redis.start();
    await assert.rejects(acquire(await open(), 'default'), elsewhere(IN_REDIS));
  });

  test(`what the unalike command began is known here, above ${kind}`, async (t) => {
    const { open, command, inRedis } = await shared(t, kind);
    assert.match(await command('default', ...inRedis), /^[0-9]+$/);
    await assert.rejects(acquire(await open(), 'default'), elsewhere(IN_REDIS));
    await acquire(await open('redis'), 'default');
    const other = await shared(t, kind);
    assert.match(await other.command('default'), /^[0-9]+$/);
    await acquire(await other.open(), 'default');
    await assert.rejects(acquire(await other.open('redis'), 'default'), elsewhere(IN_STORE));
  });

  test(`of both places at once one has the namespace, above ${kind}`, async (t) => {
    const { open } = await shared(t, kind);
    const places = await Promise.all([open(), open('redis'), open(), open('redis')]);
    for (let round = 0; round < 5; round += 1) {
      const asked = await Promise.allSettled(places.map((store) => acquire(store, `race-${round}`)));
      const granted = asked.map(({ status, reason }) => {
        assert.ok(status === 'fulfilled' || reason.kind === 'leases-elsewhere' || reason.isRetryable, String(reason));
        return status === 'fulfilled';
      });
      const [durable, inRedis] = [granted[0] || granted[2], granted[1] || granted[3]];
      assert.ok(durable !== inRedis, `${granted}`);
    }
  });

  test(`what was begun before anybody looked goes on, above ${kind}`, async (t) => {
    const { open, openDurable } = await shared(t, kind);
    const [durable, inRedis] = [await open(), await open('redis')];
    const backing = await openDurable();
    await backing.openTag('redis-leases\u001fdefault');
    await assert.rejects(acquire(durable, 'default'), elsewhere(IN_REDIS));
    await acquire(inRedis, 'default');
    await acquire(durable, 'both');
    await backing.openTag('redis-leases\u001fboth');
    await assert.rejects(acquire(durable, 'both'), elsewhere(/kept both in the durable store itself and in a Redis/));
    await assert.rejects(acquire(inRedis, 'both'), elsewhere(/kept both in the durable store itself and in a Redis/));
  });
}

test('where leases are kept is said by a word that is known', async (t) => {
  const folder = await folderOf(t);
  const backing = await SqliteStore.open(join(folder, 'ids.sqlite'));
  t.after(() => backing.close());
  const none = { allocate() {}, openTag() {}, identity() {}, close() {} };
  const limits = { maxHorizonMs: 1_000n, maxSkewMs: 1_000n };
  for (const [options, message] of [
    [{ backing, leasesIn: 'Redis' }, /leasesIn is "Redis", it must be 'backing' or 'redis'/],
    [{ backing, leaseLimits: limits }, /give them to that store/],
    [{ backing: none, leasesIn: 'backing' }, /leases no workers/],
  ]) {
    const opened = RedisStore.open({ url: 'redis://127.0.0.1:1', ...options });
    await assert.rejects(opened, (error) => error.kind === 'refused' && message.test(error.message));
  }
});
