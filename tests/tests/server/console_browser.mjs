// A browser for console.rs: each line of the standard input is a command in JSON, and each is answered by a line.
//
// `{"open": URL, "width", "height", "dark"}` shows a page in a tab of its own, `{"run": EXPRESSION}` answers what it is
// in the page, `{"until": EXPRESSION}` waits until it is true there, `{"type": TEXT}` and `{"press": KEY}` are keys,
// `{"reload": true}` loads the page again, `{"picture": FILE}` writes a picture of the whole page, `{"width", "height",
// "dark"}` changes these, `{"controls": true}` answers the role and name of each control, as who sees nothing is told
// them, and `{"said": true}` what the browser has complained of since the page was opened.

import { writeFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

import { Chromium } from '../../../host/node/test/chromium.mjs';

const PATIENCE_MS = 60_000;
const CONTROLS = new Set(['button', 'textbox', 'searchbox', 'combobox', 'spinbutton', 'link', 'DisclosureTriangle', 'image']);

const browser = await Chromium.start();
let tab;
let said = [];
let isLoaded;

async function look({ width = 1_120, height = 900, dark = false }) {
  await tab.send('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile: width < 500 });
  const features = [{ name: 'prefers-color-scheme', value: dark ? 'dark' : 'light' }];
  await tab.send('Emulation.setEmulatedMedia', { features });
}

async function open(command) {
  await tab?.close();
  said = [];
  tab = await browser.tab((method, params) => {
    if (method === 'Page.loadEventFired') {
      isLoaded();
    } else if (method === 'Log.entryAdded') {
      // An answer with such a status is said in words by the page.
      if (params.entry.source !== 'network') {
        said.push(`${params.entry.source}: ${params.entry.text}`);
      }
    } else if (method === 'Runtime.exceptionThrown') {
      said.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
    } else if (method === 'Runtime.consoleAPICalled') {
      said.push(`console: ${params.args.map(({ value }) => value).join(' ')}`);
    } else if (method === 'Audits.issueAdded') {
      if (params.issue.code === 'ContentSecurityPolicyIssue') {
        said.push(`policy: ${JSON.stringify(params.issue.details)}`);
      }
    } else if (method === 'Network.requestWillBeSent') {
      if (new URL(params.request.url).origin !== new URL(command.open).origin && !params.request.url.startsWith('data:')) {
        said.push(`a request to ${params.request.url}`);
      }
    }
  });
  for (const domain of ['Page', 'Log', 'Runtime', 'Audits', 'Network', 'Accessibility']) {
    await tab.send(`${domain}.enable`);
  }
  // Where they are, they take room of the page, and pictures have none.
  await tab.send('Emulation.setScrollbarsHidden', { hidden: true });
  await look(command);
  await load('Page.navigate', { url: command.open });
}

/** Waits until the page is loaded: what is asked before may be answered by the page that was there. */
async function load(method, params) {
  const loaded = new Promise((resolve) => (isLoaded = resolve));
  const { errorText } = await tab.send(method, params);
  if (errorText !== undefined) {
    throw new Error(`${params.url}: ${errorText}`);
  }
  await Promise.race([loaded, browser.ended]);
}

/** What an expression is in the page. The page's own policy goes on to hold. */
async function run(expression) {
  const evaluated = { expression, awaitPromise: true, returnByValue: true, allowUnsafeEvalBlockedByCSP: false };
  const { result, exceptionDetails } = await tab.send('Runtime.evaluate', evaluated);
  if (exceptionDetails !== undefined) {
    throw new Error(`${expression}: ${exceptionDetails.exception?.description ?? exceptionDetails.text}`);
  }
  return result.value ?? null;
}

async function until(expression) {
  const end = performance.now() + PATIENCE_MS;
  // A page that is being loaded again has nothing of it.
  while (!(await run(expression).catch(() => false))) {
    if (performance.now() > end) {
      throw new Error(`it did not become so: ${expression}; ${said.join('; ')}; ${await run('document.body.innerText')}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return null;
}

async function press(key) {
  const code = { Tab: 9, Enter: 13, Escape: 27 }[key];
  const event = { key, code: key, windowsVirtualKeyCode: code, text: key === 'Enter' ? '\r' : undefined };
  await tab.send('Input.dispatchKeyEvent', { type: 'keyDown', ...event });
  await tab.send('Input.dispatchKeyEvent', { type: 'keyUp', ...event });
}

async function picture(file) {
  const { cssContentSize: { width, height } } = await tab.send('Page.getLayoutMetrics');
  const clip = { x: 0, y: 0, width, height, scale: 1 };
  const { data } = await tab.send('Page.captureScreenshot', { format: 'png', clip, captureBeyondViewport: true });
  writeFileSync(file, Buffer.from(data, 'base64'));
}

async function controls() {
  const { nodes } = await tab.send('Accessibility.getFullAXTree');
  const known = nodes.filter(({ ignored, role }) => !ignored && CONTROLS.has(role?.value));
  return known.map(({ role, name }) => ({ role: role.value, name: name?.value ?? '' }));
}

async function answer(command) {
  if (command.open !== undefined) return open(command);
  if (command.reload !== undefined) return load('Page.reload', {});
  if (command.run !== undefined) return run(command.run);
  if (command.until !== undefined) return until(command.until);
  if (command.type !== undefined) return tab.send('Input.insertText', { text: command.type });
  if (command.press !== undefined) return press(command.press);
  if (command.picture !== undefined) return picture(command.picture);
  if (command.controls !== undefined) return controls();
  if (command.said !== undefined) return said;
  return look(command);
}

try {
  for await (const line of createInterface({ input: process.stdin })) {
    let answered;
    try {
      answered = { is: (await answer(JSON.parse(line))) ?? null };
    } catch (error) {
      answered = { failed: error.message };
    }
    process.stdout.write(`${JSON.stringify(answered)}\n`);
  }
} finally {
  await browser.close();
}
