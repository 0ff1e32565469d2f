/** What every entry of the package has. @module */

export { Batch } from './batch.js';
export type { Run } from './component.js';
export { IdsError, type IdsErrorFigures, type IdsErrorKind } from './errors.js';
export {
  Format,
  Formats,
  type FormatKey,
  type FormatOptions,
  type Instant,
  type Issued,
  type RestartingFormat,
} from './formats.js';
export type { KeyCheck, Notation, Parts, Restart } from './formats-component.js';
export { Formatted, FormattedBatch } from './formatted.js';
export type { WaitOptions } from './generator.js';
export { Ids, type IdsOptions } from './ids.js';
export { layoutText, PRESETS, type LayoutText, type PresetName } from './layouts.js';
export { MemoryStore, type MemoryOptions } from './memory.js';
export { DEFAULT_TAG_OPTIONS } from './names.js';
export type { Sequence, SequenceOptions, SequenceStatus } from './sequence.js';
export type { ClockPolicy, Snowflake, SnowflakeOptions, SnowflakeStatus, Spread } from './snowflake.js';
export * from './store.js';
export type { AbortSignalLike } from './wait.js';
