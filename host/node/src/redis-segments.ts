/**
 * Segments out of the intervals that a durable store grants to Redis.
 *
 * A request is one call of `allocate.lua`. When that has nothing to give, because the hash is missing, belongs to
 * another incarnation, or is spent, one client raises the ceiling: it claims the tag, looks at its generation, takes an
 * interval from the durable store, and installs it under that generation, once. A background task looks at the use of
 * the tags that this client serves, and raises their ceilings before they are reached.
 *
 * @module
 */

import { shown } from './names.js';
import { NUMBERS_MAX, lowMark, raiseBy, raised, uses, type Demand } from './redis-growth.js';
import {
  ASK_AGAIN_MS,
  DONE,
  Raising,
  Turns,
  elsewhere,
  monotonicMs,
  nonce,
  type HashKey,
  type Raise,
} from './redis-raising.js';
import { ALLOCATE, FIELD, INSTALL, LOOK, RELEASE, SKIP, type Script } from './redis-scripts.js';
import type { RedisServer, Reply } from './redis-server.js';
import type { RedisSettings } from './redis-url.js';
import { ID_MAX, StoreError, type Segment, type SegmentStore, type TailRelease } from './store.js';
import { every, unref, type Timer } from './wait.js';

/** What a new hash has beside its generation and its first claim. */
const NEW = [
  ['incarnation', ''],
  ['end', '0'],
  ['left', '0'],
  ['next_end', ''],
  ['next_left', '0'],
  ['durable_version', '0'],
  ['version_base', '0'],
  ['given', '0'],
  ['raised_by', '0'],
  ['raised_ms', '0'],
  ['low', '0'],
  ['samples', ''],
  ['sampled_ms', '0'],
] as const;

/** How old the newest note of a tag's use gets, in milliseconds. */
const SAMPLE_MS = 60_000;
/** A tag that nobody asked for this long is no longer looked after. */
const IDLE_MS = 60 * 60_000;
/** How often the use of tags is noted and looked at. */
const KEEP_EVERY_MS = 10_000;
/** A tag that nobody uses is looked after half as often each time, down to once in so many rounds. */
const ROUNDS_MAX = 6;

const U64_MAX = (1n << 64n) - 1n;

/** What this client knows of a tag that it uses. */
interface Known {
  readonly turns: Turns;
  /** When it was asked for last. */
  askedMs: number;
  /** In which rounds it is looked after: in every so manieth one, and how many there are to the next look. */
  everyRounds: number;
  roundsLeft: number;
  /** How much of it was used at the last look, by all hosts. */
  used: bigint;
  /** The newest grant, as long as its tail can be given back. */
  newest: Newest | null;
}

interface Newest {
  readonly start: bigint;
  readonly end: bigint;
  /** As the caller knows it. */
  readonly version: bigint;
  readonly generation: string;
  /** As Redis knows it. */
  readonly redisVersion: string;
}

/** Behind the last number of the first interval, and behind the last one of all. */
interface Ends {
  readonly first: bigint;
  readonly all: bigint;
}

/** What `allocate.lua` granted, and the intervals it took it from. */
interface Grant {
  readonly segment: Segment;
  readonly generation: string;
  readonly redisVersion: string;
  readonly ends: Ends;
  /** Of both. */
  readonly left: bigint;
  readonly low: bigint;
}

/** What `look.lua` sees. */
interface TagView {
  readonly generation: string;
  readonly incarnation: string;
  readonly ends: Ends;
  /** How many numbers Redis may still hand out. */
  readonly held: bigint;
  /** Whether some of them are of a second interval. */
  readonly hasNext: boolean;
  readonly demand: Demand;
  readonly low: bigint;
  /** How many numbers all hosts used. */
  readonly used: bigint;
}

/**
 * Why more numbers are wanted: a request for so many found none, and takes none below `atLeast`; or they will not last.
 */
type Reason = { readonly count: bigint; readonly atLeast: bigint } | 'low';

export class RedisSegments {
  readonly #server: RedisServer;
  readonly #prefix: string;
  readonly #bounds: { readonly min: bigint; readonly max: bigint };
  readonly #raising: Raising;
  readonly #tags = new Map<string, Known>();
  readonly #keeper: Timer;
  #isKeeping = false;

  private constructor(server: RedisServer, raising: Raising, settings: RedisSettings) {
    this.#server = server;
    this.#raising = raising;
    this.#prefix = settings.prefix;
    this.#bounds = { min: settings.raiseMin, max: settings.raiseMax };
    // It holds the store weakly: one that nobody has any more is not looked after.
    const store = new WeakRef(this);
    const keeper = every(() => {
      const segments = store.deref();
      if (segments === undefined) {
        clearInterval(keeper);
        return undefined;
      }
      return segments.#keep();
    }, KEEP_EVERY_MS);
    unref(keeper);
    this.#keeper = keeper;
  }

  /** @throws {StoreError} As {@link Raising.recognise}. */
  static async open(server: RedisServer, durable: SegmentStore, settings: RedisSettings): Promise<RedisSegments> {
    const raising = new Raising(server, durable, settings, 'sequences', NEW);
    // Before anything is written, and once it is written who grants the numbers.
    await refuseInitialised(server, settings);
    await raising.recognise();
    await refuseInitialised(server, settings);
    return new RedisSegments(server, raising, settings);
  }

  async allocate(tag: string, count: bigint, atLeast: bigint): Promise<Segment> {
    const known = this.#tag(tag);
    const deadline = this.#raising.deadline();
    for (;;) {
      const raisedBefore = known.turns.raised;
      const grant = await this.#grant(tag, count);
      if (grant === null) {
        const raise = (): Promise<Raise> => this.#raise(tag, known, { count, atLeast });
        try {
          await this.#raising.wait(tag, known.turns, raisedBefore, deadline, raise);
        } catch (error) {
          if (error instanceof StoreError && ['tag-unknown', 'tag-invalid', 'tag-limit'].includes(error.kind)) {
            // There is no such tag: it is not looked after.
            this.#tags.delete(tag);
          }
          throw error;
        }
        continue;
      }
      if (grant.left < grant.low) {
        this.#raiseSoon(tag, known);
      }
      const { segment } = grant;
      if (segment.end <= atLeast) {
        // All of it lies below, and so does what would come next.
        await this.#leave(tag, grant.generation, grant.ends, atLeast);
        continue;
      }
      const start = segment.start > atLeast ? segment.start : atLeast;
      const { generation, redisVersion } = grant;
      known.newest = { start, end: segment.end, version: segment.version, generation, redisVersion };
      return { ...segment, start };
    }
  }

  async release(tag: string, tail: TailRelease): Promise<boolean> {
    const known = this.#tags.get(tag);
    const newest = known?.newest ?? null;
    const isNewest =
      newest !== null && newest.version === tail.version && newest.start <= tail.start && tail.start < newest.end;
    if (known === undefined || !isNewest) {
      return false;
    }
    // Taken out, so that it is sent once at most.
    known.newest = null;
    const args = [newest.generation, newest.redisVersion, String(newest.end - tail.start)];
    const reply = await this.#script('taking back numbers of', 'writes', RELEASE, tag, args);
    return reply.text() === 'taken';
  }

  close(): void {
    clearInterval(this.#keeper);
  }

  /** In braces, so that all that may ever belong to a tag lies on one node. */
  #key(tag: string): string {
    return `${this.#prefix}:{${tag}}`;
  }

  #tag(tag: string): Known {
    let known = this.#tags.get(tag);
    if (known === undefined) {
      known = { turns: new Turns(), askedMs: 0, everyRounds: 1, roundsLeft: 1, used: 0n, newest: null };
      this.#tags.set(tag, known);
    }
    known.askedMs = monotonicMs();
    known.roundsLeft = 1;
    return known;
  }

  #script(
    doing: string,
    access: 'reads' | 'writes',
    script: Script,
    tag: string,
    args: readonly string[],
  ): Promise<Reply> {
    const key = this.#key(tag);
    return this.#server.script(`${doing} ${shown(tag)}, the key ${key}`, access, script, [key], args);
  }

  /** One call; `null` when there is nothing to grant. */
  async #grant(tag: string, wanted: bigint): Promise<Grant | null> {
    const asked = wanted < NUMBERS_MAX ? wanted : NUMBERS_MAX;
    const reply = await this.#script('granting numbers of', 'writes', ALLOCATE, tag, [String(asked)]);
    if (reply.text() !== 'granted') {
      return null;
    }
    const generation = reply.text();
    const end = reply.number();
    const [left, count] = [reply.number(), reply.number()];
    const nextEnd = reply.numberOrNone();
    const nextLeft = reply.number();
    const redisVersion = reply.text();
    const durableVersion = reply.number();
    const low = reply.number();
    if (left > end || count < 1n || count > left || count > asked) {
      throw reply.damaged('its numbers make no interval');
    }
    const version = /^\d{1,20}$/.test(redisVersion) ? BigInt(redisVersion) + durableVersion : U64_MAX + 1n;
    if (version > U64_MAX) {
      throw reply.damaged('its version is not a number');
    }
    const start = end - left;
    const segment = { start, end: start + count, stride: 1n, generation: 0n, version };
    if (start < 1n || segment.end - 1n > ID_MAX) {
      throw reply.damaged('its numbers are out of range');
    }
    return {
      segment,
      generation,
      redisVersion,
      ends: { first: end, all: nextEnd ?? end },
      left: left - count + nextLeft,
      low,
    };
  }

  async #look(tag: string, sampleMs: number | null): Promise<TagView | null> {
    const args = [sampleMs === null ? '' : String(sampleMs)];
    const reply = await this.#script('looking at', 'reads', LOOK, tag, args);
    if (reply.text() === 'missing') {
      return null;
    }
    const [generation, incarnation] = [reply.text(), reply.text()];
    const isValid = reply.text() === '1';
    const [end, left] = [reply.number(), reply.number()];
    const nextEnd = reply.numberOrNone();
    const nextLeft = reply.number();
    const used = reply.number();
    const [raisedBy, raisedMs, low] = [reply.number(), reply.number(), reply.number()];
    const samples = reply.text();
    const nowMs = reply.number();
    const [recently, longTerm] = uses(samples, nowMs, used);
    // What was lost says nothing of how long it would have lasted.
    const raisedAgoMs = isValid ? (nowMs > raisedMs ? nowMs - raisedMs : 0n) : null;
    return {
      generation,
      incarnation,
      ends: { first: end, all: nextEnd ?? end },
      held: isValid ? left + nextLeft : 0n,
      hasNext: isValid && nextLeft > 0n,
      demand: { recently, longTerm, raisedBy, raisedAgoMs },
      low,
      used,
    };
  }

  #raiseSoon(tag: string, known: Known): void {
    this.#raising.soon(known.turns, () => this.#raise(tag, known, 'low'));
  }

  /** Gets more numbers for a tag, if nobody else does and they are due. */
  #raise(tag: string, known: Known, reason: Reason): Promise<Raise> {
    const place = { tag, owner: tag, key: this.#key(tag) };
    return this.#raising.claimed(place, known.turns, () => this.#raiseClaimed(place, reason));
  }

  async #raiseClaimed(place: HashKey, reason: Reason): Promise<Raise> {
    const { tag } = place;
    const view = await this.#look(tag, SAMPLE_MS);
    if (view === null) {
      return elsewhere(ASK_AGAIN_MS);
    }
    const low = lowMark(view.demand);
    const isDue = reason === 'low' ? view.held < low : view.held === 0n;
    if (!isDue) {
      await this.#raising.settle(place, low);
      return DONE;
    }
    const { count: wanted, atLeast } = reason === 'low' ? { count: 0n, atLeast: 0n } : reason;
    // Looks before it asks: a grant that is burnt moves the watermark, and the next look would find nothing wrong.
    const grantedUntil = await this.#raising.grantedUntil(place, tag);
    checkNotBehind(tag, grantedUntil, view.ends.all);
    if (reason === 'low' && view.hasNext && grantedUntil !== view.ends.all) {
      // Numbers in between were burnt, or are another's: a third interval has no room, and would be burnt, too.
      await this.#raising.settle(place, 0n);
      return DONE;
    }
    const count = raiseBy(view.demand, view.held, wanted, this.#bounds);
    const granted = await this.#raising.grant(place, tag, count, atLeast);
    checkNotBehind(tag, granted.start, view.ends.all);
    const size = granted.end - granted.start;
    const newLow = lowMark(raised(view.demand, size));
    const more = [size, granted.version, newLow].map(String);
    return this.#raising.install(place, INSTALL, [view.generation, view.incarnation], granted, more);
  }

  /** Leaves no numbers below `next` of the intervals that end there, if the tag is of this generation. */
  async #leave(tag: string, generation: string, ends: Ends, next: bigint): Promise<void> {
    const left = (end: bigint): string => {
      const above = end > next ? end - next : 0n;
      return String(above < NUMBERS_MAX ? above : NUMBERS_MAX);
    };
    const args = [generation, left(ends.first), left(ends.all), nonce()];
    await this.#script('skipping numbers of', 'writes', SKIP, tag, args);
  }

  /** Looks after the tags that are in use. Any number of hosts may do so at once. */
  async #keep(): Promise<void> {
    if (this.#isKeeping) {
      return;
    }
    this.#isKeeping = true;
    try {
      const nowMs = monotonicMs();
      for (const [tag, known] of [...this.#tags]) {
        if (nowMs - known.askedMs >= IDLE_MS && known.turns.isIdle) {
          this.#tags.delete(tag);
          continue;
        }
        known.roundsLeft -= 1;
        if (known.roundsLeft > 0) {
          continue;
        }
        try {
          await this.#lookAfter(tag, known);
        } catch (error) {
          if (!(error instanceof StoreError) || error.isRetryable) {
            // The server is asked again in a while.
            return;
          }
        }
      }
    } finally {
      this.#isKeeping = false;
    }
  }

  /** Looks at the use of a tag, and raises its ceiling if it is near. */
  async #lookAfter(tag: string, known: Known): Promise<void> {
    const view = await this.#look(tag, SAMPLE_MS);
    if (view === null) {
      return;
    }
    const low = lowMark(view.demand);
    const isResting = view.used === known.used && view.held >= low;
    known.everyRounds = isResting ? Math.min(2 * known.everyRounds, ROUNDS_MAX) : 1;
    known.roundsLeft = known.everyRounds;
    known.used = view.used;
    const apart = low > view.low ? low - view.low : view.low - low;
    if (view.held < low) {
      this.#raiseSoon(tag, known);
    } else if (apart > view.low / 10n) {
      await this.#raising.noteLow({ tag, owner: tag, key: this.#key(tag) }, low);
    }
  }
}

/** Refuses a Redis that is a store by itself under this prefix: the same tags are counted there. */
async function refuseInitialised(server: RedisServer, { prefix }: RedisSettings): Promise<void> {
  const key = `${prefix}:alone`;
  const reply = await server.script('looking for a store without a durable one', 'reads', FIELD, [key], ['marker']);
  const marker = reply.text();
  if (marker !== '') {
    throw new StoreError(
      'refused',
      `${server.address} was made a store without a durable one: the key ${key} has its name, ${marker}. With a durable ` +
        'store its numbers would repeat: use it without, by a server (--backing none), or use another database or ' +
        'prefix and bring its tags there (`unalike tags import`)',
    );
  }
}

/** Refuses a durable store that would grant numbers from `next` on, where Redis had all up to `end` from it. */
function checkNotBehind(tag: string, next: bigint, end: bigint): void {
  if (next >= end) {
    return;
  }
  throw new StoreError(
    'corrupt',
    `the durable store has granted ${shown(tag)} up to ${next > 0n ? next - 1n : 0n}, and Redis had it up to ` +
      `${end - 1n} before: it lost data, or is another store; find out which, and raise the tag there above ${end - 1n}`,
  );
}
