//! Tokens: who may do what.
//!
//! A token file is TOML, one `[[tokens]]` table for each token:
//!
//! ```toml
//! [[tokens]]
//! name = "billing"                      # for the log
//! token = "d5d2ad50ab1c4b40a9e1"        # 16 to 512 printable ASCII characters, or instead of it
//! # sha256 = ".."                       # what `printf %s "$token" | sha256sum` prints
//! # client = "billing.internal"         # or a name in the certificates of clients that send no token
//! scope = "read"                        # hand out ids, look at things
//! # scope = "lease"                     # also grant segments and workers to hosts
//! # scope = "admin"                     # also create, change and raise tags
//! tags = ["order", "invoice*"]          # optional: valid for these only
//! expires = 2027-12-31T23:00:00Z        # optional: valid before this instant; 2027-12-31 is its first second in UTC
//! ids_per_s = 5000                      # optional: so many ids per second of each server, and no more
//! ```
//!
//! An entry of `tags` is a name, or the beginning of names followed by one `*`; the bytes of both are compared after
//! percent-decoding, so upper and lower case differ. `invoice*` is good for `invoice` and `invoice/2026`. It speaks of
//! sequences by their tags and of snowflakes by their names alike. A token that is bound to tags sees nothing that
//! tells of all of them: it cannot list tags or read metrics.
//!
//! An entry with `client` is good for those whose certificate, signed by an authority of `tls_client_ca`, has this very
//! DNS name, URI or e-mail address among its subject alternative names; the subject itself is not looked at. The first
//! entry of the file that a certificate fits counts. A request that sends a token is judged by its token alone.
//!
//! Only SHA-256 digests are kept and compared, each presented token with every entry in constant time, and no message
//! here ever contains a value of the file other than a name.

use std::num::NonZeroU32;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow, bail, ensure};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use toml::{Table, Value};
use unalike::storage::{Rfc3339, random_128, validate_tag};
use unalike::{Clock, SystemClock};

use crate::config::clients::{ClientName, ClientNames};
use crate::config::reread::{self, Reading, Reread};
use crate::quotas::Quota;
use crate::words::shortened;

/// Shorter ones can be guessed.
const TOKEN_BYTES_MIN: usize = 16;

/// Longer ones only cost time: each request's token is hashed.
const TOKEN_BYTES_MAX: usize = 512;

/// Each presented token is compared with all of them, at some nanoseconds apiece.
const TOKENS_MAX: usize = 1_000;

/// A token that expires within this time, two weeks, is told of in the log.
const EXPIRY_NEAR_MS: u64 = 14 * 24 * 60 * 60 * 1_000;

/// How the end of a token is written.
const EXPIRY_FORM: &str = "2027-12-31T23:00:00Z, or a day: 2027-12-31";

/// What a token is good for. Each scope includes the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
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
    pub(crate) const fn name(self) -> &'static str {
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
    /// No entry of the file is for the client's certificate, and there is no token.
    #[error(
        "no entry of the token file is for a client certificate with {names}: send a token, or have a client added"
    )]
    Client {
        /// Some of its names, shortened if they are too long.
        names: String,
    },
    /// The token was valid until then.
    #[error("the token expired at {}: ask for another one, or set the clock of this server", Rfc3339(*expired_ms))]
    Expired {
        /// In Unix milliseconds.
        expired_ms: u64,
    },
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
    pub(crate) const NAMES: [&str; 7] = ["missing", "unknown", "client", "expired", "scope", "tag", "all_tags"];

    /// A word for it, for metrics.
    pub(crate) const fn name(&self) -> &'static str {
        let [missing, unknown, client, expired, scope, tag, all_tags] = Self::NAMES;
        match self {
            Self::Missing { .. } => missing,
            Self::Unknown => unknown,
            Self::Client { .. } => client,
            Self::Expired { .. } => expired,
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
    clients: Clients,
    list: Reread<[Token]>,
}

/// Whether the server looks at the certificates of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clients {
    /// It knows authorities for them.
    Certified,
    /// It does not: no entry may be for one.
    Unknown,
}

/// What a request shows of who sent it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Presented<'a> {
    /// The token, its bytes as they came. Where there is one, it alone counts.
    pub(crate) token: Option<&'a [u8]>,
    /// What the certificate of the connection says, once it was verified.
    pub(crate) client: Option<&'a ClientNames>,
}

impl<'a> Presented<'a> {
    /// A token and nothing else.
    pub(crate) const fn token(token: Option<&'a [u8]>) -> Self {
        Self { token, client: None }
    }
}

/// One entry of the file.
#[derive(Debug)]
struct Token {
    name: Arc<str>,
    proof: Proof,
    scope: Scope,
    /// None: good for all.
    tags: Option<Vec<TagPattern>>,
    /// It is good before this, in Unix milliseconds. None: for ever.
    expires_ms: Option<u64>,
    /// None: any number of ids.
    quota: Option<Quota>,
}

/// By what an entry is known to be meant.
#[derive(Debug, PartialEq, Eq)]
enum Proof {
    /// SHA-256 of the token.
    Digest([u8; 32]),
    /// A name in the certificate.
    Client(ClientName),
}

impl Token {
    fn digest(&self) -> Option<&[u8; 32]> {
        match &self.proof {
            Proof::Digest(digest) => Some(digest),
            Proof::Client(_) => None,
        }
    }
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
#[derive(Clone, Debug)]
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
    /// When it cannot be read or is not valid, or has an entry for a client that the server cannot know.
    pub(crate) fn read(path: &Path, clients: Clients) -> anyhow::Result<Self> {
        let list = read_file(path, clients, Reading::First)?;
        Ok(Self { file: Some(TokenFile { path: path.to_owned(), clients, list: Reread::new(list) }) })
    }

    /// Whether requests need one.
    pub(crate) fn are_wanted(&self) -> bool {
        self.file.is_some()
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.file.as_ref().map_or(0, |file| file.list.current().len())
    }

    /// Reads the file again. Requests that began before are served by the tokens of that time.
    ///
    /// # Errors
    /// When it cannot be read or is not valid, or is no regular file: then the tokens stay as they were.
    pub(crate) async fn reload(&self) -> anyhow::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let clients = file.clients;
        self.reload_by(move |path| read_file(path, clients, Reading::Again)).await
    }

    async fn reload_by(
        &self,
        read: impl FnOnce(&Path) -> anyhow::Result<Arc<[Token]>> + Send + 'static,
    ) -> anyhow::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let path = file.path.clone();
        file.list.reload(&format!("the token file {}", path.display()), move || read(&path)).await?;
        self.warn_of_expiry();
        Ok(())
    }

    /// Says in the log which tokens have expired, and which soon will.
    pub(crate) fn warn_of_expiry(&self) {
        let Some(file) = &self.file else { return };
        let now_ms = SystemClock.now_ms();
        for token in &*file.list.current() {
            match token.expires_ms {
                Some(expires_ms) if expires_ms <= now_ms => {
                    tracing::warn!("the token {:?} expired at {}", token.name, Rfc3339(expires_ms));
                }
                Some(expires_ms) if expires_ms - now_ms <= EXPIRY_NEAR_MS => {
                    tracing::warn!("the token {:?} expires at {}: replace it in time", token.name, Rfc3339(expires_ms));
                }
                _ => {}
            }
        }
    }

    /// Whether what a request shows has this scope. The permit says what it is good for.
    ///
    /// # Errors
    /// [`Denied::Missing`], [`Denied::Unknown`], [`Denied::Client`], [`Denied::Expired`] or [`Denied::Scope`].
    pub(crate) fn permit(&self, presented: Presented<'_>, scope: Scope) -> Result<Permit, Denied> {
        self.permit_by(&SystemClock, presented, scope)
    }

    /// The same by another clock, which is read only where a token has an end.
    fn permit_by(&self, clock: &impl Clock, presented: Presented<'_>, scope: Scope) -> Result<Permit, Denied> {
        let Some(file) = &self.file else { return Ok(Permit::unbound()) };
        let (tokens, place) = match presented {
            Presented { token: Some(token), .. } => {
                let tokens = file.list.current();
                let place = find(&tokens, token).ok_or(Denied::Unknown)?;
                (tokens, place)
            }
            Presented { client: Some(names), .. } => {
                let tokens = file.list.current();
                let unknown = || Denied::Client { names: names.to_string() };
                let place = find_client(&tokens, names).ok_or_else(unknown)?;
                (tokens, place)
            }
            Presented { .. } => return Err(Denied::Missing { needed: scope }),
        };
        let token = tokens.get(place).ok_or(Denied::Unknown)?;
        tracing::debug!(token = &*token.name, "the token is known");
        if let Some(expired_ms) = token.expires_ms.filter(|&expires_ms| expires_ms <= clock.now_ms()) {
            return Err(Denied::Expired { expired_ms });
        }
        if token.scope < scope {
            return Err(Denied::Scope { needed: scope, has: token.scope });
        }
        Ok(Permit { token: Some((tokens, place)) })
    }

    /// The same for a request that concerns this tag, or the snowflake of this name.
    ///
    /// # Errors
    /// As [`Tokens::permit`], and [`Denied::Tag`].
    #[cfg(test)]
    fn check(&self, presented: Presented<'_>, scope: Scope, tag: &str) -> Result<(), Denied> {
        self.permit(presented, scope)?.covers(tag)
    }

    /// Whether these bytes are a token, which then must not be written anywhere.
    pub(crate) fn contain(&self, bytes: &[u8]) -> bool {
        self.file.as_ref().is_some_and(|file| find(&file.list.current(), bytes).is_some())
    }
}

/// The place of the token with these bytes.
fn find(tokens: &[Token], presented: &[u8]) -> Option<usize> {
    let digest: [u8; 32] = Sha256::digest(presented).into();
    let mut found = None;
    // To the end, so that the time does not tell which one it was.
    for (place, token) in tokens.iter().enumerate() {
        if token.digest().is_some_and(|known| bool::from(known.as_slice().ct_eq(&digest))) {
            found = Some(place);
        }
    }
    found
}

/// The place of the first entry for a client with one of these names, which are no secret.
fn find_client(tokens: &[Token], names: &ClientNames) -> Option<usize> {
    tokens.iter().position(|token| matches!(&token.proof, Proof::Client(name) if names.contain(name)))
}

impl Permit {
    /// That of who needs no token.
    pub(crate) const fn unbound() -> Self {
        Self { token: None }
    }

    /// Whether the token has this scope, too: some requests need a greater one than their route.
    ///
    /// # Errors
    /// [`Denied::Scope`].
    pub(crate) fn has(&self, scope: Scope) -> Result<(), Denied> {
        match self.token() {
            Some(token) if token.scope < scope => Err(Denied::Scope { needed: scope, has: token.scope }),
            _ => Ok(()),
        }
    }

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

    /// The quota of the token, and the token's name.
    pub(crate) fn quota(&self) -> Option<(&str, &Quota)> {
        let token = self.token()?;
        token.quota.as_ref().map(|quota| (&*token.name, quota))
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
        tracing::warn!("the token file {} can be read by every user of this machine: chmod 600 it", path.display());
    }
}

fn cannot_read(path: &Path) -> String {
    format!("the token file {} cannot be used", path.display())
}

fn read_file(path: &Path, clients: Clients, reading: Reading) -> anyhow::Result<Arc<[Token]>> {
    let tokens = reread::text_of(path, reading).and_then(|text| parse(&text, clients));
    tokens.with_context(|| cannot_read(path))
}

fn parse(text: &str, clients: Clients) -> anyhow::Result<Arc<[Token]>> {
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
        let token = parse_token(name, table, clients).with_context(|| format!("the token {name:?}"))?;
        for other in &tokens {
            ensure!(other.name != token.name, "two tokens have the name {name:?}");
            let what = if token.digest().is_some() { "the same token" } else { "for the same client" };
            ensure!(other.proof != token.proof, "{:?} and {name:?} are {what}", other.name);
        }
        tokens.push(token);
    }
    Ok(tokens.into())
}

fn parse_token(name: &str, table: &Table, clients: Clients) -> anyhow::Result<Token> {
    const KNOWN: [&str; 8] = ["name", "token", "sha256", "client", "scope", "tags", "expires", "ids_per_s"];
    if let Some(unknown) = table.keys().find(|key| !KNOWN.contains(&key.as_str())) {
        bail!("the key {unknown:?} is unknown: there are {}", KNOWN.join(", "));
    }
    let proof = match (text_of(table, "token")?, text_of(table, "sha256")?, text_of(table, "client")?) {
        (Some(token), None, None) => {
            ensure!(
                (TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&token.len())
                    && token.bytes().all(|b| b.is_ascii_graphic()),
                "token must have {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} characters of printable ASCII without spaces"
            );
            Proof::Digest(Sha256::digest(token).into())
        }
        (None, Some(hex), None) => Proof::Digest(parse_digest(hex).context("sha256 must be 64 hexadecimal digits")?),
        (None, None, Some(client)) => {
            ensure!(
                clients == Clients::Certified,
                "it has client, and this server looks at no certificates of clients: say whose are accepted \
                 (--tls-client-ca FILE)"
            );
            Proof::Client(ClientName::new(client)?)
        }
        (None, None, None) => bail!("it has neither token nor sha256 nor client: give one"),
        (Some(_), Some(_), None) => bail!("it has both token and sha256: give one"),
        (_, _, Some(_)) => bail!("it has client and a token: give one"),
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
    let expires_ms = table.get("expires").map(parse_expiry).transpose()?;
    let quota = table.get("ids_per_s").map(parse_quota).transpose()?;
    Ok(Token { name: name.into(), proof, scope, tags, expires_ms, quota })
}

fn parse_quota(value: &Value) -> anyhow::Result<Quota> {
    let ids_per_s = value.as_integer().and_then(|number| u32::try_from(number).ok()).and_then(NonZeroU32::new);
    ids_per_s.map(Quota::new).with_context(|| {
        let found = value.as_integer().map_or(String::new(), |number| format!(", not {number}"));
        format!("ids_per_s must be a whole number from 1 to {}{found}", u32::MAX)
    })
}

/// An instant with its offset from UTC, or a day, which begins in UTC. Quotes around it make no difference.
fn parse_expiry(value: &Value) -> anyhow::Result<u64> {
    let text = match value {
        Value::Datetime(time) => time.to_string(),
        Value::String(text) => text.clone(),
        other => bail!("expires must be a time, not of the type {}: write {EXPIRY_FORM}", other.type_str()),
    };
    let instant: Result<jiff::Timestamp, _> = text.parse().or_else(|_| format!("{text}T00:00:00Z").parse());
    let expires_ms = instant.ok().and_then(|instant| u64::try_from(instant.as_millisecond()).ok());
    expires_ms.with_context(|| format!("expires is no instant since 1970: write {EXPIRY_FORM}"))
}

/// A new token and its entry for a file of tokens, which has only its digest.
///
/// # Errors
/// When a file of tokens could not have the entry: it says why. And where there is no randomness.
pub(crate) fn new_token(
    name: &str,
    scope: Scope,
    tags: &[String],
    expires_ms: Option<u64>,
    ids_per_s: Option<u64>,
) -> anyhow::Result<(String, String)> {
    let token = format!("unalike_{:032x}{:032x}", random_128()?, random_128()?);
    let digest = Sha256::digest(&token).iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    let mut entry = Table::new();
    entry.insert("name".to_owned(), name.into());
    entry.insert("sha256".to_owned(), digest.into());
    entry.insert("scope".to_owned(), scope.name().into());
    if !tags.is_empty() {
        entry.insert("tags".to_owned(), tags.to_vec().into());
    }
    if let Some(expires_ms) = expires_ms {
        entry.insert("expires".to_owned(), Rfc3339(expires_ms).to_string().into());
    }
    if let Some(ids_per_s) = ids_per_s {
        entry.insert("ids_per_s".to_owned(), Value::Integer(ids_per_s.try_into()?));
    }
    let file = Table::from_iter([("tokens".to_owned(), Value::from(vec![entry]))]);
    let text = toml::to_string(&file)?;
    parse(&text, Clients::Unknown)?;
    Ok((token, text))
}

fn parse_pattern(value: &Value) -> anyhow::Result<TagPattern> {
    let text = value.as_str().context("tags must be a list of strings")?;
    let beginning = text.strip_suffix('*');
    let name = beginning.unwrap_or(text);
    ensure!(!name.contains('*'), "tags has {text:?}: a * may only be at the end");
    ensure!(text.trim() == text, "tags has {text:?}: no name has a space at an end");
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
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;
    use crate::config::reread::READINGS_MAX;

    const SECRET: &str = "correct-horse-battery";

    fn tokens(text: &str) -> Tokens {
        let clients = Clients::Unknown;
        let list = Reread::new(parse(text, clients).unwrap());
        Tokens { file: Some(TokenFile { path: PathBuf::from("tokens.toml"), clients, list }) }
    }

    /// A clock that stands.
    #[derive(Debug)]
    struct At(u64);

    impl Clock for At {
        fn now_ms(&self) -> u64 {
            self.0
        }
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
                    parse(&file_with(second), Clients::Unknown)
                };
                tokens.reload_by(read).await
            }));
            begun.await.unwrap();
            releases.push(release);
        }
        assert_eq!(tokens.check(Presented::token(Some(first.as_bytes())), Scope::Read, "order"), Ok(()));
        let refused = tokens.reload_by(|_| parse(&file_with(third), Clients::Unknown)).await.unwrap_err();
        assert!(refused.to_string().contains("still being read"), "{refused:#}");
        releases.pop().unwrap().send(()).unwrap();
        waiting.pop().unwrap().await.unwrap().unwrap();
        assert_eq!(tokens.check(Presented::token(Some(second.as_bytes())), Scope::Read, "order"), Ok(()));
        while tokens.file.as_ref().unwrap().list.readings_now() >= READINGS_MAX {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokens.reload_by(|_| parse(&file_with(third), Clients::Unknown)).await.unwrap();
        for (release, waiting) in releases.into_iter().zip(waiting) {
            release.send(()).unwrap();
            waiting.await.unwrap().unwrap();
        }
        assert_eq!(
            tokens.check(Presented::token(Some(third.as_bytes())), Scope::Read, "order"),
            Ok(()),
            "it was read last"
        );
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
        assert_eq!(tokens.check(Presented::token(all), Scope::Admin, "anything"), Ok(()));
        assert_eq!(tokens.permit(Presented::token(all), Scope::Read).unwrap().covers_all(), Ok(()));
        for tag in ["order", "invoice", "invoice/2026"] {
            assert_eq!(tokens.check(Presented::token(some), Scope::Read, tag), Ok(()), "{tag}");
        }
        for tag in ["orders", "Order", "orde", "", "invoic", "xinvoice"] {
            assert_eq!(
                tokens.check(Presented::token(some), Scope::Read, tag),
                Err(Denied::Tag { name: tag.to_owned() }),
                "{tag}"
            );
        }
        assert_eq!(
            tokens.check(Presented::token(some), Scope::Admin, "order"),
            Err(Denied::Scope { needed: Scope::Admin, has: Scope::Read })
        );
        assert_eq!(tokens.permit(Presented::token(some), Scope::Read).unwrap().covers_all(), Err(Denied::AllTags));
        assert_eq!(
            tokens.check(Presented::token(None), Scope::Read, "order"),
            Err(Denied::Missing { needed: Scope::Read })
        );
        for wrong in ["", "correct-horse-batter", "correct-horse-battery ", "Correct-horse-battery"] {
            assert_eq!(
                tokens.check(Presented::token(Some(wrong.as_bytes())), Scope::Read, "order"),
                Err(Denied::Unknown),
                "{wrong}"
            );
        }
        assert_eq!(Tokens::unwanted().check(Presented::default(), Scope::Admin, "order"), Ok(()));
    }

    #[test]
    fn a_token_is_good_until_it_expires() {
        const DAY_MS: u64 = 1_830_211_200_000;
        for (written, expires_ms) in [
            ("2027-12-31", DAY_MS),
            ("\"2027-12-31\"", DAY_MS),
            ("2027-12-31T00:00:00Z", DAY_MS),
            ("2027-12-31 02:30:00+02:30", DAY_MS),
            ("2027-12-31T00:00:00.5Z", DAY_MS + 500),
        ] {
            let tokens = tokens(&format!("{}expires = {written}\n", file_with(SECRET)));
            let at = |now_ms| {
                tokens.permit_by(&At(now_ms), Presented::token(Some(SECRET.as_bytes())), Scope::Read).map(drop)
            };
            assert_eq!(at(expires_ms - 1), Ok(()), "{written}");
            assert_eq!(at(expires_ms), Err(Denied::Expired { expired_ms: expires_ms }), "{written}");
            assert_eq!(at(u64::MAX), Err(Denied::Expired { expired_ms: expires_ms }), "{written}");
            assert!(tokens.contain(SECRET.as_bytes()), "it is still written nowhere");
        }
    }

    #[test]
    fn a_new_token_is_good_for_what_its_entry_says() {
        let tags = ["order".to_owned(), "ünï \"quoted\"*".to_owned()];
        let (token, entry) = new_token("a \"name\"", Scope::Lease, &tags, Some(1_830_211_200_000), Some(50)).unwrap();
        assert!(!entry.contains(&token) && token.starts_with("unalike_") && token.len() == 72, "{token}: {entry}");
        let (other, more) = new_token("b", Scope::Read, &[], None, None).unwrap();
        let tokens = tokens(&format!("{entry}{more}"));
        let permit = tokens.permit_by(&At(0), Presented::token(Some(token.as_bytes())), Scope::Lease).unwrap();
        assert_eq!((permit.token_name(), permit.covers("ünï \"quoted\"!")), (Some("a \"name\""), Ok(())));
        assert!(permit.covers("orders").is_err());
        assert_eq!(permit.quota().map(|(name, quota)| (name, quota.ids_per_s())), Some(("a \"name\"", 50)));
        let late =
            tokens.permit_by(&At(1_830_211_200_000), Presented::token(Some(token.as_bytes())), Scope::Read).map(drop);
        assert_eq!(late, Err(Denied::Expired { expired_ms: 1_830_211_200_000 }));
        assert_eq!(
            tokens
                .permit_by(&At(u64::MAX), Presented::token(Some(other.as_bytes())), Scope::Read)
                .unwrap()
                .covers_all(),
            Ok(())
        );
        for (name, tags) in [("", &[][..]), ("a\nb", &[]), ("a", &["*".to_owned()]), ("a", &["a*b".to_owned()])] {
            new_token(name, Scope::Read, tags, None, None).unwrap_err();
        }
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
            (whole_with(&whole, "token", ""), "neither token nor sha256 nor client"),
            (whole_with(&whole, "token", &format!("sha256 = \"{SECRET}\"")), "64 hexadecimal"),
            (format!("[[tokens]]\n{whole}\nsha256 = \"{}\"", "0".repeat(64)), "both token and sha256"),
            (whole_with(&whole, "scope", &format!("scope = \"{SECRET}\"")), "\"read\", \"lease\" or \"admin\""),
            (whole_with(&whole, "token", "client = \"a.internal\""), "--tls-client-ca"),
            (format!("[[tokens]]\n{whole}\nclient = \"a.internal\""), "client and a token"),
            (whole_with(&whole, "scope", ""), "no scope"),
            (whole_with(&whole, "name", ""), "no name"),
            (whole_with(&whole, "name", "name = \"\""), "1 to 64"),
            (format!("[[tokens]]\n{whole}\ntags = \"{SECRET}\""), "a list of strings"),
            (format!("[[tokens]]\n{whole}\ntags = []"), "tags is empty"),
            (format!("[[tokens]]\n{whole}\ntags = [\"*\"]"), "leave tags out"),
            (format!("[[tokens]]\n{whole}\ntags = [\"a*b\"]"), "at the end"),
            (format!("[[tokens]]\n{whole}\ntags = [\" a\"]"), "no name has a space"),
            (format!("[[tokens]]\n{whole}\ntags = [5]"), "a list of strings"),
            (format!("[[tokens]]\n{whole}\nids_per_s = 0"), "1 to 4294967295"),
            (format!("[[tokens]]\n{whole}\nids_per_s = 4294967296"), "1 to 4294967295"),
            (format!("[[tokens]]\n{whole}\nids_per_s = -1"), "1 to 4294967295"),
            (format!("[[tokens]]\n{whole}\nids_per_s = \"12345\""), "whole number"),
            (format!("[[tokens]]\n{whole}\nexpires = 1830211200"), "must be a time"),
            (format!("[[tokens]]\n{whole}\nexpires = 2027-12-31T00:00:00"), "no instant"),
            (format!("[[tokens]]\n{whole}\nexpires = 1969-12-31"), "no instant"),
            (format!("[[tokens]]\n{whole}\nexpires = 23:00:00"), "no instant"),
            (format!("[[tokens]]\n{whole}\nexpires = \"{SECRET}\""), "no instant"),
        ] {
            let error = format!("{:#}", parse(&text, Clients::Unknown).unwrap_err());
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
