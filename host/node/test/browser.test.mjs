// Pages in Chromium: without a bundler and built by vite, over a server, and the conformance vectors.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cp, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { build } from 'vite';

import { Formats } from '../dist/index.js';
import { Chromium } from './chromium.mjs';
import { needed, nextOfRust, Seen, Server } from './fixtures.mjs';
import { Site } from './site.mjs';

const at = (path) => fileURLToPath(new URL(path, import.meta.url));
const TOKEN = 'the-token-of-a-page';
const VECTORS = at('../../../tests/vectors');

let [folder, browser, site, server, store] = [];

before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'unalike-pages-'));
  store = `sqlite://${join(folder, 'ids.sqlite')}`;
  const folders = { dist: at('../dist'), test: at('.'), vectors: VECTORS };
  site = await Site.start({ ...folders, built: join(folder, 'built'), worker: join(folder, 'worker') });
  const tokens = join(folder, 'tokens.toml');
  await writeFile(tokens, `[[tokens]]\nname = "page"\ntoken = "${TOKEN}"\nscope = "lease"\n`, { mode: 0o600 });
  const create = ['tags', 'create', 'ticket', '--ordered', '--store', store];
  await promisify(execFile)(needed('UNALIKE_BIN'), create);
  const more = ['--tokens', tokens, '--allowed-origins', site.url];
  // It is ended below, after all tests.
  server = await Server.start({ after: () => {} }, store, { more });
  site.others = [server.url];
  site.answers.set('/task.json', JSON.stringify({ server: server.url, token: TOKEN }));
  browser = await Chromium.start();
});

after(async () => {
  await browser?.close();
  await site?.close();
  await server?.kill();
  await rm(folder, { recursive: true, force: true });
});

/** The ids of all pages and of the command, of each kind. */
const seen = { orders: new Seen(), tickets: new Seen(), flakes: new Seen(), shown: new Seen() };

function ascend(ids, what) {
  ids.forEach((id, place) => assert.ok(place === 0 || id > ids[place - 1], `${what}: ${id} after ${ids[place - 1]}`));
}

/** Shows a page that works, between ids that the command takes, and compares. */
async function compare(url) {
  const before = { orders: await nextOfRust(store, 'order', 50), tickets: await nextOfRust(store, 'ticket', 5) };
  const answer = JSON.parse(await browser.show(url));
  const [orders, tickets, flakes, chats] = ['orders', 'tickets', 'flakes', 'chats'].map((of) => answer[of].map(BigInt));
  assert.deepEqual([orders.length, tickets.length, flakes.length], [2_001, 20, 2_001]);
  const after = { orders: await nextOfRust(store, 'order', 50), tickets: await nextOfRust(store, 'ticket', 5) };
  for (const [of, ids] of Object.entries({ orders, tickets })) {
    ascend(ids, of);
    assert.ok(ids[0] > before[of].at(-1), `${of}: ${ids[0]} is not above ${before[of].at(-1)}`);
    seen[of].add([...before[of], ...ids, ...after[of]], of);
  }
  assert.ok(after.tickets[0] > tickets.at(-1), 'ordered');
  ascend(flakes, 'flakes');
  seen.flakes.add(flakes, 'flakes');
  assert.equal(chats[1], chats[0] + 1n);
  const shown = answer.shown.map(BigInt);
  ascend(shown, 'shown');
  seen.shown.add(shown, 'shown');
  const formats = await Formats.load();
  const format = formats.format({ template: 'ORD-{yyyyMMdd}-{id:08}', bits: 26, utcOffsetMinutes: 480 });
  const written = format.write(orders[0], new Date('2026-11-22T00:00:00Z'));
  assert.deepEqual(answer.texts, [formats.encode(orders[0], 'base62'), written, String(orders[0]), String(flakes[0])]);
  assert.equal(formats.unpack(flakes[0], 'twitter').worker, answer.worker);
}

test('a page without a bundler takes ids from a server', async () => {
  await compare(site.page('/plain', '/test/browser/plain.mjs'));
});

test('a page that vite built takes ids from a server', async () => {
  const root = join(folder, 'project');
  await mkdir(join(root, 'node_modules'), { recursive: true });
  await symlink(at('..'), join(root, 'node_modules/unalike'));
  await cp(at('browser'), root, { recursive: true });
  await writeFile(join(root, 'index.html'), '<!doctype html><script type="module" src="/built.mjs"></script>');
  await build({
    root,
    base: '/built/',
    build: { outDir: join(folder, 'built') },
    configFile: false,
    logLevel: 'error',
  });
  await compare(`${site.url}/built/index.html`);
});

test('a service worker gives ids to its pages, and others after it was ended', async (t) => {
  const open = await Server.start(t, store, { more: ['--allowed-origins', site.url] });
  site.others = [open.url];
  const root = join(folder, 'service-worker');
  await mkdir(join(root, 'node_modules'), { recursive: true });
  await symlink(at('..'), join(root, 'node_modules/unalike'));
  await cp(at('../examples/service-worker.mjs'), join(root, 'service-worker.mjs'));
  const output = { entryFileNames: 'service-worker.mjs' };
  const outDir = join(folder, 'worker');
  const rollupOptions = { input: join(root, 'service-worker.mjs'), output };
  await build({ root, base: '/worker/', build: { outDir, rollupOptions }, configFile: false, logLevel: 'error' });
  // It serves what is below it.
  site.answers.set('/service-worker.mjs', await readFile(join(outDir, 'service-worker.mjs'), 'utf8'));
  const page = site.page('/served', '/test/browser/served.mjs');
  site.answers.set('/server.json', JSON.stringify(open.url));
  for (let round = 0; round < 3; round += 1) {
    const before = await nextOfRust(store, 'order', 10);
    const answers = JSON.parse(await browser.show(page));
    assert.deepEqual(answers.map(({ length }) => length), [1, 100, 1, 30]);
    // One that was ended goes on with nothing that it held.
    const taken = answers.flat().map(BigInt);
    assert.ok(taken.every((id) => id > before.at(-1)), `${taken[0]} after ${before.at(-1)}`);
    seen.orders.add([...before, ...taken], 'of the command and the service worker');
    await browser.endServiceWorkers(page);
  }
  site.others = [server.url];
});

test('the component conforms in Chromium', async () => {
  const names = (await readdir(VECTORS)).filter((name) => name.endsWith('.json') && name !== 'leases.json');
  assert.ok(names.length >= 7);
  const expected = {};
  for (const name of names) {
    const { vectors } = JSON.parse(await readFile(join(VECTORS, name), 'utf8'));
    expected[name] = vectors.filter(({ host }) => host === undefined).length;
  }
  site.answers.set('/vectors/names.json', JSON.stringify(names));
  assert.deepEqual(await browser.show(site.page('/conformance', '/test/browser/vectors.mjs')), expected);
});

test('a policy without wasm-unsafe-eval and an origin that is not allowed are told', async () => {
  const url = site.page('/refused', '/test/browser/plain.mjs');
  site.scripts = "'self'";
  await assert.rejects(browser.show(url), /cannot be loaded.*have the page's policy allow 'wasm-unsafe-eval'/);
  site.scripts = "'self' 'wasm-unsafe-eval'";
  // The same site under another name.
  site.others = [server.url, site.url];
  const elsewhere = url.replace('127.0.0.1', 'localhost');
  await assert.rejects(browser.show(elsewhere), /brought no answer.*lack the origin of this page.*blocked by CORS policy/s);
});
