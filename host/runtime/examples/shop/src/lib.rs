//! A shop as a component: `POST /orders` answers with the number of a new order, `POST /orders?count=N` with the
//! numbers of so many.
//!
//! Nothing here knows where they come from: the component is linked to one that has `unalike:ids/async-sequences`.

use bindings::exports::wasi::http::handler::Guest;
use bindings::unalike::ids::async_sequences::{self, Failure};
use bindings::wasi::http::types::{ErrorCode, Fields, Method, Request, Response};
use bindings::{wit_future, wit_stream};

mod bindings {
    wit_bindgen::generate!({ path: "wit", world: "shop", generate_all });

    export!(Shop);
    use super::Shop;
}

struct Shop;

impl Guest for Shop {
    async fn handle(request: Request) -> Result<Response, ErrorCode> {
        let url = request.get_path_with_query().unwrap_or_default();
        let (path, query) = url.split_once('?').unwrap_or((&url, ""));
        Ok(match (path, request.get_method(), query.strip_prefix("count=").map(str::parse)) {
            ("/orders", Method::Post, Some(Ok(count))) => orders(count).await,
            ("/orders", Method::Post, None) if query.is_empty() => order().await,
            ("/orders", Method::Post, _) => {
                let words = format!("the query is {query:?}: write count=N, with 1 to 10000 for N\n");
                response(400, "text/plain", words, None)
            }
            ("/orders", _, _) => {
                let words = "orders are made by POST\n".to_owned();
                response(405, "text/plain", words, Some(("allow", "POST".to_owned())))
            }
            _ => response(404, "text/plain", "there are /orders here\n".to_owned(), None),
        })
    }
}

/// One order.
async fn order() -> Response {
    match async_sequences::next("order".to_owned()).await {
        Ok(number) => response(201, "text/plain", format!("{number}\n"), None),
        Err(failure) => problem(&failure),
    }
}

/// So many orders: their numbers ascend.
async fn orders(count: u32) -> Response {
    match async_sequences::take("order".to_owned(), count).await {
        Ok(runs) => {
            let numbers = runs.iter().flat_map(|run| (0..run.count).map(|at| run.first + u64::from(at) * run.stride));
            let lines = numbers.map(|number| format!("{number}\n")).collect();
            response(201, "text/plain", lines, None)
        }
        Err(failure) => problem(&failure),
    }
}

/// Why there is no order, as a problem document (RFC 9457).
fn problem(failure: &Failure) -> Response {
    let status = match failure.problem.as_str() {
        "count-invalid" => 400,
        _ if failure.retry_after_ms > 0 => 503,
        _ => 500,
    };
    let retry_after = (failure.retry_after_ms > 0)
        .then(|| ("retry-after", failure.retry_after_ms.div_ceil(1_000).to_string()));
    let (name, detail) = (&failure.problem, in_json(&failure.detail));
    let document = format!(
        "{{\"type\":\"urn:unalike:problem:{name}\",\"title\":\"There is no order\",\"status\":{status},\
         \"detail\":\"{detail}\"}}"
    );
    response(status, "application/problem+json", document, retry_after)
}

fn in_json(text: &str) -> String {
    text.chars().fold(String::new(), |json, letter| match letter {
        '"' | '\\' => json + "\\" + letter.encode_utf8(&mut [0; 4]),
        '\0'..='\u{1f}' => json + &format!("\\u{:04x}", u32::from(letter)),
        _ => json + letter.encode_utf8(&mut [0; 4]),
    })
}

fn response(status: u16, media: &str, body: String, header: Option<(&str, String)>) -> Response {
    let headers = Fields::new();
    let length = body.len().to_string();
    let mut pairs = vec![("content-type", media), ("content-length", &length), ("cache-control", "no-store")];
    pairs.extend(header.as_ref().map(|(name, value)| (*name, value.as_str())));
    for (name, value) in pairs {
        headers.append(name, value.as_bytes()).expect("it is a header");
    }
    let (mut writer, contents) = wit_stream::new();
    let (trailers, no_trailers) = wit_future::new(|| Ok(None));
    let (response, _) = Response::new(headers, Some(contents), no_trailers);
    response.set_status_code(status).expect("it is a status");
    wit_bindgen::spawn_local(async move {
        // Nobody may listen any more.
        writer.write_all(body.into_bytes()).await;
        drop(writer);
        let _ = trailers.write(Ok(None)).await;
    });
    response
}
