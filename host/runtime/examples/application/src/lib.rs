//! An application as a component: it answers each request with the number of a new order.

use wasip2::exports::http::incoming_handler::Guest;
use wasip2::http::types::{Fields, IncomingRequest, OutgoingBody, OutgoingResponse, ResponseOutparam};

mod bindings {
    wit_bindgen::generate!({ path: "wit", world: "application" });
}

struct Application;

wasip2::http::proxy::export!(Application);

impl Guest for Application {
    fn handle(_request: IncomingRequest, answer: ResponseOutparam) {
        let (status, text) = match bindings::numbers::next("order") {
            Ok(number) => (201, format!("order {number}\n")),
            Err(reason) => (503, format!("{reason}\n")),
        };
        let response = OutgoingResponse::new(Fields::new());
        response.set_status_code(status).expect("it is a status");
        let body = response.body().expect("it is taken once");
        ResponseOutparam::set(answer, Ok(response));
        let out = body.write().expect("it is taken once");
        // Nobody may listen any more.
        let _ = out.blocking_write_and_flush(text.as_bytes());
        drop(out);
        let _ = OutgoingBody::finish(body, None);
    }
}
