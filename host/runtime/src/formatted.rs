//! Ids as people see them: permuted under a key, with a shard gene, in a template beside the date of issue.
//!
//! A [`Format`] says how, and is a pure function; what is decided here is *when* an id was issued, and what it is
//! counted under. One reading of the clock per call decides both the date in its texts and the period that its numbers
//! are counted under, so that they cannot disagree: whatever the clocks of two hosts show around midnight, and if one
//! of them goes back over it, a number comes once per period, and its text shows that period.

use std::sync::Arc;

use unalike_core::{
    FieldOrder, Format, ID_MAX, Issued, Layout, LayoutError, ReadError, Restart, SnowflakeOptions, WriteError,
};
use unalike_storage::{FormatOwner, sub_tag};

use crate::{Batch, Error, ErrorKind, Ids, Sequence, SequenceOptions, Snowflake};

/// Why a format does not fit a generator, or what is asked of it.
///
/// ```
/// use std::sync::Arc;
/// use unalike::{ErrorKind, Format, FormatMisfit, FormatOptions, Ids, Layout, SnowflakeOptions};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store = Arc::new(unalike_memory::MemoryStore::default());
/// let ids = Ids::builder().leases(store).build().await?;
/// let short = Format::new(&FormatOptions { template: "{id:010}", ..FormatOptions::default() })?;
/// let error = ids.formatted_snowflake("web", SnowflakeOptions::new(Layout::TWITTER), short).await.unwrap_err();
/// assert!(matches!(error.kind(), ErrorKind::FormatMisfit { source: FormatMisfit::Width { .. }, .. }));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatMisfit {
    /// Counters that start again are those of sequences.
    #[error("a snowflake has no counter that could start again")]
    Restart,
    /// The gene is taken from the sequence, which must stand last in the layout and have as many bits.
    #[error("{gene_bits} bits for a gene are taken from the layout's sequence, which must have as many and stand last")]
    Gene {
        /// Width of the gene.
        gene_bits: u8,
    },
    /// The layout has ids that the format cannot show.
    #[error(
        "ids of the layout reach {layout_max}, and the format shows none above {format_max}: give it more bits or digits"
    )]
    Width {
        /// The greatest id of the layout, without the gene.
        layout_max: u64,
        /// The greatest id that the format can show.
        format_max: u64,
    },
    /// Only the numbers were asked for, and they repeat in each period: only the whole text is unique.
    #[error("its numbers start again in each period, so that only whole texts are unique, and no numbers are given")]
    NumbersRepeat,
    /// Its keys permute fewer than 20 bits.
    #[error(
        "a key for {permuted_bits} bits hides nothing: give it {PERMUTED_BITS_MIN} or more, besides gene and key number"
    )]
    HidesNothing {
        /// Width of what the keys permute.
        permuted_bits: u8,
    },
}

/// A permutation of fewer bits hides little: a table of all that was seen is soon a table of all.
pub(crate) const PERMUTED_BITS_MIN: u8 = 20;

/// Why a text shows no id of a generator.
///
/// ```
/// use unalike::{Format, FormatOptions, Layout, Misread, Parts, issued_by};
/// let format = Format::new(&FormatOptions { template: "{yyyyMMdd}-{id}", ..FormatOptions::default() })?;
/// let id = Layout::TWITTER.pack(Parts { ticks: 1, worker: 0, sequence: 0 })?; // of 2010
/// let issued = format.read(&format!("20261129-{id}"))?;
/// assert_eq!(issued_by(Layout::TWITTER, issued), Err(Misread::Date));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misread {
    /// The format shows no id so.
    #[error(transparent)]
    Text(#[from] ReadError),
    /// The layout has no such id.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The date beside the id is another one than the layout's.
    #[error("its date is not that of its id")]
    Date,
}

/// What was read of a snowflake's id, with the tick of its layout (the one without a gene) for when it was issued.
///
/// # Errors
/// [`Misread::Layout`], and [`Misread::Date`] for an id that was read beside another date.
pub fn issued_by(layout: Layout, issued: Issued) -> Result<Issued, Misread> {
    let ticks = layout.unpack(issued.id)?.ticks;
    let tick = layout.tick_start_ms(ticks)..layout.tick_start_ms(ticks + 1);
    if issued.issued_ms.as_ref().is_some_and(|span| !span.contains(&tick.start)) {
        return Err(Misread::Date);
    }
    Ok(Issued { issued_ms: Some(tick), ..issued })
}

/// The ids of a tag or of a snowflake, as a [`Format`] shows them. Clone it freely.
///
/// ```
/// use std::sync::Arc;
/// use unalike::{Format, FormatOptions, Ids, Restart, SequenceOptions};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # struct Noon;
/// # impl unalike::Clock for Noon { fn now_ms(&self) -> u64 { 1_795_348_800_000 } }
/// # let store = Arc::new(unalike_memory::MemoryStore::default());
/// # let ids = Ids::builder().segments(store).clock(Arc::new(Noon)).build().await?;
/// let format = Format::new(&FormatOptions {
///     template: "ORD-{yyyyMMdd}-{id:06}-{gene:4}",
///     utc_offset_minutes: 8 * 60,
///     restart: Restart::Day, // numbers begin again at 1 each day
///     ..FormatOptions::default()
/// })?;
/// let orders = ids.formatted("order", None, SequenceOptions::default(), format).await?;
/// let buyer = 123_456_789;
/// assert_eq!(orders.next(Some(buyer)).await?, "ORD-20261122-000001-05");
/// let batch = orders.take(2, Some(buyer)).await?;
/// assert_eq!(batch.texts()?, ["ORD-20261122-000002-05", "ORD-20261122-000003-05"]);
/// assert_eq!(orders.format().read("ORD-20261122-000003-05")?.id, 3);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Formatted {
    source: Source,
    format: Arc<Format>,
}

/// Where the ids come from.
#[derive(Clone, Debug)]
enum Source {
    /// One counter for ever. The clock is that of these ids.
    Sequence(Ids, Sequence),
    /// One for each period.
    Periods(Arc<Periods>),
    Snowflake(Snowflake),
}

/// A tag whose counter starts again: each period is a sub-key of it.
#[derive(Debug)]
struct Periods {
    ids: Ids,
    tag: String,
    sub: Option<String>,
    options: SequenceOptions,
}

/// When the ids of a batch were issued.
#[derive(Clone, Copy, Debug)]
enum IssuedAt {
    /// All at this instant, in Unix milliseconds.
    Once(u64),
    /// Each in its own tick.
    OwnTick(Layout),
}

/// Several ids that one call took, and how they are shown. All of a counter that starts again are of one period.
///
/// ```
/// use std::sync::Arc;
/// use unalike::{Format, FormatOptions, Ids, SequenceOptions};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store = Arc::new(unalike_memory::MemoryStore::default());
/// # let ids = Ids::builder().segments(store).build().await?;
/// let format = Format::new(&FormatOptions { template: "A{id}", gene_bits: 4, ..FormatOptions::default() })?;
/// let orders = ids.formatted("order", None, SequenceOptions::default(), format).await?;
/// let batch = orders.take(2, Some(37)).await?;
/// assert_eq!(batch.numbers()?, [1 << 4 | 5, 2 << 4 | 5]); // both go to the shard of 37, by % 16
/// assert_eq!(batch.texts()?, ["A21", "A37"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FormattedBatch {
    ids: Batch,
    name: Arc<str>,
    format: Arc<Format>,
    issued_at: IssuedAt,
    shard_key: Option<u64>,
}

impl Ids {
    /// The ids of a tag, or of one of its sub-keys, as a format shows them.
    ///
    /// The sequence never gives an id above what the format can show ([`Format::id_max`]); it ends then. Where the
    /// counter starts again, each period has numbers of its own under the sub-key `@2026-11-22` (`sub@2026-11-22` of a
    /// sub-key): a row in the store, made at its first use, and a sequence in this process, some memory that stays
    /// until [`Ids::close_idle`] finds it idle.
    ///
    /// **Texts are unique within one sub-key.** Sub-keys share the format of their tag and count by themselves, so two
    /// of them show the same texts. Where texts of several meet, give each its own tag, with its own prefix in the
    /// template.
    ///
    /// If the ids of one tag are shown in two formats, or if its template, restart, bits, gene or a secret change, two
    /// ids could be shown alike. So the format is bound to the tag in the store at its first use. Another one is
    /// refused, in this process and in every other. Keys are bound one by one: one with a number of its own may come or
    /// go. [`rebind_format`](unalike_storage::rebind_format) binds another format, for those who know what can repeat:
    /// the first keys repeat nothing once all programs without them have ended.
    ///
    /// Nothing is compared in CosId's counters in Redis, which keep no formats. Bare [sequences](Ids::sequence) of the
    /// tag compare nothing; servers compare before they grant numbers to others.
    ///
    /// # Errors
    /// As [`Ids::sequence_of`]; the sub-key and the period count together.
    /// [`StoreError::FormatBound`](unalike_storage::StoreError::FormatBound) for another format;
    /// [`FormatMisfit::HidesNothing`].
    pub async fn formatted(
        &self,
        tag: &str,
        sub: Option<&str>,
        options: SequenceOptions,
        format: impl Into<Arc<Format>>,
    ) -> Result<Formatted, Error> {
        let format = format.into();
        // Before anything is opened for a format that is refused.
        check_keys(tag, &format)?;
        let mut unbound =
            if self.is_bound(tag, &format)? { None } else { Some(self.check_format(of_tag, tag, &format).await?) };
        let id_max = options.id_max.unwrap_or(ID_MAX).min(format.id_max());
        let options = SequenceOptions { id_max: (id_max < ID_MAX).then_some(id_max), ..options };
        let source = match self.open_source(tag, sub, options, &format).await {
            // Another program has bound a format meanwhile. A server then gives no numbers of the tag until this
            // program says that it has the same one. It does so here, once.
            Err(error) if unbound.as_ref().is_some_and(|unbound| !unbound.is_empty()) && is_refused(&error) => {
                unbound = Some(self.check_format(of_tag, tag, &format).await?);
                self.open_source(tag, sub, options, &format).await?
            }
            opened => opened?,
        };
        if let Some(unbound) = unbound {
            self.bind_format(of_tag, tag, unbound).await?;
            self.note_bound(tag, &format);
        }
        Ok(Formatted { source, format })
    }

    /// What the texts of a tag are made from. Whatever may be wrong with the tag shows now.
    async fn open_source(
        &self,
        tag: &str,
        sub: Option<&str>,
        options: SequenceOptions,
        format: &Format,
    ) -> Result<Source, Error> {
        if format.restart() == Restart::Never {
            let sequence = match sub {
                None => self.sequence(tag, options).await?,
                Some(sub) => self.sequence_of(tag, sub, options).await?,
            };
            return Ok(Source::Sequence(self.clone(), sequence));
        }
        if let Some(sub) = sub {
            // With a period behind it anything would look like a name.
            sub_tag(tag, sub).map_err(|source| ErrorKind::Store {
                name: tag.chars().take(32).collect(),
                source: Arc::new(source),
            })?;
        }
        let periods = Periods { ids: self.clone(), tag: tag.to_owned(), sub: sub.map(str::to_owned), options };
        periods.sequence(format, self.now_ms()).await?;
        Ok(Source::Periods(Arc::new(periods)))
    }

    /// [`Ids::formatted`] for threads that run no asynchronous code.
    ///
    /// # Errors
    /// As [`Ids::formatted`].
    ///
    /// # Panics
    /// Inside asynchronous code of tokio's.
    pub fn formatted_blocking(
        &self,
        tag: &str,
        sub: Option<&str>,
        options: SequenceOptions,
        format: impl Into<Arc<Format>>,
    ) -> Result<Formatted, Error> {
        self.block_on(tag, self.formatted(tag, sub, options, format))
    }

    /// The ids of a snowflake as a format shows them. The date in a text is that of its id's own tick.
    ///
    /// A gene takes the lowest bits of the layout's sequence: the namespace is bound to the layout
    /// [without them](Layout::without_gene), and what is shown without a key is an id of the layout as it is given.
    ///
    /// The format is bound to the namespace as one is to a [tag](Ids::formatted), in the store of the sequences.
    /// Without such a store nothing is compared.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use unalike::{Format, FormatOptions, Ids, Layout, SnowflakeOptions};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = Arc::new(unalike_memory::MemoryStore::default());
    /// # let ids = Ids::builder().leases(store).build().await?;
    /// let format = Format::new(&FormatOptions { gene_bits: 4, ..FormatOptions::default() })?;
    /// let flakes = ids.formatted_snowflake("web", SnowflakeOptions::new(Layout::TWITTER), format).await?;
    /// let id = flakes.next_number(Some(37)).await?;
    /// assert_eq!(id % 16, 37 % 16);
    /// assert_eq!(Layout::TWITTER.unpack(id)?.sequence, 5); // the gene is its lowest 4 bits
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::FormatMisfit`], and as [`Ids::snowflake`].
    pub async fn formatted_snowflake(
        &self,
        namespace: &str,
        options: SnowflakeOptions,
        format: impl Into<Arc<Format>>,
    ) -> Result<Formatted, Error> {
        let format = format.into();
        let gene_bits = format.gene_bits();
        let layout = options.layout.without_gene(gene_bits).ok_or_else(|| ErrorKind::FormatMisfit {
            name: namespace.to_owned(),
            source: FormatMisfit::Gene { gene_bits },
        })?;
        // Before anything is opened.
        check_layout(namespace, layout, &format)?;
        if self.has_segments() {
            let unbound = self.check_format(of_snowflake, namespace, &format).await?;
            self.bind_format(of_snowflake, namespace, unbound).await?;
        }
        self.snowflake(namespace, SnowflakeOptions { layout, ..options }).await?.formatted(format)
    }

    /// [`Ids::formatted_snowflake`] for threads that run no asynchronous code.
    ///
    /// # Errors
    /// As [`Ids::formatted_snowflake`].
    ///
    /// # Panics
    /// Inside asynchronous code of tokio's.
    pub fn formatted_snowflake_blocking(
        &self,
        namespace: &str,
        options: SnowflakeOptions,
        format: impl Into<Arc<Format>>,
    ) -> Result<Formatted, Error> {
        self.block_on(namespace, self.formatted_snowflake(namespace, options, format))
    }
}

impl Snowflake {
    /// The ids of this generator as a format shows them. Its layout is the one
    /// [without the gene](Layout::without_gene), if the format has one; [`Ids::formatted_snowflake`] sees to that, and
    /// compares the format with the one that the store has. Here nothing is compared.
    ///
    /// # Errors
    /// [`ErrorKind::FormatMisfit`].
    pub fn formatted(&self, format: impl Into<Arc<Format>>) -> Result<Formatted, Error> {
        let format = format.into();
        check_layout(self.namespace(), self.layout(), &format)?;
        Ok(Formatted { source: Source::Snowflake(self.clone()), format })
    }
}

fn is_refused(error: &Error) -> bool {
    matches!(error.store_error(), Some(unalike_storage::StoreError::Refused { .. }))
}

fn of_tag(tag: &str) -> FormatOwner<'_> {
    FormatOwner::Tag(tag)
}

fn of_snowflake(namespace: &str) -> FormatOwner<'_> {
    FormatOwner::Snowflake(namespace)
}

/// Whether a format can show every id of a layout, and none of them as another.
fn check_layout(namespace: &str, layout: Layout, format: &Format) -> Result<(), Error> {
    check_keys(namespace, format)?;
    let (layout_max, format_max) = (layout.id_max(), format.id_max());
    let misfit = if format.restart() != Restart::Never {
        FormatMisfit::Restart
    } else if format.gene_bits() > 0 && layout.order() == FieldOrder::SequenceFirst {
        FormatMisfit::Gene { gene_bits: format.gene_bits() }
    } else if layout_max > format_max {
        FormatMisfit::Width { layout_max, format_max }
    } else {
        return Ok(());
    };
    Err(ErrorKind::FormatMisfit { name: namespace.to_owned(), source: misfit }.into())
}

fn check_keys(name: &str, format: &Format) -> Result<(), Error> {
    let (permuted_bits, _) = format.shape().key_widths();
    if format.key_checks().next().is_none() || permuted_bits >= PERMUTED_BITS_MIN {
        return Ok(());
    }
    Err(ErrorKind::FormatMisfit { name: name.to_owned(), source: FormatMisfit::HidesNothing { permuted_bits } }.into())
}

impl Formatted {
    /// The tag or namespace.
    #[must_use]
    pub fn name(&self) -> &str {
        match &self.source {
            Source::Sequence(_, sequence) => sequence.tag(),
            Source::Periods(periods) => &periods.tag,
            Source::Snowflake(snowflake) => snowflake.namespace(),
        }
    }

    /// How they are shown; and how what was shown is [read](Format::read).
    #[must_use]
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// What a text says: [`Format::read`], and of a snowflake also what its [layout](issued_by) says.
    ///
    /// # Errors
    /// [`Misread`].
    pub fn read(&self, text: &str) -> Result<Issued, Misread> {
        let issued = self.format.read(text)?;
        match &self.source {
            Source::Snowflake(snowflake) => issued_by(snowflake.layout(), issued),
            Source::Sequence(..) | Source::Periods(_) => Ok(issued),
        }
    }

    /// The next id as text. The shard key is given if the format [needs one](Format::needs_shard_key), and only then.
    ///
    /// # Errors
    /// [`ErrorKind::Format`] for a shard key that is missing or not wanted, which costs no id; and as
    /// [`Sequence::next`] or [`Snowflake::next`].
    pub async fn next(&self, shard_key: Option<u64>) -> Result<String, Error> {
        self.take(1, shard_key).await?.only_text()
    }

    /// [`Formatted::next`] for threads that run no asynchronous code.
    ///
    /// # Errors
    /// As [`Formatted::next`].
    ///
    /// # Panics
    /// Inside asynchronous code of tokio's, when it has to wait.
    pub fn next_blocking(&self, shard_key: Option<u64>) -> Result<String, Error> {
        self.take_blocking(1, shard_key)?.only_text()
    }

    /// The number that is shown for the next id, for callers that write it themselves.
    ///
    /// # Errors
    /// [`ErrorKind::FormatMisfit`] where the counter starts again, and as [`Formatted::next`].
    pub async fn next_number(&self, shard_key: Option<u64>) -> Result<u64, Error> {
        only(&self.take_numbers(1, shard_key).await?)
    }

    /// [`Formatted::next_number`] for threads that run no asynchronous code.
    ///
    /// # Errors
    /// As [`Formatted::next_number`].
    ///
    /// # Panics
    /// Inside asynchronous code of tokio's, when it has to wait.
    pub fn next_number_blocking(&self, shard_key: Option<u64>) -> Result<u64, Error> {
        only(&self.take_numbers_blocking(1, shard_key)?)
    }

    /// The numbers that are shown for the next `count` ids (1 or more). They share the shard key.
    ///
    /// # Errors
    /// [`ErrorKind::CountZero`] and as [`Formatted::next_number`].
    pub async fn take_numbers(&self, count: u32, shard_key: Option<u64>) -> Result<Vec<u64>, Error> {
        // Before ids are taken that would be lost.
        self.check_numbers()?;
        self.take(count, shard_key).await?.numbers()
    }

    /// [`Formatted::take_numbers`] for threads that run no asynchronous code.
    ///
    /// # Errors
    /// As [`Formatted::take_numbers`].
    ///
    /// # Panics
    /// Inside asynchronous code of tokio's, when it has to wait.
    pub fn take_numbers_blocking(&self, count: u32, shard_key: Option<u64>) -> Result<Vec<u64>, Error> {
        self.check_numbers()?;
        self.take_blocking(count, shard_key)?.numbers()
    }

    /// The next `count` ids (1 or more), in the order in which they were given: ascending, as ids, and in texts of one
    /// width without a key. They share the shard key.
    ///
    /// # Errors
    /// [`ErrorKind::CountZero`] and as [`Formatted::next`].
    pub async fn take(&self, count: u32, shard_key: Option<u64>) -> Result<FormattedBatch, Error> {
        self.check_shard_key(shard_key)?;
        let (ids, issued_at) = match &self.source {
            Source::Sequence(clock, sequence) => {
                let now_ms = clock.now_ms();
                (sequence.take(count).await?, IssuedAt::Once(now_ms))
            }
            Source::Periods(periods) => {
                let now_ms = periods.ids.now_ms();
                (periods.take(&self.format, now_ms, count).await?, IssuedAt::Once(now_ms))
            }
            Source::Snowflake(snowflake) => (snowflake.take(count).await?, IssuedAt::OwnTick(snowflake.layout())),
        };
        Ok(self.batch(ids, issued_at, shard_key))
    }

    /// [`Formatted::take`] for threads that run no asynchronous code.
    ///
    /// # Errors
    /// As [`Formatted::take`].
    ///
    /// # Panics
    /// Inside asynchronous code of tokio's.
    pub fn take_blocking(&self, count: u32, shard_key: Option<u64>) -> Result<FormattedBatch, Error> {
        self.check_shard_key(shard_key)?;
        let (ids, issued_at) = match &self.source {
            Source::Sequence(clock, sequence) => {
                let now_ms = clock.now_ms();
                (sequence.take_blocking(count)?, IssuedAt::Once(now_ms))
            }
            Source::Periods(periods) => {
                let now_ms = periods.ids.now_ms();
                let batch = periods.ids.block_on(&periods.tag, periods.take(&self.format, now_ms, count))?;
                (batch, IssuedAt::Once(now_ms))
            }
            Source::Snowflake(snowflake) => (snowflake.take_blocking(count)?, IssuedAt::OwnTick(snowflake.layout())),
        };
        Ok(self.batch(ids, issued_at, shard_key))
    }

    fn batch(&self, ids: Batch, issued_at: IssuedAt, shard_key: Option<u64>) -> FormattedBatch {
        FormattedBatch { ids, name: self.name().into(), format: Arc::clone(&self.format), issued_at, shard_key }
    }

    /// Refuses before an id is taken what would be refused afterwards.
    fn check_shard_key(&self, shard_key: Option<u64>) -> Result<(), Error> {
        let source = match (self.format.needs_shard_key(), shard_key) {
            (true, None) => WriteError::ShardKeyMissing,
            (false, Some(_)) => WriteError::ShardKeyUnwanted,
            (true, Some(_)) | (false, None) => return Ok(()),
        };
        Err(ErrorKind::Format { name: self.name().to_owned(), source }.into())
    }

    fn check_numbers(&self) -> Result<(), Error> {
        check_numbers(self.name(), &self.format)
    }
}

/// That of a batch of one.
fn only(numbers: &[u64]) -> Result<u64, Error> {
    numbers.first().copied().ok_or_else(|| ErrorKind::CountZero.into())
}

fn check_numbers(name: &str, format: &Format) -> Result<(), Error> {
    match format.restart() {
        Restart::Never => Ok(()),
        _ => Err(ErrorKind::FormatMisfit { name: name.to_owned(), source: FormatMisfit::NumbersRepeat }.into()),
    }
}

impl Periods {
    /// Ids of the period in which an instant lies. The first call of a period looks its row up, and that is part of the
    /// time that a call waits.
    async fn take(&self, format: &Format, now_ms: u64, count: u32) -> Result<Batch, Error> {
        let sub = self.sub(format, now_ms)?;
        let open = sub_tag(&self.tag, &sub).ok().and_then(|name| self.ids.sequence_if_open(&name));
        match open {
            Some(sequence) => sequence.take(count).await,
            None => {
                let both = async { self.sequence(format, now_ms).await?.take(count).await };
                self.ids.within_one_wait(&self.tag, both).await
            }
        }
    }

    /// The sequence of the period in which an instant lies.
    async fn sequence(&self, format: &Format, now_ms: u64) -> Result<Sequence, Error> {
        self.ids.sequence_of(&self.tag, &self.sub(format, now_ms)?, self.options).await
    }

    /// The sub-key of that period.
    fn sub(&self, format: &Format, now_ms: u64) -> Result<String, Error> {
        let period = format
            .period(now_ms)
            .map_err(|source| ErrorKind::Format { name: self.tag.clone(), source })?
            .unwrap_or_default();
        // A period holds no @, so that neither two sub-keys nor two periods ever share a name.
        Ok(format!("{}@{period}", self.sub.as_deref().unwrap_or_default()))
    }
}

impl FormattedBatch {
    /// How many ids it holds.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.ids.len()
    }

    /// Whether it holds none; a batch that a call answered never does.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The ids as texts.
    ///
    /// # Errors
    /// [`ErrorKind::Format`] for a date after the year 9999.
    pub fn texts(&self) -> Result<Vec<String>, Error> {
        let mut texts = Vec::with_capacity(usize::try_from(self.len()).unwrap_or(0));
        self.each_text(|text| texts.push(text.to_owned()))?;
        Ok(texts)
    }

    /// Shows one text after the other, without an allocation for each.
    ///
    /// # Errors
    /// As [`FormattedBatch::texts`].
    pub fn each_text(&self, mut show: impl FnMut(&str)) -> Result<(), Error> {
        let mut text = String::new();
        for id in &self.ids {
            text.clear();
            let issued_ms = self.issued_ms(id)?;
            self.format.write_to(&mut text, id, issued_ms, self.shard_key).map_err(|source| self.refused(source))?;
            show(&text);
        }
        Ok(())
    }

    /// The numbers that the ids are shown by.
    ///
    /// # Errors
    /// [`ErrorKind::FormatMisfit`] where the counter starts again.
    pub fn numbers(&self) -> Result<Vec<u64>, Error> {
        check_numbers(&self.name, &self.format)?;
        let number =
            |id| self.format.number(id, self.issued_ms(id)?, self.shard_key).map_err(|source| self.refused(source));
        self.ids.iter().map(number).collect()
    }

    fn issued_ms(&self, id: u64) -> Result<u64, Error> {
        match self.issued_at {
            IssuedAt::Once(now_ms) => Ok(now_ms),
            IssuedAt::OwnTick(layout) => {
                let refused = |source| ErrorKind::Layout { name: self.name.to_string(), source };
                Ok(layout.tick_start_ms(layout.unpack(id).map_err(refused)?.ticks))
            }
        }
    }

    fn refused(&self, source: WriteError) -> Error {
        ErrorKind::Format { name: self.name.to_string(), source }.into()
    }

    fn only_text(&self) -> Result<String, Error> {
        let mut only = String::new();
        self.each_text(|text| only.push_str(text))?;
        Ok(only)
    }
}
