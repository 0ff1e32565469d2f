//! Systems that are known to be wrong. The ledger must find each of them out.

use std::fmt;

use super::Violation;

/// A system that is known to be wrong: the product without one of its rules, or one of the systems that it replaces.
///
/// ```
/// use unalike_tests::simulation::Defect;
/// assert!(Defect::ALL.contains(&Defect::WorkerHashed));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// The product, where a store is known by its address: a replica that lags takes over unnoticed.
    AddressIsIdentity,
    /// The product, where a connection looks at its server once, and what stands between leads it to another one.
    LookedAtOnce,
    /// The product on a server that answers before a commit is on its disk.
    AnswersBeforeCommit,
    /// The product, where a resize writes its records whatever stands there by now.
    MarksNotCompared,
    /// The product, where a child goes on with what its parent holds.
    ForkKeepsGrants,
    /// The product, where a thread reads the next id and takes it in a second step (uid-generator's ring, Idleaf).
    TakenInTwoSteps,
    /// The product, where a tail that is given back is known by its number.
    TailByNumber,
    /// The product, where whoever comes while a round is under way is served from it.
    LateWaiters,
    /// t_sequence: each process uses a block of 1,000, whatever the row was raised by.
    LocalBlock,
    /// A counter whose value passes through a double on its way (Lua in Redis).
    ThroughDoubles,
    /// tinyid: a caller fetches a segment while another is on its way, and uses its own first.
    TwoRefills,
    /// hutool: a tick's sequence begins again before the clock that went back is refused.
    ClockBackResets,
    /// Vesta: on overflow the timestamp moves on, and what is remembered of it does not.
    OverflowKeepsLast,
    /// Yitter: ids run ahead of the clock, and a restart begins at the clock.
    AheadIsForgotten,
    /// Yitter for Go: a worker id is shifted within 16 bits.
    WorkerBitsCut,
    /// Leaf: a process whose clock went back starts all the same, with the worker of its file.
    ClockCheckSwallowed,
    /// Workers by the number of the start, modulo how many there are.
    WorkerModulo,
    /// Workers by a hash of the machine and the process (hutool, Sonyflake, Seata).
    WorkerHashed,
    /// CosId: a process that lost its worker goes on.
    NoFencing,
    /// CosId: whether a worker is free is judged by the clock of whoever asks.
    CallersClock,
    /// CosId: the file on the disk is asked before the store.
    LocalFileFirst,
    /// The product, and one id that is put into the ledger again: whoever does not see it sees nothing.
    Control,
}

impl Defect {
    /// All of them.
    pub const ALL: [Self; 22] = [
        Self::AddressIsIdentity,
        Self::LookedAtOnce,
        Self::AnswersBeforeCommit,
        Self::MarksNotCompared,
        Self::ForkKeepsGrants,
        Self::TakenInTwoSteps,
        Self::TailByNumber,
        Self::LateWaiters,
        Self::LocalBlock,
        Self::ThroughDoubles,
        Self::TwoRefills,
        Self::ClockBackResets,
        Self::OverflowKeepsLast,
        Self::AheadIsForgotten,
        Self::WorkerBitsCut,
        Self::ClockCheckSwallowed,
        Self::WorkerModulo,
        Self::WorkerHashed,
        Self::NoFencing,
        Self::CallersClock,
        Self::LocalFileFirst,
        Self::Control,
    ];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AddressIsIdentity => "address-is-identity",
            Self::LookedAtOnce => "looked-at-once",
            Self::AnswersBeforeCommit => "answers-before-commit",
            Self::MarksNotCompared => "marks-not-compared",
            Self::ForkKeepsGrants => "fork-keeps-grants",
            Self::TakenInTwoSteps => "taken-in-two-steps",
            Self::TailByNumber => "tail-by-number",
            Self::LateWaiters => "late-waiters",
            Self::LocalBlock => "local-block",
            Self::ThroughDoubles => "through-doubles",
            Self::TwoRefills => "two-refills",
            Self::ClockBackResets => "clock-back-resets",
            Self::OverflowKeepsLast => "overflow-keeps-last",
            Self::AheadIsForgotten => "ahead-is-forgotten",
            Self::WorkerBitsCut => "worker-bits-cut",
            Self::ClockCheckSwallowed => "clock-check-swallowed",
            Self::WorkerModulo => "worker-modulo",
            Self::WorkerHashed => "worker-hashed",
            Self::NoFencing => "no-fencing",
            Self::CallersClock => "callers-clock",
            Self::LocalFileFirst => "local-file-first",
            Self::Control => "control",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|defect| defect.name() == name)
    }

    /// Whether this is what it does wrong.
    #[must_use]
    pub const fn shows_as(self, violation: &Violation) -> bool {
        match self {
            Self::LateWaiters => matches!(violation, Violation::OutOfOrder { .. }),
            Self::TwoRefills => matches!(violation, Violation::WentDown { .. }),
            _ => matches!(violation, Violation::Twice { .. }),
        }
    }

    /// Whether its processes make snowflakes in a way of their own.
    pub(crate) const fn is_of_snowflakes(self) -> bool {
        matches!(
            self,
            Self::ClockBackResets
                | Self::OverflowKeepsLast
                | Self::AheadIsForgotten
                | Self::WorkerBitsCut
                | Self::ClockCheckSwallowed
                | Self::WorkerModulo
                | Self::WorkerHashed
                | Self::NoFencing
                | Self::CallersClock
                | Self::LocalFileFirst
        )
    }

    /// Whether its processes count in a way of their own.
    pub(crate) const fn is_of_sequences(self) -> bool {
        matches!(self, Self::LocalBlock | Self::ThroughDoubles | Self::TwoRefills)
    }
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
