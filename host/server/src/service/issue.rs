//! One way to issue ids: whose they are, where they come from and how they are shown is decided here, before any is
//! taken.

use unalike::storage::validate_public;
use unalike::{Batch, Error, FormattedBatch, Text, encode};

use crate::config::formats::{FormatRequest, Formats, IdFormat, Notation, Refusal};
use crate::config::names::stored_name;
use crate::config::tokens::Permit;
use crate::service::Service;
use crate::service::issue_error::IssueError;
use crate::service::problem::{Kind, Problem};
use crate::service::quotas::Counted;
use crate::words::shortened;

/// The width of the greatest id of a tag of which nothing else is said, in bits.
const ID_BITS: u8 = 63;

/// Whose ids are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner<'a> {
    /// A tag, or one of its sub-keys. Those of a quick tag are the ids of the snowflake of its name.
    Tag { name: &'a str, sub: Option<&'a str> },
    /// A snowflake.
    Snowflake { name: &'a str },
}

impl<'a> Owner<'a> {
    /// A tag without a sub-key.
    pub(crate) const fn tag(name: &'a str) -> Self {
        Self::Tag { name, sub: None }
    }

    /// Its name, without the sub-key.
    pub(crate) const fn name(self) -> &'a str {
        match self {
            Self::Tag { name, .. } | Self::Snowflake { name } => name,
        }
    }
}

/// How the ids are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdForm {
    /// As they are shown, or in the notation that is asked for.
    Shown(FormatRequest),
    /// As bare numbers. Refused where what is shown of an id is not its number: bare it could be one that somebody else
    /// was shown.
    Bare,
}

/// Ids that were issued: the caller's for ever.
pub(crate) struct Issued {
    notation: Notation,
    ids: TakenIds,
}

enum TakenIds {
    One(u64),
    Plain(Batch),
    Formatted(FormattedBatch),
}

/// An id as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written<'a> {
    /// A number, in decimal.
    Number(u64),
    /// A text of one line.
    Text(&'a str),
}

impl Issued {
    /// Gives each id as it is written, until one cannot be taken.
    ///
    /// # Errors
    /// When an id cannot be shown as its format says, and what `show` answers.
    pub(crate) fn each<E: From<IssueError>>(
        &self,
        mut show: impl FnMut(Written<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        match &self.ids {
            TakenIds::One(id) => self.number(*id, &mut show),
            TakenIds::Plain(batch) => batch.iter().try_for_each(|id| self.number(id, &mut show)),
            TakenIds::Formatted(batch) if self.notation == Notation::Template => {
                let mut shown = Ok(());
                batch
                    .each_text(|text| {
                        if shown.is_ok() {
                            shown = show(Written::Text(text));
                        }
                    })
                    .map_err(IssueError::from)?;
                shown
            }
            TakenIds::Formatted(batch) => {
                let numbers = batch.numbers().map_err(IssueError::from)?;
                numbers.into_iter().try_for_each(|id| self.number(id, &mut show))
            }
        }
    }

    /// Only the numbers.
    ///
    /// # Errors
    /// When an id cannot be shown as its format says.
    pub(crate) fn into_numbers(self) -> Result<Vec<u64>, Error> {
        match self.ids {
            TakenIds::One(id) => Ok(vec![id]),
            TakenIds::Plain(batch) => Ok(batch.iter().collect()),
            TakenIds::Formatted(batch) => batch.numbers(),
        }
    }

    fn number<E: From<IssueError>>(
        &self,
        number: u64,
        show: &mut impl FnMut(Written<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.notation.text() {
            None | Some(Text::Decimal) => show(Written::Number(number)),
            Some(text) => show(Written::Text(&encode(number, text).map_err(IssueError::from)?)),
        }
    }
}

impl Service {
    /// Issues ids: 1 or more, as far as the quotas go of who wants them and of whose they are.
    ///
    /// # Errors
    /// What cannot be is refused before an id is taken. One that was taken and cannot be answered is a gap.
    pub(crate) async fn issue(
        &self,
        permit: &Permit,
        owner: Owner<'_>,
        count: u32,
        wish: IdForm,
    ) -> Result<Issued, IssueError> {
        let taken = self.quotas.take(permit, self.counted(owner), count.into()).map_err(Problem::from)?;
        let issued = self.issue_unbounded(owner, count, wish).await;
        taken.given(if issued.is_ok() { count.into() } else { 0 });
        issued
    }

    /// Whose quota ids count for.
    fn counted<'a>(&self, owner: Owner<'a>) -> Counted<'a> {
        match owner {
            Owner::Tag { name, .. } if !self.is_quick(name) => Counted::Tag(name),
            Owner::Tag { name, .. } | Owner::Snowflake { name } => Counted::Snowflake(name),
        }
    }

    async fn issue_unbounded(&self, owner: Owner<'_>, count: u32, wish: IdForm) -> Result<Issued, IssueError> {
        match owner {
            Owner::Tag { name, sub } if !self.is_quick(name) => self.issue_of_tag(name, sub, count, wish).await,
            Owner::Tag { sub: Some(sub), .. } => Err(sub_key_of_quick(sub).into()),
            Owner::Tag { name, sub: None } | Owner::Snowflake { name } => {
                self.issue_of_snowflake(name, count, wish).await
            }
        }
    }

    async fn issue_of_tag(
        &self,
        name: &str,
        sub: Option<&str>,
        count: u32,
        wish: IdForm,
    ) -> Result<Issued, IssueError> {
        let shown = self.shown(name);
        let notation = match wish {
            IdForm::Shown(asked) => {
                asked.notation(name, shown, shown.map_or(ID_BITS, |shown| shown.format().bits()))?
            }
            IdForm::Bare => bare(shown, name, OTHER_PATH)?,
        };
        let sub = self.sub_key(name, sub).await?;
        let ids = match (shown, wish) {
            (Some(shown), IdForm::Shown(asked)) => {
                let formatted = self.formatted(name, sub, shown).await?;
                let taken = formatted.take(count, asked.shard_key);
                TakenIds::Formatted(self.unless_down(name, sub, taken).await?)
            }
            _ if count == 1 => TakenIds::One(self.next_id(name, sub).await?),
            _ => TakenIds::Plain(self.take_ids(name, sub, count).await?),
        };
        Ok(Issued { notation, ids })
    }

    async fn issue_of_snowflake(&self, name: &str, count: u32, wish: IdForm) -> Result<Issued, IssueError> {
        let snowflake = self.snowflake(name)?;
        self.check_flake_format(name).await?;
        let shown = self.shown_snowflake(name);
        let (notation, formatted) = match wish {
            IdForm::Bare => (bare(shown, name, OTHER_PATH)?, None),
            IdForm::Shown(asked) => {
                let bits = shown.map_or(snowflake.layout().bits(), |shown| shown.format().bits());
                let formatted = self.formatted_snowflake(name);
                (asked.notation(name, shown, bits)?, formatted.map(|ids| ids.take(count, asked.shard_key)))
            }
        };
        let ids = match formatted {
            Some(taken) => TakenIds::Formatted(self.of_snowflake(snowflake, taken).await?),
            None if count == 1 => TakenIds::One(self.of_snowflake(snowflake, snowflake.next()).await?),
            None => TakenIds::Plain(self.of_snowflake(snowflake, snowflake.take(count)).await?),
        };
        Ok(Issued { notation, ids })
    }

    /// One number, if there is one without waiting and nothing is to be said of how it is shown.
    ///
    /// It saves what a future, of some KiB, costs to move. Whatever is refused, has to wait or is shown in a way of its
    /// own is left to [`Service::issue`], which says what there is to say.
    pub(crate) fn issue_at_once(&self, permit: &Permit, owner: Owner<'_>) -> Option<u64> {
        if self.is_formatted(owner.name()) {
            return None;
        }
        let taken = self.quotas.take(permit, self.counted(owner), 1).ok()?;
        let id = self.id_at_once(owner);
        taken.given(id.is_some().into());
        id
    }

    fn id_at_once(&self, owner: Owner<'_>) -> Option<u64> {
        match owner {
            Owner::Tag { name, sub: None } => match self.sequence_if_open(name) {
                Some(sequence) => sequence.try_next().ok()?,
                None if self.bound.is_unanswered(name) => None,
                None => self.quick(name).ok()??.try_next().ok()?,
            },
            Owner::Tag { sub: Some(_), .. } => None,
            Owner::Snowflake { name } if self.bound.is_unanswered(name) => None,
            Owner::Snowflake { name } => self.snowflake(name).ok()?.try_next().ok()?,
        }
    }

    /// Refuses a tag whose ids are not what is shown of them, for those who take its numbers in another way. `instead`
    /// says what they can do.
    ///
    /// # Errors
    /// [`Kind::FormatInvalid`].
    pub(crate) fn check_bare_tag(&self, tag: &str, instead: &str) -> Result<(), Problem> {
        bare(self.formats.of_tag(tag), tag, instead).map(drop)
    }
}

/// Refuses what can be refused without a store: for those who make one by opening it.
///
/// # Errors
/// As [`Service::issue`].
pub(crate) fn check_wish(formats: &Formats, owner: Owner<'_>, asked: FormatRequest) -> Result<(), IssueError> {
    let shown = match owner {
        Owner::Tag { name, sub } if !formats.quick.contains(name) => {
            validate_public(&stored_name(name, sub)?)?;
            formats.tags.get(name)
        }
        Owner::Tag { sub: Some(sub), .. } => return Err(sub_key_of_quick(sub).into()),
        Owner::Tag { name, sub: None } | Owner::Snowflake { name } => {
            if !formats.layouts.contains_key(name) {
                let problem = Problem::from(Refusal::snowflake_unknown(name));
                return Err(problem.saying(formats.unknown_snowflake(name)).into());
            }
            formats.snowflakes.get(name)
        }
    };
    asked.notation(owner.name(), shown, ID_BITS)?;
    Ok(())
}

fn sub_key_of_quick(sub: &str) -> Problem {
    let detail = "the tag is quick: its ids are those of a snowflake, which has no sub-keys";
    Problem::new(Kind::QueryInvalid, detail).with("parameter", "sub").with("value", shortened(sub))
}

/// What to do on the paths of other servers.
pub(crate) const OTHER_PATH: &str = "this path does not support that, use /v1";

/// The notation of bare numbers.
fn bare(shown: Option<&IdFormat>, name: &str, instead: &str) -> Result<Notation, Problem> {
    if shown.is_none_or(IdFormat::is_bare) {
        return Ok(Notation::Decimal);
    }
    let name = shortened(name);
    let detail = format!("the ids of {name:?} are shown under a key, with a shard gene, or start again: {instead}");
    Err(Problem::new(Kind::FormatInvalid, detail).with("name", name))
}
