use std::{
    collections::BTreeSet,
    str::FromStr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Result, ensure};
use tokio::sync::{Notify, watch};

use crate::{line::Line, store::Sales};

/// The name of an event, which is part of URLs and of keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EventName(Arc<str>);

impl EventName {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for EventName {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self> {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        ensure!(
            (1..=40).contains(&name.len()) && name.chars().all(allowed),
            "an event's name is 1 to 40 lower-case letters, digits and dashes"
        );
        Ok(Self(name.into()))
    }
}

/// How the seats of an event are sold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// How many there are, numbered from 1.
    pub(crate) seats: u32,
    /// How long a payment takes.
    pub(crate) payment: Duration,
    /// How long people wait for a seat that somebody else pays for.
    pub(crate) wait: Duration,
    /// Whether a lock makes the sales safe.
    pub(crate) locked: bool,
}

/// An event, as this process sees it.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) name: EventName,
    pub(crate) terms: Terms,
    /// The people who wait and pay in this process.
    pub(crate) line: Line,
    /// What open pages are shown; JSON, made once for all of them.
    pub(crate) snapshots: watch::Sender<Arc<str>>,
    /// There is something new to show.
    pub(crate) outdated: Notify,
    /// There is something new to tell the other processes.
    pub(crate) unannounced: Notify,
    /// What was sold when the store answered last.
    last_sales: Mutex<Arc<Sales>>,
}

impl Event {
    fn new(name: EventName, terms: Terms) -> Self {
        Self {
            name,
            terms,
            line: Line::default(),
            snapshots: watch::Sender::new("".into()),
            outdated: Notify::new(),
            unannounced: Notify::new(),
            last_sales: Mutex::default(),
        }
    }

    /// Creates a hall that is not among the events, since its name has a character that theirs cannot have.
    pub(crate) fn demonstration(name: &str, terms: Terms) -> Self {
        Self::new(EventName(format!("demo:{name}").into()), terms)
    }

    /// To be called whenever something has changed in this process.
    pub(crate) fn changed(&self) {
        self.outdated.notify_one();
        self.unannounced.notify_one();
    }

    /// Keeps what was sold in mind, for when the store does not answer.
    pub(crate) fn remember(&self, sales: &Arc<Sales>) {
        *self.lock_last_sales() = Arc::clone(sales);
    }

    /// Returns what was sold when the store answered last.
    pub(crate) fn last_sales(&self) -> Arc<Sales> {
        Arc::clone(&self.lock_last_sales())
    }

    fn lock_last_sales(&self) -> MutexGuard<'_, Arc<Sales>> {
        self.last_sales
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens events that all have the same terms. No client can add one later.
pub(crate) fn open(names: Vec<EventName>, terms: Terms) -> Result<Vec<Arc<Event>>> {
    let distinct = names.iter().collect::<BTreeSet<_>>();
    ensure!(!names.is_empty(), "no events");
    ensure!(distinct.len() == names.len(), "an event is given twice");
    let open = |name| Arc::new(Event::new(name, terms));
    Ok(names.into_iter().map(open).collect())
}
