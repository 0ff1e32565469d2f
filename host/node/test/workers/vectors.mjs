// A Worker that runs the conformance vectors that it is sent, and answers how many. A changed one must fail.

import '../../dist/workers.js';
import { runFile } from '../vectors.mjs';

export { UnalikeObject } from '../../dist/workers.js';

export default {
  async fetch(request) {
    const name = new URL(request.url).pathname.slice(1);
    const file = await request.json();
    const ran = await runFile(name, file);
    const steps = file.vectors.filter(({ host }) => host === undefined).flatMap((vector) => vector.steps);
    const step = steps.findLast(({ returns }) => /"[0-9]+"/.test(JSON.stringify(returns ?? null)));
    const digit = ([last]) => `${(Number(last) + 1) % 10}"`;
    step.returns = JSON.parse(JSON.stringify(step.returns).replace(/[0-9]"/, digit));
    const failed = await runFile(name, file).then(() => undefined, String);
    return Response.json({ ran, failed });
  },
};
