//! Which member is asked, and whether it may be believed.
//!
//! One connection at a time, to one member; the next member when that one does not answer or has no leader. A request
//! that writes is sent once: it goes to another member only where it is certain that this one did nothing.
//!
//! Every connection is looked at before it is used: it must lead to the cluster, and to the history, that the store
//! was used in before. Every answer says which cluster gave it, and at which revision, and is believed only if that
//! fits, too.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures_util::future::{Either, select};
use prost::Message;
use tokio::time::{Instant, sleep, timeout_at};
use unalike_storage::{ClockSteps, Process, StoreError, lock};

use crate::EtcdOptions;
use crate::clock::{MemberClock, Reading};
use crate::connection::{Connection, Member, Members};
use crate::error::{Verdict, damaged, judge, lost};
use crate::record::{History, Record, lead};
use crate::wire::{
    Answer, AuthenticateRequest, AuthenticateResponse, KeyValue, MemberListRequest, MemberListResponse, RangeRequest,
    RangeResponse, StatusRequest, StatusResponse,
};

pub(crate) const RANGE: &str = "/etcdserverpb.KV/Range";
pub(crate) const TXN: &str = "/etcdserverpb.KV/Txn";
const STATUS: &str = "/etcdserverpb.Maintenance/Status";
const MEMBERS: &str = "/etcdserverpb.Cluster/MemberList";
const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";

/// A member that owes an answer for so long is asked how it is.
const WATCH: Duration = Duration::from_millis(250);

/// So many times in a row a member must have been found unable to answer before it is waited for no longer.
const SIGNS: u32 = 2;

/// How long is waited before a request that was not carried out is sent again, at first and at most. It doubles.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(160));

/// The members of one cluster.
pub(crate) struct Cluster {
    members: Members,
    /// For messages.
    at: String,
    user: Option<(String, String)>,
    connect_timeout: Duration,
    request_timeout: Duration,
    /// The key with the store's record.
    store_key: String,
    /// Do not refuse another cluster than before.
    assume_identity: bool,
    /// Do not refuse one that may lose what it answered.
    assume_durable: bool,
    current: Mutex<Option<Arc<Link>>>,
    /// The member that is tried first; and one request connects while the others wait for it.
    next: AtomicUsize,
    connecting: tokio::sync::Mutex<()>,
    expected: Mutex<Option<Arc<Expected>>>,
    /// The greatest revision that was seen: nothing is older that was asked for afterwards.
    revision: AtomicI64,
    /// Set for good once the cluster is seen to have forgotten what it answered: later writes of others lift its
    /// revision past that. It says what was seen.
    forgot: OnceLock<String>,
    /// What the members' clocks show, and where they were set, as far as this process has seen.
    clocks: Mutex<HashMap<usize, Option<MemberClock>>>,
    base: std::time::Instant,
    pub(crate) steps: ClockSteps,
    /// The newest term of a leader that was seen.
    term: AtomicU64,
    /// Whose connections these are. A child would share their sockets, and has not the task that drives them.
    process: Process,
}

/// The store as this program knows it.
#[derive(Debug)]
pub(crate) struct Expected {
    pub(crate) record: Record,
    /// The revision of its last change.
    pub(crate) mod_revision: i64,
}

/// A connection that is in use.
struct Link {
    connection: Connection,
    member: usize,
    /// Looked at for a store; else only to open one.
    is_of_store: bool,
}

/// What becomes of a request whose answer is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Nothing: it only reads.
    Reads,
    /// Nobody knows.
    Writes,
}

/// What is asked of the cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doing {
    /// For messages.
    pub(crate) what: &'static str,
    /// When it ends in any case.
    pub(crate) until: Instant,
}

impl Cluster {
    pub(crate) fn new(options: &EtcdOptions) -> Result<Self, StoreError> {
        let tls = options.tls()?;
        let member = |(host, port): &(String, u16)| Member { host: host.clone(), port: *port, tls: tls.clone() };
        Ok(Self {
            members: options.hosts.iter().map(member).collect(),
            at: options.address(),
            user: options.user.clone().map(|user| (user, options.password.clone())),
            connect_timeout: options.connect_timeout,
            request_timeout: options.request_timeout,
            store_key: options.paths().store(),
            assume_identity: options.assume_identity,
            assume_durable: options.assume_durable,
            current: Mutex::default(),
            next: AtomicUsize::new(0),
            connecting: tokio::sync::Mutex::default(),
            expected: Mutex::default(),
            revision: AtomicI64::new(0),
            forgot: OnceLock::new(),
            clocks: Mutex::default(),
            base: std::time::Instant::now(),
            steps: ClockSteps::default(),
            term: AtomicU64::new(0),
            process: Process::current(),
        })
    }

    /// Hosts, ports and prefix, for messages.
    pub(crate) fn at(&self) -> &str {
        &self.at
    }

    /// Begins something, and the time that it may take.
    pub(crate) fn begin(&self, what: &'static str) -> Doing {
        Doing { what, until: Instant::now() + self.request_timeout }
    }

    /// Asks once, or again where it is certain that nothing was done.
    ///
    /// # Errors
    /// [`StoreError::OutcomeUnknown`] for a write whose answer was lost; [`StoreError::Refused`] for one that is not
    /// allowed, and from another cluster or history; else [`StoreError::Unavailable`].
    pub(crate) async fn ask<M, A>(
        &self,
        doing: Doing,
        access: Access,
        path: &'static str,
        message: M,
    ) -> Result<A, StoreError>
    where
        M: Message + Clone + Send + Sync + 'static,
        A: Message + Answer + Default + Send + Sync + 'static,
    {
        let writes = access == Access::Writes;
        let mut pause = PAUSE.0;
        loop {
            let link = self.link(doing).await?;
            let seen = self.revision.load(Ordering::SeqCst);
            // Half of the time, so that the other half is left for another member. A write is not sent again.
            let left = doing.until.saturating_duration_since(Instant::now());
            let until = if writes { doing.until } else { Instant::now() + left / 2 };
            let said = |why: &str| lost(&self.at, doing.what, writes, why);
            let failed = match self.answered::<M, A>(&link, path, message.clone(), until).await {
                Some(Ok(answer)) => return self.believed(&answer, seen).map(|()| answer),
                Some(Err(status)) => {
                    let verdict = judge(&status);
                    let text = format!("the member {} says {:?}", self.member_name(&link), status.message());
                    match verdict {
                        Verdict::Refused(advice) => {
                            return Err(StoreError::refused(format!("{}, at {}: {advice}", doing.what, self.at))
                                .with_source(text));
                        }
                        Verdict::Unavailable(advice) => {
                            return Err(StoreError::unavailable(format!("{}, at {}: {advice}", doing.what, self.at))
                                .with_source(text));
                        }
                        Verdict::NotNow | Verdict::Stranger => {
                            self.give_up(&link, verdict == Verdict::NotNow);
                            let why = "no member could do it now";
                            StoreError::unavailable(format!("{}, at {}: {why}", doing.what, self.at)).with_source(text)
                        }
                        Verdict::UnknownWith(advice) => return Err(said(advice).with_source(text)),
                        Verdict::Unknown => {
                            self.give_up(&link, true);
                            let error = said("the answer was lost").with_source(text);
                            if writes {
                                return Err(error);
                            }
                            error
                        }
                    }
                }
                None => {
                    self.give_up(&link, true);
                    let within = self.request_timeout.as_millis();
                    let error = said(&format!(
                        "no answer of {} within {within} ms, or it hangs, or another member leads by now",
                        self.member_name(&link)
                    ));
                    if writes {
                        return Err(error);
                    }
                    error
                }
            };
            if Instant::now() + pause >= doing.until {
                return Err(failed);
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// The answer to a request that is sent once; none if it does not come in time, or will hardly come at all: the
    /// member hangs, or another one leads than when it was sent, and the one before took it along.
    async fn answered<M, A>(
        &self,
        link: &Link,
        path: &'static str,
        message: M,
        until: Instant,
    ) -> Option<Result<A, tonic::Status>>
    where
        M: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let term = self.term.load(Ordering::SeqCst);
        let mut answer = pin!(link.connection.ask::<M, A>(path, message));
        let mut signs = 0;
        while signs < SIGNS {
            if let Ok(answer) = timeout_at(until.min(Instant::now() + WATCH), &mut answer).await {
                return Some(answer);
            }
            if Instant::now() >= until {
                return None;
            }
            let status = link.connection.ask::<_, StatusResponse>(STATUS, StatusRequest {});
            let status = pin!(timeout_at(until.min(Instant::now() + WATCH), status));
            let is_sign = match select(answer.as_mut(), status).await {
                Either::Left((answer, _)) => return Some(answer),
                Either::Right((Ok(Ok(status)), _)) => status.leader != 0 && status.raft_term > term,
                Either::Right((Ok(Err(_)) | Err(_), _)) => true,
            };
            signs = if is_sign { signs + 1 } else { 0 };
        }
        None
    }

    /// Checks where an answer comes from; `seen` was the greatest revision when it was asked for.
    fn believed(&self, answer: &impl Answer, seen: i64) -> Result<(), StoreError> {
        let header = answer.header();
        let header = header.ok_or_else(|| StoreError::corrupt(format!("{}: an answer has no header", self.at)))?;
        self.check_cluster(header.cluster_id)?;
        self.revision.fetch_max(header.revision, Ordering::SeqCst);
        self.term.fetch_max(header.raft_term, Ordering::SeqCst);
        if let Some(why) = self.forgot.get() {
            return Err(self.refused(why));
        }
        if header.revision < seen && !self.assume_identity {
            let why = format!(
                "its revision went back from {seen} to {}: it is a copy, or was restored from one; adopt it with `unalike \
                 store adopt --lift COUNT`, and restart the programs that knew it",
                header.revision
            );
            return Err(self.refused(self.forgot.get_or_init(|| why)));
        }
        Ok(())
    }

    fn check_cluster(&self, found: u64) -> Result<(), StoreError> {
        let expected = self.expected();
        let Some(known) = expected.as_ref().and_then(|expected| expected.record.cluster) else { return Ok(()) };
        if self.assume_identity || known.id == u128::from(found) {
            return Ok(());
        }
        Err(self.another_cluster(known.id, found))
    }

    fn another_cluster(&self, known: u128, found: u64) -> StoreError {
        self.refused(&format!(
            "it is the cluster {found:x}, and the store was used in {known:x} before: if this one was restored from a backup, \
             adopt it with `unalike store adopt --lift COUNT`"
        ))
    }

    fn refused(&self, why: &str) -> StoreError {
        StoreError::refused(format!("the cluster at {}: {why}", self.at))
    }

    fn adopted(&self) -> StoreError {
        self.refused("the store was adopted since this program began: restart this program")
    }

    fn member_name(&self, link: &Link) -> String {
        self.members.get(link.member).map(Member::name).unwrap_or_default()
    }

    /// The store as it is known.
    pub(crate) fn expected(&self) -> Option<Arc<Expected>> {
        lock(&self.expected).clone()
    }

    /// From now on every connection must lead to this store.
    pub(crate) fn expect(&self, record: Record, mod_revision: i64) {
        *lock(&self.expected) = Some(Arc::new(Expected { record, mod_revision }));
    }

    /// Notes what the store's record has become.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when it was adopted since this program began, and [`StoreError::Corrupt`].
    pub(crate) fn note(&self, found: &RangeResponse) -> Result<Arc<Expected>, StoreError> {
        let known = self.expected().ok_or_else(|| self.refused("no store is known yet"))?;
        let (record, mod_revision) = self
            .read_record(found)?
            .ok_or_else(|| damaged(&self.at, &self.store_key, "is gone, with what is known of the store"))?;
        if record.mark != known.record.mark {
            return Err(self.adopted());
        }
        let mut expected = lock(&self.expected);
        // The answers of two requests may come in the other order.
        if let Some(newer) = expected.as_ref().filter(|expected| expected.mod_revision >= mod_revision) {
            return Ok(Arc::clone(newer));
        }
        let noted = Arc::new(Expected { record, mod_revision });
        *expected = Some(Arc::clone(&noted));
        Ok(noted)
    }

    /// The store's record, and the revision of its last change.
    ///
    /// # Errors
    /// [`StoreError::Refused`] if the key was written here by something that copies keys, and [`StoreError::Corrupt`].
    pub(crate) fn read_record(&self, found: &RangeResponse) -> Result<Option<(Record, i64)>, StoreError> {
        let Some(kv) = found.kvs.first() else { return Ok(None) };
        let record = self.parse_record(kv)?;
        if let Some(other) = record.differs_from(kv).filter(|_| !self.assume_identity) {
            return Err(self.refused(&format!(
                "its keys are a copy, or old values were put back: {:?} was {other}. If the original still exists, use that, and \
                 not this copy: both would grant the same numbers. If it is gone, or nobody will use it again, run `unalike store \
                 adopt --lift COUNT`, where COUNT exceeds what was granted under any tag since the copy was made",
                self.store_key
            )));
        }
        Ok(Some((record.read_from(kv), kv.mod_revision)))
    }

    /// The same, of a copy as well.
    pub(crate) fn read_copied_record(&self, found: &RangeResponse) -> Result<Option<(Record, i64)>, StoreError> {
        let Some(kv) = found.kvs.first() else { return Ok(None) };
        Ok(Some((self.parse_record(kv)?.read_from(kv), kv.mod_revision)))
    }

    fn parse_record(&self, kv: &KeyValue) -> Result<Record, StoreError> {
        Record::read(&kv.value).map_err(|why| damaged(&self.at, &self.store_key, &why))
    }

    /// The connection for the next request.
    async fn link(&self, doing: Doing) -> Result<Arc<Link>, StoreError> {
        self.process.check(&format!("the store at {}", self.at))?;
        if let Some(link) = self.usable() {
            return Ok(link);
        }
        let until = doing.until.min(Instant::now() + self.connect_timeout);
        timeout_at(until, self.connect(doing, until)).await.unwrap_or_else(|_| {
            Err(StoreError::unavailable(format!(
                "{}, at {}: no member answers in time: check hosts and ports, and that a majority of the members runs",
                doing.what, self.at
            )))
        })
    }

    fn usable(&self) -> Option<Arc<Link>> {
        let is_of_store = lock(&self.expected).is_some();
        let link = lock(&self.current).clone();
        link.filter(|link| !link.connection.is_closed() && link.is_of_store == is_of_store)
    }

    async fn connect(&self, doing: Doing, until: Instant) -> Result<Arc<Link>, StoreError> {
        let _turn = self.connecting.lock().await;
        // Somebody else may have connected while this waited.
        if let Some(link) = self.usable() {
            return Ok(link);
        }
        let count = self.members.len();
        let mut failed = None;
        for tried in 0..count {
            let index = self.next.load(Ordering::Relaxed).wrapping_add(tried) % count.max(1);
            let Some(member) = self.members.get(index) else { continue };
            let left = until.saturating_duration_since(Instant::now());
            let share = left / u32::try_from(count - tried).unwrap_or(u32::MAX);
            match timeout_at(Instant::now() + share, self.open(member, index)).await {
                Ok(Ok(link)) => {
                    let link = Arc::new(link);
                    *lock(&self.current) = Some(Arc::clone(&link));
                    self.next.store(index, Ordering::Relaxed);
                    return Ok(link);
                }
                Ok(Err(error)) => {
                    tracing::debug!(member = member.name(), %error, "a member of etcd cannot be used");
                    // What was refused says more than what is down.
                    if failed.as_ref().is_none_or(StoreError::is_retryable) {
                        failed = Some(error);
                    }
                }
                Err(_) => {
                    failed.get_or_insert_with(|| {
                        let what = format!("the member {} does not answer in time", member.name());
                        StoreError::unavailable(what)
                    });
                }
            }
        }
        let untried = || StoreError::unavailable(format!("{}, at {}: there is no member", doing.what, self.at));
        Err(failed.unwrap_or_else(untried))
    }

    /// Connects to a member and looks at it.
    async fn open(&self, member: &Member, index: usize) -> Result<Link, StoreError> {
        let failed = |status: &tonic::Status| {
            let text = format!("it says {:?}", status.message());
            let at = member.name();
            match judge(status) {
                Verdict::Refused(why) => StoreError::refused(format!("the member {at}: {why}")).with_source(text),
                _ => StoreError::unavailable(format!("the member {at} cannot be used now")).with_source(text),
            }
        };
        let mut connection = member.connect().await?;
        if let Some((name, password)) = &self.user {
            let request = AuthenticateRequest { name: name.clone(), password: password.clone() };
            let answer: AuthenticateResponse =
                connection.ask(AUTHENTICATE, request).await.map_err(|status| failed(&status))?;
            connection = connection.known_by(&answer.token).ok_or_else(|| {
                StoreError::unavailable(format!("the member {} gives a token that cannot be sent", member.name()))
            })?;
        }
        let Some(expected) = self.expected() else { return Ok(Link { connection, member: index, is_of_store: false }) };
        let seen = self.revision.load(Ordering::SeqCst);
        // Not from this member alone: what it answers has been confirmed by a majority.
        let found: RangeResponse =
            connection.ask(RANGE, RangeRequest::key(&self.store_key)).await.map_err(|status| failed(&status))?;
        // Of two reasons this one says what to do: it was adopted already.
        if let Some((record, _)) = self.read_record(&found)?
            && record.mark != expected.record.mark
        {
            return Err(self.adopted());
        }
        self.believed(&found, seen)?;
        self.note(&found)?;
        let status: StatusResponse =
            connection.ask(STATUS, StatusRequest {}).await.map_err(|status| failed(&status))?;
        if !self.assume_durable && comes_to_differ(&status.version) {
            return Err(self.refused(&format!(
                "its member {} is of etcd {}, whose members come to have different data when they are killed, and numbers would \
                 repeat: upgrade to 3.5.6 or a newer version (or vouch for it: durability=assumed)",
                member.name(),
                status.version
            )));
        }
        if !self.assume_durable && answers_before_it_writes(&status.version) {
            let list: MemberListResponse =
                connection.ask(MEMBERS, MemberListRequest {}).await.map_err(|status| failed(&status))?;
            if list.members.len() == 1 {
                return Err(self.refused(&format!(
                    "it has one member, of etcd {}, which answers before a write is on its disk: upgrade to 3.4.21, 3.5.6 or a \
                     newer version, or add members (or vouch for it: durability=assumed)",
                    status.version
                )));
            }
        }
        let known = expected.record.cluster.filter(|_| !self.assume_identity);
        if let (Some(known), Some(header)) = (known, found.header) {
            self.check_history(known, &status, header.revision)?;
        }
        Ok(Link { connection, member: index, is_of_store: true })
    }

    /// Refuses a cluster that was restored from a snapshot since it was recorded. The revision was read before the
    /// status, so that what happens meanwhile only adds to the lead.
    pub(crate) fn check_history(
        &self,
        known: History,
        status: &StatusResponse,
        revision: i64,
    ) -> Result<(), StoreError> {
        let found = lead(applied(status), revision);
        if found >= known.lead {
            return Ok(());
        }
        Err(self.refused(&format!(
            "it has forgotten a part of its history: its log stands at {} and its revision at {revision}, which are {} apart, \
             and were {} before. It was restored from a backup: adopt it with `unalike store adopt --lift COUNT`",
            applied(status),
            found,
            known.lead
        )))
    }

    /// Gives a connection up; the next member is tried first from now on, or the same one.
    fn give_up(&self, link: &Arc<Link>, next: bool) {
        let mut current = lock(&self.current);
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, link)) {
            *current = None;
            if next {
                self.next.store(link.member.wrapping_add(1) % self.members.len().max(1), Ordering::Relaxed);
            }
        }
    }

    /// What a member says of itself.
    pub(crate) async fn status(&self, doing: Doing) -> Result<StatusResponse, StoreError> {
        let link = self.link(doing).await?;
        let asked = timeout_at(doing.until, link.connection.ask::<_, StatusResponse>(STATUS, StatusRequest {})).await;
        let failed = |why: String| lost(&self.at, doing.what, false, &why);
        match asked {
            Ok(Ok(status)) => Ok(status),
            Ok(Err(status)) => {
                self.give_up(&link, true);
                Err(failed(format!("the member {} says {:?}", self.member_name(&link), status.message())))
            }
            Err(_) => {
                self.give_up(&link, true);
                Err(failed(format!("no answer of {} in time", self.member_name(&link))))
            }
        }
    }

    /// The clock of the member that is asked, in Unix milliseconds: what it shows now. `holder` is what the clock of
    /// whoever asks showed, and when, if somebody does.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub(crate) async fn clock_ms(
        &self,
        doing: Doing,
        holder: Option<(u64, std::time::Instant)>,
    ) -> Result<u64, StoreError> {
        let link = self.link(doing).await?;
        let Some(member) = self.members.get(link.member) else {
            return Err(StoreError::unavailable(format!("{}, at {}: there is no member", doing.what, self.at)));
        };
        let asked = std::time::Instant::now();
        let second_ms = timeout_at(doing.until, member.clock_second_ms()).await.unwrap_or_else(|_| {
            self.give_up(&link, true);
            let why = format!("the member {} does not tell the time in time", member.name());
            Err(lost(&self.at, doing.what, false, &why))
        })?;
        let answered = std::time::Instant::now();
        let clock_ms = {
            let mut clocks = lock(&self.clocks);
            let kept = clocks.entry(link.member).or_default();
            let mut clock = MemberClock::note(*kept, self.base, &Reading { second_ms, asked, answered });
            if let Some((holder_ms, at)) = holder {
                clock = clock.near(holder_ms, at);
            }
            *kept = Some(clock);
            clock.shows_ms(answered)
        };
        self.steps.note(asked, answered, clock_ms);
        Ok(clock_ms)
    }

    /// Closes the connection once its requests have ended. A child leaves its parent's alone.
    pub(crate) fn close(&self) {
        if self.process.is_current() {
            *lock(&self.current) = None;
        }
    }
}

/// Whether a member of this version may come to have other data than the others when it is killed: after a transaction
/// (etcd-io/etcd#13766, up to 3.5.2), or during a defragmentation (up to 3.5.5). Its answers say then that conditions
/// hold which hold nowhere else.
fn comes_to_differ(version: &str) -> bool {
    matches!(figures(version), (3, 5, patch) if patch < 6)
}

/// Whether this version, where it is the only member, answers a write before it is on the disk (etcd-io/etcd#14370).
fn answers_before_it_writes(version: &str) -> bool {
    match figures(version) {
        (3, 5, patch) => patch < 5,
        (3, 4, patch) => patch < 21,
        (major, minor, _) => (major, minor) < (3, 4),
    }
}

/// What a version's name says.
fn figures(version: &str) -> (u32, u32, u32) {
    let mut figures = version.split(['.', '-', '+']).map(|figure| figure.parse::<u32>().unwrap_or(0));
    let mut figure = || figures.next().unwrap_or(0);
    (figure(), figure(), figure())
}

/// The greatest index that a member has carried out.
pub(crate) fn applied(status: &StatusResponse) -> u64 {
    // Before etcd 3.4 it is not told; what is committed is carried out a moment later.
    if status.raft_applied_index == 0 { status.raft_index } else { status.raft_applied_index }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_whose_members_come_to_differ_are_known() {
        for version in ["3.5.0", "3.5.1", "3.5.5", "3.5.0-rc.1"] {
            assert!(comes_to_differ(version), "{version}");
        }
        for version in ["3.5.6", "3.5.17", "3.4.23", "3.6.0", "4.0.0", ""] {
            assert!(!comes_to_differ(version), "{version}");
        }
    }

    #[test]
    fn versions_that_answer_too_early_are_known() {
        for version in ["3.5.0", "3.5.4", "3.4.20", "3.3.27", "3.5.0-rc.1", ""] {
            assert!(answers_before_it_writes(version), "{version}");
        }
        for version in ["3.5.5", "3.5.17", "3.4.21", "3.4.23", "3.6.0", "4.0.0"] {
            assert!(!answers_before_it_writes(version), "{version}");
        }
    }
}
