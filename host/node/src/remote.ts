/// <reference lib="esnext.disposable" preserve="true" />
/**
 * Segments and leases from unalike servers, over HTTP: `unalike/remote`.
 * It needs `fetch` and nothing else; in Node its entry is `remote-node.ts`.
 *
 * - **Several servers** are named in order of preference. A server that proves that it granted nothing (it cannot be
 *   reached, its store is down, it is ending) is passed over for the next one. Whatever may have been granted is burnt:
 *   a retry is always a new grant.
 * - **One answer, one caller.** A cache, or a proxy that collapses equal requests, could give one grant to two callers.
 *   Each request has a random `X-Request-Id` of 128 bits, and an answer with another one is burnt.
 * - **One store.** Each answer names the store that granted, and answers of another store are burnt. Of several servers
 *   all must answer when the store is opened, unless the options name the store.
 *
 * @module
 */

import { checkAddress } from './address.js';
import { NotSent, openHttp, reasonOf, type Http, type HttpAnswer } from './http.js';
import { layoutText } from './layouts.js';
import {
  completeOptions,
  formatName,
  formatOptions,
  splitTag,
  subTag,
  validateAllocate,
  validateNewTag,
  validateTag,
} from './names.js';
import { checkedNumber } from './numbers.js';
import { ANY, checkedOptions, NUMBER, TEXT, type Kinds } from './options.js';
import { said } from './said.js';
import {
  checkOpened,
  ID_MAX,
  refusedByStore,
  StoreError,
  type FormatOwner,
  type FormatPart,
  type Layout,
  type Lease,
  type LeaseAcquire,
  type LeaseExtend,
  type LeaseStore,
  type RefillPolicy,
  type Segment,
  type SegmentStore,
  type StepPolicy,
  type StoreErrorKind,
  type TagOptions,
  type TagRecord,
  type TailRelease,
} from './store.js';
import { after, monotonicMs, unref } from './wait.js';

/** How servers are asked. */
export interface RemoteOptions {
  /** The token, of the scope `lease`, where the servers want one. */
  readonly token?: string;
  /**
   * The store that all servers must have, by the identity that `GET /v1/store` answers as `store`: 32 hexadecimal
   * digits. Without it one server is believed, and several must all answer when the store is opened.
   */
  readonly store?: string;
  /** The same for leases: what `GET /v1/store` answers as `leases`. */
  readonly leaseStore?: string;
  /**
   * The path of a file with the certificates of the authorities to trust, as PEM: those of Node by default. It needs
   * `https`, and Node: a browser trusts whom its user does.
   */
  readonly sslCa?: string;
  /**
   * How long opening a connection may take, until the next server is asked: 1 to 600000 ms, 1000 by default. Only in
   * Node.
   */
  readonly connectTimeoutMs?: number;
  /** How long a request may take, then its grant is burnt: 1 to 600000 ms, 5000 by default. */
  readonly requestTimeoutMs?: number;
}

const OPTIONS: Kinds<RemoteOptions> = {
  token: ANY,
  store: ANY,
  leaseStore: ANY,
  sslCa: TEXT,
  connectTimeoutMs: NUMBER,
  requestTimeoutMs: NUMBER,
};

/** A longer answer is read no further. */
const ANSWER_BYTES_MAX = 4 * 1024 * 1024;
/** How long a server that failed is asked after all others, at first and at most. It doubles. */
const AVOIDED_MS = 250;
const AVOIDED_MAX_MS = 10_000;
const REQUEST_TIMEOUT_MS = 5_000;
/** Of how many tags the format is remembered: some 10 MB. */
const SHAPES_MAX = 100_000;
const TIMEOUT_MAX_MS = 600_000;

type Json = unknown;

interface Request {
  /** For messages: "granting numbers of ..". */
  readonly doing: string;
  /** Whether a lost answer leaves something granted. */
  readonly writes: boolean;
  readonly method: 'GET' | 'POST';
  /** Of the path, unencoded. */
  readonly path: readonly string[];
  readonly query?: readonly (readonly [string, string])[];
  readonly body?: Json;
}

/** Why a server granted nothing that may be used. */
class Failure extends Error {
  constructor(
    readonly error: StoreError,
    /** Another server may do better. */
    readonly isServers: boolean,
  ) {
    super(error.message);
  }
}

interface Server {
  readonly origin: string;
  /** Its store is the one of the others. */
  isKnown: boolean;
  /** Why it is never asked again. */
  refused: string | undefined;
  failures: number;
  avoidedUntilMs: number;
}

type Part = 'store' | 'leases';

/** The servers of one store, in order of preference. */
class Servers {
  private readonly servers: Server[];
  /** The store of all of them, once it is known; `null`: the only server's store has no name. */
  private store: string | null | undefined;
  readonly address: string;

  constructor(
    origins: readonly string[],
    private readonly part: Part,
    private readonly token: string | undefined,
    pinned: string | undefined,
    private readonly http: Http,
    private readonly timeoutMs: number,
  ) {
    this.servers = origins.map((origin) => ({
      origin,
      isKnown: false,
      refused: undefined,
      failures: 0,
      avoidedUntilMs: 0,
    }));
    this.address = origins.join(', ');
    this.store = pinned;
  }

  get identity(): string | null {
    return this.store ?? null;
  }

  /** Looks at the servers: all of them when only they can tell which store is meant, else those that answer. */
  async connect(): Promise<void> {
    const looks = await Promise.allSettled(this.servers.map((server) => this.lookAt(server)));
    if (this.servers.length > 1 && this.store === undefined) {
      this.agree(looks);
      return;
    }
    let hasAnswered = false;
    let failure: StoreError | undefined;
    for (const [at, look] of looks.entries()) {
      const server = this.servers[at];
      if (server === undefined) {
        continue;
      }
      try {
        if (look.status === 'rejected') {
          throw look.reason;
        }
        this.recognise(server, look.value);
        hasAnswered = true;
      } catch (error) {
        const known = error instanceof Failure ? error.error : error;
        if (!(known instanceof StoreError) || !known.isRetryable) {
          throw known;
        }
        failure ??= known;
      }
    }
    if (!hasAnswered && failure !== undefined) {
      throw failure;
    }
  }

  /**
   * Asks the servers in order of preference until one answers. The next one is asked only after one that proves that it
   * has granted nothing. `storeIn` finds in an answer which store it is from, and checks it: `undefined` where it does
   * not say.
   *
   * @throws {StoreError} What the last server that was asked brings; where some may succeed later, the last of these.
   */
  async ask<Value>(
    request: Request,
    read: (answer: Json) => Value,
    storeIn?: (answer: Json) => string | null,
  ): Promise<Value> {
    let last: StoreError | undefined;
    for (const server of this.inOrder()) {
      try {
        const answer = await this.askOne(server, request, read, storeIn);
        server.failures = 0;
        server.avoidedUntilMs = 0;
        return answer;
      } catch (failure) {
        if (!(failure instanceof Failure)) {
          throw failure;
        }
        if (!failure.isServers) {
          throw failure.error;
        }
        const pause = Math.min(AVOIDED_MS * 2 ** Math.min(server.failures, 16), AVOIDED_MAX_MS);
        server.failures += 1;
        server.avoidedUntilMs = monotonicMs() + pause;
        if (failure.error.mayHaveGranted) {
          throw failure.error;
        }
        // What passes is worth trying again, though another server refuses for good.
        if (failure.error.isRetryable || last?.isRetryable !== true) {
          last = failure.error;
        }
      }
    }
    const refused = this.servers.map(({ refused: why }) => why).filter((why) => why !== undefined);
    throw last ?? new StoreError('refused', `no server of ${this.address} can be used: ${refused.join('; ')}`);
  }

  private async askOne<Value>(
    server: Server,
    request: Request,
    read: (answer: Json) => Value,
    storeIn: ((answer: Json) => string | null) | undefined,
  ): Promise<Value> {
    if (!server.isKnown) {
      try {
        this.recognise(server, await this.lookAt(server));
      } catch (error) {
        throw error instanceof Failure ? new Failure(error.error, true) : error;
      }
    }
    return await this.send(server, request, (answer) => {
      // Before anything is made of it.
      if (storeIn !== undefined) {
        this.recognise(server, storeIn(answer));
      }
      return read(answer);
    });
  }

  /** Those that are not avoided first; none that was refused. */
  private inOrder(): Server[] {
    const now = monotonicMs();
    const usable = this.servers.filter(({ refused }) => refused === undefined);
    const isAvoided = ({ avoidedUntilMs }: Server): boolean => now < avoidedUntilMs;
    return [...usable.filter((server) => !isAvoided(server)), ...usable.filter(isAvoided)];
  }

  private agree(looks: readonly PromiseSettledResult<string | null>[]): void {
    const stores: string[] = [];
    for (const [at, look] of looks.entries()) {
      const origin = this.servers[at]?.origin ?? '';
      if (look.status === 'rejected') {
        const error: unknown = look.reason instanceof Failure ? look.reason.error : look.reason;
        if (!(error instanceof StoreError) || !error.isRetryable) {
          throw error;
        }
        const what =
          `the server ${origin} does not say which store it has, and several servers must agree before the first one ` +
          'is used: start it, or name the store by the identity that the others answer at GET /v1/store (store)';
        throw new StoreError('unavailable', what, { cause: error });
      }
      if (look.value === null) {
        const what = `the store of the server ${origin} has no name by which it could be told from another one`;
        throw new StoreError('refused', `${what}: name this server by itself`);
      }
      stores.push(look.value);
    }
    const other = stores.findIndex((store) => store !== stores[0]);
    if (other >= 0) {
      const all = stores.map((store, at) => `${this.servers[at]?.origin} has ${store}`).join(', ');
      const what = `the servers have different stores, so their ids would repeat (${all})`;
      throw new StoreError('refused', `${what}: name servers with one store only`);
    }
    this.store = stores[0];
    for (const server of this.servers) {
      server.isKnown = true;
    }
  }

  /** Which store a server has. */
  private async lookAt(server: Server): Promise<string | null> {
    const request: Request = {
      doing: 'asking which store it has',
      writes: false,
      method: 'GET',
      path: ['v1', 'store'],
    };
    return await this.send(server, request, (answer) => nameIn(answer, this.part));
  }

  /** Takes the server's store for that of all, or refuses the server. */
  private recognise(server: Server, store: string | null): void {
    const isOnly = this.servers.length === 1;
    if (this.store === undefined && isOnly) {
      this.store = store;
    }
    if (store === this.store && (store !== null || isOnly)) {
      server.isKnown = true;
      return;
    }
    const said = (name: string | null | undefined): string => name ?? 'without a name';
    const what =
      `the server ${server.origin} has the store ${said(store)}, and ${said(this.store)} was expected: its ids would ` +
      'repeat those of the other one, so nothing that it grants is used. Name servers with one store only, or ' +
      'restart this program if the store was meant to change';
    server.isKnown = false;
    server.refused = what;
    throw new Failure(new StoreError('refused', what), true);
  }

  /** Sends a request to one server, once. */
  private async send<Value>(server: Server, request: Request, read: (answer: Json) => Value): Promise<Value> {
    const at = `${request.doing}, at ${server.origin}`;
    const dots = request.path.find((part) => part === '.' || part === '..');
    if (dots !== undefined) {
      throw new Failure(
        new StoreError('refused', `${at}: the name ${JSON.stringify(dots)} cannot be part of a URL`),
        false,
      );
    }
    const lost = (what: string, cause?: unknown): Failure =>
      new Failure(new StoreError(request.writes ? 'outcome-unknown' : 'unavailable', `${at} ${what}`, { cause }), true);
    const id = randomHex();
    const url = new URL(`/${request.path.map(encodeURIComponent).join('/')}`, server.origin);
    for (const [name, value] of request.query ?? []) {
      url.searchParams.append(name, value);
    }
    const headers: Record<string, string> = { 'x-request-id': id };
    if (this.token !== undefined) {
      headers['authorization'] = `Bearer ${this.token}`;
    }
    if (request.body !== undefined) {
      headers['content-type'] = 'application/json';
    }
    const controller = new AbortController();
    const timer = after(
      () => controller.abort(new Error(`no answer within ${this.timeoutMs} ms`)),
      this.timeoutMs,
    );
    unref(timer);
    try {
      let response: HttpAnswer;
      try {
        const body = request.body === undefined ? undefined : JSON.stringify(request.body);
        response = await this.http.send({ url, method: request.method, headers, body, signal: controller.signal });
      } catch (error) {
        if (error instanceof NotSent) {
          const what = `${at}: no connection could be opened (${error.message})`;
          throw new Failure(new StoreError('unavailable', what, { cause: error.cause }), true);
        }
        throw lost(`brought no answer (${reasonOf(error)})`, error);
      }
      // Of a cache, or of a proxy that gives one answer to several: whose grant it is nobody knows.
      if (response.requestId !== id) {
        response.discard();
        if (response.requestId === null) {
          throw lost(
            `was answered with the status ${response.status} by something that is no unalike server, or through a ` +
              'proxy that drops X-Request-Id: have it pass this header, and cache and collapse nothing',
          );
        }
        throw lost(
          `brought the answer to another request, with the status ${response.status}: its X-Request-Id is not the ` +
            'one that was sent. If there is a proxy before the server, have it pass this header, and cache and ' +
            'collapse nothing',
        );
      }
      const text = await bodyOf(response, lost);
      let answer: Json;
      try {
        answer = JSON.parse(text) as Json;
      } catch (error) {
        throw lost(`brought an answer that cannot be read, with the status ${response.status}`, error);
      }
      if (response.status < 200 || response.status > 299) {
        throw (
          problem(at, response.status, answer, this.token !== undefined) ??
          lost(`brought the status ${response.status}, and no problem that an unalike server describes`)
        );
      }
      try {
        return read(answer);
      } catch (error) {
        if (error instanceof Unreadable) {
          throw lost(`brought an answer that cannot be read: ${error.message}`, error);
        }
        throw error;
      }
    } finally {
      clearTimeout(timer);
    }
  }
}

async function bodyOf(response: HttpAnswer, lost: (what: string, cause?: unknown) => Failure): Promise<string> {
  // A mark at the beginning, or a byte that is no UTF-8, is no letter of any name: such an answer is not read.
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  let text = '';
  let bytes = 0;
  try {
    for await (const part of response.body) {
      bytes += part.byteLength;
      if (bytes > ANSWER_BYTES_MAX) {
        break;
      }
      text += decoder.decode(part, { stream: true });
    }
    text += bytes > ANSWER_BYTES_MAX ? '' : decoder.decode();
  } catch (error) {
    throw lost(error instanceof TypeError ? 'brought bytes that are no text' : 'brought half of an answer', error);
  }
  if (bytes > ANSWER_BYTES_MAX) {
    throw lost('brought an answer that is too long');
  }
  return text;
}

function randomHex(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** An answer that is not what it should be. */
class Unreadable extends Error {}

function fieldsOf(value: Json, what: string): Record<string, Json> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new Unreadable(`${what} is no object`);
  }
  return value as Record<string, Json>;
}

const DECIMAL = /^(0|[1-9][0-9]{0,19})$/;
const U64_MAX = (1n << 64n) - 1n;

/** A whole number of 64 bits, which JSON has as a string. */
function numberIn(fields: Record<string, Json>, name: string): bigint {
  const text = fields[name];
  if (typeof text === 'string' && DECIMAL.test(text)) {
    const number = BigInt(text);
    if (number <= U64_MAX) {
      return number;
    }
  }
  throw new Unreadable(`${name} is ${JSON.stringify(text)}, and no whole number of 64 bits`);
}

function textIn(fields: Record<string, Json>, name: string): string {
  const text = fields[name];
  if (typeof text !== 'string') {
    throw new Unreadable(`${name} is no text`);
  }
  return text;
}

const IDENTITY = /^[0-9a-f]{32}$/;

/** The name of a store, if it has one. */
function nameIn(answer: Json, name: string): string | null {
  const value = fieldsOf(answer, 'the answer')[name];
  if (value === null || (value === undefined && name === 'leases')) {
    return null;
  }
  if (typeof value !== 'string' || !IDENTITY.test(value)) {
    throw new Unreadable(`${name} is ${JSON.stringify(value)}, and no name of a store`);
  }
  return value;
}

const storeIn = (answer: Json): string | null => nameIn(answer, 'store');

/** The kinds of problems that prove that nothing was granted, and that another server may be better off. */
const SERVERS_PROBLEMS: ReadonlySet<string> = new Set([
  'store-unavailable',
  'closing',
  'connections-max',
  'head-timeout',
]);
/** Those that are no reason to ask another server. */
const PROBLEMS: Readonly<Record<string, StoreErrorKind>> = {
  // Another server counts for itself, and would give what this one is told not to.
  'quota-reached': 'unavailable',
  'ceiling-reached': 'ceiling-reached',
  quarantined: 'quarantined',
  'workers-exhausted': 'workers-exhausted',
  'lease-lost': 'lease-lost',
  'tag-unknown': 'tag-unknown',
  'tag-exists': 'tag-exists',
  'tag-invalid': 'tag-invalid',
  'tag-limit': 'tag-limit',
  exhausted: 'exhausted',
  'store-corrupt': 'corrupt',
  'store-refused': 'refused',
  'leases-missing': 'refused',
};

/**
 * What an answer that is not a success proves; `undefined` where it proves nothing, since a server of another kind
 * wrote it, or since this one does not know.
 */
function problem(at: string, status: number, answer: Json, hasToken: boolean): Failure | undefined {
  const document = typeof answer === 'object' && answer !== null ? (answer as Record<string, Json>) : {};
  const type = document['type'];
  const prefix = 'urn:unalike:problem:';
  if (typeof type !== 'string' || !type.startsWith(prefix)) {
    return undefined;
  }
  const word = type.slice(prefix.length);
  const said = typeof document['detail'] === 'string' ? document['detail'] : '';
  const detail = status === 401 && !hasToken ? `${said}; give it as the option token` : said;
  const of = (kind: StoreErrorKind, isServers: boolean): Failure =>
    new Failure(new StoreError(kind, `${at}: ${detail}`), isServers);
  if (word === 'outcome-unknown' || word === 'timeout') {
    return of('outcome-unknown', true);
  }
  if (SERVERS_PROBLEMS.has(word)) {
    return of('unavailable', true);
  }
  if (word === 'clock-wrong') {
    return of(typeof document['store_ms'] === 'string' ? 'clock-skew' : 'unavailable', false);
  }
  if (word === 'layout-mismatch' || word === 'layout-refused') {
    return of(typeof document['bound'] === 'string' ? 'layout-mismatch' : 'refused', false);
  }
  if (word === 'route-unknown') {
    const what = `${detail}, as servers of earlier versions say: update the servers before the programs that use them`;
    return new Failure(new StoreError('refused', `${at}: ${what}`), false);
  }
  const kind = Object.hasOwn(PROBLEMS, word) ? PROBLEMS[word] : undefined;
  if (kind !== undefined) {
    return of(kind, false);
  }
  // The server says what is wrong with the request before anything is granted.
  return status >= 400 && status < 500 ? of('refused', false) : undefined;
}

function readTag(answer: Json, name: string): TagRecord {
  const tag = fieldsOf(answer, 'the tag');
  const step = fieldsOf(tag['step'], 'step');
  const refill = fieldsOf(tag['refill'], 'refill');
  const mode = textIn(tag, 'mode');
  if (mode !== 'buffered' && mode !== 'ordered') {
    const what = `the server has ${JSON.stringify(name)} in the mode ${mode}, which this program does not know`;
    throw new StoreError('corrupt', what);
  }
  const sub = tag['sub'];
  const answered = typeof sub === 'string' ? subTag(textIn(tag, 'tag'), sub) : textIn(tag, 'tag');
  if (answered !== name) {
    throw new Unreadable(`it is about the tag ${JSON.stringify(answered)}`);
  }
  return {
    tag: name,
    options: { start: numberIn(tag, 'start'), step: readStep(step), refill: readRefill(refill), mode },
    watermark: numberIn(tag, 'watermark'),
  };
}

function readStep(step: Record<string, Json>): StepPolicy {
  switch (step['policy']) {
    case 'fixed':
      return { kind: 'fixed', step: numberIn(step, 'step') };
    case 'adaptive':
      return {
        kind: 'adaptive',
        step: numberIn(step, 'initial'),
        min: numberIn(step, 'min'),
        max: numberIn(step, 'max'),
        growBelowMs: numberIn(step, 'grow_below_ms'),
        shrinkAboveMs: numberIn(step, 'shrink_above_ms'),
      };
    default:
      throw new Unreadable('its step has no policy that this program knows');
  }
}

function readRefill(refill: Record<string, Json>): RefillPolicy {
  const { policy, percent } = refill;
  if (policy === 'share-consumed' && typeof percent === 'number') {
    return { kind: 'share-consumed', percent };
  }
  if (policy === 'remaining') {
    return { kind: 'remaining', numbers: numberIn(refill, 'count') };
  }
  throw new Unreadable('its refill has no policy that this program knows');
}

function stepJson(step: StepPolicy): Json {
  return step.kind === 'fixed'
    ? { policy: 'fixed', step: String(step.step) }
    : {
        policy: 'adaptive',
        initial: String(step.step),
        min: String(step.min),
        max: String(step.max),
        grow_below_ms: String(step.growBelowMs),
        shrink_above_ms: String(step.shrinkAboveMs),
      };
}

function refillJson(refill: RefillPolicy): Json {
  return refill.kind === 'share-consumed'
    ? { policy: 'share-consumed', percent: refill.percent }
    : { policy: 'remaining', count: String(refill.numbers) };
}

function readReleased(answer: Json): boolean {
  const { released } = fieldsOf(answer, 'the answer');
  if (typeof released !== 'boolean') {
    throw new Unreadable('it does not say whether something was taken back');
  }
  return released;
}

const refusedAddress = (what: string): StoreError =>
  new StoreError('refused', `the address of the servers ${what}`);

/** The parameters of an address, and the options that they stand for. */
const PARAMETERS = {
  store: 'store',
  'ssl-ca': 'sslCa',
  'connect-timeout-ms': 'connectTimeoutMs',
  'request-timeout-ms': 'requestTimeoutMs',
} as const;

/**
 * The origins of servers, from `http[s]://HOST[:PORT][,HOST[:PORT]..][?PARAMETERS]` or from a list of such, and the
 * options with what the parameters say.
 *
 * @throws {StoreError} `refused`, and no message holds a user or a password.
 */
function readAddress(urls: string | readonly string[], options: RemoteOptions): [string[], RemoteOptions] {
  const refused = (what: string): StoreError =>
    refusedAddress(`${what}: write http://HOST:PORT or https://HOST, and further hosts after commas`);
  const origins: string[] = [];
  const chosen: Record<string, string | number | undefined> = { ...options };
  for (const each of Array.isArray(urls) ? (urls as unknown[]) : [urls]) {
    const text = checkAddress('the address of the servers', each);
    const [, scheme, rest] = /^(https?):\/\/(.*)$/.exec(text) ?? [];
    if (scheme === undefined || rest === undefined) {
      throw refused('has another scheme than http and https');
    }
    const [, hosts = '', query = ''] = /^([^?]*)\??(.*)$/.exec(rest) ?? [];
    // A password may have a ? in it.
    if (rest.includes('@')) {
      throw refused('has a user or password, which no server takes (a token is an option of its own)');
    }
    if (/,https?:\/\//.test(hosts)) {
      throw refused('has a scheme after a comma, and further hosts have none of their own');
    }
    // A URL takes \ for /.
    if (rest.includes('#') || hosts.includes('\\') || /\/./.test(hosts)) {
      throw refused('has a path, which no server takes');
    }
    for (const host of hosts.replace(/\/$/, '').split(',')) {
      let origin: string;
      try {
        origin = new URL(`${scheme}://${host}/`).origin;
      } catch {
        throw refused(`has the host ${JSON.stringify(host)}, which is none`);
      }
      if (host === '' || origins.includes(origin)) {
        throw refused(host === '' ? 'has an empty host' : `names ${JSON.stringify(host)} twice`);
      }
      origins.push(origin);
    }
    readParameters(query, chosen);
  }
  if (origins.length === 0) {
    throw refused('names no server');
  }
  if (chosen['sslCa'] !== undefined && !origins.every((origin) => origin.startsWith('https:'))) {
    throw refusedAddress('has ssl-ca, which needs https');
  }
  return [origins, chosen as RemoteOptions];
}

function readParameters(query: string, chosen: Record<string, string | number | undefined>): void {
  for (const [name, value] of new URLSearchParams(query)) {
    if (name === 'token' || name === 'password') {
      throw refusedAddress('has a secret in it: give the token by itself');
    }
    if (!Object.hasOwn(PARAMETERS, name)) {
      const known = 'store, ssl-ca, connect-timeout-ms and request-timeout-ms';
      throw refusedAddress(`has the parameter ${JSON.stringify(name)}, and there are ${known}`);
    }
    const option = PARAMETERS[name as keyof typeof PARAMETERS];
    if (chosen[option] !== undefined) {
      throw refusedAddress(`has the parameter ${name} twice, or beside the option ${option}`);
    }
    if (name.endsWith('-ms')) {
      const ms = /^[0-9]{1,6}$/.test(value) ? Number(value) : 0;
      if (ms < 1 || ms > TIMEOUT_MAX_MS) {
        const what = `it must be a number of milliseconds from 1 to ${TIMEOUT_MAX_MS}`;
        throw new StoreError('refused', `${name} is ${JSON.stringify(value)}, ${what}`);
      }
      chosen[option] = ms;
    } else {
      chosen[option] = value;
    }
  }
}

/** @throws {StoreError} `refused`. The message does not show the token. */
function checkToken(token: unknown): void {
  const fault = faultOfToken(token);
  if (fault !== undefined) {
    throw new StoreError('refused', `the token ${fault}`);
  }
}

function faultOfToken(token: unknown): string | undefined {
  if (token === undefined) {
    return undefined;
  }
  if (typeof token !== 'string') {
    return `is ${token === null ? 'null' : `of the type ${typeof token}`}, it must be a text, or left out`;
  }
  if (token === '') {
    return 'is empty: is its environment variable set? Leave it out where there is none';
  }
  if (/^bearer\s/i.test(token)) {
    return 'begins with Bearer: leave Bearer out';
  }
  if (/^\s|\s$/.test(token)) {
    return 'has a space or the end of a line around it: trim it';
  }
  return /^[\x21-\x7e]+$/.test(token) ? undefined : 'has letters that no header may have';
}

function pinOf(name: string, value: string | undefined): string | undefined {
  if (value !== undefined && (typeof value !== 'string' || !IDENTITY.test(value))) {
    throw new StoreError('refused', `${name} is ${said(value)}, it must be 32 hexadecimal digits`);
  }
  return value;
}

/**
 * Segments and leases of unalike servers.
 *
 * The namespace of a lease is a snowflake that the servers have in their configuration, with the same layout.
 *
 * @example
 * ```ts
 * const store = await RemoteStore.open(['http://ids1:8080', 'http://ids2:8080'], { token });
 * const ids = await Ids.open({ segments: store, leases: store });
 * ```
 */
export class RemoteStore implements SegmentStore, LeaseStore {
  private leaseServers: Servers | undefined;
  /** The shapes that are bound to tags, and whether this program shows them so: else servers give it no numbers. */
  private readonly shapes = new Map<string, { readonly bound: bigint; readonly isShown: boolean }>();

  private constructor(
    private readonly segmentServers: Servers,
    private readonly leaseServersFor: () => Servers,
    private readonly http: Http,
  ) {
    checkOpened(segmentServers instanceof Servers, 'RemoteStore');
  }

  /**
   * Asks the servers which store they have. The servers of leases are asked with the first lease.
   *
   * @param urls In order of preference: a list, or one text with hosts after commas. After a `?` may be `store`,
   * `ssl-ca`, `connect-timeout-ms` and `request-timeout-ms`, instead of the options of these names.
   * @throws {StoreError} `unavailable` when no server answers; when one of several does not, unless the options name
   * the store. `refused` when they have different stores, want a token, or know no `/v1/store`.
   */
  static async open(urls: string | readonly string[], options: RemoteOptions = {}): Promise<RemoteStore> {
    const given = checkedOptions('options', options, OPTIONS, refusedByStore);
    const [origins, { token, store, leaseStore, sslCa, ...times }] = readAddress(urls, given);
    checkToken(token);
    const timeoutOf = (name: 'connectTimeoutMs' | 'requestTimeoutMs'): number | undefined =>
      times[name] === undefined ? undefined : checkedNumber(name, times[name], 1, TIMEOUT_MAX_MS);
    const connectTimeoutMs = timeoutOf('connectTimeoutMs');
    const timeoutMs = timeoutOf('requestTimeoutMs') ?? REQUEST_TIMEOUT_MS;
    const leasePin = pinOf('leaseStore', leaseStore);
    const pin = pinOf('store', store);
    const http = openHttp({ sslCa, connectTimeoutMs });
    const segments = new Servers(origins, 'store', token, pin, http, timeoutMs);
    await segments.connect();
    return new RemoteStore(segments, () => new Servers(origins, 'leases', token, leasePin, http, timeoutMs), http);
  }

  /**
   * Creates a tag, which takes a token of the scope `admin`. Options that are not given are those of
   * {@link DEFAULT_TAG_OPTIONS}.
   *
   * @throws {StoreError}
   */
  async createTag(tag: string, given: Partial<TagOptions> = {}): Promise<TagRecord> {
    const options = completeOptions(tag, given);
    validateNewTag(tag);
    if (splitTag(tag)[1] !== null) {
      throw new StoreError('refused', 'servers create sub-keys when their ids are first asked for, and not before');
    }
    const { start, step, refill, mode } = options;
    const body = { tag, start: String(start), step: stepJson(step), refill: refillJson(refill), mode };
    const doing = `creating ${JSON.stringify(tag)}`;
    const request: Request = { doing, writes: true, method: 'POST', path: ['v1', 'tags'], body };
    return await this.segmentServers.ask(request, (answer) => readTag(answer, tag));
  }

  /** At most as many numbers as the server's `segment_count_max`. */
  async allocate(tag: string, count: bigint, atLeast: bigint): Promise<Segment> {
    validateAllocate(tag, count, atLeast);
    const [name, sub] = splitTag(tag);
    const request: Request = {
      doing: `granting numbers of ${JSON.stringify(name)}`,
      writes: true,
      method: 'POST',
      path: ['v1', 'sequences', name, 'segments'],
      query: [...this.countedUnder(tag), ['count', String(count)], ['at_least', String(atLeast)]],
    };
    const read = (answer: Json): Segment => {
      const granted = fieldsOf(answer, 'the answer');
      const fields = fieldsOf(granted['segment'], 'segment');
      const segment = {
        start: numberIn(fields, 'start'),
        end: numberIn(fields, 'end'),
        stride: numberIn(fields, 'stride'),
        generation: numberIn(fields, 'generation'),
        version: numberIn(fields, 'version'),
      };
      const { start, end, stride } = segment;
      const isOne =
        start >= 1n && stride >= 1n && start < end && (end - start) % stride === 0n && end - stride <= ID_MAX;
      const isAskedFor =
        isOne &&
        granted['tag'] === name &&
        (granted['sub'] ?? null) === sub &&
        start >= atLeast &&
        (end - start) / stride <= count;
      if (!isAskedFor) {
        const what = `${count} numbers of ${JSON.stringify(name)} from ${atLeast} on were asked for, and it is`;
        throw new Unreadable(`${what} ${JSON.stringify(answer).slice(0, 300)}, which is not used`);
      }
      return segment;
    };
    return await this.segmentServers.ask(request, read, storeIn);
  }

  release(tag: string, tail: TailRelease): Promise<boolean>;
  release(namespace: string, worker: number, grantId: bigint, endMs: bigint): Promise<boolean>;
  async release(name: string, what: TailRelease | number, grantId?: bigint, endMs?: bigint): Promise<boolean> {
    if (typeof what === 'number') {
      return await this.releaseLease(name, what, grantId ?? 0n, endMs ?? 0n);
    }
    validateTag(name);
    const [tag] = splitTag(name);
    const request: Request = {
      doing: `giving numbers of ${JSON.stringify(tag)} back`,
      writes: true,
      method: 'POST',
      path: ['v1', 'sequences', tag, 'segments', 'release'],
      query: [...this.countedUnder(name), ['start', String(what.start)], ['version', String(what.version)]],
    };
    return await this.segmentServers.ask(request, readReleased, storeIn);
  }

  async openTag(tag: string): Promise<TagRecord> {
    validateTag(tag);
    const [name] = splitTag(tag);
    const request: Request = {
      doing: `opening ${JSON.stringify(name)}`,
      writes: false,
      method: 'POST',
      path: ['v1', 'sequences', name, 'open'],
      query: this.countedUnder(tag),
    };
    const read = (answer: Json): TagRecord => readTag(fieldsOf(answer, 'the answer')['tag'], tag);
    return await this.segmentServers.ask(request, read, storeIn);
  }

  /** Formats are kept in the store of the servers. */
  async bindFormat(owner: FormatOwner, part: FormatPart, first: bigint | null): Promise<bigint | null> {
    const { kind, name } = owner;
    // What is no owner, part or number is refused here.
    const kept = formatName(owner, part, 1);
    const number = first === null ? null : formatOptions(kept, first).start;
    const isShape = kind === 'tag' && part.kind === 'shape';
    const known = isShape ? this.shapes.get(name) : undefined;
    if (known !== undefined && known.bound === number) {
      this.shapes.set(name, { bound: number, isShown: true });
      return number;
    }
    if (isShape && known === undefined && this.shapes.size >= SHAPES_MAX) {
      const what = `the format of ${JSON.stringify(name)} is not compared, as those of ${SHAPES_MAX} tags are, which is`;
      throw new StoreError('refused', `${what} the most that a program remembers: show fewer tags in one program`);
    }
    const query: (readonly [string, string])[] = [['part', part.kind]];
    if (part.kind === 'key') {
      query.push(['key_id', String(part.id)], ['key_bits', String(part.bits)]);
    }
    if (number !== null) {
      query.push(['first', String(number)]);
    }
    const request: Request = {
      doing: `${number === null ? 'looking at' : 'binding'} the format of ${JSON.stringify(name)}`,
      // It is bound once, however often that is asked for.
      writes: false,
      method: 'POST',
      path: ['v1', kind === 'tag' ? 'sequences' : 'snowflakes', name, 'format'],
      query,
    };
    const read = (answer: Json): bigint | null => {
      const fields = fieldsOf(answer, 'the answer');
      return fields['bound'] === null ? null : numberIn(fields, 'bound');
    };
    const bound = await this.segmentServers.ask(request, read, storeIn);
    if (isShape && bound !== null) {
      const isShown = bound === number || (known?.isShown === true && known.bound === bound);
      this.shapes.set(name, { bound, isShown });
    }
    return bound;
  }

  async identity(): Promise<string | null> {
    return this.segmentServers.identity;
  }

  async acquire(request: LeaseAcquire): Promise<Lease> {
    const { namespace, layout, holder, preferredWorker, nowMs, horizonMs } = request;
    const query: (readonly [string, string])[] = [
      ['layout', layoutText(layout)],
      ['now_ms', String(nowMs)],
      ['horizon_ms', String(horizonMs)],
    ];
    if (holder !== '') {
      query.push(['holder', holder]);
    }
    if (preferredWorker !== null) {
      query.push(['preferred_worker', String(preferredWorker)]);
    }
    const doing = `leasing a worker of ${JSON.stringify(namespace)}`;
    const path = ['v1', 'snowflakes', namespace, 'leases'];
    const workers = workersOf(layout);
    return await this.grant(
      namespace,
      { doing, writes: true, method: 'POST', path, query },
      ({ worker }) => worker < workers,
    );
  }

  async extend(request: LeaseExtend): Promise<Lease> {
    const { namespace, layout, worker, grantId, nowMs, horizonMs } = request;
    return await this.grant(
      namespace,
      {
        doing: `extending the lease of worker ${worker} of ${JSON.stringify(namespace)}`,
        writes: true,
        method: 'POST',
        path: ['v1', 'snowflakes', namespace, 'leases', String(worker), 'extend'],
        query: [
          ['grant_id', hex(grantId)],
          ['layout', layoutText(layout)],
          ['now_ms', String(nowMs)],
          ['horizon_ms', String(horizonMs)],
        ],
      },
      (lease) => lease.worker === worker && lease.grantId === grantId,
    );
  }

  async leaseIdentity(): Promise<string | null> {
    return (await this.leases()).identity;
  }

  /** Closes the connections that nobody uses. Those that somebody does end by themselves. */
  async close(): Promise<void> {
    this.http.close();
  }

  /** For `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** What requests say of a tag, beside its name. */
  private countedUnder(name: string): (readonly [string, string])[] {
    const [tag, sub] = splitTag(name);
    const query: (readonly [string, string])[] = sub === null ? [] : [['sub', sub]];
    const shape = this.shapes.get(tag);
    if (shape?.isShown === true) {
      query.push(['shape', String(shape.bound)]);
    }
    return query;
  }

  private async releaseLease(namespace: string, worker: number, grantId: bigint, endMs: bigint): Promise<boolean> {
    const request: Request = {
      doing: `giving worker ${worker} of ${JSON.stringify(namespace)} back`,
      writes: true,
      method: 'POST',
      path: ['v1', 'snowflakes', namespace, 'leases', String(worker), 'release'],
      query: [
        ['grant_id', hex(grantId)],
        ['end_ms', String(endMs)],
      ],
    };
    return await (await this.leases()).ask(request, readReleased, storeIn);
  }

  private async grant(namespace: string, request: Request, isAskedFor: (lease: Lease) => boolean): Promise<Lease> {
    validateTag(namespace);
    const read = (answer: Json): Lease => {
      const granted = fieldsOf(answer, 'the answer');
      const fields = fieldsOf(granted['lease'], 'lease');
      const { worker } = fields;
      const grantId = textIn(fields, 'grant_id');
      if (typeof worker !== 'number' || !Number.isInteger(worker) || worker < 0 || !IDENTITY.test(grantId)) {
        throw new Unreadable('its lease has no worker, or no grant id');
      }
      const lease = {
        worker,
        grantId: BigInt(`0x${grantId}`),
        notBeforeMs: numberIn(fields, 'not_before_ms'),
        validUntilMs: numberIn(fields, 'valid_until_ms'),
      };
      if (lease.notBeforeMs > lease.validUntilMs || granted['snowflake'] !== namespace || !isAskedFor(lease)) {
        throw new Unreadable(`${JSON.stringify(answer).slice(0, 300)}, which was not asked for and is not used`);
      }
      return lease;
    };
    return await (await this.leases()).ask(request, read, storeIn);
  }

  /** Whoever comes first looks at them. No promise of a call is kept: where the call may end, it may never be kept. */
  private async leases(): Promise<Servers> {
    if (this.leaseServers === undefined) {
      const servers = this.leaseServersFor();
      await servers.connect();
      this.leaseServers ??= servers;
    }
    return this.leaseServers;
  }
}

function hex(grantId: bigint): string {
  return grantId.toString(16).padStart(32, '0');
}

function workersOf({ datacenterBits, workerBits }: Layout): number {
  return 2 ** (datacenterBits + workerBits);
}
