// Cloudflare's runtime, as a private process: Workers in isolates of their own, and Durable Objects on a disk.

import { spawn } from 'node:child_process';
import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const BINARY = createRequire(import.meta.url)('workerd').default;
const DATE = '2026-04-01';
const KINDS = { js: 'esModule', mjs: 'esModule', wasm: 'wasm', json: 'json' };

/** A string of Cap'n Proto's text format. */
const quoted = (text) => JSON.stringify(text);

/** The modules of the package, as they are built: their names and files. */
export async function packageModules() {
  const dist = join(here, '../dist');
  const files = (await readdir(dist, { recursive: true })).filter((name) => /\.(js|wasm)$/.test(name));
  return files.map((name) => [`dist/${name}`, join(dist, name)]);
}

function workerOf({ modules, objects, enableSql = true, bindings = [], date = DATE, flags = [] }) {
  const className = quoted(objects === true ? 'UnalikeObject' : String(objects));
  const key = quoted(objects === true ? 'unalike' : String(objects));
  const listed = modules.map(([name, path]) => {
    const kind = KINDS[name.split('.').at(-1)];
    return `(name = ${quoted(name)}, ${kind} = embed ${quoted(path)})`;
  });
  const namespace = objects
    ? `durableObjectNamespaces = [ (className = ${className}, uniqueKey = ${key}, enableSql = ${enableSql}) ], ` +
      'durableObjectStorage = (localDisk = "disk"),'
    : '';
  return `(
    modules = [ ${listed.join(',\n      ')} ],
    compatibilityDate = ${quoted(date)}, compatibilityFlags = [${flags.map(quoted).join(', ')}], ${namespace}
    bindings = [ ${bindings.join(', ')} ],
  )`;
}

/** The binding of the objects that the service `store` has. */
export const OBJECTS = '(name = "IDS", durableObjectNamespace = (className = "UnalikeObject", serviceName = "store"))';
export const text = (name, value) => `(name = ${quoted(name)}, text = ${quoted(value)})`;

export class Workerd {
  /**
   * Starts it, and waits until it listens. `services` are Workers by their names; each but those without a socket gets
   * one, whose URL is then in `urls`. Durable Objects live in the folder's `disk`.
   */
  static async start(t, folder, services) {
    const workerd = new Workerd();
    await mkdir(join(folder, 'disk'), { recursive: true });
    const names = Object.keys(services);
    const open = names.filter((name) => services[name].isOpen !== false);
    const config = `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    ${names.map((name) => `(name = ${quoted(name)}, worker = ${workerOf(services[name])})`).join(',\n    ')},
    (name = "disk", disk = (path = ${quoted(join(folder, 'disk'))}, writable = true)),
    (name = "internet", network = (allow = ["public", "private", "local"])),
  ],
  sockets = [
    ${open.map((name) => `(name = ${quoted(name)}, address = "127.0.0.1:0", http = (), service = ${quoted(name)})`)}
  ],
);
`;
    const path = join(folder, `config-${process.hrtime.bigint()}.capnp`);
    await writeFile(path, config);
    const child = spawn(BINARY, ['serve', '--experimental', '--control-fd=3', '--import-path=/', path], {
      stdio: ['ignore', 'pipe', 'pipe', 'pipe'],
    });
    workerd.child = child;
    workerd.ended = new Promise((resolve) => child.once('exit', resolve));
    t.after(() => workerd.kill());
    workerd.said = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (part) => (workerd.said = (workerd.said + part).slice(-2_000)));
    }
    workerd.urls = await new Promise((resolve, reject) => {
      const urls = {};
      let out = '';
      child.stdio[3].on('data', (part) => {
        const lines = (out + part).split('\n');
        out = lines.pop();
        for (const line of lines) {
          const { event, socket, port } = JSON.parse(line);
          if (event === 'listen') {
            urls[socket] = `http://127.0.0.1:${port}`;
          }
        }
        if (open.every((name) => urls[name] !== undefined)) {
          resolve(urls);
        }
      });
      child.once('error', reject);
      child.once('exit', (code) => reject(new Error(`workerd ended with ${code}: ${workerd.said}`)));
    });
    return workerd;
  }

  /** What a Worker answers, as JSON. */
  async ask(name, path, options = {}) {
    const response = await fetch(`${this.urls[name]}${path}`, options);
    const body = await response.text();
    if (!response.ok) {
      const error = new Error(`${name}${path}: ${response.status} ${body}`);
      error.status = response.status;
      try {
        error.told = JSON.parse(body);
      } catch {
        // The runtime's own words.
      }
      throw error;
    }
    return JSON.parse(body);
  }

  /** As `kill -9` does. */
  async kill() {
    this.child.kill('SIGKILL');
    await this.ended;
  }
}
