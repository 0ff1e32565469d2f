//! A client of Redis under a ceiling, in a process of its own: `redis-child FILE TAG COUNT URL..` asks each of the
//! databases by turns for COUNT numbers until its standard input ends. The SQLite file keeps the ceilings.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use unalike_redis::{Backing, RedisOptions, RedisStore};
use unalike_sqlite::{SqliteOptions, SqliteStore};
use unalike_storage::{SegmentStore, StoreError};
use unalike_tests::clients::ask_each_until_told_to_stop;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, tag, count, urls @ ..] = arguments.as_slice() else {
        bail!("usage: redis-child FILE TAG COUNT URL.., not {arguments:?}")
    };
    let mut stores = Vec::new();
    for url in urls {
        let mut options = RedisOptions::from_url(url)?;
        // So that this happens in the middle of everything, too.
        options.keep_every = Duration::from_millis(50);
        let durable = Arc::new(SqliteStore::connect(SqliteOptions::new(file)).await?);
        stores.push(connect(options, durable).await?);
    }
    let stores: Vec<&dyn SegmentStore> = stores.iter().map(|store| store as &dyn SegmentStore).collect();
    ask_each_until_told_to_stop(&stores, tag, count.parse()?).await
}

/// On a busy machine the first answer may be late.
async fn connect(options: RedisOptions, durable: Arc<SqliteStore>) -> Result<RedisStore, StoreError> {
    loop {
        match RedisStore::connect(options.clone(), Backing::Durable(Arc::<SqliteStore>::clone(&durable))).await {
            Err(error) if error.is_retryable() => {}
            answer => return answer,
        }
    }
}
