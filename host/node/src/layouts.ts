/**
 * Layouts of snowflake ids: presets by name, and the text form.
 *
 * @module
 */

import { IdsError } from './errors.js';
import { ANY, checkedOptions, NUMBER, OBJECT, type Kinds } from './options.js';
import { said } from './said.js';
import type { Layout } from './store.js';

function preset(bits: readonly [number, number, number, number], epochMs: bigint, tickMs = 1): Layout {
  const [timestampBits, datacenterBits, workerBits, sequenceBits] = bits;
  const order = 'worker-first';
  return Object.freeze({ timestampBits, datacenterBits, workerBits, sequenceBits, order, epochMs, tickMs });
}

/**
 * The layouts that have a name: those of the systems whose ids and workers unalike takes over. The four widths are
 * those of timestamp, datacenter, worker and sequence.
 */
export const PRESETS: Readonly<Record<string, Layout>> = Object.freeze({
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
});

function sequenceFirst(layout: Layout): Layout {
  return Object.freeze({ ...layout, order: 'sequence-first' });
}

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
 * A layout, given itself or by the name of a preset.
 *
 * @throws {IdsError} `layout-invalid`
 */
export function layoutOf(layout: string | Layout): Layout {
  if (typeof layout !== 'string') {
    if (!OBJECT.fits(layout)) {
      throw refused(`the layout is ${said(layout)}, it must be the name of a preset or an object`);
    }
    return checkedOptions('the layout', layout, FIELDS, refused);
  }
  const found = Object.hasOwn(PRESETS, layout) ? PRESETS[layout] : undefined;
  if (found === undefined) {
    const known = Object.keys(PRESETS).join(', ');
    throw refused(`there is no layout ${said(layout)}; the presets are ${known}`);
  }
  return found;
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
