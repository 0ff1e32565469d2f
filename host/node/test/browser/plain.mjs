// A page without a bundler: it imports the files of the package as they are.

import { Formats, Ids } from '/dist/browser.js';
import { RemoteStore } from '/dist/remote.js';
import { work } from './work.mjs';

globalThis.outcome = work({ Formats, Ids, RemoteStore });
