// The package as people get it: packed, installed into an empty project, compiled there with `tsc --strict`, and used.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cp, mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import http from 'node:http';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { folderOf, Server } from './fixtures.mjs';

const here = fileURLToPath(new URL('..', import.meta.url));
const run = promisify(execFile);
const tsc = createRequire(import.meta.url).resolve('typescript/bin/tsc');

async function installed(t) {
  const folder = await folderOf(t);
  const { stdout } = await run('npm', ['pack', '--ignore-scripts', '--json', '--pack-destination', folder], { cwd: here });
  const [{ filename, files }] = JSON.parse(stdout);
  const project = join(folder, 'project');
  await mkdir(project);
  await writeFile(join(project, 'package.json'), JSON.stringify({ name: 'empty', private: true, type: 'module' }));
  await run('npm', ['install', '--offline', '--no-audit', '--no-fund', join(folder, filename)], { cwd: project });
  return { project, files: files.map(({ path }) => path) };
}

const PROGRAM = `
import { Batch, Formats, Ids, IdsError, MemoryStore, PRESETS, StoreError } from 'unalike';
import type { Formatted, Layout, Sequence, SegmentStore, TailRelease } from 'unalike';
import { RemoteStore } from 'unalike/remote';
import { Store, type StoreOptions } from 'unalike/stores';

class Ours implements SegmentStore {
  private readonly inner = new MemoryStore();
  allocate(tag: string, count: bigint, atLeast: bigint) { return this.inner.allocate(tag, count, atLeast); }
  release(tag: string, tail: TailRelease) { return this.inner.release(tag, tail); }
  openTag(tag: string) { return this.inner.openTag(tag); }
  identity() { return this.inner.identity(); }
  close() { return this.inner.close(); }
}

const store: SegmentStore = new Ours();
{
  await using ids = await Ids.open({ segments: store, leases: new MemoryStore(), waitMaxMs: 1_000 });
  const orders: Sequence = await ids.sequence('order', { step: { kind: 'fixed', step: 10n } });
  const id: bigint = await orders.next();
  const maybe: bigint | undefined = orders.tryNext();
  const batch: Batch = await orders.take(3);
  const layout: Layout = (await ids.snowflake('default', 'twitter')).layout;
  const formats = await Formats.load();
  const seen: string[] = [];
  for await (const each of orders) {
    seen.push(formats.encode(each, 'decimal'));
    if (seen.length === 2) break;
  }
  try {
    await orders.take(0);
  } catch (error) {
    if (!(error instanceof IdsError) || error.kind !== 'number-invalid') throw error;
  }
  const daily = formats.format({ template: '{yyyyMMdd}-{id:06}', bits: 19, restart: 'day' });
  const ours: Layout = { ...PRESETS.leaf, epochMs: 1735689600000n };
  await ids.sequenceOf('daily', daily.period(new Date()), { idMax: daily.idMax });
  const shown: Formatted = await ids.formatted('shown', daily);
  const texts: string[] = [await shown.next(), ...(await shown.take(2))];
  formats.unpack(id, ours);
  await new MemoryStore({ newTags: { mode: 'ordered' } }).createTag('ticket', { mode: 'ordered' });
  // @ts-expect-error a name that no layout has
  await ids.snowflake('events', 'twiter').catch(() => undefined);
  // @ts-expect-error ids are bigints
  const wrong: number = id;
  const remote: Promise<RemoteStore> = RemoteStore.open('http://127.0.0.1:1');
  const refused = await remote.catch((error: unknown) => error instanceof StoreError && error.kind);
  const options: StoreOptions = { createTags: false, tagsMax: 5n };
  const opening: Promise<SegmentStore & Pick<Store, 'createTag' | 'acquire'>> = Store.open('', options);
  const empty = await opening.catch((error: unknown) => error instanceof StoreError && error.kind);
  const said = \`\${refused} \${typeof wrong} \${texts.length} \${empty}\`;
  console.log(\`\${id} \${maybe} \${[...batch]} \${seen} \${layout.sequenceBits} \${said}\`);
}
`;

const EXAMPLES = ['cluster.mjs', 'http-server.mjs', 'service-worker.mjs', 'worker-threads.mjs'];

test('what is packed is dist, the examples, the pages and the licences, after a build', async (t) => {
  const { project, files } = await installed(t);
  const others = files.filter((path) => !path.startsWith('dist/'));
  const examples = EXAMPLES.map((name) => `examples/${name}`);
  assert.deepEqual(others.sort(), ['LICENSE-APACHE', 'LICENSE-MIT', 'README.md', ...examples, 'package.json', 'workers.md']);
  // The build is not run here: other tests use its files meanwhile.
  const { scripts } = JSON.parse(await readFile(join(here, 'package.json'), 'utf8'));
  assert.equal(scripts.prepack, 'npm run build && npm run native');
  const root = join(project, 'node_modules/unalike');
  const { exports } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'));
  for (const [name, conditions] of Object.entries(exports)) {
    for (const path of typeof conditions === 'string' ? [] : Object.values(conditions)) {
      assert.ok(files.includes(path.slice(2)), `${name}: ${path} is not packed`);
    }
  }
  // Nothing says where it was built.
  for (const path of files.filter((name) => /\.(js|ts|json|md)$/.test(name))) {
    const text = await readFile(join(root, path), 'utf8');
    assert.ok(!text.includes(here), `${path} holds a path of this machine`);
  }
  const lock = await readFile(join(here, 'package-lock.json'), 'utf8');
  assert.ok(
    !/"resolved"|https?:\/\/(?!.*(opencollective|github|sponsors|paypal|feross|tidelift))/.test(
      lock
        .split('\n')
        .filter((line) => !/"(url|funding|license)"/.test(line))
        .join('\n'),
    ),
    'the lock names a registry',
  );
});

test('an empty project compiles and runs a program with it', async (t) => {
  const { project } = await installed(t);
  await writeFile(join(project, 'program.ts'), PROGRAM);
  const options = {
    strict: true,
    target: 'ES2022',
    module: 'NodeNext',
    moduleResolution: 'NodeNext',
    lib: ['ES2022'],
    types: [],
    exactOptionalPropertyTypes: true,
    noUncheckedIndexedAccess: true,
    skipLibCheck: false,
  };
  const declared = 'declare const console: { log(text: string): void };\n';
  await writeFile(join(project, 'program.ts'), declared + PROGRAM);
  await writeFile(join(project, 'tsconfig.json'), JSON.stringify({ compilerOptions: options, files: ['program.ts'] }));
  await run(process.execPath, [tsc, '-p', project]).catch((error) => assert.fail(error.stdout));
  const { stdout } = await run(process.execPath, ['program.js'], { cwd: project });
  assert.equal(stdout, '1 2 3,4,5 6,7 12 unavailable bigint 3 refused\n');
});

test('the examples run', async (t) => {
  const { project } = await installed(t);
  const server = await Server.start(t, `sqlite://${join(project, 'ids.sqlite')}`);
  const env = { ...process.env, UNALIKE_URL: server.url, PORT: '0' };
  const names = (await readdir(join(here, 'examples'))).sort();
  // The service worker runs in a browser: browser.test.mjs.
  assert.deepEqual(names, EXAMPLES);
  for (const name of names) {
    await cp(join(here, 'examples', name), join(project, name));
  }
  const cluster = await run(process.execPath, ['cluster.mjs'], { cwd: project, env, timeout: 60_000 });
  assert.equal(cluster.stdout.match(/has 1000 ids/g).length, 4, cluster.stdout);
  const threads = await run(process.execPath, ['worker-threads.mjs'], { cwd: project, env, timeout: 60_000 });
  const flakes = threads.stdout.match(/[0-9]{15,}/g);
  assert.equal(new Set(flakes).size, 12, threads.stdout);

  const service = execFile(process.execPath, ['http-server.mjs'], { cwd: project, env });
  const ended = new Promise((resolve) => service.once('exit', resolve));
  t.after(() => service.kill('SIGKILL'));
  const url = await new Promise((resolve) => service.stdout.once('data', (text) => resolve(/http:\S+/.exec(text)[0])));
  const post = () =>
    new Promise((resolve, reject) => {
      const request = http.request(url, { method: 'POST', agent: false }, (response) => {
        let body = '';
        response.on('data', (part) => (body += part));
        response.on('end', () => resolve(JSON.parse(body)));
      });
      request.once('error', reject);
      request.end();
    });
  const answers = await Promise.all([post(), post(), post()]);
  assert.deepEqual(answers.map(({ id }) => id).sort(), ['1', '2', '3']);
  assert.match(answers[0].order, /^ORD-[0-9]{8}-0000000[123]$/);
  service.kill('SIGTERM');
  assert.equal(await ended, 0, 'it ends by itself when it is told to');
});
