//! An instance of the core, as a lane holds it: the component in wasmtime, or the same core compiled into the program.
//!
//! A lane opens its generators in it under their numbers. An instance that trapped, or whose core panicked, is not
//! called again: it is dropped with all that it held.

#[cfg(feature = "wasm")]
mod component;
#[cfg(feature = "native")]
mod native;

use unalike_core::{GrantFault, Run};

use crate::Error;
use crate::context::IdsCtx;
use crate::lane::Opening;

#[cfg(not(any(feature = "wasm", feature = "native")))]
compile_error!("the crate `unalike` needs its core: enable the feature `compiler`, `precompiled` or `native`");

/// What runs the core, which decides every id: see [`IdsBuilder::engine`](crate::IdsBuilder::engine).
///
/// The core is the same code either way, so ids are the same, and what one handed out the other continues.
///
/// ```
/// # #[cfg(feature = "native")]
/// # fn main() -> Result<(), unalike::Error> {
/// use unalike::{Engine, Ids};
/// # let store = std::sync::Arc::new(unalike_memory::MemoryStore::default());
/// let ids = Ids::builder().segments(store).engine(Engine::Native).build_blocking()?;
/// assert_eq!(ids.sequence_blocking("order", Default::default())?.next_blocking()?, 1);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "native"))]
/// # fn main() {}
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Engine {
    /// The component, in wasmtime: the default where it is there. A defect of the core stays within its instance.
    #[cfg(feature = "wasm")]
    #[default]
    Component,
    /// The core, compiled into the program (feature `native`): the default in programs without wasmtime. A defect of
    /// the core is a panic, which is caught and costs what a trap does; in a program with `panic = "abort"` it ends the
    /// program.
    #[cfg(feature = "native")]
    #[cfg_attr(not(feature = "wasm"), default)]
    Native,
}

impl Engine {
    /// A new instance around a context.
    pub(crate) fn instance(self, ids: IdsCtx) -> Result<Box<dyn Instance>, Error> {
        match self {
            #[cfg(feature = "wasm")]
            Self::Component => component::ComponentInstance::boxed(ids),
            #[cfg(feature = "native")]
            Self::Native => Ok(Box::new(native::NativeInstance::new(ids))),
        }
    }
}

/// Why an instance must not be used any more.
#[derive(Debug)]
pub(crate) struct Trap(pub(crate) String);

/// What a call brought, unless the instance trapped: something, or why there is nothing.
pub(crate) type Answer<T> = Result<Result<T, Refusal>, Trap>;

/// Why a call brought nothing: `error` of the WIT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Pending,
    Wait(u64),
    ClockMovedBack(u64),
    ClockBeforeEpoch(u64),
    Exhausted,
    StoreFailed(u64),
    GrantRefused(GrantFault),
    Count,
    Round,
    Closed,
    /// An argument that the host had checked, so this is a defect.
    Argument(String),
}

/// What an instance says of a sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SequenceLook {
    pub(crate) remaining: u64,
    pub(crate) step: u64,
    pub(crate) in_flight: bool,
}

/// What an instance says of a snowflake generator.
#[derive(Clone, Debug)]
pub(crate) struct SnowflakeLook {
    pub(crate) worker: Option<u32>,
    pub(crate) valid_until_ms: u64,
    pub(crate) used_until_ms: u64,
    pub(crate) in_flight: bool,
    pub(crate) blocked: Option<Refusal>,
}

/// Calls name a generator by its number, under which it must be open and of the kind that the call is for.
pub(crate) trait Instance: Send {
    /// Its context.
    fn ids(&mut self) -> &mut IdsCtx;

    /// Whether a generator is open under this number.
    fn is_open(&self, generator: usize) -> bool;

    /// How many generators are open.
    fn count_open(&self) -> u64;

    /// Opens a generator. A sequence begins at `floor`, a snowflake at its own and with `seed`.
    fn open(&mut self, generator: usize, opening: &Opening, floor: u64) -> Answer<()>;

    /// A run of a sequence or a snowflake generator.
    fn reserve(&mut self, generator: usize, now_ms: u64, max: u32) -> Answer<Run>;

    fn look_at_sequence(&mut self, generator: usize, now_ms: u64) -> Result<SequenceLook, Trap>;

    fn look_at_snowflake(&mut self, generator: usize, now_ms: u64) -> Result<SnowflakeLook, Trap>;

    /// Begins a round of an ordered sequence.
    fn begin(&mut self, generator: usize, now_ms: u64, count: u32) -> Answer<u64>;

    fn claim(&mut self, generator: usize, now_ms: u64, round: u64) -> Answer<Run>;

    /// Ends a generator, which gives back what it can.
    fn close(&mut self, generator: usize) -> Result<(), Trap>;

    /// Forgets a generator that was closed, or that holds nothing that could be given back.
    fn remove(&mut self, generator: usize) -> Result<(), Trap>;

    /// How much memory it takes for itself, in bytes.
    #[cfg(test)]
    fn memory(&self) -> usize;

    /// What a defect of the core would do.
    #[cfg(test)]
    fn trap(&mut self, generator: usize) -> Result<(), Trap>;
}

/// What generators have of an instance, by their numbers.
struct Places<T>(Vec<Option<T>>);

impl<T> Places<T> {
    fn new() -> Self {
        Self(Vec::new())
    }

    fn get_mut(&mut self, generator: usize) -> Option<&mut T> {
        self.0.get_mut(generator)?.as_mut()
    }

    fn is_taken(&self, generator: usize) -> bool {
        self.0.get(generator).is_some_and(Option::is_some)
    }

    fn count(&self) -> u64 {
        self.0.iter().flatten().fold(0, |count, _| count + 1)
    }

    fn put(&mut self, generator: usize, value: T) {
        if self.0.len() <= generator {
            self.0.resize_with(generator + 1, || None);
        }
        if let Some(place) = self.0.get_mut(generator) {
            *place = Some(value);
        }
    }

    fn take(&mut self, generator: usize) -> Option<T> {
        self.0.get_mut(generator)?.take()
    }
}

/// A call for a generator that is not open, or of another kind: a defect of this library.
fn misdirected(generator: usize) -> Trap {
    Trap(format!("the generator {generator} is not open in this instance, or of another kind"))
}
