//! `unalike tags import`: tags of another store go on in this one.
//!
//! The order of the steps is what matters. A tag is first ended in the other store, in the transaction that reads it,
//! and only then created here, or raised, from the next number on: at no moment can both grant the same number, whoever
//! goes on asking the other store. (With `--source-stopped` nobody does, and it is only read.) What was read is written
//! down in between, in a file: should the command break off there, `--at` with that number finishes the job, as the
//! other store knows it no more. Before a tag is ended the file says how far it had got, as the step that reads it may
//! be the last one of this process. Of a few tags the number is printed, too; many are brought by the thousand, in one
//! transaction each where a store can. The sub-keys of a tag are listed again when it has ended: from then on no new
//! one is made.
//!
//! What decides a tag's numbers beside its record is not carried, and so it is refused, of all tags before the first
//! one is ended: names that the other store takes for one, numbers that it shares with others, digits in front, an end
//! of its own. `--names-as-written` and `--at` are how an operator says that nothing of it matters. The format that a
//! tag was shown in is carried: it is compared before anything is ended, and bound here when the tag is ended there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use unalike::storage::{
    FormatOwner, PublicTags, SegmentStore, ShellWord, StoreError, Stripe, TagOptions, TagRecord, UnboundFormat,
    check_carried_format, split_tag, validate_new_tag,
};
use unalike::{Clock as _, ID_MAX, SystemClock};
use unalike_stores::StoreUrl;

use crate::commands::arguments::ImportArguments;
use crate::commands::print::{PAGE, Table, print};
use crate::config::Config;
use crate::config::names::{plain_tag, stored_name};
use crate::config::sources;
use crate::service::stores::{self, Purpose, Stores};
use crate::service::tags::{RAISE_MAX, check_raise, create_as_can_be};

const COLUMNS: [&str; 5] = ["TAG", "SUB", "LAST THERE", "NEXT HERE", "DONE"];

/// Of more tags than this the table shows only those of which there is something to say, and counts the others.
const ROWS_MAX: u64 = 20;

/// What is done with a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TagOutcome {
    Created,
    CreatedOtherwise,
    Raised,
    RaisedOtherwise,
    /// And not ended there.
    FurtherOn,
    EndedFurtherOn,
    EndedBefore,
    Missing,
}

impl TagOutcome {
    fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::CreatedOtherwise => "created, with a step of this store's own",
            Self::Raised => "raised",
            Self::RaisedOtherwise => "raised; its mode here is another one",
            Self::FurtherOn => "was here, further on",
            Self::EndedFurtherOn => "ended there; was here, further on",
            Self::EndedBefore => "was ended there before",
            Self::Missing => "ended there, missing here",
        }
    }

    /// Whether it is here as it was before.
    fn is_nothing_here(self) -> bool {
        matches!(self, Self::FurtherOn | Self::EndedFurtherOn | Self::EndedBefore | Self::Missing)
    }
}

/// `unalike tags import`
pub(crate) async fn import(config: &Config, arguments: &ImportArguments) -> anyhow::Result<()> {
    for tag in &arguments.tags {
        plain_tag(tag)?;
    }
    ensure!(
        arguments.at.is_none() || arguments.tags.len() == 1,
        "--at is a number of one tag: name only that one, with --tag"
    );
    if let Some(at) = arguments.at {
        ensure!((1..=ID_MAX).contains(&at), "--at is {at}, it must be 1 to {ID_MAX}");
    }
    let url = sources::source(&arguments.from, config, arguments.source_stopped)?;
    let source = async || {
        let source = stores::open_one(&url, false).await?;
        anyhow::Ok(Arc::new(PublicTags::new(source)) as Arc<dyn SegmentStore>)
    };
    let (source, target) = if url.is_file() {
        // Nothing is begun for the tags of a file that is not there.
        let source = source().await?;
        (source, Stores::open(config, Purpose::Command).await?)
    } else {
        // Tables of another system may lie beside the store's own, which says what server that is.
        let target = Stores::open(config, Purpose::Command).await?;
        (source().await?, target)
    };
    if let Err(error) = target.check_other(&url, &*source, arguments.source_stopped).await {
        source.close().await;
        target.close().await;
        return Err(error.context("nothing was changed"));
    }
    let mut import = Import {
        source: Arc::clone(&source),
        target: Arc::clone(target.segments()),
        arguments,
        store: config.store_flags(),
        unshown: unshown(config, arguments),
        stripe: None,
        table: Table::new(COLUMNS),
        found: 0,
        counts: BTreeMap::new(),
        journal: None,
        progress: ProgressBar::hidden(),
    };
    let done = import.run().await;
    import.progress.finish_and_clear();
    let printed = import.report(&url.to_string(), done.is_ok());
    source.close().await;
    target.close().await;
    if let Some(journal) = import.journal.take() {
        journal.end(done.is_ok());
    }
    done?;
    printed?;
    let unfinished = import.counts.get(&TagOutcome::Missing).copied().unwrap_or_default();
    ensure!(
        unfinished == 0,
        "{unfinished} tags were ended in {url} before and are not here: find out what it granted, and bring each with --tag and \
         --at"
    );
    Ok(())
}

/// What was read of the tags that are ended in the source and not here yet.
struct Journal {
    path: PathBuf,
}

impl Journal {
    fn begin() -> anyhow::Result<Self> {
        let name = format!("unalike-import-{}.txt", SystemClock.now_ms());
        let path = std::path::absolute(name)?;
        File::create_new(&path).with_context(|| {
            format!("{} cannot be made, where the numbers of tags that are under way are written down", path.display())
        })?;
        let journal = Self { path };
        // Its name outlasts a loss of power, too.
        journal.write("")?;
        Ok(journal)
    }

    /// Has these lines and no others; those before, if it breaks off. A whole file is always there.
    fn write(&self, lines: &str) -> anyhow::Result<()> {
        let written = || -> std::io::Result<()> {
            let new = self.path.with_extension("new");
            let mut file = File::create(&new)?;
            file.write_all(lines.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&new, &self.path)?;
            self.path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
        };
        written().with_context(|| format!("{} cannot be written; its lines are: {lines}", self.path.display()))
    }

    /// Leaves it to whoever has to finish what broke off.
    fn end(self, is_done: bool) {
        let holds_nothing = std::fs::metadata(&self.path).is_ok_and(|file| file.len() == 0);
        if is_done || holds_nothing {
            let _ = std::fs::remove_file(&self.path);
        } else {
            let path = self.path.display();
            say(&format!(
                "{path} says of each tag that may be ended in the source and is not here yet how far it had got, and how to finish it"
            ));
        }
    }
}

/// What is done with each tag, all of them one step after the other.
#[derive(Clone, Copy)]
enum Step {
    Check,
    Bring,
}

struct Import<'a> {
    source: Arc<dyn SegmentStore>,
    target: Arc<dyn SegmentStore>,
    arguments: &'a ImportArguments,
    /// The flags that name the store, for commands that finish what broke off.
    store: String,
    /// What such a command does not show, as a remark of the shell.
    unshown: &'static str,
    /// What the source is recorded to be.
    stripe: Option<Stripe>,
    table: Table<5>,
    /// How many tags are wanted and there, as far as it was looked.
    found: u64,
    /// How many tags became what.
    counts: BTreeMap<TagOutcome, u64>,
    /// Where tags are ended.
    journal: Option<Journal>,
    progress: ProgressBar,
}

impl Import<'_> {
    /// Whether they are summed up, and not told of one by one.
    fn has_many(&self) -> bool {
        self.found > ROWS_MAX
    }

    async fn run(&mut self) -> anyhow::Result<()> {
        self.check_names().await.context("nothing was changed")?;
        self.stripe = self.source.stripe().await.context("the source cannot be read")?;
        self.bring_wanted(Step::Check).await.context("nothing was changed")?;
        if self.found > 0 && !self.arguments.source_stopped {
            self.journal = Some(Journal::begin().context("nothing was changed")?);
        }
        if self.has_many() {
            self.progress = progress_bar(self.found);
        }
        self.bring_wanted(Step::Bring).await
    }

    /// Says what was done.
    fn report(&self, url: &str, is_done: bool) -> anyhow::Result<()> {
        if !self.table.is_empty() {
            self.table.print()?;
        }
        if self.has_many() {
            for (done, count) in &self.counts {
                let tags = if *count == 1 { "tag" } else { "tags" };
                print(&format!("{count} {tags}: {}\n", done.name()))?;
            }
        }
        if is_done && self.counts.is_empty() {
            print(&format!("{url} has no tags to bring: nothing was changed\n"))?;
        } else if is_done && self.counts.keys().all(|done| done.is_nothing_here()) {
            match self.counts.get(&TagOutcome::EndedFurtherOn) {
                None => say("nothing was changed: none of them had to be created or raised"),
                Some(1) => say(&format!("1 tag was ended in {url}; here none had to be created or raised")),
                Some(count) => say(&format!("{count} tags were ended in {url}; here none had to be created or raised")),
            }
        }
        Ok(())
    }

    /// Whether the source tells all names apart, as tags here do.
    async fn check_names(&self) -> anyhow::Result<()> {
        let folds = self.source.folds_names().await.context("the source cannot be read")?;
        if let Some(what) = folds.filter(|_| !self.arguments.names_as_written) {
            bail!(
                "the source takes names for one that differ in letter case, accents or the like ({what}), and here each is a tag \
                 of its own, from 1 on: a client that writes ORDER for the row order would be given its numbers again. See that \
                 every client writes each name as it is there, and say so with --names-as-written"
            );
        }
        Ok(())
    }

    /// Does this with the tags that are wanted.
    async fn bring_wanted(&mut self, step: Step) -> anyhow::Result<()> {
        let arguments = self.arguments;
        if let Some(at) = arguments.at {
            return match arguments.tags.first() {
                Some(tag) => self.one(step, &stored_name(tag, arguments.sub.as_deref())?, Some(at)).await,
                None => Ok(()),
            };
        }
        for tag in &arguments.tags {
            self.one(step, tag, None).await?;
            // Sub-keys come right after their tag.
            self.bring_listed(step, Some(tag.clone()), |name| split_tag(name).0 == tag).await?;
        }
        if arguments.tags.is_empty() {
            self.bring_listed(step, None, |_| true).await?;
        }
        Ok(())
    }

    /// Brings the tags after this one, as long as they are wanted.
    async fn bring_listed(
        &mut self,
        step: Step,
        mut after: Option<String>,
        is_wanted: impl Fn(&str) -> bool,
    ) -> anyhow::Result<()> {
        loop {
            let page = self.source.tags(after.as_deref(), PAGE).await.context("the source cannot be read")?;
            let Some(last) = page.last() else { return Ok(()) };
            let before = after.replace(last.tag.clone());
            let wanted: Vec<TagRecord> = page.iter().take_while(|record| is_wanted(&record.tag)).cloned().collect();
            match step {
                Step::Check => self.check_page(&wanted).await?,
                Step::Bring => {
                    self.bring_page(&wanted).await?;
                    self.bring_late(before, &wanted).await?;
                }
            }
            if wanted.len() < page.len() {
                return Ok(());
            }
        }
    }

    /// Brings the sub-keys that were made after this page was listed, and before their tags on it were ended. Later
    /// none is made, so nothing is to be listed a third time.
    async fn bring_late(&mut self, mut after: Option<String>, page: &[TagRecord]) -> anyhow::Result<()> {
        let is_live = |record: &&TagRecord| record.watermark < ID_MAX;
        let known: BTreeSet<&str> = page.iter().map(|record| record.tag.as_str()).collect();
        let ended: BTreeSet<&str> = page.iter().filter(is_live).map(|record| record.tag.as_str()).collect();
        let Some(last) = page.last().filter(|_| !self.arguments.source_stopped) else { return Ok(()) };
        loop {
            let listed = self.source.tags(after.as_deref(), PAGE).await.context("the source cannot be read")?;
            let Some(listed_up_to) = listed.last() else { return Ok(()) };
            after = Some(listed_up_to.tag.clone());
            for record in listed.iter().take_while(|record| record.tag <= last.tag).filter(is_live) {
                let (tag, sub) = split_tag(&record.tag);
                if sub.is_some() && ended.contains(tag) && !known.contains(record.tag.as_str()) {
                    self.one(Step::Bring, &record.tag, None).await?;
                }
            }
            if listed.last().is_some_and(|listed| listed.tag >= last.tag) {
                return Ok(());
            }
        }
    }

    /// Whether each of these tags can go on here as what it is there.
    async fn check_page(&mut self, page: &[TagRecord]) -> anyhow::Result<()> {
        let names: Vec<String> = page.iter().map(|record| record.tag.clone()).collect();
        let beyond = self.source.beyond_records(&names).await.context("the source cannot be read")?;
        let mut last = None;
        for (at, record) in page.iter().enumerate() {
            self.found += 1;
            let known = beyond.as_ref().and_then(|beyond| beyond.get(at));
            self.check(&record.tag, Some(record), None, known).await?;
            let tag = split_tag(&record.tag).0;
            if last.replace(tag) != Some(tag) {
                self.carried_format(tag).await?;
            }
        }
        Ok(())
    }

    /// What is bound of a tag's format in the source and not here. Sub-keys are shown as their tags are.
    async fn carried_format(&self, tag: &str) -> anyhow::Result<UnboundFormat> {
        let carried = check_carried_format(&*self.source, &*self.target, FormatOwner::Tag(tag)).await;
        let shown = shown(tag);
        carried.map_err(|error| {
            let what = match error {
                StoreError::FormatBound { .. } => format!(
                    "{shown} has another format here than in the source: bind that of the source here first (its \
                     configuration, and `unalike tags format --accept`), or import it into a store that never showed it"
                ),
                _ => format!("the format of {shown} cannot be brought"),
            };
            anyhow::Error::from(error).context(what)
        })
    }

    /// Binds here what is bound of tags' formats in the source, where they are ended: before anybody here can show ids
    /// of them, and when nobody there binds another key any more.
    async fn carry_formats<'n>(&self, names: impl Iterator<Item = &'n str>) -> anyhow::Result<()> {
        let mut last = None;
        for tag in names.map(|name| split_tag(name).0) {
            if last.replace(tag) != Some(tag) {
                let carried = self.carried_format(tag).await?;
                carried.bind(&*self.target, FormatOwner::Tag(tag)).await.context("the format was not bound")?;
            }
        }
        Ok(())
    }

    /// Brings these tags: many together, where either store can and there is nothing to be said of one of them.
    async fn bring_page(&mut self, page: &[TagRecord]) -> anyhow::Result<()> {
        let (ended, open): (Vec<&TagRecord>, Vec<&TagRecord>) =
            page.iter().partition(|record| record.watermark >= ID_MAX);
        for record in ended {
            self.bring(&record.tag, Some(record.clone()), None).await?;
            self.progress.inc(1);
        }
        let names: Vec<String> = open.iter().map(|record| record.tag.clone()).collect();
        let records = if !self.has_many() || names.is_empty() {
            None
        } else if self.arguments.source_stopped {
            Some(open.iter().map(|record| (*record).clone()).collect())
        } else {
            self.end_together(&open, &names).await?
        };
        let Some(records) = records else {
            for name in &names {
                self.one(Step::Bring, name, None).await?;
                self.progress.inc(1);
            }
            return Ok(());
        };
        self.go_on_together(&records).await?;
        if let Some(journal) = &self.journal {
            journal.write("")?;
        }
        Ok(())
    }

    /// Ends tags in the source, and writes down what they were.
    async fn end_together(&mut self, known: &[&TagRecord], names: &[String]) -> anyhow::Result<Option<Vec<TagRecord>>> {
        // Again, as the source may be in use.
        let Some(beyond) = self.source.beyond_records(names).await.context("the source cannot be read")? else {
            return Ok(None);
        };
        if beyond.iter().any(Option::is_some) {
            return Ok(None);
        }
        if let Some(journal) = &self.journal {
            journal.write(&known.iter().map(|record| self.about_to_end(record)).collect::<String>())?;
        }
        let ended = self.source.retire_tags(names).await.with_context(|| {
            let (first, last) = (names.first().map_or("", String::as_str), names.last().map_or("", String::as_str));
            format!("the tags from {first:?} to {last:?} were not ended for certain in the source; none of them was changed here")
        })?;
        let Some(records) = ended else {
            if let Some(journal) = &self.journal {
                journal.write("")?;
            }
            return Ok(None);
        };
        let mut lines = String::new();
        for record in &records {
            lines.push_str(&self.finish(&record.tag, &record.watermark.saturating_add(1).to_string()));
            lines.push('\n');
        }
        if let Some(journal) = &self.journal {
            journal.write(&lines)?;
        }
        Ok(Some(records))
    }

    /// Creates tags that are ended in the source.
    async fn go_on_together(&mut self, records: &[TagRecord]) -> anyhow::Result<()> {
        self.carry_formats(records.iter().map(|record| &*record.tag)).await?;
        let next = |record: &TagRecord| TagOptions { start: record.watermark.saturating_add(1), ..record.options };
        let wanted: Vec<(String, TagOptions)> =
            records.iter().map(|record| (record.tag.clone(), next(record))).collect();
        // One that had no number left may be among them.
        let is_open = records.iter().all(|record| record.watermark < ID_MAX);
        let created = if is_open { self.target.create_tags(&wanted).await? } else { None };
        if created.is_some() {
            let count = u64::try_from(records.len()).unwrap_or(u64::MAX);
            *self.counts.entry(TagOutcome::Created).or_default() += count;
            self.progress.inc(count);
            return Ok(());
        }
        for record in records {
            if record.watermark >= ID_MAX {
                self.bring_ended(&record.tag, Some(record.options), None).await?;
            } else {
                self.go_on(&record.tag, &record.options, Some(record.watermark), record.watermark + 1).await?;
            }
            self.progress.inc(1);
        }
        Ok(())
    }

    async fn one(&mut self, step: Step, name: &str, at: Option<u64>) -> anyhow::Result<()> {
        let known = self.known(name, at).await?;
        match step {
            Step::Check => {
                self.found += 1;
                self.check(name, known.as_ref(), at, None).await?;
                self.carried_format(split_tag(name).0).await.map(drop)
            }
            Step::Bring => {
                // Again, as the source may be in use.
                self.check(name, known.as_ref(), at, None).await?;
                self.carried_format(split_tag(name).0).await?;
                self.bring(name, known, at).await
            }
        }
    }

    /// The tag in the source; none when it was ended there and its name is gone with it.
    async fn known(&self, name: &str, at: Option<u64>) -> anyhow::Result<Option<TagRecord>> {
        match self.source.tag(name).await {
            Ok(record) => Ok(Some(record)),
            // Ended there, if its name is gone with it: whoever reads the list and does not find it knows that. To end
            // it once more finds what is left of it, or it never was.
            Err(error @ (StoreError::TagUnknown { .. } | StoreError::Refused { .. }))
                if at.is_some() && !self.is_listed(name).await.context("the source cannot be read")? =>
            {
                match self.source.retire_tag(name).await {
                    Ok(_) => Ok(None),
                    Err(_) => Err(error).with_context(|| {
                        format!("{} is not in the source, and never was: is its name spelt right?", shown(name))
                    }),
                }
            }
            Err(StoreError::TagUnknown { .. }) => {
                bail!("{} is not in the source: is its name spelt right?", shown(name))
            }
            Err(error) => Err(error).with_context(|| format!("{} cannot be read in the source", shown(name))),
        }
    }

    /// Whether the tag can go on here as what it is there; `beyond` is what decides its numbers besides its record,
    /// where the source was asked before.
    async fn check(
        &self,
        name: &str,
        known: Option<&TagRecord>,
        at: Option<u64>,
        beyond: Option<&Option<String>>,
    ) -> anyhow::Result<()> {
        let shown = shown(name);
        if let Some(known) = known {
            ensure!(
                known.tag == name,
                "the source has {shown} as {:?}: name it as it is there, and have its clients write it so",
                known.tag
            );
        }
        let here = self.target.tag(name).await;
        let is_live = known.is_some_and(|known| known.watermark < ID_MAX);
        if is_live && here.as_ref().is_ok_and(|here| here.watermark >= ID_MAX) {
            bail!(
                "{shown} was ended in the store that it is to come to ({}), and no number is left there. Was --from meant the \
                 other way round? Else import it into a store that never had it",
                self.store
            );
        }
        let is_new = matches!(here, Err(StoreError::TagUnknown { .. }));
        if let Some(at) = at.filter(|_| !self.arguments.yes) {
            let here = match here {
                Ok(record) => record.watermark,
                Err(StoreError::TagUnknown { .. }) => 0,
                Err(error) => return Err(error).with_context(|| format!("{shown} cannot be read")),
            };
            let there = known.map_or(0, |known| known.watermark);
            // What was ended there says nothing of how far it had got.
            let known = here.max(if there < ID_MAX { there } else { 0 });
            check_raise(name, known, at).context("add --yes, if it is meant")?;
        }
        if let Err(refused) = validate_new_tag(name)
            && is_new
        {
            return Err(refused)
                .with_context(|| format!("{shown} cannot be created here: rename it in the source first"));
        }
        let Some(known) = known.filter(|known| known.watermark < ID_MAX) else { return Ok(()) };
        let beyond = match (self.stripe, beyond) {
            (Some(stripe), _) => {
                Some(format!("the source is {stripe}, and the other stores of the set count the numbers between"))
            }
            (None, Some(beyond)) => beyond.clone(),
            (None, None) => self
                .source
                .beyond_record(name)
                .await
                .with_context(|| format!("{shown} cannot be read in the source"))?,
        };
        let Some(beyond) = beyond else { return Ok(()) };
        let Some(at) = at else {
            bail!(
                "{shown} cannot go on here as what it is: {beyond}. Where nobody counts its numbers any more, in any store, bring \
                 it at a number above all of them: {}",
                self.finish(name, "NUMBER")
            );
        };
        // A store of a set may count only its own numbers.
        let greatest = known.watermark.saturating_mul(self.stripe.map_or(1, |stripe| u64::from(stripe.count)));
        ensure!(at > greatest, "--at is {at}, and {shown} may have been granted up to {greatest}, as {beyond}");
        Ok(())
    }

    async fn bring(&mut self, name: &str, known: Option<TagRecord>, at: Option<u64>) -> anyhow::Result<()> {
        let shown = shown(name);
        // Behind the greatest number there is no other: it was ended, or used up.
        let Some(known) = known.as_ref().filter(|record| record.watermark < ID_MAX) else {
            return self.bring_ended(name, known.map(|record| record.options), at).await;
        };
        if let Some(at) = at.filter(|&at| at <= known.watermark) {
            bail!("--at is {at}, and {shown} was granted up to {} in the source: nothing was changed", known.watermark);
        }
        let record = if self.arguments.source_stopped { known.clone() } else { self.end(name, known).await? };
        if record.watermark >= ID_MAX {
            return self.bring_ended(name, Some(record.options), at).await;
        }
        let next = at.map_or(record.watermark + 1, |at| at.max(record.watermark + 1));
        if let Some(journal) = &self.journal {
            let finish = self.finish(name, &next.to_string());
            journal.write(&format!("{finish}\n"))?;
        }
        if !self.arguments.source_stopped && !self.has_many() {
            say(&format!(
                "{shown} is ended in the source and continues here at {next}. Should this break off, finish it with: {}",
                self.finish(name, &next.to_string())
            ));
        }
        self.go_on(name, &record.options, Some(record.watermark), next).await
    }

    /// Whether the source has a tag of this name.
    async fn is_listed(&self, name: &str) -> Result<bool, StoreError> {
        let mut after: Option<String> = None;
        loop {
            let page = self.source.tags(after.as_deref(), PAGE).await?;
            if page.iter().any(|record| record.tag == name) {
                return Ok(true);
            }
            let Some(last) = page.into_iter().next_back() else { return Ok(false) };
            after = Some(last.tag);
        }
    }

    /// A tag that was ended in the source before, so that its record does not say what was granted.
    async fn bring_ended(&mut self, name: &str, options: Option<TagOptions>, at: Option<u64>) -> anyhow::Result<()> {
        if let Some(at) = at {
            return self.go_on(name, &options.unwrap_or_default(), None, at).await;
        }
        match self.target.tag(name).await {
            Ok(record) => self.add(name, None, &record, TagOutcome::EndedBefore),
            Err(StoreError::TagUnknown { .. }) => {
                *self.counts.entry(TagOutcome::Missing).or_default() += 1;
                self.table.add([
                    split_tag(name).0.to_owned(),
                    split_tag(name).1.unwrap_or_default().to_owned(),
                    "?".to_owned(),
                    "?".to_owned(),
                    format!("{}: {}", TagOutcome::Missing.name(), self.finish(name, "NUMBER")),
                ]);
            }
            Err(error) => return Err(error).with_context(|| format!("{} cannot be read", shown(name))),
        }
        Ok(())
    }

    /// A line of the journal for a tag that is ended next: from then on the source may not say how far it had got.
    fn about_to_end(&self, known: &TagRecord) -> String {
        format!(
            "# of {} {} was the last number a moment ago, before it was to be ended in the source. If it is ended \
             there and not here, find out its last number, this or a greater one (its row there may still hold it, \
             under another name), and finish it with the number after it: {}\n",
            shown(&known.tag),
            known.watermark,
            self.finish(&known.tag, "NUMBER")
        )
    }

    /// Ends a tag in the source; its record as it was then.
    async fn end(&self, name: &str, known: &TagRecord) -> anyhow::Result<TagRecord> {
        if let Some(journal) = &self.journal {
            journal.write(&self.about_to_end(known))?;
        }
        self.source.retire_tag(name).await.with_context(|| {
            format!(
                "{} was not ended for certain in the source, where {} was its last number a moment ago; nothing was changed \
                 here. If it is ended there, find out what it granted and finish with: {}",
                shown(name),
                known.watermark,
                self.finish(name, "NUMBER")
            )
        })
    }

    /// Creates the tag here, or raises it: the numbers from `next` on are this store's.
    async fn go_on(&mut self, name: &str, options: &TagOptions, last: Option<u64>, next: u64) -> anyhow::Result<()> {
        let wanted = TagOptions { start: next, ..*options };
        let failed = || {
            format!(
                "{} did not get its numbers from {next} on: once that is mended, finish it with: {}",
                shown(name),
                self.finish(name, &next.to_string())
            )
        };
        self.carry_formats([name].into_iter()).await.with_context(failed)?;
        let (record, done) = match create_as_can_be(self.target.as_ref(), name, &wanted).await {
            Err(StoreError::TagExists { .. }) => {
                let before = self.target.tag(name).await.with_context(failed)?;
                // It was ended here meanwhile, or by the very step that ended it there.
                ensure!(
                    before.watermark < ID_MAX,
                    "{} has ended here, too, so no store grants it any more: see that the source is not this store by \
                     another name, and continue the tag under another name above {}",
                    shown(name),
                    next.saturating_sub(1)
                );
                let was_ended = last.is_some() && !self.arguments.source_stopped;
                let done = match before {
                    _ if before.options.mode != options.mode => TagOutcome::RaisedOtherwise,
                    _ if before.watermark >= next && was_ended => TagOutcome::EndedFurtherOn,
                    _ if before.watermark >= next => TagOutcome::FurtherOn,
                    _ => TagOutcome::Raised,
                };
                // Also if it is further on: a tail that is given back would take it below.
                (self.target.raise_tag(name, next).await.with_context(failed)?, done)
            }
            created => {
                let (record, as_wanted) = created.with_context(failed)?;
                (record, if as_wanted { TagOutcome::Created } else { TagOutcome::CreatedOtherwise })
            }
        };
        self.add(name, last, &record, done);
        Ok(())
    }

    fn add(&mut self, name: &str, last: Option<u64>, here: &TagRecord, done: TagOutcome) {
        *self.counts.entry(done).or_default() += 1;
        if self.has_many() && done != TagOutcome::RaisedOtherwise {
            return;
        }
        let (tag, sub) = split_tag(name);
        self.table.add([
            tag.to_owned(),
            sub.unwrap_or_default().to_owned(),
            last.map_or_else(|| "?".to_owned(), |last| last.to_string()),
            here.watermark.saturating_add(1).to_string(),
            done.name().to_owned(),
        ]);
    }

    /// The command that brings this tag from this number on, as a line for a shell: whoever may read made its name.
    fn finish(&self, name: &str, at: &str) -> String {
        let (arguments, store, unshown) = (self.arguments, &self.store, self.unshown);
        let (tag, sub) = split_tag(name);
        // Names that begin with a hyphen are no flags behind a sign of equality.
        let sub = sub.map_or_else(String::new, |sub| format!(" --sub={}", ShellWord(sub)));
        let tag = ShellWord(tag);
        let stopped = if arguments.source_stopped { " --source-stopped" } else { "" };
        let written = if arguments.names_as_written { " --names-as-written" } else { "" };
        let from = StoreUrl::new(&arguments.from).to_string();
        let from = ShellWord(&from);
        let yes = if at.parse::<u64>().is_ok_and(|at| at > RAISE_MAX) { " --yes" } else { "" };
        // Without the store the tag would go on in another one.
        format!("unalike {store} tags import --from {from} --tag={tag}{sub} --at {at}{stopped}{written}{yes}{unshown}")
    }
}

/// The remark on passwords, which no URL shows, if there are some.
fn unshown(config: &Config, arguments: &ImportArguments) -> &'static str {
    let from = StoreUrl::new(&arguments.from);
    let mut urls = config.store.iter().chain(&config.backing).chain([&from]);
    if urls.any(|url| url.text() != url.to_string()) {
        "   # with the passwords, which are not shown: write them in, or name password-file=PATH"
    } else {
        ""
    }
}

fn progress_bar(tags: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = "[{bar:40}] {pos} of {len} tags";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(tags).with_style(style)
}

/// A tag for messages.
fn shown(name: &str) -> String {
    match split_tag(name) {
        (tag, None) => format!("the tag {tag:?}"),
        (tag, Some(sub)) => format!("the sub-key {sub:?} of the tag {tag:?}"),
    }
}

/// For whoever has to mend what breaks off: to the standard error, at once.
fn say(text: &str) {
    // If nobody reads it, the table still says it.
    let _ = writeln!(std::io::stderr(), "{text}");
}
