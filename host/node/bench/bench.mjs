// What ids cost: `npm run bench`. The store is in memory, so that the host and the component are measured, and nothing
// else. Expected on one core of a quiet machine: `tryNext` tens of ns, `await next` 150 to 300, `take` some ns an id.

import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';

import { Ids, MemoryStore } from '../dist/index.js';

const dist = new URL('../dist/', import.meta.url);

/** The best of five, in ns per id. */
async function best(count, act) {
  let least = Number.POSITIVE_INFINITY;
  for (let round = 0; round < 5; round += 1) {
    const began = performance.now();
    await act();
    least = Math.min(least, ((performance.now() - began) * 1e6) / count);
  }
  return least;
}

function say(what, ns) {
  console.log(
    `${what.padEnd(44)} ${ns.toFixed(1).padStart(8)} ns/id ${Math.round(1e9 / ns)
      .toLocaleString('en')
      .padStart(14)} ids/s`,
  );
}

const store = new MemoryStore();
const ids = await Ids.open({ segments: store, leases: store });
const step = { kind: 'fixed', step: 10_000_000n };
const orders = await ids.sequence('order', { step, prefetch: 2 });
await orders.take(1_000_000);

const N = 1_000_000;
say(
  'await next()',
  await best(N, async () => {
    for (let at = 0; at < N; at += 1) {
      await orders.next();
    }
  }),
);
say(
  'tryNext()',
  await best(N, async () => {
    for (let at = 0; at < N; ) {
      if (orders.tryNext() !== undefined) {
        at += 1;
      } else {
        await orders.next();
        at += 1;
      }
    }
  }),
);
say(
  'take(1000), each id looked at',
  await best(N, async () => {
    let sum = 0n;
    for (let at = 0; at < N; at += 1_000) {
      for (const id of await orders.take(1_000)) {
        sum ^= id;
      }
    }
    return sum;
  }),
);
say(
  'take(1000), as runs',
  await best(N, async () => {
    for (let at = 0; at < N; at += 1_000) {
      await orders.take(1_000);
    }
  }),
);
say(
  'take(100000), toArray()',
  await best(N, async () => {
    for (let at = 0; at < N; at += 100_000) {
      (await orders.take(100_000)).toArray();
    }
  }),
);
const flakes = await ids.snowflake('default', 'twitter', { aheadMaxMs: 60_000, horizonMs: 600_000 });
await flakes.next();
say(
  'snowflake: await next(), far ahead of the clock',
  await best(N, async () => {
    for (let at = 0; at < N; at += 1) {
      await flakes.next();
    }
  }),
);
await ids.close();

const code = `
  const began = performance.now();
  const { Ids, MemoryStore } = await import(${JSON.stringify(new URL('index.js', dist).href)});
  const imported = performance.now();
  const ids = await Ids.open({ segments: new MemoryStore() });
  const opened = performance.now();
  await (await ids.sequence('order')).next();
  console.log(JSON.stringify([imported - began, opened - imported, performance.now() - opened]));
`;
const starts = Array.from({ length: 5 }, () =>
  JSON.parse(execFileSync(process.execPath, ['--input-type=module', '-e', code], { encoding: 'utf8' })),
);
const least = [0, 1, 2].map((part) => Math.min(...starts.map((start) => start[part])).toFixed(1));
console.log(`cold start: import ${least[0]} ms, open ${least[1]} ms, first id ${least[2]} ms`);

const sizes = (files) =>
  files.reduce((sum, file) => sum + gzipSync(readFileSync(new URL(file, dist)), { level: 9 }).length, 0);
const kilobytes = (bytes) => `${(bytes / 1024).toFixed(1)} KiB`;
console.log(
  `gzip: core ${kilobytes(sizes(['glue/unalike.js', 'glue/unalike.core.wasm', 'glue/bytes.js']))}` +
    `, formats ${kilobytes(sizes(['glue/unalike-formats.js', 'glue/unalike-formats.core.wasm']))}` +
    `, the host ${kilobytes(
      sizes([
        'all.js',
        'batch.js',
        'component.js',
        'errors.js',
        'formats.js',
        'formatted.js',
        'generator.js',
        'grant-order.js',
        'ids.js',
        'lane.js',
        'layouts.js',
        'memory.js',
        'modules.js',
        'names.js',
        'numbers.js',
        'ordered.js',
        'sequence.js',
        'snowflake.js',
        'storage.js',
        'store.js',
        'tickets.js',
        'wait.js',
        'browser.js',
      ]),
    )}` +
    `, remote ${kilobytes(sizes(['remote.js']))}`,
);
