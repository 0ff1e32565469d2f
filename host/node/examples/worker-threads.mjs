// Worker threads: start `unalike serve`, then `node examples/worker-threads.mjs`. Each thread opens its own `Ids`, since
// a grant belongs to one instance of the component; ids themselves are bigints, and may be posted anywhere.

import { isMainThread, parentPort, Worker } from 'node:worker_threads';
import { fileURLToPath } from 'node:url';

import { Ids } from 'unalike';
import { RemoteStore } from 'unalike/remote';

if (isMainThread) {
  for (let thread = 0; thread < 4; thread += 1) {
    const worker = new Worker(fileURLToPath(import.meta.url));
    worker.once('message', (flakes) => console.log(`thread ${worker.threadId}: ${flakes.join(' ')}`));
  }
} else {
  const store = await RemoteStore.open(process.env.UNALIKE_URL ?? 'http://127.0.0.1:8080');
  const ids = await Ids.open({ segments: store, leases: store });
  const flakes = await ids.snowflake('default', 'twitter');
  parentPort.postMessage((await flakes.take(3)).toArray());
  await ids.close();
}
