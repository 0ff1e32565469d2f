//! Tokens: who may do what.
//!
//! A token file is TOML, one `[[tokens]]` table for each token:
//!
//! ```toml
//! [[tokens]]
//! name = "billing"                      # for the log
//! token = "d5d2ad50ab1c4b40a9e1"        # 16 to 512 printable ASCII characters, or instead of it
//! # sha256 = ".."                       # what `printf %s "$token" | sha256sum` prints
//! scope = "read"                        # hand out ids, look at things
//! # scope = "lease"                     # also grant segments and workers to hosts
//! # scope = "admin"                     # also create, change and raise tags
//! tags = ["order", "invoice*"]          # optional: valid for these only
//! ```
//!
//! An entry of `tags` is a name, or the beginning of names followed by one `*`; the bytes of both are compared after
//! percent-decoding, so upper and lower case differ. `invoice*` is good for `invoice` and `invoice/2026`. It speaks of
//! sequences by their tags and of snowflakes by their names alike. A token that is bound to tags sees nothing that
//! tells of all of them: it cannot list tags or read metrics.
//!
//! Only SHA-256 digests are kept and compared, each presented token with every entry in constant time, and no message
//! here ever contains a value of the file other than a name.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use rustix::fs::OFlags;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::oneshot;
use tokio::time::timeout;
use toml::{Table, Value};
use unalike::storage::validate_tag;

use crate::words::shortened;

/// Shorter ones can be guessed.
const TOKEN_BYTES_MIN: usize = 16;

/// Longer ones only cost time: each request's token is hashed.
const TOKEN_BYTES_MAX: usize = 512;

/// Each presented token is compared with all of them, at some nanoseconds apiece.
const TOKENS_MAX: usize = 1_000;

/// A file that is longer was not meant.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// When the file is read again and this was not enough, the log says so.
const READING_SLOW: Duration = Duration::from_secs(5);

/// Readings that go on at once. On a disk that does not answer each keeps a thread.
const READINGS_MAX: usize = 8;

/// What a token is good for. Each scope includes the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// Ids are handed out; tags, layouts and metrics can be looked at.
    Read,
    /// Also segments and workers are granted to hosts, which make ids of them by themselves.
    Lease,
    /// Also tags are created, changed and raised.
    Admin,
}

impl Scope {
    /// Its name in a file of tokens.
    const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Lease => "lease",
            Self::Admin => "admin",
        }
    }
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Denied {
    /// There is no token in the request.
    #[error("this needs a token with the scope {}: send the header Authorization: Bearer TOKEN", needed.name())]
    Missing { needed: Scope },
    /// The token is not in the file.
    #[error("the token is not known to this server")]
    Unknown,
    /// The token has a lesser scope.
    #[error("this needs the scope {}, and the token has the scope {}", needed.name(), has.name())]
    Scope { needed: Scope, has: Scope },
    /// The token is bound to other tags.
    #[error("the token is not valid for {name:?}: it has other tags and snowflakes")]
    Tag {
        /// The tag or snowflake, shortened if it is too long.
        name: String,
    },
    /// The token is bound to tags, and this tells of all of them.
    #[error("the token is valid for some tags only, and this concerns all of them")]
    AllTags,
}

impl Denied {
    /// The words for them.
    pub(crate) const NAMES: [&str; 5] = ["missing", "unknown", "scope", "tag", "all_tags"];

    /// A word for it, for metrics.
    pub(crate) const fn name(&self) -> &'static str {
        let [missing, unknown, scope, tag, all_tags] = Self::NAMES;
        match self {
            Self::Missing { .. } => missing,
            Self::Unknown => unknown,
            Self::Scope { .. } => scope,
            Self::Tag { .. } => tag,
            Self::AllTags => all_tags,
        }
    }
}

/// The tokens of a server, or that it wants none.
#[derive(Debug)]
pub(crate) struct Tokens {
    /// None: everything is allowed to everyone.
    file: Option<TokenFile>,
}

#[derive(Debug)]
struct TokenFile {
    path: PathBuf,
    list: RwLock<List>,
    /// How often it began to be read again.
    readings: AtomicU64,
    /// One more for each reading that goes on.
    reading: Arc<()>,
}

/// What was read.
#[derive(Debug)]
struct List {
    tokens: Arc<[Token]>,
    /// By which of the readings.
    reading: u64,
}

/// One entry of the file.
#[derive(Debug)]
struct Token {
    name: Arc<str>,
    /// SHA-256 of the token.
    digest: [u8; 32],
    scope: Scope,
    /// None: good for all.
    tags: Option<Vec<TagPattern>>,
}

/// An entry of `tags`.
#[derive(Debug)]
enum TagPattern {
    Whole(String),
    Beginning(String),
}

impl TagPattern {
    fn matches(&self, tag: &str) -> bool {
        match self {
            Self::Whole(whole) => tag == whole,
            Self::Beginning(beginning) => tag.starts_with(beginning.as_str()),
        }
    }
}

/// A request's permission, by its token and scope. What it concerns is asked afterwards, once that is known.
#[derive(Debug)]
pub(crate) struct Permit {
    /// The list at the time of the request, and the place of its token in it. None: no tokens are required.
    token: Option<(Arc<[Token]>, usize)>,
}

impl Tokens {
    /// Everything is allowed to everyone.
    pub(crate) fn unwanted() -> Self {
        Self { file: None }
    }

    /// The tokens of a file.
    ///
    /// # Errors
    /// When it cannot be read or is not valid.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        // It may be a pipe, which is read once.
        let tokens = File::open(path).map_err(anyhow::Error::from).and_then(read_file);
        Ok(Self { file: Some(TokenFile::new(path, tokens.with_context(|| cannot_read(path))?)) })
    }

    /// Whether requests need one.
    pub(crate) fn are_wanted(&self) -> bool {
        self.file.is_some()
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.file.as_ref().map_or(0, |file| file.current().len())
    }

    /// Reads the file again. Requests that began before are served by the tokens of that time. However long it takes,
    /// nothing waits for it: no request, no later reading, and not the end of the process.
    ///
    /// # Errors
    /// When it cannot be read or is not valid, or is no regular file: then the tokens stay as they were.
    pub(crate) async fn reload(&self) -> anyhow::Result<()> {
        self.reload_by(read_again).await
    }

    async fn reload_by(
        &self,
        read: impl FnOnce(&Path) -> anyhow::Result<Arc<[Token]>> + Send + 'static,
    ) -> anyhow::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let reading = Arc::clone(&file.reading);
        ensure!(
            // The file has one of its own.
            Arc::strong_count(&reading) <= READINGS_MAX + 1,
            "the token file {} is still being read {READINGS_MAX} times, for signals before this one",
            file.path.display()
        );
        let number = file.readings.fetch_add(1, Ordering::Relaxed) + 1;
        let (done, mut tokens) = oneshot::channel();
        let path = file.path.clone();
        // A thread of the runtime would be waited for when the process ends.
        let begun = thread::Builder::new().name("tokens".to_owned()).spawn(move || {
            // Nobody may wait for it any more.
            let _ = done.send(read(&path));
            drop(reading);
        });
        begun.context("a thread that reads the token file does not start")?;
        let tokens = if let Ok(tokens) = timeout(READING_SLOW, &mut tokens).await {
            tokens
        } else {
            tracing::warn!(
                "the token file {} takes more than {} s to be read; until then its tokens stay as they were",
                file.path.display(),
                READING_SLOW.as_secs()
            );
            tokens.await
        };
        file.replace(number, tokens.context("the thread that read the token file broke off")??);
        Ok(())
    }

    /// Whether this token (its bytes as they came) has this scope. The permit says what it is good for.
    ///
    /// # Errors
    /// [`Denied::Missing`], [`Denied::Unknown`] or [`Denied::Scope`].
    pub(crate) fn permit(&self, presented: Option<&[u8]>, scope: Scope) -> Result<Permit, Denied> {
        let Some(file) = &self.file else { return Ok(Permit { token: None }) };
        let presented = presented.ok_or(Denied::Missing { needed: scope })?;
        let tokens = file.current();
        let (place, token) = find(&tokens, presented).ok_or(Denied::Unknown)?;
        tracing::debug!(token = &*token.name, "the token is known");
        if token.scope < scope {
            return Err(Denied::Scope { needed: scope, has: token.scope });
        }
        Ok(Permit { token: Some((tokens, place)) })
    }

    /// The same for a request that concerns this tag, or the snowflake of this name.
    ///
    /// # Errors
    /// As [`Tokens::permit`], and [`Denied::Tag`].
    pub(crate) fn check(&self, presented: Option<&[u8]>, scope: Scope, tag: &str) -> Result<(), Denied> {
        self.permit(presented, scope)?.covers(tag)
    }

    /// Whether these bytes are a token, which then must not be written anywhere.
    pub(crate) fn contain(&self, bytes: &[u8]) -> bool {
        self.file.as_ref().is_some_and(|file| find(&file.current(), bytes).is_some())
    }
}

/// The token with these bytes, and its place.
fn find<'a>(tokens: &'a [Token], presented: &[u8]) -> Option<(usize, &'a Token)> {
    let digest: [u8; 32] = Sha256::digest(presented).into();
    let mut found = None;
    // To the end, so that the time does not tell which one it was.
    for (place, token) in tokens.iter().enumerate() {
        if bool::from(token.digest.as_slice().ct_eq(&digest)) {
            found = Some((place, token));
        }
    }
    found
}

impl TokenFile {
    fn new(path: &Path, tokens: Arc<[Token]>) -> Self {
        let list = RwLock::new(List { tokens, reading: 0 });
        Self { path: path.to_owned(), list, readings: AtomicU64::new(0), reading: Arc::default() }
    }

    fn current(&self) -> Arc<[Token]> {
        Arc::clone(&self.list.read().unwrap_or_else(PoisonError::into_inner).tokens)
    }

    /// What this reading found is in force, unless one that began later was quicker.
    fn replace(&self, reading: u64, tokens: Arc<[Token]>) {
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        if list.reading < reading {
            *list = List { tokens, reading };
        }
    }
}

impl Permit {
    /// Whether it is good for this tag, or the snowflake of this name.
    ///
    /// # Errors
    /// [`Denied::Tag`].
    pub(crate) fn covers(&self, tag: &str) -> Result<(), Denied> {
        let covered = self.tags().is_none_or(|tags| tags.iter().any(|pattern| pattern.matches(tag)));
        if covered { Ok(()) } else { Err(Denied::Tag { name: shortened(tag) }) }
    }

    /// Whether it is good for what tells of all tags.
    ///
    /// # Errors
    /// [`Denied::AllTags`].
    pub(crate) fn covers_all(&self) -> Result<(), Denied> {
        if self.tags().is_none() { Ok(()) } else { Err(Denied::AllTags) }
    }

    /// The name of the token, for the log.
    pub(crate) fn token_name(&self) -> Option<&str> {
        self.token().map(|token| &*token.name)
    }

    fn tags(&self) -> Option<&[TagPattern]> {
        self.token()?.tags.as_deref()
    }

    fn token(&self) -> Option<&Token> {
        let (tokens, place) = self.token.as_ref()?;
        tokens.get(*place)
    }
}

/// Says so in the log when others than the owner's group may read the file.
pub(crate) fn warn_if_open(path: &Path) {
    let Ok(metadata) = path.metadata() else { return };
    if metadata.permissions().mode() & 0o004 != 0 {
        tracing::warn!(
            "the token file {} can be read by every user of this machine: chmod o-r it, or keep sha256 in place of token",
            path.display()
        );
    }
}

fn cannot_read(path: &Path) -> String {
    format!("the token file {} cannot be used", path.display())
}

/// Reads it while the server runs: only a regular file, as a pipe is read once, and may never say anything.
fn read_again(path: &Path) -> anyhow::Result<Arc<[Token]>> {
    let read = || {
        // A pipe would not even be opened before somebody writes to it.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        ensure!(file.metadata()?.is_file(), "it is no regular file, and no other is read again");
        read_file(file)
    };
    read().with_context(|| cannot_read(path))
}

fn read_file(file: File) -> anyhow::Result<Arc<[Token]>> {
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    ensure!(
        u64::try_from(text.len()).is_ok_and(|length| length <= FILE_BYTES_MAX),
        "it is longer than {FILE_BYTES_MAX} bytes"
    );
    parse(&text)
}

fn parse(text: &str) -> anyhow::Result<Arc<[Token]>> {
    // The parser's own message would show the line, and with it a token.
    let file: Table = toml::from_str(text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        anyhow!("line {} is not TOML", before.matches('\n').count() + 1)
    })?;
    if let Some(unknown) = file.keys().find(|key| *key != "tokens") {
        bail!("the key {unknown:?} is unknown: it has [[tokens]] tables and nothing else");
    }
    let entries = match file.get("tokens") {
        Some(Value::Array(entries)) => entries.as_slice(),
        Some(_) => bail!("tokens is not a list: write [[tokens]] before each"),
        None => &[],
    };
    ensure!(!entries.is_empty(), "it holds no token: add a [[tokens]] table with name, token and scope");
    ensure!(entries.len() <= TOKENS_MAX, "it holds {} tokens, {TOKENS_MAX} at most are possible", entries.len());
    let mut tokens: Vec<Token> = Vec::with_capacity(entries.len());
    for (entry, number) in entries.iter().zip(1_usize..) {
        let table = entry.as_table().with_context(|| format!("token {number} is not a table"))?;
        let name = text_of(table, "name")
            .and_then(|name| name.context("it has no name"))
            .with_context(|| format!("token {number}"))?;
        ensure!(
            !name.is_empty() && name.len() <= 64 && !name.contains(char::is_control),
            "token {number}: the name must have 1 to 64 bytes and no control characters"
        );
        let token = parse_token(name, table).with_context(|| format!("the token {name:?}"))?;
        for other in &tokens {
            ensure!(other.name != token.name, "two tokens have the name {name:?}");
            ensure!(other.digest != token.digest, "{:?} and {name:?} are the same token", other.name);
        }
        tokens.push(token);
    }
    Ok(tokens.into())
}

fn parse_token(name: &str, table: &Table) -> anyhow::Result<Token> {
    const KNOWN: [&str; 5] = ["name", "token", "sha256", "scope", "tags"];
    if let Some(unknown) = table.keys().find(|key| !KNOWN.contains(&key.as_str())) {
        bail!("the key {unknown:?} is unknown: there are {}", KNOWN.join(", "));
    }
    let digest = match (text_of(table, "token")?, text_of(table, "sha256")?) {
        (Some(token), None) => {
            ensure!(
                (TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&token.len())
                    && token.bytes().all(|b| b.is_ascii_graphic()),
                "token must have {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} characters of printable ASCII without spaces"
            );
            Sha256::digest(token).into()
        }
        (None, Some(hex)) => parse_digest(hex).context("sha256 must be 64 hexadecimal digits")?,
        (Some(_), Some(_)) => bail!("it has both token and sha256: give one"),
        (None, None) => bail!("it has neither token nor sha256: give one"),
    };
    let scope = match text_of(table, "scope")? {
        Some("read") => Scope::Read,
        Some("lease") => Scope::Lease,
        Some("admin") => Scope::Admin,
        Some(_) => bail!("scope must be \"read\", \"lease\" or \"admin\""),
        None => bail!("it has no scope: give \"read\", \"lease\" or \"admin\""),
    };
    let tags = match table.get("tags") {
        None => None,
        Some(Value::Array(tags)) => Some(tags.iter().map(parse_pattern).collect::<anyhow::Result<Vec<_>>>()?),
        Some(_) => bail!("tags must be a list of strings"),
    };
    ensure!(tags.as_ref().is_none_or(|tags| !tags.is_empty()), "tags is empty: leave it out to allow all tags");
    Ok(Token { name: name.into(), digest, scope, tags })
}

fn parse_pattern(value: &Value) -> anyhow::Result<TagPattern> {
    let text = value.as_str().context("tags must be a list of strings")?;
    let beginning = text.strip_suffix('*');
    let name = beginning.unwrap_or(text);
    ensure!(!name.contains('*'), "tags has {text:?}: a * may only be at the end");
    ensure!(!name.is_empty(), "tags has {text:?}: leave tags out to allow all tags");
    validate_tag(name).map_err(|error| anyhow!("tags has {text:?}: {error}"))?;
    Ok(if beginning.is_some() { TagPattern::Beginning(name.to_owned()) } else { TagPattern::Whole(name.to_owned()) })
}

/// The string under a key. What else stands there is not said: it may be a secret.
fn text_of<'a>(table: &'a Table, key: &str) -> anyhow::Result<Option<&'a str>> {
    match table.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => bail!("{key} must be a string, not of the type {}", other.type_str()),
    }
}

fn parse_digest(hex: &str) -> Option<[u8; 32]> {
    // Digits only: `from_str_radix` would take a sign.
    if hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut digest = [0; 32];
    for (place, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * place..2 * place + 2)?, 16).ok()?;
    }
    Some(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "correct-horse-battery";

    fn tokens(text: &str) -> Tokens {
        Tokens { file: Some(TokenFile::new(Path::new("tokens.toml"), parse(text).unwrap())) }
    }

    fn file_with(secret: &str) -> String {
        format!("[[tokens]]\nname = \"a\"\ntoken = \"{secret}\"\nscope = \"read\"\n")
    }

    #[tokio::test]
    async fn a_reading_that_takes_long_holds_nobody_up_and_a_later_one_counts() {
        let (first, second, third) = ("the-first-of-all-tokens", "the-second-of-the-tokens", "the-third-of-the-tokens");
        let tokens = Arc::new(tokens(&file_with(first)));
        let mut waiting = Vec::new();
        let mut releases = Vec::new();
        for _ in 0..READINGS_MAX {
            let (release, released) = std::sync::mpsc::channel::<()>();
            let (began, begun) = oneshot::channel();
            let tokens = Arc::clone(&tokens);
            waiting.push(tokio::spawn(async move {
                let read = move |_: &Path| {
                    began.send(()).unwrap();
                    released.recv().unwrap();
                    parse(&file_with(second))
                };
                tokens.reload_by(read).await
            }));
            begun.await.unwrap();
            releases.push(release);
        }
        assert_eq!(tokens.check(Some(first.as_bytes()), Scope::Read, "order"), Ok(()));
        let refused = tokens.reload_by(|_| parse(&file_with(third))).await.unwrap_err();
        assert!(refused.to_string().contains("still being read"), "{refused:#}");
        releases.pop().unwrap().send(()).unwrap();
        waiting.pop().unwrap().await.unwrap().unwrap();
        assert_eq!(tokens.check(Some(second.as_bytes()), Scope::Read, "order"), Ok(()));
        while Arc::strong_count(&tokens.file.as_ref().unwrap().reading) > READINGS_MAX {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokens.reload_by(|_| parse(&file_with(third))).await.unwrap();
        for (release, waiting) in releases.into_iter().zip(waiting) {
            release.send(()).unwrap();
            waiting.await.unwrap().unwrap();
        }
        assert_eq!(tokens.check(Some(third.as_bytes()), Scope::Read, "order"), Ok(()), "it was read last");
    }

    #[test]
    fn a_token_is_good_for_its_scope_and_tags() {
        let tokens = tokens(&format!(
            "[[tokens]]\nname = \"all\"\ntoken = \"{SECRET}\"\nscope = \"admin\"\n\
             [[tokens]]\nname = \"some\"\nsha256 = \"{}\"\nscope = \"read\"\ntags = [\"order\", \"invoice*\"]\n",
            Sha256::digest("another-token-of-mine").iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02X}"))
        ));
        let all = Some(SECRET.as_bytes());
        let some = Some(&b"another-token-of-mine"[..]);
        assert_eq!(tokens.count(), 2);
        assert_eq!(tokens.check(all, Scope::Admin, "anything"), Ok(()));
        assert_eq!(tokens.permit(all, Scope::Read).unwrap().covers_all(), Ok(()));
        for tag in ["order", "invoice", "invoice/2026"] {
            assert_eq!(tokens.check(some, Scope::Read, tag), Ok(()), "{tag}");
        }
        for tag in ["orders", "Order", "orde", "", "invoic", "xinvoice"] {
            assert_eq!(tokens.check(some, Scope::Read, tag), Err(Denied::Tag { name: tag.to_owned() }), "{tag}");
        }
        assert_eq!(
            tokens.check(some, Scope::Admin, "order"),
            Err(Denied::Scope { needed: Scope::Admin, has: Scope::Read })
        );
        assert_eq!(tokens.permit(some, Scope::Read).unwrap().covers_all(), Err(Denied::AllTags));
        assert_eq!(tokens.check(None, Scope::Read, "order"), Err(Denied::Missing { needed: Scope::Read }));
        for wrong in ["", "correct-horse-batter", "correct-horse-battery ", "Correct-horse-battery"] {
            assert_eq!(tokens.check(Some(wrong.as_bytes()), Scope::Read, "order"), Err(Denied::Unknown), "{wrong}");
        }
        assert_eq!(Tokens::unwanted().check(None, Scope::Admin, "order"), Ok(()));
    }

    #[test]
    fn bad_files_are_refused_and_the_secret_is_not_said() {
        let whole = format!("name = \"a\"\ntoken = \"{SECRET}\"\nscope = \"read\"");
        for (text, named) in [
            (String::new(), "no token"),
            ("tokens = []".to_owned(), "no token"),
            (format!("tokens = \"{SECRET}\""), "[[tokens]]"),
            (format!("tokens = [\"{SECRET}\"]"), "token 1 is not a table"),
            (format!("[[token]]\n{whole}"), "\"token\" is unknown"),
            (format!("[[tokens]]\n{whole}\ntag = \"{SECRET}\""), "\"tag\" is unknown"),
            (format!("[[tokens]]\n{whole}\n[[tokens]]\n{whole}"), "the name \"a\""),
            (format!("[[tokens]]\n{whole}\n[[tokens]]\n{}", whole.replace("\"a\"", "\"b\"")), "the same token"),
            (format!("[[tokens]]\nname = \"a\"\ntoken = \"{SECRET}"), "line 3 is not TOML"),
            (format!("[[tokens]]\nname = \"a\"\ntoken = {SECRET}\nscope = \"read\""), "line 3 is not TOML"),
            ("[[tokens]]\nname = \"a\"\ntoken = 1234567890123456789\nscope = \"read\"".to_owned(), "must be a string"),
            ("[[tokens]]\nname = \"a\"\ntoken = \"short-567890123\"\nscope = \"read\"".to_owned(), "16 to 512"),
            (whole_with(&whole, "token", &format!("token = \"{SECRET} \"")), "without spaces"),
            (whole_with(&whole, "token", ""), "neither token nor sha256"),
            (whole_with(&whole, "token", &format!("sha256 = \"{SECRET}\"")), "64 hexadecimal"),
            (format!("[[tokens]]\n{whole}\nsha256 = \"{}\"", "0".repeat(64)), "both token and sha256"),
            (whole_with(&whole, "scope", &format!("scope = \"{SECRET}\"")), "\"read\", \"lease\" or \"admin\""),
            (whole_with(&whole, "scope", ""), "no scope"),
            (whole_with(&whole, "name", ""), "no name"),
            (whole_with(&whole, "name", "name = \"\""), "1 to 64"),
            (format!("[[tokens]]\n{whole}\ntags = \"{SECRET}\""), "a list of strings"),
            (format!("[[tokens]]\n{whole}\ntags = []"), "tags is empty"),
            (format!("[[tokens]]\n{whole}\ntags = [\"*\"]"), "leave tags out"),
            (format!("[[tokens]]\n{whole}\ntags = [\"a*b\"]"), "at the end"),
            (format!("[[tokens]]\n{whole}\ntags = [5]"), "a list of strings"),
        ] {
            let error = format!("{:#}", parse(&text).unwrap_err());
            assert!(error.contains(named), "{text}: {error}");
            assert!(!error.contains("correct") && !error.contains("12345") && !error.contains("short-"), "{error}");
        }
    }

    /// The same entry with another line for this key.
    fn whole_with(whole: &str, key: &str, line: &str) -> String {
        let lines = whole.lines().map(|known| if known.starts_with(key) { line } else { known });
        format!("[[tokens]]\n{}", lines.collect::<Vec<_>>().join("\n"))
    }
}
