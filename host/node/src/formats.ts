/**
 * What is done with ids after they were made: notations, the fields of snowflakes, and formats. Pure functions, which
 * need no store.
 *
 * @module
 */

import { answerOf, checkedLayout, Trap, type WasmModule } from './component.js';
import { IdsError, refusedOptions } from './errors.js';
import type {
  ComponentFault,
  ComponentFormatOptions,
  ComponentIssued,
  FormatResource,
  FormatsExports,
  KeyCheck,
  Notation,
  Parts,
  Restart,
} from './formats-component.js';
import { instantiate } from './glue/unalike-formats.js';
import { faultOfLayout, layoutOf, layoutText, type LayoutText, type PresetName } from './layouts.js';
import { FORMATS_MODULES, modulesOf } from './modules.js';
import { checkedBigint, checkedNumber, U32_MAX } from './numbers.js';
import { ANY, checkedOptions, NUMBER, type Kinds } from './options.js';
import { said } from './said.js';
import { ID_MAX, type Layout } from './store.js';

export type { KeyCheck, Notation, Parts, Restart } from './formats-component.js';

/** A secret key, which permutes the numbers of a format so that they cannot be guessed. */
export interface FormatKey {
  /** Written above each number that the key permuted: 1 to 2^keyIdBits - 1, or 0 without bits for it. */
  readonly id: number;
  /** 128 random bits as 32 hexadecimal digits, or as a bigint. */
  readonly secret: string | bigint;
}

/** What a format is made of. */
export interface FormatOptions {
  /**
   * Text with placeholders, 128 bytes at most: exactly one of `{id}`, `{id:010}` (zeros in front, 1 to 19 digits),
   * `{id:base36}`, `{id:base62}`, `{id:base32}` and `{id:uuid}`; any of `{yyyy}`, `{yy}`, `{MM}`, `{dd}`, `{HH}`,
   * `{mm}`, `{ss}` and `{SSS}`, several in one as in `{yyyyMMdd}`; `{gene:4}`, the low 4 bits (1 to 16) of the shard
   * key in decimal; and `{{` and `}}` for braces.
   */
  readonly template: string;
  /** The offset of the date from UTC: -1080 to 1080 minutes; 0 by default. */
  readonly utcOffsetMinutes?: number;
  /** When the counter starts again at 1: `never` by default. The template must show the period. */
  readonly restart?: Restart;
  /** Width of the greatest number that is shown as the id: 1 to 63, the default. */
  readonly bits?: number;
  /** The lowest bits of the number, taken from the shard key: 0 (no gene, the default) to 16. */
  readonly geneBits?: number;
  /** Width of the key's id, above the permuted bits: 0 (the default) to 8, and 0 without keys. */
  readonly keyIdBits?: number;
  /**
   * The first key writes; all of them read. Without keys, ids are shown as they are. `Ids.formatted` wants 20 bits at
   * least for them: `bits` without `geneBits` and `keyIdBits`.
   */
  readonly keys?: readonly FormatKey[];
  /** What the ids belong to, such as their tag's name: under one key, each context has its own permutation. */
  readonly context?: string;
}

/** What a text says. */
export interface Issued {
  /** The id that the generator gave. */
  readonly id: bigint;
  /** The number that is shown. */
  readonly number: bigint;
  /** The low bits of the shard key. */
  readonly gene: bigint | undefined;
  /** The key that was used. */
  readonly keyId: number | undefined;
  /** The time of the date in the text, in Unix milliseconds; `untilMs` is not included. */
  readonly span: { readonly fromMs: bigint; readonly untilMs: bigint } | undefined;
}

/** An instant: Unix milliseconds, or a date. */
export type Instant = number | bigint | Date;

const OPTIONS: Kinds<FormatOptions> = {
  template: ANY,
  utcOffsetMinutes: NUMBER,
  restart: ANY,
  bits: NUMBER,
  geneBits: NUMBER,
  keyIdBits: NUMBER,
  keys: ANY,
  context: ANY,
};
const KEY: Kinds<FormatKey> = { id: NUMBER, secret: ANY };
const PARTS: Kinds<Parts> = { ticks: NUMBER, worker: NUMBER, sequence: NUMBER };

const NOTATIONS: readonly Notation[] = ['decimal', 'padded', 'base36', 'base62', 'base32', 'uuid'];
const RESTARTS: readonly Restart[] = ['never', 'year', 'month', 'day'];

/**
 * Reads and writes ids.
 *
 * @example
 * ```ts
 * const formats = await Formats.load();
 * formats.encode(1_000_000n, 'base62'); // '00000004C92'
 * formats.decode('00000004C92', 'base62'); // 1000000n
 * formats.unpack(id, 'twitter'); // { ticks, worker, sequence }
 * ```
 */
export class Formats {
  private codec: FormatsExports['codec'];

  private constructor(private readonly moduleOf: (name: string) => WasmModule) {
    if (typeof moduleOf !== 'function') {
      throw new IdsError('options-invalid', 'Formats are loaded, and not constructed: write await Formats.load()');
    }
    this.codec = instantiate(moduleOf, {}).codec;
  }

  /** Loads the component: some milliseconds, once per process. @throws {IdsError} `component` */
  static async load(): Promise<Formats> {
    return new Formats(await modulesOf(FORMATS_MODULES));
  }

  /** An id, 1 to 2^63 - 1, as text. @throws {IdsError} `format`, `number-invalid` */
  encode(id: bigint, notation: Notation): string {
    const checked = checkedBigint('id', id);
    const how = oneOf('notation', notation, NOTATIONS);
    return this.call(`the id ${checked} as ${how}`, () => this.codec.encode(checked, how));
  }

  /** An id from text. @throws {IdsError} `format` */
  decode(text: string, notation: Notation): bigint {
    const how = oneOf('notation', notation, NOTATIONS);
    const input = textOf('text', text);
    const what = `${JSON.stringify(input.slice(0, 80))} as ${how}`;
    return this.call(what, () => this.codec.decode(input, how), ({ tag, val }) => faultOfText(tag, val, how));
  }

  /** The fields of a snowflake id. @throws {IdsError} `format`, `layout-invalid`, `number-invalid` */
  unpack(id: bigint, layout: PresetName | LayoutText | Layout): Parts {
    const [checked, fields] = [checkedBigint('id', id), checkedLayout(layoutOf(layout))];
    const fault: Explain = (said) => (said.val === 'id' ? faultOfId(fields) : layoutFault(fields, said));
    return this.call(`the id ${checked}`, () => this.codec.unpack(checked, fields), fault);
  }

  /** The snowflake id of these fields. @throws {IdsError} `format`, `layout-invalid`, `number-invalid` */
  pack(given: Parts, layout: PresetName | LayoutText | Layout): bigint {
    const fields = checkedLayout(layoutOf(layout));
    const parts = checkedOptions('parts', given, PARTS, refusedOptions);
    const checked = {
      ticks: checkedBigint('ticks', parts.ticks),
      worker: checkedNumber('worker', parts.worker, 0, U32_MAX),
      sequence: checkedNumber('sequence', parts.sequence, 0, U32_MAX),
    };
    const fault: Explain = (said) => (said.val === 'id' ? faultOfParts(checked, fields) : layoutFault(fields, said));
    return this.call('these fields', () => this.codec.pack(checked, fields), fault);
  }

  /**
   * The least and the greatest id whose tick overlaps the time from `from` to `until`, which is not included: for
   * queries by time over a column of ids.
   *
   * @throws {IdsError} `format` if there is none
   */
  idRange(layout: PresetName | LayoutText | Layout, from: Instant, until: Instant): [bigint, bigint] {
    const fields = checkedLayout(layoutOf(layout));
    const [first, end] = [instantOf('from', from), instantOf('until', until)];
    const fault: Explain = (said) => (said.val === 'span' ? faultOfSpan(first, end) : layoutFault(fields, said));
    return this.call('this span of time', () => this.codec.idRange(fields, first, end), fault);
  }

  /** Makes a format. @throws {IdsError} `format`, `number-invalid`, `options-invalid` */
  format(options: FormatOptions & { readonly restart: Exclude<Restart, 'never'> }): RestartingFormat;
  format(options: FormatOptions): Format;
  format(given: FormatOptions): Format {
    const options = checkedOptions('options', given, OPTIONS, refusedOptions);
    const { keys: list = [], utcOffsetMinutes: offset = 0 } = options;
    if (!Array.isArray(list)) {
      throw refusedOptions(`keys must be a list of keys, and is of the type ${typeof list}`, 'keys');
    }
    const keys = list.map((one: unknown) => {
      if (typeof one !== 'object') {
        throw refusedOptions(`a key must be an object, and is of the type ${typeof one}`, 'keys');
      }
      const key = checkedOptions('a key', one, KEY, refusedOptions);
      const secret = secretOf(key.secret);
      return { id: checkedNumber('id', key.id, 0, 0xff), high: secret >> 64n, low: secret & ((1n << 64n) - 1n) };
    });
    // The component refuses what is beyond the bounds that are named, and within those of the integer.
    const checked: ComponentFormatOptions = {
      template: textOf('template', options.template),
      utcOffsetMinutes: checkedNumber('utcOffsetMinutes', offset, -0x8000, 0x7fff, [-1080, 1080]),
      restart: oneOf('restart', options.restart ?? 'never', RESTARTS),
      bits: checkedNumber('bits', options.bits ?? 63, 0, 0xff, [1, 63]),
      geneBits: checkedNumber('geneBits', options.geneBits ?? 0, 0, 0xff, [0, 16]),
      keyIdBits: checkedNumber('keyIdBits', options.keyIdBits ?? 0, 0, 0xff, [0, 8]),
      keys,
      context: textOf('context', options.context ?? ''),
    };
    const what = `the format ${JSON.stringify(checked.template.slice(0, 130))}`;
    const resource = this.call(what, () => this.codec.Format.open(checked), (said) => faultOfOptions(checked, said));
    return new Format(resource, checked, (doing, act) => this.call(doing, act));
  }

  private call<Value>(what: string, act: () => Value, explain: Explain = faultOfUse): Value {
    let answer;
    try {
      answer = answerOf<Value, ComponentFault | string>(act);
    } catch (error) {
      if (error instanceof Trap) {
        // Formats that are there stay with the instance that failed; those that come have another.
        this.codec = instantiate(this.moduleOf, {}).codec;
        throw new IdsError('component', `the component failed over ${what}: ${error.message}`, {}, error);
      }
      throw error;
    }
    if (answer.tag === 'ok') {
      return answer.val;
    }
    throw faultOf(what, answer.val, explain);
  }
}

/**
 * How the ids of a tag are shown: permuted under a key, joined with a shard gene, and written into a template; and
 * back. Each step is a bijection, so that what is shown is as unique as the ids are.
 *
 * @example
 * ```ts
 * const format = formats.format({ template: 'ORD-{yyyyMMdd}-{id:06}', utcOffsetMinutes: 480 });
 * format.write(42n, Date.now()); // 'ORD-20261122-000042'
 * format.read('ORD-20261122-000042').id; // 42n
 * ```
 */
export class Format {
  /** The greatest id that can be shown: the `idMax` for the sequence. */
  readonly idMax: bigint;
  /** When the counter starts again. */
  readonly restart: Restart;
  /** How many of the number's lowest bits are taken from the shard key. */
  readonly geneBits: number;
  /** Whether there is a gene, in the number or in the text, and so a shard key to be given. */
  readonly needsShardKey: boolean;

  /** @internal */
  constructor(
    private readonly resource: FormatResource,
    { restart, geneBits }: Pick<ComponentFormatOptions, 'restart' | 'geneBits'>,
    private readonly call: <Value>(what: string, act: () => Value) => Value,
  ) {
    this.restart = restart;
    this.geneBits = geneBits;
    this.idMax = call('the greatest id', () => resource.idMax());
    this.needsShardKey = call('a shard key', () => lacksShardKey(resource));
  }

  /**
   * The period of an instant, `2026-11-22`, `2026-11` or `2026`: the sub-key that its numbers are counted under.
   * `undefined` where the counter never restarts.
   *
   * @throws {IdsError} `format`
   */
  period(issued: Instant): string | undefined {
    const at = instantOf('issued', issued);
    return this.call('the period', () => this.resource.period(at));
  }

  /** The number that is shown for an id, in any notation. @throws {IdsError} `format` */
  number(id: bigint, issued: Instant, shardKey?: bigint): bigint {
    const [checked, at, shard] = checkedShown(id, issued, shardKey);
    return this.call(`the id ${checked}`, () => this.resource.number(checked, at, shard));
  }

  /** The id behind a number. @throws {IdsError} `format` */
  original(number: bigint): Issued {
    const checked = checkedBigint('number', number);
    return issuedOf(this.call(`the number ${checked}`, () => this.resource.original(checked)));
  }

  /** An id as text. @throws {IdsError} `format` */
  write(id: bigint, issued: Instant, shardKey?: bigint): string {
    const [checked, at, shard] = checkedShown(id, issued, shardKey);
    return this.call(`the id ${checked}`, () => this.resource.write(checked, at, shard));
  }

  /** What a text says. @throws {IdsError} `format` */
  read(text: string): Issued {
    const input = textOf('text', text);
    return issuedOf(this.call(JSON.stringify(input.slice(0, 130)), () => this.resource.read(input)));
  }

  /** What a store keeps of the template, the restart and the widths, to know them again: 1 to 2^63 - 1. */
  shape(): bigint {
    return this.call('the shape', () => this.resource.shape());
  }

  /** What a store keeps of each key, to know again how it permutes. */
  keyChecks(): KeyCheck[] {
    return this.call('the checks of the keys', () => this.resource.keyChecks());
  }

  /** @internal Refuses, before an id is taken, what {@link Format.write} would refuse afterwards. */
  checkShardKey(what: string, shardKey: bigint | undefined): void {
    if (shardKey !== undefined) {
      checkedBigint('shardKey', shardKey);
    }
    if ((shardKey !== undefined) !== this.needsShardKey) {
      throw faultOf(what, { tag: this.needsShardKey ? 'shard-key-missing' : 'shard-key-unwanted' }, faultOfUse);
    }
  }
}

/** Of a day whose date every offset from UTC has. */
const SOME_DAY_MS = 86_400_000n;

/** Whether the component refuses to show an id without a shard key. */
function lacksShardKey(resource: FormatResource): boolean {
  const answer = answerOf<bigint, ComponentFault>(() => resource.number(1n, SOME_DAY_MS, undefined));
  return answer.tag === 'err' && answer.val.tag === 'shard-key-missing';
}

/** A format whose counter starts again: each instant has a period. */
export interface RestartingFormat extends Format {
  period(issued: Instant): string;
}

function checkedShown(id: bigint, issued: Instant, shardKey: bigint | undefined): [bigint, bigint, bigint | undefined] {
  const shard = shardKey === undefined ? undefined : checkedBigint('shardKey', shardKey);
  return [checkedBigint('id', id), instantOf('issued', issued), shard];
}

function issuedOf({ id, number, gene, keyId, span }: ComponentIssued): Issued {
  return { id, number, gene, keyId, span: span && { fromMs: span[0], untilMs: span[1] } };
}

function instantOf(argument: string, instant: Instant): bigint {
  const isNumber = typeof instant === 'number' || typeof instant === 'bigint';
  if (!isNumber && !(instant instanceof Date && !Number.isNaN(instant.getTime()))) {
    const said = instant instanceof Date ? 'an invalid Date' : typeof instant === 'string' ? 'a text' : String(instant);
    const what = `${argument} is ${said}, it must be Unix milliseconds (Date.now()) or a Date`;
    throw new IdsError('number-invalid', what, { argument });
  }
  return checkedBigint(argument, instant instanceof Date ? instant.getTime() : instant);
}

function oneOf<Word extends string>(argument: string, word: Word, words: readonly Word[]): Word {
  if (!words.includes(word)) {
    const what = `${argument} is ${said(word)}, it must be one of ${words.join(', ')}`;
    throw new IdsError('options-invalid', what, { argument });
  }
  return word;
}

/** A text that crosses whole: half of a surrogate pair would become another letter on the way. */
function textOf(argument: string, text: string): string {
  if (typeof text !== 'string') {
    throw new IdsError('options-invalid', `${argument} must be a text, and is of the type ${typeof text}`, {
      argument,
    });
  }
  if (!text.isWellFormed()) {
    throw new IdsError('format', `${argument} is not valid Unicode`, { argument });
  }
  return text;
}

/** The message never shows the secret. */
function secretOf(secret: unknown): bigint {
  if (typeof secret === 'bigint' && 0n <= secret && secret >> 128n === 0n) {
    return secret;
  }
  if (typeof secret === 'string' && /^[0-9a-f]{32}$/i.test(secret)) {
    return BigInt(`0x${secret}`);
  }
  const what = 'the secret of a key must be 32 hexadecimal digits, or a bigint of 128 bits';
  throw new IdsError('options-invalid', what, { argument: 'secret' });
}

/** What a fault of the component means, in the words of the Rust library. */
type Explain = (said: Said) => string | undefined;

interface Said {
  readonly tag: string;
  readonly val?: unknown;
}

function faultOf(what: string, fault: ComponentFault | string, explain: Explain): IdsError {
  const said: Said = typeof fault === 'string' ? { tag: fault } : fault;
  const { tag, val } = said;
  const message = `${what}: ${explain(said) ?? `${tag}${val === undefined ? '' : ` (${String(val)})`}`}`;
  if (tag === 'invalid-argument') {
    return new IdsError(val === 'layout' ? 'layout-invalid' : 'format', message, { fault: String(val) }, fault);
  }
  if (tag === 'template' && Array.isArray(val)) {
    const [position, word] = val as [number, string];
    return new IdsError('format', message, { fault: `template-${word}`, position }, fault);
  }
  const position = typeof val === 'number' && ['character', 'date', 'number'].includes(tag) ? { position: val } : {};
  return new IdsError('format', message, { fault: tag, ...position }, fault);
}

/** How many characters a text of a notation has. */
const LENGTHS: Readonly<Record<Notation, string>> = {
  decimal: '1 to 19 characters',
  padded: '19 characters',
  base36: '13 characters',
  base62: '11 characters',
  base32: '13 characters',
  uuid: '36 characters',
};

function faultOfText(tag: string, val: unknown, notation: Notation): string | undefined {
  switch (tag) {
    case 'length':
      return `no id is ${String(val)} bytes long in this notation: a text in ${notation} has ${LENGTHS[notation]}`;
    case 'character':
      return `the byte at position ${String(val)} occurs in no id of this notation`;
    case 'leading-zero':
      return 'a decimal id has no leading zeros';
    case 'out-of-range':
      return 'the number is outside 1 to 2^63 - 1';
    default:
      return undefined;
  }
}

function layoutFault(layout: Layout, { val }: Said): string | undefined {
  return val === 'layout' ? `the layout ${layoutText(layout)} is not valid: ${faultOfLayout(layout)}` : undefined;
}

function faultOfId({ timestampBits, datacenterBits, workerBits, sequenceBits }: Layout): string {
  const max = (1n << BigInt(timestampBits + datacenterBits + workerBits + sequenceBits)) - 1n;
  return `the id is outside 1 to ${max}, the ids of this layout`;
}

function faultOfParts({ ticks, worker, sequence }: Parts, layout: Layout): string {
  const most = (bits: number): bigint => (1n << BigInt(bits)) - 1n;
  const fields: [string, string, bigint, bigint][] = [
    ['ticks', 'timestamp', ticks, most(layout.timestampBits)],
    ['worker', 'worker', BigInt(worker), most(layout.datacenterBits + layout.workerBits)],
    ['sequence', 'sequence', BigInt(sequence), most(layout.sequenceBits)],
  ];
  const wide = fields.find(([, , value, max]) => value > max);
  if (wide === undefined) {
    return faultOfId(layout);
  }
  const [name, field, value, max] = wide;
  return `${name} is ${value}: the ${field} does not fit its field, whose maximum is ${max}`;
}

function faultOfSpan(from: bigint, until: bigint): string {
  return until <= from
    ? 'the span of time is empty: it must end after it begins'
    : "the span of time lies before the layout's epoch or after its last tick";
}

const TEMPLATE_FAULTS: Readonly<Record<string, string>> = {
  brace: 'a brace without its other one; write {{ or }} for the brace itself',
  placeholder:
    'there are {id}, {id:010}, {id:base36}, {id:base62}, {id:base32}, {id:uuid}, {gene:4} with 1 to 16 bits, and ' +
    '{yyyy}, {yy}, {MM}, {dd}, {HH}, {mm}, {ss}, {SSS} or several of these in one, as {yyyyMMdd}; ' +
    '{MM} is the month; {mm} is the minute, and beside a date needs {HH}',
  character: 'a control character; leave it out',
  twice: 'stands there twice: leave one of them out',
  'id-missing': 'without an id, {id} for example, all would be alike',
  'too-long': 'it has more than 128 bytes; shorten it',
};

function faultOfTemplate({ template, geneBits }: ComponentFormatOptions, at: number, word: string): string | undefined {
  const rest = new TextDecoder().decode(new TextEncoder().encode(template).subarray(at));
  const [inside = ''] = rest.split('}');
  const placeholder = `${[...inside].slice(0, 32).join('')}}`;
  const what = TEMPLATE_FAULTS[word];
  if (word === 'placeholder') {
    return `there is no placeholder ${placeholder}; ${what}`;
  }
  if (word === 'twice' && placeholder.startsWith('{id')) {
    return `{id} ${what}`;
  }
  if (word === 'twice') {
    return geneBits > 0 ? 'the gene is in the id already (geneBits): leave one of them out' : `{gene} ${what}`;
  }
  return what;
}

/** Why there is no such format. */
function faultOfOptions(options: ComponentFormatOptions, { tag, val }: Said): string | undefined {
  switch (tag) {
    case 'template': {
      const [at, word] = val as [number, string];
      return `the template is wrong at byte ${at}: ${faultOfTemplate(options, at, word) ?? word}`;
    }
    case 'restart':
      return (
        'the counter starts again, so the template must show the period: {yyyy} for a year, {yyyyMM} for a month, ' +
        '{yyyyMMdd} for a day'
      );
    case 'bits':
      return (
        "the bits do not fit: 1 to 63 in all (bits), of which a gene takes 16 at most (geneBits) and a key's id 8 " +
        '(keyIdBits, and none without keys), and something must be left for the id'
      );
    case 'key':
      return Number(val) > 0 && options.keyIdBits === 0
        ? `the key ${String(val)} has a number, and there are no bits for it: set keyIdBits, 1 to 8`
        : `the key ${String(val)} is given twice, or its number does not fit: it is 1 to 2^keyIdBits - 1, and 0 ` +
            'without such bits';
    case 'digits':
      return (
        `the template has ${String(val)} digits for the id, and the number may need more: give it more, or fewer bits`
      );
    case 'utc-offset':
      return 'the distance from UTC is more than 18 hours: give -1080 to 1080 minutes';
    default:
      return undefined;
  }
}

/** Why an id cannot be shown, or a text cannot be read. */
function faultOfUse({ tag, val }: Said): string | undefined {
  const figure = String(val);
  switch (tag) {
    case 'invalid-argument':
      return val === 'id' ? `an id is a number from 1 to ${ID_MAX}` : undefined;
    case 'id':
      return `the id is outside 1 to ${figure}, the ids that the format can show`;
    case 'shard-key-missing':
      return 'the ids carry a shard gene: give the shard key that it is taken from';
    case 'shard-key-unwanted':
      return 'a shard key was given, and the ids carry no gene: leave it out';
    case 'time':
      return 'the date of issue lies after the year 9999: check the clock';
    case 'length':
      return `no text of this format is ${figure} bytes long`;
    case 'character':
      return `the byte at position ${figure} is another one in every text of this format`;
    case 'date':
      return `there is no such date, or its figures contradict each other at position ${figure}`;
    case 'number':
      return `the number at position ${figure} belongs to no id of this format`;
    case 'key':
      return `it was written with the key ${figure}, which is not among those that are known: add it`;
    default:
      return undefined;
  }
}
