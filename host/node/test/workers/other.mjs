// A class of Durable Objects that is no store.

import { DurableObject } from 'cloudflare:workers';

export class Other extends DurableObject {}

export default {
  fetch: () => new Response('{}'),
};
