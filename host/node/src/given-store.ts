/**
 * Whether what a program gives as a store is one. What is not would fail as if an answer had been lost.
 *
 * @module
 */

import { IdsError } from './errors.js';

/** What the generators ask a store of each kind for. */
const METHODS = {
  segments: ['allocate', 'release', 'openTag'],
  leases: ['acquire', 'extend', 'release'],
} as const;

/**
 * Checks what was given as the store of segments, or of leases. `undefined` is none.
 *
 * @throws {IdsError} `options-invalid`
 */
export function checkStore(option: keyof typeof METHODS, given: unknown): void {
  if (given === undefined) {
    return;
  }
  const fault = faultOf(given, METHODS[option]);
  if (fault !== undefined) {
    throw new IdsError('options-invalid', `${option} is ${fault}`, { argument: option });
  }
}

function faultOf(given: unknown, methods: readonly string[]): string | undefined {
  if (typeof given === 'string') {
    // An address may hold a password, so it is not shown.
    return `a text, it must be a store, such as ${openingOf(given)}`;
  }
  if (typeof given === 'function') {
    const name = given.name === '' ? 'a function' : `the function or class ${given.name}`;
    return `${name}, it must be a store that is open, such as await SqliteStore.open('ids.sqlite')`;
  }
  if (typeof given !== 'object' || given === null) {
    return `${String(given)}, it must be a store, such as await SqliteStore.open('ids.sqlite')`;
  }
  if (typeof (given as { then?: unknown }).then === 'function') {
    return 'a Promise, it must be a store: write await before what opens it, as in await SqliteStore.open(..)';
  }
  const missing = methods.find((name) => typeof (given as Record<string, unknown>)[name] !== 'function');
  if (missing === undefined) {
    return undefined;
  }
  if (typeof (given as { idFromName?: unknown }).idFromName === 'function') {
    return 'a binding of Durable Objects, it must be a store: new DurableStore(env.IDS)';
  }
  const { name = '' } = (given.constructor ?? {}) as { name?: string };
  const what = name === '' || name === 'Object' ? 'an object' : `of the class ${name}`;
  return `${what} without the method ${missing}, it must be a store: it needs ${methods.join(', ')}`;
}

/** What opens the store at this address. */
function openingOf(text: string): string {
  const scheme = /^[a-z+]+(?=:)/.exec(text.trim().toLowerCase())?.[0] ?? '';
  if (scheme === 'mysql' || scheme === 'mariadb') {
    return "await MysqlStore.open('mysql://..')";
  }
  if (scheme.startsWith('redis')) {
    return `await RedisStore.open({ url: '${scheme}://..', backing })`;
  }
  if (scheme === 'http' || scheme === 'https') {
    return "await RemoteStore.open('http://..')";
  }
  if (['postgres', 'postgresql', 'etcd', 'zookeeper'].includes(scheme)) {
    return `await Store.open('${scheme}://..'), from unalike/stores`;
  }
  return "await SqliteStore.open('ids.sqlite')";
}
