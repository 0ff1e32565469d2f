//! `unalike tags import`: tags of another store go on in this one.
//!
//! The order of the steps is what matters. A tag is first ended in the other store, in the transaction that reads it,
//! and only then created here, or raised, from the next number on: at no moment can both grant the same number, whoever
//! goes on asking the other store. (With `--source-stopped` nobody does, and it is only read.) What was read is printed
//! in between: should the command break off there, `--at` with that number finishes the job, as the other store knows
//! it no more.
//!
//! What decides a tag's numbers beside its record is not carried, and so it is refused, of all tags before the first one
//! is ended: names that the other store takes for one, numbers that it shares with others, digits in front, an end of its
//! own. `--names-as-written` and `--at` are how an operator says that nothing of it matters.

use std::io::Write as _;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use unalike::ID_MAX;
use unalike::storage::{
    PublicTags, SegmentStore, StoreError, Stripe, TagOptions, TagRecord, split_tag, validate_new_tag,
};

use crate::arguments::ImportArguments;
use crate::commands::{PAGE, Table};
use crate::config::Config;
use crate::stores::{self, Purpose, Stores};
use crate::tags::{RAISE_MAX, check_raise, plain_tag, stored_name};

const COLUMNS: [&str; 5] = ["TAG", "SUB", "LAST THERE", "NEXT HERE", "DONE"];

/// `unalike tags import`
pub(crate) async fn import(config: &Config, arguments: &ImportArguments) -> anyhow::Result<()> {
    for tag in &arguments.tags {
        plain_tag(tag)?;
    }
    ensure!(
        arguments.at.is_none() || arguments.tags.len() == 1,
        "--at is a number of one tag: name it alone, with --tag"
    );
    if let Some(at) = arguments.at {
        ensure!((1..=ID_MAX).contains(&at), "--at is {at}, it must be 1 to {ID_MAX}");
    }
    let url = stores::source(&arguments.from, config, arguments.source_stopped)?;
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
    let mut import = Import {
        source: Arc::clone(&source),
        target: Arc::clone(target.segments()),
        arguments,
        store: config.store_flags(),
        stripe: None,
        table: Table::new(COLUMNS),
        unfinished: 0,
    };
    let done = import.run().await;
    let printed = if import.table.is_empty() { Ok(()) } else { import.table.print() };
    source.close().await;
    target.close().await;
    done?;
    printed?;
    ensure!(
        import.unfinished == 0,
        "{} tags were ended in {url} before and are not here: find out what it granted, and bring each with --tag and --at",
        import.unfinished
    );
    Ok(())
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
    /// What the source is recorded to be.
    stripe: Option<Stripe>,
    table: Table<5>,
    /// Tags whose next number nobody knows.
    unfinished: usize,
}

impl Import<'_> {
    async fn run(&mut self) -> anyhow::Result<()> {
        self.check_names().await.context("nothing was changed")?;
        self.stripe = self.source.stripe().await.context("the source cannot be read")?;
        self.bring_wanted(Step::Check).await.context("nothing was changed")?;
        self.bring_wanted(Step::Bring).await
    }

    /// Whether the source tells all names apart, as tags here do.
    async fn check_names(&self) -> anyhow::Result<()> {
        let folds = self.source.folds_names().await.context("the source cannot be read")?;
        if let Some(what) = folds.filter(|_| !self.arguments.names_as_written) {
            bail!(
                "the source takes names for one that differ in letter case, accents or the like ({what}), and here each is a tag \
                 of its own, from 1 on: a client that writes ORDER for the row order would be given its numbers again. See that \
                 every client writes each name as it stands there, and say so with --names-as-written"
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
            // Sub-keys come right behind their tag.
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
            after = Some(last.tag.clone());
            for record in &page {
                if !is_wanted(&record.tag) {
                    return Ok(());
                }
                self.one(step, &record.tag, None).await?;
            }
        }
    }

    async fn one(&mut self, step: Step, name: &str, at: Option<u64>) -> anyhow::Result<()> {
        let known = self.known(name, at).await?;
        match step {
            Step::Check => self.check(name, known.as_ref(), at).await,
            Step::Bring => {
                // Again, as the source may be in use.
                self.check(name, known.as_ref(), at).await?;
                self.bring(name, known, at).await
            }
        }
    }

    /// The tag in the source; none when it was ended there and its name is gone with it.
    async fn known(&self, name: &str, at: Option<u64>) -> anyhow::Result<Option<TagRecord>> {
        match self.source.tag(name).await {
            Ok(record) => Ok(Some(record)),
            // Ended there, if its name is gone with it: whoever reads the list and does not find it knows that.
            Err(StoreError::TagUnknown { .. } | StoreError::Refused { .. })
                if at.is_some() && !self.is_listed(name).await.context("the source cannot be read")? =>
            {
                Ok(None)
            }
            Err(error) => Err(error).with_context(|| format!("{} cannot be read in the source", shown(name))),
        }
    }

    /// Whether the tag can go on here as what it is there.
    async fn check(&self, name: &str, known: Option<&TagRecord>, at: Option<u64>) -> anyhow::Result<()> {
        let shown = shown(name);
        if let Some(known) = known {
            ensure!(
                known.tag == name,
                "the source has {shown} as {:?}: name it as it stands there, and have its clients write it so",
                known.tag
            );
        }
        if let Some(at) = at.filter(|_| !self.arguments.yes) {
            let here = match self.target.tag(name).await {
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
            && let Err(StoreError::TagUnknown { .. }) = self.target.tag(name).await
        {
            return Err(refused)
                .with_context(|| format!("{shown} cannot be created here: rename it in the source first"));
        }
        let Some(known) = known.filter(|known| known.watermark < ID_MAX) else { return Ok(()) };
        let beyond = match self.stripe {
            Some(stripe) => {
                Some(format!("the source is {stripe}, and the other stores of the set count the numbers between"))
            }
            None => self
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
        // A store of a set may count its own numbers alone.
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
        if !self.arguments.source_stopped {
            say(&format!(
                "{shown} is ended in the source and goes on here at {next}. Should this break off, finish it with: {}",
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
            Ok(record) => self.add(name, None, &record, "was ended there before"),
            Err(StoreError::TagUnknown { .. }) => {
                self.unfinished += 1;
                self.table.add([
                    split_tag(name).0.to_owned(),
                    split_tag(name).1.unwrap_or_default().to_owned(),
                    "?".to_owned(),
                    "?".to_owned(),
                    format!("ended there, missing here: {}", self.finish(name, "NUMBER")),
                ]);
            }
            Err(error) => return Err(error).with_context(|| format!("{} cannot be read", shown(name))),
        }
        Ok(())
    }

    /// Ends a tag in the source; its record as it was then.
    async fn end(&self, name: &str, known: &TagRecord) -> anyhow::Result<TagRecord> {
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
        let plain = TagOptions { start: next, mode: options.mode, ..TagOptions::default() };
        let mut created = self.target.create_tag(name, &wanted).await;
        let mut done = "created";
        // Tables of other systems cannot say every step and refill.
        if matches!(created, Err(StoreError::Refused { .. } | StoreError::TagInvalid { .. })) && wanted != plain {
            created = self.target.create_tag(name, &plain).await;
            done = "created, with a step of this store's own";
        }
        let failed = || {
            format!(
                "{} did not get its numbers from {next} on: once that is mended, finish it with: {}",
                shown(name),
                self.finish(name, &next.to_string())
            )
        };
        let record = match created {
            Err(StoreError::TagExists { .. }) => {
                let before = self.target.tag(name).await.with_context(failed)?;
                done = if before.watermark >= next { "was here, further on" } else { "raised" };
                if before.options.mode != options.mode {
                    done = "raised; its mode here is another one";
                }
                // Also if it is further on: a tail that is given back would take it below.
                self.target.raise_tag(name, next).await.with_context(failed)?
            }
            created => created.with_context(failed)?,
        };
        self.add(name, last, &record, done);
        Ok(())
    }

    fn add(&mut self, name: &str, last: Option<u64>, here: &TagRecord, done: &str) {
        let (tag, sub) = split_tag(name);
        self.table.add([
            tag.to_owned(),
            sub.unwrap_or_default().to_owned(),
            last.map_or_else(|| "?".to_owned(), |last| last.to_string()),
            here.watermark.saturating_add(1).to_string(),
            done.to_owned(),
        ]);
    }

    /// The command that brings this tag from this number on.
    fn finish(&self, name: &str, at: &str) -> String {
        let (tag, sub) = split_tag(name);
        let sub = sub.map_or_else(String::new, |sub| format!(" --sub {sub:?}"));
        let stopped = if self.arguments.source_stopped { " --source-stopped" } else { "" };
        let written = if self.arguments.names_as_written { " --names-as-written" } else { "" };
        let from = if self.arguments.from.contains("://") { "URL" } else { &self.arguments.from };
        let yes = if at.parse::<u64>().is_ok_and(|at| at > RAISE_MAX) { " --yes" } else { "" };
        // Without it the tag would go on in another store.
        let store = &self.store;
        format!("unalike {store} tags import --from {from} --tag {tag:?}{sub} --at {at}{stopped}{written}{yes}")
    }
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
