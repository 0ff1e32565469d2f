/**
 * A store of the program's own, as the Rust host asks it: by plain values, whose every one is looked at.
 *
 * @module
 */

import { types } from 'node:util';

import { shown } from './names.js';
import { isU64 } from './numbers.js';
import { optionParts, recordOf, type Answer, type Answered, type Ask, type Question } from './rust-store.js';
import { said } from './said.js';
import { refusedByStore, StoreError, type SegmentStore, type TagOptions, type TagRecord } from './store.js';

/** A store that creates tags by request. */
interface CreatesTags {
  createTag(tag: string, options: TagOptions): Promise<TagRecord>;
}

/** Asks this store. What it throws that is no StoreError may have come after a grant. */
export function asking(store: SegmentStore): Ask {
  return (answer, question) => {
    answered(store, question)
      .then((brought) => answer.brought(brought))
      .catch((error: unknown) => fail(answer, error));
  };
}

async function answered(store: SegmentStore, question: Question): Promise<Answered> {
  const { what, tag, options } = question;
  switch (what) {
    case 'allocate':
      return { segment: await allocated(store, question) };
    case 'release':
      return { flag: await store.release(tag, { start: question.start ?? 0n, version: question.version ?? 0n }) };
    case 'openTag':
      return { record: recordParts(await store.openTag(tag)) };
    case 'createTag':
      return { record: recordParts(await created(store, tag, options)) };
    case 'identity': {
      const name = await store.identity();
      return name === null || name === undefined ? {} : { name };
    }
    case 'leaveLeases':
      if (store.leaveLeases !== undefined) {
        await store.leaveLeases(tag);
      } else if (typeof (store as { acquire?: unknown }).acquire === 'function') {
        const what = 'has no method leaveLeases, by which it hears that Redis does: leave leasesIn out, or give it one';
        throw refusedByStore(`the durable store leases workers, too, and ${what}`);
      }
      return {};
    default:
      throw refusedByStore(`the durable store is asked for nothing that is called ${what}`);
  }
}

async function allocated(
  store: SegmentStore,
  { tag, count = 0n, atLeast = 0n }: Question,
): Promise<NonNullable<Answered['segment']>> {
  const { start, end, stride, generation, version } = await store.allocate(tag, count, atLeast);
  const segment = { start, end, stride, generation, version };
  if (!Object.values(segment).every(isU64)) {
    const parts = Object.entries(segment).map(([name, value]) => `${name} ${said(value)}`);
    const what = `the durable store granted ${parts.join(', ')} for ${shown(tag)}, which Redis cannot hand out`;
    throw refusedByStore(`${what}: all parts must be bigints from 0 to 2^64 - 1`);
  }
  return segment;
}

async function created(store: SegmentStore, tag: string, parts: Question['options']): Promise<TagRecord> {
  const { createTag } = store as Partial<CreatesTags>;
  if (typeof createTag !== 'function' || parts === undefined) {
    throw refusedByStore('the durable store behind Redis creates no tags by request: use `unalike tags create`');
  }
  return await createTag.call(store, tag, recordOf(tag, { options: parts, watermark: 0n }).options);
}

function recordParts({ options, watermark }: TagRecord): NonNullable<Answered['record']> {
  return { options: optionParts(options), watermark };
}

function fail(answer: Answer, error: unknown): void {
  let [what, detail] = ['the durable store failed with what cannot be shown', ''];
  try {
    if (error instanceof StoreError) {
      answer.failed(String(error.kind), String(error.message));
      return;
    }
    if (types.isNativeError(error)) {
      // Of any realm.
      [what, detail] = [`the durable store failed: ${error.name}: ${error.message}`, String(error.stack)];
    } else {
      what = `the durable store failed: ${said(error)}`;
    }
  } catch {
    // Whatever its parts do.
  }
  answer.failed('outcome-unknown', what);
  process.emitWarning(what, { type: 'UnalikeWarning', detail });
}
