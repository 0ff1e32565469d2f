/**
 * Sequences: ids under a tag.
 *
 * `next` is served from a run, natively; the component is called once per run, and the size of runs follows demand: one
 * id at a time while ids are asked for now and then (a crash loses none), thousands while runs are used up within a
 * millisecond.
 *
 * @module
 */

import { Batch, Runs } from './batch.js';
import type { Answer, ComponentSequenceOptions, Core, CoreSequence, Run } from './component.js';
import { closed, IdsError, refusedOptions } from './errors.js';
import { Generator, PENDING, type Environment, type Outcome, type WaitOptions } from './generator.js';
import { GrantOrder } from './grant-order.js';
import { shown, splitTag } from './names.js';
import { checkedBigint, checkedCount, checkedNumber } from './numbers.js';
import { ANY, checkedOptions, NUMBER, objectAs, wordOf, type Kinds } from './options.js';
import { Rounds } from './ordered.js';
import { said } from './said.js';
import { ID_MAX, type Mode, type RefillPolicy, type StepPolicy, type TagRecord } from './store.js';

/** How a tag's sequence works in this process. What is not given is as the tag's record in the store says. */
export interface SequenceOptions {
  /** How many numbers a segment asks for. */
  readonly step?: StepPolicy;
  /** When the next segment is asked for. */
  readonly refill?: RefillPolicy;
  /** Whole segments to hold ahead: 1 to 64, 1 by default. */
  readonly prefetch?: number;
  /** The mode that the caller counts on; the tag's own must be the same. */
  readonly mode?: Mode;
  /**
   * The greatest id that this process hands out, 1 to 2^63 - 1 (the default). After it the sequence is `exhausted`;
   * numbers above that the store granted are burnt. With 2^53 - 1 every id is exact in JavaScript's numbers. A step
   * that is the tag's own, not given here, is at most a 64th of the numbers up to it.
   */
  readonly idMax?: bigint;
}

/** Figures of an open sequence, for metrics. */
export interface SequenceStatus {
  /** Ids that were handed out by this process since the sequence was opened. */
  readonly issued: bigint;
  /** Numbers granted to this process that never crossed into a run. 0 for ordered sequences. */
  readonly remaining: bigint;
  /** How many numbers the next request asks for. 0 for ordered sequences. */
  readonly step: bigint;
  /** Whether a request to the store is under way. */
  readonly inFlight: boolean;
  /** Calls that found nothing buffered and waited. Those of ordered sequences wait for a round, and do not count. */
  readonly waits: number;
  /** Calls that ended with an error and no id. */
  readonly refused: number;
}

const OPTIONS: Kinds<SequenceOptions> = {
  step: objectAs("{ kind: 'fixed', step: 100n }"),
  refill: objectAs("{ kind: 'share-consumed', percent: 10 }"),
  prefetch: NUMBER,
  mode: ANY,
  idMax: NUMBER,
};
const STEP: Kinds<Record<'kind' | 'step' | 'min' | 'max' | 'growBelowMs' | 'shrinkAboveMs', unknown>> = {
  kind: wordOf(['fixed', 'adaptive']),
  step: NUMBER,
  min: NUMBER,
  max: NUMBER,
  growBelowMs: NUMBER,
  shrinkAboveMs: NUMBER,
};
const REFILL: Kinds<Record<'kind' | 'percent' | 'numbers', unknown>> = {
  kind: wordOf(['share-consumed', 'remaining']),
  percent: NUMBER,
  numbers: NUMBER,
};
const MODE = wordOf(['buffered', 'ordered']);

/** The options, read once and known by name. @throws {IdsError} `options-invalid` */
export function chosenOptions(given: unknown): SequenceOptions {
  const { step, refill, ...options } = checkedOptions('options', given, OPTIONS, refusedOptions);
  const { mode } = options;
  if (mode !== undefined && !MODE.fits(mode)) {
    throw refusedOptions(`there is no mode ${said(mode)}: it must be ${MODE.must}`, 'mode');
  }
  const policy = (name: string, value: unknown, kinds: Kinds<{ kind: unknown }>): object =>
    checkedOptions(name, value, kinds, refusedOptions, ['kind']);
  return {
    ...options,
    ...(step === undefined ? {} : { step: policy('step', step, STEP) as StepPolicy }),
    ...(refill === undefined ? {} : { refill: policy('refill', refill, REFILL) as RefillPolicy }),
  };
}

/** The largest run. Runs grow to it only while they are used up within a millisecond each. */
const RUN_MAX = 8_192;
/** A run that lasted longer than this halves the next one; one that was used up within a millisecond doubles it. */
const RUN_SLOW_MS = 100;
/** The ids that one call into the component brings at most. */
const RESERVED_MAX = 0x00ff_ffff;

/** Ids of one tag, as all kinds of sequences hand them out. */
export interface Sequence extends AsyncIterable<bigint> {
  /** The tag. */
  readonly tag: string;
  /** The sub-key, if it is the sequence of one. */
  readonly sub: string | undefined;
  /** How callers are served. */
  readonly mode: Mode;
  /** The greatest id that it hands out. */
  readonly idMax: bigint;
  /**
   * The next id. Takes well under a microsecond while the current run lasts; waits, if nothing is buffered, for the
   * store. A call that is given up loses no id in buffered mode.
   *
   * @throws {IdsError}
   */
  next(options?: WaitOptions): Promise<bigint>;
  /**
   * The next id if there is one without waiting; if there is none, the store has been asked for more. An ordered
   * sequence has none without waiting: its every id is a request to the store.
   *
   * @throws {IdsError}
   */
  tryNext(): bigint | undefined;
  /**
   * The next `count` ids, 1 to 2^32 - 1, in ascending order; not always consecutive. In buffered mode a call that fails
   * or is given up loses no id: what had come for it goes to the next call.
   *
   * @throws {IdsError}
   */
  take(count: number, options?: WaitOptions): Promise<Batch>;
  /** One id after the other, until the sequence is closed. */
  [Symbol.asyncIterator](): AsyncIterator<bigint, undefined>;
  /** Figures for metrics. @throws {IdsError} `closed`, `rebuilt` */
  status(): SequenceStatus;
  /**
   * Ends it: what never crossed into a run goes back to the store, and {@link Ids.sequence} opens it anew. For programs
   * whose tags and sub-keys come and go.
   */
  close(): Promise<void>;
}

/** A buffered sequence. @internal */
export class BufferedSequence extends Generator<CoreSequence> implements Sequence {
  readonly mode = 'buffered';
  override readonly granted = new GrantOrder();
  private first = 0n;
  private stride = 1n;
  private left = 0;
  private readonly behind = new Runs();
  private reserved = 0n;
  private runSize = 1;
  private lastMs = 0;

  constructor(
    environment: Environment,
    name: string,
    private readonly options: ComponentSequenceOptions,
    private readonly end: () => Promise<void>,
  ) {
    super(environment, name);
  }

  get tag(): string {
    return splitTag(this.name)[0];
  }

  get sub(): string | undefined {
    return splitTag(this.name)[1] ?? undefined;
  }

  get idMax(): bigint {
    return this.options.idMax;
  }

  protected override get bound(): bigint {
    return this.options.idMax;
  }

  override open(core: Core): Answer<CoreSequence> {
    return core.openSequence(this.name, { ...this.options, floor: this.granted.successorFloor() });
  }

  next(options?: WaitOptions): Promise<bigint> {
    if (this.left > 0 && options === undefined && !this.isStopped) {
      this.left -= 1;
      const id = this.first;
      this.first = id + this.stride;
      return Promise.resolve(id);
    }
    return this.untilReady(() => this.attemptOne(), options);
  }

  tryNext(): bigint | undefined {
    if (this.left > 0 && !this.isStopped) {
      this.left -= 1;
      const id = this.first;
      this.first = id + this.stride;
      return id;
    }
    return this.counted(() => {
      const outcome = this.attemptOne();
      return outcome.tag === 'ready' ? outcome.value : undefined;
    });
  }

  async take(count: number, options?: WaitOptions): Promise<Batch> {
    const wanted = checkedCount('count', count);
    return await this.untilReady(() => this.attemptMany(wanted), options);
  }

  [Symbol.asyncIterator](): AsyncIterator<bigint, undefined> {
    return untilClosed(this);
  }

  status(): SequenceStatus {
    this.checkOpen();
    const now = this.nowMs();
    const status = this.call((sequence) => sequence.status(BigInt(now)));
    const held = BigInt(this.left + this.behind.count);
    const { remaining, step, inFlight } = status;
    return { issued: this.reserved - held, remaining, step, inFlight, waits: this.waits, refused: this.refused };
  }

  close(): Promise<void> {
    return this.end();
  }

  private counted<Value>(act: () => Value): Value {
    try {
      return act();
    } catch (error) {
      this.refused += 1;
      throw error;
    }
  }

  /** The time, if the component is to be called for so many ids; what is in hand needs none. */
  private timeFor(count: number): number {
    this.checkOpen();
    return this.left + this.behind.count < count ? this.nowMs() : 0;
  }

  private attemptOne(): Outcome<bigint> {
    const now = this.timeFor(1);
    this.checkOpen();
    if (this.left === 0) {
      const run = this.behind.shift();
      if (run !== undefined) {
        this.hold(run);
      } else {
        const outcome = this.reserve(1, now);
        if (outcome.tag !== 'ready') {
          return outcome;
        }
        this.hold(outcome.value);
      }
    }
    this.left -= 1;
    const id = this.first;
    this.first = id + this.stride;
    return { tag: 'ready', value: id };
  }

  /** While there are not enough nobody has them: a call that gives up leaves them to the next. */
  private attemptMany(count: number): Outcome<Batch> {
    for (;;) {
      const now = this.timeFor(count);
      this.checkOpen();
      if (this.left > 0) {
        this.behind.pushFirst({ first: this.first, stride: this.stride, count: this.left });
        this.left = 0;
      }
      if (this.behind.count >= count) {
        break;
      }
      let outcome: Outcome<Run>;
      try {
        outcome = this.reserve(count - this.behind.count, now);
      } catch (error) {
        const left = this.behind.count;
        if (left > 0 && error instanceof IdsError && error.kind === 'exhausted') {
          const what = `only ${left} ids of ${shown(this.name)} are left: ask for no more`;
          throw new IdsError('exhausted', what, { ...error.figures, left }, error.cause);
        }
        throw error;
      }
      if (outcome.tag !== 'ready') {
        return outcome;
      }
      this.behind.push(outcome.value);
    }
    const runs = this.behind.take(count);
    const rest = this.behind.shift();
    if (rest !== undefined) {
      this.hold(rest);
    }
    return { tag: 'ready', value: new Batch(runs) };
  }

  private hold(run: Run): void {
    this.first = run.first;
    this.stride = run.stride;
    this.left = run.count;
  }

  /** A run as demand has it, or as long as what is lacking. */
  private reserve(lacking: number, now: number): Outcome<Run> {
    if (this.isStillPending) {
      return PENDING;
    }
    let size = this.runSize;
    const lastedMs = now - this.lastMs;
    if (lastedMs <= 1) {
      size = Math.min(size * 2, RUN_MAX);
    } else if (lastedMs > RUN_SLOW_MS) {
      size = Math.max(Math.floor(size / 2), 1);
    }
    const most = Math.max(size, Math.min(lacking, RESERVED_MAX));
    const answer = this.call((sequence) => sequence.reserve(BigInt(now), most));
    const outcome = this.outcome(answer);
    if (outcome.tag === 'ready') {
      // Waiting for the store is no demand.
      this.runSize = size;
      this.lastMs = now;
      this.reserved += BigInt(outcome.value.count);
    }
    return outcome;
  }
}

/** One id after the other, until the sequence is closed. */
async function* untilClosed(sequence: Sequence): AsyncGenerator<bigint, undefined> {
  for (;;) {
    let id: bigint;
    try {
      id = await sequence.next();
    } catch (error) {
      if (error instanceof IdsError && error.kind === 'closed') {
        return undefined;
      }
      throw error;
    }
    yield id;
  }
}

/** An ordered sequence: ids ascend across all processes in real time. @internal */
export class OrderedSequence implements Sequence {
  readonly mode = 'ordered';

  constructor(
    private readonly rounds: Rounds,
    private readonly end: () => Promise<void>,
  ) {}

  get tag(): string {
    return splitTag(this.rounds.name)[0];
  }

  get sub(): string | undefined {
    return splitTag(this.rounds.name)[1] ?? undefined;
  }

  get idMax(): bigint {
    return this.rounds.idMax;
  }

  async next(options?: WaitOptions): Promise<bigint> {
    const [run] = await this.rounds.take(1, options);
    if (run === undefined) {
      throw new IdsError('component', `a round of ${shown(this.rounds.name)} brought no id`);
    }
    return run.first;
  }

  tryNext(): undefined {
    if (this.rounds.isStopped) {
      throw closed(this.rounds.name);
    }
    return undefined;
  }

  async take(count: number, options?: WaitOptions): Promise<Batch> {
    return new Batch(await this.rounds.take(checkedCount('count', count), options));
  }

  [Symbol.asyncIterator](): AsyncIterator<bigint, undefined> {
    return untilClosed(this);
  }

  status(): SequenceStatus {
    if (this.rounds.isStopped) {
      throw closed(this.rounds.name);
    }
    const { issued, isDriven, refused } = this.rounds;
    return { issued, remaining: 0n, step: 0n, inFlight: isDriven, waits: 0, refused };
  }

  close(): Promise<void> {
    return this.end();
  }
}

/**
 * The options of a buffered sequence, as the component takes them.
 *
 * @throws {IdsError} `number-invalid`, `options-invalid`
 * @internal
 */
export function sequenceOptions(record: TagRecord, given: SequenceOptions): ComponentSequenceOptions {
  const idMax = given.idMax === undefined ? ID_MAX : checkedBigint('idMax', given.idMax, 1n, ID_MAX);
  const step = given.step ?? (given.idMax === undefined ? record.options.step : withinBound(record, idMax));
  const refill = given.refill ?? record.options.refill;
  const prefetch = given.prefetch === undefined ? 1 : checkedNumber('prefetch', given.prefetch, 1, 64);
  const number = (name: string, value: unknown): bigint => checkedBigint(`step.${name}`, value, 1n, ID_MAX);
  const adaptive =
    step.kind === 'adaptive'
      ? {
          step: number('step', step.step),
          stepMin: number('min', step.min),
          stepMax: number('max', step.max),
          growBelowMs: checkedBigint('step.growBelowMs', step.growBelowMs),
          shrinkAboveMs: checkedBigint('step.shrinkAboveMs', step.shrinkAboveMs),
        }
      : fixed(number('step', step.step));
  const { stepMin, stepMax, growBelowMs, shrinkAboveMs } = adaptive;
  if (stepMin > adaptive.step || adaptive.step > stepMax || growBelowMs > shrinkAboveMs) {
    const what = 'min <= step <= max and growBelowMs <= shrinkAboveMs must hold';
    throw new IdsError('options-invalid', `the step of ${shown(record.tag)} is not valid: ${what}`, {
      argument: 'step',
    });
  }
  return {
    ...adaptive,
    refill:
      refill.kind === 'share-consumed'
        ? { tag: 'share-consumed', val: checkedNumber('refill.percent', refill.percent, 0, 100) }
        : { tag: 'remaining', val: checkedBigint('refill.numbers', refill.numbers) },
    prefetch,
    floor: 0n,
    idMax,
  };
}

/** Equal bounds: whatever the rule says, the step stays. */
function fixed(step: bigint): Omit<ComponentSequenceOptions, 'refill' | 'prefetch' | 'floor' | 'idMax'> {
  return { step, stepMin: step, stepMax: step, growBelowMs: 900_000n, shrinkAboveMs: 1_800_000n };
}

/**
 * The tag's step, or at most a 64th of the numbers below a bound: a process that takes a thousand numbers at once would
 * leave nothing of a hundred to the others, nor to itself after a crash.
 */
function withinBound({ options }: TagRecord, idMax: bigint): StepPolicy {
  const room = idMax > options.start ? (idMax - options.start) / 64n : 0n;
  const share = room > 1n ? room : 1n;
  const least = (number: bigint): bigint => (number < share ? number : share);
  const { step } = options;
  return step.kind === 'fixed'
    ? { kind: 'fixed', step: least(step.step) }
    : { ...step, step: least(step.step), min: least(step.min), max: least(step.max) };
}
