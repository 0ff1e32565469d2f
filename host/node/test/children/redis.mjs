// Draws ids in a thread from a Redis above a file, and posts them. With `hangs` it stops while the file is asked, and
// posts that.

import { parentPort, workerData } from 'node:worker_threads';

import { RedisStore } from '../../dist/redis.js';
import { SqliteStore } from '../../dist/sqlite.js';

process.removeAllListeners('warning').on('warning', () => undefined);

const { url, path, tag, draws, hangs } = workerData;
const backing = await SqliteStore.open(path);
const store = await RedisStore.open({ url, backing });
if (hangs !== undefined) {
  backing.allocate = async () => {
    parentPort.postMessage('it is asked');
    for (;;) {
      if (hangs === 'for ever') {
        await new Promise(() => {});
      }
    }
  };
}
const ids = [];
while (ids.length < draws) {
  try {
    ids.push((await store.allocate(tag, 1n, 0n)).start);
  } catch (error) {
    if (!error.isRetryable) {
      throw error;
    }
  }
}
parentPort.postMessage(ids);
await store.close();
