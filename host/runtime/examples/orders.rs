//! A service that numbers its orders: `cargo run -p unalike --example orders`.
//!
//! Run it twice: the second run goes on close above where the first one ended, because `close` gives back what never
//! crossed into a run. Kill it with -9 in between: the gap is larger, and no number comes twice.

use std::sync::Arc;

use anyhow::Result;
use unalike::{Ids, Layout, SequenceOptions, SnowflakeOptions};
use unalike_sqlite::{SqliteOptions, SqliteStore};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let path = std::env::temp_dir().join("unalike-orders.sqlite");
    let store = Arc::new(SqliteStore::connect(SqliteOptions::new(&path)).await?);
    let ids = Ids::builder().segments(store.clone()).leases(store).build().await?;

    let orders = ids.sequence("order", SequenceOptions::default()).await?;
    println!("one order:      {}", orders.next().await?);
    let batch = orders.take(1_000).await?;
    println!("1,000 more:     {} runs, {} ids", batch.runs().len(), batch.len());

    let flakes = ids.snowflake("default", SnowflakeOptions::new(Layout::TWITTER)).await?;
    let id = flakes.next().await?;
    let parts = Layout::TWITTER.unpack(id)?;
    println!("one snowflake:  {id} (worker {}, sequence {})", parts.worker, parts.sequence);

    ids.close().await;
    println!("kept in:        {}", path.display());
    Ok(())
}
