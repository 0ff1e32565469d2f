// All modules as base64: the build makes them.

export const allModules: Readonly<Record<string, string>>;
