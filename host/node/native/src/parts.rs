//! Plain values, as the package gives and takes them. Every number is a BigInt, and is looked at before anything is
//! made of it: Node itself would cut one to size without a word.

use napi::bindgen_prelude::BigInt;
use napi_derive::napi;
use unalike::storage::{
    FormatPart, GrantId, Layout, LayoutFields, Lease, LeaseAcquire, LeaseExtend, Mode, Segment, StoreError, TagOptions,
    TagRecord,
};
use unalike::{AdaptiveStep, FieldOrder, ID_MAX, RefillPolicy, StepPolicy};
use unalike_bindings::Failure;

/// Why nothing was brought: what a `StoreError` is made of.
#[napi(object, object_from_js = false)]
pub(crate) struct Failed {
    /// As the package has it.
    pub kind: String,
    /// What happened, which value, what to do.
    pub message: String,
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Self { kind: failure.as_store_kind().to_owned(), message: failure.message }
    }
}

/// Numbers that were granted.
#[napi(object)]
pub struct SegmentParts {
    /// The first.
    pub start: BigInt,
    /// The first that is not granted.
    pub end: BigInt,
    /// From one to the next.
    pub stride: BigInt,
    /// Of the tag's numbering.
    pub generation: BigInt,
    /// Of the tag's row.
    pub version: BigInt,
}

impl From<Segment> for SegmentParts {
    fn from(segment: Segment) -> Self {
        let Segment { start, end, stride, generation, version } = segment;
        let [start, end, stride, generation, version] = [start, end, stride, generation, version].map(BigInt::from);
        Self { start, end, stride, generation, version }
    }
}

impl TryFrom<SegmentParts> for Segment {
    type Error = Failure;

    fn try_from(parts: SegmentParts) -> Result<Self, Failure> {
        Ok(Self {
            start: number("the first number", &parts.start)?,
            end: number("the end", &parts.end)?,
            stride: number("the stride", &parts.stride)?,
            generation: number("the generation", &parts.generation)?,
            version: number("the version", &parts.version)?,
        })
    }
}

/// A worker that was leased.
#[napi(object, object_from_js = false)]
pub(crate) struct LeaseParts {
    /// The worker.
    pub worker: u32,
    /// 128 bits.
    pub grant_id: u128,
    /// The first timestamp.
    pub not_before_ms: u64,
    /// The first after it.
    pub valid_until_ms: u64,
}

impl From<Lease> for LeaseParts {
    fn from(lease: Lease) -> Self {
        let Lease { worker, grant_id: GrantId(grant_id), not_before_ms, valid_until_ms } = lease;
        Self { worker, grant_id, not_before_ms, valid_until_ms }
    }
}

/// How a step follows use.
#[napi(object)]
pub struct AdaptiveParts {
    /// The least step.
    pub min: BigInt,
    /// The greatest.
    pub max: BigInt,
    /// Below how many milliseconds it doubles.
    pub grow_below_ms: BigInt,
    /// Above how many it halves.
    pub shrink_above_ms: BigInt,
}

/// What a tag is created with.
#[napi(object)]
pub struct OptionParts {
    /// The first number.
    pub start: BigInt,
    /// The step, or the first one.
    pub step: BigInt,
    /// None where the step is fixed.
    pub adaptive: Option<AdaptiveParts>,
    /// Whether the refill is a share of what was granted, in percent.
    pub is_share: bool,
    /// How much.
    pub refill: BigInt,
    /// The mode.
    pub is_ordered: bool,
}

impl From<TagOptions> for OptionParts {
    fn from(options: TagOptions) -> Self {
        let TagOptions { start, step, refill, mode } = options;
        let (step, adaptive) = match step {
            StepPolicy::Fixed { step } => (step, None),
            StepPolicy::Adaptive(AdaptiveStep { initial, min, max, grow_below_ms, shrink_above_ms }) => {
                let [min, max] = [min.into(), max.into()];
                let [grow_below_ms, shrink_above_ms] = [grow_below_ms.into(), shrink_above_ms.into()];
                (initial, Some(AdaptiveParts { min, max, grow_below_ms, shrink_above_ms }))
            }
        };
        let (is_share, refill) = match refill {
            RefillPolicy::ShareConsumed { percent } => (true, u64::from(percent)),
            RefillPolicy::Remaining { count } => (false, count),
        };
        let is_ordered = mode == Mode::Ordered;
        Self { start: start.into(), step: step.into(), adaptive, is_share, refill: refill.into(), is_ordered }
    }
}

impl TryFrom<OptionParts> for TagOptions {
    type Error = Failure;

    fn try_from(parts: OptionParts) -> Result<Self, Failure> {
        let step = number("the step", &parts.step)?;
        let step = match parts.adaptive {
            None => StepPolicy::Fixed { step },
            Some(adaptive) => StepPolicy::Adaptive(AdaptiveStep {
                initial: step,
                min: number("the least step", &adaptive.min)?,
                max: number("the greatest step", &adaptive.max)?,
                grow_below_ms: number("growBelowMs", &adaptive.grow_below_ms)?,
                shrink_above_ms: number("shrinkAboveMs", &adaptive.shrink_above_ms)?,
            }),
        };
        let refill = if parts.is_share {
            RefillPolicy::ShareConsumed { percent: number("the refill in percent", &parts.refill)? }
        } else {
            RefillPolicy::Remaining { count: number("the refill", &parts.refill)? }
        };
        let mode = if parts.is_ordered { Mode::Ordered } else { Mode::Buffered };
        Ok(Self { start: number("the start", &parts.start)?, step, refill, mode })
    }
}

/// A tag as its store keeps it.
#[napi(object)]
pub struct RecordParts {
    /// With what it was created.
    pub options: OptionParts,
    /// The greatest number that may have been handed out.
    pub watermark: BigInt,
}

impl From<TagRecord> for RecordParts {
    fn from(record: TagRecord) -> Self {
        Self { options: record.options.into(), watermark: record.watermark.into() }
    }
}

impl RecordParts {
    /// The record of this tag. Versions come with grants alone.
    pub(crate) fn of(self, tag: &str) -> Result<TagRecord, Failure> {
        let watermark = number("the watermark", &self.watermark)?;
        Ok(TagRecord { tag: tag.to_owned(), options: self.options.try_into()?, watermark, version: 0 })
    }
}

/// A layout.
#[napi(object, object_to_js = false)]
pub struct LayoutParts {
    /// Width of the timestamp.
    pub timestamp_bits: BigInt,
    /// Of the datacenter.
    pub datacenter_bits: BigInt,
    /// Of the worker.
    pub worker_bits: BigInt,
    /// Of the sequence.
    pub sequence_bits: BigInt,
    /// Whether the worker comes before the sequence.
    pub is_worker_first: bool,
    /// When the first tick begins.
    pub epoch_ms: BigInt,
    /// How long one is.
    pub tick_ms: BigInt,
}

impl TryFrom<LayoutParts> for Layout {
    type Error = Failure;

    fn try_from(parts: LayoutParts) -> Result<Self, Failure> {
        Self::new(LayoutFields {
            timestamp_bits: number("timestampBits", &parts.timestamp_bits)?,
            datacenter_bits: number("datacenterBits", &parts.datacenter_bits)?,
            worker_bits: number("workerBits", &parts.worker_bits)?,
            sequence_bits: number("sequenceBits", &parts.sequence_bits)?,
            order: if parts.is_worker_first { FieldOrder::WorkerFirst } else { FieldOrder::SequenceFirst },
            epoch_ms: number("epochMs", &parts.epoch_ms)?,
            tick_ms: number("tickMs", &parts.tick_ms)?,
        })
        .map_err(|error| unfit(format!("the layout is not valid: {error}")))
    }
}

/// A request for a worker.
#[napi(object, object_to_js = false)]
pub struct AcquireParts {
    /// Of which namespace.
    pub namespace: String,
    /// Of its ids.
    pub layout: LayoutParts,
    /// Who asks.
    pub holder: String,
    /// The worker that it would like to have.
    pub preferred_worker: Option<BigInt>,
    /// Its clock.
    pub now_ms: BigInt,
    /// How far ahead.
    pub horizon_ms: BigInt,
}

impl TryFrom<AcquireParts> for LeaseAcquire {
    type Error = Failure;

    fn try_from(parts: AcquireParts) -> Result<Self, Failure> {
        let AcquireParts { namespace, layout, holder, preferred_worker, now_ms, horizon_ms } = parts;
        let preferred_worker = preferred_worker.map(|worker| number("the worker", &worker)).transpose()?;
        let (now_ms, horizon_ms) = (number("the clock", &now_ms)?, number("the horizon", &horizon_ms)?);
        Ok(Self { namespace, layout: layout.try_into()?, holder, preferred_worker, now_ms, horizon_ms })
    }
}

/// A request to prolong a lease.
#[napi(object, object_to_js = false)]
pub struct ExtendParts {
    /// Of which namespace.
    pub namespace: String,
    /// Of its ids.
    pub layout: LayoutParts,
    /// Which worker.
    pub worker: BigInt,
    /// By which grant.
    pub grant_id: BigInt,
    /// The holder's clock.
    pub now_ms: BigInt,
    /// How far ahead.
    pub horizon_ms: BigInt,
}

impl TryFrom<ExtendParts> for LeaseExtend {
    type Error = Failure;

    fn try_from(parts: ExtendParts) -> Result<Self, Failure> {
        let ExtendParts { namespace, layout, worker, grant_id: grant, now_ms, horizon_ms } = parts;
        let (worker, grant_id) = (number("the worker", &worker)?, grant_id(&grant)?);
        let (now_ms, horizon_ms) = (number("the clock", &now_ms)?, number("the horizon", &horizon_ms)?);
        Ok(Self { namespace, layout: layout.try_into()?, worker, grant_id, now_ms, horizon_ms })
    }
}

/// The key of a format.
#[napi(object, object_to_js = false)]
pub struct KeyParts {
    /// Its number.
    pub id: BigInt,
    /// How many bits it permutes.
    pub bits: BigInt,
}

/// What of a format is bound: its shape, or one of its keys.
pub(crate) fn format_part(key: Option<KeyParts>) -> Result<FormatPart, Failure> {
    Ok(match key {
        None => FormatPart::Shape,
        Some(key) => FormatPart::Key { id: number("the id", &key.id)?, bits: number("the bits", &key.bits)? },
    })
}

/// A number that a format can be bound by.
pub(crate) fn binding_number(given: &BigInt) -> Result<u64, Failure> {
    match number("the number of a format", given)? {
        number @ 1..=ID_MAX => Ok(number),
        other => Err(unfit(format!("a format is bound by numbers from 1 to 2^63 - 1, and not by {other}"))),
    }
}

/// A number as it is, or none at all.
pub(crate) fn number<N: TryFrom<u64>>(name: &str, given: &BigInt) -> Result<N, Failure> {
    let number = match (given.sign_bit, given.words.as_slice()) {
        (false, &[word]) => N::try_from(word).ok(),
        _ => None,
    };
    let bits = 8 * size_of::<N>();
    number.ok_or_else(|| unfit(format!("{name} is {}, it must be 0 to 2^{bits} - 1", shown(given))))
}

/// A grant id as it is.
pub(crate) fn grant_id(given: &BigInt) -> Result<GrantId, Failure> {
    match (given.sign_bit, given.words.as_slice()) {
        (false, &[low]) => Ok(GrantId(u128::from(low))),
        (false, &[low, high]) => Ok(GrantId(u128::from(high) << 64 | u128::from(low))),
        _ => Err(unfit(format!("the grant id is {}, it must be 0 to 2^128 - 1", shown(given)))),
    }
}

pub(crate) fn unfit(what: String) -> Failure {
    StoreError::refused(what).into()
}

fn shown(number: &BigInt) -> String {
    let sign = if number.sign_bit { "-" } else { "" };
    match number.words.as_slice() {
        [word] => format!("{sign}{word}"),
        &[low, high] => format!("{sign}{}", u128::from(high) << 64 | u128::from(low)),
        _ => "a number of more than 128 bits".to_owned(),
    }
}
