// Draws ids from a store by its URL, as a worker thread or as a process, and tells them. It closes nothing.

import { parentPort, workerData } from 'node:worker_threads';

import { Ids } from '../../dist/index.js';
import { Store } from '../../dist/stores.js';

const { url, options, orders, flakes } = workerData ?? JSON.parse(process.argv[2]);
const store = await Store.open(url, options);
const ids = await Ids.open({ segments: store, leases: store, waitMaxMs: 20_000 });
const sequence = await ids.sequence('order', { step: { kind: 'fixed', step: 50n } });
const drawn = { orders: [], flakes: [] };
while (drawn.orders.length < orders) {
  drawn.orders.push(String(await sequence.next()));
}
if (flakes > 0) {
  const snowflake = await ids.snowflake('default', 'twitter');
  drawn.flakes.push(...[...(await snowflake.take(flakes))].map(String));
}
if (parentPort) {
  parentPort.postMessage(drawn);
} else {
  process.stdout.write(JSON.stringify(drawn));
}
