//! Counters that hold the last number, from which one script grants: its checks first, then one write.
//!
//! All 63 bits of a number count, and a Lua number has 53: scripts compare numbers as texts, the server adds to them,
//! and the sum is read back as a text in the same script.

use std::collections::BTreeSet;

use redis::Cmd;
use unalike_storage::{ID_MAX, Segment, StoreError};

use crate::server::{Access, Reply, Script, Server, To, script};

/// What the scripts of all counters begin with.
pub(crate) const NUMBER: &str = include_str!("scripts/number.lua");

/// How many things the server is asked for at once.
pub(crate) const PAGE: usize = 1_000;

/// The scripts of one kind of counter.
#[derive(Debug)]
pub(crate) struct CounterScripts {
    pub(crate) grant: Script,
    pub(crate) raise: Script,
    pub(crate) retire: Script,
}

/// A script of counters, for the kind that `kind` reads and writes.
pub(crate) fn counter_script(kind: &str, what: &str) -> redis::Script {
    script(&[NUMBER, kind, include_str!("scripts/counter.lua"), what])
}

/// The counters of one server.
#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) server: Server,
    pub(crate) scripts: &'static CounterScripts,
}

/// Which counter is meant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counter<'c> {
    pub(crate) key: &'c str,
    pub(crate) tag: &'c str,
    /// That of its store, where stores have one: the scripts compare it.
    pub(crate) marker: Option<&'c str>,
}

/// What a script of a counter answered.
pub(crate) enum ScriptAnswer<T> {
    Done(T),
    /// There is no such tag.
    Missing,
    /// The store has no marker.
    Void,
    /// It is another store, with this marker.
    Another(String),
    /// All numbers were granted.
    Spent,
}

impl<T> ScriptAnswer<T> {
    fn map<U>(self, read: impl FnOnce(T) -> Result<U, StoreError>) -> Result<ScriptAnswer<U>, StoreError> {
        Ok(match self {
            Self::Done(answer) => ScriptAnswer::Done(read(answer)?),
            Self::Missing => ScriptAnswer::Missing,
            Self::Void => ScriptAnswer::Void,
            Self::Another(found) => ScriptAnswer::Another(found),
            Self::Spent => ScriptAnswer::Spent,
        })
    }
}

impl Counters {
    /// Grants numbers, or what is left.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when the counter is none, and any error of the connection.
    pub(crate) async fn grant(
        &self,
        counter: Counter<'_>,
        count: u64,
        at_least: u64,
    ) -> Result<ScriptAnswer<Segment>, StoreError> {
        let count = count.min(ID_MAX);
        let floor = at_least.max(1) - 1;
        let behind_floor = floor.saturating_add(count).min(ID_MAX);
        let arguments = [count, floor, behind_floor, ID_MAX - count];
        let answer = self.run("granting numbers of", &self.scripts.grant, counter, &arguments).await?;
        answer.map(|mut reply| segment(&mut reply, count, at_least))
    }

    /// Lifts a counter so that the next number is `next` or above.
    ///
    /// # Errors
    /// As [`Counters::grant`].
    pub(crate) async fn raise(&self, counter: Counter<'_>, next: u64) -> Result<ScriptAnswer<()>, StoreError> {
        self.run("raising", &self.scripts.raise, counter, &[next - 1]).await?.map(|_| Ok(()))
    }

    /// Ends a counter; answers the last number that it had granted.
    ///
    /// # Errors
    /// As [`Counters::grant`].
    pub(crate) async fn retire(&self, counter: Counter<'_>) -> Result<ScriptAnswer<u64>, StoreError> {
        self.run("ending", &self.scripts.retire, counter, &[]).await?.map(|mut reply| reply.number())
    }

    async fn run(
        &self,
        doing: &str,
        script: &Script,
        Counter { key, tag, marker }: Counter<'_>,
        numbers: &[u64],
    ) -> Result<ScriptAnswer<Reply>, StoreError> {
        let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
        let numbers = numbers.iter().map(String::as_str);
        let arguments: Vec<&str> = std::iter::once(tag).chain(numbers).chain(marker).collect();
        let reply = self.server.script(&format!("{doing} {tag:?}"), Access::Writes, script, key, &arguments).await?;
        answer(reply, tag)
    }
}

/// Reads the first word of an answer.
///
/// # Errors
/// [`StoreError::Corrupt`] when what was found is not what should be there.
pub(crate) fn answer(mut reply: Reply, tag: &str) -> Result<ScriptAnswer<Reply>, StoreError> {
    match reply.text()?.as_str() {
        "done" => Ok(ScriptAnswer::Done(reply)),
        "missing" => Ok(ScriptAnswer::Missing),
        "void" => Ok(ScriptAnswer::Void),
        "another" => Ok(ScriptAnswer::Another(reply.text()?)),
        "spent" => Ok(ScriptAnswer::Spent),
        "damaged" => {
            let found = reply.text()?;
            Err(reply.damaged(&format!("of the tag {tag:?} it holds {found:?}, which cannot be used")))
        }
        other => Err(reply.damaged(&format!("a script answered {other:?}"))),
    }
}

fn segment(reply: &mut Reply, count: u64, at_least: u64) -> Result<Segment, StoreError> {
    let (before, last) = (reply.number()?, reply.number()?);
    let segment = Segment {
        start: before.saturating_add(1),
        end: last.saturating_add(1),
        stride: 1,
        generation: 0,
        version: last,
    };
    if segment.validate().is_err() || segment.start < at_least || segment.count() > count {
        return Err(reply.damaged(&format!("the grant {segment:?} is not what was asked for")));
    }
    Ok(segment)
}

/// A number as the server writes it: 0 to 2^63 - 1, without a sign or leading zeros.
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    text.parse().ok().filter(|&number: &u64| number <= ID_MAX && number.to_string() == text)
}

/// Up to `limit` names in byte order, those behind `after`, of all that `HSCAN` goes through in this key, or `SCAN`
/// without a key. What was there all the time is found; in a Cluster, what was not moved to another node meanwhile.
///
/// # Errors
/// Any error of the connection.
pub(crate) async fn scan(
    server: &Server,
    key: Option<&str>,
    start: impl Fn(u64) -> Cmd,
    name_of: impl Fn(&[u8]) -> Option<String>,
    after: Option<&str>,
    limit: u64,
) -> Result<BTreeSet<String>, StoreError> {
    let mut names = BTreeSet::new();
    if limit == 0 {
        return Ok(names);
    }
    let masters = if key.is_some() { Vec::new() } else { server.masters().await? };
    for to in key.map(To::Key).into_iter().chain(masters.iter().map(To::Master)) {
        let mut cursor = 0;
        loop {
            let (next, found): (u64, Vec<Vec<u8>>) =
                server.command("listing names", Access::Reads, to, start(cursor).arg("COUNT").arg(PAGE)).await?;
            for name in found.iter().filter_map(|found| name_of(found)) {
                if after.is_none_or(|after| name.as_str() > after) {
                    names.insert(name);
                    if names.len() as u64 > limit {
                        names.pop_last();
                    }
                }
            }
            if next == 0 {
                break;
            }
            cursor = next;
        }
    }
    Ok(names)
}

/// As `SCAN` takes it for itself, and not for a pattern.
pub(crate) fn literally(text: &str) -> String {
    let mut pattern = String::new();
    for letter in text.chars() {
        if matches!(letter, '*' | '?' | '[' | ']' | '\\' | '^' | '-') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern
}
