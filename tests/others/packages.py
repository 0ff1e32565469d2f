"""Packages for Python, taking our ids apart and making ids for us: tests/tests/others.rs runs this as

    python packages.py PACKAGE read|write|generate

One JSON object per line comes in, and one goes out for each. Whole numbers in it are strings, as for JavaScript.
"""

import datetime
import functools
import importlib.metadata
import importlib.util
import json
import sys
import time
import uuid

import snowflake
import sonyflake
import tsidpy
import ulid

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
MICROSECOND = datetime.timedelta(microseconds=1)


def now_ms():
    return time.time_ns() // 1_000_000


def timed(make):
    """Ids that a package makes by the clock, with what the clock showed before and after."""
    before = now_ms()
    ids = make()
    return {"from": before, "ids": ids, "until": now_ms()}


def snowflake_id_read(id, epoch):
    parts = snowflake.Snowflake.parse(int(id), int(epoch))
    return {"milliseconds": parts.milliseconds, "instance": parts.instance, "seq": parts.seq}


def snowflake_id_write(milliseconds, instance, seq, epoch):
    return {"id": int(snowflake.Snowflake(int(milliseconds) - int(epoch), int(instance), int(epoch), int(seq)))}


def snowflake_id_generate(worker, epoch, count):
    generator = snowflake.SnowflakeGenerator(int(worker), epoch=int(epoch))

    def make():
        ids = []
        while len(ids) < int(count):
            ids += [id for id in [next(generator)] if id is not None]
        return ids

    return timed(make)


@functools.lru_cache
def sonyflakes(start_ms, unit_ms=None, machine_id="0", **bits):
    """What is not given is the package's default; it has none for the epoch."""
    options = {name: int(width) for name, width in bits.items()}
    if unit_ms is not None:
        options["time_unit"] = datetime.timedelta(milliseconds=int(unit_ms))
    start_time = EPOCH + datetime.timedelta(milliseconds=int(start_ms))
    return sonyflake.Sonyflake(start_time=start_time, machine_id=int(machine_id), **options)


def sonyflake_read(id, **options):
    one = sonyflakes(**options)
    parts = one.decompose(int(id))
    unix_us = (one.to_time(int(id)) - EPOCH) // MICROSECOND
    # An instant comes as a float, and so by less than 1 ms wrong.
    unix_ms = (unix_us + 500) // 1000
    return {"time": parts.time, "sequence": parts.sequence, "machine_id": parts.machine_id, "unix_ms": unix_ms}


def sonyflake_write(unix_ms, sequence, machine_id, **options):
    one = sonyflakes(**options)
    begin = EPOCH + datetime.timedelta(milliseconds=int(unix_ms))
    # No tick is shorter than a millisecond.
    later = begin + datetime.timedelta(microseconds=500)
    ids = [one.compose(at, int(sequence), int(machine_id)) for at in (later, begin)]
    return {"id": ids[0], "id_of_begin": ids[1]}


def sonyflake_generate(worker, count, **options):
    one = sonyflakes(machine_id=worker, **options)
    return timed(lambda: [one.next_id() for _ in range(int(count))])


def tsidpy_read(id, text, aliases, decimal, base62):
    one = tsidpy.TSID(int(id))
    return {
        "timestamp": int(one.timestamp),
        "random": one.random,
        "text": tsidpy.TSID.from_string(text).number,
        "aliases": tsidpy.TSID.from_string(aliases, "s").number,
        "decimal": tsidpy.TSID.from_string(decimal, "d").number,
        "base62": tsidpy.TSID.from_string(base62, "z").number,
        "written": one.to_string(),
        "written_as_base62": one.to_string("z").rjust(11, "0"),
    }


def tsidpy_write(ticks, node, node_bits, counter):
    # Its clock cannot be set, but its epoch can: so far back that these ticks have gone by just now.
    epoch = now_ms() - int(ticks)
    # Within a millisecond the counter goes on, and a new one begins with what chance gives, which is this function.
    generator = tsidpy.TSIDGenerator(int(node), int(node_bits), epoch, lambda bits: int(counter))
    generator.counter = int(counter) - 1
    one = generator.create()
    return {
        "id": one.number,
        "text": one.to_string(),
        "lower_case": one.to_string("s"),
        "decimal": one.to_string("d"),
        "base62": one.to_string("z").rjust(11, "0"),
        "until_ticks": now_ms() - epoch,
    }


def tsidpy_generate(worker, node_bits, count):
    def make():
        # It reads the clock here, and gives an id that is made less than a millisecond later that time.
        generator = tsidpy.TSIDGenerator(int(worker), int(node_bits), random_fn=lambda bits: 0)
        return [generator.create().number for _ in range(int(count))]

    return timed(make)


@functools.cache
def ulid_file():
    """The package named ulid is one file, which python-ulid's directory of the same name hides."""
    path = importlib.metadata.distribution("ulid").locate_file("ulid.py")
    spec = importlib.util.spec_from_file_location("ulid_file", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ulid_write(number):
    milliseconds, random = divmod(int(number), 1 << 80)
    return {"text": ulid_file().encode_time(milliseconds, 10) + ulid_file().encode_time(random, 16)}


def ulid_generate(count):
    return timed(lambda: [ulid_file().ulid() for _ in range(int(count))])


def python_ulid_read(text):
    one = ulid.ULID.from_str(text)
    return {"number": int(one), "milliseconds": one.milliseconds}


def python_ulid_write(number):
    return {"text": str(ulid.ULID.from_int(int(number)))}


def python_ulid_generate(count):
    return timed(lambda: [str(ulid.ULID()) for _ in range(int(count))])


def python_read(decimal, padded, base36, uuid8):
    """What the language itself knows of texts."""
    one = uuid.UUID(uuid8)
    bits = f"{one.int:0128b}"
    return {
        "decimal": int(decimal),
        "padded": int(padded),
        "base36": int(base36, 36),
        "uuid8": int(bits[:48] + bits[52:64] + bits[66:69], 2),
        "version": one.version,
        "variant": one.variant,
    }


def uuid_read(text):
    one = uuid.UUID(text)
    milliseconds = one.time_low << 16 | one.time_mid
    return {"number": one.int, "version": one.version, "variant": one.variant, "milliseconds": milliseconds}


def python_write(id):
    bits = f"{int(id):063b}"
    one = uuid.UUID(int=int(bits[:48] + "1000" + bits[48:60] + "10" + bits[60:] + "001" + "0" * 56, 2))
    return {"decimal": f"{int(id):d}", "padded": f"{int(id):019d}", "uuid8": str(one)}


def strings(value):
    """Every whole number as a string."""
    if isinstance(value, dict):
        return {key: strings(one) for key, one in value.items()}
    if isinstance(value, list):
        return [strings(one) for one in value]
    return str(value)


def answer(ask, line):
    try:
        return strings(ask(**json.loads(line)))
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    ask = globals()["_".join(sys.argv[1:])]
    for line in sys.stdin:
        print(json.dumps(answer(ask, line)))
