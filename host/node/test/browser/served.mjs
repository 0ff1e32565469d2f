// A page whose service worker gives it ids.

async function served() {
  const server = await (await fetch('/server.json')).json();
  const script = `/service-worker.mjs?server=${encodeURIComponent(server)}`;
  const { serviceWorker } = navigator;
  const isServed = new Promise((resolve) => serviceWorker.addEventListener('controllerchange', resolve));
  await serviceWorker.register(script, { type: 'module' });
  if (serviceWorker.controller === null) {
    await isServed;
  }
  const ids = async (count) => {
    const response = await fetch(`/ids/order?count=${count}`);
    if (!response.ok) {
      throw new Error(await response.text());
    }
    return await response.json();
  };
  return JSON.stringify([await ids(1), await ids(100), ...(await Promise.all([ids(1), ids(30)]))]);
}

globalThis.outcome = served();
