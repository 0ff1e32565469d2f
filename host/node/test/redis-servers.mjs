// Private Redis servers, and a durable store that can be switched off.

import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';

import { StoreError } from '../dist/store.js';
import { freePort } from './fixtures.mjs';

/** A redis-server of a test's own. */
export class RedisProcess {
  static async start(t, folder, ...settings) {
    const server = new RedisProcess();
    server.folder = folder;
    server.settings = settings;
    server.port = await freePort();
    t.after(() => server.kill());
    await server.start();
    return server;
  }

  get url() {
    return `redis://127.0.0.1:${this.port}/0`;
  }

  async start() {
    const common = ['--port', String(this.port), '--bind', '127.0.0.1', '--dir', this.folder, '--save', ''];
    this.child = spawn('redis-server', [...common, ...this.settings], { stdio: 'ignore' });
    await once(this.child, 'spawn');
    for (;;) {
      assert.equal(this.child.exitCode, null, 'redis-server has ended');
      const answer = await this.ask('PING').catch((error) => error.message);
      if (/PONG|NOAUTH/.test(answer)) {
        return;
      }
      await sleep(10);
    }
  }

  /** Asks on a connection of its own. */
  async ask(...command) {
    const args = ['-p', String(this.port), '-e', '--json', ...command];
    const { stdout } = await promisify(execFile)('redis-cli', args);
    // Lists for people are no JSON.
    return /^id=/.test(stdout) ? stdout : JSON.parse(stdout);
  }

  /** As `kill -9` does. */
  async kill() {
    if (this.child.exitCode === null && this.child.signalCode === null) {
      this.child.kill('SIGKILL');
      await once(this.child, 'exit');
    }
  }

  async restart() {
    await this.kill();
    await this.start();
  }
}

/** A durable store that counts what it grants, and can be down. */
export class Switched {
  isDown = false;
  granted = [];

  constructor(store) {
    this.store = store;
  }

  async #asked(request) {
    if (this.isDown) {
      throw new StoreError('unavailable', 'the durable store is switched off');
    }
    return request();
  }

  allocate(tag, count, atLeast) {
    return this.#asked(async () => {
      const segment = await this.store.allocate(tag, count, atLeast);
      this.granted.push({ tag, ...segment });
      return segment;
    });
  }

  release(tag, tail) {
    return this.#asked(() => this.store.release(tag, tail));
  }

  openTag(tag) {
    return this.#asked(() => this.store.openTag(tag));
  }

  createTag(tag, options) {
    return this.#asked(() => this.store.createTag(tag, options));
  }

  identity() {
    return this.#asked(() => this.store.identity());
  }

  leaveLeases(namespace) {
    return this.#asked(() => this.store.leaveLeases(namespace));
  }

  close() {
    return this.store.close();
  }
}
