"""The client that openapi-python-client makes takes ids, creates a tag, and reads an id."""

import sys

from unalike_client import Client
from unalike_client.api.ids import sequence_ids_by_get, snowflake_ids_by_post
from unalike_client.api.layouts import decode_id, list_layouts
from unalike_client.api.tags import create_tag, show_tag
from unalike_client.models import FixedStep, FixedStepPolicy, Problem, TagCreate

client = Client(base_url=sys.argv[1])

assert sequence_ids_by_get.sync("opc", client=client, count=3).ids == ["1", "2", "3"]
flake = snowflake_ids_by_post.sync("default", client=client).ids[0]
made = create_tag.sync(
    client=client, body=TagCreate(tag="opc-made", start="5", step=FixedStep(policy=FixedStepPolicy.FIXED, step="7"))
)
assert made.step.step == "7" and made.watermark == "4", made
missing = show_tag.sync("nobody", client=client)
assert isinstance(missing, Problem) and missing.type_ == "urn:unalike:problem:tag-unknown", missing
decoded = decode_id.sync("1169786042799259000", client=client, layout="leaf")
assert decoded.fields["worker"] == 39 and decoded.source_names["worker"] == "workerId", decoded
assert decode_id.sync(flake, client=client).candidates, flake
assert "seata" in [layout.name for layout in list_layouts.sync(client=client).layouts]
