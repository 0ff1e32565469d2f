// The host over stores in memory, some of which fail as stores do.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { DEFAULT_TAG_OPTIONS, Formats, Ids, IdsError, MemoryStore, PRESETS, StoreError } from '../dist/index.js';
import { Traps } from '../dist/lane.js';
import { shown, subTag } from '../dist/names.js';
import { InstanceTickets } from '../dist/tickets.js';
import { deferred, Seen, until } from './fixtures.mjs';

const kind = (expected) => (error) => {
  assert.ok(error instanceof IdsError, String(error?.stack ?? error));
  assert.equal(error.kind, expected, error.message);
  return true;
};

async function open(t, { store = new MemoryStore(), ...options } = {}) {
  const leases = typeof store.acquire === 'function' ? store : undefined;
  const ids = await Ids.open({ segments: store, leases, ...options });
  t.after(() => ids.close());
  return { store, ids };
}

/** A store around another one, whose calls can be held, failed, or counted. */
class Around {
  allocations = 0;

  constructor(inner) {
    this.inner = inner;
  }

  async allocate(tag, count, atLeast) {
    this.allocations += 1;
    return await (this.before?.(tag) ?? undefined, this.inner.allocate(tag, count, atLeast));
  }

  release(...args) {
    return this.inner.release(...args);
  }

  openTag(tag) {
    return this.inner.openTag(tag);
  }

  identity() {
    return this.inner.identity();
  }

  close() {
    return this.inner.close();
  }
}

test('ids come one by one, in batches, and in a loop', async (t) => {
  const { ids } = await open(t);
  const orders = await ids.sequence('order');
  assert.equal(orders.tryNext(), undefined, 'the store was asked, and has not answered');
  assert.equal(await orders.next(), 1n);
  const batch = await orders.take(2_500);
  assert.equal(batch.length, 2_500);
  assert.deepEqual(batch.toArray(), [...batch]);
  assert.deepEqual(batch.toArray().slice(0, 3), [2n, 3n, 4n]);
  let expected = 2_502n;
  for await (const id of orders) {
    assert.equal(id, expected);
    expected += 1n;
    if (id === 3_000n) {
      break;
    }
  }
  assert.equal(orders.tryNext(), 3_001n);
  assert.equal(orders.status().issued, 3_001n);
  assert.equal(await ids.sequence('order'), orders, 'a process has one buffer per tag');
});

test('many callers share the runs and none has an id twice', async (t) => {
  const { ids } = await open(t);
  const orders = await ids.sequence('order', { step: { kind: 'fixed', step: 100n } });
  const seen = new Seen();
  await Promise.all(
    Array.from({ length: 200 }, async (_, at) => {
      for (let round = 0; round < 20; round += 1) {
        seen.add(at % 3 === 0 ? await orders.take(1 + (at % 7)) : [await orders.next()]);
      }
    }),
  );
  assert.equal(BigInt(seen.ids.size), orders.status().issued);
});

test('numbers that are none are refused by name, and nothing changes', async (t) => {
  const { ids } = await open(t);
  const orders = await ids.sequence('order');
  const flakes = await ids.snowflake('default', 'twitter');
  for (const count of [0, -1, 1.5, NaN, Infinity, 2 ** 32, 2 ** 32 + 1, '7', null, undefined, 1n << 64n]) {
    await assert.rejects(orders.take(count), kind('number-invalid'));
    await assert.rejects(flakes.take(count), kind('number-invalid'));
  }
  for (const waitMaxMs of [-1, 1.5, NaN, 2 ** 31]) {
    await assert.rejects(orders.next({ waitMaxMs }), kind('number-invalid'));
  }
  for (const options of [
    { idMax: 0n },
    { idMax: 1n << 63n },
    { idMax: 1.5 },
    { prefetch: 0 },
    { prefetch: 65 },
    { step: { kind: 'fixed', step: 0n } },
    { refill: { kind: 'share-consumed', percent: 101 } },
  ]) {
    await assert.rejects(ids.sequence('other', options), kind('number-invalid'));
  }
  assert.equal(await orders.next(), 1n);
});

test('names are checked', async (t) => {
  const { ids } = await open(t);
  for (const tag of ['', 'x'.repeat(129), 'a\u0000b', '\ud800', 7, undefined, 'redis-leases']) {
    await assert.rejects(ids.sequence(tag), kind('name-invalid'));
  }
  await assert.rejects(ids.sequenceOf('chat', ''), kind('name-invalid'));
  await assert.rejects(ids.snowflake('', 'twitter'), kind('name-invalid'));
});

test('a store says which part of a name is wrong, in the words of all hosts', async () => {
  const store = new MemoryStore();
  const long = 'x'.repeat(129);
  for (const [name, words] of [
    ['', 'the tag "" is not valid: it is empty, and a name has 1 to 128 bytes'],
    [
      long,
      `the tag "${long.slice(0, 32)}" is not valid: its name begins so and has 129 bytes, and a name has 1 to 128 bytes`,
    ],
    ['order ', 'the tag "order " is not valid: its name has a space at an end, and no new one may: leave the space out'],
    [
      ' order\x1fsub ',
      'the tag " order" is not valid: its sub-key "sub " has a space at an end, and no new one may: leave the space out',
    ],
    [
      ' order\x1fsub',
      'the tag " order" is not valid: its name has a space at an end, and no new one may: leave the space out',
    ],
  ]) {
    await assert.rejects(store.createTag(name), { kind: 'tag-invalid', message: words });
  }
  for (const [tag, sub, words] of [
    ['chat', '', 'the tag "chat" is not valid: its sub-key is empty'],
    ['', 'alice', 'the tag "" is not valid: it is empty, and a name has 1 to 128 bytes'],
    ['chat', 'a\nb', 'the tag "chat" is not valid: its sub-key holds a control character'],
    ['chat', 'a\x1fb', 'the tag "chat" is not valid: its sub-key holds a control character'],
    ['chat\x1fa', 'b', 'the tag "chat" (sub-key "a") is not valid: its sub-key holds a control character'],
    [
      'chat',
      'x'.repeat(124),
      'the tag "chat" is not valid: with its sub-key it has 128 bytes, 127 at most are allowed',
    ],
  ]) {
    assert.throws(() => subTag(tag, sub), { kind: 'tag-invalid', message: words });
  }
  assert.equal(subTag('chat', 'x'.repeat(123)).length, 128);
  // What nobody sees is written as a number.
  assert.equal(shown('\ufefforder\u200b\u00a0"\\\t\0'), '"\\u{feff}order\\u{200b}\\u{a0}\\"\\\\\\t\\0"');
  assert.equal(shown('caf\u00e9 \u{1f600} \u6f22'), '"caf\u00e9 \u{1f600} \u6f22"');
});

test('sub-keys have numbers of their own', async (t) => {
  const { ids } = await open(t);
  const ours = await ids.sequenceOf('chat', 'alice');
  const theirs = await ids.sequenceOf('chat', 'bob');
  assert.deepEqual([await ours.next(), await ours.next(), await theirs.next()], [1n, 2n, 1n]);
  assert.deepEqual([ours.tag, ours.sub], ['chat', 'alice']);
});

test('options and modes are bound', async (t) => {
  const { ids, store } = await open(t);
  const step = { kind: 'fixed', step: 10n };
  const orders = await ids.sequence('order', { step });
  assert.equal(await ids.sequence('order', { step: { step: 10n, kind: 'fixed' } }), orders);
  assert.equal(await ids.sequence('order'), orders);
  const otherwise = (error) => {
    assert.match(error.message, /\(step is \{"kind":"fixed","step":10n\} there, and not given here\)/);
    return kind('open-otherwise')(error);
  };
  await assert.rejects(ids.sequence('order', { prefetch: 2 }), otherwise);
  await assert.rejects(ids.sequence('invoice', { mode: 'ordered' }), kind('mode-bound'));
  await ids.snowflake('default', 'twitter');
  await assert.rejects(ids.snowflake('default', 'leaf'), (error) => {
    assert.match(error.message, /layout is \{.*"datacenterBits":5,.*\} there, and \{.*"datacenterBits":0,.*\} here/);
    return kind('open-otherwise')(error);
  });
  await assert.rejects(ids.snowflake('other', 'no-such'), kind('layout-invalid'));
  const wide = { ...(await ids.snowflake('default', 'twitter')).layout, timestampBits: 60 };
  await assert.rejects(ids.snowflake('other', wide), kind('layout-invalid'));
  const strict = new MemoryStore({ createTags: false });
  const { ids: others } = await open(t, { store: strict });
  await assert.rejects(others.sequence('order'), (error) => {
    assert.equal(error.storeError.kind, 'tag-unknown');
    return kind('store')(error);
  });
  assert.ok(store !== strict);
});

test('an id above the bound is never handed out', async (t) => {
  const { ids } = await open(t);
  const orders = await ids.sequence('order', { idMax: 100n });
  assert.deepEqual((await orders.take(95)).toArray().at(-1), 95n);
  await assert.rejects(orders.take(6), (error) => {
    assert.deepEqual([error.figures.left, error.figures.idMax], [5, 100n]);
    return kind('exhausted')(error);
  });
  assert.equal((await orders.take(5)).toArray().at(-1), 100n);
  await assert.rejects(orders.next(), kind('exhausted'));
});

test('what was not used goes back, and a closed generator is closed', async (t) => {
  const { ids, store } = await open(t);
  const orders = await ids.sequence('order');
  const flakes = await ids.snowflake('default', 'twitter');
  assert.equal(await orders.next(), 1n);
  await flakes.next();
  await Promise.all([ids.close(), ids.close()]);
  await assert.rejects(ids.sequence('never-opened'), /no ids for "never-opened": this Ids was closed/);
  await assert.rejects(orders.next(), kind('closed'));
  assert.throws(() => orders.tryNext(), kind('closed'));
  assert.throws(() => orders.status(), kind('closed'));
  await assert.rejects(flakes.next(), kind('closed'));
  await assert.rejects(ids.sequence('order'), kind('closed'));
  for await (const id of orders) {
    assert.fail(`${id} of a closed sequence`);
  }
  // The first call reserved a run of two, so the third number is the first that comes back.
  assert.ok((await store.allocate('order', 1n, 0n)).start <= 3n);
});

test('one sequence can be closed and opened again', async (t) => {
  const { ids } = await open(t);
  const orders = await ids.sequence('order');
  const before = await orders.take(10);
  const closing = orders.close();
  const [again] = await Promise.all([ids.sequence('order', { prefetch: 2 }), closing]);
  await assert.rejects(orders.next(), kind('closed'));
  const next = await again.next();
  assert.ok(next > before.toArray().at(-1) && next < 100n, `${next}: the tail came back`);
});

test('who waits while it closes is told', async (t) => {
  const store = new Around(new MemoryStore());
  const { promise, resolve } = deferred();
  store.allocate = async (...args) => {
    await promise;
    return await store.inner.allocate(...args);
  };
  const { ids } = await open(t, { store });
  const orders = await ids.sequence('order');
  const waiting = assert.rejects(orders.next(), kind('closed'));
  const closing = ids.close();
  await waiting;
  resolve();
  await closing;
  assert.equal((await store.inner.allocate('order', 1n, 0n)).start, 1n, 'the grant that came late went back, too');
});

test('a wait ends by time, by signal, and with an answer', async (t) => {
  const store = new Around(new MemoryStore());
  const answers = [];
  store.allocate = async (...args) => {
    const { promise, resolve } = deferred();
    answers.push(resolve);
    await promise;
    return await store.inner.allocate(...args);
  };
  const { ids } = await open(t, { store });
  const orders = await ids.sequence('order');
  await assert.rejects(orders.next({ waitMaxMs: 10 }), kind('timeout'));
  await assert.rejects(orders.take(5, { waitMaxMs: 0 }), kind('timeout'));
  const controller = new AbortController();
  const waiting = orders.next({ signal: controller.signal });
  controller.abort(new Error('the client went away'));
  await assert.rejects(waiting, (error) => {
    assert.equal(error.cause.message, 'the client went away');
    return kind('aborted')(error);
  });
  await assert.rejects(orders.next({ signal: controller.signal }), kind('aborted'));
  const next = orders.next();
  assert.equal(answers.length, 1, 'one request at a time');
  answers.shift()();
  assert.equal(await next, 1n, 'no id was lost by those that gave up');
  answers.forEach((resolve) => resolve());
});

test('a request that takes too long is given up, and its grant burnt', async (t) => {
  const store = new Around(new MemoryStore());
  const late = deferred();
  let asked = 0;
  store.allocate = async (...args) => {
    asked += 1;
    const segment = await store.inner.allocate(...args);
    if (asked === 1) {
      await late.promise;
    }
    return segment;
  };
  const { ids } = await open(t, { store, requestTimeoutMs: 20 });
  const orders = await ids.sequence('order', { step: { kind: 'fixed', step: 10n } });
  const first = await orders.next();
  assert.equal(first, 11n, "the first ten may be anybody's");
  late.resolve();
  assert.deepEqual((await orders.take(30)).toArray()[0], 12n);
});

test('a store that fails is asked again, and its words are told', async (t) => {
  const store = new Around(new MemoryStore());
  let failures = 3;
  store.allocate = async (...args) => {
    if (failures > 0) {
      failures -= 1;
      throw failures === 1 ? new TypeError('a driver threw') : new StoreError('unavailable', 'the disk is full');
    }
    return await store.inner.allocate(...args);
  };
  const { ids } = await open(t, { store });
  const orders = await ids.sequence('order');
  assert.equal(await orders.next(), 1n);
  failures = 1_000_000;
  await assert.rejects(orders.take(5_000, { waitMaxMs: 50 }), (error) => {
    assert.equal(error.storeError.kind === 'unavailable' || error.storeError.kind === 'outcome-unknown', true);
    return kind('timeout')(error);
  });
  failures = 0;
  assert.ok((await orders.take(5_000)).length === 5_000);
});

test('a store that refuses is told at once', async (t) => {
  const store = new Around(new MemoryStore());
  store.allocate = async () => {
    throw new StoreError('refused', 'you may not');
  };
  const { ids } = await open(t, { store });
  const orders = await ids.sequence('order');
  await assert.rejects(orders.next(), (error) => {
    assert.equal(error.isRetryable, false);
    assert.match(error.message, /you may not/);
    return kind('store')(error);
  });
});

test('a grant that went through a double is not used', async (t) => {
  const store = new Around(new MemoryStore());
  let bad = { start: 1, end: 11 };
  store.allocate = async (...args) => ({ ...(await store.inner.allocate(...args)), ...bad });
  const { ids } = await open(t, { store });
  const orders = await ids.sequence('order', { step: { kind: 'fixed', step: 10n } });
  await assert.rejects(orders.next({ waitMaxMs: 100 }), (error) => {
    assert.equal(error.storeError.kind, 'outcome-unknown');
    return kind('timeout')(error);
  });
  bad = { start: 0n, end: 11n };
  await assert.rejects(orders.next({ waitMaxMs: 3_000 }), (error) => {
    assert.match(error.message, /the store's grant is not an interval of ids. It is not used: look at the store$/);
    return kind('grant-refused')(error);
  });
  bad = {};
  // Some were asked for before, and each is refused once.
  await until('a good grant is there', () => orders.next().catch(() => undefined));
  assert.ok((await orders.next()) > 10n);
});

test('a trap costs one error that can be retried, and a gap', async (t) => {
  for (const mode of ['buffered', 'ordered']) {
    const store = new MemoryStore({ newTags: { ...DEFAULT_TAG_OPTIONS, mode } });
    const { ids } = await open(t, { store });
    const orders = await ids.sequence('order');
    const flakes = await ids.snowflake('default', 'twitter', { spread: { kind: 'rotating', bits: 4 } });
    const seen = new Seen();
    seen.add(await orders.take(10));
    const before = await flakes.take(5_000);
    const error = ids.trap();
    assert.ok(error.kind === 'rebuilt' && error.isRetryable && error.retryAfterMs === 1);
    seen.add(await orders.take(2_000));
    assert.ok((await flakes.next()) > before.toArray().at(-1), 'no tick is entered again');
    // The second one of a fault: nothing is built for a second.
    assert.equal(ids.trap().retryAfterMs, 1_000);
    await assert.rejects(orders.take(20_000), (again) => {
      assert.ok(again.retryAfterMs > 0);
      return kind('rebuilt')(again);
    });
  }
});

test('a call into the component that was cut in the middle costs as much as a trap', async (t) => {
  const { ids } = await open(t, {});
  const orders = await ids.sequence('order');
  const seen = new Seen();
  seen.add(await orders.take(10));
  // As after the end of a program's time: nothing after the call ran.
  ids.environment.lane.isCalled = true;
  await assert.rejects(orders.take(100), kind('rebuilt'));
  seen.add(await orders.take(100));
  assert.ok((await orders.next()) > 1_000n, 'the instance was given up');
});

test('a rebuilt sequence refuses what its predecessor was granted', async (t) => {
  for (const mode of ['buffered', 'ordered']) {
    const store = new Around(new MemoryStore({ newTags: { ...DEFAULT_TAG_OPTIONS, mode } }));
    let hasForgotten = false;
    store.allocate = async (tag, count, atLeast) => {
      const segment = await store.inner.allocate(tag, count, atLeast);
      return hasForgotten ? { ...segment, start: 1n, end: 1n + count } : segment;
    };
    const { ids } = await open(t, { store });
    const orders = await ids.sequence('order');
    await orders.take(10);
    hasForgotten = true;
    ids.trap();
    await assert.rejects(orders.take(5_000), kind('grant-refused'));
  }
});

test('an answer for an instance that is gone is burnt', async (t) => {
  const store = new Around(new MemoryStore());
  const held = deferred();
  let asked = 0;
  store.allocate = async (...args) => {
    asked += 1;
    const [mine, segment] = [asked, await store.inner.allocate(...args)];
    if (mine === 1) {
      await held.promise;
    }
    return segment;
  };
  const { ids } = await open(t, { store });
  const orders = await ids.sequence('order', { step: { kind: 'fixed', step: 10n } });
  const waiting = orders.next();
  await until('the store is asked', () => asked === 1);
  ids.trap();
  assert.equal(await waiting, 11n, 'the waiting call goes on with the next instance');
  held.resolve();
  assert.equal((await orders.take(40)).toArray()[0], 12n);
});

test('pauses between rebuilds grow to a minute', () => {
  const traps = new Traps();
  const pauses = [];
  let now = 1_000_000;
  for (let trap = 0; trap < 9; trap += 1) {
    traps.record(now);
    pauses.push(traps.pauseLeft(now));
    now += pauses.at(-1);
  }
  assert.deepEqual(pauses, [0, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
  traps.record(now + 600_001);
  assert.equal(traps.pauseLeft(now + 600_001), 0, 'the first of another fault');
});

test('tickets are above 2^63 and are those of one table', () => {
  const one = new InstanceTickets();
  const other = new InstanceTickets();
  const ticket = one.segments.issue();
  assert.ok(ticket > 1n << 63n && ticket < 1n << 64n);
  assert.notEqual(other.segments.issue(), ticket);
  for (const table of [one.leases, other.segments, other.leases]) {
    assert.equal(table.answer(ticket, { tag: 'ok', val: 1 }), false);
    assert.deepEqual(table.poll(ticket), { tag: 'err', val: 'outcome-unknown' });
  }
  assert.equal(one.segments.poll(ticket), undefined);
  // A bit that is lost on the way names no ticket.
  for (const wrong of [BigInt(Number(ticket)), BigInt.asIntN(64, ticket), ticket & ~1n]) {
    if (wrong !== ticket) {
      assert.deepEqual(one.segments.poll(wrong), { tag: 'err', val: 'outcome-unknown' });
    }
  }
  assert.ok(one.segments.answer(ticket, { tag: 'ok', val: 1 }));
  assert.equal(one.segments.answer(ticket, { tag: 'ok', val: 2 }), false, 'of two answers the first counts');
  assert.deepEqual(one.segments.poll(ticket), { tag: 'ok', val: 1 });
});

test('a store that calls back finds the component free', async (t) => {
  const store = new Around(new MemoryStore());
  const { ids } = await open(t, { store });
  const orders = await ids.sequence('order');
  const invoices = await ids.sequence('invoice');
  let seen;
  store.before = (tag) => {
    if (tag === 'order') {
      seen = invoices.tryNext();
    }
  };
  assert.equal(await orders.next(), 1n);
  assert.equal(seen, undefined);
  assert.equal(await invoices.next(), 1n);
});

test('ordered ids ascend across two programs in real time', async (t) => {
  const store = new MemoryStore({ newTags: { ...DEFAULT_TAG_OPTIONS, mode: 'ordered' } });
  const [{ ids: one }, { ids: other }] = [await open(t, { store }), await open(t, { store })];
  const sequences = [await one.sequence('order'), await other.sequence('order')];
  assert.equal(sequences[0].mode, 'ordered');
  const seen = new Seen();
  let greatest = 0n;
  await Promise.all(
    Array.from({ length: 40 }, async (_, at) => {
      for (let round = 0; round < 25; round += 1) {
        const before = greatest;
        const id = await sequences[(at + round) % 2].next();
        assert.ok(id > before, `${id} came after ${before} was there`);
        seen.add([id]);
        greatest = id > greatest ? id : greatest;
      }
    }),
  );
  assert.equal(seen.ids.size, 1_000);
  assert.equal(sequences[0].tryNext(), undefined);
});

test('an ordered caller is served only from an allocation that began after it came', async (t) => {
  const inner = new MemoryStore({ newTags: { ...DEFAULT_TAG_OPTIONS, mode: 'ordered' } });
  const store = new Around(inner);
  const asked = [];
  store.allocate = async (tag, count, atLeast) => {
    const { promise, resolve } = deferred();
    asked.push({ count, resolve });
    await promise;
    return await inner.allocate(tag, count, atLeast);
  };
  const { ids } = await open(t, { store });
  const orders = await ids.sequence('order');
  const gone = new AbortController();
  const first = [orders.next(), orders.take(3), orders.next({ signal: gone.signal })];
  await until('the first round has begun', () => asked.length === 1);
  assert.equal(asked[0].count, 5n, 'all who came in time are served by one allocation');
  const late = orders.next();
  gone.abort();
  await assert.rejects(first[2], kind('aborted'));
  asked[0].resolve();
  assert.equal(await first[0], 1n);
  assert.deepEqual((await first[1]).toArray(), [2n, 3n, 4n]);
  await until('the second round has begun', () => asked.length === 2);
  assert.equal(asked[1].count, 1n);
  asked[1].resolve();
  assert.equal(await late, 6n, 'what was left by the one that went away is a gap');
});

test('an ordered round that fails is begun again', async (t) => {
  const inner = new MemoryStore({ newTags: { ...DEFAULT_TAG_OPTIONS, mode: 'ordered' } });
  const store = new Around(inner);
  let failures = 2;
  store.allocate = async (...args) => {
    if (failures > 0) {
      failures -= 1;
      await inner.allocate(...args);
      throw new StoreError('outcome-unknown', 'the answer was lost');
    }
    return await inner.allocate(...args);
  };
  const { ids } = await open(t, { store });
  const orders = await ids.sequence('order');
  assert.deepEqual(await Promise.all([orders.next(), orders.next()]), [5n, 6n]);
  failures = 1_000;
  await assert.rejects(orders.next({ waitMaxMs: 50 }), kind('timeout'));
});

test('snowflakes are unique over ticks, two holders and a clock that goes back', async (t) => {
  let now = 1_700_000_000_000;
  const store = new MemoryStore({ now: () => now });
  const [{ ids: one }, { ids: other }] = [
    await open(t, { store, now: () => now }),
    await open(t, { store, now: () => now, preferredWorker: 7 }),
  ];
  const flakes = [await one.snowflake('default', 'twitter'), await other.snowflake('default', 'twitter')];
  const seen = new Seen();
  for (let round = 0; round < 30; round += 1) {
    for (const generator of flakes) {
      seen.add(await generator.take(100));
      seen.add([await generator.next()]);
    }
    now += { 6: -1_500, 7: 3_000 }[round % 8] ?? 3;
  }
  assert.equal(flakes[1].status().worker, 7);
  now -= 30_000;
  await assert.rejects(flakes[0].next(), (error) => {
    assert.ok(error.figures.behindMs > 2_000 && error.retryAfterMs > 2_000);
    return kind('clock-moved-back')(error);
  });
  now += 200_000;
  seen.add([await flakes[0].next()]);
});

test('a rebuilt generator enters no tick again, also where the clock stands still', async (t) => {
  const now = () => 1_700_000_000_000;
  for (const spread of [{ kind: 'none' }, { kind: 'rotating', bits: 12 }, { kind: 'random', bits: 12 }]) {
    const { ids } = await open(t, { store: new MemoryStore({ now }), now });
    const flakes = await ids.snowflake('default', 'twitter', { spread, aheadMaxMs: 10_000 });
    const before = (await flakes.take(20_000)).toArray();
    ids.trap();
    const after = (await flakes.take(20_000)).toArray();
    const all = [...before, ...after];
    assert.ok(
      all.every((id, at) => at === 0 || id >> 22n >= all[at - 1] >> 22n),
      `ticks ascend (${spread.kind})`,
    );
    assert.equal(new Set(all).size, all.length);
  }
});

test('a lease that ended is told, and another one is taken', async (t) => {
  let now = 1_700_000_000_000;
  const inner = new MemoryStore({ now: () => now });
  const store = {
    acquire: (request) => inner.acquire(request),
    extend: (request) => inner.extend(request),
    release: (...args) => inner.release(...args),
    leaseIdentity: async () => null,
    close: async () => {},
  };
  const ids = await Ids.open({ leases: store, now: () => now, renewLeases: false });
  t.after(() => ids.close());
  const flakes = await ids.snowflake('default', 'twitter', { horizonMs: 1_000 });
  const seen = new Seen();
  seen.add([await flakes.next()]);
  const down = async () => {
    throw new StoreError('unavailable', 'the lease store is down');
  };
  const { acquire, extend } = store;
  Object.assign(store, { acquire: down, extend: down });
  now += 500;
  seen.add([await flakes.next()]);
  now += 600;
  await assert.rejects(flakes.next({ waitMaxMs: 50 }), (error) => {
    assert.deepEqual([error.figures.worker, error.figures.endedMs], [0, 1_700_000_001_000]);
    assert.match(error.message, /ended at 2023-11-14T22:13:21.000Z, and there is no other: the lease store is down/);
    return kind('lease-ended')(error);
  });
  Object.assign(store, { acquire, extend });
  now += 10_000;
  seen.add([await flakes.next()]);
  await assert.rejects(ids.sequence('order'), kind('store'));
});

test('leases are renewed by a timer that keeps no process alive', async (t) => {
  const inner = new MemoryStore();
  let extended = 0;
  const store = {
    acquire: (request) => inner.acquire(request),
    extend: (request) => {
      extended += 1;
      return inner.extend(request);
    },
    release: (...args) => inner.release(...args),
    leaseIdentity: async () => null,
    close: async () => {},
  };
  const ids = await Ids.open({ leases: store });
  t.after(() => ids.close());
  const flakes = await ids.snowflake('default', 'twitter', { horizonMs: 3_000 });
  await flakes.next();
  await until('the lease is extended', () => extended > 0);
});

test("a driver's import never throws into the component", async (t) => {
  const failing = () => {
    throw new TypeError('it is no promise');
  };
  const store = { allocate: failing, release: failing, openTag: failing };
  const { ids } = await open(t, { store });
  await assert.rejects(ids.sequence('order'), kind('store'));
  store.openTag = async (tag) => ({ tag, options: DEFAULT_TAG_OPTIONS });
  await assert.rejects((await ids.sequence('order')).next({ waitMaxMs: 100 }), kind('timeout'));
});

test('what is no store is refused when the ids are opened', async () => {
  const store = new MemoryStore();
  const closed = Promise.resolve(store);
  class Pool {}
  const text = 'is a text, it must be a store, such as';
  for (const [given, words] of [
    [closed, 'is a Promise, it must be a store: write await before what opens it, as in await SqliteStore.open(..)'],
    ['sqlite://x', `${text} await SqliteStore.open('ids.sqlite')`],
    ['mysql://ids:secret@h/ids', `${text} await MysqlStore.open('mysql://..')`],
    ['redis+sentinel://h1,h2/ids', `${text} await RedisStore.open({ url: 'redis+sentinel://..', backing })`],
    ['postgres://ids:secret@h/ids', `${text} await Store.open('postgres://..'), from unalike/stores`],
    ['etcd://h:2379', `${text} await Store.open('etcd://..'), from unalike/stores`],
    ['https://ids', `${text} await RemoteStore.open('http://..')`],
    ['ids.sqlite', `${text} await SqliteStore.open('ids.sqlite')`],
    [null, 'is null, it must be a store'],
    [7, 'is 7, it must be a store'],
    [MemoryStore, 'is the function or class MemoryStore, it must be a store that is open'],
    [new Pool(), 'is of the class Pool without the method'],
    [{ allocate() {}, acquire() {} }, 'is an object without the method'],
  ]) {
    for (const option of ['segments', 'leases']) {
      await assert.rejects(Ids.open({ [option]: given }), (error) => {
        assert.ok(error.message.includes(`${option} ${words}`), error.message);
        assert.ok(!error.isRetryable && error.figures.argument === option);
        return kind('options-invalid')(error);
      });
    }
  }
  await assert.rejects(Ids.open({}), kind('options-invalid'));
});

test('a signal that is none is refused before anything waits', async (t) => {
  const store = new Around(new MemoryStore());
  await store.inner.createTag('ticket', { ...DEFAULT_TAG_OPTIONS, mode: 'ordered' });
  const answer = deferred();
  store.before = () => answer.promise;
  const { ids } = await open(t, { store });
  const orders = await ids.sequence('order');
  const tickets = await ids.sequence('ticket');
  for (const [signal, words] of [
    [new AbortController(), 'signal is an AbortController, it must be an AbortSignal: pass controller.signal'],
    [{}, 'signal is an object, it must be an AbortSignal'],
    [200, 'signal is 200, it must be an AbortSignal'],
  ]) {
    const wrong = (error) => kind('options-invalid')(error) && error.message.startsWith(words);
    await assert.rejects(orders.next({ signal, waitMaxMs: 5 }), wrong);
    await assert.rejects(tickets.next({ signal, waitMaxMs: 5 }), wrong);
    await assert.rejects(ids.sequence('other', {}, { signal }), wrong);
  }
  answer.resolve();
  assert.equal(await orders.next({ signal: null }), 1n);
});

test('a tag is created with the options that are given, and the others as by default', async () => {
  const store = new MemoryStore({ newTags: { start: 1_000n } });
  const { options } = await store.createTag('ticket', { mode: 'ordered' });
  assert.deepEqual(options, { ...DEFAULT_TAG_OPTIONS, mode: 'ordered' });
  assert.deepEqual((await store.openTag('order')).options, { ...DEFAULT_TAG_OPTIONS, start: 1_000n });
  for (const [given, words] of [
    [{ start: 1_000 }, 'its start is the number 1000 (write the bigint 1000n), it must be 1 to 2^63 - 1'],
    [{ step: 100 }, "its step is 100, it must be an object, such as { kind: 'fixed', step: 100n }"],
    [{ step: { fixed: 100n } }, 'its step has no kind undefined: there are "fixed" and "adaptive"'],
    [{ step: { kind: 'fixed', step: 100 } }, 'its step is the number 100 (write the bigint 100n), it must be 1'],
    [{ step: null }, 'its step is null, it must be an object, such as'],
    [{ refill: 0.1 }, "its refill is 0.1, it must be an object, such as { kind: 'share-consumed', percent: 10 }"],
    [{ mode: 'slow' }, 'its mode is "slow", it must be "buffered" or "ordered"'],
  ]) {
    await assert.rejects(store.createTag('other', given), (error) => {
      assert.ok(error instanceof StoreError && error.message.includes(words), error.message);
      return error.kind === 'tag-invalid';
    });
  }
});

test('the errors of another copy of the package are recognised', async (t) => {
  const copy = new URL('../dist/', import.meta.url).href;
  const { StoreError: Theirs } = await import(`${copy}store.js?copy`);
  const { IdsError: TheirIdsError } = await import(`${copy}errors.js?copy`);
  const theirs = new Theirs('tag-unknown', 'no such tag');
  assert.ok(theirs.constructor !== StoreError && theirs instanceof StoreError);
  assert.ok(new TheirIdsError('timeout', 'late') instanceof IdsError);
  for (const other of [new Error('x'), { name: 'StoreError' }, { name: 'StoreError', kind: 'refused' }, null, 'text']) {
    assert.ok(!(other instanceof StoreError) && !(other instanceof IdsError));
  }
  class Narrower extends StoreError {}
  assert.ok(!(theirs instanceof Narrower) && new Narrower('refused', 'x') instanceof StoreError);
  const inner = new MemoryStore();
  const store = new Around(inner);
  store.openTag = async () => {
    throw theirs;
  };
  const { ids } = await open(t, { store });
  await assert.rejects(ids.sequence('order'), (error) => {
    assert.equal(error.storeError, theirs);
    return kind('store')(error) && !error.isRetryable;
  });
});

test('a clock before the layout begins is told with the date', async (t) => {
  const { ids } = await open(t, { now: () => 1_700_000_000_000 });
  const flakes = await ids.snowflake('late', { ...PRESETS.leaf, epochMs: 1_800_000_000_000n });
  await assert.rejects(flakes.next({ waitMaxMs: 100 }), (error) => {
    assert.match(error.message, /at 2027-01-15T08:00:00.0\d\dZ: set the clock, or the layout's epoch is wrong/);
    return kind('clock-before-epoch')(error);
  });
});

test('a layout that cannot be is told with its figures', async (t) => {
  const { ids } = await open(t);
  const wide = ids.snowflake('wide', { ...PRESETS.leaf, timestampBits: 60 });
  await assert.rejects(wide, (error) => kind('layout-invalid')(error) && error.message.includes('sum to 82 bits'));
});

test('what is made and posted in other ways says how it is done', async (t) => {
  const { store, ids } = await open(t);
  assert.throws(() => new Ids({ segments: store }), /write await Ids\.open\(\.\.\)/);
  assert.throws(() => new Formats(), /write await Formats\.load\(\)/);
  assert.throws(() => structuredClone(ids), /each thread opens its own Ids and store; ids can be posted/);
  assert.equal(structuredClone(await (await ids.sequence('order')).next()), 1n);
});
