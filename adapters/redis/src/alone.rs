//! unalike's own keys without a durable store.

use std::sync::Arc;

use unalike_storage::StoreError;

use crate::error::refusal;
use crate::server::Server;
use crate::{DialectStore, RedisOptions};

pub(crate) fn open(_server: &Server, options: &RedisOptions) -> Result<Arc<dyn DialectStore>, StoreError> {
    Err(refusal(format!("the dialect {:?} is not there yet", options.dialect)))
}

pub(crate) async fn initialise(_server: &Server, options: &RedisOptions) -> Result<bool, StoreError> {
    Err(refusal(format!("the dialect {:?} needs none", options.dialect)))
}
