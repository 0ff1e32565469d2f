"""Draws ids from a store beside other programs, and prints them: names.test.mjs says from which, under which names."""

import json
import sys
import warnings

from unalike import Ids, Layout
from unalike.mysql import MysqlStore
from unalike.redis import RedisStore
from unalike.sqlite import SqliteStore

warnings.simplefilter("ignore")
task = json.loads(sys.stdin.read())
durable = SqliteStore(task["sqlite"]) if "sqlite" in task else MysqlStore(task["mysql"])
store = RedisStore(task["redis"], backing=durable) if "redis" in task else durable
layout = Layout(41, 0, 2, 12, "worker-first", 1_288_834_974_657, 1)
with Ids(segments=store, leases=store) as ids:
    drawn = {name: list(ids.sequence(name).take(task["count"])) for name in task["tags"]}
    flakes = {name: list(ids.snowflake(name, layout).take(task["count"])) for name in task["namespaces"]}
store.close()
texts = [{name: [str(one) for one in some] for name, some in of.items()} for of in (drawn, flakes)]
print(json.dumps(dict(zip(("tags", "namespaces"), texts))))
