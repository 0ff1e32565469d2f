/**
 * Segments and leases in Durable Objects of Cloudflare's, from the Workers that use them.
 *
 * @module
 */

import {
  DEFAULT_LEASE_LIMITS,
  leaseLost,
  validateAcquire,
  validateExtend,
  validateLimits,
  validateName,
} from './lease-rules.js';
import {
  completeNewTags,
  completeOptions,
  shown,
  splitTag,
  validateAllocate,
  validatePublic,
  validateTag,
  whole,
} from './names.js';
import { checkedOptions, FLAG, NUMBER, OBJECT, TEXT, type Kinds } from './options.js';
import {
  memberName,
  PROTOCOL,
  rootName,
  type ObjectAnswer,
  type ObjectMethod,
  type ObjectRequest,
} from './object-protocol.js';
import type { Rules } from './object-statements.js';
import {
  ID_MAX,
  refusedByStore,
  StoreError,
  type FormatOwner,
  type FormatPart,
  type Lease,
  type LeaseAcquire,
  type LeaseExtend,
  type LeaseStore,
  type Segment,
  type SegmentStore,
  type TagOptions,
  type TagRecord,
  type TailRelease,
} from './store.js';

/**
 * What tags are created with on first use in Durable Objects: small steps, of some seconds' ids, since an isolate ends
 * without a word and what it holds is a gap then. `step` and `refill` are options of {@link Ids.sequence}, too, for
 * tags of another store.
 */
export const SMALL_STEPS: TagOptions = Object.freeze({
  start: 1n,
  step: Object.freeze({
    kind: 'adaptive',
    step: 10n,
    min: 10n,
    max: 100_000n,
    growBelowMs: 1_000n,
    shrinkAboveMs: 10_000n,
  }),
  refill: Object.freeze({ kind: 'share-consumed', percent: 50 }),
  mode: 'buffered',
});

/** The binding of the namespace of Durable Objects whose class is `UnalikeObject`. */
export interface ObjectNamespace {
  idFromName(name: string): unknown;
  get(id: never): unknown;
}

/** What a store's clients may do. */
export interface DurableOptions {
  /**
   * Which store of this namespace: 1 to 64 small letters, digits and `-`; `ids` by default. Stores know nothing of each
   * other, so their numbers repeat.
   */
  readonly name?: string;
  /**
   * The identity that the store must have, as {@link DurableStore.identity} answers it. A store that was deleted and
   * begins again has another one, and is refused then. `undefined` is refused, too: a variable that is not set would
   * take this protection away without a word.
   */
  readonly store?: string;
  /** Whether tags are created on first use. `true` by default. */
  readonly createTags?: boolean;
  /** What tags are created with on first use. Options that are not given are those of {@link SMALL_STEPS}. */
  readonly newTags?: Partial<TagOptions>;
  /** How many tags there may be, sub-keys not counted. 1,000,000 by default. */
  readonly tagsMax?: bigint | number;
  /** How far ahead of the clock a lease may reach, in milliseconds: up to 366 days, 10 minutes by default. */
  readonly maxHorizonMs?: bigint | number;
  /** How far a holder's clock may be from the store's, in milliseconds: 10 s by default. */
  readonly maxSkewMs?: bigint | number;
}

const OPTIONS: Kinds<DurableOptions> = {
  name: TEXT,
  store: TEXT,
  createTags: FLAG,
  newTags: OBJECT,
  tagsMax: NUMBER,
  maxHorizonMs: NUMBER,
  maxSkewMs: NUMBER,
};

interface Known {
  mark: string | null;
}

/** Methods that change nothing: when their answer is lost, nothing was granted. */
const READS: ReadonlySet<ObjectMethod> = new Set<ObjectMethod>([
  'look',
  'register',
  'confirm',
  'openTag',
  'bindFormat',
]);
/** As often another Worker may come between. */
const TRIES = 3;

/**
 * Segments and leases in Durable Objects: one object for each tag, its sub-keys included; one for each namespace of
 * leases; and a root, which knows all of them. A new tag costs three calls more, once.
 *
 * It makes no call when it is made, so it may be made outside of requests. Each call is sent once; where its answer is
 * lost, what it may have granted is burnt.
 *
 * @example
 * ```ts
 * import { env } from 'cloudflare:workers';
 * import { DurableStore, openIds } from 'unalike/workers';
 * export { UnalikeObject } from 'unalike/workers';
 *
 * const store = new DurableStore(env.IDS);
 * const ids = openIds({ segments: store, leases: store });
 * ```
 */
export class DurableStore implements SegmentStore, LeaseStore {
  private readonly name: string;
  private readonly rules: Rules;
  private readonly members = new Map<string, Known>();
  /** The mark of the root. */
  private store: string | null;

  /** @throws {StoreError} `refused` when an option is out of range. */
  constructor(
    private readonly namespace: ObjectNamespace,
    given: DurableOptions = {},
  ) {
    const options = checkedOptions('options', given, OPTIONS, refusedByStore);
    const { name = 'ids', store = null, createTags = true, newTags = {}, tagsMax = 1_000_000n } = options;
    if (typeof (namespace as Partial<ObjectNamespace> | undefined)?.idFromName !== 'function') {
      throw new StoreError('refused', 'the binding is no namespace of Durable Objects: name it in the configuration');
    }
    if (!/^[a-z0-9-]{1,64}$/.test(name)) {
      const rule = 'it must be 1 to 64 small letters, digits and -';
      throw new StoreError('refused', `the name of the store is ${JSON.stringify(name)}, ${rule}`);
    }
    if (Object.hasOwn(given, 'store') && (store === null || !/^[0-9a-f]{32}$/.test(store))) {
      const advice = store === null ? ': set the variable that has them, or leave the option out' : '';
      const what = `store is ${JSON.stringify(given.store)}, it must be 32 hexadecimal digits`;
      throw new StoreError('refused', what + advice);
    }
    const limits = {
      maxHorizonMs: whole('maxHorizonMs', options.maxHorizonMs ?? DEFAULT_LEASE_LIMITS.maxHorizonMs),
      maxSkewMs: whole('maxSkewMs', options.maxSkewMs ?? DEFAULT_LEASE_LIMITS.maxSkewMs),
    };
    validateLimits(limits);
    this.name = name;
    this.store = store;
    const allNewTags = completeNewTags(newTags, SMALL_STEPS);
    this.rules = { createTags, newTags: allNewTags, tagsMax: whole('tagsMax', tagsMax), limits };
  }

  async allocate(tag: string, count: bigint, atLeast: bigint): Promise<Segment> {
    validateAllocate(tag, count, atLeast);
    validatePublic(tag);
    const granted = (await this.ofTag(tag, 'allocate', [tag, count, atLeast])) as Segment;
    const { start, end, stride, generation, version } = granted;
    const isAskedFor =
      [start, end, stride, generation, version].every((part) => typeof part === 'bigint') &&
      start >= 1n && start >= atLeast && stride === 1n && start < end && end - start <= count && end - 1n <= ID_MAX;
    if (!isAskedFor) {
      const what = `${count} numbers of ${JSON.stringify(tag)} from ${atLeast} on were asked for`;
      throw new StoreError('outcome-unknown', `${what}, and ${start} to ${end} came, which are not used`);
    }
    return granted;
  }

  /** Takes numbers back: {@link SegmentStore.release}. */
  release(tag: string, tail: TailRelease): Promise<boolean>;
  /** Ends a lease: {@link LeaseStore.release}. */
  release(namespace: string, worker: number, grantId: bigint, endMs: bigint): Promise<boolean>;
  async release(name: string, what: TailRelease | number, grantId?: bigint, endMs?: bigint): Promise<boolean> {
    if (typeof what === 'number') {
      validateName('namespace', name);
      return (await this.ofLeases(name, 'releaseLease', [name, what, grantId, endMs])) as boolean;
    }
    validateTag(name);
    return (await this.ofTag(name, 'releaseTail', [name, { start: what.start, version: what.version }])) as boolean;
  }

  async openTag(tag: string): Promise<TagRecord> {
    validateTag(tag);
    validatePublic(tag);
    return (await this.ofTag(tag, 'openTag', [tag])) as TagRecord;
  }

  /**
   * Creates a tag, whatever is said of first use; the limit of tags applies.
   *
   * @throws {StoreError} `tag-exists`, `tag-limit`, `tag-invalid`, and what the objects bring.
   */
  async createTag(tag: string, options: Partial<TagOptions> = {}): Promise<TagRecord> {
    const all = completeOptions(tag, options, SMALL_STEPS);
    validatePublic(tag);
    return (await this.ofTag(tag, 'createTag', [tag, all])) as TagRecord;
  }

  /**
   * Begins a tag again whose object lost its storage, and which is refused since then. `options.start` must be above
   * all that was ever granted under the tag and its sub-keys: nobody but you can know it. What was granted is more than
   * what was handed out, since isolates that live hand out what they hold, up to two steps each. Sub-keys are lost,
   * and each begins at `options.start`, too.
   *
   * Workers that knew the tag refuse it for as long as their isolates live: deploy the Worker afterwards.
   *
   * @throws {StoreError} `tag-exists` when the tag was not lost; `refused` without a start.
   */
  async restoreTag(tag: string, options: Partial<TagOptions> & Pick<TagOptions, 'start'>): Promise<TagRecord> {
    if ((options as Partial<TagOptions> | undefined)?.start === undefined) {
      // It would begin at 1.
      const what = `say where the tag ${shown(tag)} goes on: { start: 5_000_000n }`;
      throw new StoreError('refused', `${what}, above all that was granted under it`);
    }
    const all = completeOptions(tag, options, SMALL_STEPS);
    validatePublic(tag);
    if (splitTag(tag)[1] !== null) {
      throw new StoreError('refused', 'a sub-key is restored with its tag: name the tag alone');
    }
    const object = memberName(this.name, 'tag', tag);
    const answer = await this.call(object, { mark: null }, 'restore', [tag, all]);
    if (!('value' in answer)) {
      throw new StoreError('unavailable', `${object} was not restored: try again`);
    }
    await this.call(rootName(this.name), { mark: this.store }, 'replace', [object, answer.mark]);
    const known = { mark: answer.mark };
    await this.register(object, known);
    this.members.set(object, known);
    return answer.value as TagRecord;
  }

  /** A format is kept in the object of its tag, or in that of the snowflake's leases. */
  async bindFormat(owner: FormatOwner, part: FormatPart, first: bigint | null): Promise<bigint | null> {
    const { kind, name } = owner;
    if (kind === 'snowflake') {
      validateName('namespace', name);
      return (await this.ofLeases(name, 'bindFormat', [owner, part, first])) as bigint | null;
    }
    validateTag(name);
    validatePublic(name);
    return (await this.ofTag(name, 'bindFormat', [owner, part, first])) as bigint | null;
  }

  /** The identity of the store, 32 hexadecimal digits: that of its root. Begins the store if there is none. */
  async identity(): Promise<string> {
    if (this.store === null) {
      await this.call(rootName(this.name), { mark: null }, 'look', []);
    }
    return this.store ?? '';
  }

  async acquire(request: LeaseAcquire): Promise<Lease> {
    validateAcquire(request);
    return (await this.ofLeases(request.namespace, 'acquire', [request])) as Lease;
  }

  async extend(request: LeaseExtend): Promise<Lease> {
    validateExtend(request);
    if (typeof request.grantId !== 'bigint' || typeof request.worker !== 'number') {
      throw leaseLost(request.namespace, request.worker);
    }
    const lease = (await this.ofLeases(request.namespace, 'extend', [request])) as Lease;
    if (lease.worker !== request.worker || lease.grantId !== request.grantId) {
      const what = `the lease of worker ${request.worker} was to be extended, and that of ${lease.worker} came`;
      throw new StoreError('outcome-unknown', `${what}, which is not used`);
    }
    return lease;
  }

  leaseIdentity(): Promise<string> {
    return this.identity();
  }

  /** Closes nothing: there are no connections. */
  async close(): Promise<void> {}

  private ofTag(tag: string, method: ObjectMethod, args: readonly unknown[]): Promise<unknown> {
    return this.member(memberName(this.name, 'tag', splitTag(tag)[0]), method, args);
  }

  private ofLeases(namespace: string, method: ObjectMethod, args: readonly unknown[]): Promise<unknown> {
    return this.member(memberName(this.name, 'leases', namespace), method, args);
  }

  /** Asks a member, which the root knows after it was asked for the first time. */
  private async member(object: string, method: ObjectMethod, args: readonly unknown[]): Promise<unknown> {
    const known = this.members.get(object) ?? { mark: null };
    for (let tries = 0; tries < TRIES; tries += 1) {
      const answer = await this.call(object, known, method, args);
      if ('value' in answer) {
        this.members.set(object, known);
        return answer.value;
      }
      // It has done nothing yet.
      await this.register(object, { mark: answer.mark });
    }
    throw new StoreError('unavailable', `${object} changes all the time: try again`);
  }

  /** Has the root know a new member, and the member know that. */
  private async register(object: string, member: { mark: string }): Promise<void> {
    const answer = await this.call(rootName(this.name), { mark: this.store }, 'register', [object, member.mark]);
    if (!('value' in answer) || answer.value !== member.mark) {
      const known = 'value' in answer ? String(answer.value) : 'another one';
      const what = `the object ${object} is ${member.mark}, and the store knows ${known}`;
      const advice =
        'its storage was deleted, and its numbers would repeat. A tag goes on above all that was handed out, by ' +
        'DurableStore.restoreTag. Leases do not: use another namespace, once all that were granted have ended';
      throw new StoreError('refused', `${what}: ${advice}`);
    }
    await this.call(object, member, 'confirm', [this.store]);
  }

  /** One call, sent once. */
  private async call(
    object: string,
    known: Known,
    method: ObjectMethod,
    args: readonly unknown[],
  ): Promise<Exclude<ObjectAnswer, { kind: unknown }>> {
    const { rules, store, namespace } = this;
    const request: ObjectRequest = { protocol: PROTOCOL, object, mark: known.mark, store, method, args, rules };
    let answer: ObjectAnswer;
    try {
      // A stub belongs to the request that made it.
      const stub = namespace.get(namespace.idFromName(object) as never) as {
        ask(request: ObjectRequest): Promise<ObjectAnswer>;
      };
      answer = await stub.ask(request);
    } catch (error) {
      const kind = READS.has(method) ? 'unavailable' : 'outcome-unknown';
      const reason = error instanceof Error ? error.message : String(error);
      const fault = faultOfClass(reason);
      if (fault !== undefined) {
        throw new StoreError('refused', `${object} was not asked: ${fault}`, { cause: error });
      }
      throw new StoreError(kind, `${object} brought no answer (${method}: ${reason})`, { cause: error });
    }
    if ('kind' in answer) {
      throw new StoreError(answer.kind, answer.message);
    }
    this.recognise(object, known, answer);
    return answer;
  }

  /** Takes the object for the one that is known, or burns its answer. */
  private recognise(object: string, known: Known, answer: Exclude<ObjectAnswer, { kind: unknown }>): void {
    const { mark } = answer;
    const store = 'store' in answer ? answer.store : null;
    const isOther = (one: string | null, other: string | null): boolean =>
      one !== null && other !== null && one !== other;
    if (typeof mark !== 'string' || isOther(known.mark, mark) || isOther(this.store, store)) {
      const what = `the object ${object} is ${mark} of the store ${store}`;
      const expected = `${known.mark ?? 'any'} of the store ${this.store ?? 'any'} was expected`;
      throw new StoreError('refused', `${what}, and ${expected}: nothing that it grants is used`);
    }
    known.mark = mark;
    this.store ??= store;
  }
}

/** What is wrong with the class of the objects, by what the runtime says: none of its objects has done anything. */
function faultOfClass(reason: string): string | undefined {
  if (/does not implement the method "ask"/.test(reason)) {
    return "its class is another one than UnalikeObject: export UnalikeObject, and name it as the binding's class";
  }
  if (/SQL is not enabled/.test(reason)) {
    const what = 'its class has no SQLite: it must be among new_sqlite_classes, and not new_classes (in workerd alone:';
    return `${what} enableSql = true). A class that is deployed stays without: rename it`;
  }
  return undefined;
}
