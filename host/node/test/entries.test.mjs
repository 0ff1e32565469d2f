// The entries of the package that are not Node's: each in a process of its own, over the files that were built.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { promisify } from 'node:util';

const at = (path) => new URL(`../dist/${path}`, import.meta.url);

async function run(code) {
  const options = { timeout: 60_000 };
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', code], options);
  return stdout.trim();
}

const USE = `
  const store = new unalike.MemoryStore();
  const ids = await unalike.Ids.open({ segments: store });
  const formats = await unalike.Formats.load();
  const id = await (await ids.sequence('order')).next();
  await ids.close();
  console.log(String(id), formats.encode(1_000_000n, 'base62'));
`;

test('the entry with the bytes in its code', async () => {
  assert.equal(await run(`import * as unalike from '${at('inline.js')}'; ${USE}`), '1 00000004C92');
});

test('the entry that is given its modules compiles nothing', async () => {
  const code = `
    import { readFileSync } from 'node:fs';
    import * as unalike from '${at('static.js')}';
    const opening = unalike.Ids.open({ segments: new unalike.MemoryStore() });
    await opening.then(() => process.exit(1), (error) => console.log(error.kind));
    const names = ['unalike', 'unalike-formats'].flatMap((name) =>
      ['', 2, 3].map((number) => name + '.core' + number + '.wasm'));
    const modules = names.map((name) => [name, new WebAssembly.Module(readFileSync(new URL(name, '${at('glue/')}')))]);
    unalike.useModules(Object.fromEntries(modules));
    const refuse = () => { throw new Error('compiling is not allowed here'); };
    for (const name of ['compile', 'compileStreaming', 'instantiateStreaming']) WebAssembly[name] = refuse;
    WebAssembly.Module = class { constructor() { refuse(); } };
    ${USE}
  `;
  assert.equal(await run(code), 'component\n1 00000004C92');
});

test('the entry of browsers fetches one file of each component', async () => {
  const code = `
    import { readFile } from 'node:fs/promises';
    const fetched = [];
    globalThis.fetch = async (url) => {
      fetched.push(String(url).split('/').at(-1));
      return new Response(await readFile(url), { headers: { 'content-type': 'application/wasm' } });
    };
    const unalike = await import('${at('browser.js')}');
    ${USE}
    await unalike.Formats.load();
    console.log(fetched.join(' '));
  `;
  assert.equal(await run(code), '1 00000004C92\nunalike.core.wasm unalike-formats.core.wasm');
});

test('a module that cannot be fetched is told, and fetched again later', async () => {
  const code = `
    import { readFile } from 'node:fs/promises';
    let isDown = true;
    globalThis.fetch = async (url) => isDown ? new Response('', { status: 503 }) : new Response(await readFile(url));
    const unalike = await import('${at('browser.js')}');
    const opening = unalike.Ids.open({ segments: new unalike.MemoryStore() });
    await opening.then(() => process.exit(1), (error) => console.log(error.kind));
    isDown = false;
    ${USE}
  `;
  assert.equal(await run(code), 'component\n1 00000004C92');
});

test('a module that cannot be loaded says what to do', async () => {
  const code = `
    const answers = [
      async () => { throw new TypeError('Failed to fetch'); },
      async () => new Response('', { status: 404 }),
      async () => new Response('<!doctype html>', { headers: { 'content-type': 'text/html' } }),
    ];
    globalThis.fetch = () => answers[0]();
    const unalike = await import('${at('browser.js')}');
    while (answers.length > 0) {
      await unalike.Formats.load().then(() => process.exit(1), (error) => console.log(error.kind, error.message));
      answers.shift();
    }
  `;
  const [failed, missing, page] = (await run(code)).split('\n');
  assert.match(failed, /^component .*Failed to fetch .*is 'self' in connect-src .*Or import unalike\/inline$/);
  assert.match(missing, /^component .*the status 404: bundlers that copy no files need unalike\/inline$/);
  assert.match(page, /^component .*is no module, but a page perhaps: in vite add optimizeDeps: /);
});
