// The package in Cloudflare's runtime: ids of Durable Objects and of servers, through kill -9.

import assert from 'node:assert/strict';
import { readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { folderOf, freePort, nextOfRust, Seen, Server } from './fixtures.mjs';
import { OBJECTS, packageModules, text, Workerd } from './workerd.mjs';

const at = (path) => fileURLToPath(new URL(path, import.meta.url));
const VECTORS = at('../../../tests/vectors');
/** How many ids the long test takes. */
const MANY = Number(process.env.UNALIKE_WORKERS_IDS ?? 100_000);

const [ids, faulty, vectors] = await Promise.all(
  ['ids.mjs', 'faulty.mjs', 'vectors.mjs'].map(async (name) => [
    [`test/workers/${name}`, at(`workers/${name}`)],
    ['test/vectors.mjs', at('vectors.mjs')],
    ['test/assertions.mjs', at('assertions.mjs')],
    ...(await packageModules()),
  ]),
);

/** Three isolates, and the objects in a fourth one. */
function isolates(more = []) {
  const worker = { modules: ids, bindings: [OBJECTS, ...more] };
  return { store: { ...worker, objects: true, isOpen: false }, one: worker, two: worker, three: worker };
}
const NAMES = ['one', 'two', 'three'];

/** One isolate that breaks things. */
function breaking() {
  return { store: { modules: faulty, objects: true, bindings: [OBJECTS] } };
}

function idsOf({ runs }) {
  return runs.flatMap(([first, stride, count]) =>
    Array.from({ length: count }, (_, place) => BigInt(first) + BigInt(place) * BigInt(stride)),
  );
}

/** The error that a Worker answers. */
async function toldBy(asking) {
  const error = await asking.then(
    (answer) => assert.fail(`it answered ${JSON.stringify(answer)}`),
    (error) => error,
  );
  assert.ok(error.told !== undefined, error.message);
  return error.told;
}

test('the component conforms in workerd', async (t) => {
  const workerd = await Workerd.start(t, await folderOf(t), { main: { modules: vectors, objects: true } });
  const names = (await readdir(VECTORS)).filter((name) => name.endsWith('.json') && name !== 'leases.json');
  assert.ok(names.length >= 7);
  for (const name of names) {
    const body = await readFile(join(VECTORS, name), 'utf8');
    const { ran, failed } = await workerd.ask('main', `/${name}`, { method: 'POST', body });
    assert.equal(ran, JSON.parse(body).vectors.filter(({ host }) => host === undefined).length, name);
    assert.match(failed, /step [0-9]+/, `${name}: a changed digit went unnoticed`);
  }
});

test(`three isolates draw ${MANY} ids through kill -9, and none comes twice`, async (t) => {
  const folder = await folderOf(t);
  const seen = { order: new Seen(), chat: new Seen(), flakes: new Seen() };
  const PATHS = {
    order: ['/take?tag=order&count=250', '/take?tag=order&count=1', '/take?tag=order&count=40'],
    chat: ['/take?tag=chat&sub=alice&count=25'],
    flakes: ['/flakes?count=50&horizon=1000'],
  };
  let drawn = 0;
  let kills = 0;
  let failures = 0;
  while (drawn < MANY) {
    const workerd = await Workerd.start(t, folder, isolates());
    const names = new Set();
    for (const name of NAMES) {
      names.add((await workerd.ask(name, '/isolate')).name);
    }
    assert.equal(names.size, 3, 'they are isolates');
    const until = drawn + Math.ceil(MANY / 8);
    let isOver = false;
    const draw = async (name, kind) => {
      for (let turn = 0; !isOver; turn += 1) {
        try {
          const taken = idsOf(await workerd.ask(name, PATHS[kind][turn % PATHS[kind].length]));
          seen[kind].add(taken, `of ${kind}`);
          drawn += taken.length;
          if (drawn >= until && !isOver) {
            isOver = true;
            kills += 1;
            // While the others are in the middle of something.
            await workerd.kill();
          }
        } catch (error) {
          // Only the end may come between.
          assert.ok(isOver, error.message);
          failures += 1;
        }
      }
    };
    const kinds = ['order', 'order', 'order', 'chat', 'flakes'];
    await Promise.all(NAMES.flatMap((name) => kinds.map((kind) => draw(name, kind))));
  }
  assert.ok(kills >= 8 && failures >= kills, `${kills} kills, ${failures} calls that were cut`);
  for (const { ids: taken } of Object.values(seen)) {
    assert.ok(taken.size > 1_000);
  }
  const most = [...seen.order.ids].reduce((one, other) => (other > one ? other : one));
  t.diagnostic(`${seen.order.ids.size} ids of order up to ${most}, ${kills} kills`);
});

test('ordered ids ascend over all isolates in real time', async (t) => {
  const folder = await folderOf(t);
  const seen = new Seen();
  const calls = [];
  for (let round = 0; round < 3; round += 1) {
    const workerd = await Workerd.start(t, folder, isolates());
    if (round === 0) {
      assert.equal((await workerd.ask('one', '/create?tag=ticket&mode=ordered')).mode, 'ordered');
    }
    const draw = async (name) => {
      for (let turn = 0; turn < 40; turn += 1) {
        const began = process.hrtime.bigint();
        const taken = idsOf(await workerd.ask(name, `/take?tag=ticket&count=${(turn % 3) + 1}`));
        calls.push({ began, ended: process.hrtime.bigint(), taken });
        seen.add(taken);
      }
    };
    await Promise.all([...NAMES, ...NAMES, ...NAMES].map(draw));
    await workerd.kill();
  }
  assert.equal(calls.length, 3 * 9 * 40);
  const ended = [...calls].sort((one, other) => (one.ended < other.ended ? -1 : 1));
  calls.sort((one, other) => (one.began < other.began ? -1 : 1));
  let greatest = 0n;
  let place = 0;
  for (const { began, taken } of calls) {
    for (; ended[place].ended < began; place += 1) {
      greatest = ended[place].taken.at(-1) > greatest ? ended[place].taken.at(-1) : greatest;
    }
    assert.ok(taken[0] > greatest, `${taken[0]} was handed out after ${greatest}`);
  }
});

test('all isolates show a tag and a snowflake in the format that they had first, through kill -9', async (t) => {
  const folder = await folderOf(t);
  const strict = { modules: ids, bindings: [OBJECTS, text('CREATE', 'no')] };
  const path = (of, template) => `/formatted?${new URLSearchParams({ ...of, template })}`;
  const seen = new Set();
  for (let round = 0; round < 2; round += 1) {
    const workerd = await Workerd.start(t, folder, { ...isolates(), strict });
    for (const of of [{ tag: 'shown' }, { namespace: 'web' }]) {
      for (const name of ['one', 'two']) {
        const { text: shown } = await workerd.ask(name, path(of, 'A{id}'));
        assert.match(shown, /^A\d+$/);
        assert.ok(!seen.has(shown), `${shown} came twice`);
        seen.add(shown);
      }
      assert.equal((await toldBy(workerd.ask('three', path(of, 'B{id}')))).kind, 'format-bound');
    }
    const unknown = await toldBy(workerd.ask('strict', path({ tag: 'unknown' }, 'A{id}')));
    assert.deepEqual([unknown.kind, unknown.store], ['store', 'tag-unknown']);
    assert.match((await workerd.ask('strict', path({ tag: 'shown' }, 'A{id}'))).text, /^A\d+$/);
    await workerd.kill();
  }
});

test('numbers stay whole up to 2^63 - 1', async (t) => {
  const workerd = await Workerd.start(t, await folderOf(t), isolates());
  const start = (1n << 62n) + 12_345_678_901n;
  await workerd.ask('one', `/create?tag=great&start=${start}`);
  const [first, second] = idsOf(await workerd.ask('one', '/take?tag=great&count=2'));
  assert.deepEqual([first, second], [start, start + 1n]);
  const segment = await workerd.ask('two', `/allocate?tag=great&count=7&least=${start + 1_000_001n}`);
  assert.deepEqual(segment, {
    start: String(start + 1_000_001n),
    end: String(start + 1_000_008n),
    stride: '1',
    generation: '0',
    version: segment.version,
  });
  const back = { tag: 'great', start: start + 1_000_003n, version: segment.version };
  const path = `/release?${new URLSearchParams(back)}`;
  assert.equal((await workerd.ask('three', path)).done, true);
  assert.equal((await workerd.ask('three', path)).done, false, 'another version');
  assert.equal((await workerd.ask('two', '/allocate?tag=great&count=1')).start, String(start + 1_000_003n));
  const last = await workerd.ask('two', `/allocate?tag=great&count=100&least=${(1n << 63n) - 3n}`);
  assert.deepEqual([last.start, last.end], [String((1n << 63n) - 3n), String(1n << 63n)]);
  assert.equal((await toldBy(workerd.ask('two', '/allocate?tag=great&count=1'))).kind, 'exhausted');
});

test('what is refused is told by its kind', async (t) => {
  const folder = await folderOf(t);
  const workerd = await Workerd.start(t, folder, {
    ...isolates(),
    strict: { modules: ids, bindings: [OBJECTS, text('CREATE', 'no')] },
    pinned: { modules: ids, bindings: [OBJECTS, text('STORE', '0123456789abcdef0123456789abcdef')] },
  });
  assert.equal((await toldBy(workerd.ask('strict', '/take?tag=none'))).store, 'tag-unknown');
  await workerd.ask('strict', '/create?tag=some');
  assert.deepEqual(idsOf(await workerd.ask('strict', '/take?tag=some')), [1n]);
  assert.deepEqual(idsOf(await workerd.ask('strict', '/take?tag=some&sub=key')), [1n]);
  assert.equal((await toldBy(workerd.ask('one', '/create?tag=some'))).kind, 'tag-exists');
  for (const tag of ['redis-leases', 'unalike-new-names', 'unalike-formats', ' Redis-Leases']) {
    const path = `?tag=${encodeURIComponent(tag)}&count=1`;
    assert.equal((await toldBy(workerd.ask('one', `/allocate${path}`))).kind, 'tag-invalid');
    assert.equal((await toldBy(workerd.ask('one', `/create${path}`))).kind, 'tag-invalid');
    assert.equal((await toldBy(workerd.ask('one', `/take${path}`))).kind, 'name-invalid');
  }
  assert.equal((await toldBy(workerd.ask('one', '/take?count=0'))).kind, 'number-invalid');
  const { store } = await workerd.ask('one', '/identity');
  const told = await toldBy(workerd.ask('pinned', '/take?tag=some'));
  assert.equal(told.store, 'refused');
  assert.match(told.message, new RegExp(`${store}.*0123456789abcdef0123456789abcdef was expected`, 's'));
});

test('leases keep to the rules of all stores', async (t) => {
  const workerd = await Workerd.start(t, await folderOf(t), breaking());
  const acquire = (query) => workerd.ask('store', `/acquire?namespace=few&bits=1&${query}`);
  const one = await acquire('');
  const two = await acquire('');
  assert.deepEqual([one.worker, two.worker].sort(), [0, 1]);
  assert.notEqual(one.grantId, two.grantId);
  assert.ok(BigInt(one.until) - BigInt(one.validUntilMs) > 50_000n, 'it was extended');
  assert.equal(one.other, 'lease-lost');
  assert.equal((await toldBy(acquire(''))).kind, 'workers-exhausted');
  assert.equal((await toldBy(acquire('skew=60000'))).kind, 'clock-skew');
  assert.equal((await toldBy(acquire('epoch=5'))).kind, 'layout-mismatch');
  const end = { namespace: 'few', worker: one.worker, grant: one.grantId, end: String(Date.now()) };
  const release = () => workerd.ask('store', `/end?${new URLSearchParams(end)}`);
  assert.equal((await release()).done, true);
  assert.equal((await release()).done, false, 'it has ended');
  const three = await acquire('');
  assert.equal(three.worker, one.worker);
  assert.ok(BigInt(three.notBeforeMs) >= BigInt(end.end), 'not before its predecessor ended');
});

test('an object answers only what it understands, and only under its own name', async (t) => {
  const workerd = await Workerd.start(t, await folderOf(t), breaking());
  const raw = (query) => workerd.ask('store', `/raw?name=unalike:ids:tag:order&${query}`);
  const { id } = await workerd.ask('store', '/next?tag=order');
  assert.equal(id, '1');
  const { mark, store, value } = await raw('');
  assert.equal(value.start, '11');
  assert.equal((await raw(`mark=${mark}&store=${store}`)).value.start, '21');
  for (const [query, message] of [
    ['protocol=2', /speaks version 2 of the protocol, and the object 1: deploy both/],
    ['object=unalike:ids:tag:other', /was asked for/],
    [`mark=${'0'.repeat(32)}`, new RegExp(`was ${'0'.repeat(32)}, and is ${mark}: its storage was deleted`)],
    [`store=${'0'.repeat(32)}`, new RegExp(`is of the store ${store}, and ${'0'.repeat(32)} was expected`)],
    ['method=nonsense', /knows no method "nonsense"/],
  ]) {
    const told = await raw(query);
    assert.equal(told.kind, 'refused');
    assert.match(told.message, message);
  }
  assert.equal((await raw('')).value.start, '31', 'nothing was granted to those');
  const other = (name) => workerd.ask('store', `/raw?${new URLSearchParams({ name })}`);
  assert.match((await other('unalike:Ids:tag:order')).message, /is no name of an object/);
  assert.equal((await other('unalike:ids:tag:redis-leases')).kind, 'tag-invalid');
  assert.equal((await other('unalike:ids:tag:new')).isUnknown, true, 'the root has to know it first');

  const few = (tag, max = 2) => workerd.ask('store', `/few?${new URLSearchParams({ tag, max })}`);
  await few('a');
  await few('b');
  assert.equal((await toldBy(few('c'))).kind, 'tag-limit');
  assert.equal((await few('a\u001fkey')).start, '1', 'sub-keys do not count');
  assert.equal((await few('c', 3)).start, '1');
  for (const query of ['', '?name=Big', '?name=ids&pin=1', '?name=ids&max=-1']) {
    assert.equal((await toldBy(workerd.ask('store', `/wrong${query}`))).kind, 'refused', query);
  }
  const unknown = await toldBy(workerd.ask('store', '/wrong?name=ids&tags=5'));
  assert.match(unknown.message, /options has "tags", which is not known: there are name, store, createTags/);
});

test('requests of one isolate share what is buffered, and those that go away leave nobody waiting', async (t) => {
  const workerd = await Workerd.start(t, await folderOf(t), breaking());
  const ask = (query, options) => workerd.ask('store', query, options);
  await ask('/latency?ms=30');
  const seen = new Seen();
  const many = await Promise.all(Array.from({ length: 60 }, () => ask('/slow?tag=any')));
  seen.add(many.map(({ id }) => BigInt(id)));
  assert.ok(many[0].calls < 60, 'a grant serves several requests');
  // The next grant never comes, and whoever asked for it goes away.
  await ask('/hang?after=1');
  const leaving = new AbortController();
  const left = ask('/slow?tag=gone', { signal: leaving.signal }).catch((error) => error.name);
  await ask('/hanging');
  const others = Array.from({ length: 5 }, () => ask('/slow?tag=gone'));
  leaving.abort();
  assert.equal(await left, 'AbortError');
  const served = await Promise.all(others);
  assert.equal(new Set(served.map(({ id }) => id)).size, 5);
  // One that is cut, with all that it began.
  await ask('/hang?after=1');
  const cut = ask('/slow?tag=cut&leave=200').catch(({ status }) => status);
  await ask('/hanging');
  const rest = await Promise.all(Array.from({ length: 5 }, () => ask('/slow?tag=cut')));
  assert.equal(await cut, 500);
  assert.equal(new Set(rest.map(({ id }) => id)).size, 5);
  // It gives up before the store does: those that come later are served.
  await ask('/hang?after=1');
  assert.equal((await toldBy(ask('/slow?tag=late&wait=50'))).kind, 'timeout');
  await ask('/slow?tag=late');
});

test('a sequence that was being closed by a request that is cut is opened again', async (t) => {
  const workerd = await Workerd.start(t, await folderOf(t), breaking());
  const ask = (query) => workerd.ask('store', query);
  const first = BigInt((await ask('/slow?tag=some')).id);
  // A grant that never comes keeps the close from ending.
  await ask('/hang?after=1');
  assert.equal((await toldBy(ask('/slow?tag=other&wait=50'))).kind, 'timeout');
  assert.equal(await ask('/close?tag=some').catch(({ status }) => status), 500);
  assert.ok(BigInt((await ask('/slow?tag=some')).id) > first);
});

test('the rounds of an ordered tag go on when whoever followed them goes away', async (t) => {
  const workerd = await Workerd.start(t, await folderOf(t), breaking());
  const ask = (query, options) => workerd.ask('store', query, options);
  await ask('/latency?ms=20');
  const take = (options) => ask('/slow?tag=round&mode=ordered', options);
  const seen = new Seen();
  const waves = [];
  for (let wave = 0; wave < 8; wave += 1) {
    waves.push(...Array.from({ length: 6 }, () => take()));
    await ask('/latency?ms=20');
  }
  const taken = await Promise.all(waves);
  seen.add(taken.map(({ id }) => BigInt(id)));
  assert.ok(taken.at(-1).calls < 48, 'a round serves several requests');
  await ask('/hang?after=1');
  const leaving = new AbortController();
  const left = take({ signal: leaving.signal }).catch((error) => error.name);
  await ask('/hanging');
  const others = [take(), take()];
  leaving.abort();
  assert.equal(await left, 'AbortError');
  seen.add((await Promise.all([...others, take()])).map(({ id }) => BigInt(id)));
  // One that is cut once it is served: the next one follows the rounds.
  const served = ask('/slow?tag=round&mode=ordered&leave=served').catch(({ status }) => status);
  await ask('/latency?ms=20');
  const later = [take(), take(), take()];
  assert.equal(await served, 500);
  seen.add((await Promise.all(later)).map(({ id }) => BigInt(id)));
  // One that is cut while it follows them for itself alone, and then those that come.
  await ask('/hang?after=1');
  const path = '/slow?tag=round&mode=ordered&wait=2000';
  assert.equal(await ask(`${path}&leave=200`).catch(({ status }) => status), 500);
  let told = 0;
  for (let turn = 0; turn < 20; turn += 1) {
    const answer = await ask(path).catch((error) => error.told);
    told += answer.kind === 'timeout' ? 1 : 0;
    if (answer.id !== undefined) {
      seen.add([BigInt(answer.id)]);
      break;
    }
  }
  assert.ok(told <= 2, `${told} calls waited for whoever was gone`);
  seen.add([BigInt((await take()).id)]);
});

test('an answer that is lost is burnt', async (t) => {
  const workerd = await Workerd.start(t, await folderOf(t), breaking());
  const object = (name, path, body) =>
    workerd.ask('store', `/object?${new URLSearchParams({ name: `unalike:ids:${name}`, path, body })}`);
  const allocate = () => workerd.ask('store', '/allocate?tag=order&count=10');
  assert.deepEqual(await allocate(), { start: '1', end: '11', version: '1' });
  await object('tag:order', 'lose', 'allocate');
  assert.equal((await toldBy(allocate())).kind, 'outcome-unknown');
  assert.deepEqual(await object('tag:order', 'dump', 'order watermark version'), [{ watermark: '20', version: '2' }]);
  assert.deepEqual(await allocate(), { start: '21', end: '31', version: '3' });
  await object('tag:order', 'lose', 'allocate');
  const { id } = await workerd.ask('store', '/next?tag=order');
  assert.ok(BigInt(id) > 40n, `${id}: what was granted to a lost answer is not handed out`);
  await object('leases:events', 'lose', 'acquire');
  await workerd.ask('store', '/next?namespace=events');
});

test('an object that lost its storage is refused until it is restored', async (t) => {
  const folder = await folderOf(t);
  const services = { ...breaking(), other: { modules: ids, bindings: [OBJECTS] } };
  let workerd = await Workerd.start(t, folder, services);
  const remove = (name) =>
    workerd.ask('store', `/object?${new URLSearchParams({ name: `unalike:ids:${name}`, path: 'delete', body: '' })}`);
  const next = (name, query) => workerd.ask(name, query);
  const [first] = idsOf(await next('other', '/take?tag=order'));
  await next('store', '/next?tag=order');
  await next('store', '/next?namespace=events');
  assert.equal(first, 1n);
  const { store } = await next('other', '/identity');
  await remove('tag:order');
  await remove('leases:events');
  // Who knew the object, who did not, and whoever comes after a restart.
  assert.equal((await toldBy(next('store', '/allocate?tag=order&count=1'))).kind, 'refused');
  assert.match((await toldBy(next('other', '/allocate?tag=order&count=1'))).message, /storage was deleted/);
  await workerd.kill();
  workerd = await Workerd.start(t, folder, services);
  const told = await toldBy(next('other', '/take?tag=order'));
  assert.equal(told.store, 'refused');
  assert.match(told.message, /its storage was deleted, and its numbers would repeat.*restoreTag/s);
  assert.match((await toldBy(next('store', '/next?namespace=events'))).message, /use another namespace/);
  await next('other', '/restore?tag=order&start=5000');
  assert.deepEqual(idsOf(await next('other', '/take?tag=order')), [5_000n]);
  assert.deepEqual(idsOf(await next('other', '/take?tag=order&sub=any')), [5_000n], 'so do its sub-keys');
  assert.ok(BigInt((await next('store', '/next?tag=order')).id) > 5_000n);
  assert.equal((await toldBy(next('other', '/restore?tag=order&start=1'))).kind, 'tag-exists');
  assert.equal((await next('other', '/identity')).store, store);

  // All of them are gone: only who names the store hears of it.
  await workerd.kill();
  await rm(join(folder, 'disk'), { recursive: true });
  const pinned = { modules: ids, bindings: [OBJECTS, text('STORE', store)] };
  workerd = await Workerd.start(t, folder, { ...services, pinned });
  assert.match((await toldBy(next('pinned', '/take?tag=order'))).message, new RegExp(`was ${store}`));
  assert.deepEqual(idsOf(await next('other', '/take?tag=order')), [1n]);
  assert.equal((await toldBy(next('pinned', '/take?tag=order'))).store, 'refused');
});

test('calls end in objects that let nothing else in, not even the answer to a call before', async (t) => {
  const mine = '(name = "MINE", durableObjectNamespace = (className = "Mine", serviceName = "mine"))';
  const modules = [['test/workers/blocks.mjs', at('workers/blocks.mjs')], ...(await packageModules())];
  const workerd = await Workerd.start(t, await folderOf(t), {
    store: { modules: ids, objects: true, isOpen: false, bindings: [OBJECTS] },
    mine: { modules, objects: 'Mine', bindings: [OBJECTS, mine] },
  });
  for (const tag of ['order', 'ticket']) {
    const asked = Array.from({ length: 30 }, (_, place) =>
      workerd.ask('mine', `/?tag=${tag}&name=o${place % 5}&block=${place % 3 === 0 ? 'no' : 'yes'}`),
    );
    const ended = await Promise.all(asked);
    // A round whose driver is not let in is given up by the next one, and its callers are told so.
    const told = ['timeout', 'store', ...(tag === 'ticket' ? ['rebuilt'] : [])];
    // Once nobody keeps anything out any more, ids come.
    while (ended.at(-1).id === undefined) {
      ended.push(await workerd.ask('mine', `/?tag=${tag}&name=last&block=no`));
    }
    const taken = ended.flatMap(({ id = [] }) => id);
    assert.equal(new Set(taken).size, taken.length, `${tag}: ${taken}`);
    assert.deepEqual(ended.filter(({ id, kind }) => id === undefined && !told.includes(kind)), [], tag);
  }
});

test('an old compatibility date is refused, under which requests cannot wake each other', async (t) => {
  const own = '(name = "IDS", durableObjectNamespace = "UnalikeObject")';
  const worker = { modules: ids, objects: true, bindings: [own] };
  await assert.rejects(
    Workerd.start(t, await folderOf(t), { main: { ...worker, date: '2024-10-01', flags: ['nodejs_compat'] } }),
    /set compatibility_date to 2024-10-14 or later/,
  );
});

test('ids of servers, through kill -9 of both', async (t) => {
  const folder = await folderOf(t);
  const store = `sqlite://${join(folder, 'ids.sqlite')}`;
  const port = await freePort();
  const seen = new Seen();
  const flakes = new Seen();
  for (let round = 0; round < 3; round += 1) {
    const server = await Server.start(t, store, { port });
    const worker = { modules: ids, bindings: [text('SERVERS', server.url)] };
    const workerd = await Workerd.start(t, folder, { one: worker, two: worker });
    const draw = async (name) => {
      for (let turn = 0; turn < 30; turn += 1) {
        seen.add(idsOf(await workerd.ask(name, '/take?tag=order&count=70')));
        flakes.add(idsOf(await workerd.ask(name, '/flakes?namespace=default&count=30')));
      }
    };
    await Promise.all(['one', 'two', 'one', 'two'].map(draw));
    seen.add(await nextOfRust(store, 'order', 10));
    await server.kill();
    // What is buffered lasts for a while; then the store is missed.
    let told;
    while (told === undefined) {
      told = await workerd.ask('one', '/take?tag=order&count=5000').then(
        (answer) => void seen.add(idsOf(answer)),
        (error) => error.told,
      );
    }
    assert.equal(told.kind, 'timeout');
    assert.equal(told.isRetryable, true);
    const again = await Server.start(t, store, { port });
    seen.add(idsOf(await workerd.ask('one', '/take?tag=order&count=70')));
    await again.kill();
    await workerd.kill();
  }
  assert.ok(seen.ids.size > 3 * 4 * 30 * 70);
});
