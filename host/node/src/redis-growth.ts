/**
 * How far the ceiling of a tag is raised, and when: by what was used in the last 5 and 30 minutes.
 *
 * The rules are those of the `unalike` server, so that it and this program may look after one tag together: forecast
 * the use of the next hour, and raise the ceiling by it when what is left will not last 15 minutes, or when less than a
 * quarter of the newest raise is left. A raise that did not last 15 minutes is followed by one twice as large.
 *
 * @module
 */

/** Numbers that Redis can keep count of: below 2^53. */
export const NUMBERS_MAX = (1n << 53n) - 1n;

const MINUTE_MS = 60_000n;
const HOUR_MS = 60n * MINUTE_MS;
/** What is left must last this long. */
const COVER_MS = 15n * MINUTE_MS;
/** How far the two figures of use look back. */
const RECENTLY_MS = 5n * MINUTE_MS;
const LONG_TERM_MS = 30n * MINUTE_MS;

/** Numbers used over a stretch of time. */
export interface Use {
  readonly numbers: bigint;
  readonly overMs: bigint;
}

/** What is known of a tag's use. */
export interface Demand {
  /** In the last 5 minutes. */
  readonly recently: Use;
  /** In the last 30 minutes. */
  readonly longTerm: Use;
  /** How many numbers the newest raise had; 0 before the first one. */
  readonly raisedBy: bigint;
  /** How long ago it was; `null` where nobody knows. */
  readonly raisedAgoMs: bigint | null;
}

/** What the next hour will use: as much as the busier of the two stretches promises. */
export function nextHour(demand: Demand): bigint {
  return max(inAnHour(demand.recently), inAnHour(demand.longTerm));
}

/** A raise is due when fewer numbers than this are left. */
export function lowMark(demand: Demand): bigint {
  return max((nextHour(demand) * COVER_MS) / HOUR_MS, demand.raisedBy / 4n);
}

/** How many numbers a raise has now, where `left` are left and somebody waits for `wanted`. */
export function raiseBy(
  demand: Demand,
  left: bigint,
  wanted: bigint,
  bounds: { readonly min: bigint; readonly max: bigint },
): bigint {
  const wasShort = demand.raisedBy > 0n && demand.raisedAgoMs !== null && demand.raisedAgoMs < COVER_MS;
  const jump = wasShort ? 2n * demand.raisedBy : 0n;
  const wish = max(max(nextHour(demand), jump), wanted);
  return min(min(max(wish, bounds.min), bounds.max), max(NUMBERS_MAX - left, 1n));
}

/** The same after a raise by `count`, just now. */
export function raised(demand: Demand, count: bigint): Demand {
  return { ...demand, raisedBy: count, raisedAgoMs: 0n };
}

/**
 * What had been used at points of time, `ms used;ms used;..` in ascending order, up to now: the use of the last 5 and
 * of the last 30 minutes.
 */
export function uses(samples: string, nowMs: bigint, used: bigint): [recently: Use, longTerm: Use] {
  const notes: [atMs: bigint, used: bigint][] = [];
  for (const sample of samples.split(';')) {
    const note = /^(\d{1,20}) (\d{1,20})$/.exec(sample);
    // A clock that went back makes the newest ones useless.
    if (note !== null && BigInt(note[1]!) <= nowMs) {
      notes.push([BigInt(note[1]!), BigInt(note[2]!)]);
    }
  }
  const over = (windowMs: bigint): Use => {
    const from = notes.filter(([atMs]) => nowMs - atMs >= windowMs).at(-1) ?? notes[0];
    return from === undefined
      ? { numbers: 0n, overMs: 0n }
      : { numbers: max(used - from[1], 0n), overMs: nowMs - from[0] };
  };
  return [over(RECENTLY_MS), over(LONG_TERM_MS)];
}

/**
 * As many in an hour, if it goes on so. A stretch of less than a minute counts as one: the first moments say little.
 */
function inAnHour(use: Use): bigint {
  const overMs = max(use.overMs, MINUTE_MS);
  return (use.numbers * HOUR_MS + overMs - 1n) / overMs;
}

function max(a: bigint, b: bigint): bigint {
  return a > b ? a : b;
}

function min(a: bigint, b: bigint): bigint {
  return a < b ? a : b;
}
