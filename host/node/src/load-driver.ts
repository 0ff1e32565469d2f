/**
 * Drivers of databases: packages that a program installs when it needs them.
 *
 * @module
 */

import { StoreError } from './store.js';

/**
 * A driver, which `load` imports.
 *
 * @throws {StoreError} `refused`, when the package is not installed.
 */
export async function loadDriver<Driver>(stores: string, name: string, load: () => Promise<Driver>): Promise<Driver> {
  try {
    return await load();
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === 'ERR_MODULE_NOT_FOUND' && message.includes(`'${name}'`)) {
      throw new StoreError('refused', `${stores} need ${name}: npm install ${name}`, { cause: error });
    }
    throw error;
  }
}
