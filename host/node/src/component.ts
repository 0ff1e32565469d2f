/**
 * The component of the world `core`: its types, and an instance of it whose calls are checked.
 *
 * The types are those of the WIT files (`wit/` in the repository), whose documentation holds.
 *
 * @module
 */

import { IdsError } from './errors.js';
import { instantiate } from './glue/unalike.js';
import { checkedBigint, checkedNumber, U32_MAX } from './numbers.js';
import { said } from './said.js';
import { ID_MAX, type Layout, type Segment, type StoreFailure } from './store.js';

/** A compiled `WebAssembly.Module`. */
export type WasmModule = object;

/** Ids that were handed out in one call: `first`, `first + stride`, .., `count` of them. */
export interface Run {
  readonly first: bigint;
  readonly stride: bigint;
  readonly count: number;
}

/** A case of a variant. */
type Case<Tag extends string, Value = undefined> = Value extends undefined
  ? { readonly tag: Tag; readonly val?: undefined }
  : { readonly tag: Tag; readonly val: Value };

/** `result`, as it crosses to the component. */
export type Result<Value, Fault> =
  | { readonly tag: 'ok'; readonly val: Value }
  | { readonly tag: 'err'; readonly val: Fault };

/** `error` */
export type ComponentError =
  | Case<'pending'>
  | Case<'wait', bigint>
  | Case<'clock-moved-back', bigint>
  | Case<'clock-before-epoch', bigint>
  | Case<'exhausted'>
  | Case<'store-failed', bigint>
  | Case<'grant-refused', 'malformed' | 'overlap' | 'worker'>
  | Case<'invalid-argument', string>
  | Case<'closed'>;

/** `refill-policy` */
export type ComponentRefill = Case<'share-consumed', number> | Case<'remaining', bigint>;

/** `sequence-options` */
export interface ComponentSequenceOptions {
  readonly step: bigint;
  readonly stepMin: bigint;
  readonly stepMax: bigint;
  readonly growBelowMs: bigint;
  readonly shrinkAboveMs: bigint;
  readonly refill: ComponentRefill;
  readonly prefetch: number;
  readonly floor: bigint;
  readonly idMax: bigint;
}

/** `sequence-status` */
export interface ComponentSequenceStatus {
  readonly wake: bigint;
  readonly remaining: bigint;
  readonly step: bigint;
  readonly inFlight: boolean;
}

/** `clock-policy` */
export type ComponentClock = Case<'reject'> | Case<'wait', bigint> | Case<'keep', bigint>;
/** `spread` */
export type ComponentSpread = Case<'none'> | Case<'rotating', number> | Case<'random', number>;

/** `snowflake-options` */
export interface ComponentSnowflakeOptions {
  readonly layout: Layout;
  readonly clock: ComponentClock;
  readonly horizonMs: bigint;
  readonly aheadMaxMs: bigint;
  readonly floor: bigint;
  readonly spread: ComponentSpread;
  readonly seed: bigint;
}

/** `snowflake-status` */
export interface ComponentSnowflakeStatus {
  readonly wake: bigint;
  readonly worker?: number | undefined;
  readonly validUntil: bigint;
  readonly usedUntil: bigint;
  readonly inFlight: boolean;
  readonly blocked?: ComponentError | undefined;
}

/** `grant-id` */
export interface GrantHalves {
  readonly high: bigint;
  readonly low: bigint;
}

/** `lease` */
export interface ComponentLease {
  readonly worker: number;
  readonly grantId: GrantHalves;
  readonly notBefore: bigint;
  readonly validUntil: bigint;
}

/** The interface `segments`, which the host gives. None of its functions may throw. */
export interface SegmentImports {
  allocate(tag: string, count: bigint, atLeast: bigint): bigint;
  poll(ticket: bigint): Result<Segment, StoreFailure> | undefined;
  release(tag: string, start: bigint, version: bigint): void;
}

/** The interface `leases`, which the host gives. None of its functions may throw. */
export interface LeaseImports {
  acquire(namespace: string, layout: Layout, now: bigint, horizonMs: bigint): bigint;
  extend(
    namespace: string,
    layout: Layout,
    worker: number,
    grantId: GrantHalves,
    now: bigint,
    horizonMs: bigint,
  ): bigint;
  poll(ticket: bigint): Result<ComponentLease, StoreFailure> | undefined;
  release(namespace: string, worker: number, grantId: GrantHalves, end: bigint): void;
}

/** What the component imports, under the names that its transpiled code reads. */
export interface CoreImports {
  readonly 'unalike:ids/segments': SegmentImports;
  readonly 'unalike:ids/leases': LeaseImports;
}

/** A resource of the component's. */
interface Resource {
  [Symbol.dispose]?(): void;
}

interface SequenceResource extends Resource {
  reserve(now: bigint, max: number): Run;
  status(now: bigint): ComponentSequenceStatus;
  close(): void;
}

interface OrderedResource extends Resource {
  begin(now: bigint, count: number): bigint;
  claim(now: bigint, round: bigint): Run;
}

interface SnowflakeResource extends Resource {
  reserve(now: bigint, max: number): Run;
  status(now: bigint): ComponentSnowflakeStatus;
  close(): void;
}

/** What the transpiled component exports; its functions throw an error with a `payload` for the `err` of a result. */
export interface CoreExports {
  readonly sequences: {
    readonly Sequence: { open(tag: string, options: ComponentSequenceOptions): SequenceResource };
    readonly Ordered: { open(tag: string, floor: bigint, idMax: bigint): OrderedResource };
  };
  readonly snowflakes: {
    readonly Snowflake: { open(namespace: string, options: ComponentSnowflakeOptions): SnowflakeResource };
  };
}

/** The component failed: its instance must not be called again. */
export class Trap extends Error {
  override readonly name = 'Trap';
}

/** What a call answered. */
export type Answer<Value> = Result<Value, ComponentError>;

const DISPOSE: typeof Symbol.dispose = Symbol.dispose ?? Symbol.for('dispose');

/**
 * One call. Whatever is thrown without a payload is no answer of the component's: the instance is lost.
 *
 * @throws {Trap}
 */
export function answerOf<Value, Fault>(call: () => Value): Result<Value, Fault> {
  try {
    return { tag: 'ok', val: call() };
  } catch (error) {
    if (typeof error === 'object' && error !== null && 'payload' in error) {
      return { tag: 'err', val: error.payload as Fault };
    }
    throw new Trap(error instanceof Error ? `${error.name}: ${error.message}` : String(error), { cause: error });
  }
}

/** A call whose function has no `result`. @throws {Trap} */
export function plain<Value>(call: () => Value): Value {
  try {
    return call();
  } catch (error) {
    throw new Trap(error instanceof Error ? `${error.name}: ${error.message}` : String(error), { cause: error });
  }
}

function checkedSequenceOptions(options: ComponentSequenceOptions): ComponentSequenceOptions {
  return {
    step: checkedBigint('step', options.step),
    stepMin: checkedBigint('step-min', options.stepMin),
    stepMax: checkedBigint('step-max', options.stepMax),
    growBelowMs: checkedBigint('grow-below-ms', options.growBelowMs),
    shrinkAboveMs: checkedBigint('shrink-above-ms', options.shrinkAboveMs),
    refill: checkedCase('refill', options.refill, {
      'share-consumed': (value) => checkedNumber('share-consumed', value, 0, 0xff),
      remaining: (value) => checkedBigint('remaining', value),
    }),
    prefetch: checkedNumber('prefetch', options.prefetch, 0, U32_MAX),
    floor: checkedBigint('floor', options.floor),
    idMax: checkedBigint('id-max', options.idMax),
  };
}

/** A layout whose numbers fit their types; whether there is such a layout the component says. */
export function checkedLayout(layout: Layout): Layout {
  const { order } = layout;
  if (order !== 'worker-first' && order !== 'sequence-first') {
    const what = `order is ${said(order)}, it must be "worker-first" or "sequence-first"`;
    throw new IdsError('options-invalid', what, { argument: 'order' });
  }
  return {
    timestampBits: checkedNumber('timestamp-bits', layout.timestampBits, 0, 0xff),
    datacenterBits: checkedNumber('datacenter-bits', layout.datacenterBits, 0, 0xff),
    workerBits: checkedNumber('worker-bits', layout.workerBits, 0, 0xff),
    sequenceBits: checkedNumber('sequence-bits', layout.sequenceBits, 0, 0xff),
    order,
    epochMs: checkedBigint('epoch-ms', layout.epochMs),
    tickMs: checkedNumber('tick-ms', layout.tickMs, 0, U32_MAX),
  };
}

function checkedSnowflakeOptions(options: ComponentSnowflakeOptions): ComponentSnowflakeOptions {
  return {
    layout: checkedLayout(options.layout),
    clock: checkedCase('clock', options.clock, {
      reject: nothing,
      wait: (value) => checkedBigint('wait', value),
      keep: (value) => checkedBigint('keep', value),
    }),
    horizonMs: checkedBigint('horizon-ms', options.horizonMs),
    aheadMaxMs: checkedBigint('ahead-max-ms', options.aheadMaxMs),
    floor: checkedBigint('floor', options.floor),
    spread: checkedCase('spread', options.spread, {
      none: nothing,
      rotating: (value) => checkedNumber('rotating', value, 0, 0xff),
      random: (value) => checkedNumber('random', value, 0, 0xff),
    }),
    seed: checkedBigint('seed', options.seed),
  };
}

function nothing(): undefined {
  return undefined;
}

function checkedCase<Variant extends { readonly tag: string; readonly val?: unknown }>(
  argument: string,
  value: Variant,
  cases: Record<Variant['tag'], (value: unknown) => unknown>,
): Variant {
  const check = Object.hasOwn(cases, value.tag) ? cases[value.tag as Variant['tag']] : undefined;
  if (check === undefined) {
    const what = `${argument} is ${JSON.stringify(value.tag)}, it must be one of ${Object.keys(cases).join(', ')}`;
    throw new IdsError('options-invalid', what, { argument });
  }
  return { tag: value.tag, val: check(value.val) } as Variant;
}

/** A sequence in an instance. */
export class CoreSequence {
  constructor(private readonly resource: SequenceResource) {}

  /** @throws {Trap} @throws {IdsError} `number-invalid` */
  reserve(now: bigint, max: number): Answer<Run> {
    const [at, most] = [checkedBigint('now', now), checkedNumber('max', max, 0, U32_MAX)];
    return answerOf(() => this.resource.reserve(at, most));
  }

  /** @throws {Trap} @throws {IdsError} `number-invalid` */
  status(now: bigint): ComponentSequenceStatus {
    const at = checkedBigint('now', now);
    return plain(() => this.resource.status(at));
  }

  /** @throws {Trap} */
  close(): void {
    plain(() => this.resource.close());
  }

  /** Forgets it without closing. @throws {Trap} */
  drop(): void {
    plain(() => this.resource[DISPOSE]?.());
  }
}

/** An ordered sequence in an instance. */
export class CoreOrdered {
  constructor(private readonly resource: OrderedResource) {}

  /** @throws {Trap} @throws {IdsError} `number-invalid` */
  begin(now: bigint, count: number): Answer<bigint> {
    const [at, many] = [checkedBigint('now', now), checkedNumber('count', count, 0, U32_MAX)];
    return answerOf(() => this.resource.begin(at, many));
  }

  /** @throws {Trap} @throws {IdsError} `number-invalid` */
  claim(now: bigint, round: bigint): Answer<Run> {
    const [at, which] = [checkedBigint('now', now), checkedBigint('round', round)];
    return answerOf(() => this.resource.claim(at, which));
  }

  /** Forgets it. @throws {Trap} */
  drop(): void {
    plain(() => this.resource[DISPOSE]?.());
  }
}

/** A snowflake generator in an instance. */
export class CoreSnowflake {
  constructor(private readonly resource: SnowflakeResource) {}

  /** @throws {Trap} @throws {IdsError} `number-invalid` */
  reserve(now: bigint, max: number): Answer<Run> {
    const [at, most] = [checkedBigint('now', now), checkedNumber('max', max, 0, U32_MAX)];
    return answerOf(() => this.resource.reserve(at, most));
  }

  /** @throws {Trap} @throws {IdsError} `number-invalid` */
  status(now: bigint): ComponentSnowflakeStatus {
    const at = checkedBigint('now', now);
    return plain(() => this.resource.status(at));
  }

  /** @throws {Trap} */
  close(): void {
    plain(() => this.resource.close());
  }

  /** Forgets it without closing. @throws {Trap} */
  drop(): void {
    plain(() => this.resource[DISPOSE]?.());
  }
}

/** An instance of the component, around the imports that it was given. */
export class Core {
  private readonly exports: CoreExports;

  /** @throws {Trap} */
  constructor(moduleOf: (name: string) => WasmModule, imports: CoreImports) {
    this.exports = plain(() => instantiate(moduleOf, imports));
  }

  /** @throws {Trap} @throws {IdsError} `number-invalid`, `options-invalid` */
  openSequence(tag: string, options: ComponentSequenceOptions): Answer<CoreSequence> {
    const checked = checkedSequenceOptions(options);
    return answerOf(() => new CoreSequence(this.exports.sequences.Sequence.open(tag, checked)));
  }

  /** @throws {Trap} @throws {IdsError} `number-invalid` */
  openOrdered(tag: string, floor: bigint, idMax: bigint = ID_MAX): Answer<CoreOrdered> {
    const [from, most] = [checkedBigint('floor', floor), checkedBigint('id-max', idMax)];
    return answerOf(() => new CoreOrdered(this.exports.sequences.Ordered.open(tag, from, most)));
  }

  /** @throws {Trap} @throws {IdsError} `number-invalid`, `options-invalid` */
  openSnowflake(namespace: string, options: ComponentSnowflakeOptions): Answer<CoreSnowflake> {
    const checked = checkedSnowflakeOptions(options);
    return answerOf(() => new CoreSnowflake(this.exports.snowflakes.Snowflake.open(namespace, checked)));
  }
}
