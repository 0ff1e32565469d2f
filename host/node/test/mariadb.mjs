// MariaDB for tests: databases on the server that the tests are given, and servers of their own where one must be
// killed, stopped or replaced.

import { execFile, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { rmSync } from 'node:fs';
import { cp, mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { createServer, connect as connectSocket } from 'node:net';
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as pause } from 'node:timers/promises';
import { promisify } from 'node:util';

import { freePort } from './fixtures.mjs';

const run = promisify(execFile);
/** What is not ready after this long never will be. */
const PATIENCE_MS = 60_000;
/** As Debian installs it: apt-get install faketime. */
const FAKETIME = `/usr/lib/${process.arch === 'arm64' ? 'aarch64' : 'x86_64'}-linux-gnu/faketime/libfaketimeMT.so.1`;
const USER = userInfo().uid === 0 ? ['--user=root'] : [];

/** A variable that the tests cannot do without. */
export function required(name) {
  const value = process.env[name];
  if (value === undefined || value === '') {
    throw new Error(`${name} is not set: run these tests with \`tests/run --test hosts\``);
  }
  return value;
}

/** Sets the clock of a server in one step: `+1d`, say. */
export async function setClock(file, offset) {
  await writeFile(`${file}.new`, `${offset}\n`);
  await rename(`${file}.new`, file);
}

/** Until it answers something that holds; never a fixed time. */
export async function eventually(what, attempt) {
  const deadline = performance.now() + PATIENCE_MS;
  let last;
  while (performance.now() < deadline) {
    try {
      const answer = await attempt();
      if (answer) {
        return answer;
      }
    } catch (error) {
      last = error;
    }
    await pause(20);
  }
  throw new Error(`${what}: not within ${PATIENCE_MS} ms`, { cause: last });
}

/** A new database on the server of this URL, as a URL. */
export async function freshDatabase(base = required('UNALIKE_TEST_MYSQL')) {
  const url = new URL(base);
  const name = `unalike_${randomBytes(6).toString('hex')}`;
  await query(base, `CREATE DATABASE ${name}`);
  url.pathname = `/${name}`;
  return url.href;
}

/** What `mariadb-dump` makes of a database. */
export async function dump(url) {
  const { stdout } = await run('mariadb-dump', client(url));
  return stdout;
}

/** Loads a dump into a database that is there. */
export async function load(url, text) {
  const loading = run('mariadb', client(url));
  loading.child.stdin.end(text);
  await loading;
}

function client(url) {
  const { hostname, port, username, password, pathname } = new URL(url);
  const address = ['--no-defaults', '--protocol=tcp', `--host=${hostname}`, `--port=${port}`, `--user=${username}`];
  const charset = '--default-character-set=utf8mb4';
  return [...address, charset, `--password=${decodeURIComponent(password)}`, pathname.slice(1)];
}

/** Runs statements, on a connection of its own. Answers the rows of the last, whose values are texts. */
export async function query(url, ...statements) {
  const { stdout } = await run('mariadb', [...client(url), '--batch', '--execute', statements.join(';\n')]);
  const [names, ...rows] = stdout.trimEnd().split('\n').map((line) => line.split('\t'));
  return rows.map((values) => Object.fromEntries(values.map((value, at) => [names[at], value])));
}

/** Holds what this statement locks, until it says something else or ends. */
export async function lock(url, statement) {
  const session = spawn('mariadb', [...client(url), '--batch', '--unbuffered', '--skip-column-names'], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const lines = createInterface({ input: session.stdout })[Symbol.asyncIterator]();
  const say = async (...statements) => {
    session.stdin.write(`${statements.join(';\n')};\nSELECT 'it is done';\n`);
    for (;;) {
      const { value, done } = await lines.next();
      if (done) {
        throw new Error('the session has ended');
      }
      if (value === 'it is done') {
        return;
      }
    }
  };
  await say('SET autocommit = 0', statement);
  return { say, end: () => session.kill() };
}

let template;

/** A data directory as a new server has it. */
async function dataTemplate() {
  const directory = await mkdtemp(join(tmpdir(), 'unalike-mariadb-'));
  process.on('exit', () => rmSync(directory, { recursive: true, force: true }));
  await run('mariadb-install-db', [
    '--no-defaults',
    `--datadir=${directory}`,
    '--auth-root-authentication-method=normal',
    '--skip-test-db',
    ...USER,
  ]);
  return directory;
}

/** A server of one test. */
export class MariaDb {
  static start(...settings) {
    return MariaDb.#start(settings, null);
  }

  /** One whose clock is off by what this file says, as libfaketime takes it. */
  static startBy(clock) {
    return MariaDb.#start([], clock);
  }

  static async #start(settings, clock) {
    template ??= dataTemplate();
    const server = new MariaDb(await mkdtemp(join(tmpdir(), 'unalike-mariadb-')), await freePort(), settings);
    server.clock = clock;
    await cp(await template, join(server.directory, 'data'), { recursive: true });
    await server.restart();
    await query(server.url(''), 'CREATE DATABASE ids');
    return server;
  }

  constructor(directory, port, settings) {
    Object.assign(this, { directory, port, settings, process: null, clock: null });
  }

  url(database = 'ids', user = 'root') {
    return `mysql://${user}@127.0.0.1:${this.port}/${database}`;
  }

  /** A copy of the data as they are now, while this server is down. */
  async copyData() {
    const directory = await mkdtemp(join(tmpdir(), 'unalike-mariadb-'));
    await cp(join(this.directory, 'data'), join(directory, 'data'), { recursive: true });
    return directory;
  }

  async restart(...settings) {
    this.settings.push(...settings);
    const path = (name) => join(this.directory, name);
    // A server that starts clears the directory of temporary tables: of its own ones, if no other shares it.
    await mkdir(path('tmp'), { recursive: true });
    this.process = spawn(
      'mariadbd',
      [
        '--no-defaults',
        `--datadir=${path('data')}`,
        `--socket=${path('socket')}`,
        `--pid-file=${path('pid')}`,
        `--tmpdir=${path('tmp')}`,
        '--bind-address=127.0.0.1',
        `--port=${this.port}`,
        '--innodb-buffer-pool-size=16M',
        '--innodb-flush-log-at-trx-commit=1',
        ...USER,
        ...this.settings,
      ],
      { stdio: 'ignore', env: { ...process.env, PATH: `${process.env.PATH}:/usr/sbin`, ...this.#clockVariables() } },
    );
    process.once('exit', this.#killAtExit);
    await eventually('the server is ready', () => query(this.url(''), 'SELECT 1'));
  }

  #clockVariables() {
    return this.clock === null
      ? {}
      : {
          LD_PRELOAD: FAKETIME,
          FAKETIME_TIMESTAMP_FILE: this.clock,
          FAKETIME_NO_CACHE: '1',
          FAKETIME_DONT_FAKE_MONOTONIC: '1',
        };
  }

  #killAtExit = () => this.process?.kill('SIGKILL');

  /** Ends it: at once by SIGKILL, else in order. */
  async stop(signal = 'SIGKILL') {
    const ended = this.process;
    if (ended !== null && ended.exitCode === null && ended.signalCode === null) {
      const exit = new Promise((resolve) => ended.once('exit', resolve));
      ended.kill(signal);
      await exit;
    }
    process.off('exit', this.#killAtExit);
  }

  async end() {
    this.process?.kill('SIGCONT');
    // One with libfaketime that is killed leaves its files behind, on which another would hang.
    await this.stop(this.clock === null ? 'SIGKILL' : 'SIGTERM');
    await rm(this.directory, { recursive: true, force: true });
  }
}

/**
 * Stands between a client and a server. `cut` has the connections end whose client sends this text: after the server
 * has answered it, and without passing the answer on.
 */
export class Proxy {
  cutAt = null;
  cuts = 0;
  #sockets = new Set();

  static async before(url) {
    const proxy = new Proxy();
    const { hostname, port } = new URL(url);
    proxy.server = createServer((client) => {
      const server = connectSocket(Number(port), hostname);
      let isCut = false;
      proxy.#sockets.add(client).add(server);
      const end = () => {
        client.destroy();
        server.destroy();
      };
      client.on('data', (data) => {
        isCut ||= proxy.cutAt !== null && data.includes(proxy.cutAt);
        server.write(data);
      });
      server.on('data', (data) => {
        if (isCut) {
          proxy.cuts += 1;
          end();
        } else {
          client.write(data);
        }
      });
      for (const socket of [client, server]) {
        socket.on('error', end).on('close', end);
      }
    });
    await new Promise((resolve) => proxy.server.listen(0, '127.0.0.1', resolve));
    const through = new URL(url);
    through.port = String(proxy.server.address().port);
    proxy.url = through.href;
    return proxy;
  }

  async end() {
    for (const socket of this.#sockets) {
      socket.destroy();
    }
    await new Promise((resolve) => this.server.close(resolve));
  }
}
