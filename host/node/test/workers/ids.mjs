// A Worker that hands out ids of Durable Objects, or of unalike servers where it is given their address.

import { env } from 'cloudflare:workers';
import { DurableStore, Formats, IdsError, openIds, RemoteStore, StoreError } from '../../dist/workers.js';

export { UnalikeObject } from '../../dist/workers.js';

const isolate = { name: undefined, requests: 0 };
let shared = open();

function open() {
  if (env.SERVERS !== undefined) {
    return undefined;
  }
  const options = env.STORE === undefined ? {} : { store: env.STORE };
  const store = new DurableStore(env.IDS, { ...options, createTags: env.CREATE !== 'no' });
  return { store, ids: openIds({ segments: store, leases: store, waitMaxMs: 30_000 }) };
}

async function opened() {
  if (shared === undefined) {
    const store = await RemoteStore.open(env.SERVERS, { token: env.TOKEN });
    // Another request may have been quicker.
    shared ??= { store, ids: openIds({ segments: store, leases: store }) };
  }
  return shared;
}

const runsOf = (batch) => batch.runs.map(({ first, stride, count }) => [String(first), String(stride), count]);

const PATHS = {
  async take({ tag = 'order', sub, count = '1', step }) {
    const { ids } = await opened();
    const options = step === undefined ? {} : { step: { kind: 'fixed', step: BigInt(step) } };
    const sequence = sub === undefined ? await ids.sequence(tag, options) : await ids.sequenceOf(tag, sub, options);
    return { runs: runsOf(await sequence.take(Number(count))) };
  },
  async flakes({ namespace = 'events', layout = 'twitter', count = '1', horizon = '60000' }) {
    const { ids } = await opened();
    const flakes = await ids.snowflake(namespace, layout, { horizonMs: Number(horizon) });
    const batch = await flakes.take(Number(count));
    return { runs: runsOf(batch), worker: flakes.status().worker };
  },
  async formatted({ tag, namespace, template }) {
    const { ids } = await opened();
    const format = (await Formats.load()).format({ template });
    const shown =
      namespace === undefined
        ? await ids.formatted(tag, format)
        : await ids.formattedSnowflake(namespace, 'twitter', format);
    return { text: await shown.next() };
  },
  async create({ tag, mode = 'buffered', start = '1' }) {
    const { store } = await opened();
    const { options } = await store.createTag(tag, { mode, start: BigInt(start) });
    return { mode: options.mode, step: String(options.step.step) };
  },
  async restore({ tag, start }) {
    const { store } = await opened();
    await store.restoreTag(tag, { start: BigInt(start) });
    return {};
  },
  async identity() {
    const { store } = await opened();
    return { store: await store.identity(), leases: await store.leaseIdentity() };
  },
  async allocate({ tag, count, least = '0' }) {
    const { store } = await opened();
    const segment = await store.allocate(tag, BigInt(count), BigInt(least));
    return Object.fromEntries(Object.entries(segment).map(([name, value]) => [name, String(value)]));
  },
  async release({ tag, start, version }) {
    const { store } = await opened();
    return { done: await store.release(tag, { start: BigInt(start), version: BigInt(version) }) };
  },
  async isolate() {
    isolate.name ??= crypto.randomUUID();
    return isolate;
  },
  async text({ id }) {
    return { text: (await Formats.load()).encode(BigInt(id), 'base62') };
  },
};

export default {
  async fetch(request) {
    isolate.requests += 1;
    const { pathname, searchParams } = new URL(request.url);
    try {
      return Response.json(await PATHS[pathname.slice(1)](Object.fromEntries(searchParams)));
    } catch (error) {
      if (!(error instanceof IdsError || error instanceof StoreError)) {
        throw error;
      }
      const { name, kind, message, isRetryable, storeError } = error;
      return Response.json({ name, kind, message, isRetryable, store: storeError?.kind }, { status: 503 });
    }
  },
};
