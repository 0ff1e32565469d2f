//! Several ids taken at once, as the runs that they came in.

use unalike_core::Run;

/// Ids that one call took, in ascending order; whoever holds it owns them.
///
/// It keeps runs, not ids: a thousand ids take as much memory as one.
///
/// ```
/// # use std::sync::Arc;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store = Arc::new(unalike_memory::MemoryStore::default());
/// # let ids = unalike::Ids::builder().segments(store).build().await?;
/// # let orders = ids.sequence("order", Default::default()).await?;
/// let batch = orders.take(1_000).await?;
/// assert_eq!(batch.len(), 1_000);
/// for id in &batch {
///     assert!(id >= 1);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    runs: Runs,
    len: u64,
}

/// What nearly every batch is takes no memory of its own.
#[derive(Clone, Debug)]
enum Runs {
    One(Run),
    Several(Vec<Run>),
}

impl Runs {
    fn as_slice(&self) -> &[Run] {
        match self {
            Self::One(run) => std::slice::from_ref(run),
            Self::Several(runs) => runs,
        }
    }
}

impl Default for Runs {
    /// None.
    fn default() -> Self {
        Self::Several(Vec::new())
    }
}

impl PartialEq for Runs {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Runs {}

impl Batch {
    pub(crate) fn push(&mut self, run: Run) {
        self.len += u64::from(run.count);
        self.runs = match std::mem::take(&mut self.runs) {
            Runs::One(first) => Runs::Several(vec![first, run]),
            Runs::Several(runs) if runs.is_empty() => Runs::One(run),
            Runs::Several(mut runs) => {
                runs.push(run);
                Runs::Several(runs)
            }
        };
    }

    /// The same, counting down what is still wanted.
    pub(crate) fn add(&mut self, run: Run, left: &mut u32) {
        *left -= run.count;
        self.push(run);
    }

    /// How many ids it holds.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it holds none; a batch that a call answered never does.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The runs, in ascending order.
    #[must_use]
    pub fn runs(&self) -> &[Run] {
        self.runs.as_slice()
    }

    /// The ids, in ascending order.
    #[must_use]
    pub fn iter(&self) -> BatchIds<'_> {
        BatchIds { runs: self.runs().iter(), next: 0, stride: 0, left: 0 }
    }
}

impl From<Run> for Batch {
    fn from(run: Run) -> Self {
        Self { len: u64::from(run.count), runs: Runs::One(run) }
    }
}

impl<'a> IntoIterator for &'a Batch {
    type Item = u64;
    type IntoIter = BatchIds<'a>;

    fn into_iter(self) -> BatchIds<'a> {
        self.iter()
    }
}

/// The ids of a [`Batch`], in ascending order.
///
/// ```
/// # use std::sync::Arc;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store = Arc::new(unalike_memory::MemoryStore::default());
/// # let ids = unalike::Ids::builder().segments(store).build().await?;
/// # let orders = ids.sequence("order", Default::default()).await?;
/// let batch = orders.take(100).await?;
/// let mut ids = batch.iter();
/// assert_eq!((ids.next(), ids.next()), (Some(1), Some(2)));
/// assert_eq!(ids.size_hint(), (98, Some(98)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct BatchIds<'a> {
    runs: std::slice::Iter<'a, Run>,
    next: u64,
    stride: u64,
    /// How many ids of the current run are left.
    left: u32,
}

impl Iterator for BatchIds<'_> {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        if self.left == 0 {
            let run = self.runs.next()?;
            (self.next, self.stride, self.left) = (run.first, run.stride, run.count);
        }
        let id = self.next;
        self.left -= 1;
        // Only past the last id of a run may this leave the range of ids, and then it is not used.
        self.next = self.next.wrapping_add(self.stride);
        Some(id)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.runs.clone().map(|run| u64::from(run.count)).sum::<u64>() + u64::from(self.left);
        usize::try_from(left).map_or((usize::MAX, None), |left| (left, Some(left)))
    }
}
