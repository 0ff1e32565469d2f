//! `unalike._native`: the components and the stores of the Rust host, for the Python package.
//!
//! A question to a store waits without the interpreter, and answers with plain values, of which the package makes its
//! own. A store that grants nothing raises `unalike.StoreError`.

mod component;
mod ending;
mod own;

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use unalike::storage::{
    FormatBinding, FormatOwner, FormatPart, GrantId, Layout, LayoutFields, Lease, LeaseAcquire, LeaseExtend, Mode,
    StoreError, TagOptions, TagRecord, TailRelease, leases_left,
};
use unalike::{AdaptiveStep, FieldOrder, ID_MAX, RefillPolicy, StepPolicy};
use unalike_bindings::warnings::Warning;
use unalike_bindings::{Failure, HostOptions};

use crate::ending::waiting;
use crate::own::OwnStore;

/// The stores of a program, open in one process.
#[pyclass(frozen, module = "unalike._native")]
struct Stores(unalike_bindings::Stores);

/// start, end, stride, generation, version
type SegmentParts = (u64, u64, u64, u64, u64);

/// worker, grant id, first timestamp, first timestamp after it
type LeaseParts = (u32, u128, u64, u64);

/// timestamp bits, datacenter bits, worker bits, sequence bits, whether the worker comes first, epoch, tick
type LayoutParts = (u8, u8, u8, u8, bool, u64, u32);

/// step; its least and greatest, below how many milliseconds it doubles, above how many it halves, where it adapts
type StepParts = (u64, Option<(u64, u64, u64, u64)>);

/// whether it is a share of what was granted, in percent; how much
type RefillParts = (bool, u64);

/// start, step, refill, whether it is ordered
type OptionParts = (u64, StepParts, RefillParts, bool);

#[pymethods]
impl Stores {
    /// Opens them, by the options of `HostOptions` in JSON; one in Redis above a store of the program's own, which is
    /// an `unalike._plain.Asked`, where there is one.
    #[new]
    #[pyo3(signature = (options, own=None))]
    fn new(py: Python<'_>, options: &str, own: Option<Py<PyAny>>) -> PyResult<Self> {
        let opened = waiting(py, || {
            let options = if own.is_some() { HostOptions::read_above(options) } else { HostOptions::read(options) }?;
            match own {
                Some(own) => unalike_bindings::Stores::open_above(Arc::new(OwnStore::new(own)), &options),
                None => unalike_bindings::Stores::open(&options),
            }
        });
        opened.map(Self).map_err(|failure| raised(py, &failure))
    }

    fn allocate(&self, py: Python<'_>, tag: String, count: u64, at_least: u64) -> PyResult<SegmentParts> {
        let segment =
            self.ask(py, |stores| stores.ask(|store| async move { store.allocate(&tag, count, at_least).await }))?;
        Ok((segment.start, segment.end, segment.stride, segment.generation, segment.version))
    }

    fn release(&self, py: Python<'_>, tag: String, start: u64, version: u64) -> PyResult<bool> {
        let tail = TailRelease { start, version };
        self.ask(py, |stores| stores.ask(|store| async move { store.release(&tag, tail).await }))
    }

    fn open_tag(&self, py: Python<'_>, tag: String) -> PyResult<(OptionParts, u64)> {
        let record = self.ask(py, |stores| stores.ask(|store| async move { store.open_tag(&tag).await }))?;
        Ok(record_parts(&record))
    }

    fn create_tag(&self, py: Python<'_>, tag: String, options: OptionParts) -> PyResult<(OptionParts, u64)> {
        let record = self.ask(py, |stores| {
            let options = tag_options(options)?;
            stores.ask(|store| async move { store.create_tag(&tag, &options).await })
        })?;
        Ok(record_parts(&record))
    }

    fn identity(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let identity = self.ask(py, |stores| stores.ask(|store| async move { store.identity().await }))?;
        Ok(identity.map(|identity| identity.to_string()))
    }

    /// Once the store is open: before, it is none that keeps something.
    fn keeps_formats(&self, py: Python<'_>) -> PyResult<bool> {
        self.ask(py, |stores| {
            stores.ask(|store| async move {
                store.check().await?;
                Ok(store.keeps_formats())
            })
        })
    }

    /// Looks up what is bound of a format: of its shape, or of the key with this number that permutes so many bits.
    /// Binds `first` where nothing is.
    #[pyo3(signature = (owner_kind, name, key, first))]
    fn bind_format(
        &self,
        py: Python<'_>,
        owner_kind: String,
        name: String,
        key: Option<(u8, u8)>,
        first: Option<u64>,
    ) -> PyResult<Option<u64>> {
        let part = key.map_or(FormatPart::Shape, |(id, bits)| FormatPart::Key { id, bits });
        let binding = first.map_or(FormatBinding::Look, FormatBinding::First);
        self.ask(py, |stores| {
            let of_snowflake = match owner_kind.as_str() {
                "tag" => false,
                "snowflake" => true,
                other => {
                    return Err(unfit(format!("a format is of a \"tag\" or a \"snowflake\", and not of {other:?}")));
                }
            };
            if let Some(number) = first.filter(|number| !(1..=ID_MAX).contains(number)) {
                return Err(unfit(format!("a format is bound by numbers from 1 to 2^63 - 1, and not by {number}")));
            }
            stores.ask(move |store| async move {
                let owner = if of_snowflake { FormatOwner::Snowflake(&name) } else { FormatOwner::Tag(&name) };
                store.bind_format(owner, part, binding).await
            })
        })
    }

    fn leave_leases(&self, py: Python<'_>, namespace: String) -> PyResult<()> {
        self.ask(py, |stores| {
            stores.check_leaving()?;
            stores.ask(|store| async move {
                let left = store.leave_leases(&namespace).await;
                leases_left(left, |time| async move { store.tag(&time).await }).await
            })
        })
    }

    #[expect(clippy::too_many_arguments, reason = "it is a request of the lease port")]
    fn acquire(
        &self,
        py: Python<'_>,
        namespace: String,
        layout: LayoutParts,
        holder: String,
        preferred_worker: Option<u32>,
        now_ms: u64,
        horizon_ms: u64,
    ) -> PyResult<LeaseParts> {
        let lease = self.ask(py, |stores| {
            let layout = layout_of(layout)?;
            let acquire = LeaseAcquire { namespace, layout, holder, preferred_worker, now_ms, horizon_ms };
            stores.ask_leases(|leases| async move { leases.acquire(&acquire).await })
        })?;
        Ok(lease_parts(lease))
    }

    #[expect(clippy::too_many_arguments, reason = "it is a request of the lease port")]
    fn extend(
        &self,
        py: Python<'_>,
        namespace: String,
        layout: LayoutParts,
        worker: u32,
        grant_id: u128,
        now_ms: u64,
        horizon_ms: u64,
    ) -> PyResult<LeaseParts> {
        let lease = self.ask(py, |stores| {
            let layout = layout_of(layout)?;
            let extend = LeaseExtend { namespace, layout, worker, grant_id: GrantId(grant_id), now_ms, horizon_ms };
            stores.ask_leases(|leases| async move { leases.extend(&extend).await })
        })?;
        Ok(lease_parts(lease))
    }

    fn release_lease(
        &self,
        py: Python<'_>,
        namespace: String,
        worker: u32,
        grant_id: u128,
        end_ms: u64,
    ) -> PyResult<bool> {
        self.ask(py, |stores| {
            stores
                .ask_leases(|leases| async move { leases.release(&namespace, worker, GrantId(grant_id), end_ms).await })
        })
    }

    fn lease_identity(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let identity = self.ask(py, |stores| stores.ask_leases(|leases| async move { leases.identity().await }))?;
        Ok(identity.map(|identity| identity.to_string()))
    }

    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.ask(py, |stores| stores.ask(|store| async move { store.check().await }))
    }

    fn address(&self) -> Option<String> {
        self.0.address()
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.ask(py, unalike_bindings::Stores::close)
    }
}

impl Stores {
    /// Asks, and waits without the interpreter.
    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        question: impl FnOnce(&unalike_bindings::Stores) -> Result<T, Failure> + Send,
    ) -> PyResult<T> {
        waiting(py, || question(&self.0)).map_err(|failure| raised(py, &failure))
    }
}

/// `unalike.StoreError`.
fn raised(py: Python<'_>, failure: &Failure) -> PyErr {
    static STORE_ERROR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let said = (failure.as_store_kind(), &failure.message);
    let made = STORE_ERROR.import(py, "unalike.store", "StoreError").and_then(|class| class.call1(said));
    made.map_or_else(|error| error, PyErr::from_value)
}

fn record_parts(record: &TagRecord) -> (OptionParts, u64) {
    (option_parts(&record.options), record.watermark)
}

fn option_parts(options: &TagOptions) -> OptionParts {
    let TagOptions { start, step, refill, mode } = *options;
    let step = match step {
        StepPolicy::Fixed { step } => (step, None),
        StepPolicy::Adaptive(AdaptiveStep { initial, min, max, grow_below_ms, shrink_above_ms }) => {
            (initial, Some((min, max, grow_below_ms, shrink_above_ms)))
        }
    };
    let refill = match refill {
        RefillPolicy::ShareConsumed { percent } => (true, u64::from(percent)),
        RefillPolicy::Remaining { count } => (false, count),
    };
    (start, step, refill, mode == Mode::Ordered)
}

fn tag_options((start, step, refill, is_ordered): OptionParts) -> Result<TagOptions, Failure> {
    let step = match step {
        (step, None) => StepPolicy::Fixed { step },
        (initial, Some((min, max, grow_below_ms, shrink_above_ms))) => {
            StepPolicy::Adaptive(AdaptiveStep { initial, min, max, grow_below_ms, shrink_above_ms })
        }
    };
    let refill = match refill {
        (true, percent) => RefillPolicy::ShareConsumed {
            percent: u8::try_from(percent).map_err(|_| unfit(format!("a tag is refilled at {percent} percent")))?,
        },
        (false, count) => RefillPolicy::Remaining { count },
    };
    Ok(TagOptions { start, step, refill, mode: if is_ordered { Mode::Ordered } else { Mode::Buffered } })
}

fn layout_of(parts: LayoutParts) -> Result<Layout, Failure> {
    let (timestamp_bits, datacenter_bits, worker_bits, sequence_bits, is_worker_first, epoch_ms, tick_ms) = parts;
    let order = if is_worker_first { FieldOrder::WorkerFirst } else { FieldOrder::SequenceFirst };
    Layout::new(LayoutFields { timestamp_bits, datacenter_bits, worker_bits, sequence_bits, order, epoch_ms, tick_ms })
        .map_err(|error| unfit(format!("the layout is not valid: {error}")))
}

fn unfit(what: String) -> Failure {
    StoreError::refused(what).into()
}

fn lease_parts(Lease { worker, grant_id: GrantId(grant_id), not_before_ms, valid_until_ms }: Lease) -> LeaseParts {
    (worker, grant_id, not_before_ms, valid_until_ms)
}

/// What the stores warned of, and news of theirs, since the last call: which part, at which of Python's levels, and in
/// which words.
#[pyfunction]
fn warnings() -> Vec<(String, u8, String)> {
    let level = |warning: &Warning| match warning {
        Warning { is_error: true, .. } => 40,
        Warning { is_news: true, .. } => 20,
        _ => 30,
    };
    let taken = unalike_bindings::warnings::taken().into_iter();
    taken.map(|warning| (warning.part.clone(), level(&warning), warning.message)).collect()
}

#[pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::component::{Handle, Instance};
    #[pymodule_export]
    use super::ending::end;
    #[pymodule_export]
    use super::own::Answer;
    #[pymodule_export]
    use super::{Stores, warnings};

    #[pymodule_init]
    fn init(_module: &Bound<'_, PyModule>) -> PyResult<()> {
        unalike_bindings::warnings::keep_news();
        // Before anybody forks.
        unalike_bindings::Stores::prepare();
        Ok(())
    }
}
