// What the vectors say nothing of: the faces of formats that are JavaScript's own.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Formats, IdsError, layoutText, PRESETS } from '../dist/index.js';
import { layoutOf } from '../dist/layouts.js';

const formats = await Formats.load();
const ISSUED = new Date('2026-11-22T10:00:00Z');

test('formats write and read', () => {
  const format = formats.format({
    template: 'ORD-{yyyyMMdd}-{id:06}',
    utcOffsetMinutes: 480,
    bits: 19,
    restart: 'day',
  });
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
  assert.equal(
    formats
      .format({ template: '{id}', bits: 31, keys: [{ id: 0, secret: BigInt(`0x${secret}`) }], context: 'order' })
      .number(1n, ISSUED),
    number,
  );
  for (const wrong of ['hunter2', 1n << 128n, 7]) {
    assert.throws(
      () => formats.format({ template: '{id}', keys: [{ id: 0, secret: wrong }] }),
      (error) => error instanceof IdsError && !error.message.includes(String(wrong)),
    );
  }
});

test('faults are told by kind and place', () => {
  assert.throws(
    () => formats.format({ template: 'ORD-{nr}' }),
    (error) => {
      assert.deepEqual(
        [error.kind, error.figures.fault, error.figures.position],
        ['format', 'template-placeholder', 4],
      );
      return true;
    },
  );
  assert.throws(
    () => formats.decode('00000004C9!', 'base62'),
    (error) => error.figures.fault === 'character',
  );
  assert.throws(
    () => formats.encode(0n, 'decimal'),
    (error) => error.kind === 'format',
  );
  assert.throws(
    () => formats.encode(1n, 'base7'),
    (error) => error.kind === 'options-invalid',
  );
  assert.throws(
    () => formats.unpack(1n, 'no-such'),
    (error) => error.kind === 'layout-invalid',
  );
  assert.throws(
    () => formats.decode('\ud800', 'base62'),
    (error) => error.kind === 'format',
  );
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

test('a fault says what is wrong, with which figures, and what to do', () => {
  const of = (options) => () => formats.format(options);
  const secret = '000102030405060708090a0b0c0d0e0f';
  const gene = formats.format({ template: '{id}', bits: 31, geneBits: 4 });
  const narrow = formats.format({ template: 'ORD-{yyyyMMdd}-{id:06}', bits: 19 });
  const wide = { ...PRESETS.leaf, timestampBits: 60 };
  for (const [call, words] of [
    [of({ template: 'ORD-{date}{id}' }), /at byte 4: there is no placeholder \{date\}; there are \{id\}, /],
    [of({ template: '{id}{id}' }), /wrong at byte 4: \{id\} stands there twice: leave one of them out/],
    [of({ template: '{id}-{id:06}' }), /wrong at byte 5: \{id\} stands there twice/],
    [of({ template: '{gene:2}{id}{gene:2}' }), /wrong at byte 12: \{gene\} stands there twice/],
    [of({ template: '{id}{gene:2}', geneBits: 2 }), /the gene is in the id already \(geneBits\)/],
    [of({ template: '{' }), /wrong at byte 0: a brace without its other one; write \{\{ or \}\} for the brace itself/],
    [of({ template: 'ORD' }), /without an id, \{id\} for example, all would be alike/],
    [of({ template: '{id}', restart: 'day' }), /must show the period: .*\{yyyyMMdd\} for a day/],
    [of({ template: '{id}', bits: 64 }), /the bits do not fit: 1 to 63 in all \(bits\)/],
    [of({ template: '{id}', keys: [{ id: 1, secret }] }), /the key 1 has a number, and .* set keyIdBits, 1 to 8/],
    [of({ template: '{id}', keyIdBits: 1, keys: [{ id: 2, secret }] }), /the key 2 is given twice, or /],
    [of({ template: '{id:05}', bits: 31, keys: [{ id: 0, secret }] }), /the template has 5 digits/],
    [of({ template: '{id}', utcOffsetMinutes: 2_000 }), /give -1080 to 1080 minutes/],
    [of({ template: '{id}', utcOffsetMinutes: 1.5 }), /^utcOffsetMinutes is 1.5, it must be a whole number from -1080 to/],
    [of({ template: '{id}', utcOffsetMinutes: 40_000 }), /is 40000, it must be a whole number from -1080 to 1080$/],
    [of({ template: '{id}', bits: 256 }), /^bits is 256, it must be a whole number from 1 to 63$/],
    [of({ template: '{id}', geneBits: -1 }), /^geneBits is -1, it must be a whole number from 0 to 16$/],
    [of({ template: '{id}', keyIdBits: 256 }), /^keyIdBits is 256, it must be a whole number from 0 to 8$/],
    [() => gene.write(5n, ISSUED), /give the shard key that it is taken from/],
    [() => narrow.write(1n << 19n, ISSUED), /outside 1 to 524287, the ids that the format can show/],
    [() => narrow.write(1n, ISSUED, 3n), /leave it out/],
    [() => narrow.write(1n, '2026-11-22'), /^issued is a text, it must be Unix milliseconds/],
    [() => narrow.write(1n, new Date('x')), /^issued is an invalid Date/],
    [() => narrow.write(1n), /^issued is undefined/],
    [() => narrow.read('ORD'), /no text of this format is 3 bytes long/],
    [() => narrow.read('ORD-20261322-000042'), /there is no such date/],
    [() => narrow.read('ORD-20261122-999999'), /the number at position 13 belongs to no id of this format/],
    [() => formats.decode('1000000', 'base62'), /7 bytes long in .*: a text in base62 has 11 characters/],
    [() => formats.decode('007', 'decimal'), /a decimal id has no leading zeros/],
    [() => formats.encode(0n, 'decimal'), /an id is a number from 1 to 9223372036854775807/],
    [() => formats.unpack(2 ** 53, 'leaf'), /above 2\^53 - 1 is not exact, write a bigint/],
    [() => formats.unpack(0n, 'cosid-53'), /the id is outside 1 to 9007199254740991, the ids of this layout/],
    [() => formats.pack({ ticks: 1n, worker: 5_000, sequence: 0 }, 'leaf'), /worker is 5000: .* whose maximum is 1023/],
    [() => formats.pack({ ticks: 0n, worker: 0, sequence: 0 }, 'leaf'), /the id is outside 1 to 9223372036854775807/],
    [() => formats.unpack(1n, wide), /60\/10\/12 .* is not valid: the fields sum to 82 bits/],
    [() => formats.unpack(1n, { ...PRESETS.leaf, epochMs: -1n }), /^epochMs is -1/],
    [() => formats.unpack(1n), /the layout is undefined: give a Layout, or the name of one, such as 'twitter'/],
    [() => formats.idRange('leaf', ISSUED, ISSUED), /the span of time is empty: it must end after it begins/],
    [() => formats.idRange('leaf', 0, 1), /lies before the layout's epoch or after its last tick/],
  ]) {
    assert.throws(call, (error) => {
      assert.ok(error instanceof IdsError, String(error?.stack));
      assert.match(error.message, words);
      return true;
    }, String(words));
  }
});

test('a layout is read as it is written', () => {
  for (const layout of Object.values(PRESETS)) {
    assert.deepEqual(layoutOf(layoutText(layout)), layout);
  }
  for (const text of [
    '41/10/12 epoch 2024-01-01',
    '41/10/12 tick 1ms epoch 2024-01-01T08:00:00+08:00',
    '41/10/12  epoch 2024-01-01T00:00:00.000Z tick 1 ms ',
  ]) {
    assert.deepEqual(layoutOf(text), { ...PRESETS.leaf, epochMs: 1_704_067_200_000n });
  }
  for (const [text, words] of [
    ['41/10 epoch 2024-01-01', /it begins with its widths in bits/],
    ['41/10/5+12 epoch 2024-01-01', /it begins with its widths in bits/],
    ['41/10/12', /the epoch is missing/],
    ['41/10/12 epoch 2024-02-30', /the epoch cannot be read/],
    ['41/10/12 epoch', /the epoch cannot be read/],
    ['41/10/12 epoch 0 epoch 1', /the word "epoch" is unknown or there twice/],
    ['41/10/12 epoch 0 tick 1 h', /the tick must be a whole number of ms or s/],
    ['41/10/12 epoch 0 tick 1.5 ms', /the tick must be a whole number of ms or s/],
    ['60/10/12 epoch 0', /the fields sum to 82 bits/],
  ]) {
    assert.throws(
      () => formats.unpack(1n, text),
      (error) => error.kind === 'layout-invalid' && words.test(error.message),
      text,
    );
  }
});
