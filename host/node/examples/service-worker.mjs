// A service worker that gives its pages ids, also while a server is away for a moment. A page registers it with
// `navigator.serviceWorker.register('/service-worker.mjs', { type: 'module' })`, and asks `fetch('/ids/order?count=3')`.
// Its server runs as `unalike serve --allowed-origins ORIGIN`. A bundler puts unalike into this file.

import { Ids, IdsError } from 'unalike';
import { RemoteStore } from 'unalike/remote';

const SERVER = new URL(self.location.href).searchParams.get('server') ?? 'http://127.0.0.1:8080';

/** Opened by the first request; a worker that was ended is another one when it starts again, with grants of its own. */
let opened;

function open() {
  opened ??= (async () => {
    const store = await RemoteStore.open(SERVER);
    // Few numbers at a time: a browser ends an idle worker without a word, and what it holds then is lost.
    const step = { kind: 'adaptive', step: 8n, min: 2n, max: 64n, growBelowMs: 2_000n, shrinkAboveMs: 10_000n };
    return { ids: await Ids.open({ segments: store, leases: store, waitMaxMs: 5_000 }), step };
  })();
  // What failed once may work later.
  opened.catch(() => (opened = undefined));
  return opened;
}

async function answer(url) {
  try {
    const { ids, step } = await open();
    const tag = decodeURIComponent(url.pathname.slice('/ids/'.length));
    const sequence = await ids.sequence(tag, { step });
    const taken = await sequence.take(Number(url.searchParams.get('count') ?? 1));
    // Ids are bigints: JSON has them as texts.
    return Response.json([...taken].map(String));
  } catch (error) {
    const isRetryable = error instanceof IdsError && error.isRetryable;
    return new Response(error.message, { status: isRetryable ? 503 : 500 });
  }
}

self.addEventListener('install', () => self.skipWaiting());
self.addEventListener('activate', (event) => event.waitUntil(self.clients.claim()));
self.addEventListener('fetch', (event) => {
  const url = new URL(event.request.url);
  if (url.origin === self.location.origin && url.pathname.startsWith('/ids/')) {
    event.respondWith(answer(url));
  }
});
