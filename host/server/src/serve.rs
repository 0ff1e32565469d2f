//! The service's life: start, serve, renew, end.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::config::Config;
use crate::http;
use crate::http::metrics::Metrics;
use crate::service::Service;

/// How often leases are looked after: well within the third of a horizon after which they are due.
const RENEW_EVERY: Duration = Duration::from_secs(1);

/// The exit code of a process that was told twice to end.
const EXIT_AT_ONCE: i32 = 1;

/// Serves until it is told to end, then gives back what was not used.
pub(crate) async fn serve(config: Config) -> anyhow::Result<()> {
    // The signals first, so that none is missed, and the address before the store, so that a mistake creates no file.
    let mut ends = Ends::watch()?;
    let listener = TcpListener::bind(&config.listen)
        .await
        .with_context(|| format!("cannot listen on {}: choose another address with --listen", config.listen))?;
    let address = listener.local_addr().context("the listener has no address")?;
    let metrics = Arc::new(Metrics::install(config.metrics_tags_max)?);
    let service = Arc::new(Service::open(&config).await?);

    let renewing = tokio::spawn(renew(Arc::clone(&service)));
    let (end, ended) = oneshot::channel::<()>();
    let listener = listener.tap_io(|connection| {
        // Answers are small: waiting to fill a packet would only delay them.
        if let Err(error) = connection.set_nodelay(true) {
            tracing::debug!(%error, "a connection keeps its delay");
        }
    });
    let server =
        axum::serve(listener, http::router(&config, Arc::clone(&service), metrics)).with_graceful_shutdown(async {
            // A sender that is gone means the same.
            let _ = ended.await;
        });
    let mut server = tokio::spawn(async move { server.await });

    // For people and programs that started it; it is no loss if nobody reads it.
    let _ = writeln!(std::io::stdout(), "listening on http://{address}");
    tracing::info!(%address, store = config.store, "ready");

    tokio::select! {
        signal = ends.next() => tracing::info!(signal, "ending; another signal ends it at once"),
        done = &mut server => done.context("the server stopped")?.context("the server stopped")?,
    }
    tokio::spawn(async move {
        ends.next().await;
        std::process::exit(EXIT_AT_ONCE);
    });
    let _ = end.send(());
    let shutdown = Duration::from_millis(config.shutdown_timeout_ms);
    if !server.is_finished() && tokio::time::timeout(shutdown, &mut server).await.is_err() {
        tracing::warn!("requests were still running after {} ms: they are broken off", shutdown.as_millis());
        server.abort();
    }
    renewing.abort();
    service.close().await;
    tracing::info!("ended");
    Ok(())
}

async fn renew(service: Arc<Service>) {
    let mut ticks = tokio::time::interval(RENEW_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        service.renew_leases();
    }
}

/// The signals that end a process.
struct Ends {
    terminate: Signal,
    interrupt: Signal,
}

impl Ends {
    fn watch() -> anyhow::Result<Self> {
        let watch = |kind| signal(kind).context("signals cannot be watched");
        Ok(Self { terminate: watch(SignalKind::terminate())?, interrupt: watch(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
