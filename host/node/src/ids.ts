/// <reference lib="esnext.disposable" preserve="true" />
/**
 * The stores, the component and the open generators of one program.
 *
 * @module
 */

import { checkedLayout, type WasmModule } from './component.js';
import { contextsHere } from './contexts.js';
import { asStoreError, because, IdsError, refusedOptions } from './errors.js';
import type { Format } from './formats.js';
import {
  bind,
  checkFormat,
  Formatted,
  OneCounter,
  partsOf,
  Periods,
  Ticks,
  unboundOf,
  withoutGene,
  type FormattedSource,
} from './formatted.js';
import { checkedWait, type Environment, type WaitOptions } from './generator.js';
import { checkStore } from './given-store.js';
import { Lane } from './lane.js';
import { faultOfLayout, layoutOf, layoutText, type LayoutText, type PresetName } from './layouts.js';
import { CORE_MODULES, modulesOf } from './modules.js';
import { shown, subTag, validatePublic, validateTag } from './names.js';
import { checkedBigint, checkedNumber, U32_MAX } from './numbers.js';
import { ANY, CALL, checkedOptions, FLAG, NUMBER, TEXT, type Kinds } from './options.js';
import { Rounds } from './ordered.js';
import { said } from './said.js';
import {
  BufferedSequence,
  chosenOptions,
  OrderedSequence,
  sequenceOptions,
  type Sequence,
  type SequenceOptions,
} from './sequence.js';
import {
  LeasedSnowflake,
  renewEveryMs,
  snowflakeOptions,
  type Snowflake,
  type SnowflakeOptions,
} from './snowflake.js';
import {
  ID_MAX,
  StoreError,
  type FormatOwner,
  type Layout,
  type LeaseStore,
  type SegmentStore,
  type TagRecord,
} from './store.js';
import { Storage } from './storage.js';
import { checkAborted, Event, every, monotonicMs, TIMER_MAX_MS, unref, within } from './wait.js';

/** What {@link Ids.open} takes. */
export interface IdsOptions {
  /** Where sequences get their segments. Without it there are no sequences. */
  readonly segments?: SegmentStore;
  /** Where snowflakes get their leases. Without it there are no snowflakes. */
  readonly leases?: LeaseStore;
  /**
   * A stable name of this process (a host name and port, say), by which the lease store prefers the worker that it had
   * before. It proves nothing, and two processes with one name stay unique. A random name by default.
   */
  readonly holder?: string;
  /** A worker id that this process would like to have, if it is free. */
  readonly preferredWorker?: number;
  /** How long a call waits for ids before it fails with the kind `timeout`: 5000 ms by default. */
  readonly waitMaxMs?: number;
  /**
   * After how long a request to a store is given up, and what it may have been granted is burnt: 10000 ms by default.
   */
  readonly requestTimeoutMs?: number;
  /**
   * Whether leases are renewed by a timer while no ids are asked for: true by default, but in Cloudflare's Workers,
   * where a timer ends with its request. It keeps no process alive.
   */
  readonly renewLeases?: boolean;
  /** Another clock, for tests and simulations: Unix milliseconds. */
  readonly now?: () => number;
}

const OPTIONS: Kinds<IdsOptions> = {
  segments: ANY,
  leases: ANY,
  holder: TEXT,
  preferredWorker: NUMBER,
  waitMaxMs: NUMBER,
  requestTimeoutMs: NUMBER,
  renewLeases: FLAG,
  now: CALL,
};

interface Open {
  readonly sequence: Sequence;
  readonly generator: BufferedSequence | Rounds;
  readonly given: string;
  isClosing: boolean;
}

/**
 * All id generators of a program: open it once, and close it at the end.
 *
 * A program that ends without closing stays as unique, and wastes what it had: the rest of its segments is a gap, and
 * the workers of its snowflakes stay taken until their leases end.
 *
 * Each process and each `worker_thread` opens its own. Grants are never shared between them, and none of these objects
 * can be posted to another thread. (Node has no fork that copies a process: `cluster` and `child_process.fork` start
 * new ones.)
 *
 * @example
 * ```ts
 * import { Ids } from 'unalike';
 * import { SqliteStore } from 'unalike/sqlite';
 *
 * await using store = await SqliteStore.open('ids.sqlite');
 * await using ids = await Ids.open({ segments: store });
 * const orders = await ids.sequence('order');
 * console.log(await orders.next()); // 1n
 * ```
 */
export class Ids {
  /** The first thing that is read of an object that is posted. */
  protected readonly posted = forbidPosting(this);
  private readonly sequences = new Map<string, Open>();
  private readonly snowflakes = new Map<string, { readonly generator: LeasedSnowflake; readonly given: string }>();
  /** The tags that were found to be bound to a format, and what is kept of that. */
  private readonly formats = new Map<string, string>();
  private closing: Promise<void> | undefined;
  /** A sequence was closed. */
  private readonly ended = new Event();
  private renewal: unknown;
  private renewalEveryMs = Number.POSITIVE_INFINITY;

  private readonly environment: Environment;
  private readonly renewsLeases: boolean;

  private constructor(environment: Environment, renewsLeases: boolean) {
    // Without TypeScript anything may come here.
    if (!(environment?.lane instanceof Lane)) {
      throw new IdsError('options-invalid', 'Ids are opened, and not constructed: write await Ids.open(..)');
    }
    this.environment = environment;
    this.renewsLeases = renewsLeases;
  }

  /**
   * Loads the component (some milliseconds, once per process). No request is made yet.
   *
   * @throws {IdsError} `component`, `number-invalid`, `options-invalid`
   */
  static async open(given: IdsOptions): Promise<Ids> {
    const options = checkedIds(given, 'Ids.open');
    return Ids.openWith(await modulesOf(CORE_MODULES), options);
  }

  /** @internal With the modules at hand. */
  static openWith(moduleOf: (name: string) => WasmModule, options: IdsOptions): Ids {
    const { waitMaxMs, requestTimeoutMs, worker } = numbersOf(options);
    const { segments, leases, holder } = options;
    const storage = new Storage(segments, leases, holder, worker, requestTimeoutMs);
    const lane = new Lane(moduleOf, storage, options.now ?? Date.now);
    lane.begin();
    return new Ids({ storage, lane, waitMaxMs }, options.renewLeases ?? !contextsHere().areMany);
  }

  /**
   * The sequence of a tag, opened at first use; options that are not given are the tag's own, as its store keeps them.
   * A tag that its store has as `ordered` is served by rounds: its ids ascend across all processes in real time.
   *
   * @throws {IdsError} `name-invalid`, `options-invalid`, `number-invalid`, `mode-bound`, `open-otherwise`, `closed`;
   * `store` and `timeout` when the tag cannot be looked up.
   */
  async sequence(tag: string, options: SequenceOptions = {}, wait: WaitOptions = {}): Promise<Sequence> {
    named(tag, () => {
      validateTag(tag);
      validatePublic(tag);
    });
    // What is the program's own code comes first: reading its options.
    const chosen = chosenOptions(options);
    const given = keyOf(chosen);
    const waits = checkedWait(wait);
    for (;;) {
      this.checkOpen(tag);
      const open = this.sequences.get(tag);
      if (open?.isClosing === true) {
        // Open once at most.
        await this.untilClosed(tag, open);
        continue;
      }
      if (open !== undefined) {
        return again(open, tag, given);
      }
      const record = await this.lookUp(tag, waits);
      const opened = this.openSequence(tag, record, chosen, given);
      // Somebody may have opened it meanwhile: a process has one buffer per tag.
      if (this.sequences.has(tag)) {
        continue;
      }
      this.checkOpen(tag);
      this.sequences.set(tag, opened);
      return opened.sequence;
    }
  }

  /**
   * The sequence of a tag's sub-key: numbers of their own, for which the tag is the common name and gives the options.
   * Both together have at most 127 bytes. It needs no creation: its first use makes its row in the store.
   *
   * @example
   * ```ts
   * const messages = await ids.sequenceOf('chat', 'alice-and-bob');
   * await messages.next(); // 1n, 2n, .. in each chat
   * ```
   *
   * @throws {IdsError} As {@link Ids.sequence}.
   */
  async sequenceOf(tag: string, sub: string, options: SequenceOptions = {}, wait: WaitOptions = {}): Promise<Sequence> {
    const name = named(tag, () => named(sub, () => subTag(tag, sub)));
    return await this.sequence(name, options, wait);
  }

  /**
   * The snowflake generator of a lease namespace, opened at first use. The layout is a preset's name, such as
   * `twitter`, a {@link Layout}, or its text, such as `41/10/12 epoch 2024-01-01`; it binds the namespace in its store.
   *
   * @throws {IdsError} `name-invalid`, `layout-invalid`, `options-invalid`, `number-invalid`, `open-otherwise`,
   * `closed`
   */
  async snowflake(
    namespace: string,
    layout: PresetName | LayoutText | Layout,
    options: SnowflakeOptions = {},
  ): Promise<Snowflake> {
    named(namespace, () => validateTag(namespace));
    // What is the program's own code comes first: reading its options, and its clock.
    const fields = checkedLayout(layoutOf(layout));
    const checked = snowflakeOptions(fields, options);
    const given = keyOf(checked);
    this.checkOpen(namespace);
    const nowMs = this.environment.lane.nowMs();
    this.checkOpen(namespace);
    const open = this.snowflakes.get(namespace);
    if (open !== undefined) {
      if (open.given !== given) {
        throw openOtherwise(namespace, open.given, given);
      }
      return open.generator;
    }
    const generator = new LeasedSnowflake(this.environment, namespace, checked);
    try {
      // Opened here and now: a layout that cannot be is refused by this call. No request is made yet.
      generator.begin(nowMs);
    } catch (error) {
      this.environment.lane.remove(generator);
      if (error instanceof IdsError && error.figures.argument === 'layout') {
        throw layoutInvalid(namespace, fields, error);
      }
      throw error;
    }
    this.snowflakes.set(namespace, { generator, given });
    this.beginRenewal(checked.horizonMs);
    return generator;
  }

  /**
   * The ids of a tag as a format shows them. The sequence never gives an id above what the format can show; it ends
   * then. Where the counter starts again, each period has numbers of its own under the sub-key `@2026-11-22`: a row in
   * the store, made at its first use, and a sequence that stays open in this process.
   *
   * If the ids of one tag are shown in two formats, or if its template, restart, bits, gene or a secret change, two ids
   * could be shown alike. So the format is bound to the tag in the store at its first use. Another one is refused, in
   * this process and in every other. Keys are bound one by one: one with a number of its own may come or go.
   *
   * Nothing is compared in a store that keeps no formats ({@link SegmentStore.bindFormat}), and bare sequences of the
   * tag compare nothing.
   *
   * @example
   * ```ts
   * const format = formats.format({ template: 'ORD-{yyyyMMdd}-{id:06}', bits: 19, restart: 'day' });
   * const orders = await ids.formatted('order', format);
   * await orders.next(); // 'ORD-20261122-000001'
   * ```
   *
   * @throws {IdsError} `format-bound` for another format; and as {@link Ids.sequence}.
   */
  async formatted(
    tag: string,
    format: Format,
    options: SequenceOptions = {},
    wait: WaitOptions = {},
  ): Promise<Formatted> {
    return await this.show(tag, undefined, format, options, wait);
  }

  /**
   * The ids of a tag's sub-key as a format shows them, which is the format of its tag. Where the counter starts again,
   * they are counted under `sub@2026-11-22`.
   *
   * **Texts are unique within one sub-key.** Sub-keys count by themselves, so two of them show the same texts. Where
   * texts of several meet, give each its own tag, with its own prefix in the template.
   *
   * @throws {IdsError} As {@link Ids.formatted}; the sub-key and the period count together.
   */
  async formattedOf(
    tag: string,
    sub: string,
    format: Format,
    options: SequenceOptions = {},
    wait: WaitOptions = {},
  ): Promise<Formatted> {
    // With a period behind it anything would look like a name.
    named(tag, () => named(sub, () => subTag(tag, sub)));
    return await this.show(tag, sub, format, options, wait);
  }

  /**
   * The ids of a snowflake as a format shows them. The date in a text is that of its id's own tick.
   *
   * A gene takes the lowest bits of the layout's sequence: the namespace is bound to the layout without them, and what
   * is shown without a key is an id of the layout as it is given.
   *
   * The format is bound to the namespace as one is to a tag ({@link Ids.formatted}), in the store of the sequences.
   * Without such a store nothing is compared.
   *
   * @throws {IdsError} `format-misfit`, `format-bound`, and as {@link Ids.snowflake}; `store` and `timeout` when the
   * format cannot be looked up.
   */
  async formattedSnowflake(
    namespace: string,
    layout: PresetName | LayoutText | Layout,
    format: Format,
    options: SnowflakeOptions = {},
    wait: WaitOptions = {},
  ): Promise<Formatted> {
    named(namespace, () => validateTag(namespace));
    checkFormat(format);
    const waits = checkedWait(wait);
    const fields = checkedLayout(layoutOf(layout));
    if (faultOfLayout(fields) !== null) {
      throw layoutInvalid(namespace, fields);
    }
    const narrow = withoutGene(namespace, fields, format);
    // Before anything is bound or opened.
    snowflakeOptions(narrow, options);
    this.checkOpen(namespace);
    if (this.environment.storage.segments !== undefined) {
      const owner: FormatOwner = { kind: 'snowflake', name: namespace };
      const parts = partsOf(format);
      await this.askSegments(namespace, waits, notCompared, async (store) => {
        await bind(store, owner, await unboundOf(store, owner, parts));
      });
    }
    return new Formatted(new Ticks(await this.snowflake(namespace, narrow, options)), format);
  }

  /** The sequences that are open. */
  openSequences(): Sequence[] {
    return [...this.sequences.values()].map(({ sequence }) => sequence);
  }

  /** The snowflake generators that are open. */
  openSnowflakes(): Snowflake[] {
    return [...this.snowflakes.values()].map(({ generator }) => generator);
  }

  /**
   * Ends all generators and gives back what never crossed into a run: the tails of segments, and leases from their last
   * used tick on. Waits for the stores' answers, each time at most as long as a request may take. Calls that wait are
   * rejected with the kind `closed`. The stores stay open: they are yours.
   *
   * The work begins with the first call, and every call waits for the same end.
   */
  close(): Promise<void> {
    this.closing ??= this.finish();
    return this.closing;
  }

  /** For `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** @internal Gives the instance of the component up as after a trap: for tests. */
  trap(): IdsError {
    return this.environment.lane.trap('', 'it was asked to');
  }

  private async finish(): Promise<void> {
    const { storage } = this.environment;
    clearInterval(this.renewal as number);
    const sequences = [...this.sequences.values()];
    const snowflakes = [...this.snowflakes.values()].map(({ generator }) => generator);
    for (const { generator } of sequences) {
      generator.stop();
    }
    for (const generator of snowflakes) {
      generator.stop();
    }
    // A segment that is on its way would stand between the tail and the tag's watermark.
    await storage.settle();
    const giveBack = storage.holdReleases();
    for (const { generator } of sequences) {
      this.endInComponent(generator);
    }
    for (const generator of snowflakes) {
      this.endInComponent(generator);
    }
    giveBack();
    await storage.settle();
    this.sequences.clear();
    this.snowflakes.clear();
    this.ended.fire();
  }

  /** Ends it in the component, which gives back what it can. */
  private endInComponent(generator: BufferedSequence | Rounds | LeasedSnowflake): void {
    const { lane } = this.environment;
    try {
      if (lane.has(generator)) {
        if (generator instanceof BufferedSequence) {
          lane.call(generator, (sequence) => sequence.close());
        } else if (generator instanceof LeasedSnowflake) {
          lane.call(generator, (snowflake) => snowflake.close());
        }
        lane.remove(generator);
      }
    } catch (error) {
      if (!(error instanceof IdsError)) {
        throw error;
      }
      // It gave nothing back: a gap.
    }
  }

  private openSequence(tag: string, record: TagRecord, options: SequenceOptions, given: string): Open {
    const { mode } = record.options;
    if (options.mode !== undefined && options.mode !== mode) {
      const what = `the tag ${shown(tag)} is ${mode} in its store and was asked for as ${options.mode}`;
      throw new IdsError('mode-bound', `${what}: a tag has one mode for all processes`);
    }
    const checked = sequenceOptions(record, options);
    const end = (): Promise<void> => this.closeSequence(tag, opened);
    let opened: Open;
    if (mode === 'ordered') {
      const generator = new Rounds(this.environment, tag, checked.idMax);
      opened = { generator, sequence: new OrderedSequence(generator, end), given, isClosing: false };
    } else {
      const generator = new BufferedSequence(this.environment, tag, checked, end);
      opened = { generator, sequence: generator, given, isClosing: false };
    }
    return opened;
  }

  private closeSequence(tag: string, open: Open): Promise<void> {
    if (this.closing !== undefined) {
      return this.closing;
    }
    if (open.isClosing) {
      return this.untilClosed(tag, open);
    }
    open.isClosing = true;
    const finishing = this.finishSequence(tag, open);
    contextsHere().keep(finishing);
    return finishing;
  }

  private async finishSequence(tag: string, open: Open): Promise<void> {
    const { storage } = this.environment;
    const { generator } = open;
    generator.stop();
    // As in `finish`; what is on its way for others is waited for as well, which ends in the time of a request.
    await storage.settle();
    if (this.closing === undefined) {
      this.endInComponent(generator);
    }
    await storage.settle();
    this.removeSequence(tag, open);
  }

  /** The end is another call's. Where that was cut, it does not come, and no promise of its is kept. */
  private async untilClosed(tag: string, open: Open): Promise<void> {
    const until = monotonicMs() + 3 * this.environment.storage.requestTimeoutMs;
    while (this.sequences.get(tag) === open) {
      const left = until - monotonicMs();
      if (left <= 0) {
        this.endInComponent(open.generator);
        this.removeSequence(tag, open);
        return;
      }
      await this.ended.next(left, tag);
    }
  }

  private removeSequence(tag: string, open: Open): void {
    if (this.sequences.get(tag) === open) {
      this.sequences.delete(tag);
      this.ended.fire();
    }
  }

  private async show(
    tag: string,
    sub: string | undefined,
    format: Format,
    options: SequenceOptions,
    wait: WaitOptions,
  ): Promise<Formatted> {
    named(tag, () => {
      validateTag(tag);
      validatePublic(tag);
    });
    checkFormat(format);
    const chosen = chosenOptions(options);
    const waits = checkedWait(wait);
    const given = chosen.idMax === undefined ? ID_MAX : checkedBigint('idMax', chosen.idMax, 1n, ID_MAX);
    const idMax = given < format.idMax ? given : format.idMax;
    const bounded = idMax < ID_MAX ? { ...chosen, idMax } : chosen;
    this.checkOpen(tag);
    const owner: FormatOwner = { kind: 'tag', name: tag };
    const parts = partsOf(format);
    const kept = keyOf(parts);
    const compare = (): Promise<ReturnType<typeof partsOf>> =>
      this.askSegments(tag, waits, notCompared, (store) => unboundOf(store, owner, parts));
    // Before anything is opened for a format that is refused.
    let unbound = this.formats.get(tag) === kept ? [] : await compare();
    let source: FormattedSource;
    try {
      source = await this.openSource(tag, sub, format, bounded, waits);
    } catch (error) {
      if (unbound.length === 0 || !(error instanceof IdsError) || error.storeError?.kind !== 'refused') {
        throw error;
      }
      // A server gives no numbers of a tag whose format somebody else has bound meanwhile, unless it is this one.
      unbound = await compare();
      source = await this.openSource(tag, sub, format, bounded, waits);
    }
    if (unbound.length > 0) {
      await this.askSegments(tag, waits, notCompared, (store) => bind(store, owner, unbound));
    }
    this.formats.set(tag, kept);
    return new Formatted(source, format);
  }

  /** What the texts of a tag are made from. Whatever may be wrong with the tag shows now. */
  private async openSource(
    tag: string,
    sub: string | undefined,
    format: Format,
    options: SequenceOptions,
    wait: WaitOptions,
  ): Promise<FormattedSource> {
    const nowMs = (): number => this.environment.lane.nowMs();
    if (format.restart === 'never') {
      const opening =
        sub === undefined ? this.sequence(tag, options, wait) : this.sequenceOf(tag, sub, options, wait);
      return new OneCounter(await opening, nowMs);
    }
    const open = (period: string, each: WaitOptions): Promise<Sequence> => this.sequenceOf(tag, period, options, each);
    const periods = new Periods(tag, sub ?? '', format, nowMs, open, (each) => this.waitMaxMs(each));
    await periods.sequence(nowMs(), wait);
    return periods;
  }

  /** How long a call waits. @throws {IdsError} `number-invalid` */
  private waitMaxMs(wait: WaitOptions): number {
    return checkedNumber('waitMaxMs', wait.waitMaxMs ?? this.environment.waitMaxMs, 0, TIMER_MAX_MS);
  }

  private lookUp(tag: string, wait: WaitOptions): Promise<TagRecord> {
    const late = (name: string): string => `the tag ${name} was not looked up`;
    return this.askSegments(tag, wait, late, (store) => store.openTag(tag));
  }

  /** What the store of segments says, within the time that a call waits. @throws {IdsError} */
  private async askSegments<Value>(
    tag: string,
    wait: WaitOptions,
    notInTime: (name: string) => string,
    ask: (store: SegmentStore) => Promise<Value>,
  ): Promise<Value> {
    const { storage } = this.environment;
    const limitMs = this.waitMaxMs(wait);
    checkAborted(tag, wait.signal);
    const late = (): never => {
      throw new IdsError('timeout', `${notInTime(shown(tag))} within ${limitMs} ms`, { waitedMs: limitMs });
    };
    let abort = (): void => undefined;
    const aborted = new Promise<never>((_, reject) => {
      abort = (): void => {
        try {
          checkAborted(tag, wait.signal);
        } catch (error) {
          reject(error as Error);
        }
      };
      wait.signal?.addEventListener('abort', abort);
    });
    try {
      const asked = storage.request(async () => await ask(storage.segmentStore()));
      return await within(Promise.race([asked, aborted]), limitMs, late, true);
    } catch (error) {
      if (error instanceof IdsError) {
        throw error;
      }
      const cause = asStoreError(error);
      if (cause.kind === 'tag-invalid') {
        throw new IdsError('name-invalid', cause.message, {}, cause);
      }
      if (cause.kind === 'format-bound') {
        throw new IdsError('format-bound', cause.message, {}, cause);
      }
      throw new IdsError('store', `no ids for ${shown(tag)}${because(cause)}`, {}, cause);
    } finally {
      wait.signal?.removeEventListener('abort', abort);
    }
  }

  private checkOpen(name: string): void {
    if (this.closing !== undefined) {
      throw new IdsError('closed', `no ids for ${shown(name)}: this Ids was closed`);
    }
  }

  /** Has leases with this horizon renewed, too. */
  private beginRenewal(horizonMs: bigint): void {
    const everyMs = renewEveryMs(horizonMs);
    if (!this.renewsLeases || everyMs >= this.renewalEveryMs) {
      return;
    }
    clearInterval(this.renewal as number);
    this.renewalEveryMs = everyMs;
    this.renewal = every(() => {
      for (const { generator } of this.snowflakes.values()) {
        generator.renew();
      }
    }, everyMs);
    unref(this.renewal);
  }
}

/** What did not happen in time. */
function notCompared(name: string): string {
  return `the format of ${name} was not compared with that in the store`;
}

/** The options, looked at before anything is loaded. `open` is what takes them. @throws {IdsError} @internal */
export function checkedIds(given: unknown, open: string): IdsOptions {
  const options = checkedOptions('options', given, OPTIONS, refusedOptions);
  numbersOf(options);
  const { segments, leases } = options;
  checkStore('segments', segments);
  checkStore('leases', leases);
  if (segments === undefined && leases === undefined) {
    throw new IdsError('options-invalid', `no store was given: ${open}({ segments: store, leases: store })`, {
      argument: 'segments',
    });
  }
  return options;
}

function numbersOf(options: IdsOptions): { waitMaxMs: number; requestTimeoutMs: number; worker: number | null } {
  const { preferredWorker = null } = options;
  return {
    waitMaxMs: checkedNumber('waitMaxMs', options.waitMaxMs ?? 5_000, 0, TIMER_MAX_MS),
    requestTimeoutMs: checkedNumber('requestTimeoutMs', options.requestTimeoutMs ?? 10_000, 1, TIMER_MAX_MS),
    worker: preferredWorker === null ? null : checkedNumber('preferredWorker', preferredWorker, 0, U32_MAX),
  };
}

function layoutInvalid(namespace: string, layout: Layout, cause?: unknown): IdsError {
  const what = `the layout ${layoutText(layout)} of ${shown(namespace)} is not valid: ${faultOfLayout(layout)}`;
  return new IdsError('layout-invalid', what, {}, cause);
}

function again(open: Open, tag: string, given: string): Sequence {
  if (given !== keyOf({}) && given !== open.given) {
    throw openOtherwise(tag, open.given, given);
  }
  return open.sequence;
}

/**
 * Has an object tell whoever posts it to another thread why that cannot be: what copies it reads all that it has, and
 * would say that some function of its cannot be cloned.
 */
function forbidPosting(ids: object): undefined {
  Object.defineProperty(ids, 'own', {
    enumerable: true,
    get: () => {
      const what = 'an Ids cannot be posted or copied: each thread opens its own Ids and store; ids can be posted';
      throw new IdsError('options-invalid', what);
    },
  });
  return undefined;
}

/** The first option that differs is told, with both values. */
function openOtherwise(name: string, open: string, given: string): IdsError {
  const [there, here] = [JSON.parse(open), JSON.parse(given)] as [Record<string, unknown>, Record<string, unknown>];
  const option = Object.keys({ ...there, ...here }).find((key) => keyOf([there[key]]) !== keyOf([here[key]])) ?? '';
  const written = (value: unknown): string =>
    value === undefined ? 'not given' : JSON.stringify(value).replace(/"(-?\d+n)"/g, '$1');
  const what = `${option} is ${written(there[option])} there, and ${written(here[option])} here`;
  const advice = 'open it once and keep it';
  return new IdsError('open-otherwise', `${shown(name)} is open with other options (${what}): ${advice}`);
}

/** Options that are alike have one key. */
function keyOf(value: object): string {
  return JSON.stringify(value, (_, part: unknown) => {
    if (typeof part === 'bigint') {
      return `${part}n`;
    }
    if (typeof part === 'object' && part !== null && !Array.isArray(part)) {
      return Object.fromEntries(Object.entries(part).sort(([one], [other]) => (one < other ? -1 : 1)));
    }
    return part;
  });
}

/** What a check of a name throws, as the library's error. */
function named<Value>(name: unknown, check: () => Value): Value {
  if (typeof name !== 'string') {
    throw new IdsError('name-invalid', `a name is a text, and ${said(name)} was given`);
  }
  try {
    return check();
  } catch (error) {
    if (error instanceof StoreError) {
      throw new IdsError('name-invalid', error.message, {}, error);
    }
    throw error;
  }
}
