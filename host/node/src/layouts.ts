/**
 * Layouts of snowflake ids: presets by name, and the text form.
 *
 * @module
 */

import { IdsError } from './errors.js';
import { isU64, U32_MAX, U64_MAX } from './numbers.js';
import { ANY, checkedOptions, NUMBER, OBJECT, type Kinds } from './options.js';
import { said } from './said.js';
import type { Layout } from './store.js';

function preset(bits: readonly [number, number, number, number], epochMs: bigint, tickMs = 1): Layout {
  const [timestampBits, datacenterBits, workerBits, sequenceBits] = bits;
  const order = 'worker-first';
  return Object.freeze({ timestampBits, datacenterBits, workerBits, sequenceBits, order, epochMs, tickMs });
}

/** The name of a layout. */
export type PresetName =
  | 'twitter'
  | 'leaf'
  | 'hutool'
  | 'worker5'
  | 'redis-sharded'
  | 'baidu'
  | 'sonyflake'
  | 'sonyflake-v1'
  | 'instagram'
  | 'discord'
  | 'mastodon'
  | 'cosid'
  | 'cosid-53'
  | 'tsid'
  | 'yitter'
  | 'yitter-53'
  | 'yitter-js'
  | 'yitter-csharp'
  | 'shardingsphere'
  | 'seata-1.4.1';

/**
 * The layouts that have a name: those of the systems whose ids and workers unalike takes over. The four widths are
 * those of timestamp, datacenter, worker and sequence.
 */
export const PRESETS: Readonly<Record<PresetName, Layout>> = Object.freeze({
  twitter: preset([41, 5, 5, 12], 1_288_834_974_657n),
  leaf: preset([41, 0, 10, 12], 1_288_834_974_657n),
  hutool: preset([41, 5, 5, 12], 1_288_834_974_657n),
  worker5: preset([41, 0, 5, 12], 1_577_808_000_000n),
  'redis-sharded': preset([41, 0, 12, 10], 0n),
  baidu: preset([28, 0, 22, 13], 1_463_673_600_000n, 1_000),
  sonyflake: sequenceFirst(preset([39, 0, 16, 8], 1_735_689_600_000n, 10)),
  'sonyflake-v1': sequenceFirst(preset([39, 0, 16, 8], 1_409_529_600_000n, 10)),
  instagram: preset([40, 0, 13, 10], 1_314_220_021_721n),
  discord: preset([41, 5, 5, 12], 1_420_070_400_000n),
  mastodon: preset([47, 0, 0, 16], 0n),
  cosid: preset([41, 0, 10, 12], 1_577_203_200_000n),
  'cosid-53': preset([41, 0, 3, 9], 1_577_203_200_000n),
  tsid: preset([41, 0, 10, 12], 1_577_836_800_000n),
  yitter: preset([51, 0, 6, 6], 1_582_136_402_000n),
  'yitter-53': preset([41, 0, 6, 6], 1_582_136_402_000n),
  'yitter-js': preset([51, 0, 6, 6], 1_577_836_800_000n),
  'yitter-csharp': preset([51, 0, 6, 6], 1_582_165_202_020n),
  shardingsphere: preset([41, 0, 10, 12], 1_477_929_600_000n),
  'seata-1.4.1': preset([41, 0, 10, 12], 1_588_435_200_000n),
});

function sequenceFirst(layout: Layout): Layout {
  return Object.freeze({ ...layout, order: 'sequence-first' });
}

/** A layout as the command and errors write it: {@link layoutText}. The epoch may be a date, too. */
export type LayoutText = `${number}/${string} ${string}`;

const FIELDS: Kinds<Layout> = {
  timestampBits: NUMBER,
  datacenterBits: NUMBER,
  workerBits: NUMBER,
  sequenceBits: NUMBER,
  order: ANY,
  epochMs: NUMBER,
  tickMs: NUMBER,
};

function refused(what: string): IdsError {
  return new IdsError('layout-invalid', what);
}

/**
 * A layout, given itself, by the name of a preset, or as text.
 *
 * @throws {IdsError} `layout-invalid`
 */
export function layoutOf(layout: PresetName | LayoutText | Layout): Layout {
  if (typeof layout === 'object' && OBJECT.fits(layout)) {
    return checkedOptions('the layout', layout, FIELDS, refused);
  }
  if (typeof layout !== 'string') {
    throw refused(`the layout is ${said(layout)}: give a Layout, or the name of one, such as 'twitter'`);
  }
  const found = Object.hasOwn(PRESETS, layout) ? PRESETS[layout as PresetName] : undefined;
  if (found === undefined) {
    if (layout.includes('/')) {
      return readLayout(layout);
    }
    const known = Object.keys(PRESETS).join(', ');
    throw refused(`there is no layout ${said(layout)}: there are ${known}`);
  }
  return found;
}

const WIDTHS =
  'it begins with its widths in bits, TIME/WORKER/SEQUENCE or TIME/DATACENTER+WORKER/SEQUENCE, such as 41/10/12 or ' +
  '41/5+5/12';
const WORDS = 'after the widths come epoch TIME, and perhaps tick NUMBER ms (or s) and sequence-first';
const TIME =
  'the epoch cannot be read: a time is written as a date (2026-01-31, at 00:00 UTC), as RFC 3339 ' +
  '(2026-01-31T08:00:00Z, or with +08:00 in place of Z), or as Unix milliseconds';

/** Reads what {@link layoutText} writes, and what the `unalike` command takes. */
function readLayout(text: string): Layout {
  const wrong = (what: string): IdsError =>
    new IdsError('layout-invalid', `${JSON.stringify(text.slice(0, 100))} is no layout: ${what}`);
  const [first = '', ...words] = text.trim().split(/\s+/);
  const widths = /^(\d{1,3})\/(?:(\d{1,3})\+)?(\d{1,3})\/(?:(\d{1,3})\+)?(\d{1,3})$/.exec(first);
  if (widths === null) {
    throw wrong(WIDTHS);
  }
  let order: Layout['order'] | undefined;
  let [epochMs, tickMs]: [bigint | undefined, number | undefined] = [undefined, undefined];
  for (let word = words.shift(); word !== undefined; word = words.shift()) {
    if (word === 'sequence-first' && order === undefined) {
      order = 'sequence-first';
    } else if (word === 'epoch' && epochMs === undefined) {
      epochMs = instantIn(words.shift() ?? '');
      if (epochMs === undefined) {
        throw wrong(TIME);
      }
    } else if (word === 'tick' && tickMs === undefined) {
      const number = words.shift() ?? '';
      // The unit is a word of its own, or stands at the number.
      const ticks = number.endsWith('s') ? number : `${number}${words.shift() ?? ''}`;
      const [, digits, unit] = /^(\d{1,10})(m?s)$/.exec(ticks) ?? [];
      tickMs = Number(digits) * (unit === 's' ? 1_000 : 1);
      if (!isInteger(tickMs, U32_MAX)) {
        throw wrong('the tick must be a whole number of ms or s, such as tick 10 ms');
      }
    } else {
      throw wrong(`the word ${JSON.stringify(word)} is unknown or there twice: ${WORDS}`);
    }
  }
  if (epochMs === undefined) {
    throw wrong('the epoch is missing: epoch 2024-01-01, say');
  }
  const [, timestamp, above, upper, below, lower] = widths;
  const isReversed = order === 'sequence-first';
  const [datacenter, worker, none, sequence] = isReversed ? [below, lower, above, upper] : [above, upper, below, lower];
  if (none !== undefined) {
    throw wrong(WIDTHS);
  }
  const [timestampBits, datacenterBits, workerBits] = [Number(timestamp), Number(datacenter ?? 0), Number(worker)];
  const sequenceBits = Number(sequence);
  order ??= 'worker-first';
  const layout = { timestampBits, datacenterBits, workerBits, sequenceBits, order, epochMs, tickMs: tickMs ?? 1 };
  const fault = faultOfLayout(layout);
  if (fault !== null) {
    throw wrong(fault);
  }
  return layout;
}

/** An instant in Unix milliseconds, written so, as a date, or as RFC 3339 with milliseconds at most. */
function instantIn(text: string): bigint | undefined {
  if (/^\d{1,20}$/.test(text)) {
    return BigInt(text);
  }
  const [, date, time = 'T00:00:00Z'] =
    /^(\d{4}-\d\d-\d\d)([Tt]\d\d:\d\d:\d\d(?:\.\d{1,3})?(?:[Zz]|[+-]\d\d:\d\d))?$/.exec(text) ?? [];
  if (date === undefined) {
    return undefined;
  }
  // A day that a month does not have would be one of the next month.
  const day = new Date(`${date}T00:00:00Z`);
  const ms = Date.parse(`${date}${time.toUpperCase()}`);
  const isDay = !Number.isNaN(day.getTime()) && day.toISOString().startsWith(date);
  return isDay && ms >= 0 ? BigInt(ms) : undefined;
}

/**
 * A layout as text, as the command line and servers write it.
 *
 * @example
 * ```ts
 * layoutText(PRESETS.twitter); // '41/5+5/12 epoch 1288834974657 tick 1 ms'
 * ```
 */
export function layoutText(layout: Layout): string {
  const { timestampBits, datacenterBits, workerBits, sequenceBits, order, epochMs, tickMs } = layout;
  const worker = datacenterBits > 0 ? `${datacenterBits}+${workerBits}` : String(workerBits);
  const widths =
    order === 'worker-first'
      ? `${timestampBits}/${worker}/${sequenceBits}`
      : `${timestampBits}/${sequenceBits}/${worker} sequence-first`;
  return `${widths} epoch ${epochMs} tick ${tickMs} ms`;
}

/** Why this is no layout; `null` if it is one. */
export function faultOfLayout(layout: Layout): string | null {
  const { timestampBits, datacenterBits, workerBits, sequenceBits, order, epochMs, tickMs } = layout;
  const isWidth = (bits: number): boolean => isInteger(bits, 255);
  if (![timestampBits, datacenterBits, workerBits, sequenceBits].every(isWidth)) {
    return 'a width is no whole number of bits';
  }
  const bits = timestampBits + datacenterBits + workerBits + sequenceBits;
  if (bits > 63) {
    return `the fields sum to ${bits} bits, ids have 63 at most`;
  }
  if (timestampBits === 0 || datacenterBits + workerBits > 31 || sequenceBits > 31) {
    const widths = 'timestamp 1 to 63 bits, datacenter and worker together 31 at most, sequence 31 at most';
    return `a field is too wide or missing: ${widths}`;
  }
  if (order !== 'worker-first' && order !== 'sequence-first') {
    return `the order is ${JSON.stringify(order)}, it must be "worker-first" or "sequence-first"`;
  }
  if (!isInteger(tickMs, U32_MAX) || !isU64(epochMs)) {
    return 'the tick must be a whole number of 32 bits, and the epoch a bigint of 64';
  }
  if (tickMs === 0) {
    return 'the tick is 0 ms, it must be 1 ms at least';
  }
  return epochMs + (BigInt(tickMs) << BigInt(timestampBits)) > U64_MAX
    ? "the layout's last tick ends beyond the range of 64-bit milliseconds"
    : null;
}

function isInteger(number: unknown, max: number): boolean {
  return Number.isInteger(number) && Number(number) >= 0 && Number(number) <= max;
}
