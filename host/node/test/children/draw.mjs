// Draws ids from a server, as a worker thread or as a process of a cluster, and posts them.

import cluster from 'node:cluster';
import { parentPort, workerData } from 'node:worker_threads';

import { Ids } from '../../dist/index.js';
import { RemoteStore } from '../../dist/remote-node.js';

const { url, rounds } = workerData ?? JSON.parse(process.env.DRAW);
const store = await RemoteStore.open(url);
const ids = await Ids.open({ segments: store, leases: store, waitMaxMs: 20_000 });
const orders = await ids.sequence('order', { step: { kind: 'fixed', step: 64n } });
const tickets = await ids.sequence('ticket');
const flakes = await ids.snowflake('default', 'twitter');
const drawn = { order: [], ticket: [], flake: [] };
for (let round = 0; round < rounds; round += 1) {
  drawn.order.push(...(await orders.take(11)), await orders.next());
  drawn.ticket.push(await tickets.next());
  drawn.flake.push(...(await flakes.take(20)));
}
await ids.close();
const texts = Object.fromEntries(Object.entries(drawn).map(([name, list]) => [name, list.map(String)]));
if (parentPort) {
  parentPort.postMessage(texts);
} else {
  process.send(texts, () => cluster.worker.disconnect());
}
