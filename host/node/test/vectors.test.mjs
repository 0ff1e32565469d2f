// The conformance vectors, all of them.

import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import { test } from 'node:test';

import { PRESETS } from '../dist/index.js';
import { runFile } from './vectors.mjs';

const folder = new URL('../../../tests/vectors/', import.meta.url);
// The rules of leases are of the stores: lease-rules.test.mjs.
const names = (await readdir(folder)).filter((name) => name.endsWith('.json') && name !== 'leases.json');
const read = async (name) => JSON.parse(await readFile(new URL(name, folder), 'utf8'));

test('there are files', () => {
  assert.deepEqual(names.sort(), [
    'formats.json', 'hosts.json', 'layouts.json', 'ordered.json', 'sequences.json', 'snowflakes.json', 'texts.json',
  ]);
});

for (const name of names) {
  test(`the component conforms: ${name}`, async () => {
    const file = await read(name);
    const expected = file.vectors.filter(({ host }) => host === undefined).length;
    assert.equal(await runFile(name, file), expected);
  });

  test(`a changed digit fails: ${name}`, async () => {
    const file = await read(name);
    // The last digit of a number that is expected, in several places of the file.
    const places = [];
    for (const { host, steps } of file.vectors) {
      for (const step of host === undefined ? steps : []) {
        const text = JSON.stringify(step.returns ?? null);
        if (/"[0-9]+"/.test(text)) {
          places.push(step);
        }
      }
    }
    assert.ok(places.length > 3, 'there are numbers');
    for (const step of [places[0], places[Math.floor(places.length / 2)], places.at(-1)]) {
      const kept = step.returns;
      const changed = JSON.stringify(kept).replace(/([0-9])"/, (_, digit) => `${(Number(digit) + 1) % 10}"`);
      step.returns = JSON.parse(changed);
      await assert.rejects(runFile(name, file), /step [0-9]+/);
      step.returns = kept;
    }
  });

  test(`an unknown key fails: ${name}`, async () => {
    const file = await read(name);
    file.vectors[0].steps[0].later = true;
    await assert.rejects(runFile(name, file), /unknown keys/);
  });
}

test('the presets are those of the vectors', async () => {
  const { presets } = await read('layouts.json');
  const ours = Object.entries(PRESETS).map(([name, layout]) => ({
    name,
    layout: {
      'datacenter-bits': layout.datacenterBits,
      'epoch-ms': String(layout.epochMs),
      order: layout.order,
      'sequence-bits': layout.sequenceBits,
      'tick-ms': layout.tickMs,
      'timestamp-bits': layout.timestampBits,
      'worker-bits': layout.workerBits,
    },
  }));
  assert.deepEqual(ours, presets);
});
