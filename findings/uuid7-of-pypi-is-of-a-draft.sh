#!/usr/bin/env bash
# The package uuid7 of PyPI makes UUIDs of version 7 whose time RFC 9562 puts into the year 2203.
#
# Seen in uuid7 0.1.0 (module uuid_extensions), the newest one: it has the layout of an early draft, in which 36 bits of
# seconds come first. RFC 9562 (section 5.7) has 48 bits of milliseconds there. The version in both is 7, so nothing
# tells them apart: a reader of the standard dates these ids 176 years ahead, and beside ids of others in one column
# they sort behind all of those.
#
# Installs two pinned packages of PyPI into a temporary folder; the other one has the layout of the RFC. Fails if the
# behaviour or a version is another.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv environment
environment/bin/pip install --quiet --disable-pip-version-check uuid7==0.1.0 uuid-utils==1.2.0
cat >times.py <<'PYTHON'
import datetime
import importlib.metadata

import uuid_extensions
import uuid_utils


def time_by_the_rfc(id):
    return datetime.datetime.fromtimestamp((id.int >> 80) / 1000, datetime.timezone.utc).isoformat()


for package in ["uuid7", "uuid-utils"]:
    print(package, importlib.metadata.version(package))
at = datetime.datetime(2026, 11, 29, tzinfo=datetime.timezone.utc)
seconds = int(at.timestamp())
made = uuid_extensions.uuid7(seconds * 10**9)
print("uuid7, made for", at.isoformat(), "version", made.version, "time", time_by_the_rfc(made))
before = datetime.datetime.now(datetime.timezone.utc)
draft, other = uuid_extensions.uuid7(), uuid_utils.uuid7()
print("uuid-utils, version", other.version, "this year:", time_by_the_rfc(other)[:4] == str(before.year))
print("that of uuid7, made first, sorts behind it:", draft.int > other.int)
PYTHON
environment/bin/python times.py | tee said
cat >expected <<'SAID'
uuid7 0.1.0
uuid-utils 1.2.0
uuid7, made for 2026-11-29T00:00:00+00:00 version 7 time 2203-02-08T10:56:38.400000+00:00
uuid-utils, version 7 this year: True
that of uuid7, made first, sorts behind it: True
SAID
diff said expected
echo "as described"
