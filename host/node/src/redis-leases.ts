/**
 * Leases in Redis: one hash per namespace, with the newest lease of each worker, within time that a durable store
 * grants.
 *
 * A request looks at the hash by one script, decides by the rules of every lease store, and writes one worker by
 * another script, sent once. That one writes only if the server is the same incarnation, the namespace did not begin
 * anew, and the worker's field is, byte for byte, what was seen; otherwise the request looks again.
 *
 * A namespace's time ends at its *bound*, and so do all of its leases. It belongs to one incarnation of Redis; what
 * another one gets comes after all that was ever granted. So a Redis that was restarted, flushed, restored or failed
 * over costs a wait and never an overlap, whatever any clock says.
 *
 * @module
 */

import {
  ClockSteps,
  NamespaceBinding,
  checkClocks,
  chooseWorker,
  leaseLost,
  randomBits,
  rfc3339,
  roundUpMs,
  validateAcquire,
  validateExtend,
  validateLimits,
  type Clocks,
  type LeaseLimits,
} from './lease-rules.js';
import { KEPT_LEASES, timeTag } from './names.js';
import {
  FIELDS,
  MS_MAX,
  readNamespace,
  runningLease,
  validOf,
  workerField,
  writeBinding,
  writeWorker,
  type LeaseRecord,
  type NamespaceView,
  type Valid,
  type Worker,
} from './redis-lease-hash.js';
import { ASK_AGAIN_MS, DONE, Raising, Turns, elsewhere, monotonicMs, type Raise } from './redis-raising.js';
import { LEASES_INSTALL, LEASES_LOOK, LEASES_WRITE } from './redis-scripts.js';
import type { RedisServer } from './redis-server.js';
import type { RedisSettings } from './redis-url.js';
import {
  StoreError,
  type Lease,
  type LeaseAcquire,
  type LeaseExtend,
  type Layout,
  type SegmentStore,
} from './store.js';
import { after } from './wait.js';

/** What a new hash has beside its generation and its first claim. */
const NEW = [
  ['incarnation', ''],
  ['bound_ms', '0'],
  ['low', '0'],
] as const;

/** The least and the most that the bound is raised by beyond what is asked for, in milliseconds. */
const LEAD_MS = [1_000n, 60_000n] as const;

/** The first tries, which follow each other at once. Each one after them waits a ms longer than the one before. */
const TRIES_AT_ONCE = 4;

/** The longest wait before a try, in milliseconds. */
const PAUSE_MAX_MS = 20;

const U64_MAX = (1n << 64n) - 1n;

/** The turns of so many namespaces are known before those that nobody waits for are forgotten. */
const KNOWN_MAX = 1_024;

interface Namespace {
  readonly name: string;
  readonly key: string;
}

/** How far the bound of a namespace shall reach, in Unix milliseconds. */
interface WantedTime {
  /** Somebody else may have raised it so far: then it is enough. */
  readonly leastMs: bigint;
  readonly untilMs: bigint;
  /**
   * What the namespace is bound to if it has to begin anew, with the earliest time that is of use as its floor; `null`
   * where what is left is used first.
   */
  readonly anew: NamespaceBinding | null;
}

/**
 * How much further than a horizon the bound is raised: holders extend after a third of a horizon, so half of one is
 * enough for the next time, and then it is raised in the background.
 */
export function leadMs(horizonMs: bigint): bigint {
  const [least, most] = LEAD_MS;
  const half = horizonMs / 2n;
  return half < least ? least : half > most ? most : half;
}

export class RedisLeases {
  readonly #server: RedisServer;
  readonly #prefix: string;
  readonly #limits: LeaseLimits;
  readonly #raising: Raising;
  readonly #steps = new ClockSteps();
  readonly #turns = new Map<string, Turns>();
  readonly #durable: SegmentStore;
  /** The namespaces of which the durable store knows that their leases are here. */
  readonly #placed = new Set<string>();
  /** How long a request tries in all. */
  readonly #patienceMs: number;

  private constructor(
    server: RedisServer,
    durable: SegmentStore,
    raising: Raising,
    settings: RedisSettings,
    limits: LeaseLimits,
  ) {
    this.#server = server;
    this.#durable = durable;
    this.#raising = raising;
    this.#prefix = settings.prefix;
    this.#limits = limits;
    this.#patienceMs = settings.raiseTimeoutMs + settings.requestTimeoutMs;
  }

  /** @throws {StoreError} As {@link Raising.recognise}; `refused` for limits that are out of range. */
  static async open(
    server: RedisServer,
    durable: SegmentStore,
    settings: RedisSettings,
    limits: LeaseLimits,
  ): Promise<RedisLeases> {
    validateLimits(limits);
    const raising = new Raising(server, durable, settings, 'leases', NEW);
    await raising.recognise();
    return new RedisLeases(server, durable, raising, settings, limits);
  }

  async acquire(acquire: LeaseAcquire): Promise<Lease> {
    validateAcquire(acquire);
    const namespace = this.#namespace(acquire.namespace);
    const next = this.#tries(namespace, acquire.nowMs);
    const deadline = this.#raising.deadline();
    let hasAsked = false;
    for (;;) {
      const holderMs = await next();
      const view = await this.#look(namespace, null);
      const clocks = { holderMs, storeMs: view.nowMs };
      checkClocks(this.#limits, clocks);
      this.#checkKept(namespace, view);
      const valid = validOf(view);
      const binding = valid?.binding ?? this.#beginsWith(namespace, view, acquire.layout);
      binding.checkLayout(namespace.name, acquire.layout);
      // A request that is refused binds nothing.
      withFloor(binding, 0n).grant(0n, clocks, acquire.horizonMs);
      const horizonMs = min(acquire.horizonMs, binding.maxHorizonMs);
      const leastMs = view.nowMs + horizonMs;
      const untilMs = leastMs + leadMs(horizonMs);
      const reach = valid === null ? 0n : reachMs(valid, view.nowMs, horizonMs);
      valid?.binding.checkQuarantine(namespace.name, view.nowMs);
      // Behind the bound no lease begins or ends, whatever the holder's clock says.
      if (valid === null || reach === 0n || !holdsTick(valid.binding, clocks, reach)) {
        // Somewhat before the earlier clock, so that a holder whose clock is behind need not wait.
        const floorMs = max(view.nowMs - this.#limits.maxSkewMs - BigInt(binding.layout.tickMs), 0n);
        await this.#wait(namespace, { leastMs, untilMs, anew: withFloor(binding, floorMs) }, deadline);
        continue;
      }
      if (reach < horizonMs && !hasAsked) {
        try {
          hasAsked = await this.#wait(namespace, { leastMs, untilMs, anew: null }, deadline);
        } catch (error) {
          if (!(error instanceof StoreError)) {
            throw error;
          }
          // The lease is shorter than was asked for.
          hasAsked = true;
        }
        continue;
      }
      const lease = await this.#acquireOnce(namespace, view, valid, acquire, clocks);
      if (lease !== null) {
        this.#raiseSoon(namespace, valid, leastMs, horizonMs);
        return lease;
      }
    }
  }

  async extend(extend: LeaseExtend): Promise<Lease> {
    validateExtend(extend);
    const namespace = this.#namespace(extend.namespace);
    const next = this.#tries(namespace, extend.nowMs);
    const deadline = this.#raising.deadline();
    let asked: { readonly error: StoreError | null } | null = null;
    for (;;) {
      const holderMs = await next();
      const view = await this.#look(namespace, [extend.worker]);
      checkClocks(this.#limits, { holderMs, storeMs: view.nowMs });
      this.#checkKept(namespace, view);
      const valid = validOf(view);
      if (valid === null) {
        throw leaseLost(namespace.name, extend.worker);
      }
      valid.binding.checkLayout(namespace.name, extend.layout);
      const worker = runningLease(valid.hash, extend.worker, extend.grantId);
      if (worker === null) {
        throw leaseLost(namespace.name, extend.worker);
      }
      const horizonMs = min(extend.horizonMs, valid.binding.maxHorizonMs);
      const leastMs = view.nowMs + horizonMs;
      const reach = reachMs(valid, view.nowMs, horizonMs);
      if (reach < horizonMs && asked === null) {
        const wanted = { leastMs, untilMs: leastMs + leadMs(horizonMs), anew: null };
        try {
          asked = (await this.#wait(namespace, wanted, deadline)) ? { error: null } : null;
        } catch (error) {
          if (!(error instanceof StoreError)) {
            throw error;
          }
          asked = { error };
        }
        continue;
      }
      const before = worker.record.lease.validUntilMs;
      const validUntilMs = reach > 0n ? valid.binding.extendedEndMs(before, view.nowMs, reach) : before;
      if (validUntilMs === before) {
        if (valid.binding.extendedEndMs(before, view.nowMs, horizonMs) === before) {
          return worker.record.lease;
        }
        if (asked !== null && asked.error !== null) {
          throw asked.error;
        }
        // Whatever the durable store granted behind it is not here: the holder of a lease that is over gets one anew.
        throw before <= view.nowMs ? leaseLost(namespace.name, extend.worker) : atBound(namespace, before);
      }
      const lease = { ...worker.record.lease, validUntilMs };
      if (await this.#write(namespace, valid, worker, { ...worker.record, lease }, validUntilMs)) {
        this.#raiseSoon(namespace, valid, leastMs, horizonMs);
        return lease;
      }
    }
  }

  async release(name: string, workerId: number, grantId: bigint, endMs: bigint): Promise<boolean> {
    const namespace = this.#namespace(name);
    const next = this.#tries(namespace, 0n);
    for (;;) {
      await next();
      const view = await this.#look(namespace, [workerId]);
      this.#checkKept(namespace, view);
      const valid = validOf(view);
      const worker = valid === null ? null : runningLease(valid.hash, workerId, grantId);
      if (valid === null || worker === null) {
        return false;
      }
      const validUntilMs = valid.binding.releasedEndMs(worker.record.lease, endMs);
      if (validUntilMs === null) {
        return false;
      }
      const record = { ...worker.record, lease: { ...worker.record.lease, validUntilMs }, isFinal: true };
      if (await this.#write(namespace, valid, worker, record, 0n)) {
        return true;
      }
    }
  }

  #namespace(name: string): Namespace {
    // In braces, so that all that may ever belong to a namespace lies on one node.
    return { name, key: `${this.#prefix}:leases:{${name}}` };
  }

  /** The holder's clock at each try, which goes on while the request is tried again. */
  #tries(namespace: Namespace, holderMs: bigint): () => Promise<bigint> {
    const began = monotonicMs();
    let count = 0;
    return async () => {
      count += 1;
      if (count === 1) {
        return holderMs;
      }
      const pauseMs = Math.min(count - TRIES_AT_ONCE, PAUSE_MAX_MS);
      if (pauseMs > 0) {
        await new Promise((resolve) => after(() => resolve(null), pauseMs));
      }
      const waitedMs = monotonicMs() - began;
      if (waitedMs >= this.#patienceMs) {
        const what = `the leases of ${JSON.stringify(namespace.name)} on ${this.#server.address} change all the time`;
        throw new StoreError('unavailable', `${what}: try again`);
      }
      return min(holderMs + BigInt(Math.floor(waitedMs)), U64_MAX);
    };
  }

  /** Looks at a namespace and these workers of it, or all of them. */
  async #look(namespace: Namespace, workers: readonly number[] | null): Promise<NamespaceView> {
    const args = workers === null ? [] : [...FIELDS, ...workers.map(workerField)];
    const doing = `looking at the leases of ${JSON.stringify(namespace.name)}`;
    const asked = process.hrtime.bigint();
    const view = readNamespace(await this.#server.script(doing, 'reads', LEASES_LOOK, [namespace.key], args));
    this.#steps.read(asked, process.hrtime.bigint(), view.nowMs);
    return view;
  }

  /** Checks that a namespace is kept with a durable store. */
  #checkKept(namespace: Namespace, view: NamespaceView): void {
    if (view.hash !== null && view.hash.boundMs === null) {
      throw this.#keptOtherwise(namespace);
    }
  }

  #keptOtherwise(namespace: Namespace): StoreError {
    return new StoreError(
      'refused',
      `the leases of ${JSON.stringify(namespace.name)}, the key ${namespace.key} on ${this.#server.address}, are ` +
        `kept the ` +
        'other way: without a durable store. Open them with the `unalike` server as they were; or end all leases and ' +
        'wait ' +
        'until the last has ended and another minute, delete the key, and begin anew',
    );
  }

  /** What a namespace is bound to that begins anew: its old layout and horizon, where they are known. */
  #beginsWith(namespace: Namespace, view: NamespaceView, layout: Layout): NamespaceBinding {
    const binding = view.hash?.binding ?? NamespaceBinding.firstUse(layout, this.#limits);
    binding.checkLayout(namespace.name, layout);
    return binding;
  }

  /** `null` when another client was faster. */
  async #acquireOnce(
    namespace: Namespace,
    view: NamespaceView,
    valid: Valid,
    acquire: LeaseAcquire,
    clocks: Clocks,
  ): Promise<Lease | null> {
    const { hash, binding } = valid;
    binding.checkQuarantine(namespace.name, view.nowMs);
    const used = [...hash.workers].map(
      ([worker, { record }]) => [{ worker, endMs: record.lease.validUntilMs }, record.holder] as const,
    );
    const expiry = this.#steps.expiry(process.hrtime.bigint(), view.nowMs, binding.maxHorizonMs);
    const chosen = chooseWorker(acquire, expiry, randomBits(8), used);
    const interval = binding.grant(chosen.endMs, clocks, reachMs(valid, view.nowMs, acquire.horizonMs));
    const lease = {
      worker: chosen.worker,
      grantId: randomBits(16),
      notBeforeMs: interval.startMs,
      validUntilMs: interval.endMs,
    };
    const record = { lease, holder: acquire.holder, acquiredMs: view.nowMs, isFinal: false };
    const before = hash.workers.get(chosen.worker) ?? null;
    return (await this.#write(namespace, valid, before, record, interval.endMs)) ? lease : null;
  }

  /**
   * Writes the newest lease of a worker in the place of what was seen; whether that was still so. Time is granted up to
   * `grantedUntilMs`, 0 where none is.
   */
  async #write(
    namespace: Namespace,
    valid: Valid,
    before: Worker | null,
    record: LeaseRecord,
    grantedUntilMs: bigint,
  ): Promise<boolean> {
    const { worker, notBeforeMs, validUntilMs } = record.lease;
    if (max(max(notBeforeMs, validUntilMs), record.acquiredMs) > MS_MAX) {
      const what = `a lease of worker ${worker} is of a time beyond ${rfc3339(MS_MAX)}`;
      throw new StoreError('refused', what);
    }
    const { generation, incarnation } = valid.hash;
    const times = [grantedUntilMs, valid.binding.maxHorizonMs].map(String);
    const args = [generation, incarnation, workerField(worker), before?.text ?? '', writeWorker(record), ...times];
    const doing = `writing the lease of worker ${worker} of ${JSON.stringify(namespace.name)}`;
    const reply = await this.#server.script(doing, 'writes', LEASES_WRITE, [namespace.key], args);
    const answer = reply.text();
    if (answer !== 'written' && answer !== 'changed') {
      throw reply.damaged(`a script answered ${JSON.stringify(answer)}`);
    }
    return answer === 'written';
  }

  /** Raises the bound before it is too short for the next request of its kind. */
  #raiseSoon(namespace: Namespace, valid: Valid, neededMs: bigint, horizonMs: bigint): void {
    const lead = leadMs(horizonMs);
    const leastMs = neededMs + lead / 2n;
    if (valid.boundMs < leastMs) {
      const turns = this.#turnsOf(namespace);
      const wanted = { leastMs, untilMs: neededMs + lead, anew: null };
      this.#raising.soon(turns, () => this.#raise(namespace, turns, wanted));
    }
  }

  #turnsOf(namespace: Namespace): Turns {
    let turns = this.#turns.get(namespace.key);
    if (turns === undefined) {
      if (this.#turns.size >= KNOWN_MAX) {
        for (const [key, known] of this.#turns) {
          if (known.isIdle) {
            this.#turns.delete(key);
          }
        }
      }
      turns = new Turns();
      this.#turns.set(namespace.key, turns);
    }
    return turns;
  }

  /**
   * Waits until the bound was raised, or needs not be, at most until the deadline. Whether all was done that can be;
   * otherwise somebody else was at it, perhaps for less.
   */
  async #wait(namespace: Namespace, wanted: WantedTime, deadline: number): Promise<boolean> {
    const turns = this.#turnsOf(namespace);
    let isDone = false;
    const raise = async (): Promise<Raise> => {
      const outcome = await this.#raise(namespace, turns, wanted);
      isDone = outcome.kind === 'done';
      return outcome;
    };
    try {
      await this.#raising.wait(namespace.name, turns, turns.raised, deadline, raise);
      return isDone;
    } catch (error) {
      if (error instanceof StoreError && error.kind === 'ceiling-reached') {
        const why = error.cause instanceof Error ? ` (${error.cause.message})` : '';
        throw new StoreError(
          'unavailable',
          `the durable store has not granted Redis more time for the leases of ${JSON.stringify(namespace.name)}: ` +
            `try again${why}`,
          { cause: error.cause },
        );
      }
      if (error instanceof StoreError && error.kind === 'tag-unknown') {
        throw new StoreError(
          'refused',
          `the durable store has no tag ${JSON.stringify(KEPT_LEASES)}, under which it grants Redis time for leases, ` +
            `and makes ` +
            'none: let it create tags on first use',
        );
      }
      throw error;
    }
  }

  /**
   * Makes sure that the durable store leases no workers of this namespace itself, and never will. Whatever it refuses,
   * nothing was written in Redis before.
   */
  async #place(name: string): Promise<void> {
    await this.#raising.ask(name, async () => this.#durable.leaveLeases?.(name));
    this.#placed.add(name);
  }

  async #raise(namespace: Namespace, turns: Turns, wanted: WantedTime): Promise<Raise> {
    if (!this.#placed.has(namespace.name)) {
      await this.#place(namespace.name);
    }
    const place = { tag: namespace.name, owner: KEPT_LEASES, key: namespace.key };
    return this.#raising.claimed(place, turns, async () => {
      const view = await this.#look(namespace, []);
      const valid = validOf(view);
      if (view.hash === null) {
        return elsewhere(ASK_AGAIN_MS);
      }
      const { generation, boundMs } = view.hash;
      if (boundMs === null) {
        throw this.#keptOtherwise(namespace);
      }
      if (valid !== null && boundMs >= wanted.leastMs) {
        await this.#raising.settle(place, null);
        return DONE;
      }
      const tag = timeTag(namespace.name);
      // Looks before it asks: a grant that is burnt moves the watermark, and the next look would find nothing wrong.
      const grantedUntilMs = await this.#raising.grantedUntil(place, tag);
      if (grantedUntilMs <= 1n) {
        // Nothing was granted yet, or the durable store has lost that, and perhaps what it noted of this namespace.
        await this.#place(namespace.name);
      }
      if (grantedUntilMs < boundMs) {
        const [until, bound] = [rfc3339(grantedUntilMs), rfc3339(boundMs)];
        throw new StoreError(
          'corrupt',
          `the durable store granted time up to ${until} under ${JSON.stringify(tag)}, and Redis had it up to ${bound} ` +
            'before: it lost data, or is another store; find out which. If it lost data, wait until ' +
            `${bound} has passed and another minute, when all of these leases have ended whatever clocks show, and ` +
            `delete the key ${namespace.key} in Redis`,
        );
      }
      let startMs = boundMs;
      let anew: NamespaceBinding | null = null;
      if (valid === null || grantedUntilMs !== boundMs) {
        if (wanted.anew === null) {
          await this.#raising.settle(place, null);
          return DONE;
        }
        anew = wanted.anew;
        startMs = max(grantedUntilMs, anew.floorMs);
      }
      // Time that has not come yet is only begun: nobody else gets what follows, and a Redis that is lost again before
      // costs next to nothing more.
      const untilMs = anew !== null && startMs > view.nowMs ? 0n : wanted.untilMs;
      const granted = await this.#raising.grant(place, tag, max(untilMs - startMs, 1n), startMs);
      const floorMs = anew === null ? 0n : roundUpMs(anew.layout, granted.start);
      const binding = anew === null ? '' : writeBinding(withFloor(anew, floorMs));
      return this.#raising.install(place, LEASES_INSTALL, [generation, view.here], granted, [binding]);
    });
  }
}

/** How far ahead of the clock a lease may reach: `horizonMs`, and no further than the bound; 0 behind that. */
function reachMs(valid: Valid, nowMs: bigint, horizonMs: bigint): bigint {
  return min(min(horizonMs, valid.binding.maxHorizonMs), max(valid.boundMs - nowMs, 0n));
}

/** Whether a new lease that reaches so far would hold a tick. */
function holdsTick(binding: NamespaceBinding, clocks: Clocks, reach: bigint): boolean {
  try {
    binding.grant(0n, clocks, reach);
    return true;
  } catch (error) {
    if (error instanceof StoreError) {
      return false;
    }
    throw error;
  }
}

function withFloor(binding: NamespaceBinding, floorMs: bigint): NamespaceBinding {
  return new NamespaceBinding(binding.layout, binding.maxHorizonMs, floorMs);
}

/** The error of an extension beyond time that was granted and never installed. */
function atBound(namespace: Namespace, boundMs: bigint): StoreError {
  return new StoreError(
    'unavailable',
    `the time that the durable store granted Redis for the leases of ${JSON.stringify(namespace.name)} ends at ` +
      `${rfc3339(boundMs)}, and behind it some was lost: they begin anew then`,
  );
}

function min(a: bigint, b: bigint): bigint {
  return a < b ? a : b;
}

function max(a: bigint, b: bigint): bigint {
  return a > b ? a : b;
}
