/**
 * unalike in Node: the component's modules are files beside this one.
 *
 * @module
 */

import { readFile } from 'node:fs/promises';

import { setLoader } from './modules.js';

setLoader(async (name) => new WebAssembly.Module(await readFile(new URL(`./glue/${name}`, import.meta.url))));

export * from './all.js';
