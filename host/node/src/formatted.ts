/**
 * Ids as people see them: permuted under a key, with a shard gene, in a template beside the date of issue.
 *
 * A {@link Format} says how, and is a pure function; what is decided here is *when* an id was issued, and what it is
 * counted under. One reading of the clock per call decides both the date in its texts and the period that its numbers
 * are counted under, so that they cannot disagree: whatever the clocks of two hosts show around midnight, and if one of
 * them goes back over it, a number comes once per period, and its text shows that period.
 *
 * A store keeps the first format that a tag or a snowflake is shown in, of its secrets check values, and another one is
 * refused.
 *
 * @module
 */

import type { Batch } from './batch.js';
import { IdsError } from './errors.js';
import type { Format, Issued, KeyCheck } from './formats.js';
import { checkedWait, type WaitOptions } from './generator.js';
import { shown } from './names.js';
import { checkedCount } from './numbers.js';
import { quoted, said } from './said.js';
import type { Sequence } from './sequence.js';
import type { Snowflake } from './snowflake.js';
import { StoreError, type FormatOwner, type FormatPart, type Layout, type SegmentStore } from './store.js';
import { monotonicMs } from './wait.js';

/** Where the ids come from. @internal */
export interface FormattedSource {
  /** The tag or namespace. */
  readonly name: string;
  /** Takes ids, and says when each was issued, in Unix milliseconds. */
  take(count: number, wait: WaitOptions | undefined): Promise<Taken>;
  /** What was read, with what the source knows of it. */
  read(issued: Issued): Issued;
}

interface Taken {
  readonly ids: Batch;
  readonly issuedMs: (id: bigint) => bigint;
}

/**
 * The ids of a tag or of a snowflake, as a {@link Format} shows them.
 *
 * @example
 * ```ts
 * const format = formats.format({ template: 'ORD-{yyyyMMdd}-{id:06}-{gene:4}', bits: 19, restart: 'day' });
 * const orders = await ids.formatted('order', format);
 * await orders.next(buyer); // 'ORD-20261122-000001-05'
 * [...(await orders.take(2, buyer))]; // ['ORD-20261122-000002-05', 'ORD-20261122-000003-05']
 * orders.read('ORD-20261122-000003-05').id; // 3n
 * ```
 */
export class Formatted {
  /** @internal */
  constructor(
    private readonly source: FormattedSource,
    /** How they are shown. */
    readonly format: Format,
  ) {}

  /** The tag or namespace. */
  get name(): string {
    return this.source.name;
  }

  /**
   * The next id as text. The shard key is given if the format needs one ({@link Format.needsShardKey}), and only then.
   *
   * @throws {IdsError} `format` for a shard key that is missing or not wanted, which costs no id; and as
   * {@link Sequence.next} or {@link Snowflake.next}.
   */
  async next(shardKey?: bigint, wait?: WaitOptions): Promise<string> {
    const [text] = await this.take(1, shardKey, wait);
    return text as string;
  }

  /**
   * The next `count` ids, 1 to 2^32 - 1, in the order in which they were given: ascending, as ids, and in texts of one
   * width without a key. They share the shard key. All of a counter that starts again are of one period.
   *
   * @throws {IdsError} As {@link Formatted.next}.
   */
  async take(count: number, shardKey?: bigint, wait?: WaitOptions): Promise<FormattedBatch> {
    const wanted = checkedCount('count', count);
    this.format.checkShardKey(shown(this.name), shardKey);
    const { ids, issuedMs } = await this.source.take(wanted, wait);
    return new FormattedBatch(this.name, ids, this.format, issuedMs, shardKey);
  }

  /**
   * The number that is shown for the next id, for callers that write it themselves.
   *
   * @throws {IdsError} `format-misfit` where the counter starts again, and as {@link Formatted.next}.
   */
  async nextNumber(shardKey?: bigint, wait?: WaitOptions): Promise<bigint> {
    const [number] = await this.takeNumbers(1, shardKey, wait);
    return number as bigint;
  }

  /** The numbers that are shown for the next `count` ids. @throws {IdsError} As {@link Formatted.nextNumber}. */
  async takeNumbers(count: number, shardKey?: bigint, wait?: WaitOptions): Promise<bigint[]> {
    // Before ids are taken that would be lost.
    checkNumbers(this.name, this.format);
    return (await this.take(count, shardKey, wait)).numbers();
  }

  /**
   * What a text says: {@link Format.read}, and of a snowflake also when its id was issued.
   *
   * @throws {IdsError} `format`
   */
  read(text: string): Issued {
    return this.source.read(this.format.read(text));
  }
}

/**
 * Several ids that one call took, and how they are shown. It makes each text when it is asked for.
 *
 * @example
 * ```ts
 * const batch = await orders.take(1_000);
 * for (const text of batch) print(text);
 * batch.length; // 1000
 * ```
 */
export class FormattedBatch implements Iterable<string> {
  /** @internal */
  constructor(
    private readonly name: string,
    private readonly ids: Batch,
    private readonly format: Format,
    private readonly issuedMs: (id: bigint) => bigint,
    private readonly shardKey: bigint | undefined,
  ) {}

  /** How many ids. */
  get length(): number {
    return this.ids.length;
  }

  /** @throws {IdsError} `format` for a date after the year 9999. */
  *[Symbol.iterator](): Iterator<string> {
    for (const id of this.ids) {
      yield this.format.write(id, this.issuedMs(id), this.shardKey);
    }
  }

  /** All texts, in an array. @throws {IdsError} `format` for a date after the year 9999. */
  toArray(): string[] {
    return [...this];
  }

  /** The texts, for `JSON.stringify`. @throws {IdsError} `format` for a date after the year 9999. */
  toJSON(): string[] {
    return this.toArray();
  }

  /** The numbers that the ids are shown by. @throws {IdsError} `format-misfit` where the counter starts again. */
  numbers(): bigint[] {
    checkNumbers(this.name, this.format);
    return Array.from(this.ids, (id) => this.format.number(id, this.issuedMs(id), this.shardKey));
  }
}

/** A counter that goes on for ever. @internal */
export class OneCounter implements FormattedSource {
  constructor(
    private readonly sequence: Sequence,
    private readonly nowMs: () => number,
  ) {}

  get name(): string {
    return this.sequence.tag;
  }

  async take(count: number, wait: WaitOptions | undefined): Promise<Taken> {
    const now = BigInt(this.nowMs());
    return { ids: await this.sequence.take(count, wait), issuedMs: () => now };
  }

  read(issued: Issued): Issued {
    return issued;
  }
}

/** A counter that starts again: each period is a sub-key of the tag. @internal */
export class Periods implements FormattedSource {
  constructor(
    readonly name: string,
    private readonly sub: string,
    private readonly format: Format,
    private readonly nowMs: () => number,
    private readonly open: (sub: string, wait: WaitOptions) => Promise<Sequence>,
    private readonly waitMaxMs: (wait: WaitOptions) => number,
  ) {}

  /** The sequence of the period in which an instant lies. */
  sequence(nowMs: number, wait: WaitOptions): Promise<Sequence> {
    // A period holds no @, so that neither two sub-keys nor two periods ever share a name.
    return this.open(`${this.sub}@${this.format.period(nowMs)}`, wait);
  }

  /** The first call of a period looks its row up, and that is part of the time that a call waits. */
  async take(count: number, given: WaitOptions | undefined): Promise<Taken> {
    const wait = checkedWait(given);
    const limitMs = this.waitMaxMs(wait);
    const startedMs = monotonicMs();
    const now = this.nowMs();
    const sequence = await this.sequence(now, wait);
    const waitMaxMs = Math.max(Math.floor(limitMs - (monotonicMs() - startedMs)), 0);
    return { ids: await sequence.take(count, { ...wait, waitMaxMs }), issuedMs: () => BigInt(now) };
  }

  read(issued: Issued): Issued {
    return issued;
  }
}

/** The ids of a snowflake, each of its own tick. @internal */
export class Ticks implements FormattedSource {
  constructor(private readonly snowflake: Snowflake) {}

  get name(): string {
    return this.snowflake.namespace;
  }

  async take(count: number, wait: WaitOptions | undefined): Promise<Taken> {
    const { layout } = this.snowflake;
    return { ids: await this.snowflake.take(count, wait), issuedMs: (id) => tickStartMs(layout, id) };
  }

  read(issued: Issued): Issued {
    const { layout } = this.snowflake;
    const max = idMaxOf(layout);
    if (issued.id > max) {
      const what = `the id ${issued.id} is outside 1 to ${max}, the ids of the layout of ${shown(this.name)}`;
      throw new IdsError('format', what, { fault: 'id' });
    }
    const fromMs = tickStartMs(layout, issued.id);
    if (issued.span !== undefined && (fromMs < issued.span.fromMs || fromMs >= issued.span.untilMs)) {
      throw new IdsError('format', `the date beside the id ${issued.id} is not that of the id`, { fault: 'date' });
    }
    return { ...issued, span: { fromMs, untilMs: fromMs + BigInt(layout.tickMs) } };
  }
}

/** When the tick of an id begins, in Unix milliseconds. */
function tickStartMs({ datacenterBits, workerBits, sequenceBits, epochMs, tickMs }: Layout, id: bigint): bigint {
  return epochMs + (id >> BigInt(datacenterBits + workerBits + sequenceBits)) * BigInt(tickMs);
}

function idMaxOf({ timestampBits, datacenterBits, workerBits, sequenceBits }: Layout): bigint {
  return (1n << BigInt(timestampBits + datacenterBits + workerBits + sequenceBits)) - 1n;
}

/**
 * The layout of a snowflake without the bits that its format takes for a gene: the lowest of the sequence.
 *
 * @throws {IdsError} `format-misfit` when the format cannot show every id of the layout, and none of them as another.
 * @internal
 */
export function withoutGene(name: string, layout: Layout, { geneBits, restart, idMax }: Format): Layout {
  if (geneBits > 0 && (layout.order !== 'worker-first' || layout.sequenceBits < geneBits)) {
    const what = `${geneBits} bits for a gene are taken from the layout's sequence`;
    throw misfit(name, 'gene', `${what}, which must have as many and stand last`);
  }
  if (restart !== 'never') {
    throw misfit(name, 'restart', 'a snowflake has no counter that could start again');
  }
  const narrow = { ...layout, sequenceBits: layout.sequenceBits - geneBits };
  const layoutMax = idMaxOf(narrow);
  if (layoutMax > idMax) {
    const what = `ids of the layout reach ${layoutMax}, and the format shows none above ${idMax}`;
    throw misfit(name, 'width', `${what}: give it more bits or digits`);
  }
  return narrow;
}

function checkNumbers(name: string, { restart }: Format): void {
  if (restart !== 'never') {
    const what = 'its numbers start again in each period, so that only whole texts are unique';
    throw misfit(name, 'numbers-repeat', `${what}, and no numbers are given`);
  }
}

function misfit(name: string, fault: string, what: string): IdsError {
  return new IdsError('format-misfit', `the format of ${shown(name)} does not fit: ${what}`, { fault });
}

/** A permutation of fewer bits hides little: a table of all that was seen is soon a table of all. */
const PERMUTED_BITS_MIN = 20;

/** A format that is none, or whose keys hide nothing. @throws {IdsError} `options-invalid`, `format` @internal */
export function checkFormat(format: unknown): void {
  const { write, shape, checkShardKey } = (format ?? {}) as Partial<Format>;
  if (![write, shape, checkShardKey].every((method) => typeof method === 'function')) {
    const example = "(await Formats.load()).format({ template: 'ORD-{id}' })";
    throw new IdsError('options-invalid', `format is ${said(format)}, it must be a Format: ${example}`, {
      argument: 'format',
    });
  }
  const [key] = (format as Format).keyChecks();
  if (key !== undefined && key.bits < PERMUTED_BITS_MIN) {
    const what = `a key for ${key.bits} bits hides nothing, and ${PERMUTED_BITS_MIN} at least must be left`;
    throw new IdsError('format', `${what}: bits without geneBits and keyIdBits`, { fault: 'bits' });
  }
}

/** A part of a format, and the number that a store keeps of it. */
interface Kept {
  readonly part: FormatPart;
  readonly number: bigint;
}

/** What is kept of a format, part by part. @internal */
export function partsOf(format: Format): Kept[] {
  const ofKey = ({ id, bits, check }: KeyCheck): Kept => ({ part: { kind: 'key', id, bits }, number: check });
  return [{ part: { kind: 'shape' }, number: format.shape() }, ...format.keyChecks().map(ofKey)];
}

/**
 * Compares a format with what is bound to its owner, and answers what is to be bound of it. What the store does not
 * keep is taken for the same.
 *
 * @throws {StoreError} `format-bound`, and any error of the connection.
 * @internal
 */
export async function unboundOf(store: SegmentStore, owner: FormatOwner, parts: readonly Kept[]): Promise<Kept[]> {
  const unbound: Kept[] = [];
  const bound: Kept[] = [];
  const differing: Kept[] = [];
  for (const kept of parts) {
    const number = await boundIn(store, owner, kept.part, null);
    (number === null ? unbound : number === kept.number ? bound : differing).push(kept);
  }
  refuse(owner, differing);
  // It changes nothing. A store that is a server's hears which format its client shows the numbers in.
  await bind(store, owner, bound.filter(({ part }) => part.kind === 'shape'));
  return unbound;
}

/**
 * Binds what is not bound yet, before the first id is shown.
 *
 * @throws {StoreError} `format-bound` when somebody else bound another format meanwhile; any error of the connection.
 * @internal
 */
export async function bind(store: SegmentStore, owner: FormatOwner, parts: readonly Kept[]): Promise<void> {
  for (const kept of parts) {
    const number = await boundIn(store, owner, kept.part, kept.number);
    // Nothing more is bound of a format that is refused: its keys beside another shape would refuse everybody.
    refuse(owner, number !== null && number !== kept.number ? [kept] : []);
  }
}

/** What a store says is bound: `null` is nothing. */
async function boundIn(
  store: SegmentStore,
  owner: FormatOwner,
  part: FormatPart,
  first: bigint | null,
): Promise<bigint | null> {
  const bound: unknown = (await store.bindFormat?.(owner, part, first)) ?? null;
  if (bound !== null && typeof bound !== 'bigint') {
    throw new StoreError('corrupt', `the store says that ${said(bound)} is bound of a format, and it must be a bigint`);
  }
  return bound;
}

function refuse({ kind, name }: FormatOwner, differing: readonly Kept[]): void {
  if (differing.length === 0) {
    return;
  }
  const what = differing.map(({ part }) => {
    if (part.kind === 'shape') {
      return 'its template, restart, or a width is another one';
    }
    return `the key ${part.id === 0 ? '' : `${part.id} `}has another secret or context`;
  });
  // In single quotes a shell takes every character as it is.
  const word = `'${name.replaceAll("'", String.raw`'\''`)}'`;
  const command = `unalike tags format ${kind === 'snowflake' ? '--snowflake ' : ''}-- ${word}`;
  throw new StoreError(
    'format-bound',
    `the ${kind} ${quoted(name)} is bound to another format in the store, and two ids can look the same: ` +
      `${what.join('; ')}. Use the format from before, or another name; \`${command}\`, with this format in its ` +
      '--config and with the same --store, says what can repeat',
  );
}
