/**
 * How the remote store sends its requests: by `fetch` everywhere, but for Node, whose entry sets its own way.
 *
 * @module
 */

import { StoreError } from './store.js';

/** One request to one server. */
export interface HttpRequest {
  readonly url: URL;
  readonly method: 'GET' | 'POST';
  /** Their names are in small letters. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | undefined;
  /** Ends the request, also while its answer is read. */
  readonly signal: AbortSignal;
}

/** What a server answers. Its body is read to its end, or given up by `discard`. */
export interface HttpAnswer {
  readonly status: number;
  readonly requestId: string | null;
  readonly body: AsyncIterable<Uint8Array>;
  discard(): void;
}

/** Sends requests. */
export interface Http {
  /**
   * Sends a request, once, and follows no redirect.
   *
   * @throws {NotSent} No byte of the request was sent, and none will be. Any other error: it may have been.
   */
  send(request: HttpRequest): Promise<HttpAnswer>;
  /** Closes the connections that nobody uses. */
  close(): void;
}

/** How connections are opened, where a program may choose. */
export interface HttpOptions {
  /** A file of certificates, as PEM. */
  readonly sslCa: string | undefined;
  readonly connectTimeoutMs: number | undefined;
}

/** A request that never left this program. */
export class NotSent extends Error {}

type Opener = (options: HttpOptions) => Http;

let opener: Opener = openFetch;

/** Has all stores that are opened from now on send their requests so. */
export function setHttp(open: Opener): void {
  opener = open;
}

/** @throws {StoreError} `refused`, where the options are wrong, or are not available here. */
export function openHttp(options: HttpOptions): Http {
  return opener(options);
}

/** What the operating system says when no connection was opened, so that nothing was sent. */
const NOT_SENT: ReadonlySet<string> = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'UND_ERR_CONNECT_TIMEOUT',
]);

/** Sends requests by `fetch`. */
export function openFetch({ sslCa, connectTimeoutMs }: HttpOptions): Http {
  if (sslCa !== undefined) {
    const what = 'sslCa is for Node: here the platform chooses whom it trusts, so have it trust the authority';
    throw new StoreError('refused', what);
  }
  if (connectTimeoutMs !== undefined) {
    const what = 'connectTimeoutMs is for Node: here the platform opens the connections, so set requestTimeoutMs';
    throw new StoreError('refused', what);
  }
  return { send: sendByFetch, close: (): void => {} };
}

async function sendByFetch({ url, method, headers, body, signal }: HttpRequest): Promise<HttpAnswer> {
  let response: Response;
  try {
    response = await fetch(url, {
      method,
      headers,
      body: body ?? null,
      cache: 'no-store',
      credentials: 'omit',
      redirect: 'manual',
      signal,
    });
  } catch (error) {
    throw wasNotSent(error) ? new NotSent(reasonOf(error), { cause: error }) : error;
  }
  return {
    status: response.status,
    requestId: response.headers.get('x-request-id'),
    body: partsOf(response),
    discard: (): void => void response.body?.cancel().catch(() => undefined),
  };
}

/** Not all browsers iterate over streams. */
async function* partsOf(response: Response): AsyncGenerator<Uint8Array> {
  const reader = response.body?.getReader();
  try {
    for (;;) {
      const part = await reader?.read();
      if (part === undefined || part.done) {
        return;
      }
      yield part.value;
    }
  } finally {
    void reader?.cancel().catch(() => undefined);
  }
}

function wasNotSent(error: unknown): boolean {
  const cause = error instanceof Error ? error.cause : undefined;
  const codeOf = (value: unknown): unknown => (value as { code?: unknown } | undefined)?.code;
  const code = codeOf(cause);
  if (typeof code === 'string' && NOT_SENT.has(code)) {
    return true;
  }
  // One for each address of the host.
  const each = cause instanceof AggregateError ? cause.errors : [];
  return each.length > 0 && each.every((part) => NOT_SENT.has(String(codeOf(part))));
}

/** What an error says, or what it was caused by. */
export function reasonOf(error: unknown): string {
  const { cause, message } = error as Error;
  return cause instanceof Error && cause.message !== '' ? cause.message : message;
}
