// The types that openapi-typescript makes hold for what the service answers to openapi-fetch.
import createClient from "openapi-fetch";
import type { paths } from "./unalike.d.ts";

declare const process: { argv: string[] };

function assert(holds: unknown): asserts holds {
    if (!holds) throw new Error("it is not so");
}

const client = createClient<paths>({ baseUrl: process.argv[2]! });

const taken = await client.GET("/v1/sequences/{tag}/ids", { params: { path: { tag: "fetch" }, query: { count: 3 } } });
// The other answer is text/plain, where it is asked for.
assert(typeof taken.data === "object" && taken.data.ids.join() === "1,2,3");
const made = await client.POST("/v1/tags", { body: { tag: "fetch-made", step: { policy: "fixed", step: "7" } } });
assert(made.data?.step.policy === "fixed" && made.data.step.step === "7");
const missing = await client.GET("/v1/tags/{tag}", { params: { path: { tag: "nobody" } } });
assert(missing.error?.type === "urn:unalike:problem:tag-unknown");
const decoded = await client.GET("/v1/decode/{id}", {
    params: { path: { id: "1169786042799259000" }, query: { layout: "leaf" } },
});
assert(decoded.data?.fields?.["worker"] === 39);
const layouts = await client.GET("/v1/layouts");
assert(layouts.data?.layouts.some((layout) => layout.name === "seata" && layout.workers === null));
