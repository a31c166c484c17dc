use std::{env, fmt, time::Duration};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{Result, fault::Kind, topology::Topology};

/// The settings in the environment.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) seed: u64,
    pub(crate) topology: Topology,
    pub(crate) length: Duration,
    pub(crate) breakage: Option<Breakage>,
    /// The kinds of faults, if not the usual ones.
    pub(crate) only: Option<Vec<Kind>>,
}

/// A deliberate breakage, which the run must find.
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
}

impl Breakage {
    /// Returns whether the breakage can be tried over this topology.
    fn is_for(self, topology: Topology) -> bool {
        match self {
            Self::NoLock | Self::Trust | Self::Deaf => true,
            Self::Forget | Self::Leak | Self::Foreign => topology == Topology::Masters,
        }
    }

    /// Returns the damage that the run must find.
    pub(crate) fn symptoms(self) -> &'static [&'static str] {
        match self {
            Self::NoLock => &[
                "overlapping holds",
                "fencing tokens that did not grow",
                "losses that were told late",
                "losses that nobody told",
                "lost updates",
            ],
            Self::Foreign => &["overlapping holds", "lost updates"],
            // A holder may notice the loss before it writes, so an update need not be lost.
            Self::Forget | Self::Trust => &["overlapping holds"],
            Self::Deaf => &["losses that nobody told"],
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
        if let Some(breakage) = breakage.filter(|it| !it.is_for(topology)) {
            return Err(format!("SOAK_BREAK: {breakage:?} is not for {topology:?}").into());
        }
        Ok(Self {
            topology,
            seed: chosen("SOAK_SEED")?.unwrap_or_else(|| fastrand::u64(..)),
            length: length.unwrap_or(Self::CONTROL),
            breakage,
            only: only(topology)?,
        })
    }

    /// Returns whether to print each fault and error as it happens.
    pub(crate) fn traces() -> bool {
        env::var_os("SOAK_TRACE").is_some()
    }

    /// Returns the kinds of faults of this run.
    pub(crate) fn kinds(&self) -> Vec<Kind> {
        let usual = || Kind::usual(self.topology);
        self.only.clone().unwrap_or_else(usual)
    }

    /// Returns whether foreign clients take part if they are at hand.
    pub(crate) fn wants_foreign(&self) -> bool {
        self.breakage.is_none_or(|it| it == Breakage::Foreign)
    }

    /// Returns whether the run is long enough to have seen everything.
    pub(crate) fn is_conclusive(&self) -> bool {
        self.is_usual() && self.length >= Duration::from_secs(60)
    }

    fn is_usual(&self) -> bool {
        self.breakage.is_none() && self.only.is_none()
    }
}

/// Returns what a variable says, if it says anything: a number or a name.
fn chosen<T: DeserializeOwned>(variable: &str) -> Result<Option<T>> {
    let Some(text) = env::var(variable).ok().filter(|it| !it.is_empty()) else {
        return Ok(None);
    };
    let value = text
        .parse::<u64>()
        .map_or_else(|_| text.into(), Value::from);
    let chosen = serde_json::from_value(value);
    Ok(Some(
        chosen.map_err(|error| format!("{variable}: {error}"))?,
    ))
}

fn only(topology: Topology) -> Result<Option<Vec<Kind>>> {
    let Ok(names) = env::var("SOAK_FAULTS") else {
        return Ok(None);
    };
    // A power cut is none of the usual faults, and comes on request.
    let all = [Kind::usual(topology), vec![Kind::PowerCut]].concat();
    let kinds = names.split(',').map(|name| {
        let kind = all.iter().find(|it| format!("{it:?}") == name);
        kind.copied()
            .ok_or_else(|| format!("SOAK_FAULTS: {name} is none of {all:?}"))
    });
    Ok(Some(kinds.collect::<Result<_, _>>()?))
}

/// Returns what [`chosen`] reads as this value.
fn name_of(it: impl Serialize) -> String {
    let json = serde_json::to_string(&it).expect("a name is JSON");
    json.trim_matches('"').to_owned()
}

impl fmt::Display for Settings {
    /// Writes the command that repeats this run.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seed, seconds) = (self.seed, self.length.as_secs());
        if self.is_usual() && self.topology == Topology::Masters && seconds.is_multiple_of(60) {
            return write!(f, "make soak MINUTES={} SEED={seed}", seconds / 60);
        }
        if let Some(breakage) = self.breakage {
            write!(f, "SOAK_BREAK={} ", name_of(breakage))?;
        }
        if let Some(only) = &self.only {
            let names: Vec<_> = only.iter().map(|it| format!("{it:?}")).collect();
            write!(f, "SOAK_FAULTS={} ", names.join(","))?;
        }
        write!(
            f,
            "SOAK_TOPOLOGY={} SOAK_SECONDS={seconds} SOAK_SEED={seed} cargo test -p redlock-tokio --test soak",
            name_of(self.topology)
        )
    }
}
