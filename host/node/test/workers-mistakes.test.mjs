// What newcomers get wrong in Cloudflare's runtime, and what they are told: which value, and what to do.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { folderOf } from './fixtures.mjs';
import { OBJECTS, packageModules, Workerd } from './workerd.mjs';

const mistakes = fileURLToPath(new URL('workers/mistakes.mjs', import.meta.url));

const TOLD = [
  ['restore without options', 'say where the tag "order" goes on'],
  ['restore without a start', 'say where the tag "order" goes on: { start: 5_000_000n }, above all that was granted'],
  ['restore at undefined', 'say where the tag "order" goes on'],
  ['pin that is not set', 'store is undefined, it must be 32 hexadecimal digits'],
  ['pin under another name', 'options has "identity", which is not known: there are name, store,'],
  ['name that is a number', 'name is 5, it must be a text'],
  ['options that are a text', 'options is a text, it must be an object'],
  ['flag that is a text', 'createTags is "no", it must be true or false'],
  ['new tags that are halves', 'newTags are not valid: its step is the number 5 (write the bigint 5n)'],
  ['tag options that are a number', 'its options are 5, they must be an object'],
  ['no store', 'no store was given: openIds({ segments: store, leases: store })'],
  ['binding in the place of a store', 'segments is a binding of Durable Objects, it must be a store: new DurableStore('],
  ['class in the place of a store', 'segments is the function or class DurableStore'],
  ['object whose class is another', 'its class is another one than UnalikeObject'],
  ['class without SQLite', 'new_sqlite_classes'],
  ['class without SQLite, by ids', 'new_sqlite_classes'],
];

test('mistakes are told by what is wrong, and grant nothing', async (t) => {
  const bindings = [
    OBJECTS,
    '(name = "PLAIN", durableObjectNamespace = (className = "UnalikeObject", serviceName = "plain"))',
    '(name = "OTHER", durableObjectNamespace = (className = "Other", serviceName = "other"))',
  ];
  const modules = [['test/workers/mistakes.mjs', mistakes], ...(await packageModules())];
  const store = { modules, objects: true, bindings };
  const workerd = await Workerd.start(t, await folderOf(t), {
    store,
    plain: { ...store, enableSql: false, isOpen: false },
    other: { modules: [['other.mjs', fileURLToPath(new URL('workers/other.mjs', import.meta.url))]], objects: 'Other',
      isOpen: false },
  });
  const make = (body) => workerd.ask('store', '/', { method: 'POST', body });
  for (const [mistake, words] of TOLD) {
    const { message = '', kind, brought } = await make(mistake);
    assert.ok(message.includes(words), `${mistake}: ${message} ${JSON.stringify(brought)}`);
    assert.ok(kind !== undefined && kind !== 'outcome-unknown', `${mistake}: ${kind}`);
  }
  assert.deepEqual((await make('good ones')).brought, { mode: 'ordered', step: '10' });
});
