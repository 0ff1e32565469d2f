//! `unalike maelstrom`: a node of the workload `unique-ids` of Maelstrom, the workbench of Jepsen's checkers.
//!
//! Messages are JSON, one per line. A node gets `init` once and answers `init_ok`; then it gets `generate` and answers
//! `generate_ok` with an `id`, or `error` with a code. Nodes have nothing to say to each other: they share the store.

use std::io::{self, Write as _};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::task::JoinSet;

use crate::commands::arguments::MaelstromArguments;
use crate::commands::next;
use crate::commands::print::is_closed;
use crate::config::Config;
use crate::config::formats::FormatRequest;
use crate::config::tokens::Permit;
use crate::service::Service;
use crate::service::issue::{IdForm, Owner, Written};
use crate::service::issue_error::IssueError;
use crate::service::problem::Problem;
use crate::words::shortened;

/// The longest message that is read.
const MESSAGE_MAX_BYTES: u64 = 64 * 1_024;

/// Requests that are answered at once.
const IN_FLIGHT_MAX: usize = 1_024;

/// The protocol's code for a request that this node does not know.
const NOT_SUPPORTED: u32 = 10;
/// The protocol's code where no id was given, and another try may get one.
const TEMPORARILY_UNAVAILABLE: u32 = 11;
/// A code of our own, as the protocol has them from 1,000 on: no id was given, and another try gets none.
const REFUSED: u32 = 1_000;

#[derive(Deserialize)]
struct Message {
    src: String,
    dest: String,
    body: Body,
}

#[derive(Deserialize)]
struct Body {
    r#type: String,
    msg_id: Option<u64>,
}

impl Message {
    /// An answer to it: a line.
    fn answer(&self, kind: &str, members: impl IntoIterator<Item = (&'static str, Value)>) -> String {
        let mut body = Map::from_iter([("type".to_owned(), json!(kind))]);
        body.extend(self.body.msg_id.map(|id| ("in_reply_to".to_owned(), json!(id))));
        body.extend(members.into_iter().map(|(name, value)| (name.to_owned(), value)));
        json!({ "src": self.dest, "dest": self.src, "body": body }).to_string()
    }

    fn error(&self, code: u32, text: &str) -> String {
        self.answer("error", [("code", json!(code)), ("text", json!(text))])
    }
}

impl MaelstromArguments {
    fn owner(&self) -> Owner<'_> {
        let name = self.name.as_str();
        if self.snowflake { Owner::Snowflake { name } } else { Owner::tag(name) }
    }
}

/// `unalike maelstrom`
pub(crate) async fn maelstrom(config: &Config, arguments: MaelstromArguments) -> anyhow::Result<()> {
    let service = Arc::new(next::open(config, arguments.owner(), FormatRequest::default()).await?);
    let served = serve(&service, &Arc::new(arguments), BufReader::new(tokio::io::stdin())).await;
    // Also after an error: what was not used goes back.
    service.close().await;
    served
}

/// Answers until there is no more to read, or nobody reads the answers.
async fn serve(
    service: &Arc<Service>,
    arguments: &Arc<MaelstromArguments>,
    mut input: impl AsyncBufRead + Unpin,
) -> anyhow::Result<()> {
    let mut at_work = JoinSet::new();
    let (mut line, mut is_read) = (Vec::new(), false);
    while !is_read || !at_work.is_empty() {
        tokio::select! {
            // A line that is read in part stays in `line` when an answer is ready first.
            read = read_line(&mut input, &mut line), if !is_read && at_work.len() < IN_FLIGHT_MAX => {
                read?;
                is_read = line.is_empty();
                if !is_read {
                    let message = message(&line)?;
                    line.clear();
                    let (service, arguments) = (Arc::clone(service), Arc::clone(arguments));
                    at_work.spawn(async move { answer(&service, &arguments, &message).await });
                }
            }
            Some(answered) = at_work.join_next() => {
                let mut out = io::stdout().lock();
                let written = writeln!(out, "{}", answered?).and_then(|()| out.flush());
                if is_closed(written)? {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

/// Reads to the end of a line, or of the input: then the line is empty.
async fn read_line(input: &mut (impl AsyncBufRead + Unpin), line: &mut Vec<u8>) -> anyhow::Result<()> {
    let left = MESSAGE_MAX_BYTES.saturating_sub(u64::try_from(line.len())?);
    input.take(left).read_until(b'\n', line).await.context("the standard input cannot be read")?;
    let is_whole = line.is_empty() || line.ends_with(b"\n") || u64::try_from(line.len())? < MESSAGE_MAX_BYTES;
    ensure!(is_whole, "a message on the standard input is longer than {MESSAGE_MAX_BYTES} bytes");
    Ok(())
}

fn message(line: &[u8]) -> anyhow::Result<Message> {
    serde_json::from_slice(line).with_context(|| {
        format!(
            "the line {:?} is no message of Maelstrom's, such as \
             {{\"src\":\"c1\",\"dest\":\"n1\",\"body\":{{\"type\":\"generate\",\"msg_id\":1}}}}",
            shortened(String::from_utf8_lossy(line).trim_end())
        )
    })
}

async fn answer(service: &Service, arguments: &MaelstromArguments, message: &Message) -> String {
    match message.body.r#type.as_str() {
        "init" => message.answer("init_ok", []),
        "generate" => match generate(service, arguments).await {
            Ok(id) => message.answer("generate_ok", [("id", id)]),
            Err(error) => {
                let problem = Problem::from(error);
                let is_temporary = problem.retry_after_ms().is_some();
                message.error(if is_temporary { TEMPORARILY_UNAVAILABLE } else { REFUSED }, problem.detail())
            }
        },
        other => {
            message.error(NOT_SUPPORTED, &format!("this node knows `init` and `generate`, not {:?}", shortened(other)))
        }
    }
}

/// An id, as JSON: a number, or a text where a template shows the ids of this name.
async fn generate(service: &Service, arguments: &MaelstromArguments) -> Result<Value, IssueError> {
    let owner = arguments.owner();
    let mut id = Value::Null;
    service.issue(&Permit::unbound(), owner, 1, IdForm::Shown(FormatRequest::default())).await?.each(|written| {
        id = match written {
            Written::Number(number) => json!(number),
            Written::Text(text) => json!(text),
        };
        Ok::<_, IssueError>(())
    })?;
    Ok(id)
}
