// MariaDB for tests: databases on the server that the tests are given, and servers of their own where one is killed.

import { execFile, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { rmSync } from 'node:fs';
import { cp, mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { promisify } from 'node:util';

import { freePort, needed } from './fixtures.mjs';

const run = promisify(execFile);
/** What is not ready after this long never will be. */
const PATIENCE_MS = 60_000;
const USER = userInfo().uid === 0 ? ['--user=root'] : [];

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
export async function freshDatabase(base = needed('UNALIKE_TEST_MYSQL')) {
  const url = new URL(base);
  const name = `unalike_${randomBytes(6).toString('hex')}`;
  await query(base, `CREATE DATABASE ${name}`);
  url.pathname = `/${name}`;
  return url.href;
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
  static async start() {
    template ??= dataTemplate();
    const server = new MariaDb();
    server.directory = await mkdtemp(join(tmpdir(), 'unalike-mariadb-'));
    server.port = await freePort();
    await cp(await template, join(server.directory, 'data'), { recursive: true });
    await server.restart();
    await query(server.url(''), 'CREATE DATABASE ids');
    return server;
  }

  url(database = 'ids') {
    return `mysql://root@127.0.0.1:${this.port}/${database}`;
  }

  async restart() {
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
      ],
      { stdio: 'ignore', env: { ...process.env, PATH: `${process.env.PATH}:/usr/sbin` } },
    );
    process.once('exit', this.#killAtExit);
    await eventually('the server is ready', () => query(this.url(''), 'SELECT 1'));
  }

  #killAtExit = () => this.process?.kill('SIGKILL');

  /** As `kill -9` does. */
  async kill() {
    const { process: ended } = this;
    if (ended.exitCode === null && ended.signalCode === null) {
      const exit = new Promise((resolve) => ended.once('exit', resolve));
      ended.kill('SIGKILL');
      await exit;
    }
    process.off('exit', this.#killAtExit);
  }

  async end() {
    await this.kill();
    await rm(this.directory, { recursive: true, force: true });
  }
}
