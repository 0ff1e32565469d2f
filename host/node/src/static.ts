/**
 * unalike where code may not be compiled at run time, as in Cloudflare's Workers: the program imports the modules, and
 * hands them over before it opens anything.
 *
 * @example
 * ```ts
 * import { Ids, useModules } from 'unalike/static';
 * import core from 'unalike/wasm/unalike.core.wasm';
 * import core2 from 'unalike/wasm/unalike.core2.wasm';
 * import core3 from 'unalike/wasm/unalike.core3.wasm';
 *
 * useModules({ 'unalike.core.wasm': core, 'unalike.core2.wasm': core2, 'unalike.core3.wasm': core3 });
 * ```
 *
 * @module
 */

import type { WasmModule } from './component.js';
import { setLoader, type ModuleName } from './modules.js';

export type { ModuleName };

const given = new Map<string, WasmModule>();

/** Hands compiled `WebAssembly.Module` objects over, by their file names. Those of one component are enough for it. */
export function useModules(modules: Readonly<Partial<Record<ModuleName, WasmModule>>>): void {
  for (const [name, module] of Object.entries(modules)) {
    given.set(name, module);
  }
}

setLoader((name) => {
  const module = given.get(name);
  if (module === undefined) {
    throw new Error('it was not given to useModules');
  }
  return module;
});

export * from './all.js';
