//! Named layouts: those of the systems whose ids and workers unalike takes over.
//!
//! Every preset is proven when the crate is compiled. Ids here have 63 bits, so a format published with 64 (the sign
//! included) has one timestamp bit less here: its ids are the same for as long as they are positive, and there are none
//! afterwards. A layout that has run out (`baidu`) stays, because its ids are still there to be read.

use crate::{FieldOrder, Layout, LayoutFields};

/// A layout with a name.
///
/// ```
/// let preset = unalike_core::preset("discord").unwrap();
/// assert_eq!(preset.layout, unalike_core::Layout::DISCORD);
/// assert!(preset.source.contains("Discord"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// Lower-case letters, digits, hyphens and dots.
    pub name: &'static str,
    /// The layout; also a constant of [`Layout`].
    pub layout: Layout,
    /// No id of it is older, in Unix milliseconds: where the epoch says nothing, the time of the system that made the
    /// first ones.
    pub since_ms: u64,
    /// What its system calls the datacenter, the worker and the sequence: nothing where it has no such field, or its
    /// name is not known.
    pub field_names: [&'static str; 3],
    /// One sentence: where the figures come from, and any deviation.
    pub source: &'static str,
}

/// Mastodon takes posts over from servers that were there before it, and gives them ids of their own time.
const YEAR_2008_MS: u64 = 1_199_145_600_000;
/// Redis tells its time since 2.6, of 2012.
const YEAR_2012_MS: u64 = 1_325_376_000_000;
/// hutool began in 2014.
const YEAR_2014_MS: u64 = 1_388_534_400_000;
/// Leaf was published in 2017.
const YEAR_2017_MS: u64 = 1_483_228_800_000;

/// Every preset, each name once.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "twitter",
        layout: Layout::TWITTER,
        since_ms: Layout::TWITTER.epoch_ms(),
        field_names: ["datacenter", "worker", "sequence"],
        source: "Twitter's Snowflake of 2010: 41 bits of ms since 2010-11-04T01:42:54.657Z, datacenter 5, worker 5, \
                 sequence 12",
    },
    Preset {
        name: "leaf",
        layout: Layout::LEAF,
        since_ms: YEAR_2017_MS,
        field_names: ["", "workerId", "sequenceId"],
        source: "Leaf's snowflake mode: Twitter's epoch and widths, the worker as one field of 10 bits",
    },
    Preset {
        name: "hutool",
        layout: Layout::HUTOOL,
        since_ms: YEAR_2014_MS,
        field_names: ["dataCenterId", "workerId", "sequence"],
        source: "hutool's Snowflake with its default epoch: Twitter's layout",
    },
    Preset {
        name: "worker5",
        layout: Layout::WORKER5,
        since_ms: Layout::WORKER5.epoch_ms(),
        field_names: ["", "", ""],
        source: "the generator that leases 32 workers from a database or Redis: worker 5 and the epoch \
                 2019-12-31T16:00:00Z are given there, timestamp 41 and sequence 12 are assumed, as in Twitter's",
    },
    Preset {
        name: "redis-sharded",
        layout: Layout::REDIS_SHARDED,
        since_ms: YEAR_2012_MS,
        field_names: ["", "shard", "sequence"],
        source: "ids from Redis' clock, ms << 22 | shard << 10 | sequence, with ms since 1970 in 41 bits: they end on \
                 2039-09-07",
    },
    Preset {
        name: "baidu",
        layout: Layout::BAIDU,
        since_ms: Layout::BAIDU.epoch_ms(),
        field_names: ["", "workerId", "sequence"],
        source: "uid-generator's default widths 28/22/13 in s since 2016-05-20 at UTC+8 (its parser takes the zone of \
                 the JVM): they ended on 2024-11-20",
    },
    Preset {
        name: "sonyflake",
        layout: Layout::SONYFLAKE,
        since_ms: Layout::SONYFLAKE.epoch_ms(),
        field_names: ["", "machine", "sequence"],
        source: "Sonyflake v2's defaults: 39 bits of 10 ms since 2025-01-01T00:00:00Z, then sequence 8, then machine 16",
    },
    Preset {
        name: "sonyflake-v1",
        layout: Layout::SONYFLAKE_V1,
        since_ms: Layout::SONYFLAKE_V1.epoch_ms(),
        field_names: ["", "machine-id", "sequence"],
        source: "Sonyflake v1's defaults: the fields of v2, with the time since 2014-09-01T00:00:00Z",
    },
    Preset {
        name: "instagram",
        layout: Layout::INSTAGRAM,
        since_ms: Layout::INSTAGRAM.epoch_ms(),
        field_names: ["", "shard", "sequence"],
        source: "Instagram's sharding article of 2012: 41 bits of ms since 2011-08-24T21:07:01.721Z with the sign, so 40 \
                 here, until 2046-06-27, shard 13, sequence 10",
    },
    Preset {
        name: "discord",
        layout: Layout::DISCORD,
        since_ms: Layout::DISCORD.epoch_ms(),
        field_names: ["worker", "process", "increment"],
        source: "Discord's API reference: 42 bits of ms since 2015-01-01T00:00:00Z with the sign, so 41 here, until \
                 2084-09-06, worker 5 (the datacenter here), process 5, increment 12",
    },
    Preset {
        name: "mastodon",
        layout: Layout::MASTODON,
        since_ms: YEAR_2008_MS,
        field_names: ["", "", "sequence"],
        source: "Mastodon's timestamp_id: 48 bits of ms since 1970 with the sign, so 47 here, then 16 bits, there a \
                 salted hash plus a sequence, here a sequence, and no worker",
    },
    Preset {
        name: "cosid",
        layout: Layout::COSID,
        since_ms: Layout::COSID.epoch_ms(),
        field_names: ["", "machineId", "sequence"],
        source: "CosId's snowflake defaults: 41 bits of ms since 2019-12-24T16:00:00Z, machine 10, sequence 12",
    },
    Preset {
        name: "cosid-53",
        layout: Layout::COSID_53,
        since_ms: Layout::COSID_53.epoch_ms(),
        field_names: ["", "machineId", "sequence"],
        source: "CosId's layout for JavaScript, 53 bits: CosId's epoch, timestamp 41, machine 3, sequence 9",
    },
    Preset {
        name: "tsid",
        layout: Layout::TSID,
        since_ms: Layout::TSID.epoch_ms(),
        field_names: ["", "node", "counter"],
        source: "TSID's defaults: 42 bits of ms since 2020-01-01T00:00:00Z with the sign, so 41 here, until 2089-09-06, \
                 node 10, counter 12, which begins anywhere",
    },
    Preset {
        name: "yitter",
        layout: Layout::YITTER,
        since_ms: Layout::YITTER.epoch_ms(),
        field_names: ["", "WorkerId", "seq"],
        source: "Yitter's defaults in Go, Rust and most others, worker 6 and sequence 6 below all the ms since \
                 2020-02-19T18:20:02Z that 63 bits hold; Yitter itself keeps sequences 0 to 4",
    },
    Preset {
        name: "yitter-53",
        layout: Layout::YITTER_53,
        since_ms: Layout::YITTER_53.epoch_ms(),
        field_names: ["", "WorkerId", "seq"],
        source: "Yitter's defaults, worker 6 and sequence 6 above ms since 2020-02-19T18:20:02Z: the timestamp, without a \
                 bound there, is 41 bits here, so that ids fit JavaScript's 53; Yitter itself keeps sequences 0 to 4",
    },
    Preset {
        name: "yitter-js",
        layout: Layout::YITTER_JS,
        since_ms: Layout::YITTER_JS.epoch_ms(),
        field_names: ["", "WorkerId", "seq"],
        source: "Yitter's JavaScript and TypeScript, whose time begins at 2020-01-01T00:00:00Z: the widths of yitter",
    },
    Preset {
        name: "yitter-csharp",
        layout: Layout::YITTER_CSHARP,
        since_ms: Layout::YITTER_CSHARP.epoch_ms(),
        field_names: ["", "WorkerId", "seq"],
        source: "Yitter's C#, whose time begins at 2020-02-20T02:20:02.020Z: the widths of yitter",
    },
    Preset {
        name: "shardingsphere",
        layout: Layout::SHARDINGSPHERE,
        since_ms: Layout::SHARDINGSPHERE.epoch_ms(),
        field_names: ["", "workerId", "sequence"],
        source: "ShardingSphere's key generator SNOWFLAKE: 41 bits of ms since 2016-11-01 at UTC+8 (it takes the zone of \
                 the JVM), worker 10, sequence 12; in another zone write the layout out with its epoch",
    },
    Preset {
        name: "seata-1.4.1",
        layout: Layout::SEATA_1_4_1,
        since_ms: Layout::SEATA_1_4_1.epoch_ms(),
        field_names: ["", "workerId", "sequence"],
        source: "Seata's IdWorker up to 1.4.1: 41 bits of ms since 2020-05-02T16:00:00Z, worker 10, sequence 12; since \
                 1.4.2 the worker stands highest, which is seata",
    },
];

/// What [`Layout::named`] searches: the table without its sentences, so that the component need not carry them.
#[expect(clippy::indexing_slicing, reason = "an index out of bounds does not compile")]
const NAMED: [(&str, Layout); PRESETS.len()] = {
    let mut named = [("", Layout::TWITTER); PRESETS.len()];
    let mut at = 0;
    while at < PRESETS.len() {
        named[at] = (PRESETS[at].name, PRESETS[at].layout);
        at += 1;
    }
    named
};

/// The preset of this name; `None` for an unknown name. Names are compared byte by byte.
///
/// [`Layout::named`] gives the layout alone.
///
/// ```
/// let preset = unalike_core::preset("twitter").expect("a known name");
/// assert_eq!(preset.layout.to_string(), "41/5+5/12 epoch 1288834974657 tick 1 ms");
/// assert!(unalike_core::preset("Twitter").is_none());
/// ```
#[must_use]
pub fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

/// The presets, also found by name: [`PRESETS`] says where each comes from.
impl Layout {
    /// `twitter`: 41 bits of ms since 2010-11-04T01:42:54.657Z | datacenter 5 | worker 5 | sequence 12, until
    /// 2080-07-10.
    pub const TWITTER: Self = proven(LayoutFields {
        timestamp_bits: 41,
        datacenter_bits: 5,
        worker_bits: 5,
        sequence_bits: 12,
        epoch_ms: 1_288_834_974_657,
        ..MILLISECONDS
    });

    /// `leaf`: [`TWITTER`](Self::TWITTER) with the worker as one field of 10 bits.
    pub const LEAF: Self = proven(LayoutFields { datacenter_bits: 0, worker_bits: 10, ..Self::TWITTER.fields() });

    /// `hutool`: the same as [`TWITTER`](Self::TWITTER).
    pub const HUTOOL: Self = Self::TWITTER;

    /// `worker5`: 41 bits of ms since 2019-12-31T16:00:00Z | worker 5 | sequence 12, until 2089-09-06. Only the
    /// worker's width and the epoch are given by its source.
    pub const WORKER5: Self = proven(LayoutFields {
        timestamp_bits: 41,
        worker_bits: 5,
        sequence_bits: 12,
        epoch_ms: 1_577_808_000_000,
        ..MILLISECONDS
    });

    /// `redis-sharded`: 41 bits of ms since 1970 | shard 12 | sequence 10, until 2039-09-07.
    pub const REDIS_SHARDED: Self =
        proven(LayoutFields { timestamp_bits: 41, worker_bits: 12, sequence_bits: 10, epoch_ms: 0, ..MILLISECONDS });

    /// `baidu`: 28 bits of s since 2016-05-19T16:00:00Z | worker 22 | sequence 13, until 2024-11-20: for reading only.
    pub const BAIDU: Self = proven(LayoutFields {
        timestamp_bits: 28,
        datacenter_bits: 0,
        worker_bits: 22,
        sequence_bits: 13,
        order: FieldOrder::WorkerFirst,
        epoch_ms: 1_463_673_600_000,
        tick_ms: 1000,
    });

    /// `sonyflake`: 39 bits of 10 ms since 2025-01-01T00:00:00Z | sequence 8 | machine 16, until 2199-03-19.
    pub const SONYFLAKE: Self = proven(LayoutFields {
        timestamp_bits: 39,
        datacenter_bits: 0,
        worker_bits: 16,
        sequence_bits: 8,
        order: FieldOrder::SequenceFirst,
        epoch_ms: 1_735_689_600_000,
        tick_ms: 10,
    });

    /// `sonyflake-v1`: [`SONYFLAKE`](Self::SONYFLAKE) since 2014-09-01T00:00:00Z, until 2188-11-16.
    pub const SONYFLAKE_V1: Self = proven(LayoutFields { epoch_ms: 1_409_529_600_000, ..Self::SONYFLAKE.fields() });

    /// `instagram`: 40 bits of ms since 2011-08-24T21:07:01.721Z | shard 13 | sequence 10, until 2046-06-27.
    pub const INSTAGRAM: Self = proven(LayoutFields {
        timestamp_bits: 40,
        worker_bits: 13,
        sequence_bits: 10,
        epoch_ms: 1_314_220_021_721,
        ..MILLISECONDS
    });

    /// `discord`: 41 bits of ms since 2015-01-01T00:00:00Z | worker 5 (as the datacenter) | process 5 (as the worker) |
    /// increment 12, until 2084-09-06.
    pub const DISCORD: Self = proven(LayoutFields {
        timestamp_bits: 41,
        datacenter_bits: 5,
        worker_bits: 5,
        sequence_bits: 12,
        epoch_ms: 1_420_070_400_000,
        ..MILLISECONDS
    });

    /// `mastodon`: 47 bits of ms since 1970 | sequence 16, no worker: one holder at a time.
    pub const MASTODON: Self =
        proven(LayoutFields { timestamp_bits: 47, worker_bits: 0, sequence_bits: 16, epoch_ms: 0, ..MILLISECONDS });

    /// `cosid`: 41 bits of ms since 2019-12-24T16:00:00Z | machine 10 | sequence 12, until 2089-08-30.
    pub const COSID: Self = proven(LayoutFields {
        timestamp_bits: 41,
        worker_bits: 10,
        sequence_bits: 12,
        epoch_ms: 1_577_203_200_000,
        ..MILLISECONDS
    });

    /// `cosid-53`: 41 bits of ms since 2019-12-24T16:00:00Z | machine 3 | sequence 9; exact in a JavaScript number.
    pub const COSID_53: Self = proven(LayoutFields { worker_bits: 3, sequence_bits: 9, ..Self::COSID.fields() });

    /// `tsid`: 41 bits of ms since 2020-01-01T00:00:00Z | node 10 | counter 12, until 2089-09-06.
    pub const TSID: Self = proven(LayoutFields {
        timestamp_bits: 41,
        worker_bits: 10,
        sequence_bits: 12,
        epoch_ms: 1_577_836_800_000,
        ..MILLISECONDS
    });

    /// `yitter`: 51 bits of ms since 2020-02-19T18:20:02Z | worker 6 | sequence 6; up to 2089-10-26 exact in a
    /// JavaScript number.
    pub const YITTER: Self = proven(LayoutFields { timestamp_bits: 51, ..Self::YITTER_53.fields() });

    /// `yitter-53`: 41 bits of ms since 2020-02-19T18:20:02Z | worker 6 | sequence 6; exact in a JavaScript number.
    pub const YITTER_53: Self = proven(LayoutFields {
        timestamp_bits: 41,
        worker_bits: 6,
        sequence_bits: 6,
        epoch_ms: 1_582_136_402_000,
        ..MILLISECONDS
    });

    /// `yitter-js`: [`YITTER`](Self::YITTER) since 2020-01-01T00:00:00Z, as its JavaScript and TypeScript count.
    pub const YITTER_JS: Self = proven(LayoutFields { epoch_ms: 1_577_836_800_000, ..Self::YITTER.fields() });

    /// `yitter-csharp`: [`YITTER`](Self::YITTER) since 2020-02-20T02:20:02.020Z, as its C# counts.
    pub const YITTER_CSHARP: Self = proven(LayoutFields { epoch_ms: 1_582_165_202_020, ..Self::YITTER.fields() });

    /// `shardingsphere`: 41 bits of ms since 2016-10-31T16:00:00Z | worker 10 | sequence 12, until 2086-07-08.
    pub const SHARDINGSPHERE: Self = proven(LayoutFields { epoch_ms: 1_477_929_600_000, ..Self::COSID.fields() });

    /// `seata-1.4.1`: 41 bits of ms since 2020-05-02T16:00:00Z | worker 10 | sequence 12, until 2090-01-07.
    pub const SEATA_1_4_1: Self = proven(LayoutFields { epoch_ms: 1_588_435_200_000, ..Self::COSID.fields() });

    /// The layout of the [`preset`] of this name, without the sentence on its source; `None` for an unknown name.
    ///
    /// ```
    /// # use unalike_core::Layout;
    /// assert_eq!(Layout::named("cosid-53"), Some(Layout::COSID_53));
    /// assert_eq!(Layout::named(""), None);
    /// ```
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        NAMED.iter().find(|(known, _)| *known == name).map(|(_, layout)| *layout)
    }
}

/// Milliseconds, the sequence last, no datacenter. The widths that every preset states are 0 here, so that one which
/// is forgotten fails to compile or to test.
const MILLISECONDS: LayoutFields = LayoutFields {
    timestamp_bits: 0,
    datacenter_bits: 0,
    worker_bits: 0,
    sequence_bits: 0,
    order: FieldOrder::WorkerFirst,
    epoch_ms: 0,
    tick_ms: 1,
};

// Every integer up to 2^53 is exact in a JavaScript number.
const _: () = assert!(Layout::COSID_53.bits() <= 53 && Layout::YITTER_53.bits() <= 53);

/// Only for constants: a bad layout does not compile.
const fn proven(fields: LayoutFields) -> Layout {
    match Layout::new(fields) {
        Ok(layout) => layout,
        Err(_) => panic!("a preset is no valid layout"),
    }
}

#[cfg(test)]
mod tests {
    use alloc::{collections::BTreeSet, string::ToString, vec::Vec};

    use super::*;
    use crate::{LayoutError, Parts};

    #[track_caller]
    fn assert_sample(layout: Layout, id: u64, at_ms: u64, worker: u32, sequence: u32) {
        let ticks = layout.tick_at(at_ms).unwrap();
        assert_eq!(layout.tick_start_ms(ticks), at_ms);
        assert_eq!(layout.unpack(id), Ok(Parts { ticks, worker, sequence }));
        assert_eq!(layout.pack(Parts { ticks, worker, sequence }), Ok(id));
    }

    /// `/decodeSnowflakeId` of Leaf's own documentation: 2019-09-06 09:35:00.834 at UTC+8, worker 39, sequence 3448.
    #[test]
    fn leaf_sample() {
        assert_sample(Layout::LEAF, 1_169_786_042_799_259_000, 1_567_733_700_834, 39, 3448);
        assert_sample(Layout::TWITTER, 1_169_786_042_799_259_000, 1_567_733_700_834, 39, 3448);
        assert_eq!(Layout::TWITTER.split_worker(39), Ok((1, 7)));
    }

    /// The published id, whose shard is 6 and not the 60 stated beside it, and the id that 60 gives.
    #[test]
    fn redis_sharded_samples() {
        assert_sample(Layout::REDIS_SHARDED, 6_416_490_681_073_670_164, 1_529_810_591_000, 6, 20);
        assert_sample(Layout::REDIS_SHARDED, 6_416_490_681_073_725_460, 1_529_810_591_000, 60, 20);
        let parts = Parts { ticks: 1_529_810_591_000, worker: 60, sequence: 20 };
        assert_eq!(Layout::REDIS_SHARDED.pack(parts), Ok(1_529_810_591_000 << 22 | 60 << 10 | 20));
    }

    /// Discord's API reference, "Snowflakes": 2016-04-30T11:18:25.796Z, worker 1, process 0, increment 7.
    #[test]
    fn discord_sample() {
        assert_sample(Layout::DISCORD, 175_928_847_299_117_063, 1_462_015_105_796, 32, 7);
        assert_eq!(Layout::DISCORD.split_worker(32), Ok((1, 0)));
    }

    /// The worked example of Instagram's article: 1387263000 ms after the epoch, user 31341 of 2000 shards, number
    /// 5001.
    #[test]
    fn instagram_sample() {
        let parts = Parts { ticks: 1_387_263_000, worker: 31_341 % 2000, sequence: 5001 % 1024 };
        assert_eq!(Layout::INSTAGRAM.pack(parts), Ok(11_637_205_501_278_089));
    }

    /// Sonyflake v2 composes `time << 24 | sequence << 16 | machine`.
    #[test]
    fn sonyflake_puts_the_machine_last() {
        let id = (4_250_000_000 << 24) | (0xab << 16) | 0x1234;
        assert_sample(Layout::SONYFLAKE, id, 1_735_689_600_000 + 42_500_000_000, 0x1234, 0xab);
    }

    /// The README of tsid-creator has an id and a text, which is that of another id, 1.3 seconds later.
    #[test]
    fn tsid_sample() {
        assert_sample(Layout::TSID, 38_352_658_567_418_872, 1_586_980_786_360, 421, 1_016);
        assert_eq!(crate::decode("01226N0640J7Q", crate::Text::Base32), Ok(38_358_284_406_638_839));
        assert_sample(Layout::TSID, 38_358_284_406_638_839, 1_586_982_127_665, 4, 2_295);
    }

    /// Yitter's M1: `tick << 12 | worker << 6 | sequence`; the first sequence of a tick is 5.
    #[test]
    fn yitter_has_no_bound_of_its_own() {
        let id = (1_795_361_401_002 - 1_582_136_402_000) << 12 | 9 << 6 | 5;
        assert_sample(Layout::YITTER, id, 1_795_361_401_002, 9, 5);
        assert_sample(Layout::YITTER_53, id, 1_795_361_401_002, 9, 5);
        assert_eq!(Layout::YITTER.id_max(), crate::ID_MAX);
        let in_js = (1_795_361_401_002 - 1_577_836_800_000) << 12 | 9 << 6 | 5;
        assert_sample(Layout::YITTER_JS, in_js, 1_795_361_401_002, 9, 5);
        assert_eq!(crate::instant("2020-02-20T02:20:02.020Z"), Ok(Layout::YITTER_CSHARP.epoch_ms()));
    }

    /// uid-generator's cached mode does not look: at 2026-01-01T00:00:00Z it gives -8016776772626407424.
    #[test]
    fn baidu_has_ended() {
        let layout = Layout::BAIDU;
        assert_eq!(layout.ends_ms(), 1_732_109_056_000); // 2024-11-20T13:24:16Z
        let ticks = layout.tick_at(1_767_225_600_000).unwrap();
        assert_eq!(((ticks << 35) | (1 << 13)).cast_signed(), -8_016_776_772_626_407_424);
        let error = LayoutError::TimestampRange { max: (1 << 28) - 1 };
        assert_eq!(layout.pack(Parts { ticks, worker: 1, sequence: 0 }), Err(error));
    }

    /// A format published with the sign bit: the last positive id of the published one is the last id here.
    #[test]
    fn formats_of_64_bits_end_where_their_sign_bit_would_be_set() {
        for layout in [Layout::INSTAGRAM, Layout::DISCORD, Layout::MASTODON, Layout::TSID] {
            assert_eq!(layout.id_max(), crate::ID_MAX, "{layout}");
        }
    }

    #[test]
    fn ends_are_the_instants_that_the_documentation_names() {
        for (layout, ends_ms) in [
            (Layout::TWITTER, 3_487_858_230_209),        // 2080-07-10T17:30:30.209Z
            (Layout::WORKER5, 3_776_831_255_552),        // 2089-09-06T07:47:35.552Z
            (Layout::REDIS_SHARDED, 2_199_023_255_552),  // 2039-09-07T15:47:35.552Z
            (Layout::SONYFLAKE, 7_233_247_738_880),      // 2199-03-19T03:28:58.880Z
            (Layout::INSTAGRAM, 2_413_731_649_497),      // 2046-06-27T17:00:49.497Z
            (Layout::DISCORD, 3_619_093_655_552),        // 2084-09-06T15:47:35.552Z
            (Layout::COSID, 3_776_226_455_552),          // 2089-08-30T07:47:35.552Z
            (Layout::YITTER_53, 3_781_159_657_552),      // 2089-10-26T10:07:37.552Z
            (Layout::TSID, 3_776_860_055_552),           // 2089-09-06T15:47:35.552Z
            (Layout::SONYFLAKE_V1, 6_907_087_738_880),   // 2188-11-16T03:28:58.880Z
            (Layout::SHARDINGSPHERE, 3_676_952_855_552), // 2086-07-08T07:47:35.552Z
            (Layout::SEATA_1_4_1, 3_787_458_455_552),    // 2090-01-07T07:47:35.552Z
        ] {
            assert_eq!(layout.ends_ms(), ends_ms, "{layout}");
        }
    }

    #[test]
    fn every_preset_has_the_published_figures() {
        let figures: Vec<_> = PRESETS.iter().map(|preset| (preset.name, preset.layout.to_string())).collect();
        let published = [
            ("twitter", "41/5+5/12 epoch 1288834974657 tick 1 ms"),
            ("leaf", "41/10/12 epoch 1288834974657 tick 1 ms"),
            ("hutool", "41/5+5/12 epoch 1288834974657 tick 1 ms"),
            ("worker5", "41/5/12 epoch 1577808000000 tick 1 ms"),
            ("redis-sharded", "41/12/10 epoch 0 tick 1 ms"),
            ("baidu", "28/22/13 epoch 1463673600000 tick 1000 ms"),
            ("sonyflake", "39/8/16 sequence-first epoch 1735689600000 tick 10 ms"),
            ("sonyflake-v1", "39/8/16 sequence-first epoch 1409529600000 tick 10 ms"),
            ("instagram", "40/13/10 epoch 1314220021721 tick 1 ms"),
            ("discord", "41/5+5/12 epoch 1420070400000 tick 1 ms"),
            ("mastodon", "47/0/16 epoch 0 tick 1 ms"),
            ("cosid", "41/10/12 epoch 1577203200000 tick 1 ms"),
            ("cosid-53", "41/3/9 epoch 1577203200000 tick 1 ms"),
            ("tsid", "41/10/12 epoch 1577836800000 tick 1 ms"),
            ("yitter", "51/6/6 epoch 1582136402000 tick 1 ms"),
            ("yitter-53", "41/6/6 epoch 1582136402000 tick 1 ms"),
            ("yitter-js", "51/6/6 epoch 1577836800000 tick 1 ms"),
            ("yitter-csharp", "51/6/6 epoch 1582165202020 tick 1 ms"),
            ("shardingsphere", "41/10/12 epoch 1477929600000 tick 1 ms"),
            ("seata-1.4.1", "41/10/12 epoch 1588435200000 tick 1 ms"),
        ];
        assert_eq!(figures, published.map(|(name, layout)| (name, layout.to_string())));
    }

    #[test]
    fn names_are_distinct_well_formed_and_found_in_both_tables() {
        let names: BTreeSet<_> = PRESETS.iter().map(|preset| preset.name).collect();
        assert_eq!(names.len(), PRESETS.len());
        for found in PRESETS {
            let name = found.name;
            assert!(
                name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte)),
                "{name}"
            );
            assert!(!found.source.is_empty() && !found.source.ends_with('.'), "{name}");
            assert!((found.layout.epoch_ms()..found.layout.ends_ms()).contains(&found.since_ms), "{name}");
            assert_eq!(preset(name), Some(found));
            assert_eq!(Layout::named(name), Some(found.layout));
        }
        for unknown in ["", "Twitter", "twitter ", "snowflake"] {
            assert_eq!((preset(unknown), Layout::named(unknown)), (None, None), "{unknown:?}");
        }
    }
}
