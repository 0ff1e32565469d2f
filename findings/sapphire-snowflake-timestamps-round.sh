#!/usr/bin/env bash
# `timestampFrom` of @sapphire/snowflake is a millisecond ahead of `deconstruct` for the last ids of each millisecond.
#
# Seen in 3.5.5: it divides the id as a double, which has 53 bits, and ids of Twitter's epoch have 61 today. So the ids
# whose worker and sequence are within 128 of the greatest (worker 31 of process 31 with a sequence of 3,968 or more)
# are rounded up into the next millisecond. The other method, on the same object, gives the right one. Each further bit
# of the id doubles how many are concerned.
#
# Installs one pinned package of npm into a temporary folder. Fails if the behaviour or the version is another.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund --prefix "$folder" @sapphire/snowflake@3.5.5
cat >times.cjs <<'NODE'
const { TwitterSnowflake } = require('@sapphire/snowflake');
const { version } = require('./node_modules/@sapphire/snowflake/package.json');
console.log(`@sapphire/snowflake ${version}`);
const ticks = BigInt(Date.UTC(2026, 10, 29)) - 1288834974657n;
const wrong = [];
for (let below = 0n; below < 1n << 22n; below += 1n) {
  const id = (ticks << 22n) | below;
  if (BigInt(TwitterSnowflake.timestampFrom(id)) !== TwitterSnowflake.deconstruct(id).timestamp) {
    wrong.push(below);
  }
}
const first = (ticks << 22n) | wrong[0];
console.log(`of 4194304 ids of one millisecond differ ${wrong.length}, from ${wrong[0]} on`);
console.log(`${first}: ${TwitterSnowflake.deconstruct(first).timestamp}, ${TwitterSnowflake.timestampFrom(first)}`);
NODE
node times.cjs | tee said
cat >expected <<'SAID'
@sapphire/snowflake 3.5.5
of 4194304 ids of one millisecond differ 128, from 4194176 on
2126828484822040448: 1795910400000, 1795910400001
SAID
diff said expected
echo "as described"
