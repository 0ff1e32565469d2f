// What the tests share: servers of the `unalike` binary, a proxy that does what proxies should not, folders.

import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { mkdtemp, readFile, readdir, rm } from 'node:fs/promises';
import http from 'node:http';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import tls from 'node:tls';
import { promisify } from 'node:util';

/** The value of an environment variable that `tests/run --test hosts` sets. */
export function needed(name) {
  const value = process.env[name];
  assert.ok(value, `${name} is not set: run tests/run --test hosts, which starts what these tests need`);
  return value;
}

/** A folder of a test's own, which is removed after it. */
export async function folderOf(t) {
  const folder = await mkdtemp(join(tmpdir(), 'unalike-node-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

/** Stops a child where it is until SIGCONT: nothing answers any more. A thread that runs just now may go on for a moment. */
export async function stopped(child) {
  child.kill('SIGSTOP');
  const tasks = `/proc/${child.pid}/task`;
  const runs = async () => {
    const stats = (await readdir(tasks)).map((task) => readFile(`${tasks}/${task}/stat`, 'utf8'));
    // The state follows the name, which is in brackets.
    return (await Promise.all(stats)).some((stat) => !stat.slice(stat.lastIndexOf(')')).startsWith(') T'));
  };
  const deadline = performance.now() + 60_000;
  while (await runs()) {
    assert.ok(performance.now() < deadline, `the process ${child.pid} does not stop`);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

/** Those below belong to well-known services. */
const PORT_MIN = 10_000;

/**
 * A port that was free a moment ago. It lies below those that the system gives to outgoing connections, any of which
 * could take it while a server is down.
 */
export async function freePort() {
  const outgoing = await readFile('/proc/sys/net/ipv4/ip_local_port_range', 'utf8');
  const first = Number.parseInt(outgoing, 10);
  for (;;) {
    const port = randomInt(PORT_MIN, first > PORT_MIN ? first : 65_536);
    const server = net.createServer();
    const isFree = await new Promise((resolve) => {
      server.once('error', () => resolve(false));
      server.listen(port, '127.0.0.1', () => resolve(true));
    });
    if (isFree) {
      await new Promise((resolve) => server.close(resolve));
      return port;
    }
  }
}

/** A server of the `unalike` binary over a store. */
export class Server {
  static async start(t, store, { port = 0, more = [] } = {}) {
    const args = ['serve', '--store', store, '--listen', `127.0.0.1:${port}`, '--drain-ms', '0', ...more];
    const child = spawn(needed('UNALIKE_BIN'), args, { stdio: ['ignore', 'pipe', 'pipe'] });
    const server = new Server();
    server.child = child;
    server.ended = new Promise((resolve) => child.once('exit', resolve));
    let said = '';
    child.stderr.on('data', (part) => {
      said = (said + part).slice(-4000);
    });
    server.url = await new Promise((resolve, reject) => {
      let out = '';
      child.stdout.on('data', (part) => {
        out += part;
        const [, url] = /listening on (http:\S+)\n/.exec(out) ?? [];
        if (url !== undefined) {
          resolve(url);
        }
      });
      child.once('error', reject);
      child.once('exit', (code) => reject(new Error(`the server ended with ${code}: ${said}`)));
    });
    server.port = Number(new URL(server.url).port);
    t.after(() => server.kill());
    return server;
  }

  /** As `kill -9` does. */
  async kill() {
    this.child.kill('SIGKILL');
    await this.ended;
  }
}

/** Ids that the Rust program takes from a store. */
export async function nextOfRust(store, tag, count) {
  const { stdout } = await promisify(execFile)(needed('UNALIKE_BIN'), [
    'next',
    tag,
    '-n',
    String(count),
    '--store',
    store,
  ]);
  return stdout.trim().split('\n').map(BigInt);
}

/** A proxy before a server. `behave` says for each request what becomes of it. */
export class Proxy {
  seen = 0;
  cached = new Map();

  static async start(t, target, behave) {
    const proxy = new Proxy();
    const sockets = new Set();
    const server = http.createServer((request, response) => {
      void proxy.pass(target, behave, request, response);
    });
    server.on('connection', (socket) => {
      sockets.add(socket);
      socket.on('close', () => sockets.delete(socket));
    });
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
    proxy.url = `http://127.0.0.1:${server.address().port}`;
    t.after(() => {
      server.close();
      sockets.forEach((socket) => socket.destroy());
    });
    return proxy;
  }

  async pass(target, behave, request, response) {
    const number = this.seen;
    this.seen += 1;
    const how = behave(number, request);
    const key = `${request.method} ${request.url}`;
    const forward = async () => {
      const answer = await fetch(new URL(request.url, target), {
        method: request.method,
        headers: { 'x-request-id': request.headers['x-request-id'] },
      });
      return { status: answer.status, id: answer.headers.get('x-request-id'), body: await answer.text() };
    };
    try {
      let answer = how === 'cached' ? this.cached.get(key) : undefined;
      answer ??= await forward();
      if (how === 'twice') {
        // Sent again, as a proxy does that took the first answer for lost: the caller gets the second.
        answer = await forward();
      }
      this.cached.set(key, answer);
      if (how === 'lost') {
        request.socket.destroy();
        return;
      }
      const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(answer.body) };
      if (how !== 'nameless') {
        headers['x-request-id'] = answer.id;
      }
      response.writeHead(how === 'gateway' ? 502 : answer.status, headers);
      if (how === 'cut') {
        response.write(answer.body.slice(0, answer.body.length / 2));
        setImmediate(() => request.socket.destroy());
        return;
      }
      if (how === 'late') {
        // Not before the client has given up.
        response.flushHeaders();
        await new Promise((resolve) => response.once('close', resolve));
      }
      response.end(answer.body);
    } catch {
      response.destroy();
    }
  }
}

/** An authority's certificate, and that of a server which it signed for `localhost`, as files. */
export async function certificates(folder) {
  const at = (name) => join(folder, name);
  const make = (name, ...more) =>
    promisify(execFile)('openssl', [
      ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2'],
      ...['-keyout', at(`${name}.key`), '-out', at(`${name}.pem`), '-subj', `/CN=unalike test ${name}`, ...more],
    ]);
  await make('ca');
  await make(
    'server',
    ...['-CA', at('ca.pem'), '-CAkey', at('ca.key'), '-addext', 'subjectAltName=DNS:localhost'],
    ...['-addext', 'basicConstraints=critical,CA:FALSE'],
  );
  return { ca: at('ca.pem'), key: at('server.key'), certificate: at('server.pem') };
}

/** A server of TLS before another one, as a load balancer is. It counts the bytes that clients sent inside. */
export class TlsProxy {
  bytes = 0;

  static async start(t, target, { key, certificate }) {
    const proxy = new TlsProxy();
    const sockets = new Set();
    const server = tls.createServer({ key: await readFile(key), cert: await readFile(certificate) }, (inner) => {
      const outer = net.connect(target.port, '127.0.0.1');
      inner.on('data', (part) => (proxy.bytes += part.length));
      inner.pipe(outer).pipe(inner);
      for (const [socket, other] of [
        [inner, outer],
        [outer, inner],
      ]) {
        sockets.add(socket);
        socket.on('error', () => other.destroy()).on('close', () => other.destroy());
      }
    });
    server.on('tlsClientError', () => undefined);
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
    proxy.port = server.address().port;
    proxy.url = `https://localhost:${proxy.port}`;
    t.after(() => {
      server.close();
      sockets.forEach((socket) => socket.destroy());
    });
    return proxy;
  }
}

/** The URL of a server that listens and accepts nothing: who connects hears nothing at all. */
export async function deafServer(t) {
  const code = `
    const server = require('node:net').createServer().listen({ port: 0, host: '127.0.0.1', backlog: 1 }, () => {
      require('node:fs').writeSync(1, String(server.address().port));
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
    });`;
  const child = spawn(process.execPath, ['-e', code], { stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = new Promise((resolve) => child.once('exit', resolve));
  const port = await new Promise((resolve) => child.stdout.once('data', (text) => resolve(Number(text))));
  // The kernel takes a few for it, and answers no more once these wait.
  const waiting = Array.from({ length: 8 }, () => net.connect(port, '127.0.0.1').on('error', () => undefined));
  t.after(async () => {
    waiting.forEach((socket) => socket.destroy());
    child.kill('SIGKILL');
    await ended;
  });
  await new Promise((resolve) => waiting[0].once('connect', resolve));
  return `http://127.0.0.1:${port}`;
}

/** Keeps ids, and fails with the first that comes twice. */
export class Seen {
  ids = new Set();

  add(ids, what = '') {
    for (const id of ids) {
      assert.equal(typeof id, 'bigint');
      assert.ok(!this.ids.has(id), `${id} came twice ${what}`);
      this.ids.add(id);
    }
  }
}

/** A promise with its ends. */
export function deferred() {
  let [resolve, reject] = [];
  const promise = new Promise((...ends) => {
    [resolve, reject] = ends;
  });
  return { promise, resolve, reject };
}

/** Waits until something holds; fails after some seconds. */
export async function until(what, holds) {
  const end = performance.now() + 20_000;
  while (!(await holds())) {
    assert.ok(performance.now() < end, `still not so: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

const ODD = 2n ** 53n + 1n;

/** Options of a tag with figures that no double holds. */
export const ODD_OPTIONS = {
  start: 5n,
  step: { kind: 'adaptive', step: 10n, min: 5n, max: 2n ** 63n - 1n, growBelowMs: ODD, shrinkAboveMs: 2n ** 63n },
  refill: { kind: 'remaining', numbers: ODD },
  mode: 'ordered',
};
