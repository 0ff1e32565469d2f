//! Snowflake layouts, and ids taken apart.

use axum::Json;
use axum::http::Uri;
use serde::Serialize;

use super::query::Parameters;
use super::{Name, Reader};
use crate::layouts::{self, Decoded, LAYOUT_DEFAULT, LayoutFigures};
use crate::problem::Problem;

pub(super) async fn decode(_: Reader, Name(id): Name, uri: Uri) -> Result<Json<Decoded>, Problem> {
    let mut parameters = Parameters::of(&uri)?;
    let layout = parameters.take("layout");
    parameters.finish("layout")?;
    Ok(Json(layouts::decode(&id, layout.as_deref().unwrap_or(LAYOUT_DEFAULT))?))
}

/// All layouts.
#[derive(Serialize)]
pub(super) struct LayoutList {
    layouts: Vec<LayoutFigures>,
}

pub(super) async fn list(_: Reader) -> Json<LayoutList> {
    Json(LayoutList { layouts: layouts::all_layouts() })
}
