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
  const response = await fetched(url);
  if (!response.ok) {
    const advice = 'bundlers that copy no files need unalike/inline';
    throw new Error(`${url} answers with the status ${response.status}: ${advice}`);
  }
  if (response.headers.get('content-type') === 'application/wasm') {
    return await WebAssembly.compileStreaming(response);
  }
  const bytes = await response.arrayBuffer();
  if (!isModule(bytes)) {
    throw new Error(
      `what came from ${url} is no module, but a page perhaps: in vite add optimizeDeps: { exclude: ['unalike'] }, ` +
        'or import unalike/inline',
    );
  }
  return await WebAssembly.compile(bytes);
});

async function fetched(url: URL): Promise<Response> {
  try {
    return await fetch(url);
  } catch (error) {
    // It does not say whether the policy of the page forbids it.
    const advice = "is 'self' in connect-src of the policy of the page? Or import unalike/inline";
    throw new Error(`${(error as Error).message} (${url}): ${advice}`, { cause: error });
  }
}

/** Whether bytes begin as a module of WebAssembly does: with a zero and `asm`. */
function isModule(bytes: ArrayBuffer): boolean {
  const begin = new Uint8Array(bytes.slice(0, 4));
  return begin[0] === 0 && String.fromCharCode(...begin.subarray(1)) === 'asm';
}

export * from './all.js';
