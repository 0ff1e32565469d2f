/** The statements of the SQLite adapter, by the names of their files, for where no files can be read. */
export const statements: Readonly<Record<string, string>>;
