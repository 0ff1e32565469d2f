// Figures of the package in Cloudflare's runtime: `node bench/workers.mjs [SECONDS]`, after `npm run build`.
//
// Three isolates, a Durable Object on the disk, eight connections that ask for one id after the other.

import { mkdtemp, readFile, rm, readdir } from 'node:fs/promises';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

import { build } from 'esbuild';

import { OBJECTS, packageModules, Workerd } from '../test/workerd.mjs';

const SECONDS = Number(process.argv[2] ?? 5);
const CONNECTIONS = 8;
const at = (path) => fileURLToPath(new URL(path, import.meta.url));

const modules = [['test/workers/ids.mjs', at('../test/workers/ids.mjs')], ...(await packageModules())];
const worker = { modules, bindings: [OBJECTS] };
const services = { store: { ...worker, objects: true, isOpen: false }, one: worker, two: worker, three: worker };
const ends = [];
const folder = await mkdtemp(join(tmpdir(), 'unalike-bench-'));
const workerd = await Workerd.start({ after: (end) => ends.push(end) }, folder, services);

function get(url, agent) {
  return new Promise((resolve, reject) => {
    const request = http.get(url, { agent }, (response) => {
      let body = '';
      response.on('data', (part) => (body += part));
      response.on('end', () => (response.statusCode === 200 ? resolve(body) : reject(new Error(body))));
    });
    request.once('error', reject);
  });
}

/** Requests a second, and their latencies in milliseconds: the median and the 99th of a hundred. */
async function load(path) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: CONNECTIONS });
  const latencies = [];
  let ids = 0;
  const until = performance.now() + SECONDS * 1_000;
  const draw = async (_, place) => {
    const url = Object.values(workerd.urls)[place % 3] + path;
    while (performance.now() < until) {
      const began = performance.now();
      const { runs = [] } = JSON.parse(await get(url, agent));
      latencies.push(performance.now() - began);
      ids += runs.reduce((sum, run) => sum + run[2], 0);
    }
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, draw));
  agent.destroy();
  latencies.sort((one, other) => one - other);
  const part = (share) => latencies[Math.floor(latencies.length * share)].toFixed(2);
  const rate = Math.round(latencies.length / SECONDS);
  return { ids, told: `${rate} requests/s, median ${part(0.5)} ms, 99% within ${part(0.99)} ms` };
}

const cold = [];
for (const [path, name] of [
  ['/isolate', 'one'],
  ['/take?tag=cold', 'one'],
  ['/take?tag=cold', 'two'],
  ['/take?tag=cold', 'two'],
]) {
  const began = performance.now();
  await get(workerd.urls[name] + path);
  cold.push((performance.now() - began).toFixed(1));
}
console.log(`first request of an isolate ${cold[0]} ms; first id of a new tag ${cold[1]} ms`);
console.log(`first request of another isolate, with an id ${cold[2]} ms; the next one ${cold[3]} ms`);

console.log(`empty                ${(await load('/isolate')).told}`);
const { ids, told } = await load('/take?tag=order');
console.log(`take(1)              ${told}`);
const { start } = await workerd.ask('one', '/allocate?tag=order&count=1');
const lost = Number(start) - 1 - ids;
console.log(`                     ${ids} ids; ${lost} numbers would be lost if all isolates ended now`);
console.log(`take(100)            ${(await load('/take?tag=many&count=100')).told}`);
console.log(`snowflake, take(1)   ${(await load('/flakes?count=1')).told}`);
await workerd.ask('one', '/create?tag=ticket&mode=ordered');
console.log(`ordered, take(1)     ${(await load('/take?tag=ticket')).told}`);
for (const end of ends) {
  await end();
}
await rm(folder, { recursive: true });

const { outputFiles } = await build({
  entryPoints: [at('../dist/workers.js')],
  bundle: true,
  minify: true,
  write: false,
  format: 'esm',
  external: ['cloudflare:*', '*.wasm'],
});
const size = (bytes) => `${(gzipSync(bytes).length / 1024).toFixed(1)} KiB`;
const glue = at('../dist/glue');
const wasm = (await readdir(glue)).filter((name) => name.endsWith('.wasm')).map((name) => readFile(join(glue, name)));
const all = Buffer.concat(await Promise.all(wasm));
console.log(`gzip: code ${size(outputFiles[0].contents)}, components ${size(all)}`);
