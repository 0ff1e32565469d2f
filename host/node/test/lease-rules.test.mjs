// The rules of leases answer what Rust's answer, case by case: `tests/vectors/leases.json`.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import * as rules from '../dist/lease-rules.js';
import { StoreError } from '../dist/store.js';

const file = JSON.parse(readFileSync(new URL('../../../tests/vectors/leases.json', import.meta.url), 'utf8'));
const U64_MAX = (1n << 64n) - 1n;

const layouts = new Map(
  file.layouts.map(({ name, layout }) => [
    name,
    {
      timestampBits: layout['timestamp-bits'],
      datacenterBits: layout['datacenter-bits'],
      workerBits: layout['worker-bits'],
      sequenceBits: layout['sequence-bits'],
      order: layout.order,
      epochMs: BigInt(layout['epoch-ms']),
      tickMs: layout['tick-ms'],
    },
  ]),
);

function layoutOf(name) {
  const layout = layouts.get(name);
  assert(layout, `there is no layout ${name}`);
  return layout;
}

const used = (value) => (value === null ? null : { worker: value[0], endMs: BigInt(value[1]) });
const listed = ({ worker, endMs }) => [worker, `${endMs}`];
const clocks = (args) => ({ holderMs: BigInt(args.holder), storeMs: BigInt(args.store) });
const limits = (maxHorizon, maxSkew) => ({
  maxHorizonMs: maxHorizon === undefined ? rules.DEFAULT_LEASE_LIMITS.maxHorizonMs : BigInt(maxHorizon),
  maxSkewMs: maxSkew === undefined ? rules.DEFAULT_LEASE_LIMITS.maxSkewMs : BigInt(maxSkew),
});

function binding(args, layout = layoutOf(args.layout)) {
  return new rules.NamespaceBinding(layout, BigInt(args['max-horizon'] ?? 1), BigInt(args.floor ?? 0));
}

const text = (value) => (value === null ? null : `${value}`);

/** A value, or the kind of an error and what it says. */
function result(call, expected) {
  try {
    return { ok: call() ?? null };
  } catch (error) {
    if (error instanceof StoreError) {
      const message = expected?.err?.message === null ? null : error.message;
      return { err: { kind: error.kind, message } };
    }
    throw error;
  }
}

const CALLS = {
  rfc3339: (args) => rules.rfc3339(BigInt(args.at)),
  'round-up': (args) => text(rules.roundUpMs(layoutOf(args.layout), BigInt(args.at))),
  limits: (args, expected) =>
    result(() => rules.validateLimits(limits(args['max-horizon'], args['max-skew'])), expected),
  'check-clocks': (args, expected) =>
    result(() => rules.checkClocks(limits(undefined, args['max-skew']), clocks(args)), expected),
  'first-use': (args, expected) =>
    result(() => {
      const { layout, maxHorizonMs, floorMs } = rules.NamespaceBinding.firstUse(
        layoutOf(args.layout),
        limits(args['max-horizon']),
      );
      const figures = {
        timestamp_bits: layout.timestampBits,
        datacenter_bits: layout.datacenterBits,
        worker_bits: layout.workerBits,
        sequence_bits: layout.sequenceBits,
        sequence_first: layout.order === 'sequence-first' ? 1 : 0,
        epoch_ms: layout.epochMs,
        tick_ms: layout.tickMs,
        max_horizon_ms: maxHorizonMs,
        floor_ms: floorMs,
        version: 1,
      };
      return Object.fromEntries(Object.entries(figures).map(([name, figure]) => [name, text(figure)]));
    }, expected),
  'check-layout': (args, expected) =>
    result(() => binding(args, layoutOf(args.bound)).checkLayout(args.namespace, layoutOf(args.offered)), expected),
  'check-quarantine': (args, expected) =>
    result(
      () => binding(args, layoutOf('twitter')).checkQuarantine(args.namespace, BigInt(args.store)),
      expected,
    ),
  grant: (args, expected) =>
    result(() => {
      const { startMs, endMs } = binding(args).grant(
        BigInt(args['recorded-end']),
        clocks(args),
        BigInt(args.horizon),
      );
      return [text(startMs), text(endMs)];
    }, expected),
  'extended-end': (args) =>
    text(binding(args).extendedEndMs(BigInt(args['valid-until']), BigInt(args.store), BigInt(args.horizon))),
  'released-end': (args) => {
    const lease = { notBeforeMs: BigInt(args['not-before']), validUntilMs: BigInt(args['valid-until']) };
    return text(binding(args).releasedEndMs(lease, BigInt(args.end)));
  },
  choose: (args) => {
    const candidates = {
      workers: Number(args.workers),
      used: Number(args.used),
      preferred: used(args.preferred),
      previous: used(args.previous),
      oldest: used(args.oldest),
    };
    const choice = rules.choose(candidates, BigInt(args.clock), BigInt(args.random));
    switch (choice.kind) {
      case 'worker':
        return { worker: listed(choice.used) };
      case 'never-used':
        return { 'never-used': text(choice.nth) };
      case 'exhausted':
        return { exhausted: text(choice.freeAtMs) };
    }
  },
  'nth-never-used': (args) => rules.nthNeverUsed(BigInt(args.nth), args.used),
  'validate-acquire': (args, expected) =>
    result(
      () =>
        rules.validateAcquire({
          namespace: args.namespace,
          layout: layoutOf(args.layout),
          holder: args.holder,
          preferredWorker: args.preferred,
          nowMs: 0n,
          horizonMs: BigInt(args.horizon),
        }),
      expected,
    ),
  'validate-extend': (args, expected) =>
    result(
      () =>
        rules.validateExtend({
          namespace: args.namespace,
          layout: layoutOf(args.layout),
          worker: 0,
          grantId: 1n,
          nowMs: 0n,
          horizonMs: BigInt(args.horizon),
        }),
      expected,
    ),
};

test('the file is of these rules, and its layouts are written as Rust writes them', () => {
  assert.equal(file.rules, 'leases');
  for (const { name, text } of file.layouts) {
    assert.equal(rules.faultOfLayout(layoutOf(name)), null);
    assert.equal(rules.layoutText(layoutOf(name)), text);
  }
});

for (const call of Object.keys(CALLS)) {
  test(`${call} answers as in Rust`, () => {
    for (const { args, returns } of file.cases.filter((known) => known.call === call)) {
      assert.deepEqual(CALLS[call](args, returns), returns, `${call} of ${JSON.stringify(args)}`);
    }
  });
}

/** What only the stores in Rust do: they keep figures, and know of clocks that were set. */
const OF_RUST = ['choose-worker', 'expiry', 'read-figures'];

test('all calls have cases, and there are hundreds', () => {
  const calls = [...Object.keys(CALLS), ...OF_RUST].sort();
  assert.deepEqual([...new Set(file.cases.map((known) => known.call))].sort(), calls);
  const cases = file.cases.filter((known) => !OF_RUST.includes(known.call)).length;
  assert(cases > 700, `${cases} cases are not all there are`);
});

test('numbers and layouts that do not fit are refused', () => {
  const acquire = {
    namespace: 'default',
    layout: layoutOf('twitter'),
    holder: '',
    preferredWorker: null,
    nowMs: 0n,
    horizonMs: 60_000n,
  };
  const twitter = layoutOf('twitter');
  for (const wrong of [
    { nowMs: -1n },
    { nowMs: U64_MAX + 1n },
    { nowMs: 5 },
    { horizonMs: U64_MAX + 1n },
    { horizonMs: 60_000 },
    { preferredWorker: 1.5 },
    { preferredWorker: -1 },
    { namespace: '\ud800' },
    { namespace: 7 },
    { layout: { ...twitter, workerBits: 5.5 } },
    { layout: { ...twitter, timestampBits: 42 } },
    { layout: { ...twitter, order: 'up' } },
    { layout: { ...twitter, tickMs: 2 ** 32 } },
    { layout: { ...twitter, tickMs: 0 } },
    { layout: { ...twitter, epochMs: -1n } },
    { layout: { ...twitter, epochMs: 0 } },
  ]) {
    assert.throws(() => rules.validateAcquire({ ...acquire, ...wrong }), { kind: 'refused' }, Object.keys(wrong)[0]);
  }
  rules.validateAcquire(acquire);
});

test('random numbers have all their bits', () => {
  let seen = 0n;
  for (let at = 0; at < 200; at += 1) {
    seen |= rules.randomBits(16);
    assert(rules.randomBits(8) <= U64_MAX);
  }
  assert.equal(seen, (1n << 128n) - 1n);
});
