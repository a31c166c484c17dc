use std::{
    collections::{BTreeMap, BTreeSet},
    str::FromStr,
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::{Result, ensure};
use tokio::sync::{Notify, watch};

use crate::line::Line;

/// The name of an event, which is a part of URLs and keys.
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
    /// The number of seats, which are numbered from 1.
    pub(crate) seats: u32,
    /// How long a payment takes.
    pub(crate) payment: Duration,
    /// How long a buyer waits for a seat while another buyer pays.
    pub(crate) wait: Duration,
    /// Whether a lock makes the sales safe.
    pub(crate) locked: bool,
}

/// An event, in this process.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) name: EventName,
    pub(crate) terms: Terms,
    /// The people who wait and pay in this process.
    pub(crate) line: Line,
    /// The state for open pages, as JSON that all of them share.
    pub(crate) snapshots: watch::Sender<Arc<str>>,
    /// Notified when the pages must be updated.
    pub(crate) outdated: Notify,
    /// Notified when other processes must be informed.
    pub(crate) unannounced: Notify,
    /// The sales, or those in the last answer of a store that processes share.
    pub(crate) sales: Mutex<Sales>,
}

/// The sales of an event.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sales {
    /// The sold seats, by number.
    pub(crate) sold: BTreeMap<u32, Sale>,
    /// How many sales were made of seats that were sold already, which the lock prevents.
    pub(crate) sold_twice: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Sale {
    pub(crate) owner: String,
    /// How many people have paid for the seat.
    pub(crate) payments: u32,
}

impl Sales {
    /// Writes the new owner of a seat, who has paid.
    pub(crate) fn sell(&mut self, seat: u32, to: &str) {
        let earlier = self.sold.get(&seat).map_or(0, |sale| sale.payments);
        self.sold_twice += u64::from(earlier > 0);
        let sale = Sale {
            owner: to.to_owned(),
            payments: earlier + 1,
        };
        self.sold.insert(seat, sale);
    }
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
            sales: Mutex::default(),
        }
    }

    /// Creates a hall of the demonstration. Its name contains a character that no event may have.
    pub(crate) fn demonstration(name: &str, terms: Terms) -> Self {
        Self::new(EventName(format!("demo:{name}").into()), terms)
    }

    /// Notifies pages and other processes of a change in this process.
    pub(crate) fn changed(&self) {
        self.outdated.notify_one();
        self.unannounced.notify_one();
    }
}

/// Opens events with the same terms. No client can add an event later.
pub(crate) fn open(names: Vec<EventName>, terms: Terms) -> Result<Vec<Arc<Event>>> {
    let distinct = names.iter().collect::<BTreeSet<_>>();
    ensure!(!names.is_empty(), "no events");
    ensure!(distinct.len() == names.len(), "an event is listed twice");
    let open = |name| Arc::new(Event::new(name, terms));
    Ok(names.into_iter().map(open).collect())
}
