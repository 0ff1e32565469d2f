// A Worker whose stores are slow, or never answer, and whose objects lose their storage or their answers when told to.

import { env } from 'cloudflare:workers';
import { DurableStore, IdsError, MemoryStore, openIds, StoreError, UnalikeObject as Base } from '../../dist/workers.js';

let losing = '';

export class UnalikeObject extends Base {
  async ask(request) {
    const answer = await super.ask(request);
    if (losing !== '' && losing === request.method) {
      losing = '';
      // After it was done, and before anybody hears of it.
      this.ctx.abort('the object was moved');
    }
    return answer;
  }

  async fetch(request) {
    const { pathname } = new URL(request.url);
    if (pathname === '/lose') {
      losing = await request.text();
    } else if (pathname === '/dump') {
      const [tag, ...columns] = (await request.text()).split(' ');
      const cast = columns.map((column) => `CAST(${column} AS TEXT) AS ${column}`).join(', ');
      return Response.json(this.ctx.storage.sql.exec(`SELECT ${cast} FROM tag WHERE tag = ?`, tag).toArray());
    } else {
      await this.ctx.storage.deleteAll();
    }
    return new Response('{}');
  }
}

/** A store whose every grant takes a while, and whose chosen ones never come. */
class Slow extends MemoryStore {
  calls = 0;
  hangs = new Set();
  latencyMs = 0;

  async allocate(tag, count, atLeast) {
    this.calls += 1;
    if (this.hangs.has(this.calls)) {
      await new Promise(() => {});
    }
    await new Promise((resolve) => setTimeout(resolve, this.latencyMs));
    return await super.allocate(tag, count, atLeast);
  }
}

const slow = new Slow();
const options = { requestTimeoutMs: 1_000, waitMaxMs: 15_000 };
const ids = openIds({ segments: slow, ...options });
const store = new DurableStore(env.IDS);
const durable = openIds({ segments: store, leases: store, ...options });

const PATHS = {
  async hang({ after }) {
    slow.hangs.add(slow.calls + Number(after));
    return {};
  },
  /** Answers once the grant that never comes was asked for. */
  async hanging() {
    while (slow.calls < Math.max(...slow.hangs)) {
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    return {};
  },
  async latency({ ms }) {
    slow.latencyMs = Number(ms);
    return {};
  },
  async slow({ tag, mode = 'buffered', wait = '15000', leave }, ctx) {
    if (Number(leave) >= 0) {
      // All that this request began ends, `waitUntil` or not.
      setTimeout(() => ctx.abort('it was cut'), Number(leave));
    }
    if (mode === 'ordered') {
      await slow.createTag(tag, { ...(await slow.openTag('any')).options, mode }).catch(() => undefined);
    }
    const sequence = await ids.sequence(tag, mode === 'ordered' ? {} : { step: { kind: 'fixed', step: 5n } });
    const id = await sequence.next({ waitMaxMs: Number(wait) });
    if (leave === 'served') {
      ctx.abort('it was cut');
    }
    return { id: String(id), calls: slow.calls };
  },
  async close({ tag }, ctx) {
    const sequence = await ids.sequence(tag);
    setTimeout(() => ctx.abort('it was cut'), 100);
    await sequence.close();
    return {};
  },
  async next({ tag, namespace }) {
    const generator = tag === undefined ? await durable.snowflake(namespace, 'twitter') : await durable.sequence(tag);
    return { id: String(await generator.next()) };
  },
  async allocate({ tag, count }) {
    const { start, end, version } = await store.allocate(tag, BigInt(count), 0n);
    return { start: String(start), end: String(end), version: String(version) };
  },
  async acquire({ namespace, bits, skew = '0', horizon = '60000', epoch = '0' }) {
    const layout = {
      timestampBits: 41, datacenterBits: 0, workerBits: Number(bits), sequenceBits: 12, order: 'worker-first',
      epochMs: BigInt(epoch), tickMs: 1,
    };
    const nowMs = BigInt(Date.now()) + BigInt(skew);
    const asked = { namespace, layout, holder: '', preferredWorker: null, nowMs, horizonMs: BigInt(horizon) };
    const lease = await store.acquire(asked);
    const { worker, grantId } = lease;
    const request = { namespace, layout, worker, grantId, nowMs, horizonMs: 120_000n };
    const longer = await store.extend(request);
    const other = await store.extend({ ...request, grantId: grantId ^ 1n }).catch(({ kind }) => kind);
    const told = { ...lease, until: longer.validUntilMs, other };
    return JSON.parse(JSON.stringify(told, (_, part) => (typeof part === 'bigint' ? String(part) : part)));
  },
  async end({ namespace, worker, grant, end }) {
    return { done: await store.release(namespace, Number(worker), BigInt(grant), BigInt(end)) };
  },
  async object({ name, path, body }) {
    const stub = env.IDS.get(env.IDS.idFromName(name));
    return await (await stub.fetch(`http://object/${path}`, { method: 'POST', body })).json();
  },
  async raw({ name, ...request }) {
    const { protocol = '1', object = name, mark = null, store: of = null, method = 'allocate' } = request;
    const { rules } = store;
    const args = ['order', 10n, 0n];
    const stub = env.IDS.get(env.IDS.idFromName(name));
    const answer = await stub.ask({ protocol: Number(protocol), object, mark, store: of, method, args, rules });
    return JSON.parse(JSON.stringify(answer, (_, part) => (typeof part === 'bigint' ? String(part) : part)));
  },
  async few({ tag, max }) {
    const small = new DurableStore(env.IDS, { name: 'small', tagsMax: BigInt(max) });
    return { start: String((await small.allocate(tag, 1n, 0n)).start) };
  },
  async wrong({ name, pin, max = '1', ...others }) {
    const options = { ...others, name, tagsMax: BigInt(max), ...(pin === undefined ? {} : { store: pin }) };
    return { wrong: String(new DurableStore(name === undefined ? env.NONE : env.IDS, options)) };
  },
};

export default {
  async fetch(request, _, ctx) {
    const { pathname, searchParams } = new URL(request.url);
    try {
      return Response.json(await PATHS[pathname.slice(1)](Object.fromEntries(searchParams), ctx));
    } catch (error) {
      if (!(error instanceof IdsError || error instanceof StoreError)) {
        throw error;
      }
      const { kind, message, isRetryable, storeError } = error;
      return Response.json({ kind, message, isRetryable, store: storeError?.kind }, { status: 503 });
    }
  },
};
