// The small modules as base64: the build makes them.

export const smallModules: Readonly<Record<string, string>>;
