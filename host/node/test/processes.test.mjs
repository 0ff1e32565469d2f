// Eight worker threads, and eight processes of a cluster, on one server: each has an instance of its own.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import cluster from 'node:cluster';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Worker } from 'node:worker_threads';

import { Ids, MemoryStore } from '../dist/index.js';
import { RemoteStore } from '../dist/remote-node.js';
import { folderOf, Seen, Server } from './fixtures.mjs';

const child = fileURLToPath(new URL('./children/draw.mjs', import.meta.url));
const CHILDREN = 8;
const ROUNDS = 40;

async function serverWithTickets(t) {
  const server = await Server.start(t, `sqlite://${join(await folderOf(t), 'ids.sqlite')}`);
  const store = await RemoteStore.open(server.url);
  await store.createTag('ticket', { ...(await store.openTag('order')).options, mode: 'ordered' });
  return server;
}

function noneTwice(drawn) {
  assert.equal(drawn.length, CHILDREN);
  const counts = { order: 12, ticket: 1, flake: 20 };
  for (const [name, each] of Object.entries(counts)) {
    const seen = new Seen();
    for (const { [name]: texts } of drawn) {
      seen.add(texts.map(BigInt), name);
    }
    assert.equal(seen.ids.size, each * ROUNDS * CHILDREN, name);
  }
}

test('eight worker threads draw no id twice', async (t) => {
  const { url } = await serverWithTickets(t);
  noneTwice(
    await Promise.all(
      Array.from(
        { length: CHILDREN },
        () =>
          new Promise((resolve, reject) => {
            const worker = new Worker(child, { workerData: { url, rounds: ROUNDS } });
            worker.once('message', resolve);
            worker.once('error', reject);
          }),
      ),
    ),
  );
});

test('eight processes of a cluster draw no id twice', async (t) => {
  const { url } = await serverWithTickets(t);
  cluster.setupPrimary({ exec: child });
  noneTwice(
    await Promise.all(
      Array.from(
        { length: CHILDREN },
        () =>
          new Promise((resolve, reject) => {
            const worker = cluster.fork({ DRAW: JSON.stringify({ url, rounds: ROUNDS }) });
            worker.once('message', resolve);
            worker.once('error', reject);
            worker.once('exit', (code) => code === 0 || reject(new Error(`a child ended with ${code}`)));
          }),
      ),
    ),
  );
});

test('handles cannot be posted to another thread', async () => {
  const ids = await Ids.open({ segments: new MemoryStore() });
  const orders = await ids.sequence('order');
  assert.throws(() => structuredClone(orders), { name: 'DataCloneError' });
  assert.throws(() => structuredClone(ids), { name: 'IdsError', message: /each thread opens its own Ids/ });
  await ids.close();
});

test('a program that wants to end does, with open generators and without closing', async () => {
  const dist = new URL('../dist/index.js', import.meta.url);
  const code = `
    import { Ids, MemoryStore } from ${JSON.stringify(dist.href)};
    const store = new MemoryStore();
    const ids = await Ids.open({ segments: store, leases: store });
    const orders = await ids.sequence('order');
    const flakes = await ids.snowflake('default', 'twitter');
    console.log(String(await orders.next()), typeof (await flakes.next()));
  `;
  const run = promisify(execFile)(process.execPath, ['--input-type=module', '-e', code], { timeout: 60_000 });
  assert.equal((await run).stdout, '1 bigint\n');
});
