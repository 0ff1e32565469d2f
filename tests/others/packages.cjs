// Packages for Node, taking our ids apart and making ids for us: tests/tests/others.rs runs this as
//
//     node packages.cjs PACKAGE read|write|generate
//
// One JSON object per line comes in, and one goes out for each. Whole numbers in it are strings, because JSON.parse
// rounds above 2^53.
"use strict";

const readline = require("node:readline");
const { DiscordSnowflake, Snowflake, TwitterSnowflake } = require("@sapphire/snowflake");

const named = { twitter: TwitterSnowflake, discord: DiscordSnowflake };

/** One that the package brings, by its name, or one of another epoch. */
const snowflakes = (epoch) => named[epoch] ?? new Snowflake(BigInt(epoch));

const sapphire = {
  read({ id, padded, epoch }) {
    const one = snowflakes(epoch);
    const { timestamp, workerId, processId, increment } = one.deconstruct(id);
    const ofPadded = one.decode(padded).id;
    return { timestamp, workerId, processId, increment, ofPadded, timestampFrom: one.timestampFrom(id) };
  },
  write({ epoch, ...parts }) {
    for (const name in parts) parts[name] = BigInt(parts[name]);
    return { id: snowflakes(epoch).generate(parts) };
  },
  generate({ workerId, processId, epoch, count }) {
    const one = new Snowflake(snowflakes(epoch).epoch);
    one.workerId = workerId;
    one.processId = processId;
    const from = Date.now();
    const ids = Array.from({ length: Number(count) }, () => one.generate());
    return { from, ids, until: Date.now() };
  },
};

// What the language itself knows of texts.
const javascript = {
  read: ({ decimal, padded }) => ({ decimal: BigInt(decimal), padded: BigInt(padded) }),
  write: ({ id }) => ({ base36: BigInt(id).toString(36).padStart(13, "0") }),
};

const [name, direction] = process.argv.slice(2);
const ask = { sapphire, javascript }[name][direction];

/** Every whole number as a string. */
const strings = (_, value) => (["bigint", "number"].includes(typeof value) ? value.toString() : value);

function answer(line) {
  try {
    return ask(JSON.parse(line));
  } catch (error) {
    return { error: error.toString() };
  }
}

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  console.log(JSON.stringify(answer(line), strings));
});
