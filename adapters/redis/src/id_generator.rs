//! Hashes with `cur` and `max`, to import from.

use std::sync::Arc;

use unalike_storage::StoreError;

use crate::error::refusal;
use crate::server::Server;
use crate::{DialectStore, RedisOptions};

pub(crate) fn open(_server: &Server, options: &RedisOptions) -> Result<Arc<dyn DialectStore>, StoreError> {
    Err(refusal(format!("the dialect {:?} is not there yet", options.dialect)))
}
