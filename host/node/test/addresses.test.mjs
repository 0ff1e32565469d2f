// The addresses of stores that are none. No server is asked.

import assert from 'node:assert/strict';
import { readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';

import { MemoryStore, StoreError } from '../dist/index.js';
import { MysqlStore } from '../dist/mysql.js';
import { RedisStore } from '../dist/redis.js';
import { SqliteStore } from '../dist/sqlite.js';
import { folderOf } from './fixtures.mjs';

process.removeAllListeners('warning').on('warning', () => undefined);

const refused = (words) => (error) => {
  assert.ok(error instanceof StoreError && error.kind === 'refused', String(error?.stack ?? error));
  assert.ok(error.message.includes(words), error.message);
  return true;
};

test('an address that is none is told, with what to do', async () => {
  const backing = new MemoryStore();
  for (const [open, words] of [
    [() => SqliteStore.open(undefined), 'the path of the store is undefined: is its environment variable set?'],
    [() => SqliteStore.open(''), 'the path of the store is empty: is its environment variable set?'],
    [() => SqliteStore.open(7), 'the path of the store is of the type number, it must be a text'],
    [() => MysqlStore.open(undefined), 'the address of the store is undefined: is its environment variable set?'],
    [() => MysqlStore.open({ url: undefined }), 'url is undefined: is its environment variable set?'],
    [() => MysqlStore.open({ host: 'h', user: 'u' }), "url is missing: give { url: 'mysql://USER@HOST/DATABASE' }"],
    [() => MysqlStore.open(new URL('mysql://u@h/d')), 'is an object of the class URL, it must be a text: give its href'],
    [() => RedisStore.open(), 'the options are undefined: write RedisStore.open({ url, backing })'],
    [() => RedisStore.open('redis://h/0'), 'write RedisStore.open({ url, backing })'],
    [() => RedisStore.open({ backing }), 'url is undefined: is its environment variable set?'],
    [() => RedisStore.open({ url: 'redis://h/0', backing: 'mysql://h/d' }), 'Redis needs a durable store behind it'],
  ]) {
    await assert.rejects(open(), refused(words));
  }
});

test('a SQLite store takes the URL that the command takes, and no path that means no file', async (t) => {
  const folder = await folderOf(t);
  const path = join(folder, 'ids.sqlite');
  const missing = SqliteStore.open(`sqlite://${path}?create=false`);
  await assert.rejects(missing, refused('is not to be made here'));
  const store = await SqliteStore.open(`sqlite://${path}?busy-timeout-ms=600000`);
  assert.equal(store.address, path);
  const same = await SqliteStore.open(path);
  assert.equal(await same.identity(), await store.identity());
  await Promise.all([store.close(), same.close()]);
  for (const [url, words] of [
    [':memory:', 'is no file, and numbers must be kept: name a file, or use MemoryStore'],
    ['file:ids.sqlite', 'begins with file:, it must be a path or sqlite://PATH'],
    ['mysql://u:hunter2@h/ids', 'begins with mysql://, it must be a path or sqlite://PATH'],
    ['sqlite:ids.sqlite', 'is not a URL: write sqlite://PATH'],
    ['sqlite://', 'names no file: write sqlite://PATH'],
    ['sqlite://:memory:', 'means no plain file to SQLite'],
    ['sqlite://a%20b', 'has a path that others would read as another one'],
    ['sqlite://a#b', 'has a path that others would read as another one'],
    [`sqlite://${path}?mode=rwc`, 'has the parameter "mode", which is unknown: there are create (true or false) and'],
    [`sqlite://${path}?create=yes`, 'has create=yes: create is true or false'],
    [`sqlite://${path}?busy-timeout-ms=600001`, 'busy-timeout-ms a whole number from 0 to 600000'],
  ]) {
    await assert.rejects(SqliteStore.open(url), (error) => refused(words)(error) && !error.message.includes('hunter2'));
  }
  const twice = SqliteStore.open(`sqlite://${path}?create=false`, { create: true });
  await assert.rejects(twice, refused('a parameter beside the option create'));
  const old = join(folder, 'old.sqlite?mode=rwc');
  await writeFile(old, '');
  await assert.rejects(SqliteStore.open(`sqlite://${old}`), refused('rename it to go on with it'));
  assert.deepEqual((await readdir(folder)).sort(), ['ids.sqlite', 'old.sqlite?mode=rwc']);
});
