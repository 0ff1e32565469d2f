// Runs a file of conformance vectors (tests/vectors/README.md) against the transpiled components, through the host's
// own checks, tickets and import tables. It runs in Node and in pages: whoever imports it also imports the entry of the
// package that loads the components there.

import { Formats, IdsError } from '../dist/all.js';
import { answerOf, Core, Trap } from '../dist/component.js';
import { GrantOrder } from '../dist/grant-order.js';
import { CORE_MODULES, modulesOf } from '../dist/modules.js';
import { checkedCount } from '../dist/numbers.js';
import { tickEndMs } from '../dist/snowflake.js';
import { Requests, Storage } from '../dist/storage.js';
import { InstanceTickets } from '../dist/tickets.js';
import { assert } from './assertions.mjs';

const WIT = 'unalike:ids@0.1.0';

// The keys of the kinds of steps, and which of them must be there.
const KINDS = {
  call: { must: ['call', 'args'], may: ['on', 'imports', 'returns', 'throws', 'traps', 'refused', 'by', 'source'] },
  drop: { must: ['drop'], may: ['source'] },
  answer: { must: ['answer', 'with'], may: ['dropped', 'source'] },
  rebuild: { must: ['rebuild', 'floors', 'used-until'], may: ['source'] },
};

// The arguments of each function, by their WIT names.
const ARGUMENTS = {
  'sequence.open': ['tag', 'options'],
  'sequence.reserve': ['now', 'max'],
  'sequence.status': ['now'],
  'sequence.close': [],
  'ordered.open': ['tag', 'floor', 'id-max'],
  'ordered.begin': ['now', 'count'],
  'ordered.claim': ['now', 'round'],
  'snowflake.open': ['namespace', 'options'],
  'snowflake.reserve': ['now', 'max'],
  'snowflake.status': ['now'],
  'snowflake.close': [],
  'segments.poll': ['ticket'],
  'leases.poll': ['ticket'],
  'codec.encode': ['id', 'text'],
  'codec.decode': ['input', 'text'],
  'codec.unpack': ['id', 'layout'],
  'codec.pack': ['parts', 'layout'],
  'codec.id-range': ['layout', 'from', 'until'],
  'format.open': ['options'],
  'format.id-max': [],
  'format.period': ['issued'],
  'format.number': ['id', 'issued', 'shard-key'],
  'format.original': ['number'],
  'format.write': ['id', 'issued', 'shard-key'],
  'format.read': ['text'],
  'format.shape': [],
  'format.key-checks': [],
};

/** The functions of a format that answer a value, and no result. */
const PLAIN = new Set(['format.id-max', 'format.shape', 'format.key-checks']);

const TEXTS = new Set(['tag', 'namespace', 'input', 'text', 'template', 'context', 'restart', 'order']);
const VARIANTS = new Set(['refill', 'clock', 'spread']);

const camel = (name) => name.replace(/-(.)/g, (_, letter) => letter.toUpperCase());
const kebab = (name) => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);

/** A number as people write it in JavaScript. What is none there stays a text, which the host refuses. */
function number(value) {
  if (typeof value !== 'string') {
    return value;
  }
  if (/^-?[0-9]+$/.test(value) && value !== '-0') {
    return BigInt(value);
  }
  return ['-0', '1.5', 'NaN', 'Infinity', '-Infinity'].includes(value) ? Number(value) : value;
}

/** An argument as JavaScript has it. */
function argument(name, value) {
  if (TEXTS.has(name) || value === null) {
    return value ?? undefined;
  }
  if (VARIANTS.has(name)) {
    if (typeof value === 'string') {
      return { tag: value };
    }
    const [[tag, val], ...more] = Object.entries(value);
    assert.equal(more.length, 0, `a variant has one case: ${JSON.stringify(value)}`);
    return { tag, val: number(val) };
  }
  if (Array.isArray(value)) {
    return value.map((item) => argument('', item));
  }
  if (typeof value === 'object') {
    return Object.fromEntries(Object.entries(value).map(([key, part]) => [camel(key), argument(key, part)]));
  }
  return number(value);
}

/** A value as the vectors write it. */
function json(value) {
  if (value === undefined || value === null) {
    return null;
  }
  if (typeof value === 'bigint') {
    return String(value);
  }
  if (Array.isArray(value)) {
    return value.map(json);
  }
  if (typeof value !== 'object') {
    return value;
  }
  if (
    'tag' in value &&
    typeof value.tag === 'string' &&
    Object.keys(value).every((key) => ['tag', 'val'].includes(key))
  ) {
    return value.val === undefined ? value.tag : { [value.tag]: json(value.val) };
  }
  return Object.fromEntries(Object.entries(value).map(([key, part]) => [kebab(key), json(part)]));
}

/** A result as the vectors write it. */
function result(answer) {
  return { [answer.tag]: json(answer.val) };
}

/** The host's own, but for its stores: what it would ask is written down, and its answers come from the steps. */
class Recorder extends Requests {
  imports = [];

  constructor(tickets, vector) {
    super(new Storage(undefined, undefined, '', null, 1000), tickets);
    this.vector = vector;
  }

  note(what, args, ticket) {
    this.imports.push({ import: what, args: json(args), ...(ticket === undefined ? {} : { ticket }) });
  }

  allocate(ticket, tag, count, atLeast) {
    this.asked.set(ticket, this.vector.askerOf(tag));
    this.note('segments.allocate', { tag, count, atLeast }, ticket);
  }

  releaseTail(tag, start, version) {
    this.note('segments.release', { tag, start, version });
  }

  acquire(ticket, namespace, layout, now, horizonMs) {
    this.note('leases.acquire', { namespace, layout, now, horizonMs }, ticket);
  }

  extend(ticket, namespace, layout, worker, grantId, now, horizonMs) {
    this.note('leases.extend', { namespace, layout, worker, grantId, now, horizonMs }, ticket);
  }

  releaseLease(namespace, worker, grantId, end) {
    this.note('leases.release', { namespace, worker, grantId, end });
  }
}

class CoreVector {
  resources = new Map();
  namespaces = new Map();
  tickets = new Map();
  askers = new Map();
  usedUntil = new Map();
  throws = undefined;

  constructor(moduleOf) {
    this.moduleOf = moduleOf;
    this.build();
  }

  build() {
    this.instance = new InstanceTickets();
    this.recorder = new Recorder(this.instance, this);
    this.table = this.instance.imports(this.recorder);
    this.core = new Core(
      this.moduleOf,
      Object.fromEntries(
        Object.entries(this.table).map(([name, functions]) => {
          const short = name.replace('unalike:ids/', '');
          const wrapped = Object.entries(functions).map(([key, call]) => [
            key,
            (...args) => {
              if (this.throws === `${short}.${key}`) {
                this.throws = undefined;
                throw new Error('the driver threw');
              }
              return call(...args);
            },
          ]);
          return [name, Object.fromEntries(wrapped)];
        }),
      ),
    );
  }

  askerOf(tag) {
    let asker = this.askers.get(tag);
    if (asker === undefined) {
      asker = { name: tag, granted: new GrantOrder(), lastError: undefined, lease: undefined, answered() {} };
      this.askers.set(tag, asker);
    }
    return asker;
  }

  step(step) {
    if ('drop' in step) {
      this.resource(step.drop).drop();
      this.resources.delete(step.drop);
      return {};
    }
    if ('answer' in step) {
      return this.answer(step);
    }
    if ('rebuild' in step) {
      return this.rebuild();
    }
    return this.call(step);
  }

  resource(name) {
    const found = this.resources.get(name);
    assert.ok(found !== undefined, `there is no ${name}`);
    return found;
  }

  answer({ answer, with: given }) {
    const [tag, value] = Object.entries(given)[0];
    const ticket = this.tickets.get(answer);
    assert.ok(ticket !== undefined, `the ticket ${answer} was not issued`);
    const converted = { tag, val: tag === 'ok' ? argument('', value) : value };
    const { segments, leases } = this.instance;
    const isTaken = segments.answer(ticket, converted) || leases.answer(ticket, converted);
    return isTaken ? {} : { dropped: true };
  }

  rebuild() {
    this.instance.segments.clear();
    this.instance.leases.clear();
    const floors = [...this.askers].map(([tag, { granted }]) => [tag, String(granted.successorFloor())]);
    const seen = {
      floors: Object.fromEntries(floors.filter(([, floor]) => floor !== '0')),
      'used-until': Object.fromEntries([...this.usedUntil].map(([name, until]) => [name, String(until)])),
    };
    this.resources.clear();
    this.build();
    return seen;
  }

  call(step) {
    const { call, on, args } = step;
    const given = Object.fromEntries(Object.entries(args).map(([name, value]) => [name, argument(name, value)]));
    if (call === 'segments.poll' || call === 'leases.poll') {
      const ticket = this.tickets.get(args.ticket) ?? BigInt(args.ticket);
      const answer = this.table[`unalike:ids/${call.split('.')[0]}`].poll(ticket);
      return { returns: answer === undefined ? null : result(answer) };
    }
    this.throws = step.throws;
    this.recorder.imports = [];
    let seen;
    try {
      if (step.by === 'host') {
        // What the host's public functions check before anything else.
        for (const name of ['max', 'count'].filter((name) => name in given)) {
          checkedCount(name, given[name]);
        }
      }
      seen = this.perform(call, on, given);
    } catch (error) {
      if (error instanceof Trap) {
        assert.match(String(error.message), /the driver threw/);
        seen = { traps: true, throws: step.throws };
      } else if (error instanceof IdsError) {
        seen = { refused: kebab(error.figures.argument) };
      } else {
        throw error;
      }
    }
    assert.equal(this.throws, undefined, `${step.throws} was not called`);
    const imports = this.recorder.imports.map((made, at) => {
      if (made.ticket === undefined) {
        return made;
      }
      const name = step.imports?.[at]?.ticket ?? `unnamed ${made.ticket}`;
      assert.ok(!this.tickets.has(name), `the ticket ${name} was issued twice`);
      this.tickets.set(name, made.ticket);
      return { ...made, ticket: name };
    });
    return imports.length > 0 ? { imports, ...seen } : seen;
  }

  perform(call, on, given) {
    const [kind, name] = call.split('.');
    if (name === 'open') {
      assert.ok(!this.resources.has(on), `there is a ${on} already`);
      const opened = {
        sequence: () => this.core.openSequence(given.tag, given.options),
        ordered: () => this.core.openOrdered(given.tag, given.floor, given['id-max']),
        snowflake: () => this.core.openSnowflake(given.namespace, given.options),
      }[kind]();
      if (opened.tag === 'err') {
        return { returns: result(opened) };
      }
      this.resources.set(on, opened.val);
      this.namespaces.set(on, { namespace: given.namespace, layout: given.options?.layout });
      return { returns: { ok: null } };
    }
    const resource = this.resource(on);
    const values = ARGUMENTS[call].map((argument) => given[argument]);
    const answer = resource[name](...values);
    if (name === 'close') {
      return {};
    }
    if (name === 'status') {
      const status = kind === 'snowflake' ? { worker: null, blocked: null, ...json(answer) } : json(answer);
      return { returns: status };
    }
    if (kind === 'snowflake' && answer.tag === 'ok') {
      const { namespace, layout } = this.namespaces.get(on);
      this.usedUntil.set(namespace, tickEndMs(layout, answer.val.first));
    }
    return { returns: result(answer) };
  }
}

class FormatsVector {
  resources = new Map();

  constructor(formats) {
    this.formats = formats;
  }

  step({ call, on, args }) {
    const given = Object.fromEntries(Object.entries(args).map(([name, value]) => [name, argument(name, value)]));
    let answer;
    try {
      answer = answerOf(() => {
        try {
          return this.perform(call, on, given);
        } catch (error) {
          // What the component said, as it would have said it.
          throw error instanceof IdsError && error.cause?.tag ? { payload: error.cause } : error;
        }
      });
    } catch (trap) {
      const error = trap.cause;
      if (error instanceof IdsError && error.kind === 'number-invalid') {
        return { refused: kebab(error.figures.argument) };
      }
      throw error;
    }
    if (PLAIN.has(call)) {
      return { returns: json(answer.val) };
    }
    return { returns: result(answer) };
  }

  perform(call, on, given) {
    const { formats } = this;
    switch (call) {
      case 'codec.encode':
        return formats.encode(given.id, given.text);
      case 'codec.decode':
        return formats.decode(given.input, given.text);
      case 'codec.unpack':
        return formats.unpack(given.id, given.layout);
      case 'codec.pack':
        return formats.pack(given.parts, given.layout);
      case 'codec.id-range':
        return formats.idRange(given.layout, given.from, given.until);
      case 'format.open': {
        const keys = given.options.keys.map(({ id, high, low }) => ({ id, secret: (high << 64n) | low }));
        this.resources.set(on, formats.format({ ...given.options, keys }));
        return undefined;
      }
      default: {
        const format = this.resources.get(on);
        assert.ok(format !== undefined, `there is no ${on}`);
        const name = call.slice('format.'.length);
        if (name === 'id-max') {
          return format.idMax;
        }
        const answer = format[camel(name)](...ARGUMENTS[call].map((argument) => given[argument]));
        return ['original', 'read'].includes(name) ? issued(answer) : answer;
      }
    }
  }
}

function issued({ span, ...rest }) {
  return { gene: undefined, keyId: undefined, ...rest, span: span && [span.fromMs, span.untilMs] };
}

function kindOf(step) {
  const kind = Object.keys(KINDS).find((name) => name in step);
  assert.ok(kind !== undefined, `a step of no known kind: ${JSON.stringify(step)}`);
  const { must, may } = KINDS[kind];
  assert.deepEqual(
    must.filter((key) => !(key in step)),
    [],
    'keys that are missing',
  );
  assert.deepEqual(
    Object.keys(step).filter((key) => !must.includes(key) && !may.includes(key)),
    [],
    'unknown keys',
  );
  if (kind === 'call') {
    const known = ARGUMENTS[step.call];
    assert.ok(known !== undefined, `an unknown function: ${step.call}`);
    assert.deepEqual(Object.keys(step.args).sort(), [...known].sort(), `the arguments of ${step.call}`);
  }
  return kind;
}

/** Runs the vectors of a file, and answers how many. */
export async function runFile(name, file) {
  const { wit, world, vectors, presets, others, ...unknown } = file;
  assert.deepEqual(Object.keys(unknown), [], `${name}: unknown keys`);
  assert.equal(wit, WIT, name);
  assert.ok(['core', 'formats'].includes(world), `${name}: the world ${world}`);
  const make =
    world === 'core'
      ? (
          (moduleOf) => () =>
            new CoreVector(moduleOf)
        )(await modulesOf(CORE_MODULES))
      : (
          (formats) => () =>
            new FormatsVector(formats)
        )(await Formats.load());
  let ran = 0;
  for (const vector of vectors) {
    const { name: title, steps, host, ...rest } = vector;
    assert.deepEqual(Object.keys(rest), [], `${name}: ${title}: unknown keys`);
    if (host !== undefined) {
      // Node has no fork that copies a process.
      assert.equal(host, 'fork', `${name}: ${title}: a host that is not known`);
      continue;
    }
    const run = make();
    for (const [at, step] of steps.entries()) {
      const where = `${name}: ${title}: step ${at}: ${JSON.stringify(step).slice(0, 400)}`;
      try {
        kindOf(step);
        const { call, args, on, drop, answer, with: given, rebuild, by, source, ...expected } = step;
        assert.deepEqual(run.step(step), expected);
      } catch (error) {
        throw new Error(`${where}\n${error.message}`, { cause: error });
      }
    }
    ran += 1;
  }
  return ran;
}
