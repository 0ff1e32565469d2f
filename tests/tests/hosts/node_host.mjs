// The host in Node among hosts in other languages: together.rs says what each of them does and writes.

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const from = (file) => import(pathToFileURL(join(process.env.UNALIKE_NODE_PACKAGE, 'dist', file)));
const { Ids } = await from('index.js');
const { MysqlStore } = await from('mysql.js');
const { RedisStore } = await from('redis.js');

const task = JSON.parse(process.argv[2]);
const BATCH = 1_000;

const mysql = await MysqlStore.open(task.mysql);
const redis = await RedisStore.open({ url: task.redis, backing: mysql });
const ids = await Ids.open({ segments: mysql, leases: mysql });
const strict = await Ids.open({ segments: redis });
const orders = await ids.sequence('order');
const flakes = await ids.snowflake('default', 'twitter');
const chats = await strict.sequence('chat');

function write(of, words) {
  writeFileSync(join(task.out, `node.${of}`), BigUint64Array.from(words));
}

async function buffered() {
  const taken = [];
  while (taken.length < task.orders) {
    taken.push(await orders.next());
    for (const id of await orders.take(BATCH - 1)) {
      taken.push(id);
    }
  }
  write('order', taken);
}

async function stamped() {
  const taken = [];
  while (taken.length < task.flakes) {
    taken.push(await flakes.next());
  }
  write('flake', taken);
}

async function ordered() {
  const calls = [];
  for (let at = 0; at < task.chats; at += 1) {
    const began = process.hrtime.bigint();
    const id = await chats.next();
    calls.push(began, process.hrtime.bigint(), id);
  }
  write('chat', calls);
}

await Promise.all([buffered(), stamped(), ordered()]);
await ids.close();
await strict.close();
await redis.close();
await mysql.close();
