//! The contestants: this crate's lock, a rival, a floor, and no lock at all.

mod in_process;
mod no_lock;
mod ours;
#[path = "../shared/plain.rs"]
mod plain;
mod polling;
mod rslock;
#[allow(dead_code, reason = "peers says more to the nodes than this does")]
#[path = "../shared/wire.rs"]
mod wire;

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

pub(crate) use self::{
    in_process::InProcess,
    no_lock::NoLock,
    ours::{Newcomers, Ours, OverPools},
    plain::Plain,
    polling::Polling,
    rslock::Rslock,
};
use crate::Result;

/// Which contestant, for command lines and tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Name {
    Floor,
    Rslock,
    Ours,
    OursResp2,
    OursOverPools,
    OursSeveralKeys,
    OursShared,
    OursPoller,
    OursNewcomers,
    InProcess,
    NodeRedlock,
    RedisSemaphore,
    RedisPy,
    NoLock,
}

impl Name {
    /// The contestants that are measured alone, in the order in which they take turns, and what command lines call them.
    const FLAGS: [(&'static str, Self); 3] = [
        ("floor", Self::Floor),
        ("rslock", Self::Rslock),
        ("ours", Self::Ours),
    ];
    pub(crate) const ALL: [Self; 3] = [Self::Floor, Self::Rslock, Self::Ours];
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name = Self::FLAGS.into_iter().find(|(flag, _)| *flag == text);
        name.map(|(_, it)| it).ok_or_else(|| {
            let names = Self::FLAGS.map(|(flag, _)| flag).join(", ");
            format!("there is no contestant {text}; there are {names}")
        })
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Floor => "polling floor",
            Self::Rslock => "rslock 0.10",
            Self::Ours => "redlock-tokio",
            Self::OursResp2 => "redlock-tokio, RESP2",
            Self::OursOverPools => "redlock-tokio, own pools",
            Self::OursSeveralKeys => "redlock-tokio, all keys",
            Self::OursShared => "redlock-tokio",
            Self::OursPoller => "redlock-tokio, `try_lock` in a loop",
            Self::OursNewcomers => "redlock-tokio, a new client for each lock",
            Self::InProcess => "tokio::sync",
            Self::NodeRedlock => "node-redlock 5",
            Self::RedisSemaphore => "redis-semaphore 5",
            Self::RedisPy => "redis-py 5",
            Self::NoLock => "no lock",
        })
    }
}
