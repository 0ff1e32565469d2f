// What ids cost in Node: node node.mjs CASE URL MILLISECONDS prints the nanoseconds for one, or the first id.

import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const from = (file) => import(pathToFileURL(join(process.env.UNALIKE_NODE_PACKAGE, 'dist', file)));
const { Ids, MemoryStore } = await from('index.js');

const [name, url, milliseconds] = process.argv.slice(2);
const STEP = { kind: 'fixed', step: 10_000_000n };
const CALLERS = 50;

async function open(tag, options) {
  const store = url === '-' ? new MemoryStore() : await (await from('remote.js')).RemoteStore.open(url);
  const ids = await Ids.open({ segments: store });
  return [await ids.sequence(tag, options), ids];
}

/** Nanoseconds for one: some work that makes so many, again and again. */
async function measure(count, work) {
  await work();
  const began = process.hrtime.bigint();
  const end = began + BigInt(milliseconds) * 1_000_000n;
  let done = 0n;
  let now = began;
  while (now < end) {
    await work();
    done += BigInt(count);
    now = process.hrtime.bigint();
  }
  return Number((now - began) * 1_000n / done) / 1_000;
}

const cases = {
  async first() {
    const [orders, ids] = await open('order');
    console.log(String(await orders.next()));
    await ids.close();
  },
  async single() {
    const [orders, ids] = await open('order', url === '-' ? { step: STEP } : {});
    console.log(await measure(1_000, async () => {
      for (let at = 0; at < 1_000; at += 1) {
        await orders.next();
      }
    }));
    await ids.close();
  },
  async batch() {
    const [orders, ids] = await open('order', { step: STEP });
    let sum = 0n;
    console.log(await measure(1_000, async () => {
      for (const id of await orders.take(1_000)) {
        sum ^= id;
      }
    }));
    await ids.close();
  },
  async runs() {
    const [orders, ids] = await open('order', { step: STEP });
    console.log(await measure(1_000, () => orders.take(1_000)));
    await ids.close();
  },
  async ordered() {
    const [tickets, ids] = await open('ticket');
    const caller = async () => {
      for (let at = 0; at < 10; at += 1) {
        await tickets.next();
      }
    };
    console.log(await measure(CALLERS * 10, () => Promise.all(Array.from({ length: CALLERS }, caller))));
    await ids.close();
  },
};
await cases[name]();
