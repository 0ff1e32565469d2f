//! Numbers for a component that answers in the server's place.
//!
//! A component is a host of its own: it hands out what it is granted as bare numbers, beside servers that have the same
//! store and show them in another form. So it is granted what other hosts are, and by the same checks.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use unalike::storage::{Segment, SegmentLayer, SegmentStore, StoreError, TagRecord, split_tag};
use unalike::wasi::QuotaReached;

use crate::config::tokens::Permit;
use crate::service::Service;
use crate::service::grants::Grantable;
use crate::service::problem::{Kind, Problem};

/// The store of a server as its component may use it, once there is one.
#[derive(Default)]
pub(crate) struct ComponentNumbers(OnceLock<Arc<Service>>);

impl ComponentNumbers {
    /// From now on it grants what the service does.
    pub(crate) fn begin(&self, service: &Arc<Service>) {
        self.0.get_or_init(|| Arc::clone(service));
    }

    fn service(&self) -> Result<&Arc<Service>, StoreError> {
        self.0.get().ok_or_else(|| StoreError::unavailable("the server is starting".to_owned()))
    }

    async fn grantable(&self, name: &str) -> Result<Grantable, StoreError> {
        let (tag, sub) = split_tag(name);
        self.service()?.grantable(tag, sub, None).await.map_err(|problem| match problem.kind() {
            Kind::TagUnknown => StoreError::tag_unknown(name),
            Kind::FormatInvalid => {
                let reason = "its ids are shown under a key, with a shard gene, or begin again: ask a server for them";
                StoreError::TagInvalid { tag: tag.to_owned(), reason: reason.to_owned() }
            }
            Kind::TagInvalid | Kind::SubKeyLimit => {
                // The store's error says so already.
                let begin = format!("the tag {tag:?} is not valid: ");
                let reason = problem.detail().strip_prefix(&begin).unwrap_or(problem.detail());
                StoreError::TagInvalid { tag: tag.to_owned(), reason: reason.to_owned() }
            }
            Kind::StoreRefused | Kind::FormatBound => StoreError::refused(problem.detail()),
            Kind::StoreCorrupt => StoreError::corrupt(problem.detail()),
            // The store could not tell.
            _ => StoreError::unavailable(problem.detail()),
        })
    }
}

#[async_trait]
impl SegmentLayer for ComponentNumbers {
    fn below(&self) -> Option<&dyn SegmentStore> {
        self.0.get().map(|service| service.store())
    }

    async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        let grantable = self.grantable(tag).await?;
        // Whose request it is only the component knows.
        let granted = self.service()?.grant(&Permit::unbound(), &grantable, count, at_least).await;
        granted.map_err(|over| {
            let wait_ms = over.wait_ms();
            let problem = Problem::from(over);
            match wait_ms {
                Some(retry_after_ms) => {
                    let reached = QuotaReached { detail: problem.detail().to_owned(), retry_after_ms };
                    StoreError::unavailable(problem.detail()).with_source(reached)
                }
                // More than the quota ever gives at once.
                None => StoreError::refused(problem.detail()),
            }
        })?
    }

    async fn open_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        self.grantable(tag).await?;
        self.service()?.store().open_tag(tag).await
    }
}
