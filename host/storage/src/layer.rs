//! A store in front of another one.

use async_trait::async_trait;
use unalike_core::{RefillPolicy, Segment, StepPolicy, TailRelease};

use crate::{
    Ceiling, FormatBinding, FormatOwner, FormatPart, JoinedStripe, SegmentStore, StoreError, StoreIdentity, Stripe,
    TagOptions, TagRecord, TailsReleased,
};

/// A [`SegmentStore`] in front of another one, which changes some requests and passes all others on.
///
/// A layer implements [`SegmentLayer::below`], and those methods of the port that it changes, under the same names.
/// Methods that it does not implement reach the store below. So do methods that the port gets later, whose defaults
/// would not. One that has something to do or to check before any request implements [`SegmentLayer::reach`] as well:
/// [`Lazy`] opens the store there.
///
/// [`Lazy`]: crate::Lazy
///
/// The port is one trait for the sake of layers. If tags or stripes were a trait of their own that a store hands out,
/// they would be reached past the layers in front of it: kept names past [`PublicTags`](crate::PublicTags). And a store
/// that is not open yet could not say whether it has them.
///
/// Joining a stripe makes another client, which must have the layer in front of it as well. Only the layer knows how
/// that is built, so [`join_stripe`](SegmentLayer::join_stripe) is refused unless the layer implements it.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use unalike_storage::{Segment, SegmentLayer, SegmentStore, StoreError};
///
/// /// Counts the numbers that are granted.
/// struct Counted {
///     below: Arc<dyn SegmentStore>,
///     granted: AtomicU64,
/// }
///
/// #[async_trait::async_trait]
/// impl SegmentLayer for Counted {
///     fn below(&self) -> Option<&dyn SegmentStore> {
///         Some(&*self.below)
///     }
///
///     async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
///         let segment = self.below.allocate(tag, count, at_least).await?;
///         self.granted.fetch_add(segment.count(), Ordering::Relaxed);
///         Ok(segment)
///     }
/// }
///
/// fn is_a_store(counted: Counted) -> Arc<dyn SegmentStore> {
///     Arc::new(counted)
/// }
/// ```
#[async_trait]
#[expect(missing_docs, reason = "each method is that of the port")]
pub trait SegmentLayer: Send + Sync + 'static {
    /// The store that this one is in front of; `None` as long as it is not open.
    fn below(&self) -> Option<&dyn SegmentStore>;

    /// The same for a request, which it may open the store for.
    ///
    /// # Errors
    /// Why the request cannot be passed on.
    async fn reach(&self) -> Result<&dyn SegmentStore, StoreError> {
        self.below().ok_or_else(|| StoreError::unavailable("the store is not open"))
    }

    async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        self.reach().await?.allocate(tag, count, at_least).await
    }

    async fn release(&self, tag: &str, tail: TailRelease) -> Result<bool, StoreError> {
        self.reach().await?.release(tag, tail).await
    }

    async fn release_many(&self, tails: Vec<(String, TailRelease)>) -> TailsReleased {
        match self.reach().await {
            Ok(below) => below.release_many(tails).await,
            Err(error) => {
                let mut released = TailsReleased::default();
                released.failed(tails.len(), error);
                released
            }
        }
    }

    async fn open_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        self.reach().await?.open_tag(tag).await
    }

    async fn tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        self.reach().await?.tag(tag).await
    }

    async fn create_tag(&self, tag: &str, options: &TagOptions) -> Result<TagRecord, StoreError> {
        self.reach().await?.create_tag(tag, options).await
    }

    async fn change_tag(&self, tag: &str, step: StepPolicy, refill: RefillPolicy) -> Result<TagRecord, StoreError> {
        self.reach().await?.change_tag(tag, step, refill).await
    }

    async fn raise_tag(&self, tag: &str, next: u64) -> Result<TagRecord, StoreError> {
        self.reach().await?.raise_tag(tag, next).await
    }

    async fn retire_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        self.reach().await?.retire_tag(tag).await
    }

    async fn retire_tags(&self, tags: &[String]) -> Result<Option<Vec<TagRecord>>, StoreError> {
        self.reach().await?.retire_tags(tags).await
    }

    async fn create_tags(&self, tags: &[(String, TagOptions)]) -> Result<Option<Vec<TagRecord>>, StoreError> {
        self.reach().await?.create_tags(tags).await
    }

    async fn tags(&self, after: Option<&str>, limit: u32) -> Result<Vec<TagRecord>, StoreError> {
        self.reach().await?.tags(after, limit).await
    }

    async fn identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        self.reach().await?.identity().await
    }

    async fn recorded_identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        self.reach().await?.recorded_identity().await
    }

    async fn folds_names(&self) -> Result<Option<String>, StoreError> {
        self.reach().await?.folds_names().await
    }

    async fn beyond_record(&self, tag: &str) -> Result<Option<String>, StoreError> {
        self.reach().await?.beyond_record(tag).await
    }

    async fn beyond_records(&self, tags: &[String]) -> Result<Option<Vec<Option<String>>>, StoreError> {
        self.reach().await?.beyond_records(tags).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.reach().await?.check().await
    }

    async fn ceiling(&self, tag: &str) -> Result<Option<Ceiling>, StoreError> {
        self.reach().await?.ceiling(tag).await
    }

    async fn leave_leases(&self, namespace: &str) -> Result<(), StoreError> {
        self.reach().await?.leave_leases(namespace).await
    }

    fn keeps_formats(&self) -> bool {
        self.below().is_some_and(SegmentStore::keeps_formats)
    }

    async fn bind_format(
        &self,
        owner: FormatOwner<'_>,
        part: FormatPart,
        binding: FormatBinding,
    ) -> Result<Option<u64>, StoreError> {
        self.reach().await?.bind_format(owner, part, binding).await
    }

    async fn hides_formats(&self) -> Result<Option<String>, StoreError> {
        self.reach().await?.hides_formats().await
    }

    fn stripes(&self) -> usize {
        self.below().map_or(1, SegmentStore::stripes)
    }

    async fn stripe(&self) -> Result<Option<Stripe>, StoreError> {
        self.reach().await?.stripe().await
    }

    async fn join_stripe(&self, stripe: &Stripe) -> Result<JoinedStripe, StoreError> {
        let what = format!("this store cannot be {stripe}: what is in front of it does not know how");
        Err(StoreError::refused(what))
    }

    async fn restripe(&self, expected: Option<&Stripe>, stripe: Option<&Stripe>) -> Result<(), StoreError> {
        self.reach().await?.restripe(expected, stripe).await
    }

    async fn close(&self) {
        if let Some(below) = self.below() {
            below.close().await;
        }
    }

    fn address(&self) -> Option<String> {
        self.below()?.address()
    }
}

#[async_trait]
impl<L: SegmentLayer> SegmentStore for L {
    async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        SegmentLayer::allocate(self, tag, count, at_least).await
    }

    async fn release(&self, tag: &str, tail: TailRelease) -> Result<bool, StoreError> {
        SegmentLayer::release(self, tag, tail).await
    }

    async fn release_many(&self, tails: Vec<(String, TailRelease)>) -> TailsReleased {
        SegmentLayer::release_many(self, tails).await
    }

    async fn open_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        SegmentLayer::open_tag(self, tag).await
    }

    async fn tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        SegmentLayer::tag(self, tag).await
    }

    async fn create_tag(&self, tag: &str, options: &TagOptions) -> Result<TagRecord, StoreError> {
        SegmentLayer::create_tag(self, tag, options).await
    }

    async fn change_tag(&self, tag: &str, step: StepPolicy, refill: RefillPolicy) -> Result<TagRecord, StoreError> {
        SegmentLayer::change_tag(self, tag, step, refill).await
    }

    async fn raise_tag(&self, tag: &str, next: u64) -> Result<TagRecord, StoreError> {
        SegmentLayer::raise_tag(self, tag, next).await
    }

    async fn retire_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        SegmentLayer::retire_tag(self, tag).await
    }

    async fn retire_tags(&self, tags: &[String]) -> Result<Option<Vec<TagRecord>>, StoreError> {
        SegmentLayer::retire_tags(self, tags).await
    }

    async fn create_tags(&self, tags: &[(String, TagOptions)]) -> Result<Option<Vec<TagRecord>>, StoreError> {
        SegmentLayer::create_tags(self, tags).await
    }

    async fn tags(&self, after: Option<&str>, limit: u32) -> Result<Vec<TagRecord>, StoreError> {
        SegmentLayer::tags(self, after, limit).await
    }

    async fn identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        SegmentLayer::identity(self).await
    }

    async fn recorded_identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        SegmentLayer::recorded_identity(self).await
    }

    async fn folds_names(&self) -> Result<Option<String>, StoreError> {
        SegmentLayer::folds_names(self).await
    }

    async fn beyond_record(&self, tag: &str) -> Result<Option<String>, StoreError> {
        SegmentLayer::beyond_record(self, tag).await
    }

    async fn beyond_records(&self, tags: &[String]) -> Result<Option<Vec<Option<String>>>, StoreError> {
        SegmentLayer::beyond_records(self, tags).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        SegmentLayer::check(self).await
    }

    async fn ceiling(&self, tag: &str) -> Result<Option<Ceiling>, StoreError> {
        SegmentLayer::ceiling(self, tag).await
    }

    async fn leave_leases(&self, namespace: &str) -> Result<(), StoreError> {
        SegmentLayer::leave_leases(self, namespace).await
    }

    fn keeps_formats(&self) -> bool {
        SegmentLayer::keeps_formats(self)
    }

    async fn bind_format(
        &self,
        owner: FormatOwner<'_>,
        part: FormatPart,
        binding: FormatBinding,
    ) -> Result<Option<u64>, StoreError> {
        SegmentLayer::bind_format(self, owner, part, binding).await
    }

    async fn hides_formats(&self) -> Result<Option<String>, StoreError> {
        SegmentLayer::hides_formats(self).await
    }

    fn stripes(&self) -> usize {
        SegmentLayer::stripes(self)
    }

    async fn stripe(&self) -> Result<Option<Stripe>, StoreError> {
        SegmentLayer::stripe(self).await
    }

    async fn join_stripe(&self, stripe: &Stripe) -> Result<JoinedStripe, StoreError> {
        SegmentLayer::join_stripe(self, stripe).await
    }

    async fn restripe(&self, expected: Option<&Stripe>, stripe: Option<&Stripe>) -> Result<(), StoreError> {
        SegmentLayer::restripe(self, expected, stripe).await
    }

    async fn close(&self) {
        SegmentLayer::close(self).await;
    }

    fn address(&self) -> Option<String> {
        SegmentLayer::address(self)
    }
}

#[cfg(test)]
mod tests {
    /// The methods of the block that begins with this line.
    fn methods(source: &'static str, first_line: &str) -> Vec<&'static str> {
        let (_, rest) = source.split_once(first_line).unwrap();
        let (block, _) = rest.split_once("\n}\n").unwrap();
        let lines = block.lines().filter_map(|line| {
            let line = line.strip_prefix("    ")?;
            line.strip_prefix("async fn ").or(line.strip_prefix("fn "))
        });
        lines.map(|line| line.split('(').next().unwrap()).collect()
    }

    fn port() -> Vec<&'static str> {
        methods(include_str!("segments.rs"), "pub trait SegmentStore: Send + Sync + 'static {")
    }

    #[test]
    fn a_layer_passes_every_method_of_the_port_on() {
        let port = port();
        let layer = methods(include_str!("layer.rs"), "pub trait SegmentLayer: Send + Sync + 'static {");
        let store = methods(include_str!("layer.rs"), "impl<L: SegmentLayer> SegmentStore for L {");
        assert!(port.len() > 20, "{port:?}");
        assert_eq!(layer, [vec!["below", "reach"], port.clone()].concat());
        assert_eq!(store, port);
    }

    /// A method that is passed on would reach names that the product keeps for itself.
    #[test]
    fn every_method_of_the_port_is_looked_at_for_names_that_are_kept() {
        let sorted = |mut methods: Vec<&'static str>| {
            methods.sort_unstable();
            methods
        };
        let nameless = [
            "address",
            "bind_format",
            "check",
            "close",
            "folds_names",
            "hides_formats",
            "identity",
            "keeps_formats",
            "leave_leases",
            "recorded_identity",
            "restripe",
            "stripe",
            "stripes",
        ];
        let looked_at = methods(include_str!("kept.rs"), "impl SegmentLayer for PublicTags {");
        assert_eq!(sorted([looked_at, nameless.to_vec()].concat()), sorted([vec!["below"], port()].concat()));
    }
}
