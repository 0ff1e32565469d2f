/**
 * Names of tags, and the options that they are created with: what every store checks, in the same way.
 *
 * @module
 */

import { quoted, said } from './said.js';
import {
  ID_MAX,
  StoreError,
  SUB_SEPARATOR,
  type FormatOwner,
  type FormatPart,
  type RefillPolicy,
  type StepPolicy,
  type TagOptions,
} from './store.js';

/** The tag whose sub-keys are the namespaces of leases that Redis keeps: its numbers are Unix milliseconds. */
const KEPT_LEASES = 'redis-leases';
/** What the sub-keys of any tag begin with whose numbers are milliseconds that were granted to Redis' clock. */
export const KEPT_CLOCK = 'redis-clock:';
/** The tag whose sub-keys are what the formats of tags and snowflakes were first. */
export const KEPT_FORMATS = 'unalike-formats';
/** The row whose watermark is the floor of all names that are new in a store. */
export const KEPT_FLOOR = `unalike-new-names${SUB_SEPARATOR}floor`;

/** What a tag is created with on first use. */
export const DEFAULT_TAG_OPTIONS: TagOptions = Object.freeze({
  start: 1n,
  step: Object.freeze({
    kind: 'adaptive',
    step: 1000n,
    min: 100n,
    max: 1_000_000n,
    growBelowMs: 900_000n,
    shrinkAboveMs: 1_800_000n,
  }),
  refill: Object.freeze({ kind: 'share-consumed', percent: 10 }),
  mode: 'buffered',
});

/** The bytes that a name may have. */
const NAME_BYTES_MAX = 128;
const ALLOWED = `a name has 1 to ${NAME_BYTES_MAX} bytes`;
const CONTROL = /\p{Cc}/u;
/** White space as Unicode defines it; JavaScript's `trim` also takes U+FEFF, which is none. */
const SPACE_AT_AN_END = /^\p{White_Space}|\p{White_Space}$/u;

/** A tag, and the sub-key in its name if there is one. */
export function splitTag(name: string): [tag: string, sub: string | null] {
  const at = name.indexOf(SUB_SEPARATOR);
  return at < 0 ? [name, null] : [name.slice(0, at), name.slice(at + 1)];
}

/** A name for people: the tag, and its sub-key apart. */
export function shown(name: string): string {
  const [tag, sub] = splitTag(name);
  return sub === null ? quoted(tag) : `${quoted(tag)} (sub-key ${quoted(sub)})`;
}

/**
 * The name under which a tag's numbers for one sub-key are kept: a row of its own, with the tag's options.
 *
 * @throws {StoreError} `tag-invalid`
 */
export function subTag(tag: string, sub: string): string {
  validateTag(tag);
  const name = `${tag}${SUB_SEPARATOR}${sub}`;
  const bytes = new TextEncoder().encode(name).length - 1;
  const part = faultOfSub(sub) ?? (tag.includes(SUB_SEPARATOR) ? 'holds a control character' : null);
  const long = `with its sub-key it has ${bytes} bytes, ${NAME_BYTES_MAX - 1} at most are allowed`;
  const fault = part !== null ? `its sub-key ${part}` : bytes >= NAME_BYTES_MAX ? long : null;
  if (fault !== null) {
    throw new StoreError('tag-invalid', `the tag ${shown(tag)} is not valid: ${fault}`);
  }
  return name;
}

/**
 * Checks a tag's name, or that of a sub-key.
 *
 * @throws {StoreError} `tag-invalid`
 */
export function validateTag(name: string): void {
  if (typeof name !== 'string') {
    throw new StoreError('tag-invalid', `a tag is a text, and ${said(name)} was given`);
  }
  const [tag, sub] = splitTag(name);
  const bytes = new TextEncoder().encode(name).length;
  const fault =
    faultOfPart(tag) ??
    (sub === null ? null : faultOfPart(sub)) ??
    (bytes > NAME_BYTES_MAX ? `its name begins so and has ${bytes} bytes, and ${ALLOWED}` : null);
  if (fault !== null) {
    throw new StoreError('tag-invalid', `the tag ${shown([...name].slice(0, 32).join(''))} is not valid: ${fault}`);
  }
}

function faultOfSub(sub: string): string | null {
  if (sub === '') {
    return 'is empty';
  }
  if (CONTROL.test(sub)) {
    return 'holds a control character';
  }
  return sub.isWellFormed() ? null : 'is not valid Unicode';
}

function faultOfPart(part: string): string | null {
  if (part === '') {
    return `it is empty, and ${ALLOWED}`;
  }
  if (CONTROL.test(part)) {
    return 'it holds a control character';
  }
  return part.isWellFormed() ? null : 'it is not valid Unicode';
}

/**
 * Checks the name of a tag that is about to be created: a space at either end is a slip of whoever asks, and would
 * begin at 1 what was meant to go on.
 *
 * @throws {StoreError} `tag-invalid`
 */
export function validateNewTag(name: string): void {
  validateTag(name);
  const [tag, sub] = splitTag(name);
  const invalid = (what: string): StoreError => {
    const fault = `${what} has a space at an end, and no new one may: leave the space out`;
    return new StoreError('tag-invalid', `the tag ${quoted(tag)} is not valid: ${fault}`);
  };
  if (sub !== null && SPACE_AT_AN_END.test(sub)) {
    throw invalid(`its sub-key ${quoted(sub)}`);
  }
  if (SPACE_AT_AN_END.test(tag)) {
    throw invalid('its name');
  }
}

/** How often a format may be accepted anew. */
const FORMAT_ROWS_MAX = 1_000;

/**
 * The names of the rows in which a part of a format is bound: the start of the last row that there is says what it is
 * bound to. A host makes the first row alone; an operator who accepts another format adds one behind the last.
 *
 * @throws {StoreError} `tag-invalid`; `refused` for an owner or a part that is none.
 */
export function* formatNames(owner: FormatOwner, part: FormatPart): Generator<string, undefined> {
  for (let row = 1; row <= FORMAT_ROWS_MAX; row += 1) {
    yield formatName(owner, part, row);
  }
}

/**
 * The name of one of these rows. A name that is too long is shortened, and a hash of it appended. Two that have one
 * row would be refused each other's formats, and nothing else.
 */
export function formatName({ kind, name }: FormatOwner, part: FormatPart, row: number): string {
  const isOwner = kind === 'tag' || kind === 'snowflake';
  const isPart = part.kind === 'shape' || (part.kind === 'key' && isByte(part.id) && isByte(part.bits));
  if (!isOwner || !isPart) {
    const example = "{ kind: 'tag', name: 'order' } and { kind: 'shape' } or { kind: 'key', id: 1, bits: 24 }";
    throw new StoreError('refused', `there is no such owner or part of a format: write ${example}`);
  }
  validateTag(name);
  if (name.includes(SUB_SEPARATOR)) {
    const fault = 'its sub-keys are shown in its format: name the tag alone';
    throw new StoreError('tag-invalid', `the tag ${shown(name)} is not valid: ${fault}`);
  }
  const what = part.kind === 'shape' ? 'shape' : `key ${part.id} of ${part.bits} bits`;
  const begin = `${kind} ${row} ${what}:`;
  const bytesMax = NAME_BYTES_MAX - KEPT_FORMATS.length - 1 - begin.length;
  const fits = new TextEncoder().encode(name).length <= bytesMax;
  // No new name may end in a space.
  const kept = fits && !/\p{White_Space}$/u.test(name) ? name : shortened(name, bytesMax);
  return subTag(KEPT_FORMATS, `${begin}${kept}`);
}

/** What such a row is created with. @throws {StoreError} `tag-invalid` */
export function formatOptions(name: string, first: bigint): TagOptions {
  return completeOptions(name, { start: first });
}

function isByte(number: unknown): boolean {
  return Number.isInteger(number) && 0 <= Number(number) && Number(number) <= 0xff;
}

/** The beginning of a name and a hash of it, so many bytes together. */
function shortened(name: string, bytesMax: number): string {
  const bytes = new TextEncoder().encode(name);
  const end = `~${fnv1a(bytes).toString(16).padStart(16, '0')}`;
  let length = Math.min(bytes.length, bytesMax - end.length);
  // Not inside of a character.
  while ((bytes[length]! & 0xc0) === 0x80) {
    length -= 1;
  }
  // A mark at the beginning is a letter of the name.
  const begin = new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes.subarray(0, length));
  return `${begin}${end}`;
}

/** FNV-1a, as in the Rust library: written in stores. */
function fnv1a(bytes: Uint8Array): bigint {
  let hash = 0xcbf2_9ce4_8422_2325n;
  for (const byte of bytes) {
    hash = ((hash ^ BigInt(byte)) * 0x0100_0000_01b3n) & ((1n << 64n) - 1n);
  }
  return hash;
}

/** Whether the numbers under this name are milliseconds, and no ids. */
function isKeptTime(name: string): boolean {
  const [tag, sub] = splitTag(name);
  return isNamed(tag, KEPT_LEASES) || (sub !== null && asciiLower(trim(sub)).startsWith(KEPT_CLOCK));
}

/** Whether what is kept under this name is the format of a tag or a snowflake. */
function isKeptFormat(name: string): boolean {
  return isNamed(splitTag(name)[0], KEPT_FORMATS);
}

/** Whether the product keeps something for itself under this name. Capitals and spaces at the ends do not matter. */
export function isKept(name: string): boolean {
  return isKeptTime(name) || isKeptFormat(name) || isNamed(splitTag(name)[0], splitTag(KEPT_FLOOR)[0]);
}

/**
 * Refuses names under which the product keeps something for itself: for every name that a caller gives.
 *
 * @throws {StoreError} `tag-invalid`
 */
export function validatePublic(name: string): void {
  if (isKept(name)) {
    const others = isKeptFormat(name) ? 'what the ids of tags look like' : 'the floor of new names';
    const what = isKeptTime(name) ? 'time that is granted to leases and clocks' : others;
    const tag = quoted(splitTag(name)[0]);
    throw new StoreError('tag-invalid', `the tag ${tag} is not valid: ${what} is kept under this name: use another`);
  }
}

/**
 * Checks what {@link SegmentStore.allocate} is asked.
 *
 * @throws {StoreError}
 */
export function validateAllocate(tag: string, count: bigint, atLeast: bigint): void {
  validateTag(tag);
  if (typeof count !== 'bigint' || typeof atLeast !== 'bigint' || atLeast < 0n) {
    throw new StoreError('refused', `numbers are bigints of 0 or more: ${String(count)} from ${String(atLeast)} on were asked for`);
  }
  if (count < 1n) {
    throw new StoreError('refused', `${count} numbers were asked for under ${shown(tag)}: ask for 1 or more`);
  }
  if (atLeast > ID_MAX) {
    throw new StoreError('exhausted', `the tag ${shown(tag)} has no numbers from ${atLeast} on: ${ID_MAX} is the last`);
  }
}

/**
 * Checks the options that a tag is created with, and its name.
 *
 * @throws {StoreError} `tag-invalid`
 */
export function validateOptions(tag: string, options: TagOptions): void {
  validateTag(tag);
  const fault = faultOfOptions(options);
  if (fault !== null) {
    throw new StoreError('tag-invalid', `the tag ${shown(tag)} is not valid: ${fault}`);
  }
}

/**
 * The options that a tag is created with, of which some are given.
 *
 * @throws {StoreError} `tag-invalid`
 */
export function completeOptions(tag: string, given: unknown, others = DEFAULT_TAG_OPTIONS): TagOptions {
  const fault = faultOfObject('its options', given, 'they must be');
  if (fault !== null) {
    validateTag(tag);
    throw new StoreError('tag-invalid', `the tag ${shown(tag)} is not valid: ${fault}`);
  }
  const options = { ...others, ...(given as Partial<TagOptions>) };
  validateOptions(tag, options);
  return options;
}

/**
 * The options that tags are created with on first use, of which some are given.
 *
 * @throws {StoreError} `refused`
 */
export function completeNewTags(given: object, others: TagOptions): TagOptions {
  const options = { ...others, ...given };
  const fault = faultOfOptions(options);
  if (fault !== null) {
    throw new StoreError('refused', `newTags are not valid: ${fault}`);
  }
  return options;
}

function faultOfObject(what: string, value: unknown, must = 'it must be'): string | null {
  const isObject = typeof value === 'object' && value !== null && !Array.isArray(value);
  return isObject ? null : `${what} ${must === 'they must be' ? 'are' : 'is'} ${said(value)}, ${must} an object`;
}

function faultOfOptions(options: TagOptions): string | null {
  const faultOfAll = faultOfObject('its options', options, 'they must be');
  if (faultOfAll !== null) {
    return faultOfAll;
  }
  const unknown = Object.keys(options).find((name) => !Object.hasOwn(DEFAULT_TAG_OPTIONS, name));
  if (unknown !== undefined) {
    return `its options have ${said(unknown)}, which is not known: there are start, step, refill and mode`;
  }
  if (!isIn(options.start, 1n, ID_MAX)) {
    return `its start is ${written(options.start)}, it must be 1 to 2^63 - 1`;
  }
  if (options.mode !== 'buffered' && options.mode !== 'ordered') {
    return `its mode is ${said(options.mode)}, it must be "buffered" or "ordered"`;
  }
  const { step, refill } = options;
  return faultOfStep(step) ?? faultOfRefill(refill);
}

function faultOfStep(step: StepPolicy): string | null {
  const fault = faultOfObject('its step', step);
  if (fault !== null) {
    return `${fault}, such as { kind: 'fixed', step: 100n }`;
  }
  if (step.kind === 'fixed') {
    return isIn(step.step, 1n, ID_MAX) ? null : `its step is ${written(step.step)}, it must be 1 to 2^63 - 1`;
  }
  if (step.kind !== 'adaptive') {
    return `its step has no kind ${said((step as StepPolicy).kind)}: there are "fixed" and "adaptive"`;
  }
  const { min, max, growBelowMs, shrinkAboveMs } = step;
  if (!isIn(min, 1n, max) || !isIn(max, min, ID_MAX) || !isIn(step.step, min, max)) {
    const bounds = `${written(step.step)} within ${written(min)} to ${written(max)}`;
    return `its step is ${bounds}: it must be 1 <= min <= step <= max <= 2^63 - 1`;
  }
  const durations = `doubles below ${growBelowMs} ms and halves above ${shrinkAboveMs} ms`;
  return isIn(growBelowMs, 0n, shrinkAboveMs) && isIn(shrinkAboveMs, 0n, U64_MAX)
    ? null
    : `its step ${durations}: the second must not be less`;
}

function faultOfRefill(refill: RefillPolicy): string | null {
  const fault = faultOfObject('its refill', refill);
  if (fault !== null) {
    return `${fault}, such as { kind: 'share-consumed', percent: 10 }`;
  }
  if (refill.kind === 'share-consumed') {
    const { percent } = refill;
    const fits = Number.isInteger(percent) && percent >= 0 && percent <= 100;
    return fits ? null : `it is refilled at ${percent} percent, it must be 0 to 100`;
  }
  if (refill.kind !== 'remaining') {
    return `its refill has no kind ${said((refill as RefillPolicy).kind)}: there are "share-consumed" and "remaining"`;
  }
  return isIn(refill.numbers, 0n, U64_MAX) ? null : `it is refilled below ${refill.numbers} numbers: they do not fit 64 bits`;
}

/** A value for messages, with the letter by which numbers here must end. */
function written(value: unknown): string {
  const isNumber = typeof value === 'number' && Number.isSafeInteger(value);
  if (isNumber) {
    return `the number ${value} (write the bigint ${value}n)`;
  }
  return typeof value === 'bigint' ? String(value) : said(value);
}

/**
 * A whole number that an option of a store has.
 *
 * @throws {StoreError} `refused`
 */
export function whole(name: string, value: bigint | number): bigint {
  if (typeof value === 'bigint' ? value >= 0n && value < 1n << 64n : Number.isSafeInteger(value) && value >= 0) {
    return BigInt(value);
  }
  throw new StoreError('refused', `${name} is ${said(value)}, it must be a whole number of 0 to 2^64 - 1`);
}

const U64_MAX = (1n << 64n) - 1n;

function isIn(number: bigint, least: bigint, greatest: bigint): boolean {
  return typeof number === 'bigint' && least <= number && number <= greatest;
}

function isNamed(tag: string, kept: string): boolean {
  return asciiLower(trim(tag)) === kept;
}

function trim(text: string): string {
  return text.replace(/^\p{White_Space}+|\p{White_Space}+$/gu, '');
}

function asciiLower(text: string): string {
  return text.replace(/[A-Z]/g, (letter) => letter.toLowerCase());
}
