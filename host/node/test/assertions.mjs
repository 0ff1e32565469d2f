// What tests claim, where there may be no `node:assert`: in pages.

const shown = (value) =>
  JSON.stringify(value, (_, part) => (typeof part === 'bigint' ? `${part}n` : (part ?? String(part))));

/** Whether two values are the same, part by part: a part that is `undefined` is not the same as none. */
function isSame(one, other) {
  if (typeof one !== 'object' || typeof other !== 'object' || one === null || other === null) {
    return Object.is(one, other);
  }
  const keys = Object.keys(one);
  return (
    Array.isArray(one) === Array.isArray(other) &&
    keys.length === Object.keys(other).length &&
    keys.every((key) => Object.hasOwn(other, key) && isSame(one[key], other[key]))
  );
}

export const assert = {
  ok(holds, what = 'it does not hold') {
    if (!holds) {
      throw new Error(what);
    }
  },
  equal(seen, expected, what = '') {
    assert.ok(Object.is(seen, expected), `${what}: ${shown(seen)} is not ${shown(expected)}`);
  },
  deepEqual(seen, expected, what = '') {
    assert.ok(isSame(seen, expected), `${what}: ${shown(seen)} is not ${shown(expected)}`);
  },
  match(text, pattern) {
    assert.ok(pattern.test(text), `${shown(text)} does not match ${pattern}`);
  },
};
