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
    runs: Vec<Run>,
    len: u64,
}

impl Batch {
    pub(crate) fn push(&mut self, run: Run) {
        self.len += u64::from(run.count);
        self.runs.push(run);
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
        &self.runs
    }

    /// The ids, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.runs.iter().flat_map(|run| run.ids())
    }
}

impl<'a> IntoIterator for &'a Batch {
    type Item = u64;
    type IntoIter = Box<dyn Iterator<Item = u64> + 'a>;

    fn into_iter(self) -> Self::IntoIter {
        Box::new(self.iter())
    }
}
