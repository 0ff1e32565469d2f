/**
 * Values and names as messages show them.
 *
 * @module
 */

/** A value for messages, as programs write it. */
export function said(value: unknown): string {
  switch (typeof value) {
    case 'bigint':
      return `${value}n`;
    case 'string':
      return quoted(value.slice(0, 40));
    case 'object':
      return value === null ? 'null' : Array.isArray(value) ? 'an array' : 'an object';
    case 'function':
      return 'a function';
    default:
      return String(value);
  }
}

/** What Rust's messages do not show as it is, either: it has no shape, and could be taken for nothing at all. */
const UNSEEN = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/u;
const ESCAPES: Readonly<Record<string, string>> = {
  '"': '\\"',
  '\\': '\\\\',
  '\n': '\\n',
  '\r': '\\r',
  '\t': '\\t',
  '\0': '\\0',
};

/** A text in quotes, whose every letter can be seen. */
export function quoted(text: string): string {
  const letters = Array.from(text, (letter) => {
    const hex = (letter.codePointAt(0) ?? 0).toString(16);
    return ESCAPES[letter] ?? (UNSEEN.test(letter) ? `\\u{${hex}}` : letter);
  });
  return `"${letters.join('')}"`;
}
