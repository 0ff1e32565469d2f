//! Ids inside an axum service: `cargo run -p unalike --example axum_service`, then
//!
//! ```console
//! $ curl -X POST http://127.0.0.1:3000/orders
//! {"id":"1"}
//! ```
//!
//! Ctrl-C ends it, and gives back what was not used. Another address may be given as the argument.

use std::io::Write;
use std::sync::Arc;

use anyhow::Result;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::json;
use tokio::net::TcpListener;
use unalike::{Ids, Sequence, SequenceOptions};
use unalike_sqlite::{SqliteOptions, SqliteStore};

#[tokio::main]
async fn main() -> Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let path = std::env::temp_dir().join("unalike-axum.sqlite");
    let store = Arc::new(SqliteStore::connect(SqliteOptions::new(path)).await?);
    let ids = Ids::builder().segments(store).build().await?;
    // A handle is cheap to clone and knows its tag: open it once, put it into the state.
    let orders = ids.sequence("order", SequenceOptions::default()).await?;

    let app = Router::new().route("/orders", post(create_order)).with_state(orders);
    let listener = TcpListener::bind(address).await?;
    writeln!(std::io::stdout(), "listening on http://{}", listener.local_addr()?)?;
    axum::serve(listener, app)
        .with_graceful_shutdown(async {
            // Without a signal handler it ends at once, which costs a gap and nothing else.
            let _ = tokio::signal::ctrl_c().await;
        })
        .await?;
    ids.close().await;
    println!("closed");
    Ok(())
}

/// An id as a string: JavaScript rounds numbers above 2^53.
async fn create_order(State(orders): State<Sequence>) -> Result<Response, Unavailable> {
    let id = orders.next().await?;
    Ok((StatusCode::CREATED, Json(json!({ "id": id.to_string() }))).into_response())
}

/// An error says whether, and when, the same call may succeed.
struct Unavailable(unalike::Error);

impl From<unalike::Error> for Unavailable {
    fn from(error: unalike::Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Unavailable {
    fn into_response(self) -> Response {
        let mut response = (StatusCode::SERVICE_UNAVAILABLE, self.0.to_string()).into_response();
        if let Some(wait_ms) = self.0.retry_after_ms() {
            response.headers_mut().insert(RETRY_AFTER, wait_ms.div_ceil(1_000).into());
        }
        response
    }
}
