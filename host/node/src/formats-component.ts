/**
 * The component of the world `formats`: its types. They are those of `wit/codec.wit`, whose documentation holds.
 *
 * @module
 */

import type { Layout } from './store.js';

/** The notations of an id. */
export type Notation = 'decimal' | 'padded' | 'base36' | 'base62' | 'base32' | 'uuid';

/** The fields of a snowflake id, as its bits hold them. */
export interface Parts {
  /** Ticks since the layout's epoch. */
  readonly ticks: bigint;
  /** Datacenter and worker as one number. */
  readonly worker: number;
  readonly sequence: number;
}

/** When the counter of a tag starts again at 1. */
export type Restart = 'never' | 'year' | 'month' | 'day';

/** `format-key` */
export interface ComponentFormatKey {
  readonly id: number;
  readonly high: bigint;
  readonly low: bigint;
}

/** `format-options` */
export interface ComponentFormatOptions {
  readonly template: string;
  readonly utcOffsetMinutes: number;
  readonly restart: Restart;
  readonly bits: number;
  readonly geneBits: number;
  readonly keyIdBits: number;
  readonly keys: readonly ComponentFormatKey[];
  readonly context: string;
}

/** `issued` */
export interface ComponentIssued {
  readonly id: bigint;
  readonly number: bigint;
  readonly gene?: bigint | undefined;
  readonly keyId?: number | undefined;
  readonly span?: readonly [bigint, bigint] | undefined;
}

/** `key-check` */
export interface KeyCheck {
  readonly id: number;
  /** The width of what the key permutes. */
  readonly bits: number;
  readonly check: bigint;
}

/** A fault of any of the component's functions: `text-error`, `format-error` or `error`. */
export interface ComponentFault {
  readonly tag: string;
  readonly val?: unknown;
}

/** A format in the component. */
export interface FormatResource {
  idMax(): bigint;
  period(issued: bigint): string | undefined;
  number(id: bigint, issued: bigint, shardKey: bigint | undefined): bigint;
  original(number: bigint): ComponentIssued;
  write(id: bigint, issued: bigint, shardKey: bigint | undefined): string;
  read(text: string): ComponentIssued;
  shape(): bigint;
  keyChecks(): KeyCheck[];
  [Symbol.dispose]?(): void;
}

/** What the transpiled component exports. */
export interface FormatsExports {
  readonly codec: {
    unpack(id: bigint, layout: Layout): Parts;
    pack(parts: Parts, layout: Layout): bigint;
    idRange(layout: Layout, from: bigint, until: bigint): [bigint, bigint];
    encode(id: bigint, notation: Notation): string;
    decode(input: string, notation: Notation): bigint;
    readonly Format: { open(options: ComponentFormatOptions): FormatResource };
  };
}
