/**
 * unalike in a browser: each component is fetched once, from beside this file, and compiled while it comes.
 *
 * @module
 */

import { setLoader, smallModule } from './modules.js';

/** Bundlers find the files by these expressions, which must stand as they are. */
const FILES: Readonly<Record<string, () => URL>> = {
  'unalike.core.wasm': () => new URL('./glue/unalike.core.wasm', import.meta.url),
  'unalike-formats.core.wasm': () => new URL('./glue/unalike-formats.core.wasm', import.meta.url),
};

setLoader(async (name) => {
  const small = smallModule(name);
  if (small !== undefined) {
    return small;
  }
  const url = FILES[name]?.();
  if (url === undefined) {
    throw new Error('there is no such file');
  }
  const response = await fetch(url);
  if (!response.ok) {
    throw new Error(`${url} answers with the status ${response.status}`);
  }
  if (response.headers.get('content-type') === 'application/wasm') {
    return await WebAssembly.compileStreaming(response);
  }
  return await WebAssembly.compile(await response.arrayBuffer());
});

export * from './all.js';
