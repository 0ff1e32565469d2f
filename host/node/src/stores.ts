/**
 * Any store by its URL, as the `unalike` command and its server open it: the host in Rust talks to it.
 *
 * @module
 */

import { checkAddress } from './address.js';
import { checkedOptions, FLAG, NUMBER, SECRET, wholeFrom, type Kinds } from './options.js';
import { openStores, RustStore } from './rust-store.js';
import { refusedByStore } from './store.js';

/** How a store is opened, beside its URL. */
export interface StoreOptions {
  /**
   * The URL of the durable store behind one in Redis; `none` if there is none, and ids are only as safe as that Redis
   * is.
   */
  readonly backing?: string;
  /**
   * The URL of the store that leases workers, or `none`. By default the durable store of the sequences; none for a set
   * of stores.
   */
  readonly leases?: string;
  /** For unalike servers, of the scope `lease`. */
  readonly token?: string;
  /** Whether tags are created by their first use. By default they are in a store of unalike's own. */
  readonly createTags?: boolean;
  /** How many tags there may be, sub-keys not counted: 1,000,000 by default. */
  readonly tagsMax?: bigint | number;
  /** How far ahead of the store's clock a lease may reach: 1 ms to 366 days, 10 minutes by default. */
  readonly leaseHorizonMaxMs?: number;
  /** How far a holder's clock may be from the store's: up to an hour, 10 s by default. */
  readonly leaseSkewMaxMs?: number;
}

const OPTIONS: Kinds<StoreOptions> = {
  // Each may have a password in it.
  backing: SECRET,
  leases: SECRET,
  token: SECRET,
  createTags: FLAG,
  tagsMax: NUMBER,
  leaseHorizonMaxMs: wholeFrom(1, 366 * 24 * 60 * 60 * 1000),
  leaseSkewMaxMs: wholeFrom(0, 60 * 60 * 1000),
};

/**
 * Segments and leases in the store that a URL names.
 *
 * `mysql://ids@db.example/ids`, `postgres://ids@db.example/ids`, `etcd://host:2379`,
 * `redis+sentinel://h1:26379,h2:26379/ids` above a durable store, and all others that the `unalike` command knows, with
 * the same parameters. A list of URLs is a set of stores, its stripes.
 *
 * A request whose answer is lost counts as done, and what it granted is never offered again. Each thread opens its own.
 *
 * ```js
 * import { Ids } from 'unalike';
 * import { Store } from 'unalike/stores';
 *
 * const store = await Store.open('postgres://ids@db.example/ids?password-env=DB_PASSWORD');
 * const ids = await Ids.open({ segments: store, leases: store });
 * ```
 */
export class Store extends RustStore {
  /**
   * Connects to the store of the sequences, and checks it; unalike servers, and stores that only lease workers, are
   * connected to when they are first asked.
   *
   * @param url Where the store is, or the stripes of a set in their order. A password belongs into the parameter
   *   `password-file` or `password-env`.
   * @throws {StoreError} `unavailable` when the store does not answer; `refused` when it denies access, when grants
   *   cannot rest on it, and for options that are wrong. Each says what to do.
   */
  static async open(url: string | readonly string[], options: StoreOptions = {}): Promise<Store> {
    const given = checkedOptions('options', options, OPTIONS, refusedByStore);
    const place = Array.isArray(url)
      ? (url as unknown[]).map((one) => checkAddress('the address of a stripe', one))
      : checkAddress('the address of the store', url);
    return new Store(await openStores({ ...given, store: place }));
  }
}
