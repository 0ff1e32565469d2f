import type { Database } from './mysql-database.js';
import type { Lease, LeaseAcquire, LeaseExtend } from './store.js';
export class MysqlLeases {
  constructor(_database: Database) {}
  acquire(_r: LeaseAcquire): Promise<Lease> { throw new Error('todo'); }
  extend(_r: LeaseExtend): Promise<Lease> { throw new Error('todo'); }
  release(_n: string, _w: number, _g: bigint, _e: bigint): Promise<boolean> { throw new Error('todo'); }
  identity(): Promise<string> { throw new Error('todo'); }
}
