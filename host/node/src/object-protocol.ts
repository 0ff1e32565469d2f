/**
 * What a Worker asks the Durable Objects of a store, and what they answer: one call of a method, whose arguments and
 * answer are structured clones, so that numbers stay whole.
 *
 * @module
 */

import type { Rules } from './object-statements.js';
import type { StoreErrorKind } from './store.js';

/** Both sides must know it: a Worker and its objects may be deployed apart. */
export const PROTOCOL = 1;

/** The object that knows all others of a store. */
export function rootName(store: string): string {
  return `unalike:${store}`;
}

/** The object that grants the numbers of a tag, or the leases of a namespace. */
export function memberName(store: string, kind: 'tag' | 'leases', name: string): string {
  return `${rootName(store)}:${kind}:${name}`;
}

/** What may be asked of an object: the methods of a store, and more. */
export type ObjectMethod =
  | 'allocate'
  | 'releaseTail'
  | 'openTag'
  | 'createTag'
  | 'bindFormat'
  | 'acquire'
  | 'extend'
  | 'releaseLease'
  /** Of any object: whether there is one. Of the root, begins the store. */
  | 'look'
  /** Of the root: notes that a member with this mark exists, and answers the mark that it knows. */
  | 'register'
  /** Of the root: notes another mark for a member. */
  | 'replace'
  /** Of a member: the root knows it. */
  | 'confirm'
  /** Of a member that was made anew: it is as its restorer says, and the root knows it. */
  | 'restore';

/** One call. */
export interface ObjectRequest {
  readonly protocol: number;
  /** The object's own name. */
  readonly object: string;
  /** What the Worker knows of the object, and of the store: another object is refused, and grants nothing. */
  readonly mark: string | null;
  readonly store: string | null;
  readonly method: ObjectMethod;
  readonly args: readonly unknown[];
  readonly rules: Rules;
}

/** What comes of it. */
export type ObjectAnswer =
  | { readonly mark: string; readonly store: string | null; readonly value: unknown }
  /** Nothing was done: the root has to know this member first. */
  | { readonly mark: string; readonly isUnknown: true }
  | { readonly kind: StoreErrorKind; readonly message: string };
