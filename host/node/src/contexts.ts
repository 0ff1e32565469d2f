/**
 * Where work belongs to the request that began it, as in Cloudflare's Workers: a timer, a connection and what waits for
 * them end with that request, also in the middle. Node and browsers have one context for all.
 *
 * So nobody counts on what another request began: each waits by a timer of its own, looks by itself whether a request
 * to a store is overdue, and drives rounds only while its own caller waits.
 *
 * @module
 */

/** How work is kept alive, and by whom. */
export interface Contexts {
  /** Has the present request live until this work has ended, as far as the platform lets it. */
  keep(work: Promise<unknown>): void;
  /** How long anybody waits at most before a look of its own, in milliseconds. */
  readonly lookEveryMs: number;
  /** Whether requests end apart from each other. */
  readonly areMany: boolean;
}

let contexts: Contexts = { keep: () => {}, lookEveryMs: Number.POSITIVE_INFINITY, areMany: false };

/** Says how it is on this platform. An entry of the package does, before anything is opened. */
export function setContexts(given: Contexts): void {
  contexts = given;
}

/** How it is on this platform. */
export function contextsHere(): Contexts {
  return contexts;
}
