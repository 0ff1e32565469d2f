//! The open stores and the open generators of one process.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use unalike::storage::{SegmentStore, StoreError, TagOptions, TagRecord};
use unalike::{
    Clock, Error, ErrorKind, Formatted, ID_MAX, Ids, Layout, RandomIds, RefillPolicy, Sequence, SequenceOptions,
    Snowflake, SnowflakeOptions, StepPolicy, SystemClock,
};

use crate::auth::Tokens;
use crate::channels::Declared;
use crate::config::Config;
use crate::cover::{Covers, Outage};
use crate::flakes::{Flakes, Stop, is_used};
use crate::formats::{Formats, Secrets, Shown, check_start};
use crate::http::DropIn;
use crate::layouts::{Layouts, shortened};
use crate::leases::host_name;
use crate::problem::{Kind, Problem, with_causes};
use crate::stores::{Purpose, Stores};
use crate::sub_keys::{SubKeys, stored};
use crate::tags::plain_tag;
use crate::tinyid_tokens::TinyidTokens;

/// A store that has not answered whether it is there after this long is taken to be down: who asks whether the server
/// is ready waits no longer than a second.
const CHECK_MAX: Duration = Duration::from_millis(700);

/// How long what it said is kept.
const CHECK_KEPT: Duration = Duration::from_secs(1);

/// Everything that a request needs.
pub(crate) struct Service {
    ids: Ids,
    stores: Stores,
    snowflakes: HashMap<String, Snowflake>,
    /// Tags whose ids are those of the snowflake of the same name.
    quick: HashSet<String>,
    /// How ids are shown, where something is said of that.
    formats: Formats,
    /// The snowflakes among them.
    formatted: HashMap<String, Formatted>,
    /// UUIDs and ULIDs, which need none of the above.
    pub(crate) random_ids: RandomIds,
    /// How the open tags last without the store.
    pub(crate) covers: Covers,
    /// Which snowflakes give ids.
    flakes: Flakes,
    sub_keys: SubKeys,
    check_max: Duration,
    /// When, and what it was.
    said: Mutex<Option<(Instant, Said)>>,
    /// Held while the store is asked.
    asking: tokio::sync::Mutex<()>,
    /// Every layout that has a name here.
    pub(crate) layouts: Layouts,
    /// Who may do what.
    pub(crate) tokens: Tokens,
    /// Who may have ids by tinyid's paths.
    pub(crate) tinyid_tokens: TinyidTokens,
    ending: AtomicBool,
    /// The most ids of one request.
    pub(crate) count_max: u32,
    /// The most numbers of one segment that a client keeps.
    pub(crate) segment_count_max: u64,
}

/// A sub-key that may be used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SubKey<'a>(&'a str);

/// What became of asking the store whether it is there.
pub(crate) enum Checked {
    Up,
    /// It is not, and ids last for so long.
    Down(Outage, Arc<StoreError>),
}

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
        if purpose == Purpose::Serving {
            stores.leases().check(config).await?;
        }
        let tinyid_tokens = if purpose == Purpose::Serving && config.drop_ins().contains(&DropIn::Tinyid) {
            TinyidTokens::read(stores.mysql()).await?
        } else {
            TinyidTokens::default()
        };
        let mut quick = HashSet::new();
        for (tag, declared) in config.declared()? {
            stores.declare(&tag, &declared).await?;
            if declared == Declared::Quick {
                quick.insert(tag);
            }
        }
        for (tag, shown) in &formats.tags {
            check_stored(stores.segments().as_ref(), tag, shown).await?;
        }
        let mut builder =
            Ids::builder().segments(Arc::clone(stores.segments())).wait_max(Duration::from_millis(config.wait_max_ms));
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
        Ok(Self {
            ids,
            stores,
            snowflakes,
            quick,
            formats,
            formatted,
            random_ids: RandomIds::new(),
            covers: Covers::new(),
            flakes: Flakes::default(),
            // An answer about the store comes before the request is given up.
            check_max: CHECK_MAX.min(Duration::from_millis(config.request_timeout_ms) / 2),
            said: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
            sub_keys: SubKeys::new(config),
            layouts: config.layouts()?,
            tokens,
            tinyid_tokens,
            ending: AtomicBool::new(false),
            count_max: config.count_max,
            segment_count_max: config.segment_count_max,
        })
    }

    /// The sequence of a tag, or of one of its sub-keys: a look-up in a map once it is open.
    pub(crate) async fn sequence(&self, tag: &str, sub: Option<SubKey<'_>>) -> Result<Sequence, Error> {
        if plain_tag(tag).is_err() {
            return Err(ErrorKind::NameInvalid { name: tag.chars().take(32).collect() }.into());
        }
        // What is shown of its ids bounds them, also where they are asked for bare.
        let id_max = self.shown(tag).map(|shown| shown.format().id_max()).filter(|id_max| *id_max < ID_MAX);
        let options = SequenceOptions { id_max, ..SequenceOptions::default() };
        match sub {
            None => self.ids.sequence(tag, options).await,
            Some(SubKey(sub)) => self.ids.sequence_of(tag, sub, options).await,
        }
    }

    /// The sub-key that a request names, once it may be used: asking for its ids makes a row in the store.
    ///
    /// # Errors
    /// As [`SubKeys::admit`].
    pub(crate) async fn sub_key<'a>(&self, tag: &str, sub: Option<&'a str>) -> Result<Option<SubKey<'a>>, Problem> {
        let Some(sub) = sub else { return Ok(None) };
        let period = match self.shown(tag).map(|shown| shown.format().period(SystemClock.now_ms())) {
            Some(Ok(period)) => period,
            // Who asks for ids hears of it.
            Some(Err(_)) => return Ok(Some(SubKey(sub))),
            None => None,
        };
        if self.ids.open_sequence(&stored(tag, sub, period.as_deref())?).is_none() {
            self.sub_keys.admit(self.store(), tag, sub, period.as_deref()).await?;
        }
        Ok(Some(SubKey(sub)))
    }

    /// The ids of a tag, or of one of its sub-keys, as they are shown.
    pub(crate) async fn formatted(
        &self,
        tag: &str,
        sub: Option<SubKey<'_>>,
        shown: &Shown,
    ) -> Result<Formatted, Error> {
        self.ids.formatted(tag, sub.map(|sub| sub.0), SequenceOptions::default(), Arc::clone(shown.format())).await
    }

    /// How the ids of a tag are shown, if something is said of that. Those of a quick tag are a snowflake's.
    pub(crate) fn shown(&self, tag: &str) -> Option<&Shown> {
        self.formats.tags.get(tag)
    }

    /// How the ids of a snowflake are shown, if something is said of that.
    pub(crate) fn shown_snowflake(&self, name: &str) -> Option<&Shown> {
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
        self.quick.contains(tag)
    }

    /// Refuses a tag, or a quick tag's snowflake, whose ids are not what is shown of them: bare they could be those that
    /// somebody else was shown.
    ///
    /// # Errors
    /// [`Kind::FormatInvalid`].
    pub(crate) fn check_bare_tag(&self, tag: &str) -> Result<(), Problem> {
        let shown = if self.is_quick(tag) { self.shown_snowflake(tag) } else { self.shown(tag) };
        check_bare(shown, tag)
    }

    /// The same for a snowflake.
    ///
    /// # Errors
    /// [`Kind::FormatInvalid`].
    pub(crate) fn check_bare_snowflake(&self, name: &str) -> Result<(), Problem> {
        check_bare(self.shown_snowflake(name), name)
    }

    /// The sequence of a tag that was opened before.
    pub(crate) fn open_sequence(&self, tag: &str) -> Option<Sequence> {
        self.ids.open_sequence(tag)
    }

    /// The snowflake that the ids of a quick tag come from; none for a tag that a store counts.
    ///
    /// # Errors
    /// As [`Service::snowflake`].
    pub(crate) fn quick(&self, tag: &str) -> Result<Option<&Snowflake>, Problem> {
        if self.quick.contains(tag) { self.snowflake(tag).map(Some) } else { Ok(None) }
    }

    /// Whether a snowflake of this name is configured.
    pub(crate) fn has_snowflake(&self, name: &str) -> bool {
        self.snowflakes.contains_key(name)
    }

    /// The layout of a configured snowflake's ids, without a gene.
    ///
    /// # Errors
    /// When there is no such snowflake.
    pub(crate) fn snowflake_layout(&self, name: &str) -> Result<Layout, Problem> {
        self.snowflakes.get(name).map(Snowflake::layout).ok_or_else(|| Problem::snowflake_unknown(name))
    }

    /// The configured snowflake of this name.
    ///
    /// # Errors
    /// When there is none, and when there is no store that could lease it a worker.
    pub(crate) fn snowflake(&self, name: &str) -> Result<&Snowflake, Problem> {
        let snowflake = self.snowflakes.get(name).ok_or_else(|| Problem::snowflake_unknown(name))?;
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
        self.stores.segments().as_ref()
    }

    /// The open stores.
    pub(crate) fn stores(&self) -> &Stores {
        &self.stores
    }

    /// Whether the store answers and can be written to, and if it does not, for how long ids last.
    ///
    /// Asking it means a write, and anybody may want to know at any rate: what it said is kept for [`CHECK_KEPT`], and all
    /// who come meanwhile wait for the answer that is on its way.
    ///
    /// # Errors
    /// What the store refuses for good.
    pub(crate) async fn check(self: &Arc<Self>) -> Result<Checked, Arc<StoreError>> {
        match self.said().await {
            Ok(()) => Ok(Checked::Up),
            Err(error) if error.is_retryable() => {
                // It may have answered since.
                Ok(self.covers.outage(&self.ids).map_or(Checked::Up, |outage| Checked::Down(outage, error)))
            }
            Err(error) => Err(error),
        }
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
        let broke_off =
            |error| StoreError::unavailable("asking the store whether it is there broke off".to_owned(), error);
        asking.await.unwrap_or_else(|error| Err(Arc::new(broke_off(error))))
    }

    fn kept(&self) -> Option<Said> {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.as_ref().filter(|(at, _)| at.elapsed() < CHECK_KEPT).map(|(_, said)| said.clone())
    }

    /// Asks the store, and notes since when it does not answer.
    async fn ask(&self) -> Result<(), StoreError> {
        let check = tokio::time::timeout(self.check_max, self.store().check()).await;
        let checked = check.unwrap_or_else(|_| {
            let what = format!("it did not answer within {} ms", self.check_max.as_millis());
            Err(StoreError::Unavailable { what, source: None })
        });
        match &checked {
            Ok(()) => {
                if let Some(down) = self.covers.store_is_up() {
                    tracing::info!(down_ms = down.as_millis(), "the store answers again");
                }
            }
            Err(error) if error.is_retryable() => {
                if let Some(outage) = self.covers.store_is_down(&self.ids) {
                    let least = outage.least.as_ref().map(|(tag, seconds)| format!("{tag:?} for {seconds:.0} s"));
                    let error = with_causes(error);
                    tracing::warn!(%error, least_cover = least, "the store is down; ids come from what it granted before");
                }
            }
            Err(_) => {}
        }
        checked
    }

    /// The snowflakes in use that give no ids now.
    pub(crate) fn stopped_snowflakes(&self) -> Vec<Stop> {
        self.flakes.stops(&self.ids)
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

    /// Renews leases that are due, also of idle snowflakes, and notices which snowflakes give no ids.
    pub(crate) fn renew_leases(&self) {
        self.ids.renew_leases();
        self.flakes.look(&self.ids);
    }

    /// Closes the sequences that nobody used for so long: what they have left goes back, and their memory too. Those of
    /// periods that are over are among them.
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

/// Refuses a tag that the store has already and whose format shows none of its ids. One that does not answer now says so
/// when ids are asked for.
async fn check_stored(store: &dyn SegmentStore, tag: &str, shown: &Shown) -> anyhow::Result<()> {
    if shown.format().id_max() == ID_MAX {
        return Ok(());
    }
    match tokio::time::timeout(CHECK_MAX, store.tag(tag)).await {
        Ok(Ok(record)) => check_start(tag, shown, record.options.start),
        Ok(Err(_)) | Err(_) => Ok(()),
    }
}

fn check_bare(shown: Option<&Shown>, name: &str) -> Result<(), Problem> {
    if shown.is_none_or(Shown::is_bare) {
        return Ok(());
    }
    let name = shortened(name);
    let detail = format!(
        "the ids of {name:?} are shown under a key, with a shard gene, or start again, which this path does not know: they are \
         had under /v1 alone"
    );
    Err(Problem::new(Kind::FormatInvalid, detail).with("name", name))
}

async fn open_snowflake(ids: &Ids, name: &str, options: SnowflakeOptions) -> anyhow::Result<Snowflake> {
    ids.snowflake(name, options).await.with_context(|| format!("the snowflake {name:?} cannot be opened"))
}

/// Replaces the policies of a tag that are given, and leaves the others.
///
/// # Errors
/// As [`SegmentStore::change_tag`].
pub(crate) async fn change_tag(
    store: &dyn SegmentStore,
    tag: &str,
    step: Option<StepPolicy>,
    refill: Option<RefillPolicy>,
) -> Result<TagRecord, StoreError> {
    let current = store.tag(tag).await?;
    if step.is_none() && refill.is_none() {
        return Ok(current);
    }
    let (step, refill) = (step.unwrap_or(current.options.step), refill.unwrap_or(current.options.refill));
    store.change_tag(tag, step, refill).await
}

/// Creates a tag, and says whether as it is wanted: a table or key of another system may have no place for a step or a
/// refill policy, and gets the tag with those that its tags have.
///
/// # Errors
/// As [`SegmentStore::create_tag`].
pub(crate) async fn create_as_can_be(
    store: &dyn SegmentStore,
    tag: &str,
    wanted: &TagOptions,
) -> Result<(TagRecord, bool), StoreError> {
    let plain = TagOptions { start: wanted.start, mode: wanted.mode, ..TagOptions::default() };
    match store.create_tag(tag, wanted).await {
        Err(StoreError::Refused { .. } | StoreError::TagInvalid { .. }) if *wanted != plain => {
            Ok((store.create_tag(tag, &plain).await?, false))
        }
        created => Ok((created?, true)),
    }
}
