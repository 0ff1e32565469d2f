/**
 * unalike with the component's bytes in its code: for bundlers that copy no files, such as esbuild.
 *
 * @module
 */

import { allModules } from './glue/all-bytes.js';
import { compile, setLoader } from './modules.js';

setLoader((name) => {
  const base64 = allModules[name];
  if (base64 === undefined) {
    throw new Error('there is no such module');
  }
  return compile(base64);
});

export * from './all.js';
