// What the pages do that browser.test.mjs shows in Chromium: they take ids from a server, and write texts.

/** Answers the ids as texts, which is what the test can read. */
export async function work({ Formats, Ids, RemoteStore }) {
  const task = await (await fetch('/task.json')).json();
  const store = await RemoteStore.open(task.server, { token: task.token });
  const ids = await Ids.open({ segments: store, leases: store });
  const orders = await ids.sequence('order');
  const taken = [await orders.next(), ...(await orders.take(2_000))];
  const chat = await ids.sequenceOf('chat', 'alice & bob');
  const tickets = await ids.sequence('ticket');
  const ordered = [];
  for (let at = 0; at < 10; at += 1) {
    ordered.push(await tickets.next());
  }
  ordered.push(...(await Promise.all(Array.from({ length: 10 }, () => tickets.next()))));
  const flakes = await ids.snowflake('default', 'twitter');
  const stamped = [await flakes.next(), ...(await flakes.take(2_000))];
  const formats = await Formats.load();
  const format = formats.format({ template: 'ORD-{yyyyMMdd}-{id:08}', bits: 26, utcOffsetMinutes: 480 });
  const written = format.write(taken[0], new Date('2026-11-22T00:00:00Z'));
  const shown = await ids.formatted('shown', format);
  const parts = formats.unpack(stamped[0], 'twitter');
  const answer = {
    orders: taken,
    chats: [await chat.next(), await chat.next()],
    tickets: ordered,
    flakes: stamped,
    shown: [...(await shown.take(3))].map((text) => shown.read(text).id),
    texts: [formats.encode(taken[0], 'base62'), written, format.read(written).id, formats.pack(parts, 'twitter')],
    worker: parts.worker,
  };
  await ids.close();
  await store.close();
  return JSON.stringify(answer, (_, part) => (typeof part === 'bigint' ? String(part) : part));
}
