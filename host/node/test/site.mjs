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

/** Serves folders, by the first part of a path, and answers of its own, which are texts by their paths. */
export class Site {
  /** What pages may do beside showing themselves: `'wasm-unsafe-eval'` is needed to compile a component. */
  scripts = "'self' 'wasm-unsafe-eval'";
  /** The origins that pages may ask. */
  others = [];
  answers = new Map();

  static async start(folders) {
    const site = new Site();
    site.folders = folders;
    site.server = http.createServer((request, response) => void site.#answer(request, response));
    await new Promise((resolve) => site.server.listen(0, '127.0.0.1', resolve));
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
      const text = this.answers.get(pathname) ?? (await readFile(join(folder ?? '', normalize(`/${rest}`))));
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
