// A Worker that makes mistakes, and tells what it hears of each.

import { env } from 'cloudflare:workers';
import { DurableStore, MemoryStore, openIds, UnalikeObject } from '../../dist/workers.js';

export { UnalikeObject };

const store = new DurableStore(env.IDS);
const MISTAKES = {
  // Each of these would repeat numbers.
  'restore without options': () => store.restoreTag('order'),
  'restore without a start': () => store.restoreTag('order', { mode: 'buffered' }),
  'restore at undefined': () => store.restoreTag('order', { start: undefined }),
  'pin that is not set': () => new DurableStore(env.IDS, { store: env.NO_SUCH_VARIABLE }),
  'pin under another name': () => new DurableStore(env.IDS, { identity: '0'.repeat(32) }),
  'name that is a number': () => new DurableStore(env.IDS, { name: 5 }),
  'options that are a text': () => new DurableStore(env.IDS, 'orders'),
  'flag that is a text': () => new DurableStore(env.IDS, { createTags: 'no' }),
  'new tags that are halves': () => new DurableStore(env.IDS, { newTags: { step: { kind: 'fixed', step: 5 } } }),
  'tag options that are a number': () => store.createTag('some', 5),
  'no store': () => openIds({}),
  'binding in the place of a store': () => openIds({ segments: env.IDS }),
  'class in the place of a store': () => openIds({ segments: DurableStore }),
  'object whose class is another': () => new DurableStore(env.OTHER).allocate('some', 1n, 0n),
  'class without SQLite': () => new DurableStore(env.PLAIN).allocate('some', 1n, 0n),
  'class without SQLite, by ids': async () => {
    const plain = new DurableStore(env.PLAIN);
    await openIds({ segments: plain }).sequence('some');
  },
  'good ones': async () => {
    const some = new DurableStore(env.IDS, { name: 'other', createTags: true, newTags: { mode: 'ordered' } });
    openIds({ segments: new MemoryStore(), leases: some });
    const { options } = await some.openTag('some');
    return { mode: options.mode, step: String(options.step.step) };
  },
};

export default {
  async fetch(request) {
    try {
      const brought = await MISTAKES[await request.text()]();
      return Response.json({ brought: typeof brought?.mode === 'string' ? brought : String(brought) });
    } catch (error) {
      return Response.json({ name: error.name, kind: error.kind, message: error.message });
    }
  },
};
