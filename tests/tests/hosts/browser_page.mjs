// What the page of browser_host.mjs does.

import { Ids } from '/dist/browser.js';
import { RemoteStore } from '/dist/remote.js';

const BATCH = 1_000;

/** The machine's monotonic clock, which pages have not. It is read after this is called, and before it answers. */
const now = async () => BigInt(await (await fetch('/now')).text());

async function write(of, words) {
  const response = await fetch(`/${of}`, { method: 'POST', body: BigUint64Array.from(words) });
  if (!response.ok) {
    throw new Error(`the ids of ${of} were not written: ${response.status}`);
  }
}

async function buffered(orders, count) {
  const taken = [];
  while (taken.length < count) {
    taken.push(await orders.next());
    for (const id of await orders.take(BATCH - 1)) {
      taken.push(id);
    }
  }
  await write('order', taken);
}

async function stamped(flakes, count) {
  const taken = [];
  while (taken.length < count) {
    taken.push(await flakes.next());
  }
  await write('flake', taken);
}

async function ordered(chats, count) {
  const calls = [];
  let began = await now();
  for (let at = 0; at < count; at += 1) {
    const id = await chats.next();
    const ended = await now();
    calls.push(began, ended, id);
    // This was before the next call, too.
    began = ended;
  }
  await write('chat', calls);
}

async function all() {
  const task = await (await fetch('/task.json')).json();
  const [plain, strict] = await Promise.all([RemoteStore.open(task.plain), RemoteStore.open(task.strict)]);
  const [ids, inOrder] = [await Ids.open({ segments: plain, leases: plain }), await Ids.open({ segments: strict })];
  const [orders, flakes] = [await ids.sequence('order'), await ids.snowflake('default', 'twitter')];
  const chats = await inOrder.sequence('chat');
  await Promise.all([buffered(orders, task.orders), stamped(flakes, task.flakes), ordered(chats, task.chats)]);
  await Promise.all([ids.close(), inOrder.close()]);
}

globalThis.outcome = all();
