/**
 * The Lua scripts that run in Redis: the very files of the Rust adapter, which the build copies next to this module.
 *
 * @module
 */

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';

/** A script, known to the server by its hash. */
export interface Script {
  readonly text: string;
  readonly sha1: string;
}

const DIRECTORY = new URL('./scripts/redis/', import.meta.url);

function part(name: string): string {
  return readFileSync(new URL(`${name}.lua`, DIRECTORY), 'utf8');
}

/** A script of these parts, which may ask for the server's incarnation and its clock: put together as in Rust. */
function script(...parts: string[]): Script {
  const text = `${part('server')}\n${parts.map(part).join('\n')}`;
  return { text, sha1: createHash('sha1').update(text).digest('hex') };
}

export const FIELD = script('field');
export const RECOGNISE = script('durable', 'recognise');
export const CLAIM = script('durable', 'claim');
export const SETTLE = script('settle');

export const ALLOCATE = script('tag', 'allocate');
export const LOOK = script('tag', 'look');
export const INSTALL = script('tag', 'durable', 'install');
export const SKIP = script('tag', 'skip');
export const RELEASE = script('tag', 'release');

export const LEASES_LOOK = script('leases_look');
export const LEASES_WRITE = script('leases', 'leases_write');
export const LEASES_INSTALL = script('leases', 'durable', 'leases_install');
