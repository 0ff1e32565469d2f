// A page in Chromium among hosts in other languages: together.rs says what each of them does and writes. The page takes
// its ids over the two servers; this program shows it, and writes what it sends. Its standard input is the socket that
// the page's site listens on, as the servers have to know the origin.

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const from = (file) => import(pathToFileURL(join(process.env.UNALIKE_NODE_PACKAGE, 'test', file)));
const { Chromium } = await from('chromium.mjs');
const { Site } = await from('site.mjs');

const task = JSON.parse(process.argv[2]);
/** As long as anybody would wait for ten million ids. */
const LIMIT_MS = 3_600_000;

const dist = join(process.env.UNALIKE_NODE_PACKAGE, 'dist');
const site = await Site.start({ dist, hosts: fileURLToPath(new URL('.', import.meta.url)) }, { fd: 0 });
site.others = [task.plain, task.strict];
site.answers.set('/task.json', JSON.stringify(task));
site.answers.set('/now', () => String(process.hrtime.bigint()));
for (const of of ['order', 'flake', 'chat']) {
  site.takers.set(`/${of}`, (bytes) => writeFileSync(join(task.out, `browser.${of}`), bytes));
}
const browser = await Chromium.start();
try {
  await browser.show(site.page('/', '/hosts/browser_page.mjs'), LIMIT_MS);
} finally {
  await browser.close();
  await site.close();
}
