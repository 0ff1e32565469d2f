//! Flickr's ticket servers: `REPLACE INTO` a table with `auto_increment`.

use std::sync::Arc;

use unalike_storage::StoreError;

use crate::database::Database;
use crate::error::refusal;
use crate::{DialectStore, MysqlOptions};

/// The statements that create its tables.
pub(crate) fn ddl() -> Vec<String> {
    Vec::new()
}

/// The least privileges on its tables.
pub(crate) fn privileges() -> Vec<(String, &'static str)> {
    Vec::new()
}

pub(crate) async fn open(_database: &Database, _options: &MysqlOptions) -> Result<Arc<dyn DialectStore>, StoreError> {
    Err(refusal("this dialect is not there".to_owned()))
}
