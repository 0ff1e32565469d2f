// The console of an unalike server: asks it for its figures every few seconds, and draws them.
//
// Whatever the server says is shown as text, never as markup. Ids and other numbers of 64 bits are strings and BigInts.

const EVERY_MS = 5_000;
/** Without a token that is good there is nothing to see: the server is asked less often. */
const REFUSED_EVERY_MS = 30_000;
const SOON_MS = 1_200;
const ANSWER_MAX_MS = 10_000;
/** So many samples are drawn at least, that a server which has just started shows more than a dot. */
const SLOTS_MIN = 24;
const LEASES_DRAWN = 40;
const KEY = 'unalike-token';

const at = (id) => document.getElementById(id);

/** A text whose letters are shown in the order that they have: a name could turn around the sentence that it is in. */
const plain = (text) =>
  text.replaceAll(/[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (mark) => `\\u{${mark.codePointAt(0).toString(16)}}`);

// Elements. Children that are no nodes become text.

function fill(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined) {
      element.append(child instanceof Node ? child : plain(String(child)));
    }
  }
  return element;
}

function html(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  Object.entries(attributes).forEach(([key, value]) => value !== undefined && element.setAttribute(key, value));
  return fill(element, children);
}

function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name);
  Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
  return fill(element, children);
}

const drawing = (label, kind, width, height, ...children) =>
  svg('svg', {
    class: kind, viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': label,
  }, ...children);

function setText(element, text) {
  const shown = plain(text);
  if (element.textContent !== shown) {
    element.textContent = shown;
  }
}

/** Puts children in place of what is there, unless `key` says that it is the same: nobody is told twice. */
function put(element, key, ...children) {
  if (element.dataset.key !== key) {
    element.dataset.key = key;
    element.replaceChildren();
    fill(element, children);
  }
}

function facts(list, entries) {
  const known = list.querySelectorAll('dt');
  const names = entries.map(([name]) => name);
  if (names.join('\n') !== [...known].map((term) => term.textContent).join('\n')) {
    list.replaceChildren(...names.map((name) => html('div', {}, html('dt', {}, name), html('dd'))));
  }
  entries.forEach(([, value, ...more], index) => {
    const place = list.children[index].lastElementChild;
    if (more.length === 0) {
      setText(place, value);
    } else {
      place.replaceChildren();
      fill(place, [value, ' ', more]);
    }
  });
}

// Words.

const whole = (text) => BigInt(text).toLocaleString('en');
const three = new Intl.NumberFormat('en', { maximumSignificantDigits: 3 });
const rate = (value) => (value >= 100 ? Math.round(value).toLocaleString('en') : three.format(value));
const clock = (text) => `${text.slice(0, 10)} ${text.slice(11, 19)} UTC`;
const tell = (count, one, many) => `${whole(count)} ${BigInt(count) === 1n ? one : many}`;

function duration(seconds) {
  if (seconds < 1) {
    return seconds <= 0 ? '0 s' : 'less than 1 s';
  }
  const units = [[86_400, 'd'], [3_600, 'h'], [60, 'min'], [1, 's']];
  const first = units.findIndex(([size]) => seconds >= size);
  const [size, unit] = units[first];
  const count = Math.floor(seconds / size);
  const next = units[first + 1];
  if (next === undefined || count >= 10) {
    return `${count.toLocaleString('en')} ${unit}`;
  }
  const rest = Math.floor((seconds - count * size) / next[0]);
  return rest === 0 ? `${count} ${unit}` : `${count} ${unit} ${rest} ${next[1]}`;
}

function milliseconds(value) {
  const [amount, unit] = value < 1 ? [value * 1_000, 'µs'] : value < 1_000 ? [value, 'ms'] : [value / 1_000, 's'];
  return `${three.format(amount)} ${unit}`;
}

// Requests.

let token = sessionStorage.getItem(KEY);

/** What could not be done, in words. */
class Trouble extends Error {
  constructor(status, title, detail, problem = undefined) {
    super(detail);
    Object.assign(this, { status, title, problem });
  }

  note() {
    const document = this.problem && html('pre', {}, JSON.stringify(this.problem, null, 2));
    return html('div', { class: 'note bad' }, html('p', {}, html('strong', {}, this.title), ': ', this.message),
      document && html('details', {}, html('summary', {}, 'What the server answered'), document));
  }
}

async function ask(method, path, body = undefined) {
  const headers = { Accept: 'application/json' };
  if (token !== null) {
    headers.Authorization = `Bearer ${token}`;
  }
  if (body !== undefined) {
    headers['Content-Type'] = 'application/json';
  }
  let response;
  let text;
  try {
    const signal = AbortSignal.timeout(ANSWER_MAX_MS);
    response = await fetch(path, { method, headers, body: body && JSON.stringify(body), cache: 'no-store', signal });
    text = await response.text();
  } catch (error) {
    const is_slow = error.name === 'TimeoutError';
    const why = is_slow ? `gave no answer within ${ANSWER_MAX_MS / 1_000} s` : 'does not answer';
    throw new Trouble(0, 'The server cannot be reached', `${location.host} ${why}`);
  }
  let answer;
  try {
    answer = JSON.parse(text);
  } catch {
    const what = `${location.host} answered ${response.status} without JSON`;
    throw new Trouble(response.status, 'No answer of an unalike server', what);
  }
  if (!response.ok) {
    const title = answer?.title ?? `Status ${response.status}`;
    throw new Trouble(response.status, title, answer?.detail ?? text, answer ?? undefined);
  }
  return answer;
}

// Drawings of numbers over time, the newest at the right. -1 is none.

function runs(values, top, width, height) {
  const slots = Math.max(values.length, SLOTS_MIN);
  const x = (index) => ((slots - values.length + index) / (slots - 1)) * width;
  const y = (value) => height - 1 - (value / top) * (height - 3);
  const found = [];
  let run = [];
  values.forEach((value, index) => {
    if (value < 0) {
      run = [];
    } else {
      if (run.length === 0) {
        found.push(run);
      }
      run.push([x(index).toFixed(1), y(value).toFixed(1)]);
    }
  });
  return found;
}

function curve(values, top, width, height, kind) {
  return runs(values, top, width, height).map((run) => {
    const [first, ...rest] = run;
    const is_dot = rest.length === 0;
    const path = `M${first.join(' ')}${is_dot ? 'h0' : rest.map((point) => `L${point.join(' ')}`).join('')}`;
    return svg('path', { class: `curve ${kind}${is_dot ? ' dot' : ''}`, d: path });
  });
}

function spark(label, values, show) {
  const [width, height] = [240, 28];
  const known = values.filter((value) => value >= 0);
  const top = Math.max(...known, 1e-9);
  const areas = runs(values, top, width, height).filter((run) => run.length > 1).map((run) =>
    svg('path', {
      class: 'area',
      d: `M${run[0][0]} ${height}${run.map((point) => `L${point.join(' ')}`).join('')}L${run.at(-1)[0]} ${height}Z`,
    }));
  const said = known.length === 0 ? 'none' : `from ${show(Math.min(...known))} to ${show(Math.max(...known))}`;
  return drawing(`${label} until now: ${said}`, 'spark', width, height, areas,
    curve(values, top, width, height, 'c1'));
}

// The state of the server.

function showState(kind, words) {
  const pill = at('state');
  pill.className = `pill ${kind}`;
  setText(pill, words);
}

function showReady(ready, server) {
  const note = at('ready-note');
  if (server.ending) {
    showState('warn', 'Ending');
  } else if (ready.status === 'ready') {
    showState('good', 'Ready');
  } else if (ready.status === 'covered') {
    showState('warn', 'Store down, ids go on');
  } else {
    showState('bad', 'Not ready');
  }
  if (ready.status === 'covered') {
    const { cover_seconds: seconds, tag } = ready;
    const lasts = seconds === null ? 'No tag is in use.' : `The tag ${JSON.stringify(tag)} is used up first.`;
    const left = typeof seconds === 'number' ? ` Its numbers last for ${duration(seconds)}.` : '';
    put(note, JSON.stringify([ready.store_down_since, tag]), html('div', { class: 'note warn' }, html('p', {},
      html('strong', {}, 'The store is down'),
      ` since ${clock(ready.store_down_since)}. Ids come from what it granted before. ${lasts}`), html('p')));
    setText(note.querySelector('p:last-child'), left.trim());
  } else if (ready.status === 'not-ready') {
    const { title, detail, ...others } = ready.problem;
    const since = others.store_down_since ?? others.stopped_since;
    put(note, `${title}${detail}${since}`, html('div', { class: 'note bad' }, html('p', {}, html('strong', {}, title),
      `: ${detail}`, since === undefined ? '' : `, since ${clock(since)}`)));
  } else {
    put(note, '');
  }
}

function showNow({ server, series, tags_open: open, least_cover_seconds: least, snowflakes }) {
  const last = (values) => (values.length === 0 ? 0 : Math.max(values.at(-1), 0));
  const over = (label, values, note = '') =>
    [rate(last(values)), html('small', {}, note), spark(label, values, rate)];
  facts(at('tiles'), [
    ['Ids per second', ...over('Ids per second', series.ids_per_second)],
    ['Requests per second', ...over('Requests per second', series.requests_per_second)],
    ['Refused per second', ...over('Refused requests per second', series.refused_per_second, '4xx')],
    ['Failed per second', ...over('Failed requests per second', series.failed_per_second, '5xx')],
    ['Least cover', least === null ? 'no tag in use' : duration(least)],
    ['Open', tell(open, 'tag', 'tags'), html('small', {}, tell(snowflakes.length, 'snowflake', 'snowflakes'))],
    ['Connections', whole(server.connections_open),
      html('small', {}, server.connections_refused === '0' ? '' : `${whole(server.connections_refused)} refused`)],
    ['Up for', duration(server.uptime_seconds)],
  ]);
}

function showStore({ store, series, ready }) {
  const entries = [['Address', store.address]];
  if (store.backing !== null) {
    entries.push(['Backed by', store.backing]);
  }
  entries.push(['Workers are leased from', store.leases ?? 'nowhere']);
  entries.push(['Identity', store.identity ?? 'none said']);
  const last = (values, show) => {
    const known = values.filter((value) => value >= 0);
    return known.length === 0 ? 'none yet' : show(known.at(-1));
  };
  entries.push(['Grants per second', last(series.grants_per_second, rate)]);
  entries.push(['Failed grants per second', last(series.grant_failures_per_second, rate)]);
  entries.push(['Last grants took', last(series.grant_median_ms, milliseconds)]);
  const is_silent = ready.status !== 'ready' && (series.probe_ms.at(-1) ?? 0) < 0;
  const answers = last(series.probe_ms, milliseconds);
  entries.push(['It answers within', is_silent ? `no answer now (last: ${answers})` : answers]);
  facts(at('store'), entries);

  const lines = [[series.probe_ms, 'c3'], [series.grant_longest_ms, 'c2'], [series.grant_median_ms, 'c1']];
  const known = lines.flatMap(([values]) => values.filter((value) => value >= 0));
  const top = Math.max(...known, 0.01);
  const [width, height] = [1_000, 120];
  const said = known.length === 0 ? 'no requests' : `up to ${milliseconds(Math.max(...known))}`;
  const minutes = Math.round((Math.max(series.probe_ms.length, SLOTS_MIN) * series.every_ms) / 60_000);
  const chart = drawing(`How long requests to the store took until now: ${said}`, 'chart', width, height,
    [1, 40, 80, 119].map((y) => svg('path', { class: 'grid', d: `M0 ${y}H${width}` })),
    lines.map(([values, kind]) => curve(values, top, width, height, kind)));
  const top_label = known.length === 0 ? 'no requests yet' : milliseconds(top);
  at('store-times').replaceChildren(
    html('div', { class: 'scale' }, html('span', {}, top_label)), chart,
    html('div', { class: 'scale' }, html('span', {}, `${minutes} min ago`), html('span', {}, 'now')));
}

// Tags. Rows stay while their tag does, so that nobody's place in the table is lost.

const TAG_COLUMNS = ['Tag', 'Mode', 'Ids per second', 'Rate until now', 'Numbers left', 'They last', 'Cover until now'];
const tagRows = new Map();

function tagTable() {
  const region = at('tags-table');
  if (region.firstChild === null) {
    const head = TAG_COLUMNS.map((name, index) =>
      html('th', { scope: 'col', class: [2, 4, 5].includes(index) ? 'number' : undefined }, name));
    region.append(html('table', { class: 'stack' }, html('thead', {}, html('tr', {}, head)), html('tbody')));
  }
  return region.querySelector('tbody');
}

function tagRow(tag) {
  const button = html('button', { type: 'button', class: 'name' }, tag);
  button.addEventListener('click', () => openTag(tag, true));
  const cells = TAG_COLUMNS.slice(1).map((name, index) =>
    html('td', { 'data-label': name, class: [1, 3, 4].includes(index) ? 'number' : undefined }));
  return { row: html('tr', {}, html('th', { scope: 'row' }, button), cells), cells };
}

function showTags({ tags, tags_open: open }) {
  const body = tagTable();
  at('tags-table').hidden = tags.length === 0;
  const wanted = at('filter').value;
  const shown = tags.filter(({ tag }) => tag.includes(wanted));
  shown.sort((one, other) => other.rate - one.rate || (one.tag < other.tag ? -1 : 1));
  const names = new Set(shown.map(({ tag }) => tag));
  for (const [tag, { row }] of tagRows) {
    if (!names.has(tag)) {
      row.remove();
      tagRows.delete(tag);
    }
  }
  for (const figures of shown) {
    if (!tagRows.has(figures.tag)) {
      tagRows.set(figures.tag, tagRow(figures.tag));
    }
    const { cells: [mode, speed, rates, left, lasts, covers] } = tagRows.get(figures.tag);
    const is_ordered = figures.mode === 'ordered';
    setText(mode, figures.mode);
    setText(speed, rate(figures.rate));
    rates.replaceChildren(spark(`Ids per second of ${figures.tag}`, figures.rates, rate));
    setText(left, is_ordered ? 'none' : whole(figures.left));
    const cover = figures.cover_seconds;
    setText(lasts, is_ordered ? 'not without the store' : cover === null ? 'not in use' : duration(cover));
    covers.replaceChildren(is_ordered ? '' : spark(`Seconds that ${figures.tag} lasts`, figures.covers, duration));
  }
  const order = shown.map(({ tag }) => tagRows.get(tag).row);
  const is_new = order.some((row) => row.parentNode !== body);
  const is_moved = order.some((row, index) => body.children[index] !== row);
  // Nobody who is in the table has it move under the hand.
  if (is_new || (is_moved && !body.contains(document.activeElement))) {
    body.append(...order);
  }
  const what = tags.length === 0
    ? 'No tag is open: the first ids of a tag open it.'
    : `${tell(open, 'tag or sub-key is', 'tags and sub-keys are')} open on this server.`;
  const few = tags.length >= 200 ? ' The 200 tags that are used most are shown.' : '';
  const is_none = tags.length > 0 && shown.length === 0;
  const none = is_none ? ` None of those has ${JSON.stringify(wanted)} in its name.` : '';
  setText(at('tags-note'), what + few + none);
}

// One tag.

let openName = null;
let openRecord = null;
const tagPath = (tag) => `/v1/tags/${encodeURIComponent(tag)}`;

const stepWords = (step) =>
  step.policy === 'fixed' ? whole(step.step) : `by demand, ${whole(step.min)} to ${whole(step.max)}`;

function showRecord(record) {
  openRecord = record;
  const refill = record.refill.policy === 'remaining'
    ? `${whole(record.refill.count)} are left` : `${record.refill.percent} % are used`;
  const entries = [
    ['Mode', record.mode], ['First number', whole(record.start)], ['Numbers per grant', stepWords(record.step)],
    ['Next grant when', refill], ['Watermark in the store', whole(record.watermark)],
    ['Version', whole(record.version)],
  ];
  if (record.ceiling !== undefined) {
    entries.push(['Ceiling', `${whole(record.ceiling.cur)} of ${whole(record.ceiling.max)}`]);
  }
  facts(at('tag-facts'), entries);
}

async function refreshTag() {
  const tag = openName;
  if (tag === null) {
    return;
  }
  try {
    const record = await ask('GET', tagPath(tag));
    if (tag === openName) {
      showRecord(record);
      put(at('tag-said'), '');
    }
  } catch (trouble) {
    if (tag === openName) {
      put(at('tag-said'), trouble.title + trouble.message, trouble.note());
    }
  }
}

async function openTag(tag, isAsked) {
  openName = tag;
  openRecord = null;
  setText(at('tag-title'), `Tag ${tag}`);
  at('tag-facts').replaceChildren();
  for (const id of ['take-said', 'step-said', 'raise-said', 'tag-said']) {
    put(at(id), '');
  }
  at('raise').value = '';
  at('step').value = '';
  at('tag').hidden = false;
  if (isAsked) {
    at('tag-title').focus();
    at('tag').scrollIntoView({ block: 'nearest' });
  }
  await refreshTag();
}

function closeTag() {
  const row = tagRows.get(openName);
  openName = null;
  at('tag').hidden = true;
  (row?.row.querySelector('button') ?? at('open-name')).focus();
}

/** Does what a button is for while it cannot be pressed again. Its focus comes back to it, unless it was moved. */
async function whileBusy(button, act) {
  const had_focus = document.activeElement === button;
  button.disabled = true;
  try {
    await act();
  } finally {
    button.disabled = false;
    if (had_focus && document.activeElement === document.body) {
      button.focus();
    }
  }
}

/** Does what a form is for, says what came of it, and has the figures asked for again. */
function onSubmit(form, said, act) {
  at(form).addEventListener('submit', (event) => {
    event.preventDefault();
    void whileBusy(at(form).querySelector('button:not([type=button])'), async () => {
      try {
        const done = await act();
        if (done !== undefined) {
          delete at(said).dataset.key;
          put(at(said), 'done', done);
          void poll();
        }
      } catch (trouble) {
        if (!(trouble instanceof Trouble)) {
          throw trouble;
        }
        delete at(said).dataset.key;
        put(at(said), 'trouble', trouble.note());
      }
    });
  });
}

const good = (...words) => html('p', { class: 'note good' }, words);
const digits = (text) => text.replaceAll(/[\s,_]/g, '');

function ids(answer, name) {
  return html('div', {}, html('p', {}, `${tell(answer.ids.length, 'id was', 'ids were')} taken of ${name}:`),
    html('p', { class: 'ids' }, answer.ids.join('\n')));
}

onSubmit('take-form', 'take-said', async () => {
  const [tag, count] = [openName, Number(at('take-count').value)];
  return ids(await ask('POST', `/v1/sequences/${encodeURIComponent(tag)}/ids`, { count }), tag);
});

/** The tag may be another one when the answer comes. */
async function change(tag, body) {
  const record = await ask('PATCH', tagPath(tag), body);
  if (tag === openName) {
    showRecord(record);
  }
  return record;
}

onSubmit('step-form', 'step-said', async () => {
  const tag = openName;
  const record = await change(tag, { step: { policy: 'fixed', step: digits(at('step').value) } });
  return good(record.unchanged ?? `Each later grant of ${tag} has ${whole(record.step.step)} numbers.`);
});

function isSure(tag, next) {
  const watermark = openRecord === null ? null : BigInt(openRecord.watermark);
  const reached = watermark === null ? '' : `Numbers up to ${whole(watermark)} may have been handed out. `;
  const skipped = /^\d+$/.test(next) && watermark !== null ? BigInt(next) - 1n - watermark : 0n;
  const lost = skipped > 0n ? ` ${tell(skipped, 'number is', 'numbers are')} skipped, and nobody ever gets them.` : '';
  const to = /^\d+$/.test(next) ? whole(next) : JSON.stringify(next);
  const then = `Every later grant of ${tag} begins at ${to} or above.`;
  setText(at('sure-what'), `${reached}${then}${lost} No raise is taken back.`);
  const dialog = at('sure');
  dialog.returnValue = '';
  dialog.showModal();
  at('sure-no').focus();
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => resolve(dialog.returnValue === 'yes'), { once: true });
  });
}

at('sure-no').addEventListener('click', () => at('sure').close('no'));
at('sure-yes').addEventListener('click', () => at('sure').close('yes'));

onSubmit('raise-form', 'raise-said', async () => {
  const [tag, next] = [openName, digits(at('raise').value)];
  if (!(await isSure(tag, next))) {
    return undefined;
  }
  const record = await change(tag, { raise_to: next, confirm: true });
  const first = whole(BigInt(record.watermark) + 1n);
  return good(record.unchanged ?? `Every later grant of ${tag} begins at ${first} or above.`);
});

onSubmit('create-form', 'create-said', async () => {
  const [tag, start, step] = ['create-name', 'create-start', 'create-step'].map((id) => at(id).value);
  const body = { tag, mode: at('create-mode').value };
  if (start !== '') {
    body.start = digits(start);
  }
  if (step !== '') {
    body.step = { policy: 'fixed', step: digits(step) };
  }
  const record = await ask('POST', '/v1/tags', body);
  await openTag(record.tag, false);
  return good(`The tag ${record.tag} was created. It is shown below.`);
});

at('open-form').addEventListener('submit', (event) => {
  event.preventDefault();
  void openTag(at('open-name').value, true);
});
at('tag-close').addEventListener('click', closeTag);

// Snowflakes, and who holds their workers.

const flakes = new Map();

function flakeSection(name, number) {
  const [title, said] = [`flake-${number}`, html('div', { role: 'status' })];
  const section = html('div', { class: 'flake', role: 'group', 'aria-labelledby': title });
  const heading = html('h3', { id: title }, name, ' ');
  const state = html('span', { class: 'tag' });
  const button = html('button', { type: 'button' }, `Take an id of ${name}`);
  const note = html('div');
  const list = html('dl', { class: 'facts' });
  const table = html('div', { class: 'table', role: 'region', 'aria-label': `Leases of ${name}`, tabindex: '0' });
  button.addEventListener('click', () => void whileBusy(button, async () => {
    try {
      const answer = await ask('POST', `/v1/snowflakes/${encodeURIComponent(name)}/ids`, { count: 1 });
      const decode = html('button', { type: 'button' }, 'Decode it');
      decode.addEventListener('click', () => {
        at('decode-id').value = answer.ids[0];
        at('decode-by').value = 'layout';
        at('decode-name').value = flakes.get(name).layout;
        at('decode-form').requestSubmit();
        at('decode-id').focus();
      });
      said.replaceChildren(ids(answer, name), html('p', {}, decode));
      void poll();
    } catch (trouble) {
      said.replaceChildren(trouble.note());
    }
  }));
  heading.append(state);
  section.append(heading, note, list, html('p', {}, button), said, table);
  return { section, state, note, list, table };
}

function leaseTable(name, mine, leased, workers, now) {
  const { leases, held, free } = leased;
  const running = leases.filter((lease) => lease.state !== 'ended');
  const span = Math.max(30_000, ...running.map((lease) => lease.until_ms - now));
  const [from, width] = [now - span, 2 * span];
  const x = (ms) => Math.min(Math.max(((ms - from) / width) * 1_000, 0), 1_000);
  const bar = ({ worker, from_ms: begin, until_ms: end, state }) => {
    const kind = state === 'ended' ? 'over' : worker === mine ? 'mine' : 'held';
    const label = end <= now ? `was held until ${duration((now - end) / 1_000)} ago`
      : `is held for ${duration((end - now) / 1_000)} more`;
    return drawing(`Worker ${worker} ${label}`, 'line', 1_000, 14,
      svg('rect', { class: 'track', width: 1_000, height: 14 }),
      svg('rect', { class: kind, x: x(begin), y: 2, width: Math.max(x(end) - x(begin), 2), height: 10 }),
      svg('path', { class: 'now', d: `M${x(now)} 0V14` }));
  };
  const rows = leases.slice(0, LEASES_DRAWN).map((lease) => {
    const left = Math.max(lease.until_ms - now, 0) / 1_000;
    return html('tr', {},
      html('th', { scope: 'row' }, lease.worker, lease.worker === mine ? ' (this server)' : ''),
      html('td', { 'data-label': 'Holder' }, lease.holder === '' ? 'assigned by hand' : lease.holder),
      html('td', { 'data-label': 'Time', class: 'lease wide' }, bar(lease)),
      html('td', { 'data-label': 'Until' }, clock(lease.until)),
      html('td', { 'data-label': 'Left', class: 'number' }, left > 0 ? duration(left) : 'over'),
      html('td', { 'data-label': 'State' }, lease.state));
  });
  const more = leases.length > LEASES_DRAWN ? ` The first ${LEASES_DRAWN} are shown.` : '';
  const of_all = `${whole(held)} of ${tell(workers, 'worker is', 'workers are')} leased`;
  const caption = `${of_all}, ${whole(free)} are free.${more}`;
  const axis = `${duration(span / 1_000)} before and after now`;
  const head = ['Worker', 'Holder', axis, 'Until', 'Left', 'State'].map((text, index) =>
    html('th', { scope: 'col', class: index === 4 ? 'number' : undefined }, text));
  return html('table', { class: 'stack' }, html('caption', {}, caption), html('thead', {}, html('tr', {}, head)),
    html('tbody', {}, rows));
}

function showFlake(figures, now) {
  const { snowflake: name, leased } = figures;
  if (!flakes.has(name)) {
    flakes.set(name, { ...flakeSection(name, flakes.size), layout: figures.layout });
    at('flakes').append(flakes.get(name).section);
  }
  const { state, note, list, table } = flakes.get(name);
  const left = figures.left_seconds;
  const is_used = figures.worker !== null || figures.issued !== '0';
  const [kind, words] = figures.missing !== null ? ['warn', 'no lease store']
    : !figures.ready ? ['bad', 'gives no ids'] : is_used ? ['good', 'gives ids'] : ['', 'not used yet'];
  state.className = `tag ${kind}`;
  setText(state, words);
  if (figures.why !== null) {
    put(note, figures.why, html('div', { class: 'note bad' }, html('p', {}, figures.why,
      figures.stopped_since === null ? '' : `, since ${clock(figures.stopped_since)}`)));
  } else if (figures.missing !== null) {
    put(note, figures.missing, html('div', { class: 'note warn' }, html('p', {}, figures.missing)));
  } else if (leased.error !== null) {
    const asked = leased.asked === null ? '' : ` The leases are as of ${clock(leased.asked)}.`;
    put(note, `lease ${leased.asked}`, html('div', { class: 'note warn' }, html('p', {},
      html('strong', {}, 'Who holds which worker cannot be asked'), `: ${leased.error}.${asked}`)));
  } else {
    put(note, '');
  }
  facts(list, [
    ['Layout', figures.layout], ['Worker', figures.worker === null ? 'none now' : String(figures.worker)],
    ['Leased for', figures.worker === null ? 'no lease' : left > 0 ? duration(left) : 'over'],
    ['Ids per second', rate(figures.rate), spark(`Ids per second of ${name}`, figures.rates, rate)],
    ['Ids handed out', whole(figures.issued)], ['Ahead of the clock', `${figures.ahead_ms} ms`],
    ['Calls that waited', whole(figures.waits)], ['Calls refused', whole(figures.refused)],
  ]);
  if (leased.leases.length > 0) {
    table.replaceChildren(leaseTable(name, figures.worker, leased, figures.workers, now));
  } else {
    const words_of_none = leased.asked === null ? 'The lease store has not answered yet.'
      : `No worker was ever leased: all ${whole(figures.workers)} are free.`;
    put(table, words_of_none, html('p', { class: 'quiet' }, figures.missing === null ? words_of_none : ''));
  }
  if (leased.leases.length > 0) {
    delete table.dataset.key;
  }
}

// Ids taken apart.

let layouts = null;

async function knownLayouts() {
  if (layouts === null) {
    layouts = (await ask('GET', '/v1/layouts')).layouts;
    at('layouts').replaceChildren(...layouts.map(({ name }) => html('option', { value: name })));
  }
  return layouts;
}

/** The fields of a layout, the highest bits first, if they are known. */
async function fieldsOf(layout) {
  const known = (await knownLayouts()).find(({ name }) => name === layout);
  if (known !== undefined) {
    return known.fields;
  }
  // Written out: 41/5+5/12, or 39/8/16 sequence-first.
  const written = /^(\d+)\/(?:(\d+)\/)??(?:(\d+)\+)?(\d+)(?:\/(\d+))?(?= |$)/.exec(layout);
  if (written === null) {
    return null;
  }
  const [, time, first, datacenter, worker, last] = written;
  const fields = [
    ['time', time], ['sequence', first], ['datacenter', datacenter], ['worker', worker], ['sequence', last],
  ];
  return fields.filter(([, bits]) => bits !== undefined).map(([name, bits]) => ({ name, bits: Number(bits) }));
}

function drawBits(id, fields, meaning) {
  const width = fields.reduce((sum, { bits }) => sum + bits, 0);
  const number = BigInt(id);
  const [shapes, labels, rows] = [[], [], []];
  let above = 0;
  fields.forEach((field, index) => {
    const low = width - above - field.bits;
    const value = (number >> BigInt(low)) & ((1n << BigInt(field.bits)) - 1n);
    const kind = `f${Math.min(index, 4) + 1}`;
    for (let bit = field.bits - 1; bit >= 0; bit -= 1) {
      const is_one = (value >> BigInt(bit)) & 1n;
      const x = (width - low - bit - 1) * 10;
      shapes.push(svg('rect', { class: `${kind} bit-${is_one}`, x: x + 0.6, y: 0, width: 8.8, height: 46 }));
    }
    const below = html('span', { class: kind }, `${field.name} ${field.bits}`);
    below.style.flexGrow = String(field.bits);
    labels.push(below);
    const place = field.bits === 1 ? `bit ${low}` : `bits ${low} to ${low + field.bits - 1}`;
    rows.push(html('tr', {},
      html('th', { scope: 'row' }, html('span', { class: `swatch ${kind}`, 'aria-hidden': 'true' }), field.name,
        field.source_name === undefined || field.source_name === field.name ? '' : ` (${field.source_name})`),
      html('td', { 'data-label': 'Where' }, `${place}`),
      html('td', { 'data-label': 'Value', class: 'number' }, whole(value)),
      html('td', { 'data-label': 'Meaning' }, meaning(field.name)),
      html('td', { 'data-label': 'In bits' }, html('code', {}, value.toString(2).padStart(field.bits, '0')))));
    above += field.bits;
  });
  const label = fields.map((field) => `${field.name} ${field.bits} bits`).join(', ');
  const head = ['Field', 'Where', 'Value', 'Meaning', 'In bits'].map((text, index) =>
    html('th', { scope: 'col', class: index === 2 ? 'number' : undefined }, text));
  return html('div', {},
    html('div', { class: 'bits' }, drawing(`The bits of ${id}: ${label}`, 'line', width * 10, 46, shapes),
      html('div', { class: 'under', 'aria-hidden': 'true' }, labels)),
    html('div', { class: 'table' }, html('table', { class: 'stack' }, html('thead', {}, html('tr', {}, head)),
      html('tbody', {}, rows))));
}

async function drawn({ number, layout, time, fields: values, source_names: names = {} }) {
  const title = html('p', {}, html('strong', {}, number ?? ''), ` as an id of ${layout}`,
    time === null ? '' : `, of ${time}`);
  const fields = number === null ? null : await fieldsOf(layout);
  const meaning = (name) => (name === 'time' ? time ?? '' : '');
  if (fields !== null) {
    return html('div', {}, title, drawBits(number, fields, meaning));
  }
  const list = html('dl', { class: 'facts' });
  facts(list, Object.entries(values).map(([name, value]) =>
    [names[name] === undefined ? name : `${name} (${names[name]})`, String(value)]));
  return html('div', {}, title, list);
}

async function candidates(found) {
  const place = html('div');
  if (found.length === 0) {
    return html('p', {}, 'No known layout has such an id of the past. Choose the layout that it is of.');
  }
  const show = async (candidate) => {
    const picture = await drawn(candidate);
    place.replaceChildren(picture);
  };
  const rows = found.map((candidate) => {
    const button = html('button', { type: 'button', class: 'name' }, candidate.layout);
    button.addEventListener('click', () => void show(candidate));
    return html('tr', {}, html('th', { scope: 'row' }, button),
      html('td', { 'data-label': 'Time' }, candidate.time ?? 'none'),
      html('td', { 'data-label': 'Read as' }, candidate.read_as), html('td', { 'data-label': 'Why' }, candidate.why));
  });
  await show(found[0]);
  const head = ['It may be of', 'Time', 'Read as', 'Why'].map((text) => html('th', { scope: 'col' }, text));
  const table = html('table', { class: 'stack' }, html('thead', {}, html('tr', {}, head)), html('tbody', {}, rows));
  const fit = tell(found.length, 'layout fits', 'layouts fit');
  return html('div', {}, place,
    html('details', {}, html('summary', {}, fit), html('div', { class: 'table' }, table)));
}

async function decode() {
  const [text, by, name] = ['decode-id', 'decode-by', 'decode-name'].map((id) => at(id).value.trim());
  const path = `/v1/decode/${encodeURIComponent(text)}`;
  const answer = await ask('GET', by === '' ? path : `${path}?${by}=${encodeURIComponent(name)}`);
  if (answer.candidates !== undefined) {
    return candidates(answer.candidates);
  }
  if (answer.layout !== undefined) {
    return drawn({ ...answer, number: answer.id });
  }
  const list = html('dl', { class: 'facts' });
  facts(list, Object.entries(answer).map(([key, value]) => [key.replaceAll('_', ' '), String(value)]));
  const layout = by === 'snowflake' ? flakes.get(name)?.layout : undefined;
  if (layout === undefined) {
    return list;
  }
  const parts = await ask('GET', `/v1/decode/${answer.id}?layout=${encodeURIComponent(layout)}`);
  return html('div', {}, list, await drawn({ ...parts, number: parts.id }));
}

onSubmit('decode-form', 'decoded', decode);

function chooseReading() {
  const by = at('decode-by').value;
  const label = { '': 'Name', layout: 'Layout', tag: 'Tag', snowflake: 'Snowflake' }[by];
  setText(at('decode-label'), label);
  at('decode-label').hidden = by === '';
  at('decode-name').hidden = by === '';
  at('decode-name').required = by !== '';
  if (by === 'layout') {
    at('decode-name').setAttribute('list', 'layouts');
    knownLayouts().catch(() => undefined);
  } else {
    at('decode-name').removeAttribute('list');
  }
}

at('decode-by').addEventListener('change', chooseReading);

// The loop.

let timer;
let newest = 0;
let figures = null;

function show(answer) {
  figures = answer;
  showReady(answer.ready, answer.server);
  showNow(answer);
  showStore(answer);
  showTags(answer);
  answer.snowflakes.forEach((snowflake) => showFlake(snowflake, answer.now_ms));
  // One that is being built again has no figures for a moment.
  const names = new Set(answer.snowflakes.map(({ snowflake }) => snowflake));
  flakes.forEach(({ section }, name) => {
    section.hidden = !names.has(name);
  });
  setText(at('flakes-note'), names.size === 0 ? 'No snowflake has figures now.' : '');
  setText(at('version'), `version ${answer.server.version}`);
  const often = `They are asked for every ${EVERY_MS / 1_000} s`;
  setText(at('asked'), `Figures of ${clock(answer.now)}. ${often}, and go back 10 minutes at most.`);
  at('ask').hidden = true;
  at('figures').hidden = false;
  put(at('alert'), '');
}

/** The figures could not be asked for: says why, and goes on. */
function refuse(trouble) {
  const { status } = trouble;
  const is_token = status === 401 || status === 403;
  if (status === 401 && token === null) {
    showState('warn', 'Token wanted');
    put(at('alert'), '');
  } else {
    showState('bad', status === 0 ? 'Server gone' : is_token ? 'Token refused' : 'No figures');
    const old = figures === null ? '' : ` What is shown is of ${clock(figures.now)}.`;
    const words = status === 403 ? 'This token may not see the figures of this server' : trouble.title;
    put(at('alert'), `${status} ${trouble.message}`, html('div', { class: 'note bad' }, html('p', {},
      html('strong', {}, words), `: ${trouble.message}.${old} It is asked again.`)));
  }
  if (is_token && at('ask').hidden) {
    at('ask').hidden = false;
    if (document.activeElement === document.body) {
      at('token').focus();
    }
  }
  return is_token ? REFUSED_EVERY_MS : EVERY_MS;
}

async function poll() {
  clearTimeout(timer);
  newest += 1;
  const mine = newest;
  let again = EVERY_MS;
  try {
    const answer = await ask('GET', '/v1/console');
    if (mine !== newest) {
      return;
    }
    show(answer);
    at('forget').hidden = token === null;
    const is_asked = ({ leased, missing }) => leased.asked !== null || leased.error !== null || missing !== null;
    if (!answer.snowflakes.every(is_asked)) {
      // It is under way.
      again = SOON_MS;
    }
    void refreshTag();
  } catch (trouble) {
    if (mine !== newest) {
      return;
    }
    const is_known = trouble instanceof Trouble;
    if (!is_known) {
      console.error(trouble);
    }
    again = refuse(is_known ? trouble : new Trouble(200, 'The answer is not one that this page knows',
      'the server may have another version now, or something else answers: reload the page'));
    at('forget').hidden = token === null;
  }
  if (!document.hidden) {
    timer = setTimeout(poll, again);
  }
}

at('ask-form').addEventListener('submit', (event) => {
  event.preventDefault();
  const typed = at('token').value.trim();
  const is_sendable = /^[!-~]+$/.test(typed);
  at('token').setCustomValidity(is_sendable ? '' : 'A token has letters, digits and marks of ASCII, and no spaces.');
  if (!is_sendable) {
    at('token').reportValidity();
    return;
  }
  token = typed;
  sessionStorage.setItem(KEY, token);
  at('token').value = '';
  void poll();
});

at('token').addEventListener('input', () => at('token').setCustomValidity(''));

at('forget').addEventListener('click', () => {
  token = null;
  sessionStorage.removeItem(KEY);
  location.reload();
});

at('filter').addEventListener('input', () => figures !== null && showTags(figures));
document.addEventListener('visibilitychange', () => (document.hidden ? clearTimeout(timer) : void poll()));

setText(at('place'), location.host);
chooseReading();
void poll();
