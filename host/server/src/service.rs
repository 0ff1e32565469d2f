//! The open stores and the open generators of one process.

mod bound_formats;
#[cfg(feature = "component")]
pub(crate) mod component_numbers;
pub(crate) mod cover;
pub(crate) mod flakes;
mod grants;
pub(crate) mod issue;
pub(crate) mod issue_error;
pub(crate) mod leases;
pub(crate) mod problem;
pub(crate) mod quotas;
pub(crate) mod random_ids;
mod readiness;
pub(crate) mod store_watch;
pub(crate) mod stores;
mod sub_keys;
pub(crate) mod tags;
mod tinyid_tokens;
pub(crate) mod troubles;

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::Value;
use unalike::settings::Secrets;
use unalike::storage::{SegmentStore, StoreError, StoreIdentity, split_tag};
use unalike::{
    Batch, Clock, Error, ErrorKind, FormatShape, Formatted, ID_MAX, Ids, Mode, RandomIds, Restart, Sequence,
    SequenceOptions, Snowflake, SnowflakeOptions, SystemClock,
};

use crate::config::drop_in::DropIn;
use crate::config::formats::{Formats, IdFormat, Refusal, check_start};
use crate::config::layouts::Layouts;
use crate::config::names::{plain_tag, stored_name};
use crate::config::tokens::Tokens;
use crate::config::worker::host_name;
use crate::config::{Config, SNOWFLAKE_DEFAULT};
use crate::service::bound_formats::BoundFormats;
use crate::service::cover::{Covers, Outage};
use crate::service::flakes::{Flakes, Stop, is_used};
use crate::service::issue_error::IssueError;
use crate::service::problem::{Kind, Problem};
use crate::service::quotas::Quotas;
use crate::service::readiness::{Readiness, TagSupply};
use crate::service::store_watch::{Failures, RequestTimes, StoreWatch, WatchedStore};
use crate::service::stores::{Purpose, Stores};
use crate::service::sub_keys::{SubKeys, of_period, stored};
use crate::service::tinyid_tokens::TinyidTokens;
use crate::service::troubles::quietly;
use crate::words::{shortened, with_causes};

/// A store that has not answered whether it is there after this long is taken to be down: who asks whether the server
/// is ready waits no longer than a second.
const CHECK_MAX: Duration = Duration::from_millis(700);

/// After the names of all tags: a list from here on asks for the table, and for no row that may be odd.
const LAST_NAME: &str = "\u{10ffff}";

/// How many tags that fail are tried again at a time.
const RETRIED_MAX: usize = 64;

/// How long what it said is kept, and whether the server is ready.
pub(crate) const CHECK_KEPT: Duration = Duration::from_secs(1);

/// Everything that a request needs.
pub(crate) struct Service {
    ids: Ids,
    stores: Stores,
    snowflakes: HashMap<String, Snowflake>,
    /// How ids are shown, where something is said of that.
    formats: Formats,
    /// The snowflakes among them.
    formatted: HashMap<String, Formatted>,
    bound: BoundFormats,
    /// UUIDs and ULIDs, which need none of the above.
    pub(crate) random_ids: RandomIds,
    /// How the open tags last without the store.
    pub(crate) covers: Covers,
    /// Which snowflakes give ids.
    flakes: Flakes,
    sub_keys: SubKeys,
    /// What becomes of requests to the store.
    watch: Arc<StoreWatch>,
    /// The store, watched.
    store: Arc<dyn SegmentStore>,
    /// The names of the stores, once they were asked for.
    segments_name: tokio::sync::OnceCell<Option<StoreIdentity>>,
    leases_name: tokio::sync::OnceCell<Option<StoreIdentity>>,
    check_max: Duration,
    /// When, and what it was.
    said: Mutex<Option<(Instant, Said)>>,
    /// Held while the store is asked.
    asking: tokio::sync::Mutex<()>,
    /// Whether the server is ready, as it was found last.
    readiness: Mutex<Option<Readiness>>,
    /// Every layout that has a name here.
    pub(crate) layouts: Layouts,
    /// Who may do what.
    pub(crate) tokens: Tokens,
    /// Who may have ids by tinyid's paths.
    pub(crate) tinyid_tokens: TinyidTokens,
    /// How many ids a second tags and snowflakes give.
    pub(crate) quotas: Quotas,
    ending: AtomicBool,
    /// The most ids of one request.
    pub(crate) count_max: u32,
    /// The most numbers of one segment that a client keeps.
    pub(crate) segment_count_max: u64,
}

/// A sub-key that may be used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SubKey<'a>(&'a str);

/// What the store last said when it was asked whether it is there.
type Said = Result<(), Arc<StoreError>>;

impl Service {
    /// Opens the stores, compiles the component, and creates the tags that are declared and unknown. No id is reserved
    /// yet.
    ///
    /// `address` is where others find this process: with the host's name it is what its leases are known by.
    pub(crate) async fn open(config: &Config, tokens: Tokens, purpose: Purpose, address: &str) -> anyhow::Result<Self> {
        // Before the store, so that a mistake creates no file.
        let formats = config.formats(&Secrets::read(&config.keys)?)?;
        let stores = Stores::open(config, purpose).await?;
        stores::kinds(config).tell();
        if purpose == Purpose::Serving {
            stores.leases().check(config).await?;
        }
        let tinyid_tokens = if purpose == Purpose::Serving && config.drop_ins().contains(&DropIn::Tinyid) {
            TinyidTokens::read(&stores.open_stores()).await?
        } else {
            TinyidTokens::default()
        };
        for (tag, declared) in config.declared()? {
            stores.declare(&tag, &declared).await?;
        }
        for (tag, shown) in &formats.tags {
            check_stored(stores.segments().as_ref(), tag, shown).await?;
        }
        let watch = Arc::<StoreWatch>::default();
        let store: Arc<dyn SegmentStore> =
            Arc::new(WatchedStore::new(Arc::clone(stores.segments()), Arc::clone(&watch)));
        let mut builder =
            Ids::builder().segments(Arc::clone(&store)).wait_max(Duration::from_millis(config.wait_max_ms));
        if let Some(leases) = stores.leases().store() {
            builder = builder.leases(Arc::clone(leases));
        }
        builder = builder.holder(config.holder.clone().unwrap_or_else(|| format!("{}/{address}", host_name())));
        if let Some(worker) = config.worker_number()? {
            builder = builder.preferred_worker(worker);
        }
        let ids = builder.build().await?;
        let (mut snowflakes, mut formatted) = (HashMap::new(), HashMap::new());
        for (name, options) in config.snowflakes()? {
            let snowflake = open_snowflake(&ids, &name, options).await?;
            if let Some(shown) = formats.snowflakes.get(&name) {
                formatted.insert(name.clone(), snowflake.formatted(Arc::clone(shown.format()))?);
            }
            snowflakes.insert(name, snowflake);
        }
        let is_configured = |name: &String| name != SNOWFLAKE_DEFAULT || config.snowflakes.contains_key(name);
        let named = snowflakes.keys().map(|name| (name, is_configured(name)));
        let bound = BoundFormats::compare(&*store, &formats, named).await?;
        Ok(Self {
            ids,
            stores,
            snowflakes,
            formats,
            formatted,
            bound,
            random_ids: RandomIds::new(),
            covers: Covers::new(),
            flakes: Flakes::default(),
            // An answer about the store comes before the request is given up.
            check_max: CHECK_MAX.min(Duration::from_millis(config.request_timeout_ms) / 2),
            watch,
            store,
            segments_name: tokio::sync::OnceCell::new(),
            leases_name: tokio::sync::OnceCell::new(),
            said: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
            readiness: Mutex::default(),
            sub_keys: SubKeys::new(config),
            layouts: config.layouts()?,
            tokens,
            tinyid_tokens,
            // They are about requests.
            quotas: if purpose == Purpose::Serving { Quotas::new(config) } else { Quotas::default() },
            ending: AtomicBool::new(false),
            count_max: config.count_max,
            segment_count_max: config.segment_count_max,
        })
    }

    /// The sequence of a tag, or of one of its sub-keys: a look-up in a map once it is open.
    pub(crate) async fn sequence(&self, tag: &str, sub: Option<SubKey<'_>>) -> Result<Sequence, Error> {
        plain_tag(tag).map_err(|source| ErrorKind::Store { name: shortened(tag), source: Arc::new(source) })?;
        // What is shown of its ids bounds them, also where they are asked for bare.
        let id_max = self.shown(tag).map(|shown| shown.format().id_max()).filter(|id_max| *id_max < ID_MAX);
        let options = SequenceOptions { id_max, ..SequenceOptions::default() };
        if !self.check_openable(tag, sub)? {
            let refused = |source| ErrorKind::Store { name: tag.to_owned(), source: Arc::new(source) };
            self.check_bare_format(tag).await.map_err(refused)?;
        }
        match sub {
            None => self.ids.sequence(tag, options).await,
            Some(SubKey(sub)) => self.ids.sequence_of(tag, sub, options).await,
        }
    }

    /// Refuses a tag that the store has in another format, before its bare numbers are given.
    ///
    /// # Errors
    /// [`StoreError::FormatBound`], and any error of the connection.
    pub(crate) async fn check_bare_format(&self, tag: &str) -> Result<(), StoreError> {
        let format = self.shown(tag).map(|shown| &**shown.format());
        self.bound.check_bare(self.store(), tag, format).await
    }

    /// Refuses a tag that the store has in a format of another shape, before a host shows its numbers in this one.
    ///
    /// # Errors
    /// [`StoreError::FormatBound`], and any error of the connection.
    async fn check_shape(&self, tag: &str, shape: u64) -> Result<(), StoreError> {
        let format = self.shown(tag).map(|shown| &**shown.format());
        self.bound.check_shape(self.store(), tag, format, shape).await
    }

    /// Refuses a snowflake that the store has in another format, if it is known.
    async fn check_flake_format(&self, name: &str) -> Result<(), StoreError> {
        match self.known_down() {
            Some(_) if !self.bound.waits(name) => Ok(()),
            Some(error) => Err(StoreError::unavailable(error.to_string())),
            None => self.bound.check_snowflake(self.store(), name).await,
        }
    }

    /// Whether there is a tag of this name.
    ///
    /// # Errors
    /// What the store answers.
    pub(crate) async fn has_tag(&self, tag: &str) -> Result<bool, StoreError> {
        match self.stores.segments().tag(tag).await {
            Ok(_) => Ok(true),
            Err(StoreError::TagUnknown { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Refuses a tag that is configured nowhere and does not exist, where the store says so at once.
    ///
    /// # Errors
    /// [`StoreError::TagUnknown`].
    pub(crate) async fn check_known(&self, tag: &str) -> Result<(), StoreError> {
        let is_known = self.is_formatted(tag) || self.is_quick(tag) || self.sequence_if_open(tag).is_some();
        if is_known || self.known_down().is_some() {
            return Ok(());
        }
        match tokio::time::timeout(self.check_max, self.stores.segments().tag(tag)).await {
            Ok(Err(unknown @ StoreError::TagUnknown { .. })) => Err(unknown),
            // Texts are read without a store, too.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// The next id of a tag, or of one of its sub-keys.
    pub(crate) async fn next_id(&self, tag: &str, sub: Option<SubKey<'_>>) -> Result<u64, Error> {
        let sequence = self.sequence(tag, sub).await?;
        self.unless_down(tag, sub, sequence.next()).await
    }

    /// The next ids of it.
    pub(crate) async fn take_ids(&self, tag: &str, sub: Option<SubKey<'_>>, count: u32) -> Result<Batch, Error> {
        let sequence = self.sequence(tag, sub).await?;
        self.unless_down(tag, sub, sequence.take(count)).await
    }

    /// Waits for ids of a tag, unless the store is known to grant it nothing now: then they are there at once, or not
    /// at all. A call that is given up loses no id.
    pub(crate) async fn unless_down<T>(
        &self,
        tag: &str,
        sub: Option<SubKey<'_>>,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let mut work = pin!(work);
        if let Poll::Ready(done) = poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await {
            return done;
        }
        let name = counted_under(tag, sub);
        match self.watch.failure_of(&name).or_else(|| self.known_down()) {
            Some(source) => Err(ErrorKind::Store { name: tag.to_owned(), source }.into()),
            None => work.await,
        }
    }

    /// Waits for ids of a snowflake, unless it is known to give none now because of the store of its leases: then they
    /// are there at once, or not at all. If it gives none, it is known at once that the server is not ready.
    pub(crate) async fn of_snowflake<T>(
        &self,
        snowflake: &Snowflake,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, IssueError> {
        let mut work = pin!(work);
        let done = match poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await {
            Poll::Ready(done) => done,
            Poll::Pending => match self.flakes.outage(snowflake) {
                Some(error) => return Err(IssueError::OfSnowflake(error)),
                None => work.await,
            },
        };
        if done.is_err() && self.flakes.failed(snowflake) {
            // It may have stopped, gone on and stopped again since that was said.
            self.look_again();
        }
        done.map_err(IssueError::OfSnowflake)
    }

    /// Refuses to look a tag up that is not open while the store is known to be down; answers whether it is open.
    fn check_openable(&self, tag: &str, sub: Option<SubKey<'_>>) -> Result<bool, Error> {
        let open = match sub {
            None => self.ids.sequence_if_open(tag),
            Some(_) => self.ids.sequence_if_open(&counted_under(tag, sub)),
        };
        if open.is_some() {
            return Ok(true);
        }
        // What is known of the store is looked at again every second; what tags say, by one request.
        match self.known_down().or_else(|| self.watch.refuses_to_open()) {
            Some(source) => Err(ErrorKind::Store { name: tag.to_owned(), source }.into()),
            None => Ok(false),
        }
    }

    /// Why the store grants nothing, if it said so last and has granted nothing since.
    fn known_down(&self) -> Option<Arc<StoreError>> {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, Err(error)) = said.as_ref()? else { return None };
        (!self.watch.has_granted_since(*at)).then(|| Arc::clone(error))
    }

    /// The sub-key that a request names, once it may be used: asking for its ids makes a row in the store.
    ///
    /// # Errors
    /// As [`SubKeys::admit`].
    pub(crate) async fn sub_key<'a>(&self, tag: &str, sub: Option<&'a str>) -> Result<Option<SubKey<'a>>, IssueError> {
        let Some(sub) = sub else { return Ok(None) };
        let period = match self.shown(tag).map(|shown| shown.format().period(SystemClock.now_ms())) {
            Some(Ok(period)) => period,
            // Who asks for ids hears of it.
            Some(Err(_)) => return Ok(Some(SubKey(sub))),
            None => None,
        };
        if self.ids.sequence_if_open(&stored(tag, sub, period.as_deref())?).is_none() {
            self.check_openable(tag, Some(SubKey(sub)))?;
            self.sub_keys.admit(self.store(), tag, sub, period.as_deref()).await?;
        }
        Ok(Some(SubKey(sub)))
    }

    /// Sees to it that the sub-key of a host is there, which shows ids in a format of this shape: where the counter
    /// starts again, the host itself names the period. The periods of the tag itself are not limited here either.
    ///
    /// # Errors
    /// As [`SubKeys::admit`]; [`Kind::QueryInvalid`] for a sub-key without a period that there is.
    pub(crate) async fn admit_of_host(&self, tag: &str, sub: &str, shape: u64) -> Result<(), IssueError> {
        let restart = FormatShape::read(shape).map_or(Restart::Never, FormatShape::restart);
        if restart == Restart::Never {
            return self.sub_keys.admit(self.store(), tag, sub, None).await;
        }
        match of_period(sub, restart) {
            Some(("", _)) => Ok(()),
            Some((sub, period)) => self.sub_keys.admit(self.store(), tag, sub, Some(period)).await,
            None => {
                let sub = shortened(sub);
                let (period, example) = match restart {
                    Restart::Year => ("year", "@2026"),
                    Restart::Month => ("month", "@2026-11"),
                    Restart::Day | Restart::Never => ("day", "@2026-11-22"),
                };
                let detail = format!(
                    "the sub-key is {sub:?}, and in this shape the counter starts again each {period}: it must end in a \
                     {period} of the calendar, such as {example}"
                );
                Err(Problem::new(Kind::QueryInvalid, detail).with("parameter", "sub").with("value", sub).into())
            }
        }
    }

    /// The ids of a tag, or of one of its sub-keys, as they are shown.
    pub(crate) async fn formatted(
        &self,
        tag: &str,
        sub: Option<SubKey<'_>>,
        shown: &IdFormat,
    ) -> Result<Formatted, Error> {
        self.ids.formatted(tag, sub.map(|sub| sub.0), SequenceOptions::default(), Arc::clone(shown.format())).await
    }

    /// How the ids of a tag are shown, if something is said of that. Those of a quick tag are a snowflake's.
    pub(crate) fn shown(&self, tag: &str) -> Option<&IdFormat> {
        self.formats.tags.get(tag)
    }

    /// How the ids of a snowflake are shown, if something is said of that.
    pub(crate) fn shown_snowflake(&self, name: &str) -> Option<&IdFormat> {
        self.formats.snowflakes.get(name)
    }

    /// The same, and where they come from.
    pub(crate) fn formatted_snowflake(&self, name: &str) -> Option<&Formatted> {
        self.formatted.get(name)
    }

    /// Whether the ids of a tag or snowflake of this name are shown in a way of their own.
    pub(crate) fn is_formatted(&self, name: &str) -> bool {
        self.formats.tags.contains_key(name) || self.formats.snowflakes.contains_key(name)
    }

    /// Whether the ids of a tag are those of the snowflake of its name.
    pub(crate) fn is_quick(&self, tag: &str) -> bool {
        self.formats.quick.contains(tag)
    }

    /// How ids are shown, and texts of them read.
    pub(crate) fn formats(&self) -> &Formats {
        &self.formats
    }

    /// The sequence of a tag that was opened before.
    pub(crate) fn sequence_if_open(&self, tag: &str) -> Option<Sequence> {
        self.ids.sequence_if_open(tag)
    }

    /// The snowflake that the ids of a quick tag come from; none for a tag that a store counts.
    ///
    /// # Errors
    /// As [`Service::snowflake`].
    pub(crate) fn quick(&self, tag: &str) -> Result<Option<&Snowflake>, Problem> {
        if self.is_quick(tag) { self.snowflake(tag).map(Some) } else { Ok(None) }
    }

    /// Whether a snowflake of this name is configured.
    pub(crate) fn has_snowflake(&self, name: &str) -> bool {
        self.snowflakes.contains_key(name)
    }

    /// The configured snowflake of this name.
    ///
    /// # Errors
    /// When there is none, and when there is no store that could lease it a worker.
    pub(crate) fn snowflake(&self, name: &str) -> Result<&Snowflake, Problem> {
        let snowflake = self.snowflakes.get(name).ok_or_else(|| Refusal::snowflake_unknown(name))?;
        match self.stores.leases().missing() {
            None => Ok(snowflake),
            Some(detail) => Err(Problem::new(Kind::LeasesMissing, detail)),
        }
    }

    /// The open generators, for their figures.
    pub(crate) fn ids(&self) -> &Ids {
        &self.ids
    }

    /// The store, for what concerns tags.
    pub(crate) fn store(&self) -> &dyn SegmentStore {
        self.store.as_ref()
    }

    /// The open stores.
    pub(crate) fn stores(&self) -> &Stores {
        &self.stores
    }

    /// Whether the server is ready: the store answers and grants, or what it granted before lasts; and each snowflake
    /// that is in use gives ids.
    ///
    /// Anybody may want to know at any rate: what was found is kept for [`CHECK_KEPT`], or until a snowflake fails.
    ///
    /// # Errors
    /// Why it is not.
    pub(crate) async fn ready(self: &Arc<Self>) -> Result<Value, Problem> {
        let said = self.said().await;
        self.looked(said, |readiness| readiness.whole.clone())
    }

    /// Whether ids of this tag can be given, whatever else the server is used for: of the tag itself, or of those of
    /// its sub-keys that were used lately. Nothing is said of whether the store has such a tag, and numbers for it.
    ///
    /// # Errors
    /// Why they cannot; and that the name is no tag's.
    pub(crate) async fn ready_for_tag(self: &Arc<Self>, tag: &str) -> Result<Value, Problem> {
        plain_tag(tag)?;
        if self.is_quick(tag) {
            return self.ready_for_snowflake(tag);
        }
        let said = self.said().await;
        self.looked(said, |readiness| readiness.of_tag(tag, |failures| self.supplies(failures)))
    }

    /// Whether ids of this snowflake can be given, whatever else the server is used for. One that was never used may
    /// have no worker yet: it gets one with the first request.
    ///
    /// # Errors
    /// Why they cannot; and that there is no such snowflake.
    pub(crate) fn ready_for_snowflake(&self, name: &str) -> Result<Value, Problem> {
        readiness::of_snowflake(self.flakes.stop(self.snowflake(name)?))
    }

    /// Has the next who asks look again, if the server was said to be ready.
    fn look_again(&self) {
        let mut known = self.readiness.lock().unwrap_or_else(PoisonError::into_inner);
        known.take_if(|known| known.whole.is_ok());
    }

    /// What was found within the last second, or is found now.
    fn looked<T>(&self, said: Said, read: impl FnOnce(&mut Readiness) -> T) -> T {
        let mut known = self.readiness.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = known.take_if(|known| known.found_at.elapsed() < CHECK_KEPT);
        // No request failed by it.
        let found = kept.unwrap_or_else(|| quietly(|| self.look(&said)));
        read(known.insert(found))
    }

    fn look(&self, said: &Said) -> Readiness {
        let failures = self.watch.failures();
        let outage = self.note(said, &failures);
        let stop = self.stopped_snowflakes().into_iter().next();
        Readiness::new(said, stop, outage, failures, self.uses_snowflakes())
    }

    /// What is in hand of each tag, and of those that fail.
    fn supplies(&self, failures: &Failures) -> HashMap<String, TagSupply> {
        let now_ms = SystemClock.now_ms();
        let restarting = self.formats().tags.iter().filter_map(|(tag, shown)| {
            let period = shown.format().period(now_ms).ok()??;
            Some((tag.as_str(), period))
        });
        let periods: HashMap<&str, String> = restarting.collect();
        // The numbers of a period that is over serve nobody.
        let serves = |sequence: &Sequence| {
            let Some(period) = periods.get(sequence.tag()) else { return true };
            let sub = sequence.sub().and_then(|sub| sub.strip_suffix(period.as_str()));
            sub.is_some_and(|before| before.is_empty() || before.ends_with('@'))
        };
        let mut supplies: HashMap<String, TagSupply> = HashMap::new();
        let mut add = |tag: &str, change: &dyn Fn(&mut TagSupply)| match supplies.get_mut(tag) {
            Some(supply) => change(supply),
            None => change(supplies.entry(tag.to_owned()).or_default()),
        };
        self.covers.each(&self.ids, |figures| {
            if serves(&figures.sequence) {
                add(figures.sequence.tag(), &|supply| supply.add(&figures));
            }
        });
        for (name, error) in &failures.tags {
            // Callers wait for what does not come.
            let is_dry = self.ids.sequence_if_open(name).is_some_and(|waiting| waiting.supply().left == 0);
            add(split_tag(name).0, &|supply| {
                supply.is_uncovered |= is_dry;
                supply.failure.get_or_insert_with(|| Arc::clone(error));
            });
        }
        supplies
    }

    /// Notes whether the store grants what is asked of it, by what it says and by what becomes of requests, and tells
    /// the log when that changes; gives how ids last while it does not, and why.
    fn note(&self, said: &Said, failures: &Failures) -> Option<(Outage, Arc<StoreError>)> {
        let error = match (said, &failures.longest) {
            (Err(error), _) => Arc::clone(error),
            (Ok(()), Some(failure)) => Arc::clone(&failure.error),
            (Ok(()), None) => {
                if let Some(down) = self.covers.store_is_up() {
                    tracing::info!(down_ms = down.as_millis(), "the store answers again");
                }
                return None;
            }
        };
        let since = failures.longest.as_ref().map(|failure| (failure.since, failure.since_ms));
        // Callers of these wait for what does not come.
        let waiting: Vec<Sequence> =
            failures.tags.iter().filter_map(|(tag, _)| self.ids.sequence_if_open(tag)).collect();
        let (outage, is_news) = self.covers.store_is_down(&self.ids, since, &waiting);
        if is_news {
            let least = outage.least.as_ref().map(|(tag, seconds)| format!("{tag:?} for {seconds:.0} s"));
            let error = with_causes(&*error);
            let lasts =
                if outage.is_covered(self.uses_snowflakes()) { "; ids come from what it granted before" } else { "" };
            tracing::warn!(%error, least_cover = least, "the store is down{lasts}");
        }
        Some((outage, error))
    }

    /// Looks after the store: asks it whether it is there, and has what failed tried again, so that it is known when it
    /// goes on, whether anybody asks for ids or not. To be called every second; gives what the store refuses for good.
    pub(crate) async fn look_after_store(self: &Arc<Self>, is_due: bool) -> Option<Arc<StoreError>> {
        self.watch.forget(|tag| self.ids.sequence_if_open(tag).is_some());
        let failures = self.watch.failures();
        if failures.longest.is_none() && !self.covers.is_down() && !is_due {
            return None;
        }
        let tried = failures.tags.iter().take(RETRIED_MAX);
        for sequence in tried.filter_map(|(tag, _)| self.ids.sequence_if_open(tag)) {
            match sequence.mode() {
                // It begins what is due.
                Mode::Buffered => drop(sequence.status()),
                // A number is the price.
                Mode::Ordered => {
                    drop(tokio::spawn(tokio::time::timeout(CHECK_KEPT, async move { sequence.next().await })))
                }
            }
        }
        let said = self.said().await;
        self.note(&said, &self.watch.failures());
        said.err().filter(|error| !error.is_retryable())
    }

    async fn said(self: &Arc<Self>) -> Said {
        if let Some(said) = self.kept() {
            return said;
        }
        let service = Arc::clone(self);
        // A task of its own: whoever wants to know may go away, and the next one would begin again.
        let asking = tokio::spawn(async move {
            let _turn = service.asking.lock().await;
            if let Some(said) = service.kept() {
                return said;
            }
            let said = service.ask().await.map_err(Arc::new);
            *service.said.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), said.clone()));
            said
        });
        let broke_off = |error| {
            StoreError::unavailable("asking the store whether it is there broke off".to_owned()).with_source(error)
        };
        asking.await.unwrap_or_else(|error| Err(Arc::new(broke_off(error))))
    }

    fn kept(&self) -> Option<Said> {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.as_ref().filter(|(at, _)| at.elapsed() < CHECK_KEPT).map(|(_, said)| said.clone())
    }

    /// Asks the store whether it is there, in bounded time.
    async fn ask(&self) -> Result<(), StoreError> {
        let ask = async {
            let began = Instant::now();
            self.store.check().await?;
            self.watch.probed(began.elapsed());
            // What it refused may have been one tag's fault, or be everybody's.
            if self.watch.was_refused() { self.store.tags(Some(LAST_NAME), 1).await.map(drop) } else { Ok(()) }
        };
        tokio::time::timeout(self.check_max, ask).await.unwrap_or_else(|_| {
            let what = format!("it did not answer within {} ms", self.check_max.as_millis());
            Err(StoreError::unavailable(what))
        })
    }

    /// The snowflakes in use that give no ids now.
    pub(crate) fn stopped_snowflakes(&self) -> Vec<Stop> {
        self.flakes.stops(&self.ids)
    }

    /// How long requests to the store took since this was last asked.
    pub(crate) fn take_request_times(&self) -> RequestTimes {
        self.watch.take_times()
    }

    /// Whether ids of a snowflake were asked for.
    pub(crate) fn uses_snowflakes(&self) -> bool {
        self.ids.snowflakes().iter().any(is_used)
    }

    /// From now on the service is not ready, though it goes on.
    pub(crate) fn end(&self) {
        self.ending.store(true, Ordering::Relaxed);
    }

    /// Whether it is about to end.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// Renews leases that are due, also of idle snowflakes.
    pub(crate) fn renew_leases(&self) {
        self.ids.renew_leases();
    }

    /// Notices which snowflakes give no ids.
    pub(crate) fn look_at_snowflakes(&self) {
        self.flakes.look(&self.ids);
    }

    /// Closes the sequences that nobody used for this long: what they have left goes back, and their memory too. Those
    /// of periods that are over are among them.
    pub(crate) fn close_idle(&self, idle: Duration) {
        let closed = self.ids.close_idle(idle);
        if closed > 0 {
            tracing::debug!(closed, "idle sequences were closed");
        }
    }

    /// Asks a lease store again that refused to open.
    pub(crate) async fn look_for_leases(&self) {
        self.stores.leases().look_again().await;
    }

    /// Gives back what was not used and closes the stores.
    pub(crate) async fn close(&self) {
        self.ids.close().await;
        self.stores.close().await;
    }
}

/// The name that a tag, or one of its sub-keys, is counted under.
fn counted_under(tag: &str, sub: Option<SubKey<'_>>) -> String {
    sub.and_then(|SubKey(sub)| stored_name(tag, Some(sub)).ok()).unwrap_or_else(|| tag.to_owned())
}

/// Refuses a tag that the store has already and whose format shows none of its ids. One that does not answer now says
/// so when ids are asked for.
async fn check_stored(store: &dyn SegmentStore, tag: &str, shown: &IdFormat) -> anyhow::Result<()> {
    if shown.format().id_max() == ID_MAX {
        return Ok(());
    }
    match tokio::time::timeout(CHECK_MAX, store.tag(tag)).await {
        Ok(Ok(record)) => check_start(tag, shown, record.options.start),
        Ok(Err(_)) | Err(_) => Ok(()),
    }
}

async fn open_snowflake(ids: &Ids, name: &str, options: SnowflakeOptions) -> anyhow::Result<Snowflake> {
    ids.snowflake(name, options).await.with_context(|| format!("the snowflake {name:?} cannot be opened"))
}
