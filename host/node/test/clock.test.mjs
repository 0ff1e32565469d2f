// Clocks that fail, and the timer that looks after leases: nothing that runs by itself ends the process.

import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import { test } from 'node:test';

import { Ids, IdsError, MemoryStore } from '../dist/index.js';

import { guarded } from '../dist/wait.js';
import { Seen, until } from './fixtures.mjs';

/** A store in memory that counts what it is asked for leases. */
class Counting extends MemoryStore {
  extended = 0;
  /** Extensions that were asked for when the lease had ended. */
  late = 0;
  ends = new Map();

  async acquire(request) {
    const lease = await super.acquire(request);
    this.ends.set(request.namespace, lease.validUntilMs);
    return lease;
  }

  async extend(request) {
    this.extended += 1;
    this.late += request.nowMs < this.ends.get(request.namespace) ? 0 : 1;
    const lease = await super.extend(request);
    this.ends.set(request.namespace, lease.validUntilMs);
    return lease;
  }
}

function thrown(what) {
  throw what;
}

for (const [what, fail, says] of [
  ['throws', () => thrown(new Error('no time source')), /^the clock \(now\) failed: no time source$/],
  ['throws no error', () => thrown(null), /^the clock \(now\) failed: null$/],
  ['shows no number', () => 5n, /^the clock \(now\) shows 5n, it must show a number of milliseconds since 1970$/],
  ['shows nothing', () => undefined, /^the clock \(now\) shows undefined, it must show a number of/],
  ['shows a text', () => '5', /^the clock \(now\) shows "5", it must show a number of milliseconds/],
  ['shows NaN', () => NaN, /^the clock \(now\) shows NaN, it must show a number of milliseconds/],
]) {
  test(`a clock that ${what} while nobody calls ends no process, and is told to whoever calls`, async (t) => {
    let [isBad, reads] = [false, 0];
    const now = () => {
      reads += 1;
      return isBad ? fail() : Date.now();
    };
    const store = new Counting();
    const ids = await Ids.open({ segments: store, leases: store, now });
    t.after(() => ids.close());
    // Renewed every 50 ms.
    const flakes = await ids.snowflake('default', 'twitter', { horizonMs: 300 });
    const orders = await ids.sequence('order', { step: { kind: 'fixed', step: 3n } });
    const seen = new Seen();
    seen.add([await flakes.next(), await orders.next()]);
    isBad = true;
    const before = reads;
    await until('the timer has read the clock', () => reads > before + 5);
    const told = (error) => error instanceof IdsError && says.test(error.message) && error.figures.argument === 'now';
    await assert.rejects(flakes.next(), told);
    assert.throws(() => flakes.tryNext(), told);
    assert.throws(() => flakes.status(), told);
    await assert.rejects(orders.take(1_000), told);
    await assert.rejects(ids.snowflake('other', 'twitter'), told);
    isBad = false;
    seen.add([await flakes.next(), ...(await orders.take(10))]);
    // It fails while the store's answer is on its way, and when the generators end.
    const waiting = flakes.take(20_000).then(
      (batch) => seen.add(batch),
      () => undefined,
    );
    isBad = true;
    await waiting;
    await ids.close();
  });
}

test('the lease of an idle generator is kept, however short its horizon is', async (t) => {
  const store = new Counting();
  const ids = await Ids.open({ leases: store });
  t.after(() => ids.close());
  const long = await ids.snowflake('long', 'twitter');
  await long.next();
  const short = await ids.snowflake('short', 'twitter', { horizonMs: 900 });
  const first = await short.next();
  await until('it was renewed for several horizons', () => store.extended > 8);
  assert.equal(store.late, 0, 'no lease ended');
  assert.ok((await short.next()) > first);
});

test('what runs by itself runs guarded, and throws nothing', async () => {
  const place = new URL('../src/', import.meta.url);
  for (const file of (await readdir(place)).filter((name) => name.endsWith('.ts') && name !== 'wait.ts')) {
    const code = await readFile(new URL(file, place), 'utf8');
    const bare = /\b(setTimeout|setInterval|setImmediate|queueMicrotask|nextTick)\(/.exec(code);
    assert.equal(bare, null, `${file} has ${bare?.[1]}: wait.ts has what guards it`);
  }
  const said = [];
  const listeners = process.listeners('warning');
  process.removeAllListeners('warning').on('warning', (warning) => said.push(warning.message));
  guarded(() => {
    throw new Error('now');
  })();
  guarded(async () => {
    throw new Error('later');
  })();
  await until('both are told', () => said.length === 2);
  process.removeAllListeners('warning');
  listeners.forEach((listener) => process.on('warning', listener));
  assert.match(said.join(), /now.*later/);
});
