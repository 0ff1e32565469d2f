//! Snowflake layouts by name: their figures, and the parts of an id.

use jiff::Timestamp;
use serde::Serialize;
use unalike::{Clock, ID_MAX, Layout, PRESETS, Preset, SystemClock, preset};

/// The layout that is meant when none is named, and that of the snowflake `default`.
pub(crate) const LAYOUT_DEFAULT: &str = "twitter";

/// Why an id was not taken apart.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    /// No layout has this name.
    #[error("the layout {name:?} is unknown; the layouts are {}", known())]
    LayoutUnknown {
        /// The name.
        name: String,
    },
    /// Not a whole number in decimal.
    #[error("the id {text:?} is not a whole number from 1 to {ID_MAX}")]
    NotAnId {
        /// What was given, shortened if it is too long.
        text: String,
    },
    /// The layout has no such id.
    #[error("the id {id} is outside 1 to {max}, the ids of the layout {layout}")]
    OutOfRange {
        /// The id.
        id: u64,
        /// The layout's name.
        layout: &'static str,
        /// The greatest id of the layout.
        max: u64,
    },
}

fn known() -> String {
    PRESETS.iter().map(|preset| preset.name).collect::<Vec<_>>().join(", ")
}

/// The layout of this name.
pub(crate) fn layout_named(name: &str) -> Result<Layout, DecodeError> {
    preset_named(name).map(|preset| preset.layout)
}

fn preset_named(name: &str) -> Result<&'static Preset, DecodeError> {
    preset(name).ok_or_else(|| DecodeError::LayoutUnknown { name: shortened(name) })
}

/// The parts of a snowflake id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Decoded {
    /// The id, in decimal.
    pub(crate) id: String,
    /// The layout's name.
    pub(crate) layout: &'static str,
    /// When the id's tick began, RFC 3339, in UTC.
    pub(crate) time: String,
    /// The same in Unix milliseconds.
    pub(crate) unix_ms: u64,
    /// The datacenter; 0 where the layout has none.
    pub(crate) datacenter: u32,
    /// The worker.
    pub(crate) worker: u32,
    /// The number within tick and worker.
    pub(crate) sequence: u32,
}

/// Takes an id apart.
pub(crate) fn decode(id: &str, layout: &str) -> Result<Decoded, DecodeError> {
    let Preset { name, layout, .. } = *preset_named(layout)?;
    let not_an_id = || DecodeError::NotAnId { text: shortened(id) };
    if !id.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(not_an_id());
    }
    let number: u64 = id.parse().map_err(|_| not_an_id())?;
    if number == 0 || number > ID_MAX {
        return Err(not_an_id());
    }
    let out_of_range = |_| DecodeError::OutOfRange { id: number, layout: name, max: layout.id_max() };
    let parts = layout.unpack(number).map_err(out_of_range)?;
    let (datacenter, worker) = layout.split_worker(parts.worker).map_err(out_of_range)?;
    let unix_ms = layout.tick_start_ms(parts.ticks);
    Ok(Decoded {
        id: number.to_string(),
        layout: name,
        time: rfc3339(unix_ms),
        unix_ms,
        datacenter,
        worker,
        sequence: parts.sequence,
    })
}

/// The figures of a layout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct LayoutFigures {
    /// Its name.
    pub(crate) name: &'static str,
    /// Width of an id, in bits.
    pub(crate) bits: u8,
    /// Width of the timestamp, in bits.
    pub(crate) timestamp_bits: u8,
    /// Width of the datacenter, in bits.
    pub(crate) datacenter_bits: u8,
    /// Width of the worker without the datacenter, in bits.
    pub(crate) worker_bits: u8,
    /// Width of the sequence, in bits.
    pub(crate) sequence_bits: u8,
    /// Length of a tick, in milliseconds.
    pub(crate) tick_ms: u32,
    /// When tick 0 begins, RFC 3339.
    pub(crate) epoch: String,
    /// How many workers there are, datacenter included.
    pub(crate) workers: u64,
    /// The most ids that one worker gives, per second.
    pub(crate) ids_per_second: u64,
    /// When the last tick ends, RFC 3339: from then on there are no ids.
    pub(crate) ends: String,
    /// Whether that has passed: such ids can be read only.
    pub(crate) ended: bool,
    /// Where the figures come from.
    pub(crate) source: &'static str,
    /// The widths in the order of the bits, see [`Layout`]'s own text.
    #[serde(skip)]
    pub(crate) widths: String,
}

/// All layouts, as of now.
pub(crate) fn all_layouts() -> Vec<LayoutFigures> {
    let now_ms = SystemClock.now_ms();
    PRESETS.iter().map(|preset| figures(preset, now_ms)).collect()
}

fn figures(preset: &Preset, now_ms: u64) -> LayoutFigures {
    let layout = preset.layout;
    LayoutFigures {
        name: preset.name,
        bits: layout.bits(),
        timestamp_bits: layout.timestamp_bits(),
        datacenter_bits: layout.datacenter_bits(),
        worker_bits: layout.worker_bits(),
        sequence_bits: layout.sequence_bits(),
        tick_ms: layout.tick_ms(),
        epoch: rfc3339(layout.epoch_ms()),
        workers: layout.workers(),
        ids_per_second: layout.ids_per_tick().saturating_mul(1_000) / u64::from(layout.tick_ms()),
        ends: rfc3339(layout.ends_ms()),
        ended: layout.ends_ms() <= now_ms,
        source: preset.source,
        widths: widths(&layout),
    }
}

/// `41/5+5/12`: the widths as the layout writes them, without epoch and tick.
fn widths(layout: &Layout) -> String {
    let text = layout.to_string();
    text.split_once(" epoch").map_or(text.as_str(), |(widths, _)| widths).to_owned()
}

/// RFC 3339 in UTC with milliseconds; beyond the year 9999 there is none.
pub(crate) fn rfc3339(unix_ms: u64) -> String {
    let time = i64::try_from(unix_ms).ok().and_then(|unix_ms| Timestamp::from_millisecond(unix_ms).ok());
    time.map_or_else(|| "after the year 9999".to_owned(), |time| format!("{time:.3}"))
}

/// At most 32 characters, for messages.
pub(crate) fn shortened(text: &str) -> String {
    text.chars().take(32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_leaf_is_taken_apart() {
        let decoded = decode("1169786042799259000", "leaf").unwrap();
        assert_eq!(decoded.time, "2019-09-06T01:35:00.834Z");
        assert_eq!((decoded.unix_ms, decoded.datacenter, decoded.worker), (1_567_733_700_834, 0, 39));
        assert_eq!(decoded.sequence, 3_448);
    }

    #[test]
    fn what_is_no_id_of_the_layout_is_refused() {
        for text in ["", "0", "-1", "+1", "1.0", "abc", "9223372036854775808", "99999999999999999999999"] {
            assert!(matches!(decode(text, "twitter"), Err(DecodeError::NotAnId { .. })), "{text}");
        }
        assert!(matches!(decode("9223372036854775807", "cosid-53"), Err(DecodeError::OutOfRange { .. })));
        assert!(matches!(decode("1", "nobody's"), Err(DecodeError::LayoutUnknown { .. })));
    }

    #[test]
    fn the_figures_say_what_the_layouts_promise() {
        let figures = |name| all_layouts().into_iter().find(|layout| layout.name == name).unwrap();
        let twitter = figures("twitter");
        assert_eq!((twitter.ids_per_second, twitter.workers, twitter.ended), (4_096_000, 1_024, false));
        assert_eq!(twitter.ends, "2080-07-10T17:30:30.209Z");
        assert!(figures("baidu").ended);
        assert_eq!(figures("sonyflake").ids_per_second, 25_600);
    }
}
