//! The ports through which unalike reaches a store, their error, and the contract that every store must pass.
//!
//! A store has one duty: **an interval that it granted once is never granted again**, to anybody, whatever crashes,
//! pauses or lost replies lie between. [`SegmentStore`] grants numbers under a tag, [`LeaseStore`] grants worker ids
//! over intervals of timestamps. [`contract`] states the duty as tests; every adapter of this project passes it against
//! its real server, and so should yours.
//!
//! This crate opens no connection and knows no store.

mod clock_steps;
#[cfg(feature = "contract")]
pub mod contract;
mod error;
mod formats;
mod hosts_url;
mod kept;
mod layer;
mod lazy;
mod lease_place;
mod lease_rows;
mod lease_rules;
mod leases;
mod lock;
mod policies;
mod process;
mod random;
mod segments;
mod shell;
mod stripes;
mod tag_rows;

pub use clock_steps::{ClockSteps, Expiry};
pub use error::{NotBegun, StoreError, cause, with_causes};
pub use formats::{
    FormatBinding, FormatLook, FormatOwner, FormatPart, UnboundFormat, check_carried_format, check_format, check_shape,
    look_at_format, rebind_format,
};
pub use hosts_url::{HostsUrl, percent_decode};
pub use kept::{
    KEPT_CLOCK, KEPT_FLOOR, KEPT_FORMATS, KEPT_LEASE_FLOOR, KEPT_LEASES, PublicTags, first_watermark, is_kept,
    is_kept_format, is_kept_time, kept_patterns, time_of_leases, validate_public,
};
pub use layer::SegmentLayer;
pub use lazy::Lazy;
pub use lease_place::{LeasesKept, leases_left};
pub use lease_rows::{LeaseLook, LeaseRows};
pub use lease_rules::{
    Candidates, Choice, Clocks, LeaseLimits, NamespaceBinding, UsedWorker, choose_worker, choose_worker_after_races,
    nth_never_used,
};
pub use leases::{LeaseAcquire, LeaseExtend, LeaseRecord, LeaseStore};
pub use lock::lock;
pub use policies::PolicyColumns;
pub use process::{OpenInParent, Openings, Process, block_signals};
pub use random::{random_64, random_128};
pub use segments::{
    Ceiling, JoinedStripe, Mode, SegmentStore, StoreIdentity, Stripe, StripeNumbers, TagCreation, TagOptions,
    TagRecord, TailsReleased, shown, split_tag, sub_tag, validate_allocate, validate_new_tag, validate_policies,
    validate_raise, validate_tag,
};
pub use shell::ShellWord;
pub use stripes::{StripedStore, hand_over, resize_stripes};
pub use tag_rows::TagRows;
pub use unalike_core::{
    AdaptiveStep, FieldOrder, GrantId, ID_MAX, Layout, LayoutFields, Lease, Parts, RefillPolicy, Rfc3339, Segment,
    StepPolicy, TailRelease,
};
