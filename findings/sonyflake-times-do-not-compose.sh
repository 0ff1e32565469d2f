#!/usr/bin/env bash
# sonyflake for Python puts a quarter of all instants, and of the times that it reads from ids itself, one unit too early.
#
# Seen in sonyflake 2.0.3 on Python 3.11: `to_time` divides nanoseconds by 10^9 as a double, and `compose` turns a time
# into units by way of a double and cuts what is left. So `compose(to_time(id), ..)` is another id than `id` for 25,000
# of the first 100,000 units of 10 ms, and the id of a date that is exact to the unit is of the unit before. Ids that it
# generates by its clock are not concerned; those that are made of dates, as bounds of a search by time are, miss rows.
#
# Installs one pinned package of PyPI into a temporary folder. Fails if the behaviour or the version is another.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv environment
environment/bin/pip install --quiet --disable-pip-version-check sonyflake==2.0.3
cat >units.py <<'PYTHON'
import datetime
import importlib.metadata

import sonyflake

print("sonyflake", importlib.metadata.version("sonyflake"))
start = datetime.datetime(2025, 1, 1, tzinfo=datetime.timezone.utc)
flake = sonyflake.Sonyflake(start_time=start, machine_id=7)
unit = datetime.timedelta(milliseconds=10)
units = range(1, 100_001)
of_dates = [flake.decompose(flake.compose(start + at * unit, 0, 7)).time for at in units]
print("dates that are put into the unit before:", sum(got == at - 1 for at, got in zip(units, of_dates)))
print("dates that are put elsewhere:", sum(got not in (at, at - 1) for at, got in zip(units, of_dates)))
ids = [at << 24 | 7 for at in units]
print("ids that change by to_time and compose:", sum(flake.compose(flake.to_time(id), 0, 7) != id for id in ids))
print("the first of them:", ids[0], "becomes", flake.compose(flake.to_time(ids[0]), 0, 7))
PYTHON
environment/bin/python units.py | tee said
cat >expected <<'SAID'
sonyflake 2.0.3
dates that are put into the unit before: 25000
dates that are put elsewhere: 0
ids that change by to_time and compose: 25000
the first of them: 16777223 becomes 7
SAID
diff said expected
echo "as described"
