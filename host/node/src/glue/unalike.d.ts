// What `jco transpile` makes of the component of the world `core`: written here by hand, since what jco writes names the
// imports otherwise than its code reads them. The build puts the code beside this file.

import type { CoreExports, CoreImports, WasmModule } from '../component.js';

export function instantiate(moduleOf: (name: string) => WasmModule, imports: CoreImports): CoreExports;
