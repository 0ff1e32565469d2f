// The same page for a bundler: it imports the package by its name.

import { Formats, Ids } from 'unalike';
import { RemoteStore } from 'unalike/remote';
import { work } from './work.mjs';

globalThis.outcome = work({ Formats, Ids, RemoteStore });
