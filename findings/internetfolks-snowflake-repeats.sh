#!/usr/bin/env bash
# @theinternetfolks/snowflake repeats one id in ten of a busy process that has a shard of its own.
#
# Seen in 1.3.0: what its page calls a sequence number is a random number for each id, from 0 to 10,000, of which 12
# bits are kept. So ids of one millisecond and one shard repeat as birthdays do, and the values below 1,809 come half as
# often again as the others. Of a thousand ids in one millisecond 12% repeat. With a random shard for each id, the
# default, 69 of a million that were made one after the other.
#
# Installs one pinned package of npm into a temporary folder. Fails if the behaviour or the version is another: no id
# repeats, or a thousand ids of one millisecond repeat less often than one in a hundred.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund --prefix "$folder" @theinternetfolks/snowflake@1.3.0
cat >repeats.cjs <<'NODE'
const { Snowflake } = require('@theinternetfolks/snowflake');
const { version } = require('./node_modules/@theinternetfolks/snowflake/package.json');
console.log(`@theinternetfolks/snowflake ${version}`);
const repeated = (make, count) => {
  const ids = new Set();
  for (let n = 0; n < count; n += 1) {
    ids.add(make(n));
  }
  return count - ids.size;
};
const timestamp = Date.UTC(2026, 10, 29);
// A thousand ids of each of a hundred milliseconds, in the shard 4 of 1,024.
const ofShard = repeated((n) => Snowflake.generate({ timestamp: timestamp + Math.floor(n / 1000), shard_id: 4 }), 1e5);
const byDefault = repeated(() => Snowflake.generate(), 1e6);
console.error(`of 100000 ids of one shard repeated ${ofShard}; of 1000000 by default ${byDefault}`);
console.log(`of one shard more than one in a hundred repeats: ${ofShard > 1000}`);
console.log(`by default some repeat: ${byDefault > 0}`);
NODE
node repeats.cjs | tee said
cat >expected <<'SAID'
@theinternetfolks/snowflake 1.3.0
of one shard more than one in a hundred repeats: true
by default some repeat: true
SAID
diff said expected
echo "as described"
