//! Snowflakes by Redis' clock.

use std::sync::Arc;

use unalike_storage::StoreError;

use crate::error::refusal;
use crate::server::Server;
use crate::{DialectStore, RedisOptions, Watermark};

pub(crate) fn open(
    _server: &Server,
    _watermark: Watermark,
    options: &RedisOptions,
) -> Result<Arc<dyn DialectStore>, StoreError> {
    Err(refusal(format!("the dialect {:?} is not there yet", options.dialect)))
}
