// What the vectors say nothing of: the faces of formats that are JavaScript's own.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Formats, IdsError, layoutText, PRESETS } from '../dist/index.js';

const formats = await Formats.load();
const ISSUED = new Date('2026-11-22T10:00:00Z');

test('formats write and read', () => {
  const format = formats.format({ template: 'ORD-{yyyyMMdd}-{id:06}', utcOffsetMinutes: 480, bits: 19, restart: 'day' });
  assert.equal(format.write(42n, ISSUED), 'ORD-20261122-000042');
  assert.equal(format.period(ISSUED.getTime()), '2026-11-22');
  const { id, span } = format.read('ORD-20261122-000042');
  assert.deepEqual([id, span.untilMs - span.fromMs], [42n, 86_400_000n]);
  assert.equal(format.idMax, (1n << 19n) - 1n);
});

test('keys permute, and no message shows them', () => {
  const secret = '000102030405060708090a0b0c0d0e0f';
  const format = formats.format({ template: '{id}', bits: 31, keys: [{ id: 0, secret }], context: 'order' });
  const number = format.number(1n, ISSUED);
  assert.notEqual(number, 1n);
  assert.equal(format.original(number).id, 1n);
  assert.equal(formats.format({ template: '{id}', bits: 31, keys: [{ id: 0, secret: BigInt(`0x${secret}`) }],
    context: 'order' }).number(1n, ISSUED), number);
  for (const wrong of ['hunter2', 1n << 128n, 7]) {
    assert.throws(() => formats.format({ template: '{id}', keys: [{ id: 0, secret: wrong }] }),
      (error) => error instanceof IdsError && !error.message.includes(String(wrong)));
  }
});

test('faults are told by kind and place', () => {
  assert.throws(() => formats.format({ template: 'ORD-{nr}' }), (error) => {
    assert.deepEqual([error.kind, error.figures.fault, error.figures.position], ['format', 'template-placeholder', 4]);
    return true;
  });
  assert.throws(() => formats.decode('00000004C9!', 'base62'), (error) => error.figures.fault === 'character');
  assert.throws(() => formats.encode(0n, 'decimal'), (error) => error.kind === 'format');
  assert.throws(() => formats.encode(1n, 'base7'), (error) => error.kind === 'options-invalid');
  assert.throws(() => formats.unpack(1n, 'no-such'), (error) => error.kind === 'layout-invalid');
  assert.throws(() => formats.decode('\ud800', 'base62'), (error) => error.kind === 'format');
});

test('layouts have names and a text', () => {
  assert.equal(layoutText(PRESETS.twitter), '41/5+5/12 epoch 1288834974657 tick 1 ms');
  assert.equal(layoutText(PRESETS.sonyflake), '39/8/16 sequence-first epoch 1735689600000 tick 10 ms');
  const parts = formats.unpack(1_169_786_042_799_259_000n, 'leaf');
  assert.deepEqual(parts, { ticks: 278_898_726_177n, worker: 39, sequence: 3448 });
  assert.equal(formats.pack(parts, PRESETS.leaf), 1_169_786_042_799_259_000n);
  const [from, until] = formats.idRange('twitter', ISSUED, new Date(ISSUED.getTime() + 1));
  assert.equal(until - from, (1n << 22n) - 1n);
});
