// The code of the README runs as a reader types it.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const here = dirname(fileURLToPath(import.meta.url));

test('the code of the README runs', async () => {
  const page = await readFile(join(here, '../README.md'), 'utf8');
  const [first, ...others] = [...page.matchAll(/^```js\n(.*?)^```/gms)].map(([, code]) => code);
  // What the first block closes at its end, the others still use.
  const [opening, closing] = first.split('await ids.close();');
  assert.ok(closing !== undefined && others.length > 0);
  // A file of the package finds the package by its name.
  const program = join(here, `readme-${process.pid}.mjs`);
  const folder = await mkdtemp(join(tmpdir(), 'unalike-readme-'));
  try {
    await writeFile(program, [opening, ...others, 'await ids.close();', closing].join('\n'));
    const { stdout } = await promisify(execFile)(process.execPath, [program], { cwd: folder, timeout: 60_000 });
    const lines = stdout.trim().split('\n');
    assert.equal(lines[0], '1n');
    assert.match(lines[1], /^\d{15,19}n$/);
    const rest = lines.slice(2).join('\n');
    assert.equal(rest, [
      'false',
      '1n true',
      '1n',
      '[ 1n, 2n ]',
      '5000 false',
      '1n 2',
      '14',
      '00000004C92',
      '{ ticks: 278898726177n, worker: 39, sequence: 3448 }',
      '42n 2026-11-21T16:00:00.000Z ORD-20261122-000042',
      '-000001',
      'number-invalid false',
    ].join('\n'));
  } finally {
    await rm(program);
    await rm(folder, { recursive: true });
  }
});
