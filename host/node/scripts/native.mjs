// Puts the library of the Rust host into dist: the file that UNALIKE_NODE_NATIVE names, or what cargo builds.

import { execFileSync } from 'node:child_process';
import { copyFile, rename } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';

const here = join(dirname(fileURLToPath(import.meta.url)), '..');

function built() {
  const args = ['build', '--release', '--locked', '-p', 'unalike-node', '--message-format', 'json-render-diagnostics'];
  const said = execFileSync('cargo', args, {
    cwd: join(here, '../..'),
    encoding: 'utf8',
    maxBuffer: 1 << 28,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const messages = said.trim().split('\n');
  const [library] = messages
    .map((line) => JSON.parse(line))
    .filter(({ reason, target }) => reason === 'compiler-artifact' && target.name === 'unalike_node')
    .flatMap(({ filenames }) => filenames)
    .filter((file) => /\.(so|dylib|dll)$/.test(file));
  return library;
}

/** In one step, and as another file: a program may be running from the one before. */
export async function putNative(library) {
  const to = join(here, 'dist/unalike.node');
  await copyFile(library, `${to}.new`);
  await rename(`${to}.new`, to);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  await putNative(process.env.UNALIKE_NODE_NATIVE || built());
}
