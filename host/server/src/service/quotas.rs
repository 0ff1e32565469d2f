//! The quotas of tags and snowflakes, and that of the token beside them.

use std::collections::HashMap;
use std::num::NonZeroU32;

use crate::config::Config;
use crate::config::tokens::Permit;
use crate::quotas::{OverQuota, Quota, QuotaOf, Taken, now_ns};

/// What a quota may be of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted<'a> {
    /// A tag with all its sub-keys.
    Tag(&'a str),
    /// A snowflake.
    Snowflake(&'a str),
    /// Something without a name, that only the token counts.
    Nothing,
}

/// The quotas of tags and snowflakes.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    tags: HashMap<String, Quota>,
    snowflakes: HashMap<String, Quota>,
}

/// The quota of what is counted.
struct Own<'a> {
    quota: &'a Quota,
    whose: &'static str,
    name: &'a str,
}

fn of(quota: &Quota, whose: &'static str, name: &str) -> QuotaOf {
    QuotaOf { whose, name: name.to_owned(), ids_per_s: quota.ids_per_s() }
}

impl Quotas {
    /// As they are configured.
    pub(crate) fn new(config: &Config) -> Self {
        let of = |(name, ids_per_s): (&String, Option<NonZeroU32>)| Some((name.clone(), Quota::new(ids_per_s?)));
        Self {
            tags: config.tags.iter().map(|(name, tag)| (name, tag.ids_per_s)).filter_map(of).collect(),
            snowflakes: config.snowflakes.iter().map(|(name, flake)| (name, flake.ids_per_s)).filter_map(of).collect(),
        }
    }

    fn of<'a>(&'a self, counted: Counted<'a>) -> Option<Own<'a>> {
        let [_, tag, snowflake] = QuotaOf::WHOSE;
        match counted {
            Counted::Tag(name) if !self.tags.is_empty() => {
                self.tags.get(name).map(|quota| Own { quota, whose: tag, name })
            }
            Counted::Snowflake(name) if !self.snowflakes.is_empty() => {
                self.snowflakes.get(name).map(|quota| Own { quota, whose: snowflake, name })
            }
            Counted::Tag(_) | Counted::Snowflake(_) | Counted::Nothing => None,
        }
    }

    /// Takes so many ids of the token's quota and of the tag's or snowflake's, or of neither.
    ///
    /// # Errors
    /// Whose is used up, or never gives so many.
    pub(crate) fn take<'a>(
        &'a self,
        permit: &'a Permit,
        counted: Counted<'a>,
        count: u64,
    ) -> Result<Taken<'a>, OverQuota> {
        let [token, ..] = QuotaOf::WHOSE;
        let of_token = permit.quota().map(|(name, quota)| Own { quota, whose: token, name });
        let all = [of_token, self.of(counted)];
        let mut quotas = [None, None];
        if all.iter().all(Option::is_none) {
            return Ok(Taken { quotas, count });
        }
        for Own { quota, whose, name } in all.iter().flatten() {
            let max = quota.request_max();
            if count > max {
                return Err(OverQuota::TooMany { of: of(quota, whose, name), count, max });
            }
        }
        let now_ns = now_ns();
        for (own, taken) in all.iter().zip(&mut quotas) {
            let Some(Own { quota, whose, name }) = own else { continue };
            match quota.take(now_ns, count) {
                Ok(until_ns) => *taken = Some((*quota, until_ns)),
                Err(wait_ms) => {
                    // One before it gets its own back.
                    Taken { quotas, count }.given(0);
                    return Err(OverQuota::UsedUp { of: of(quota, whose, name), wait_ms });
                }
            }
        }
        Ok(Taken { quotas, count })
    }

    /// How many of so many numbers are granted at once: those of one second. A grant may have fewer than were asked
    /// for, so nobody owes for long.
    pub(crate) fn grantable(&self, permit: &Permit, counted: Counted<'_>, count: u64) -> u64 {
        let of_token = permit.quota().map(|(_, quota)| quota);
        let quotas = of_token.into_iter().chain(self.of(counted).map(|own| own.quota));
        quotas.fold(count, |count, quota| count.min(u64::from(quota.ids_per_s())))
    }
}
