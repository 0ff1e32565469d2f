// A cluster whose processes share one store over HTTP: start `unalike serve`, then `node examples/cluster.mjs`.
// Each process opens its own `Ids`: grants are never shared, and none of the ids comes twice.

import cluster from 'node:cluster';

import { Ids } from 'unalike';
import { RemoteStore } from 'unalike/remote';

const url = process.env.UNALIKE_URL ?? 'http://127.0.0.1:8080';

if (cluster.isPrimary) {
  for (let child = 0; child < 4; child += 1) {
    cluster.fork();
  }
} else {
  const store = await RemoteStore.open(url);
  const ids = await Ids.open({ segments: store, leases: store, holder: `child-${cluster.worker.id}` });
  const orders = await ids.sequence('order');
  const batch = await orders.take(1_000);
  console.log(`process ${process.pid} has ${batch.length} ids, the first is ${batch.runs[0].first}`);
  await ids.close();
  cluster.worker.disconnect();
}
