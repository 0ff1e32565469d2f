// Chromium, driven over its DevTools protocol: https://chromedevtools.github.io/devtools-protocol/

import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** What has not answered after this long never will. */
const PATIENCE_MS = 120_000;

/** A browser without windows. It ends with this process at the latest, as its pipe ends. */
export class Chromium {
  #asked = new Map();
  #pages = new Map();
  #last = 0;
  #rest = '';

  static async start() {
    const browser = new Chromium();
    browser.folder = await mkdtemp(join(tmpdir(), 'unalike-chromium-'));
    const flags = ['--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-first-run'];
    flags.push('--disable-background-networking', '--disable-component-update', '--remote-debugging-pipe');
    const stdio = ['ignore', 'ignore', 'pipe', 'pipe', 'pipe'];
    browser.child = spawn('chromium', [...flags, `--user-data-dir=${browser.folder}`], { stdio });
    let said = '';
    browser.child.stderr.on('data', (part) => (said = (said + part).slice(-4_000)));
    browser.ended = new Promise((resolve) => {
      const end = (why) => {
        browser.#asked.forEach(({ reject }) => reject(new Error(`Chromium ended (${why}): ${said}`)));
        browser.#asked.clear();
        resolve();
      };
      browser.child.once('exit', (code, signal) => end(code ?? signal));
      browser.child.once('error', (error) => end(`${error.message}: install it by tests/run --test hosts`));
    });
    const [, , , writer, reader] = browser.child.stdio;
    // Who waits is told by the end of the process.
    writer.on('error', () => undefined);
    reader.on('error', () => undefined);
    reader.setEncoding('utf8').on('data', (part) => browser.#hear(part));
    try {
      await browser.send('Browser.getVersion');
    } catch (error) {
      await browser.close();
      throw error;
    }
    return browser;
  }

  #hear(part) {
    const messages = (this.#rest + part).split('\0');
    this.#rest = messages.pop();
    for (const text of messages) {
      const { id, result, error, sessionId, method, params } = JSON.parse(text);
      const asked = this.#asked.get(id);
      this.#asked.delete(id);
      if (error === undefined) {
        asked?.resolve(result);
      } else {
        asked?.reject(new Error(error.message));
      }
      this.#pages.get(sessionId)?.hear(method, params);
    }
  }

  /** Sends a command of the protocol, and answers what it brings. */
  async send(method, params = {}, sessionId = undefined, limitMs = PATIENCE_MS) {
    this.#last += 1;
    const id = this.#last;
    let timer;
    try {
      return await new Promise((resolve, reject) => {
        this.#asked.set(id, { resolve, reject });
        timer = setTimeout(() => reject(new Error(`${method}: no answer within ${limitMs} ms`)), limitMs);
        if (this.child.exitCode !== null || this.child.pid === undefined) {
          void this.ended.then(() => reject(new Error(`${method}: Chromium has ended`)));
        }
        this.child.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
      });
    } finally {
      clearTimeout(timer);
      this.#asked.delete(id);
    }
  }

  /** A new tab: `hear` is told what happens in it (an event and its values), `send` sends it a command. */
  async tab(hear) {
    const { targetId } = await this.send('Target.createTarget', { url: 'about:blank' });
    const { sessionId } = await this.send('Target.attachToTarget', { targetId, flatten: true });
    this.#pages.set(sessionId, { hear });
    const send = (method, params, ms) => this.send(method, params, sessionId, ms);
    const close = async () => {
      this.#pages.delete(sessionId);
      await send('Page.close').catch(() => undefined);
    };
    return { send, close };
  }

  /**
   * Shows a page in a tab of its own, and answers what the promise `outcome` brings, which a script of the page sets.
   * An error holds what the browser said about the page.
   */
  async show(url, limitMs = PATIENCE_MS) {
    const said = [];
    let isLoaded;
    const loaded = new Promise((resolve) => (isLoaded = resolve));
    const { send, close } = await this.tab((method, params) => {
      if (method === 'Page.loadEventFired') {
        isLoaded();
      } else if (method === 'Log.entryAdded') {
        said.push(params.entry.text);
      } else if (method === 'Runtime.exceptionThrown') {
        said.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
      }
    });
    try {
      await Promise.all(['Page.enable', 'Log.enable', 'Runtime.enable'].map((method) => send(method)));
      const { errorText } = await send('Page.navigate', { url });
      if (errorText !== undefined) {
        throw new Error(`${url}: ${errorText}`);
      }
      await Promise.race([loaded, this.ended]);
      const evaluated = {
        expression: `globalThis.outcome ?? Promise.reject(new Error('its script set no outcome'))`,
        awaitPromise: true,
        returnByValue: true,
        // Else the page's policy would not hold for what is compiled meanwhile.
        allowUnsafeEvalBlockedByCSP: false,
      };
      const { result, exceptionDetails } = await send('Runtime.evaluate', evaluated, limitMs);
      if (exceptionDetails !== undefined) {
        const { exception, text } = exceptionDetails;
        throw new Error(`${url}: ${exception?.description ?? exception?.value ?? text}\n${said.join('\n')}`);
      }
      return result.value;
    } finally {
      await close();
    }
  }

  /** Ends all service workers, as a browser does with those that are idle. */
  async endServiceWorkers(url) {
    const { targetId } = await this.send('Target.createTarget', { url });
    const { sessionId } = await this.send('Target.attachToTarget', { targetId, flatten: true });
    for (const method of ['ServiceWorker.enable', 'ServiceWorker.stopAllWorkers', 'Page.close']) {
      await this.send(method, {}, sessionId);
    }
  }

  async close() {
    await Promise.race([this.send('Browser.close').catch(() => undefined), this.ended]);
    this.child.kill('SIGKILL');
    await this.ended;
    // Its children may write a last time.
    await rm(this.folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 50 });
  }
}
