//! `unalike doctor`: what is wrong here, what is risky, and what to do.
//!
//! It goes the way that a server goes when it starts, but for what would change something, and says what a server only
//! logs or finds out late: the limits of the system, the distance to the store, clocks that differ, tags and layouts
//! that end. What adapters warn of while they open a store is a risk here.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Display;
use std::iter;
use std::time::{Duration, Instant};

use anyhow::bail;
use serde::Serialize;
use serde_json::json;
use tokio::time::timeout;
use unalike::settings::Secrets;
use unalike::storage::{
    FormatOwner, LeaseStore, NotBegun, SegmentStore, StoreError, TagRecord, check_format, shown, split_tag,
};
use unalike::{Clock as _, ID_MAX, SystemClock};

use crate::commands::log::collected;
use crate::commands::print::{PAGE, Table, print};
use crate::config::tls::END_NEAR;
use crate::config::tokens::warn_if_open;
use crate::config::{Checked, Config};
use crate::http::connections::connections_possible;
use crate::service::stores::{Purpose, Stores};
use crate::words::{rfc3339, with_causes};

/// How often the store is asked for its median.
const ASKED: usize = 21;

/// A store that is farther away makes whoever finds nothing buffered wait.
const FAR: Duration = Duration::from_millis(20);

/// What does not answer within this time is down.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// What consists of many requests is looked at for so long.
const LOOK_MAX: Duration = Duration::from_secs(5);

/// As many tags that end are named.
const LINES_MAX: usize = 20;

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Risk,
    Wrong,
}

#[derive(Debug, Serialize)]
struct Finding {
    subject: &'static str,
    verdict: Verdict,
    finding: String,
}

/// What was found so far.
#[derive(Debug, Default)]
struct Report(Vec<Finding>);

impl Report {
    fn add(&mut self, subject: &'static str, verdict: Verdict, finding: impl Display) {
        self.0.push(Finding { subject, verdict, finding: finding.to_string() });
    }

    fn ok(&mut self, subject: &'static str, finding: impl Display) {
        self.add(subject, Verdict::Ok, finding);
    }

    fn risk(&mut self, subject: &'static str, finding: impl Display) {
        self.add(subject, Verdict::Risk, finding);
    }

    fn wrong(&mut self, subject: &'static str, finding: impl Display) {
        self.add(subject, Verdict::Wrong, finding);
    }

    /// What an error says is wrong, unless it is that the store has not begun, which is what the first start is for.
    fn failed(&mut self, subject: &'static str, error: &(dyn Error + 'static)) {
        let mut causes = iter::successors(Some(error), |error: &&(dyn Error + 'static)| (*error).source());
        if causes.any(<dyn Error>::is::<NotBegun>) {
            let said = with_causes(error);
            let why = "nothing was stored yet, as it is before the first start of a server, and nothing behind it was looked at";
            return self.risk(subject, format!("{why}: {said}"));
        }
        self.wrong(subject, with_causes(error));
    }

    /// What was logged meanwhile is a risk.
    fn logged(&mut self, subject: &'static str) {
        for line in collected() {
            self.risk(subject, line);
        }
    }

    fn count(&self, verdict: Verdict) -> usize {
        self.0.iter().filter(|finding| finding.verdict == verdict).count()
    }

    fn print(&self, is_json: bool) -> anyhow::Result<()> {
        let (wrong, risks) = (self.count(Verdict::Wrong), self.count(Verdict::Risk));
        if is_json {
            let report = json!({ "wrong": wrong, "risks": risks, "findings": self.0 });
            return print(&format!("{report:#}\n"));
        }
        let mut table = Table::new(["VERDICT", "SUBJECT", "FINDING"]);
        for Finding { subject, verdict, finding } in &self.0 {
            let verdict = match verdict {
                Verdict::Ok => "ok",
                Verdict::Risk => "RISK",
                Verdict::Wrong => "WRONG",
            };
            table.add([verdict.to_owned(), (*subject).to_owned(), finding.clone()]);
        }
        table.print()
    }
}

/// `unalike doctor`
pub(crate) async fn doctor(loaded: anyhow::Result<Config>, is_json: bool) -> anyhow::Result<()> {
    let mut report = Report::default();
    report.logged("configuration");
    match loaded {
        Ok(config) => {
            if look_at_settings(&config, &mut report) {
                look_at_system(&config, &mut report);
                look_at_stores(&config, &mut report).await;
            }
        }
        Err(error) => report.wrong("configuration", format!("{error:#}")),
    }
    report.print(is_json)?;
    match report.count(Verdict::Wrong) {
        0 => Ok(()),
        1 => bail!("one thing is wrong"),
        wrong => bail!("{wrong} things are wrong"),
    }
}

/// What the configuration says, and the files that it names. Answers whether a server would come as far as its store.
fn look_at_settings(config: &Config, report: &mut Report) -> bool {
    let Checked { tokens, tls } = match config.check() {
        Ok(checked) => checked,
        Err(error) => {
            report.wrong("configuration", format!("{error:#}"));
            return false;
        }
    };
    let what = if config.has_file { "the file is valid" } else { "the settings are valid; there is no file" };
    report.ok("configuration", what);
    let (is_open, listen) = (config.is_open().unwrap_or(false), &config.listen);
    match (is_open, config.tokens.is_some()) {
        (false, _) => report.ok("port", format!("{listen} is reached from this machine only")),
        (true, true) if tls.is_some() => {
            report.ok("port", format!("{listen} is reached by other machines in TLS, with tokens"));
        }
        (true, true) if config.insecure_no_tls => {
            let proxy = "tokens come in the clear, and a proxy is said to encrypt them (--insecure-no-tls)";
            report.ok("port", format!("{listen} is reached by other machines; {proxy}"));
        }
        (true, true) => report.risk(
            "port",
            format!(
                "{listen} is reached by other machines without encryption: tokens can be read on the way; give the server \
                 a certificate (--tls-cert, --tls-key), or put a proxy with TLS in front and say so (--insecure-no-tls)"
            ),
        ),
        (true, false) => report.risk(
            "port",
            format!("whoever reaches {listen} may take ids and change tags (--insecure-no-auth): make sure that only a proxy does"),
        ),
    }
    if let Some(tls) = tls {
        let (ends_ms, left) = (tls.validity().ends_ms(), tls.validity().left(SystemClock.now_ms()));
        if left.is_zero() {
            report.wrong("certificate", format!("it ended at {}, and clients refuse it: renew it", rfc3339(ends_ms)));
        } else {
            if left >= END_NEAR {
                report.ok("certificate", format!("it is valid until {}, and its key belongs to it", rfc3339(ends_ms)));
            }
            tls.warn_of_time();
        }
        tls.warn_if_open();
        report.logged("certificate");
    }
    if let Some(path) = &config.tokens {
        report.ok("tokens", format!("{} in {}", tokens.count(), path.display()));
        warn_if_open(path);
        tokens.warn_of_expiry();
        report.logged("tokens");
    }
    let now_ms = SystemClock.now_ms();
    for (name, options) in config.snowflakes().into_iter().flatten() {
        let ends_ms = options.layout.ends_ms();
        let (snowflake, ends) = (format!("{name:?} with the layout {}", options.layout), rfc3339(ends_ms));
        if ends_ms <= now_ms {
            report.wrong("snowflakes", format!("{snowflake} ended at {ends}: choose another (`unalike layouts`)"));
        } else if ends_ms - now_ms < 366 * DAY_MS {
            report.risk(
                "snowflakes",
                format!("{snowflake} ends at {ends}, within a year: move to another name and layout"),
            );
        } else {
            report.ok("snowflakes", format!("{snowflake} lasts until {ends}"));
        }
    }
    true
}

fn look_at_system(config: &Config, report: &mut Report) {
    let possible = connections_possible(config.connections_max);
    let logged = collected();
    if logged.is_empty() {
        report.ok("open files", format!("the limit is enough for {possible} connections"));
    }
    for line in logged {
        report.risk("open files", line);
    }
}

/// What a store answers, in time.
async fn answered<T>(work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let late = |_| Err(StoreError::unavailable(format!("no answer within {} s", ANSWER_MAX.as_secs())));
    timeout(ANSWER_MAX, work).await.unwrap_or_else(late)
}

async fn look_at_stores(config: &Config, report: &mut Report) {
    let opened = timeout(ANSWER_MAX, Stores::open(config, Purpose::Examining)).await;
    report.logged("store");
    let stores = match opened {
        Ok(Ok(stores)) => stores,
        Ok(Err(error)) => return report.failed("store", error.as_ref()),
        Err(_) => {
            return report.wrong("store", format!("{} does not open within {} s", config.store, ANSWER_MAX.as_secs()));
        }
    };
    look_at_segments(config, stores.segments().as_ref(), report).await;
    report.logged("store");
    look_at_leases(config, &stores, report).await;
    report.logged("leases");
    // One that hangs is left.
    let _ = timeout(ANSWER_MAX, stores.close()).await;
}

async fn look_at_segments(config: &Config, store: &dyn SegmentStore, report: &mut Report) {
    let (began, mut times) = (Instant::now(), Vec::with_capacity(ASKED));
    while times.len() < ASKED && (times.is_empty() || began.elapsed() < LOOK_MAX) {
        let asked = Instant::now();
        if let Err(error) = answered(store.check()).await {
            return report.failed("store", &error);
        }
        times.push(asked.elapsed());
    }
    times.sort_unstable();
    let count = times.len();
    let [median, longest] = [times.get(count / 2), times.last()].map(|time| time.copied().unwrap_or_default());
    let said = format!("{} answers within {median:.1?}, in the worst of {count} cases {longest:.1?}", config.store);
    if median > FAR {
        let waits =
            "a tag that is used up waits so long for its next numbers: put the server nearer, or let steps be larger";
        report.risk("store", format!("{said}; {waits}"));
    } else {
        report.ok("store", said);
    }
    match answered(store.identity()).await {
        Ok(Some(identity)) => {
            report.ok("store", format!("its identity is {identity}: all servers that share ids show this one"));
        }
        Ok(None) => {}
        Err(error) => report.failed("store", &error),
    }
    look_at_tags(config, store, report).await;
}

async fn look_at_tags(config: &Config, store: &dyn SegmentStore, report: &mut Report) {
    // It was checked before.
    let formats =
        Secrets::read(&config.keys).ok().and_then(|secrets| config.formats(&secrets).ok()).unwrap_or_default();
    for (tag, format) in &formats.tags {
        match answered(check_format(store, FormatOwner::Tag(tag), format.format())).await {
            Ok(_) => {}
            Err(other @ StoreError::FormatBound { .. }) => report.failed("formats", &other),
            // It is asked for its tags below, and says so there.
            Err(_) => break,
        }
    }
    let (began, mut after, mut is_whole) = (Instant::now(), None, false);
    let (mut count, mut ending, mut owners) = (0_u64, Vec::new(), BTreeSet::new());
    while !is_whole && began.elapsed() < LOOK_MAX {
        let page = match answered(store.tags(after.as_deref(), PAGE)).await {
            Ok(page) => page,
            Err(error) => return report.failed("tags", &error),
        };
        for TagRecord { tag, watermark, .. } in &page {
            let (owner, sub) = split_tag(tag);
            count += u64::from(sub.is_none());
            if config.tags.contains_key(owner) {
                owners.insert(owner.to_owned());
            }
            let id_max = formats.of_tag(owner).map_or(ID_MAX, |shown| shown.format().id_max());
            // Nine of ten numbers are granted.
            if *watermark >= id_max - id_max / 10 {
                ending.push(format!("{} was granted up to {watermark}, and ends at {id_max}", shown(tag)));
            }
        }
        is_whole = page.is_empty();
        after = page.last().map(|record| record.tag.clone());
    }
    if is_whole {
        report.ok("tags", format!("{count} of {} that there may be", config.tags_max));
    } else {
        report.ok("tags", format!("the first {count} were looked at"));
    }
    for ending in ending.iter().take(LINES_MAX) {
        report.risk("tags", format!("{ending}: begin another tag"));
    }
    if ending.len() > LINES_MAX {
        report.risk("tags", format!("{} more are near their end", ending.len() - LINES_MAX));
    }
    let unknown = config.tags.iter().filter(|(name, tag)| tag.channel.is_none() && !owners.contains(*name));
    for (name, _) in unknown.filter(|_| is_whole) {
        let finding = format!("the configuration speaks of {name:?}, and there is no such tag yet: is it misspelt?");
        report.risk("tags", finding);
    }
    if count >= config.tags_max - config.tags_max / 10 {
        report.risk(
            "tags",
            "there may be few more: raise tags_max, or keep requests from creating them (create_tags = false)",
        );
    }
}

async fn look_at_leases(config: &Config, stores: &Stores, report: &mut Report) {
    let leases = stores.leases();
    let Some(store) = leases.store() else { return report.risk("leases", leases.missing().unwrap_or_default()) };
    if let Err(error) = leases.check(config).await {
        return report.failed("leases", error.as_ref());
    }
    if let Err(error) = look_at_clocks(config, store.as_ref(), report).await {
        // What a server does without is a risk.
        return match leases.missing() {
            Some(missing) => report.risk("leases", format!("{missing}: {}", with_causes(&error))),
            None => report.failed("leases", &error),
        };
    }
    let known = match answered(store.namespaces()).await {
        Ok(known) => known,
        Err(error) => return report.failed("leases", &error),
    };
    let began = Instant::now();
    for (name, options) in config.snowflakes().into_iter().flatten().filter(|(name, _)| known.contains(name)) {
        if began.elapsed() > LOOK_MAX {
            return report.ok("leases", "the others were not looked at");
        }
        let records = match answered(store.leases(&name)).await {
            Ok(records) => records,
            Err(error) => return report.failed("leases", &error),
        };
        let now_ms = SystemClock.now_ms();
        let running = records.iter().filter(|record| record.lease.valid_until_ms > now_ms).count();
        let workers = usize::try_from(options.layout.workers()).unwrap_or(usize::MAX);
        let said = format!("{running} of {workers} workers of {name:?} are leased");
        if running >= workers - workers / 5 {
            let few = "a server that starts may find none; take a layout with more of them";
            report.risk("leases", format!("{said}: {few}"));
        } else {
            report.ok("leases", said);
        }
    }
}

/// How far this clock is from the store's, when half of the way is taken off.
async fn look_at_clocks(config: &Config, store: &dyn LeaseStore, report: &mut Report) -> Result<(), StoreError> {
    let (asked, before_ms) = (Instant::now(), SystemClock.now_ms());
    let Some(store_ms) = answered(store.clock_ms()).await? else { return Ok(()) };
    let way_ms = u64::try_from(asked.elapsed().as_millis()).unwrap_or(u64::MAX);
    let here_ms = before_ms.saturating_add(way_ms / 2);
    let (apart_ms, limit_ms, error_ms) = (here_ms.abs_diff(store_ms), config.lease_skew_max_ms, way_ms / 2 + 1);
    let side = if here_ms >= store_ms { "ahead of" } else { "behind" };
    let said = format!("this clock is {apart_ms} ms {side} that of the lease store, give or take {error_ms} ms");
    if apart_ms > limit_ms.saturating_add(error_ms) {
        report.wrong("clock", format!("{said}, and {limit_ms} ms is the limit (lease_skew_max_ms): set it"));
    } else if apart_ms > limit_ms / 2 {
        let advice = "see to it that both are synchronised";
        report.risk("clock", format!("{said}, more than half of the limit of {limit_ms} ms: {advice}"));
    } else {
        report.ok("clock", said);
    }
    Ok(())
}
