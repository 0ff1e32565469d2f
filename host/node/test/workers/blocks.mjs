// Objects of a program's own that take ids, also while they let nothing else in.

import { DurableObject, env } from 'cloudflare:workers';
import { DurableStore, IdsError, openIds } from '../../dist/workers.js';

const store = new DurableStore(env.IDS);
const ids = openIds({ segments: store, leases: store, waitMaxMs: 2_000, requestTimeoutMs: 1_000 });

export class Mine extends DurableObject {
  async next(tag, isBlocking) {
    const take = async () => {
      const step = { kind: 'fixed', step: 2n };
      try {
        const sequence = await ids.sequence(tag, tag === 'ticket' ? {} : { step });
        return { id: String(await sequence.next()) };
      } catch (error) {
        if (!(error instanceof IdsError)) {
          throw error;
        }
        return { kind: error.kind };
      }
    };
    return await (isBlocking ? this.ctx.blockConcurrencyWhile(take) : take());
  }
}

export default {
  async fetch(request) {
    const { name, tag, block } = Object.fromEntries(new URL(request.url).searchParams);
    if (tag === 'ticket') {
      await store.createTag(tag, { mode: 'ordered' }).catch(() => undefined);
    }
    return Response.json(await env.MINE.get(env.MINE.idFromName(name)).next(tag, block === 'yes'));
  },
};
