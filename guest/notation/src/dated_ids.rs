//! Ids from outside whose time somebody else has told, for every layout that [`guess`](crate::guess()) knows.
//!
//! A layout that is off by a zone or a bit still reads every id, so a table made from the layout itself proves nothing.
//! Each time here is from a log, an API, a page or a test of other people, to the precision that they state.

use alloc::{collections::BTreeSet, string::ToString, vec::Vec};

use unalike_core::Rfc3339;

use crate::{Verdict, guess, known_layouts};

/// An id whose time is told outside.
struct Dated {
    /// What [`guess`](crate::guess()) calls the layout.
    layout: &'static str,
    id: &'static str,
    /// RFC 3339 in UTC, without what the source does not say: a day, a second, or a part of one.
    time: &'static str,
    /// Who says so, and where; what is peculiar about it.
    source: &'static str,
}

const fn dated(layout: &'static str, id: &'static str, time: &'static str, source: &'static str) -> Dated {
    Dated { layout, id, time, source }
}

const DATED: &[Dated] = &[
    dated(
        "twitter",
        "699570924048162816",
        "2016-02-16T12:28:00",
        "created_at of this user in Twitter's API: https://blog.konomama.dev/posts/twitter-snowflake-metadata",
    ),
    dated(
        "twitter",
        "1098230906194546688",
        "2019-02-20T14:40:26.837",
        "obsidianforensics/unfurl@568ada02:unfurl/tests/unit/test_twitter.py",
    ),
    dated(
        "leaf",
        "1169786042799259000",
        "2019-09-06T01:35:00.834",
        "Meituan-Dianping/Leaf@86a6441d:leaf-server/src/main/java/com/sankuai/inf/leaf/server/controller/\
         LeafMonitorController.java: 1567733700834, worker 39, sequence 3448; the id is put together from these",
    ),
    dated(
        "hutool",
        "1278735254782615552",
        "2020-07-02T17:00:17.149",
        "a log of 2020-07-03 01:00:17.149 at UTC+8, hutool 5.3.7: https://github.com/chinabugotech/hutool/issues/949",
    ),
    dated(
        "redis-sharded",
        "6416490681073670164",
        "2018-06-24T03:23:11.000",
        "1529810591000 in the article id-redis of 2018-06-24, which takes the shard for 60: it is 6",
    ),
    dated(
        "sonyflake-v1",
        "314948827708654619",
        "2020-08-12T17:35:29.98",
        "obsidianforensics/unfurl@dffa055c:unfurl/tests/unit/test_sonyflake.py, where it is 45eec4a4600041b",
    ),
    dated(
        "instagram",
        "1321881485787928625",
        "2016-08-21T17:29:34",
        "taken_at 1471800574 in Instagram's API: https://github.com/mgp25/Instagram-API/issues/957",
    ),
    dated(
        "instagram",
        "1750994329391287056",
        "2018-04-05T19:00:11",
        "taken_at 1522954811 in Instagram's API: https://github.com/mgp25/Instagram-API/issues/1897",
    ),
    dated(
        "discord",
        "175928847299117063",
        "2016-04-30T11:18:25.796",
        "https://discord.com/developers/docs/reference#snowflakes",
    ),
    dated(
        "mastodon",
        "108942703571991143",
        "2022-09-04T23:22:13",
        "created_at .704, a millisecond after the id: mastodon/documentation@2903485d:content/en/methods/statuses.md",
    ),
    dated(
        "cosid",
        "295913926632165376",
        "2022-03-20T05:36:17.924",
        "20220320133617924-5-0 at UTC+8: Ahoo-Wang/CosId@fc29da0a:cosid-core/src/test/java/me/ahoo/cosid/converter/\
         SnowflakeFriendlyIdConverterTest.java",
    ),
    dated(
        "cosid",
        "266300479548424192",
        "2021-12-28T12:23:01.948",
        "20211228202301948-0-0 at UTC+8: Ahoo-Wang/CosId@fc29da0a:document/docs/guide/cosid-jackson.md",
    ),
    dated(
        "tsid",
        "397177100698290050",
        "2023-01-01T00:00:00.000",
        "odan/tsid@59385b1b:README.md, Data Type Comparison",
    ),
    dated(
        "yitter-js",
        "234712552579141",
        "2021-10-25",
        "yitter/IdGenerator@21e30e55:TypeScript/README.md, whose output it is; the commit is of 05:50:36Z",
    ),
    dated(
        "yitter-csharp",
        "294807880151109",
        "2022-06-02",
        "made with C# on the day of https://github.com/yitter/IdGenerator/issues/29",
    ),
    dated(
        "shardingsphere",
        "452837411152461833",
        "2020-04-03T06:14:12",
        "a log of 14:14:12.246 at UTC+8, 115 ms later: https://github.com/apache/shardingsphere/issues/5058",
    ),
    dated(
        "shardingsphere",
        "725026630224842752",
        "2022-04-24",
        "made with 5.0.0 on the day of https://github.com/apache/shardingsphere/issues/17055",
    ),
    dated(
        "seata-1.4.1",
        "308351234998353920",
        "2022-08-31T13:17:43.312",
        "beginTime 1661951863312: https://github.com/apache/incubator-seata/issues/4898",
    ),
    dated(
        "seata-1.4.1",
        "84748203440664576",
        "2020-12-22T12:39",
        "a log of 20:39:08.776 at UTC+8, two seconds later: https://github.com/apache/incubator-seata/issues/3396",
    ),
    dated(
        "seata",
        "2207391485099498761",
        "2025-03-11",
        "begun at 15:03:31.147 at UTC+8 by a Seata 2.2.0, whose ids have a time soon after its start, not their own: \
         https://github.com/apache/incubator-seata/issues/7204",
    ),
    dated(
        "vesta-document",
        "3456526092514361344",
        "2015-05-28T08:05:39",
        "Thu May 28 16:05:39 CST 2015: Vesta's API document, /expid and /transtime",
    ),
    dated(
        "cosid-friendly",
        "20240103152415876-5-16",
        "2024-01-03T15:24:15.876",
        "its own digits, in no stated zone: Ahoo-Wang/CosId@fc29da0a:documentation/docs/en/guide/specific-id.md",
    ),
    dated("uuid-v1", "C232AB00-9414-11EC-B3C8-9F6BDECED846", "2022-02-22T19:22:22", "RFC 9562, appendix A.1"),
    dated("uuid-v6", "1EC9414C-232A-6B00-B3C8-9F6BDECED846", "2022-02-22T19:22:22", "RFC 9562, appendix A.5"),
    dated("uuid-v7", "017F22E2-79B0-7CC3-98C4-DC0C0C07398F", "2022-02-22T19:22:22", "RFC 9562, appendix A.6"),
    dated(
        "ulid",
        "01ARYZ6S41TSV4RRFFQ69G5FAV",
        "2016-07-30T22:36:16.385",
        "1469918176385 in the README of https://github.com/ulid/javascript",
    ),
];

/// Layouts of whose ids none found was told a time, and where their figures are from.
const NONE_FOUND: &[(&str, &str)] = &[
    ("worker5", "the operator of the generator gave the epoch and the 5 bits; nothing of it is published"),
    (
        "baidu",
        "baidu/uid-generator@2fcbc13d:src/main/java/com/baidu/fsg/uid/impl/DefaultUidGenerator.java; the README's \
         180363646902239241 of 2017-01-19 12:15:46 is of 29/21/13 epoch 2016-09-20 at UTC+8",
    ),
    ("sonyflake", "sony/sonyflake@f167a9d5:v2/sonyflake.go"),
    (
        "cosid-53",
        "Ahoo-Wang/CosId@fc29da0a:cosid-core/src/main/java/me/ahoo/cosid/snowflake/SafeJavaScriptSnowflakeId.java",
    ),
    (
        "yitter",
        "yitter/IdGenerator@942ba6ad:Java/source/src/main/java/com/github/yitter/contract/IdGeneratorOptions.java",
    ),
    ("yitter-53", "the same"),
    ("vesta-max-peak", "the code of vesta-id-generator; the one dated id of its documents has another order"),
    ("vesta-min-granularity", "the same"),
    (
        "cosid-radix62",
        "Ahoo-Wang/CosId@fc29da0a:cosid-core/src/main/java/me/ahoo/cosid/cosid/Radix62CosIdGenerator.java",
    ),
    (
        "cosid-radix36",
        "Ahoo-Wang/CosId@fc29da0a:cosid-core/src/main/java/me/ahoo/cosid/cosid/Radix36CosIdGenerator.java",
    ),
];

/// 2026-11-22
const NOW_MS: u64 = 1_795_305_600_000;

#[test]
fn ids_have_the_time_that_others_tell() {
    let known: Vec<_> = known_layouts().collect();
    for Dated { layout, id, time, source } in DATED {
        let guesses = guess(id, NOW_MS, &known);
        let guess = guesses.iter().find(|guess| guess.name == *layout).unwrap();
        let told = Rfc3339(guess.unix_ms.unwrap()).to_string();
        assert!(told.starts_with(time), "{layout}: {id} is of {told}, and of {time} by {source}");
        assert!(guess.verdict.is_plausible(), "{layout}: {id} is {:?}", guess.verdict);
    }
}

#[test]
fn every_layout_with_a_time_has_a_dated_id_or_says_that_none_was_found() {
    let dated: BTreeSet<_> = DATED.iter().map(|dated| dated.layout).collect();
    let none_found: BTreeSet<_> = NONE_FOUND.iter().map(|(layout, _)| *layout).collect();
    assert_eq!(dated.intersection(&none_found).count(), 0);
    assert_eq!(none_found.len(), NONE_FOUND.len());
    assert!(NONE_FOUND.iter().all(|(_, source)| !source.is_empty()));
    let of_texts = ["cosid-friendly", "cosid-radix62", "cosid-radix36", "uuid-v1", "uuid-v6", "uuid-v7", "ulid"];
    let with_time = known_layouts().filter(|known| known.scheme.ends_ms().is_some()).map(|known| known.name);
    let expected: BTreeSet<_> = with_time.chain(of_texts).collect();
    assert_eq!(dated.union(&none_found).copied().collect::<BTreeSet<_>>(), expected);
}

/// What the same id of Seata is in the layout of its other versions is no time that could be.
#[test]
fn the_versions_of_seata_are_told_apart() {
    let known: Vec<_> = known_layouts().collect();
    let verdict = |id: &str, name: &str| {
        let guesses = guess(id, NOW_MS, &known);
        guesses.iter().find(|guess| guess.name == name).unwrap().verdict
    };
    // 2021-03-26T16:54:05Z
    assert!(verdict("118876832896389120", "seata-1.4.1").is_plausible());
    assert!(!verdict("118876832896389120", "seata").is_plausible());
    assert_eq!(verdict("2207391485099498761", "seata-1.4.1"), Verdict::TooLate);
}
