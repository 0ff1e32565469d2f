// The program's own code runs inside of calls: its clock, its signals, the getters of its options and of what its store
// answers. Whatever it calls there, no id comes twice and nothing is left half done.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { DEFAULT_TAG_OPTIONS, Ids, MemoryStore } from '../dist/index.js';
import { Seen } from './fixtures.mjs';

/** What a clock does besides showing the time: never inside of itself. */
function clockWith(act) {
  let isInside = false;
  const clock = () => {
    if (!isInside && clock.act !== undefined) {
      isInside = true;
      try {
        clock.act();
      } finally {
        isInside = false;
      }
    }
    return Date.now();
  };
  clock.act = act;
  return clock;
}

async function open(t, now, { store = new MemoryStore(), ...more } = {}) {
  const ids = await Ids.open({ segments: store, leases: store, now, ...more });
  t.after(() => ids.close());
  return { store, ids };
}

test('a clock that takes snowflakes has others than the call that reads it', async (t) => {
  const now = clockWith(undefined);
  const { ids } = await open(t, now, { renewLeases: false });
  const flakes = await ids.snowflake('default', 'twitter');
  await flakes.next();
  const seen = new Seen();
  now.act = () => {
    const id = flakes.tryNext();
    if (id !== undefined) {
      seen.add([id], 'in the clock');
    }
  };
  for (let round = 0; round < 3_000; round += 1) {
    seen.add([await flakes.next()], 'by next');
    seen.add(await flakes.take(3), 'by take');
    const id = flakes.tryNext();
    seen.add(id === undefined ? [] : [id], 'by tryNext');
    flakes.status();
  }
  now.act = undefined;
  assert.ok(seen.ids.size > 12_000);
  assert.equal(flakes.status().issued, BigInt(seen.ids.size) + 1n);
});

test('a clock that takes numbers has others, and none is lost', async (t) => {
  const now = clockWith(undefined);
  const { ids } = await open(t, now);
  const orders = await ids.sequence('order', { step: { kind: 'fixed', step: 7n } });
  await orders.next();
  const seen = new Seen();
  seen.add([1n]);
  const waiting = [];
  now.act = () => {
    const id = orders.tryNext();
    seen.add(id === undefined ? [] : [id], 'in the clock');
    waiting.push(orders.take(2));
  };
  for (let round = 0; round < 300; round += 1) {
    seen.add([await orders.next({ waitMaxMs: 1_000 })], 'by next');
    seen.add(await orders.take(5), 'by take');
    orders.status();
  }
  now.act = undefined;
  for (const batch of await Promise.all(waiting)) {
    seen.add(batch, 'in the clock, by take');
  }
  const taken = BigInt(seen.ids.size);
  assert.equal(orders.status().issued, taken);
  // They are all the numbers from 1 on, but for those that are in hand: none was lost.
  assert.ok([...seen.ids].reduce((most, id) => (id > most ? id : most)) < taken + 100n);
  assert.deepEqual([...(await orders.take(50))].filter((id) => seen.ids.has(id)), []);
});

test('a clock that closes or gives up what it is read for is heard', async (t) => {
  for (const act of [(ids) => void ids.close(), (ids) => ids.trap()]) {
    const now = clockWith(undefined);
    const { ids } = await open(t, now, { renewLeases: false });
    const flakes = await ids.snowflake('default', 'twitter');
    const orders = await ids.sequence('order');
    const seen = new Seen();
    seen.add([await flakes.next()]);
    for (let round = 0; round < 50; round += 1) {
      now.act = () => act(ids);
      const taken = await Promise.allSettled([flakes.next(), orders.next(), flakes.take(3)]);
      now.act = undefined;
      const expected = ['closed', 'rebuilt', 'timeout'];
      assert.ok(taken.every(({ reason }) => reason === undefined || expected.includes(reason.kind)), taken[0].reason);
    }
    await ids.close();
  }
});

test('a clock that opens what is being opened opens it once', async (t) => {
  const now = clockWith(undefined);
  const { ids } = await open(t, now, { renewLeases: false });
  let inside;
  now.act = () => {
    inside ??= ids.snowflake('default', 'twitter');
  };
  const flakes = await ids.snowflake('default', 'twitter');
  now.act = undefined;
  assert.equal(await inside, flakes);
  assert.equal(ids.openSnowflakes().length, 1);
});

test('getters of options are read before anything is opened, and once', async (t) => {
  const { ids } = await open(t, Date.now);
  let [reads, inside] = [0, undefined];
  const step = {
    get kind() {
      reads += 1;
      inside ??= ids.sequence('order', { step: { kind: 'fixed', step: 5n } });
      return 'fixed';
    },
    step: 5n,
  };
  const orders = await ids.sequence('order', { step });
  assert.equal(await inside, orders);
  const closing = {
    get kind() {
      void ids.close();
      return 'fixed';
    },
    step: 5n,
  };
  await assert.rejects(ids.sequence('invoice', { step: closing }), (error) => error.kind === 'closed');
  assert.equal(ids.openSequences().length, 0);
  assert.ok(reads > 0);
});

/** A signal whose every method takes an id. */
class TakingSignal {
  aborted = false;
  reason = 'enough';
  listeners = new Set();

  constructor(take) {
    this.take = take;
  }

  addEventListener(_, listener) {
    this.listeners.add(listener);
    this.take();
  }

  removeEventListener(_, listener) {
    this.listeners.delete(listener);
    this.take();
  }
}

test('a signal that takes ids has others than the call that it is for', async (t) => {
  const store = new MemoryStore();
  await store.createTag('ticket', { ...DEFAULT_TAG_OPTIONS, mode: 'ordered' });
  const { ids } = await open(t, Date.now, { store, renewLeases: false });
  for (const opened of [
    await ids.sequence('order', { step: { kind: 'fixed', step: 3n } }),
    await ids.sequence('ticket'),
    await ids.snowflake('default', 'twitter'),
  ]) {
    const seen = new Seen();
    const inside = [];
    const signal = new TakingSignal(() => {
      if (inside.length < 300) {
        inside.push(opened.next());
      }
    });
    for (let round = 0; round < 100; round += 1) {
      const batches = await Promise.all([opened.take(4, { signal }), opened.take(4, { signal }), opened.take(3)]);
      batches.forEach((batch) => seen.add(batch));
    }
    seen.add(await Promise.all(inside));
    assert.equal(signal.listeners.size, 0);
  }
});

test('a signal that throws fails nothing but its own call', async (t) => {
  const store = new MemoryStore();
  await store.createTag('ticket', { ...DEFAULT_TAG_OPTIONS, mode: 'ordered' });
  const { ids } = await open(t, Date.now, { store });
  class Throwing extends TakingSignal {
    removeEventListener() {
      throw new Error('no such listener');
    }
  }
  for (const opened of [await ids.sequence('order'), await ids.sequence('ticket')]) {
    const seen = new Seen();
    const signal = new Throwing(() => undefined);
    const calls = [opened.take(5, { signal }).catch(() => []), opened.take(5), opened.take(5)];
    for (const batch of await Promise.all(calls)) {
      seen.add(batch);
    }
    assert.ok(seen.ids.size >= 10);
  }
});

test('what a store answers is read once', async (t) => {
  class Changing extends MemoryStore {
    async allocate(tag, count, atLeast) {
      const { start, end, ...more } = await super.allocate(tag, count, atLeast);
      let reads = 0;
      const changing = { ...more };
      // What comes first is checked; what came after it went to the component.
      Object.defineProperty(changing, 'start', { enumerable: true, get: () => ((reads += 1) === 1 ? start : 1n) });
      Object.defineProperty(changing, 'end', { enumerable: true, get: () => end });
      return changing;
    }
  }
  const { ids } = await open(t, Date.now, { store: new Changing() });
  const orders = await ids.sequence('order', { step: { kind: 'fixed', step: 5n } });
  const seen = new Seen();
  for (let round = 0; round < 100; round += 1) {
    seen.add([await orders.next()]);
  }
});

test('a store in memory whose clock releases a lease extends none that is over', async () => {
  const now = clockWith(undefined);
  const store = new MemoryStore({ now });
  const layout = { timestampBits: 41, datacenterBits: 0, workerBits: 0, sequenceBits: 12, order: 'worker-first' };
  const asked = { namespace: 'one', layout: { ...layout, epochMs: 1_288_834_974_657n, tickMs: 1 }, horizonMs: 1_000n };
  const request = { ...asked, nowMs: BigInt(Date.now()), holder: '', preferredWorker: null };
  const lease = await store.acquire(request);
  now.act = () => void store.release('one', lease.worker, lease.grantId, lease.notBeforeMs + 1n);
  const { worker, grantId } = lease;
  await assert.rejects(store.extend({ ...request, worker, grantId }), { kind: 'lease-lost' });
});
