/**
 * Where the compiled modules of the components come from. Each entry of the package sets its loader: files in Node,
 * fetch in browsers, bytes inside the code, or modules that the program imported itself.
 *
 * @module
 */

import type { WasmModule } from './component.js';
import { IdsError } from './errors.js';
import { smallModules } from './glue/bytes.js';

/** The modules that the two components consist of. */
export const CORE_MODULES = ['unalike.core.wasm', 'unalike.core2.wasm', 'unalike.core3.wasm'] as const;
export const FORMATS_MODULES = [
  'unalike-formats.core.wasm',
  'unalike-formats.core2.wasm',
  'unalike-formats.core3.wasm',
] as const;

/** The name of a module. */
export type ModuleName = (typeof CORE_MODULES)[number] | (typeof FORMATS_MODULES)[number];

/** Brings one compiled `WebAssembly.Module`. */
export type ModuleLoader = (name: ModuleName) => WasmModule | Promise<WasmModule>;

let loader: ModuleLoader | undefined;
const loaded = new Map<ModuleName, Promise<WasmModule>>();

/** Sets the loader. Modules that were loaded already stay. */
export function setLoader(load: ModuleLoader): void {
  loader = load;
}

/**
 * The modules of one component, each compiled once.
 *
 * @throws {IdsError} `component`
 */
export async function modulesOf(names: readonly ModuleName[]): Promise<(name: string) => WasmModule> {
  const modules = new Map<string, WasmModule>();
  await Promise.all(names.map(async (name) => modules.set(name, await moduleOf(name))));
  return (name) => {
    const found = modules.get(name);
    if (found === undefined) {
      throw new IdsError('component', `the component asks for the module ${JSON.stringify(name)}, which it has not`);
    }
    return found;
  };
}

function moduleOf(name: ModuleName): Promise<WasmModule> {
  const known = loaded.get(name);
  if (known !== undefined) {
    return known;
  }
  const loading = load(name);
  loaded.set(name, loading);
  // What failed once may work later: a file that comes over a network does.
  loading.catch(() => loaded.delete(name));
  return loading;
}

async function load(name: ModuleName): Promise<WasmModule> {
  try {
    if (loader === undefined) {
      throw new Error('no modules were given: call useModules first');
    }
    return await loader(name);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    // Browsers name 'unsafe-eval', which allows more.
    const isForbidden = /content security policy|\bCSP\b|unsafe-eval/i.test(reason);
    const advice = isForbidden ? "; have the page's policy allow 'wasm-unsafe-eval' in script-src" : '';
    const what = `the module ${name} of the component cannot be loaded: ${reason}${advice}`;
    throw new IdsError('component', what, {}, error);
  }
}

/** A small module, which every entry has in its code: two files less to fetch. */
export function smallModule(name: ModuleName): WasmModule | undefined {
  const base64 = smallModules[name];
  return base64 === undefined ? undefined : compile(base64);
}

/** Compiles a module that is given as base64. */
export function compile(base64: string): WasmModule {
  return new WebAssembly.Module(Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0)));
}
