//! HTTP by WASI 0.3: what comes in, and what goes out.

use alloc::vec::Vec;

use crate::Component;
use crate::bindings::exports::wasi::http::handler::Guest;
use crate::bindings::unalike::edge::grants;
use crate::bindings::unalike::ids::types::Run;
use crate::bindings::wasi::http::types::{ErrorCode, Request, Response};
use crate::bindings::{wit_future, wit_stream};
use crate::problem::Problem;
use crate::routes::{Answer, Head, Source};
use crate::{snowflakes, tags};

impl Guest for Component {
    async fn handle(request: Request) -> Result<Response, ErrorCode> {
        let settings = tags::begin();
        let (headers, url) = (request.get_headers(), request.get_path_with_query().unwrap_or_default());
        let head = Head { method: request.get_method(), url: &url, headers: &headers };
        Ok(response(Answer::to(&head, settings.count_max, &Instance).await))
    }
}

/// This instance, with what its requests share.
struct Instance;

impl Source for Instance {
    async fn sequence(&self, name: &str, count: u32) -> Result<Vec<Run>, Problem> {
        tags::take(name, count).await
    }

    async fn snowflake(&self, name: &str, count: u32) -> Result<Vec<u64>, Problem> {
        snowflakes::take(name, count).await
    }

    async fn check(&self) -> Result<(), Problem> {
        grants::check().await.map_err(|failure| tags::told(failure).plain())
    }
}

fn response(answer: Answer) -> Response {
    let (mut writer, contents) = wit_stream::new();
    let (trailers, no_trailers) = wit_future::new(|| Ok(None));
    let (response, _) = Response::new(answer.headers(), Some(contents), no_trailers);
    // Only a status that is none would be refused.
    let _ = response.set_status_code(answer.status);
    wit_bindgen::spawn_local(async move {
        writer.write_all(answer.body).await;
        drop(writer);
        let _ = trailers.write(Ok(None)).await;
    });
    response
}
