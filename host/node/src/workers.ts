/**
 * unalike in Cloudflare's Workers. The runtime compiles the components when the Worker is deployed: they are imported,
 * and nothing is compiled later.
 *
 * @example
 * ```ts
 * import { env } from 'cloudflare:workers';
 * import { DurableStore, openIds } from 'unalike/workers';
 * export { UnalikeObject } from 'unalike/workers';
 *
 * const ids = openIds({ segments: new DurableStore(env.IDS) });
 *
 * export default {
 *   async fetch() {
 *     const orders = await ids.sequence('order');
 *     return new Response(String(await orders.next()));
 *   },
 * };
 * ```
 *
 * @module
 */

import { waitUntil } from 'cloudflare:workers';

import { setContexts } from './contexts.js';
import { IdsError } from './errors.js';
import formats from './glue/unalike-formats.core.wasm';
import formats2 from './glue/unalike-formats.core2.wasm';
import formats3 from './glue/unalike-formats.core3.wasm';
import core from './glue/unalike.core.wasm';
import core2 from './glue/unalike.core2.wasm';
import core3 from './glue/unalike.core3.wasm';
import { checkedIds, Ids, type IdsOptions } from './ids.js';
import { useModules } from './static.js';

export { DurableStore, SMALL_STEPS, type DurableOptions, type ObjectNamespace } from './durable.js';
export { UnalikeObject } from './durable-object.js';
export { RemoteStore, type RemoteOptions } from './remote.js';
export * from './all.js';

/** How often each call that waits looks whether what it waits for is overdue, in milliseconds. */
const LOOK_EVERY_MS = 500;

const modules = {
  'unalike.core.wasm': core,
  'unalike.core2.wasm': core2,
  'unalike.core3.wasm': core3,
  'unalike-formats.core.wasm': formats,
  'unalike-formats.core2.wasm': formats2,
  'unalike-formats.core3.wasm': formats3,
};
useModules(modules);
setContexts({ keep: waitUntil, lookEveryMs: LOOK_EVERY_MS, areMany: true });

/**
 * All id generators of an isolate, for all of its requests. It may be called outside of requests.
 *
 * Leases are renewed by calls for ids, and by no timer: a timer ends with the request that began it.
 *
 * @throws {IdsError} `number-invalid`, `options-invalid`; `component` where the compatibility date is before
 * 2024-10-14.
 */
export function openIds(given: Omit<IdsOptions, 'renewLeases'>): Ids {
  const options = checkedIds(given, 'openIds');
  const { Cloudflare } = globalThis as { Cloudflare?: { compatibilityFlags?: Record<string, boolean> } };
  if (Cloudflare?.compatibilityFlags?.['handle_cross_request_promise_resolution'] === false) {
    const what = 'requests of this Worker cannot wake each other up: set compatibility_date to 2024-10-14 or later';
    throw new IdsError('component', what);
  }
  return Ids.openWith((name) => modules[name as keyof typeof modules], { ...options, renewLeases: false });
}
