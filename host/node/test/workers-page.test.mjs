// The page on Cloudflare's Workers, as a reader follows it: from an empty folder, with the package as people get it.

import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { mkdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { folderOf, freePort } from './fixtures.mjs';

const here = fileURLToPath(new URL('..', import.meta.url));
const run = promisify(execFile);
const require = createRequire(import.meta.url);
const WORKERD = require('workerd').default;

const page = await readFile(join(here, 'workers.md'), 'utf8');
const blocks = [...page.matchAll(/^```(\w+)\n(.*?)^```/gms)].map(([, language, code]) => ({ language, code }));
const of = (language) => blocks.filter((block) => block.language === language).map(({ code }) => code);

/** An empty folder with the packages that the page has installed. */
async function installed(t) {
  const folder = await folderOf(t);
  const { stdout } = await run('npm', ['pack', '--ignore-scripts', '--json', '--pack-destination', folder], { cwd: here });
  const [{ filename }] = JSON.parse(stdout);
  const project = join(folder, 'project');
  await mkdir(project);
  await writeFile(join(project, 'package.json'), JSON.stringify({ private: true, type: 'module' }));
  await run('npm', ['install', '--offline', '--no-audit', '--no-fund', join(folder, filename)], { cwd: project });
  return project;
}

/** Starts the configuration of the page, and answers a Worker's URL. */
async function serve(t, project, config) {
  const port = await freePort();
  await writeFile(join(project, 'config.capnp'), config.replace('127.0.0.1:8787', `127.0.0.1:${port}`));
  const child = spawn(WORKERD, ['serve', '--control-fd=3', 'config.capnp'], {
    cwd: project,
    stdio: ['ignore', 'inherit', 'inherit', 'pipe'],
  });
  const ended = new Promise((resolve) => child.once('exit', resolve));
  const kill = async () => {
    child.kill('SIGKILL');
    await ended;
  };
  t.after(kill);
  await Promise.race([
    new Promise((resolve) => child.stdio[3].once('data', resolve)),
    ended.then((code) => assert.fail(`workerd ended with ${code}`)),
  ]);
  return { url: `http://127.0.0.1:${port}/`, kill };
}

test('the page gives ids from an empty folder, and greater ones after a restart', async (t) => {
  const project = await installed(t);
  const [first, , ...others] = of('js');
  const [config] = of('capnp');
  const commands = of('sh').join('').split('\n');
  await writeFile(join(project, 'worker.js'), first);
  const [build] = commands.filter((line) => line.startsWith('npx esbuild '));
  const esbuild = join(require.resolve('esbuild/package.json'), '../bin/esbuild');
  await run(esbuild, build.split(' ').slice(2), { cwd: project });
  await mkdir(join(project, 'disk'));
  const seen = [];
  for (let round = 0; round < 2; round += 1) {
    const { url, kill } = await serve(t, project, config);
    for (let turn = 0; turn < 3; turn += 1) {
      seen.push(await (await fetch(url)).json());
    }
    await kill();
  }
  for (const name of ['order', 'event']) {
    const ids = seen.map((answer) => BigInt(answer[name]));
    ids.forEach((id, place) => assert.ok(place === 0 || id > ids[place - 1], `${name}: ${ids}`));
  }
  assert.equal(seen[0].order, '1');
  assert.deepEqual(
    Object.keys(JSON.parse(of('json')[0])),
    Object.keys(seen[0]),
    'the answer is as the page says',
  );
  // The other lines about the same store: in the Worker's place of its first ids.
  const each = others.map((code) => `await (async () => {\n${code.replace('5_000_000n', '5_000n')}\n})().catch(tell);`);
  const worker = first
    .replace(
      'async fetch() {',
      `async fetch() {
    const told = [];
    const tell = (error) => told.push(error.kind, error.message);
    const console = { log: (text) => told.push(text) };
    ${each.join('\n')}`,
    )
    .replace('order: String', 'told, order: String');
  await writeFile(join(project, 'worker.js'), worker);
  await run(esbuild, build.split(' ').slice(2), { cwd: project });
  const { url } = await serve(t, project, config);
  const { told } = await (await fetch(url)).json();
  assert.equal(others.length, 3);
  // The tag that is to be restored was never lost.
  assert.equal(told[0], 'tag-exists');
  assert.match(told[1], /unalike:ids:tag:order is there, and was never lost/);
  assert.match(told[2], /^[0-9a-f]{32}$/);
  // The variable that has the identity is not set here.
  assert.equal(told[3], 'refused');
  assert.match(told[4], /store is undefined, it must be 32 hexadecimal digits: set the variable that has them/);
  assert.equal(told.length, 5);
});

const TYPED = `
import { env } from 'cloudflare:workers';
import { DurableStore, IdsError, openIds, RemoteStore, SMALL_STEPS, StoreError } from 'unalike/workers';
import type { Ids, SegmentStore, Sequence } from 'unalike/workers';

export { UnalikeObject } from 'unalike/workers';

declare global {
  namespace Cloudflare {
    interface Env {
      IDS: DurableObjectNamespace<import('unalike/workers').UnalikeObject>;
      URL: string;
    }
  }
}

const store: SegmentStore = new DurableStore(env.IDS, { name: 'shop', createTags: false, tagsMax: 10, maxHorizonMs: 60_000n });
const ids: Ids = openIds({ segments: store, waitMaxMs: 100 });
let remote: Ids | undefined;

export default {
  async fetch(): Promise<Response> {
    const orders: Sequence = await ids.sequence('order', SMALL_STEPS);
    try {
      const id: bigint = await orders.next();
      // @ts-expect-error ids are bigints
      const wrong: number = id;
      remote ??= openIds({ segments: await RemoteStore.open(env.URL) });
      return new Response(String(wrong));
    } catch (error) {
      if (error instanceof IdsError && error.storeError instanceof StoreError) {
        return new Response(error.kind, { status: error.isRetryable ? 503 : 500 });
      }
      throw error;
    }
  },
} satisfies ExportedHandler<Cloudflare.Env>;
`;

test('a Worker in TypeScript compiles with the types of the runtime', async (t) => {
  const project = await installed(t);
  await writeFile(join(project, 'worker.ts'), TYPED);
  await mkdir(join(project, 'node_modules/@cloudflare'));
  await symlink(
    join(here, 'node_modules/@cloudflare/workers-types'),
    join(project, 'node_modules/@cloudflare/workers-types'),
  );
  const compilerOptions = {
    strict: true,
    noEmit: true,
    target: 'ES2022',
    module: 'ESNext',
    moduleResolution: 'Bundler',
    lib: ['ES2024', 'ESNext.Disposable'],
    types: ['@cloudflare/workers-types'],
    exactOptionalPropertyTypes: true,
    skipLibCheck: false,
  };
  await writeFile(join(project, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['worker.ts'] }));
  await run(process.execPath, [require.resolve('typescript/bin/tsc'), '-p', project]).catch((error) =>
    assert.fail(error.stdout),
  );
});
