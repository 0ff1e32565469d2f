// What is used of the runtime of Cloudflare's Workers. Programs have its types from the runtime's own packages.

declare module 'cloudflare:workers' {
  export abstract class DurableObject {
    protected readonly ctx: import('./object-database.js').ObjectState;
    constructor(ctx: unknown, env: unknown);
  }
  export function waitUntil(work: Promise<unknown>): void;
}

declare module '*.wasm' {
  const module: import('./component.js').WasmModule;
  export default module;
}
