// A page that runs all conformance vectors, and answers how many of each file. A changed one must fail.

import '/dist/browser.js';
import { runFile } from '/test/vectors.mjs';

async function all() {
  const ran = {};
  for (const name of await (await fetch('/vectors/names.json')).json()) {
    const file = await (await fetch(`/vectors/${name}`)).json();
    ran[name] = await runFile(name, file);
    const steps = file.vectors.filter(({ host }) => host === undefined).flatMap((vector) => vector.steps);
    const step = steps.findLast(({ returns }) => /"[0-9]+"/.test(JSON.stringify(returns ?? null)));
    const digit = ([last]) => `${(Number(last) + 1) % 10}"`;
    step.returns = JSON.parse(JSON.stringify(step.returns).replace(/[0-9]"/, digit));
    const failed = await runFile(name, file).then(() => undefined, String);
    if (!/step [0-9]+/.test(failed)) {
      throw new Error(`${name}: a changed digit went unnoticed: ${failed}`);
    }
  }
  return ran;
}

globalThis.outcome = all();
