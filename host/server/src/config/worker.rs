//! Which worker a process would like to have, and what its machine is called.

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// Which worker a process would like to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "it must be a worker's number, or \"ordinal\"")]
pub(crate) enum Worker {
    /// This one.
    Number(u32),
    /// One that is said by what the process runs on.
    Named(WorkerName),
}

/// What says a worker's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WorkerName {
    /// The number at the end of the host's name, as the pods of a StatefulSet have it.
    Ordinal,
}

impl Worker {
    /// The number.
    ///
    /// # Errors
    /// When the host's name ends with none.
    pub(crate) fn number(self) -> anyhow::Result<u32> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Named(WorkerName::Ordinal) => {
                let host = host_name();
                ordinal(&host).with_context(|| {
                    format!("the host's name is {host:?} and ends with no number that could be the worker: give one (--worker 3)")
                })
            }
        }
    }
}

impl std::str::FromStr for Worker {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "ordinal" => Ok(Self::Named(WorkerName::Ordinal)),
            number => number.parse().map(Self::Number).map_err(|_| "it must be a worker's number, or ordinal"),
        }
    }
}

/// The number at the end of a host's name, its domain left out.
fn ordinal(host: &str) -> Option<u32> {
    let name = host.split('.').next()?;
    let digits = name.trim_end_matches(|character: char| character.is_ascii_digit()).len();
    name.get(digits..)?.parse().ok()
}

/// What the system calls this machine.
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ordinal_is_the_number_at_the_end_of_the_host_s_name() {
        for (host, number) in [
            ("unalike-3", Some(3)),
            ("unalike-12.unalike.ids.svc.cluster.local", Some(12)),
            ("web007", Some(7)),
            ("4294967295", Some(u32::MAX)),
            ("unalike-4294967296", None),
            ("unalike", None),
            ("3-unalike", None),
            ("unalike.3", None),
            ("", None),
        ] {
            assert_eq!(ordinal(host), number, "{host}");
        }
    }
}
