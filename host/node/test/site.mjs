// A site for pages in tests: files, answers, and a Content-Security-Policy that allows no more than unalike needs.

import { readFile } from 'node:fs/promises';
import http from 'node:http';
import { extname, join, normalize } from 'node:path';

const TYPES = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.mjs': 'text/javascript',
  '.json': 'application/json',
  '.wasm': 'application/wasm',
};

/**
 * Serves folders, by the first part of a path, and answers of its own by their paths: texts, or functions that make
 * them. What pages post is given to the taker of its path.
 */
export class Site {
  /** What pages may do beside showing themselves: `'wasm-unsafe-eval'` is needed to compile a component. */
  scripts = "'self' 'wasm-unsafe-eval'";
  /** The origins that pages may ask. */
  others = [];
  answers = new Map();
  takers = new Map();

  /** Listens on a port of its own, or on the socket that is given. */
  static async start(folders, socket = { port: 0, host: '127.0.0.1' }) {
    const site = new Site();
    site.folders = folders;
    site.server = http.createServer((request, response) => void site.#answer(request, response));
    await new Promise((resolve) => site.server.listen(socket, resolve));
    site.url = `http://127.0.0.1:${site.server.address().port}`;
    return site;
  }

  /** A page that runs one script of the site. Answers its URL. */
  page(path, script) {
    this.answers.set(path, `<!doctype html><title>unalike</title><script type="module" src="${script}"></script>`);
    return `${this.url}${path}`;
  }

  async #answer(request, response) {
    const { pathname } = new URL(request.url, this.url);
    const [, first = '', rest = ''] = /^\/([^/]+)\/(.+)$/.exec(pathname) ?? [];
    const folder = this.folders[first];
    const policy = `default-src 'none'; script-src ${this.scripts}; connect-src 'self' ${this.others.join(' ')}`;
    try {
      let text = '';
      if (request.method === 'POST') {
        const parts = [];
        for await (const part of request) {
          parts.push(part);
        }
        await this.takers.get(pathname)(Buffer.concat(parts));
      } else {
        const answer = this.answers.get(pathname);
        text = typeof answer === 'function' ? answer() : answer;
        text ??= await readFile(join(folder ?? '', normalize(`/${rest}`)));
      }
      const type = TYPES[extname(pathname) || '.html'] ?? 'application/octet-stream';
      response.writeHead(200, { 'content-type': type, 'content-security-policy': policy, 'cache-control': 'no-store' });
      response.end(text);
    } catch {
      response.writeHead(404).end();
    }
  }

  async close() {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }
}
