/**
 * The instance of the component that the generators of one `Ids` live in. No call into it waits for anything.
 *
 * A trap poisons an instance for good. It is then dropped with everything that it was granted, and the next call builds
 * another; generators are opened again as they are used, above what their predecessors may have handed out.
 *
 * @module
 */

import { Core, Trap, type Answer, type WasmModule } from './component.js';
import { IdsError } from './errors.js';
import { shown } from './names.js';
import { said } from './said.js';
import { Requests, type Asker, type Storage } from './storage.js';
import { InstanceTickets } from './tickets.js';
import { monotonicMs } from './wait.js';

/**
 * The pause before a rebuild when a trap follows another; it doubles with each further one. A fault that repeats must
 * not burn a worker id or a segment per call.
 */
const REBUILD_PAUSE_MS = 1_000;
/** The longest pause: of a fault that stays, a worker a minute is burnt, and each is free again after its horizon. */
const REBUILD_PAUSE_MAX_MS = 60_000;
/** Traps count as one fault until there was none for so long. */
const CALM_MS = 600_000;

/** The traps of one fault, and when the next instance may be built. */
export class Traps {
  inARow = 0;
  private lastMs = Number.NEGATIVE_INFINITY;

  record(nowMs: number): void {
    this.inARow = nowMs - this.lastMs < CALM_MS ? this.inARow + 1 : 1;
    this.lastMs = nowMs;
  }

  /** How long no instance may be built, in milliseconds. */
  pauseLeft(nowMs: number): number {
    if (this.inARow < 2) {
      return 0;
    }
    const pause = Math.min(REBUILD_PAUSE_MS * 2 ** Math.min(this.inARow - 2, 16), REBUILD_PAUSE_MAX_MS);
    return Math.max(Math.ceil(pause - (nowMs - this.lastMs)), 0);
  }
}

/** What is opened in an instance. */
export interface Handle {
  drop(): void;
}

/** A generator, as its lane sees it. */
export interface Opening<Opened extends Handle> extends Asker {
  /** Opens it in this instance, above what its predecessors were granted. */
  open(core: Core): Answer<Opened>;
  /** Its instance is gone. */
  lost(): void;
}

interface Instance {
  readonly core: Core;
  readonly requests: Requests;
  readonly tickets: InstanceTickets;
  readonly handles: Map<Opening<Handle>, Handle>;
}

export class Lane {
  private instance: Instance | undefined;
  private readonly traps = new Traps();
  private isCalled = false;

  constructor(
    private readonly moduleOf: (name: string) => WasmModule,
    private readonly storage: Storage,
    private readonly clock: () => number,
  ) {}

  /** Builds the first instance. @throws {IdsError} `component` */
  begin(): void {
    try {
      this.instance = this.build();
    } catch (error) {
      throw new IdsError('component', `the component cannot be used: ${messageOf(error)}`, {}, error);
    }
  }

  /**
   * What the clock shows, in Unix milliseconds. Before 1970 it shows 0.
   *
   * A clock may be the program's own, and call anything here. So it is read before anything else is: what a call knows
   * of its generator it has read after that, and no code of the program's runs until it has written down what it takes.
   */
  nowMs(): number {
    let shows: unknown;
    try {
      shows = this.clock();
    } catch (error) {
      throw new IdsError('options-invalid', `the clock (now) failed: ${messageOf(error)}`, { argument: 'now' }, error);
    }
    const now = typeof shows === 'number' ? Math.floor(shows) : Number.NaN;
    if (!Number.isSafeInteger(now)) {
      const what = `the clock (now) shows ${said(shows)}, it must show a number of milliseconds since 1970`;
      throw new IdsError('number-invalid', what, { argument: 'now' });
    }
    return Math.max(now, 0);
  }

  /**
   * Calls the component for one generator. It runs none of the program's code.
   *
   * @throws {IdsError} `rebuilt` after a trap, once; `component` for options that it refuses.
   */
  call<Opened extends Handle, Value>(generator: Opening<Opened>, act: (handle: Opened) => Value): Value {
    if (this.isCalled) {
      // No import calls back. So the call before was cut in the middle, as a platform does that limits time: nobody
      // knows what its instance would do.
      this.isCalled = false;
      throw this.trapped(generator.name, new Trap('a call into it was cut in the middle'));
    }
    const instance = this.current(generator.name);
    instance.requests.asker = generator;
    this.isCalled = true;
    try {
      let handle = instance.handles.get(generator) as Opened | undefined;
      if (handle === undefined) {
        const opened = generator.open(instance.core);
        if (opened.tag === 'err') {
          const what = `the component refused to open ${shown(generator.name)}: ${JSON.stringify(opened.val.tag)}`;
          const argument = typeof opened.val.val === 'string' ? opened.val.val : '';
          throw new IdsError('options-invalid', `${what} ${argument}`, { argument });
        }
        handle = opened.val;
        instance.handles.set(generator, handle);
      }
      return act(handle);
    } catch (error) {
      if (error instanceof Trap) {
        throw this.trapped(generator.name, error);
      }
      throw error;
    } finally {
      this.isCalled = false;
      instance.requests.asker = undefined;
    }
  }

  /** Takes a generator out that has ended in the component, and that nobody calls any more. */
  remove(generator: Opening<Handle>): void {
    const { instance } = this;
    const handle = instance?.handles.get(generator);
    instance?.requests.forget(generator);
    instance?.handles.delete(generator);
    try {
      handle?.drop();
    } catch (error) {
      if (!(error instanceof Trap)) {
        throw error;
      }
      this.trapped(generator.name, error);
    }
  }

  /** Whether the generator is open in the present instance. */
  has(generator: Opening<Handle>): boolean {
    return this.instance?.handles.has(generator) === true;
  }

  /** Ends the requests of a generator that are overdue: whoever began them is gone, with the timer that would have. */
  giveUpOverdue(generator: Opening<Handle>): void {
    this.instance?.requests.giveUpOverdue(generator);
  }

  /** @internal Gives the instance up as after a trap: for tests. */
  trap(name: string, reason: string): IdsError {
    return this.trapped(name, new Trap(reason));
  }

  private current(name: string): Instance {
    if (this.instance !== undefined) {
      return this.instance;
    }
    const left = this.traps.pauseLeft(monotonicMs());
    if (left > 0) {
      const reason = `it failed ${this.traps.inARow} times, and is built again in ${left} ms`;
      throw rebuilt(name, reason, left);
    }
    try {
      this.instance = this.build();
      return this.instance;
    } catch (error) {
      this.traps.record(monotonicMs());
      throw rebuilt(name, messageOf(error), Math.max(this.traps.pauseLeft(monotonicMs()), 1));
    }
  }

  private build(): Instance {
    const tickets = new InstanceTickets();
    const requests = new Requests(this.storage, tickets);
    const core = new Core(this.moduleOf, tickets.imports(requests));
    return { core, requests, tickets, handles: new Map() };
  }

  private trapped(name: string, trap: Trap): IdsError {
    const { instance } = this;
    this.instance = undefined;
    const nowMs = monotonicMs();
    this.traps.record(nowMs);
    if (instance !== undefined) {
      // Whatever is answered from here on is burnt.
      instance.tickets.segments.clear();
      instance.tickets.leases.clear();
      for (const generator of instance.handles.keys()) {
        generator.lost();
      }
    }
    return rebuilt(name, trap.message, Math.max(this.traps.pauseLeft(nowMs), 1));
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function rebuilt(name: string, reason: string, retryAfterMs: number): IdsError {
  const what = `the component of ${shown(name)} failed, and its grants are abandoned: try again (${reason})`;
  return new IdsError('rebuilt', what, { retryAfterMs });
}
