// An HTTP service that numbers what is posted to it: `node examples/http-server.mjs`, then
// `curl -X POST http://127.0.0.1:3000/orders`. The store is in memory here; a real service gives a durable one.

import http from 'node:http';

import { Formats, Ids, IdsError, MemoryStore } from 'unalike';

const store = new MemoryStore();
const ids = await Ids.open({ segments: store, leases: store, waitMaxMs: 1_000 });
const events = await ids.snowflake('default', 'twitter');
const formats = await Formats.load();
// No id is too great for the format, and no other program shows the tag in another one.
const orders = await ids.formatted('order', formats.format({ template: 'ORD-{yyyyMMdd}-{id:08}', bits: 26 }));

const server = http.createServer(async (request, response) => {
  // A client that goes away gives its wait up, and no id is lost by that.
  const gone = new AbortController();
  response.once('close', () => gone.abort());
  try {
    const order = await orders.next(undefined, { signal: gone.signal });
    const event = await events.next({ signal: gone.signal });
    response.writeHead(201, { 'content-type': 'application/json' });
    // Ids are bigints: JSON has them as texts.
    response.end(JSON.stringify({ order, id: String(orders.read(order).id), event: String(event) }));
  } catch (error) {
    if (!(error instanceof IdsError)) {
      throw error;
    }
    const after = error.isRetryable ? { 'retry-after': Math.ceil((error.retryAfterMs ?? 1_000) / 1_000) } : {};
    response.writeHead(error.isRetryable ? 503 : 500, after).end(error.message);
  }
});
server.listen(Number(process.env.PORT ?? 3_000), '127.0.0.1', () => {
  console.log(`listening on http://127.0.0.1:${server.address().port}`);
});

// What was not used goes back to the store.
process.once('SIGTERM', async () => {
  server.close();
  server.closeAllConnections();
  await ids.close();
  await store.close();
});
