/**
 * Segments and leases from unalike servers, in Node.
 *
 * @module
 */

import { openNode } from './http-node.js';
import { setHttp } from './http.js';

setHttp(openNode);

export * from './remote.js';
