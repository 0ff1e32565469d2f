/**
 * From Redis' errors to the one error of every store.
 *
 * @module
 */

import { StoreError, type StoreErrorKind } from './store.js';

/** Whether a request changes something: then an answer that is lost leaves its outcome open. */
export type Access = 'reads' | 'writes';

export const CLUSTER =
  'the server is a node of a Redis Cluster, which is not supported: use one server with its replicas';

const DENIED = 'the server denied access: check user and password';

const NOT_ALLOWED =
  "the user may not do it: for its keys (~unalike:*, or as the URL's prefix says) allow it +evalsha +script|load " +
  '+info ' +
  '+time +hget +hmget +hset +hincrby +set, for leases +hgetall +hkeys +hdel +scan, and +select for another ' +
  'database than 0';

const LACKS =
  'the server lacks a command that is needed: is it Redis 7 or newer, and is there a rename-command in its ' +
  'configuration?';

const TLS =
  "no TLS with a server that can be trusted: check rediss:// and ssl-ca, the host's name, and the server's " +
  'certificate; a ' +
  "server that asks for the client's needs `tls-auth-clients no`";

type Class = readonly [kind: StoreErrorKind, advice: string];

const BY_CODE: Readonly<Record<string, Class>> = {
  LOADING: ['unavailable', 'the server is still loading its data'],
  READONLY: ['unavailable', 'the server only reads just now: is it a replica, or failing over?'],
  MASTERDOWN: ['unavailable', 'the server is a replica that has lost its master'],
  TRYAGAIN: ['unavailable', 'the server asks for another try'],
  NOSCRIPT: ['unavailable', 'the server forgot the script at once: SCRIPT FLUSH, again and again?'],
  MOVED: ['refused', CLUSTER],
  ASK: ['refused', CLUSTER],
  CROSSSLOT: ['refused', CLUSTER],
  CLUSTERDOWN: ['refused', CLUSTER],
  NOPERM: ['refused', NOT_ALLOWED],
  NOAUTH: ['refused', DENIED],
  WRONGPASS: ['refused', DENIED],
  OOM: ['unavailable', "the server's memory is full: make room, or raise maxmemory"],
  MISCONF: ['unavailable', 'the server cannot save its data and takes no writes: look at its log'],
  NOREPLICAS: ['unavailable', 'the server has too few replicas to take writes'],
  BUSY: ['unavailable', 'the server is busy with a slow script'],
  // Of the scripts.
  DAMAGED: ['corrupt', 'the key does not hold what it should; find out who changed it'],
  DENIED: ['refused', 'the server is in protected mode: give it a password, or an address to bind to'],
  WRONGTYPE: ['corrupt', 'the key holds something else; find out who uses it'],
};

/** An answer that came too late, or not at all. */
export class NoAnswer extends Error {}

/** The command was not sent at all. */
export class NotSent extends Error {}

/** An answer that the server gave: an error of its own. Others say nothing of whether the command was run. */
export function isReply(error: unknown): boolean {
  return error instanceof Error && error.name === 'ReplyError';
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The code that Redis' errors begin with. */
export function codeOf(error: unknown): string {
  return isReply(error) ? (/^[A-Z]+/.exec(messageOf(error))?.[0] ?? '') : '';
}

/**
 * The error of a command or script.
 *
 * The question that matters is whether it may have been done although no success was reported. Redis runs a command as
 * a whole or, if it answers with an error, not at all: every script makes its checks before its one write. An answer
 * that did not come leaves the question open, and so does everything that is not known.
 */
export function requestError(at: string, doing: string, access: Access, error: unknown): StoreError {
  const [kind, advice] = classOf(error);
  const isKnown = kind !== 'outcome-unknown' || access === 'writes';
  const said = isReply(error) || error instanceof NoAnswer ? ` (${messageOf(error)})` : '';
  // Not the driver's own error, which holds all arguments of the command.
  const cause = new Error(messageOf(error));
  return new StoreError(isKnown ? kind : 'unavailable', `${doing}, at ${at}: ${advice}${said}`, { cause });
}

/**
 * The error of connecting. Nothing was granted, and no message holds what the server repeats: it may be the password.
 */
export function connectError(at: string, error: unknown): StoreError {
  const options = isReply(error) ? {} : { cause: new Error(messageOf(error)) };
  if (isReply(error)) {
    const said = messageOf(error);
    if (lacksCommand(said)) {
      return new StoreError('refused', `${at}: ${LACKS}`);
    }
    // Neither that there is no password, nor that the user has another one, is said with a code of its own everywhere.
    const isAuth = /^ERR (AUTH|invalid password|Client sent AUTH)/.test(said);
    const [kind, advice] = isAuth ? (['refused', DENIED] as const) : classOf(error);
    return new StoreError(kind === 'outcome-unknown' ? 'unavailable' : kind, `connecting, at ${at}: ${advice}`);
  }
  const code = (error as { code?: unknown } | null)?.code;
  const name = typeof code === 'string' ? code : '';
  if (/^(ERR_TLS|ERR_SSL|CERT_|DEPTH_ZERO|SELF_SIGNED|UNABLE_TO|EPROTO|HOSTNAME_MISMATCH)/.test(name)) {
    return new StoreError('refused', `${at}: ${TLS} (${name})`, options);
  }
  if (error instanceof Error && error.name === 'ParserError') {
    const advice = 'what answers is not a Redis server: check host and port, and whether it demands TLS (rediss://)';
    return new StoreError('refused', `${at}: ${advice}`, options);
  }
  const advice =
    name === 'ECONNREFUSED'
      ? 'nothing listens there'
      : name === 'ECONNRESET' || name === 'EPIPE' || name === ''
        ? 'it hung up: is it a Redis server, and is rediss:// or redis:// right?'
        : `check host and port (${name})`;
  return new StoreError('unavailable', `the server at ${at} cannot be reached: ${advice}`, options);
}

/** Whether the connection is of no use any more: all but the plain answers of a server that takes writes. */
export function isBroken(error: unknown): boolean {
  // A master that became a replica keeps its connections; another server may be behind the address by now.
  return !isReply(error) || ['READONLY', 'MASTERDOWN'].includes(codeOf(error));
}

/** Something in Redis that should not be there. */
export function damaged(at: string, what: string): StoreError {
  return new StoreError('corrupt', `${at}: ${what}; find out who changed it`);
}

function classOf(error: unknown): Class {
  if (error instanceof NotSent) {
    return ['unavailable', 'the connection was closed before it was asked'];
  }
  if (!isReply(error)) {
    const isParser = error instanceof Error && error.name === 'ParserError';
    return [
      'outcome-unknown',
      isParser ? 'the answer cannot be read: is it a Redis server?' : 'the answer did not come',
    ];
  }
  return BY_CODE[codeOf(error)] ?? classByDetail(messageOf(error).replace(/^ERR /, ''));
}

/** What is behind an error that has no code of its own. */
function classByDetail(detail: string): Class {
  if (/killed by user/i.test(detail)) {
    // SCRIPT KILL ends only those that wrote nothing yet.
    return ['unavailable', 'the script was killed before it wrote'];
  }
  if (detail.startsWith('max number of clients')) {
    return ['unavailable', 'the server has too many clients: raise maxclients'];
  }
  if (lacksCommand(detail)) {
    return ['refused', LACKS];
  }
  if (detail.startsWith('The user executing the script') || detail.startsWith('ACL failure in script')) {
    return ['refused', NOT_ALLOWED];
  }
  if (detail.startsWith('DB index')) {
    return ['refused', 'the server has no such database: raise `databases`, or use another one'];
  }
  return ['refused', 'the server refused the command'];
}

function lacksCommand(detail: string): boolean {
  return /^(ERR )?(unknown command|Unknown Redis command)/.test(detail);
}
