"""The host in Python among hosts in other languages: together.rs says what each of them does and writes."""

import json
import pathlib
import sys
import threading
import time
from array import array

from unalike import Ids
from unalike.mysql import MysqlStore
from unalike.redis import RedisStore

BATCH = 1_000

task = json.loads(sys.argv[1])
mysql = MysqlStore(task["mysql"])
redis = RedisStore(task["redis"], backing=mysql)
ids = Ids(segments=mysql, leases=mysql)
strict = Ids(segments=redis)
orders = ids.sequence("order")
flakes = ids.snowflake("default", "twitter")
chats = strict.sequence("chat")
failures = []


def write(of, words):
    assert sys.byteorder == "little"
    (pathlib.Path(task["out"]) / f"python.{of}").write_bytes(array("Q", words).tobytes())


def buffered():
    taken = []
    while len(taken) < task["orders"]:
        taken.append(orders.next())
        taken.extend(orders.take(BATCH - 1))
    write("order", taken)


def stamped():
    write("flake", [flakes.next() for _ in range(task["flakes"])])


def ordered():
    calls = []
    for _ in range(task["chats"]):
        began = time.monotonic_ns()
        number = chats.next()
        calls.extend((began, time.monotonic_ns(), number))
    write("chat", calls)


def run(work):
    try:
        work()
    except BaseException as error:
        failures.append(error)


threads = [threading.Thread(target=run, args=(work,)) for work in (buffered, stamped, ordered)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
if failures:
    raise failures[0]
ids.close()
strict.close()
redis.close()
mysql.close()
