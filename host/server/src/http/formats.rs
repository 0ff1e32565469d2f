//! Texts read back, by the format of a tag or snowflake, or only by a notation.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use axum::response::{IntoResponse, Response};

use super::access::{Name, Permitted};
use super::layouts;
use super::query::{Parameters, invalid};
use crate::config::formats::{Notation, ReadText, Refusal};
use crate::config::names::plain_tag;
use crate::service::Service;
use crate::service::problem::Problem;

/// Reads a text when it is said whose it is or in which notation; else an id is taken apart by its layout.
pub(super) async fn decode(
    State(service): State<Arc<Service>>,
    Permitted(permit): Permitted,
    Name(text): Name,
    uri: Uri,
) -> Result<Response, Problem> {
    let mut parameters = Parameters::of(&uri)?;
    let (tag, snowflake, format) = (parameters.take("tag"), parameters.take("snowflake"), parameters.take("format"));
    if tag.is_none() && snowflake.is_none() && format.is_none() {
        return layouts::decode(State(service), Name(text), uri).await;
    }
    parameters.finish("tag, snowflake and format, or layout")?;
    let notation = format.map(|name| Notation::named(&name)).transpose()?;
    let read = match (tag, snowflake, notation) {
        (Some(_), Some(snowflake), _) => {
            return Err(invalid("snowflake", &snowflake, "a text is a tag's or a snowflake's: give one of them"));
        }
        (Some(tag), None, notation) => {
            plain_tag(&tag)?;
            permit.covers(&tag)?;
            let plain = service.formats().of_tag(&tag).is_none();
            let mut read = service.formats().read_of_tag(&tag, &text, notation).map_err(|refusal| {
                let is_text = matches!(refusal, Refusal::Text { .. });
                let problem = Problem::from(refusal);
                match is_text && plain {
                    true => problem.because("the server's configuration has no format of this tag"),
                    false => problem,
                }
            })?;
            service.check_known(&tag).await?;
            read.tag = Some(tag);
            read
        }
        (None, Some(snowflake), notation) => {
            permit.covers(&snowflake)?;
            let mut read = service.formats().read_of_snowflake(&snowflake, &text, notation)?;
            read.snowflake = Some(snowflake);
            read
        }
        (None, None, Some(notation)) => ReadText::of_notation(&text, notation)?,
        (None, None, None) => return Err(invalid("format", "", "give a tag, a snowflake or a format")),
    };
    Ok(Json(read).into_response())
}
