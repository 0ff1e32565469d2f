// Builds the package into dist: transpiles the components, compiles the sources, and takes over statements of SQLite.
//
// The components are the files that UNALIKE_COMPONENT_WASM and UNALIKE_FORMATS_WASM name; without these, cargo builds
// them. The library of the Rust host is the file that UNALIKE_NODE_NATIVE names; without it, there is none until
// native.mjs puts one there.

import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cp, mkdir, mkdtemp, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { putNative } from './native.mjs';

const here = join(dirname(fileURLToPath(import.meta.url)), '..');
const repository = join(here, '../..');
const dist = join(here, 'dist');
const glue = join(dist, 'glue');
const require = createRequire(import.meta.url);

// The statements of the Rust adapter.
const statementsOfSqlite = join(repository, 'adapters/sqlite/src/sql');

function run(program, args, options = {}) {
  execFileSync(program, args, { stdio: ['ignore', 'ignore', 'inherit'], cwd: here, ...options });
}

/** The main program of a package of node_modules. */
function program(name, path) {
  return join(dirname(require.resolve(`${name}/package.json`)), path);
}

async function components(folder) {
  const { UNALIKE_COMPONENT_WASM: core, UNALIKE_FORMATS_WASM: formats } = process.env;
  if (core && formats) {
    return { unalike: core, 'unalike-formats': formats };
  }
  const args = ['run', '--locked', '--quiet', '-p', 'unalike-artifact', '--example', 'save', '--', folder];
  run('cargo', args, { cwd: repository });
  return { unalike: join(folder, 'unalike.wasm'), 'unalike-formats': join(folder, 'unalike-formats.wasm') };
}

/** The folder with what jco makes of a component. It takes a minute or more, so it is kept for the next build. */
async function transpiled(jco, name, path) {
  const { version } = JSON.parse(await readFile(join(dirname(jco), '../package.json'), 'utf8'));
  const hash = createHash('sha256')
    .update(await readFile(path))
    .digest('hex');
  const out = join(here, 'node_modules/.cache/unalike', `${name}-${version}-${hash}`);
  if ((await readdir(out).catch(() => [])).length === 0) {
    const fresh = `${out}.${process.pid}`;
    const args = ['transpile', path, '--name', name, '-I', 'sync', '--no-nodejs-compat', '--minify', '-o', fresh];
    run(process.execPath, [jco, ...args]);
    await rm(out, { recursive: true, force: true });
    await rename(fresh, out);
  }
  return out;
}

/**
 * The code of jco with decoders that give every letter: a plain one drops U+FEFF from the beginning of a text, so that
 * a name would come back from the component as that of another. What is no UTF-8 is a fault of the component's, and
 * throws.
 */
function decodingWhole(name, code) {
  const made = 'new TextDecoder("utf-8",{fatal:true,ignoreBOM:true})';
  let found = 0;
  const whole = code.replace(/\bnew TextDecoder(?:\(\))?(?=[,;])/g, () => {
    found += 1;
    return made;
  });
  // Another form of jco's is for people to look at.
  if (found === 0 || whole.replaceAll(made, '').includes('TextDecoder')) {
    throw new Error(`${name}.js decodes texts in a way that this build does not know: look for TextDecoder in it`);
  }
  return whole;
}

await rm(dist, { recursive: true, force: true });
await mkdir(glue, { recursive: true });
const folder = await mkdtemp(join(tmpdir(), 'unalike-build-'));
try {
  const jco = join(dirname(fileURLToPath(import.meta.resolve('@bytecodealliance/jco'))), 'jco.js');
  for (const [name, path] of Object.entries(await components(folder))) {
    const out = await transpiled(jco, name, path);
    for (const file of await readdir(out)) {
      if (file.endsWith('.wasm')) {
        await cp(join(out, file), join(glue, file));
      }
    }
    let code = decodingWhole(name, await readFile(join(out, `${name}.js`), 'utf8'));
    if (name === 'unalike') {
      // A handle that is collected would call into its instance, also after that one has failed, and what is thrown
      // then ends the process. The host drops its handles itself.
      code = `const FinalizationRegistry=class{register(){}unregister(){}};\n${code}`;
    }
    await writeFile(join(glue, `${name}.js`), code);
  }
  const modules = {};
  for (const file of (await readdir(glue)).filter((name) => name.endsWith('.wasm')).sort()) {
    modules[file] = (await readFile(join(glue, file))).toString('base64');
  }
  const small = Object.fromEntries(Object.entries(modules).filter(([, base64]) => base64.length < 1024));
  await writeFile(join(glue, 'bytes.js'), `export const smallModules = ${JSON.stringify(small, null, 2)};\n`);
  await writeFile(join(glue, 'all-bytes.js'), `export const allModules = ${JSON.stringify(modules, null, 2)};\n`);
} finally {
  await rm(folder, { recursive: true, force: true });
}
// Declarations that are written by hand: the compiler leaves them where they are.
for (const file of await readdir(join(here, 'src/glue'))) {
  await cp(join(here, 'src/glue', file), join(glue, file));
}
run(process.execPath, [program('typescript', 'bin/tsc'), '-p', here], { stdio: ['ignore', 'inherit', 'inherit'] });
// Durable Objects read no files: the statements are code to them.
const statements = {};
for (const file of await readdir(statementsOfSqlite)) {
  statements[file.replace('.sql', '')] = await readFile(join(statementsOfSqlite, file), 'utf8');
}
await writeFile(join(glue, 'sqlite-sql.js'), `export const statements = ${JSON.stringify(statements, null, 2)};\n`);
if (process.env.UNALIKE_NODE_NATIVE) {
  await putNative(process.env.UNALIKE_NODE_NATIVE);
}
for (const licence of ['LICENSE-APACHE', 'LICENSE-MIT']) {
  await cp(join(repository, licence), join(here, licence));
}
