//! A wasmtime host of one's own that runs the component beside its other guests: `cargo run -p unalike --example
//! own_host --features component`.
//!
//! `unalike::component` has the pieces: a context for the store's data, a view, what fills the linker, and the bytes.

use std::sync::Arc;

use unalike::component::{
    COMPONENT, Core, IdsCtx, IdsCtxBuilder, add_to_linker, engine_config, sequences, snowflakes, types,
};
use unalike::{Clock, Layout, SnowflakeOptions, SystemClock};
use unalike_sqlite::{SqliteOptions, SqliteStore};
use wasmtime::component::{Component, Linker};
use wasmtime::{Engine, Result, Store, bail, format_err};

/// The data of this host's stores.
struct Host {
    ids: IdsCtx,
    calls: u64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("ids.sqlite");
    let storage = Arc::new(SqliteStore::connect(SqliteOptions::new(path)).await?);

    // Once per process: the engine, the linker, the compiled component.
    let engine = Engine::new(&engine_config())?;
    let mut linker = Linker::<Host>::new(&engine);
    add_to_linker(&mut linker, |host| host.ids.view())?;
    let component = Component::new(&engine, COMPONENT)?;

    // Once per instance: the context, the store.
    let ids = IdsCtxBuilder::new().segments(storage.clone()).leases(storage.clone()).build()?;
    let signal = ids.signal();
    let mut store = Store::new(&engine, Host { ids, calls: 0 });
    let core = Core::instantiate(&mut store, &component, &linker)?;

    // A sequence, above whatever an earlier instance of this host was granted.
    let sequence = core.unalike_ids_sequences().sequence();
    let options = sequences::SequenceOptions { floor: store.data().ids.floor("order"), ..Default::default() };
    let orders = sequence.call_open(&mut store, "order", options)?.map_err(refused)?;
    let run = loop {
        // Listening begins before the call, so that an answer in between is not missed.
        let answered = signal.answered();
        store.data_mut().calls += 1;
        match sequence.call_reserve(&mut store, orders, SystemClock.now_ms(), 100)? {
            Ok(run) => break run,
            Err(types::Error::Pending) => answered.await,
            Err(types::Error::StoreFailed(_)) => {
                bail!("the store failed: {:?}", signal.last_error());
            }
            Err(error) => return Err(refused(error)),
        }
    };

    // A snowflake, whose first call asks for a lease.
    let snowflake = core.unalike_ids_snowflakes().snowflake();
    let options = snowflakes::SnowflakeOptions::from(&SnowflakeOptions::new(Layout::TWITTER));
    let flakes = snowflake.call_open(&mut store, "default", options)?.map_err(refused)?;
    let stamped = loop {
        let answered = signal.answered();
        store.data_mut().calls += 1;
        match snowflake.call_reserve(&mut store, flakes, SystemClock.now_ms(), 1)? {
            Ok(run) => break run,
            Err(types::Error::Pending) => answered.await,
            Err(types::Error::Wait(ms)) => tokio::time::sleep(std::time::Duration::from_millis(ms)).await,
            Err(error) => return Err(refused(error)),
        }
    };
    let parts = Layout::TWITTER.unpack(stamped.first)?;

    // A graceful end: close the generators, wait for what they send, then close the storage.
    sequence.call_close(&mut store, orders)?;
    snowflake.call_close(&mut store, flakes)?;
    let settled = store.data().ids.settle().await;
    storage.close().await;
    println!(
        "numbers {} to {}, a snowflake of worker {}",
        run.first,
        run.first + u64::from(run.count) - 1,
        parts.worker
    );
    println!("{} calls, settled: {settled}", store.data().calls);
    Ok(())
}

fn refused(error: types::Error) -> wasmtime::Error {
    format_err!("the component answered {error:?}")
}
