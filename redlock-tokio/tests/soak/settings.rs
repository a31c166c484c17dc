use std::{env, fmt, time::Duration};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{Result, topology::Topology};

/// The settings in the environment.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) seed: u64,
    pub(crate) topology: Topology,
    pub(crate) length: Duration,
    pub(crate) breakage: Option<Breakage>,
}

/// A deliberate breakage, which the run must find. Over a group and a cluster, there is only [`Trust`](Self::Trust).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Breakage {
    /// Workers enter the critical section without the lock. They make up fencing tokens and the news of losses.
    NoLock,
    /// All nodes lose all keys at intervals.
    Forget,
    /// All nodes restart at intervals, or fail over while a partition separates them from their replicas. They
    /// vote at once.
    Trust,
    /// Workers leak memory, files and a socket, and a key stays.
    Leak,
    /// Workers do not hear of the losses of their locks.
    Deaf,
    /// Foreign clients enter the critical section without the lock.
    Foreign,
    /// Each second waiter reports that it waits, and never tries.
    Idle,
}

impl Breakage {
    /// Returns the damage that the run must find.
    pub(crate) fn symptoms(self) -> &'static [&'static str] {
        match self {
            Self::NoLock => &[
                "overlapping holds",
                "fencing tokens that did not grow",
                "losses that were told late",
                "lost updates",
            ],
            Self::Foreign => &["overlapping holds", "lost updates"],
            // A holder may notice the loss before it writes, so an update need not be lost.
            Self::Forget | Self::Trust => &["overlapping holds"],
            Self::Deaf => &["losses that were told late"],
            Self::Idle => &["waits that lost their turn"],
            Self::Leak => &[
                "orphan keys",
                "leaks descriptors",
                "leaks memory",
                "leaks sockets",
            ],
        }
    }
}

impl Settings {
    /// The duration of the negative control in every `cargo test`.
    const CONTROL: Duration = Duration::from_secs(2);

    const LENGTH: &str = "SOAK_SECONDS";

    pub(crate) fn are_given() -> bool {
        env::var_os(Self::LENGTH).is_some()
    }

    pub(crate) fn from_env() -> Result<Self> {
        let length = chosen(Self::LENGTH)?.map(Duration::from_secs);
        let breakage = chosen("SOAK_BREAK")?;
        let breakage = breakage.or(length.is_none().then_some(Breakage::NoLock));
        let topology = chosen("SOAK_TOPOLOGY")?.unwrap_or(Topology::Masters);
        if topology != Topology::Masters && breakage.is_some_and(|it| it != Breakage::Trust) {
            return Err(format!("SOAK_BREAK: only trust is for {topology:?}").into());
        }
        Ok(Self {
            topology,
            seed: chosen("SOAK_SEED")?.unwrap_or_else(|| fastrand::u64(..)),
            length: length.unwrap_or(Self::CONTROL),
            breakage,
        })
    }

    /// Returns whether to print each fault as it happens.
    pub(crate) fn traces() -> bool {
        env::var_os("SOAK_TRACE").is_some()
    }
}

/// Returns what a variable says, if it says anything: a number or a name.
fn chosen<T: DeserializeOwned>(variable: &str) -> Result<Option<T>> {
    let Some(text) = env::var(variable).ok().filter(|it| !it.is_empty()) else {
        return Ok(None);
    };
    let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
    let chosen = serde_json::from_value(value);
    chosen
        .map(Some)
        .map_err(|error| format!("{variable}: {error}").into())
}

/// Returns what [`chosen`] reads as this value.
fn name_of(it: impl Serialize) -> String {
    let json = serde_json::to_string(&it).expect("a name is JSON");
    json.trim_matches('"').to_owned()
}

impl fmt::Display for Settings {
    /// Writes the command that repeats this run.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(breakage) = self.breakage {
            write!(f, "SOAK_BREAK={} ", name_of(breakage))?;
        }
        write!(
            f,
            "SOAK_TOPOLOGY={} SOAK_SECONDS={} SOAK_SEED={} \
             cargo test -p redlock-tokio --all-features --test soak",
            name_of(self.topology),
            self.length.as_secs(),
            self.seed,
        )
    }
}
