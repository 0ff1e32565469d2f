//! One trial after the other on one server, and what came of each.

use std::collections::BTreeMap;
use std::fmt;

use tokio::time::timeout;

use super::{Answer, CALL_MAX, Case, Change, Client, Granted, Subject, TAG, Way};

/// All intervals that were ever granted on one store.
#[derive(Debug, Default)]
pub struct Ledger(BTreeMap<String, BTreeMap<u64, u64>>);

impl Ledger {
    /// Notes an interval.
    ///
    /// # Errors
    /// When it is empty, or has a number in common with one that was granted before.
    pub fn add(&mut self, granted: &Granted) -> Result<(), String> {
        let Granted { of, start, end } = granted;
        let known = self.0.entry(of.clone()).or_default();
        if start >= end || *start == 0 {
            return Err(format!("{of}: [{start}, {end}) is no interval of ids"));
        }
        // Those that are known have no number in common, so the one that begins last below the end ends last there.
        if let Some((first, behind)) = known.range(..end).next_back()
            && behind > start
        {
            return Err(format!("{of}: [{start}, {end}) was granted after [{first}, {behind})"));
        }
        known.insert(*start, *end);
        Ok(())
    }
}

/// What came of a trial, from the best to the worst.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// All was granted, and nothing twice.
    Safe,
    /// The server does not take the value.
    NotSet(String),
    /// The server does not start with it.
    NotStarted(String),
    /// The store granted nothing to somebody, and said so; nothing came twice.
    Refused(String),
    /// A call did not end.
    Hung(String),
    /// Something was granted twice, or is not kept.
    Twice(String),
}

impl Outcome {
    /// Whether the sweep has failed.
    #[must_use]
    pub fn is_bad(&self) -> bool {
        matches!(self, Self::Hung(_) | Self::Twice(_))
    }

    /// What was said, if anything was.
    #[must_use]
    pub fn words(&self) -> &str {
        match self {
            Self::Safe => "",
            Self::NotSet(words)
            | Self::NotStarted(words)
            | Self::Refused(words)
            | Self::Hung(words)
            | Self::Twice(words) => words,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Safe => "safe",
            Self::NotSet(_) => "not set",
            Self::NotStarted(_) => "no start",
            Self::Refused(_) => "refused",
            Self::Hung(_) => "HUNG",
            Self::Twice(_) => "TWICE",
        })
    }
}

/// One trial.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The variables, or the definition.
    pub names: Vec<String>,
    /// Their values.
    pub values: Vec<String>,
    /// How they were set; none for a definition.
    pub way: Option<Way>,
    /// What came of it.
    pub outcome: Outcome,
}

impl Trial {
    fn of(case: &Case, outcome: Outcome) -> Self {
        let (names, values, way) = match case {
            Case::Set(way, changes) => {
                let (names, values) = changes.iter().map(|change| (change.name.clone(), change.value.clone())).unzip();
                (names, values, Some(*way))
            }
            Case::Define(name, statements) => (vec![(*name).to_owned()], vec![statements.join("; ")], None),
        };
        Self { names, values, way, outcome }
    }

    /// One that came to no end, since neither the server nor a new one could be used: nothing is known then.
    #[must_use]
    pub fn broken(case: &Case, error: &anyhow::Error) -> Self {
        Self::of(case, Outcome::Hung(format!("the sweep could not go on: {error:#}")))
    }
}

/// Tries on one server.
pub struct Judge<S> {
    subject: S,
    is_control: bool,
    ledger: Ledger,
    /// The program that is connected while something is set.
    client: Option<Box<dyn Client>>,
    turn: u32,
    outcome: Outcome,
}

impl<S: Subject> Judge<S> {
    /// On a new server.
    ///
    /// # Errors
    /// When it cannot be made.
    pub async fn begin(is_control: bool) -> anyhow::Result<Self> {
        let subject = S::begin(is_control).await?;
        Ok(Self { subject, is_control, ledger: Ledger::default(), client: None, turn: 0, outcome: Outcome::Safe })
    }

    /// The server.
    pub fn subject(&mut self) -> &mut S {
        &mut self.subject
    }

    /// Does what a case says.
    ///
    /// # Errors
    /// When the server cannot be used any more, nor a new one in its place: it says nothing of the case.
    pub async fn judge(&mut self, case: &Case) -> anyhow::Result<Trial> {
        self.turn += 1;
        self.outcome = Outcome::Safe;
        match case {
            Case::Set(Way::Start, changes) => self.start(changes).await?,
            Case::Set(way, changes) => self.set(*way, changes).await?,
            Case::Define(_, statements) => self.define(statements).await?,
        }
        Ok(Trial::of(case, self.outcome.clone()))
    }

    /// Before the server starts; it is killed, and must have kept what was granted.
    async fn start(&mut self, changes: &[Change]) -> anyhow::Result<()> {
        self.let_go().await;
        match self.subject.kill_and_start(changes).await? {
            Ok(()) => {
                self.connect_and_grant().await;
                self.check_kept().await;
            }
            Err(why) => self.note(Outcome::NotStarted(why)),
        }
        self.recover().await
    }

    /// While a program is connected, and others connect.
    async fn set(&mut self, way: Way, changes: &[Change]) -> anyhow::Result<()> {
        if self.client.is_none() {
            self.recover().await?;
        }
        if let Err(why) = self.subject.set(way, changes).await? {
            self.note(Outcome::NotSet(why));
            // One of a pair may be set.
            return if changes.len() > 1 { self.recover().await } else { Ok(()) };
        }
        self.grant_twice().await;
        self.let_go().await;
        self.connect_and_grant().await;
        self.check_kept().await;
        self.recover().await
    }

    /// On a store of its own.
    async fn define(&mut self, statements: &[String]) -> anyhow::Result<()> {
        self.let_go().await;
        self.subject.renew_store().await?;
        self.ledger = Ledger::default();
        self.connect_and_grant().await;
        anyhow::ensure!(self.outcome == Outcome::Safe, "a new store grants nothing: {}", self.outcome.words());
        if let Err(why) = self.subject.define(statements).await? {
            self.note(Outcome::NotSet(why));
            return self.renew().await;
        }
        self.grant_twice().await;
        self.let_go().await;
        self.connect_and_grant().await;
        if let Err(why) = self.subject.kill_and_start(&[]).await? {
            self.note(Outcome::NotStarted(format!("afterwards: {why}")));
        } else {
            self.let_go().await;
            self.connect_and_grant().await;
        }
        self.renew().await
    }

    /// Kills the server, and has it as it was; another one takes its place if it does not serve any more.
    async fn recover(&mut self) -> anyhow::Result<()> {
        self.let_go().await;
        if let Err(why) = self.subject.kill_and_start(&[]).await? {
            self.note(Outcome::NotStarted(format!("afterwards: {why}")));
            return self.renew().await;
        }
        let after = self.serve_again().await;
        let serves = after == Outcome::Safe;
        match after {
            Outcome::Refused(why) => self.note(Outcome::Refused(format!("for good: {why}"))),
            other => self.note(other),
        }
        if serves { Ok(()) } else { self.renew().await }
    }

    /// Connects where nothing is set, and takes grants: at the third try at the latest, for a busy machine is slow.
    async fn serve_again(&mut self) -> Outcome {
        let before = std::mem::replace(&mut self.outcome, Outcome::Safe);
        for _ in 0..3 {
            self.outcome = Outcome::Safe;
            self.let_go().await;
            self.connect_and_grant().await;
            if !matches!(self.outcome, Outcome::Refused(_)) {
                break;
            }
        }
        std::mem::replace(&mut self.outcome, before)
    }

    /// Another server.
    async fn renew(&mut self) -> anyhow::Result<()> {
        self.let_go().await;
        self.subject = S::begin(self.is_control).await?;
        self.ledger = Ledger::default();
        let after = self.serve_again().await;
        anyhow::ensure!(after == Outcome::Safe, "a new server grants nothing: {}", after.words());
        Ok(())
    }

    async fn let_go(&mut self) {
        if let Some(client) = self.client.take()
            && timeout(CALL_MAX, client.close()).await.is_err()
        {
            self.note(Outcome::Hung("closing the store".to_owned()));
        }
    }

    async fn connect_and_grant(&mut self) {
        match timeout(CALL_MAX, self.subject.connect()).await {
            Ok(Ok(client)) => {
                self.client = Some(client);
                self.grant_twice().await;
            }
            Ok(Err(why)) => self.note(Outcome::Refused(why)),
            Err(_) => self.note(Outcome::Hung(format!("connecting takes more than {} s", CALL_MAX.as_secs()))),
        }
    }

    async fn grant_twice(&mut self) {
        for _ in 0..2 {
            let Some(client) = &self.client else { return };
            let Ok(answer) = timeout(CALL_MAX, client.grant(self.turn)).await else {
                return self.note(Outcome::Hung(format!("a grant takes more than {} s", CALL_MAX.as_secs())));
            };
            let Answer { granted, refusal } = answer;
            for granted in granted {
                if let Err(why) = self.ledger.add(&granted) {
                    self.note(Outcome::Twice(why));
                }
            }
            if let Some(why) = refusal {
                return self.note(Outcome::Refused(why));
            }
        }
    }

    /// What was granted must be what others see. Where nothing is granted, older data may be shown: nobody goes on from
    /// there.
    async fn check_kept(&mut self) {
        if self.outcome != Outcome::Safe {
            return;
        }
        let newest = self.ledger.0.get(TAG).and_then(|known| known.last_key_value()).map(|(_, end)| *end);
        if let Some(newest) = newest
            && let Some(kept) = self.subject.granted_up_to().await
            && kept + 1 < newest
        {
            self.note(Outcome::Twice(format!("{newest} is the end of a grant, and others see it end at {kept}")));
        }
    }

    /// The worst counts, and of two that are as bad the first.
    fn note(&mut self, outcome: Outcome) {
        if std::mem::discriminant(&outcome) != std::mem::discriminant(&self.outcome) && outcome > self.outcome {
            self.outcome = outcome;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ledger_finds_every_overlap() {
        let interval = |start, end| Granted { of: "a".to_owned(), start, end };
        for (start, end, is_right) in [
            (5, 10, false),
            (1, 6, false),
            (9, 12, false),
            (6, 7, false),
            (1, 20, false),
            (7, 7, false),
            (0, 3, false),
            (1, 5, true),
            (10, 11, true),
        ] {
            let mut ledger = Ledger::default();
            assert_eq!(ledger.add(&interval(5, 10)), Ok(()));
            assert_eq!(ledger.add(&interval(start, end)).is_ok(), is_right, "[{start}, {end})");
            assert_eq!(ledger.add(&Granted { of: "b".to_owned(), ..interval(5, 10) }), Ok(()));
        }
    }
}
