/**
 * The hash of one lease namespace in Redis: what it means, and how it is written. What cannot be read in exactly one
 * way is damaged, and nothing is done with it.
 *
 * @module
 */

import { NamespaceBinding, layoutText, workerMax, type BindingFigure } from './lease-rules.js';
import type { Reply } from './redis-server.js';
import type { Lease } from './store.js';

/** Lua counts exactly up to here. */
export const MS_MAX = (1n << 53n) - 1n;

/** All fields but those of workers and claims. */
export const FIELDS = ['generation', 'incarnation', 'binding', 'bound_ms', 'begun_by'] as const;

/** Before the number of a worker in the name of its field. */
const WORKER = 'worker:';

/** The longest name of a holder, in bytes. */
const HOLDER_BYTES_MAX = 128;

/** The newest lease of a worker. */
export interface LeaseRecord {
  readonly lease: Lease;
  readonly holder: string;
  readonly acquiredMs: bigint;
  /** It is neither extended nor released any more. */
  readonly isFinal: boolean;
}

/** A worker's newest lease, and how the hash has it. */
export interface Worker {
  readonly record: LeaseRecord;
  readonly text: string;
}

export interface LeaseHash {
  readonly generation: string;
  /** Whose leases these are; empty before the first. */
  readonly incarnation: string;
  /** `null` before the first use. */
  readonly binding: NamespaceBinding | null;
  /** A durable store grants the time up to here, in Unix milliseconds; `null` where none does. */
  readonly boundMs: bigint | null;
  /** Of those that were looked at. */
  readonly workers: ReadonlyMap<number, Worker>;
}

/** What a look at a namespace saw. */
export interface NamespaceView {
  /** The server's incarnation. */
  readonly here: string;
  /** The server's clock, in Unix milliseconds. */
  readonly nowMs: bigint;
  /** `null` where there is no hash. */
  readonly hash: LeaseHash | null;
}

/** A namespace whose leases are this server's. */
export interface Valid {
  readonly hash: LeaseHash;
  readonly binding: NamespaceBinding;
  readonly boundMs: bigint;
}

/** @throws {StoreError} `corrupt` for a field that is not as it should be. */
export function readNamespace(reply: Reply): NamespaceView {
  const [here, nowMs] = [reply.text(), reply.number()];
  const fields = reply.pairs();
  try {
    return { here, nowMs, hash: fields.size === 0 ? null : readHash(fields) };
  } catch (error) {
    if (error instanceof RangeError) {
      throw reply.damaged(error.message);
    }
    throw error;
  }
}

/** What this server granted; `null` where it granted nothing, or the leases are another one's. */
export function validOf(view: NamespaceView): Valid | null {
  const { hash } = view;
  if (hash === null || hash.incarnation !== view.here || hash.binding === null || hash.boundMs === null) {
    return null;
  }
  return { hash, binding: hash.binding, boundMs: hash.boundMs };
}

/** The worker's lease, if it runs under this grant id and may be extended and released. */
export function runningLease(hash: LeaseHash, worker: number, grantId: bigint): Worker | null {
  const found = hash.workers.get(worker);
  return found !== undefined && found.record.lease.grantId === grantId && !found.record.isFinal ? found : null;
}

/** The name of a worker's field. */
export function workerField(worker: number): string {
  return `${WORKER}${worker}`;
}

export function writeWorker({ lease, holder, acquiredMs, isFinal }: LeaseRecord): string {
  const id = lease.grantId.toString(16).padStart(32, '0');
  return `${id} ${lease.notBeforeMs} ${lease.validUntilMs} ${acquiredMs} ${isFinal ? 1 : 0} ${holder}`;
}

export function readWorker(worker: number, text: string): LeaseRecord | null {
  const parts = /^([0-9a-f]{32}) (\d+) (\d+) (\d+) ([01]) ([^]*)$/.exec(text);
  if (parts === null) {
    return null;
  }
  const [, id, start, end, acquired, final, holder] = parts as unknown as [
    string,
    string,
    string,
    string,
    string,
    string,
    string,
  ];
  const [notBeforeMs, validUntilMs, acquiredMs] = [readMs(start), readMs(end), readMs(acquired)];
  if (notBeforeMs === null || validUntilMs === null || acquiredMs === null || notBeforeMs > validUntilMs) {
    return null;
  }
  if (Buffer.byteLength(holder) > HOLDER_BYTES_MAX || /\p{Cc}/u.test(holder)) {
    return null;
  }
  const lease = { worker, grantId: BigInt(`0x${id}`), notBeforeMs, validUntilMs };
  return { lease, holder, acquiredMs, isFinal: final === '1' };
}

export function writeBinding(binding: NamespaceBinding): string {
  return binding
    .figures()
    .map(([name, figure]) => `${name}=${figure}`)
    .join(' ');
}

/** @throws {RangeError} saying what is wrong. */
export function readHash(fields: ReadonlyMap<string, string>): LeaseHash {
  const workers = new Map<number, Worker>();
  for (const [name, text] of fields) {
    if (name.startsWith(WORKER)) {
      const number = name.slice(WORKER.length);
      const worker = /^(0|[1-9]\d{0,9})$/.test(number) ? Number(number) : -1;
      const record = worker >= 0 && worker <= 0xffff_ffff ? readWorker(worker, text) : null;
      if (record === null) {
        throw new RangeError(`the field ${JSON.stringify(name)} is ${JSON.stringify(text)}, no lease`);
      }
      workers.set(worker, { record, text });
    }
  }
  const field = (name: string): string => {
    const text = fields.get(name);
    if (text === undefined) {
      throw new RangeError(`the field ${name} is missing`);
    }
    return text;
  };
  const [generation, incarnation] = [field('generation'), field('incarnation')];
  const [bound, begunBy] = [fields.get('bound_ms'), fields.get('begun_by')];
  if ((bound === undefined) === (begunBy === undefined)) {
    throw new RangeError('there must be one of the fields bound_ms and begun_by');
  }
  const boundMs = bound === undefined ? null : readMs(bound);
  if (bound !== undefined && boundMs === null) {
    throw new RangeError(`the field bound_ms is ${JSON.stringify(bound)}, no time`);
  }
  // Where the durable store was asked for time, and none has come yet, there is no binding.
  const binding = fields.has('binding') || incarnation !== '' ? readBinding(field('binding')) : null;
  if (binding !== null) {
    for (const worker of workers.keys()) {
      if (worker > workerMax(binding.layout)) {
        const layout = layoutText(binding.layout);
        throw new RangeError(`the field ${workerField(worker)} is of no worker of the layout ${layout}`);
      }
    }
  }
  // By worker, as the rules want them.
  const ordered = new Map([...workers].sort(([a], [b]) => a - b));
  return { generation, incarnation, binding, boundMs, workers: ordered };
}

function readBinding(text: string): NamespaceBinding {
  const fault = (why: string): RangeError => new RangeError(`the field binding is ${JSON.stringify(text)}: ${why}`);
  const figures = new Map<string, bigint>();
  for (const part of text.split(' ')) {
    const at = part.indexOf('=');
    const figure = at < 0 ? null : readMs(part.slice(at + 1));
    if (figure !== null) {
      figures.set(part.slice(0, at), figure);
    }
  }
  let binding: NamespaceBinding;
  try {
    binding = NamespaceBinding.read((name: BindingFigure) => {
      const figure = figures.get(name);
      if (figure === undefined) {
        throw new RangeError(`${name} is missing or no number`);
      }
      return figure;
    });
  } catch (error) {
    throw error instanceof RangeError ? fault(error.message) : error;
  }
  if (writeBinding(binding) !== text) {
    throw fault('there is something else');
  }
  return binding;
}

/** A number that Lua counts exactly, written in the one way. */
function readMs(text: string): bigint | null {
  const ms = /^(0|[1-9]\d{0,15})$/.test(text) ? BigInt(text) : null;
  return ms !== null && ms <= MS_MAX ? ms : null;
}
