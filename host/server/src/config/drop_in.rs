//! The services whose clients are served on their own paths.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The services whose paths there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DropIn {
    /// Meituan's Leaf: /api/segment/get/KEY, /api/snowflake/get/KEY, /decodeSnowflakeId
    Leaf,
    /// Didi's tinyid: /tinyid/id/nextId, nextIdSimple, nextSegmentId, nextSegmentIdSimple
    Tinyid,
    /// CosId's proxy: /ids, /segments, /machines
    Cosid,
}

/// The greatest `segment_count_max`: no client may use a tag up at one blow.
pub(crate) const SEGMENT_COUNT_MAX: u64 = 1_000_000_000;
