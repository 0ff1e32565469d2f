"""The client that openapi-generator makes for Python takes ids, creates a tag, and reads an id."""

import sys

from openapi_client import (
    AdaptiveStep,
    ApiClient,
    Configuration,
    FixedStep,
    IdsApi,
    LayoutsApi,
    OperationApi,
    RandomIdsApi,
    RefillPolicy,
    ShareConsumed,
    StepPolicy,
    TagChange,
    TagCreate,
    TagsApi,
)
from openapi_client.exceptions import NotFoundException

client = ApiClient(Configuration(host=sys.argv[1]))
ids, tags, layouts = IdsApi(client), TagsApi(client), LayoutsApi(client)

first, second = ids.sequence_ids_by_get("python", count=3).ids, ids.sequence_ids_by_post("python", count=2).ids
assert [*map(int, first + second)] == [1, 2, 3, 4, 5], (first, second)
flake = ids.snowflake_ids_by_get("default").ids[0]
assert len(RandomIdsApi(client).uuids_by_get(count=2).uuids) == 2
assert OperationApi(client).ready().status == "ready"

adaptive = StepPolicy(AdaptiveStep(policy="adaptive", min="10", initial="20", max="30"))
refill = RefillPolicy(ShareConsumed(policy="share-consumed", percent=50))
created = tags.create_tag(TagCreate(tag="python-made", start="100", step=adaptive, refill=refill))
assert created.step.actual_instance.max == "30" and created.refill.actual_instance.percent == 50, created
unordered = tags.create_tag(TagCreate(tag="python-channel", channel="unordered", buff_size="70"))
assert unordered.step.actual_instance.step == "70", unordered
changed = tags.change_tag("python-made", TagChange(step=StepPolicy(FixedStep(policy="fixed", step="7")), raise_to="500"))
assert changed.step.actual_instance.step == "7" and changed.watermark == "499", changed
assert "python-made" in [tag.tag for tag in tags.list_tags().tags]
try:
    tags.show_tag("nobody")
    raise AssertionError("the tag is unknown")
except NotFoundException as error:
    assert error.data.type == "urn:unalike:problem:tag-unknown", error.data

decoded = layouts.decode_id("1169786042799259000", layout="leaf")
assert decoded.fields["worker"].actual_instance == 39 and decoded.source_names["worker"] == "workerId", decoded
assert layouts.decode_id(flake).candidates, flake
assert {"seata", "yitter-js"} <= {layout.name for layout in layouts.list_layouts().layouts}
