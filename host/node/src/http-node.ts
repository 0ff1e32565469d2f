/**
 * How the remote store sends its requests in Node: a connection has a time limit and authorities of its own, and a
 * request is written only to one that is open.
 *
 * @module
 */

import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import { isIP, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';

import { NotSent, type Http, type HttpAnswer, type HttpOptions, type HttpRequest } from './http.js';
import { StoreError } from './store.js';
import { after } from './wait.js';

/** How long opening a connection may take, where nothing else is said. */
const CONNECT_TIMEOUT_MS = 1_000;
/** How long a connection is kept that nobody uses. What stands between may drop older ones without a word. */
const IDLE_MS = 4_000;

/** What says that the authority is not trusted. */
const UNTRUSTED: ReadonlySet<string> = new Set([
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'SELF_SIGNED_CERT_IN_CHAIN',
  'UNABLE_TO_GET_ISSUER_CERT',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
  'CERT_UNTRUSTED',
]);

/** Sends requests over connections of its own. */
export function openNode({ sslCa, connectTimeoutMs = CONNECT_TIMEOUT_MS }: HttpOptions): Http {
  const ca = sslCa === undefined ? {} : { ca: certificatesIn(sslCa) };
  const kept = { keepAlive: true, timeout: IDLE_MS };
  const plain = new http.Agent(kept);
  const secure = new https.Agent({ ...kept, ...ca, rejectUnauthorized: true });
  openFirst(plain, 'connect', connectTimeoutMs);
  openFirst(secure, 'secureConnect', connectTimeoutMs);
  return {
    send: (request) => send(request, request.url.protocol === 'https:' ? secure : plain),
    close: (): void => {
      for (const agent of [plain, secure]) {
        Object.values(agent.freeSockets).forEach((sockets) => sockets?.forEach((socket) => socket.destroy()));
      }
    },
  };
}

type Created = (error: Error | null, socket?: Duplex) => void;

/**
 * Has an agent give a connection to its request only once it is open, so that a request which has none was not sent:
 * Node would write into a connection that is not open yet, or whose certificate was not looked at.
 */
function openFirst(agent: http.Agent, event: 'connect' | 'secureConnect', limitMs: number): void {
  const connect = agent.createConnection.bind(agent) as (options: unknown) => Socket;
  const open = (options: http.ClientRequestArgs, created: Created): undefined => {
    const socket = connect(options);
    socket.setNoDelay(true);
    const end = (error: Error | null): void => {
      clearTimeout(timer);
      socket.off('error', end).off('close', closed).off(event, opened);
      if (error === null) {
        created(null, socket);
        return;
      }
      // It may have more to say, which nobody needs.
      socket.on('error', () => undefined).destroy();
      created(error);
    };
    const opened = (): void => end(null);
    const closed = (): void => end(new Error('the connection was closed'));
    const timer = after(() => end(new Error(`none within ${limitMs} ms`)), limitMs);
    socket.once('error', end).once('close', closed).once(event, opened);
  };
  agent.createConnection = open as unknown as typeof agent.createConnection;
}

function send({ url, method, headers, body, signal }: HttpRequest, agent: http.Agent): Promise<HttpAnswer> {
  return new Promise((resolve, reject) => {
    let isOpen = false;
    const fail = (error: Error): void => reject(isOpen ? error : new NotSent(adviceOn(error), { cause: error }));
    const hostname = url.hostname.replace(/^\[(.*)\]$/, '$1');
    const request = (url.protocol === 'https:' ? https : http).request({
      agent,
      method,
      headers,
      hostname,
      port: url.port,
      path: `${url.pathname}${url.search}`,
      // An address has no name that could be asked for.
      ...(isIP(hostname) === 0 ? {} : { servername: '' }),
    });
    signal.addEventListener('abort', () => {
      // Without a connection it will never be written.
      request.destroy(signal.reason as Error);
      fail(signal.reason as Error);
    });
    request.once('socket', () => (isOpen = !request.destroyed));
    request.on('error', fail);
    request.once('response', (response) => {
      const id = response.headers['x-request-id'];
      resolve({
        status: response.statusCode ?? 0,
        requestId: typeof id === 'string' ? id : null,
        body: response,
        discard: (): void => void response.on('error', () => undefined).destroy(),
      });
    });
    request.end(body);
  });
}

/** What an error says, and what to do about it. */
function adviceOn(error: Error): string {
  const { code } = error as NodeJS.ErrnoException;
  const said = error.message === '' && error instanceof AggregateError ? String(error.errors[0]) : error.message;
  if (code !== undefined && UNTRUSTED.has(code)) {
    return (
      `${said}: no authority that this program trusts has signed the server's certificate; name the file of the ` +
      'certificates to trust, sslCa or ssl-ca=PATH in the address'
    );
  }
  // OpenSSL's words for the beginning of an answer that is no TLS.
  if (/wrong version number|packet length too long|http request|unsupported protocol/i.test(said)) {
    return 'the server speaks no TLS: write http:// in place of https://, or the port where it has TLS';
  }
  if (code === 'ERR_TLS_CERT_ALTNAME_INVALID') {
    return `${said}: write a name into the address that the server's certificate has`;
  }
  return said;
}

/** The certificates of a file, which are the only ones to trust. */
function certificatesIn(path: string): string[] {
  const unusable = (what: string): StoreError => new StoreError('refused', `the certificates in ${path}: ${what}`);
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    throw unusable((error as Error).message);
  }
  const certificates = text.match(/-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----/gs) ?? [];
  if (certificates.length === 0) {
    throw unusable('there is none');
  }
  try {
    certificates.forEach((certificate) => new X509Certificate(certificate));
  } catch (error) {
    throw unusable((error as Error).message);
  }
  return certificates;
}
