//! The server of tsoracle with its file driver, and callers of its client.
//!
//! ```text
//! tsoracle-peer serve DIRECTORY    prints its address, and serves until it is killed
//! tsoracle-peer call ADDRESS       reads CALLERS MILLISECONDS LINGER_US, one window a line;
//!                                  answers RATE P50_US P99_US
//! ```
//!
//! `serve` does what `tsoracle serve file` does, which is a program and no library: the driver, a window of 3 s, a port
//! of its own.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tsoracle_client::ClientBuilder;
use tsoracle_standalone::{DriverConfig, FileConfig};

#[path = "../../src/callers.rs"]
mod callers;

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["serve", directory] => serve(directory).await,
        ["call", address] => call(address).await,
        _ => bail!("write tsoracle-peer serve DIRECTORY, or tsoracle-peer call ADDRESS"),
    }
}

async fn serve(directory: &str) -> Result<()> {
    let node = tsoracle_standalone::build(DriverConfig::File(FileConfig { state_dir: directory.into() })).await?;
    let server = tsoracle_server::Server::builder()
        .consensus_driver(Arc::clone(&node.driver))
        .window_ahead(Duration::from_secs(3))
        .failover_advance(Duration::from_secs(1))
        .build()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    server.serve_with_listener(listener, std::future::pending()).await?;
    node.shutdown().await;
    Ok(())
}

async fn call(address: &str) -> Result<()> {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let numbers = line.split_whitespace().map(str::parse).collect::<Result<Vec<u64>, _>>()?;
        let [callers, length_ms, linger_us] = numbers.as_slice() else { bail!("a window is three numbers: {line:?}") };
        let client = ClientBuilder::endpoints(vec![format!("http://{address}")])
            .batch_flush_interval(Duration::from_micros(*linger_us))
            .build()
            .await?;
        let client = Arc::new(client);
        let ask = move || {
            let client = Arc::clone(&client);
            async move { Ok(client.get_ts().await?.0) }
        };
        let window = callers::window(usize::try_from(*callers)?, Duration::from_millis(*length_ms), ask).await?;
        let callers::CallerWindow { per_second, p50_us, p99_us } = window;
        println!("{per_second} {p50_us} {p99_us}");
    }
    Ok(())
}
