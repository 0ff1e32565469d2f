// The client that openapi-generator makes for TypeScript takes ids, creates a tag, and reads an id.
import { Configuration, IdsApi, LayoutsApi, ResponseError, TagsApi } from "./index.js";

declare const process: { argv: string[] };

function assert(holds: unknown): asserts holds {
    if (!holds) throw new Error("it is not so");
}

const configuration = new Configuration({ basePath: process.argv[2] });
const ids = new IdsApi(configuration);
const tags = new TagsApi(configuration);
const layouts = new LayoutsApi(configuration);

const taken: string[] = (await ids.sequenceIdsByGet({ tag: "typescript", count: 3 })).ids;
assert(taken.join() === "1,2,3");
const flake = (await ids.snowflakeIdsByPost({ name: "default" })).ids[0]!;

const made = await tags.createTag({
    tagCreate: { tag: "typescript-made", start: "5", step: { policy: "adaptive", min: "10", initial: "20", max: "30" } },
});
assert(made.step.policy === "adaptive" && made.step.max === "30");
const unordered = await tags.createTag({
    tagCreate: { tag: "typescript-channel", channel: "unordered", buffSize: "70" },
});
assert(unordered.step.policy === "fixed" && unordered.step.step === "70");
const missing: unknown = await tags.showTag({ tag: "nobody" }).catch((error: unknown) => error);
assert(missing instanceof ResponseError && missing.response.status === 404);

const decoded = await layouts.decodeId({ id: "1169786042799259000", layout: "leaf" });
assert(decoded.fields?.["worker"] === 39 && decoded.sourceNames?.["worker"] === "workerId");
assert((await layouts.decodeId({ id: flake })).candidates?.length);
assert((await layouts.listLayouts()).layouts.some((layout) => layout.name === "seata" && layout.workers === null));
