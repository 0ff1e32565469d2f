// What `jco transpile` makes of the component of the world `formats`. The build puts the code beside this file.

import type { WasmModule } from '../component.js';
import type { FormatsExports } from '../formats-component.js';

export function instantiate(moduleOf: (name: string) => WasmModule, imports: object): FormatsExports;
