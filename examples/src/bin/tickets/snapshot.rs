use std::{collections::BTreeMap, sync::Arc};

use redlock_examples::{Light, lock, millis};
use serde::Serialize;

use crate::{
    event::{Event, Sales},
    line::{Person, now},
    office::BoxOffice,
    store::StoreError,
};

/// The state of an event, as pages show it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Snapshot {
    event: String,
    events: Vec<String>,
    /// The process that sends the snapshot.
    server: String,
    /// Whether a lock makes the sales safe.
    locked: bool,
    /// The states of the lock nodes.
    nodes: Vec<Light>,
    /// How long a payment takes.
    payment_ms: u64,
    /// How long people wait at most.
    wait_ms: u64,
    /// Whether the sales are current. If not, they are those of the last answer of the store.
    store_answers: bool,
    /// How many sales were made of seats that were sold already.
    sold_twice: u64,
    /// The number of seats, which are numbered from 1.
    seats: u32,
    /// The seats that are sold or in demand.
    taken: BTreeMap<u32, Taken>,
}

/// The state of a seat that is sold or in demand.
#[derive(Clone, Debug, Default, Serialize)]
struct Taken {
    owner: Option<String>,
    /// How many people have paid for it; more than one if it was sold twice.
    payments: u32,
    /// In the order of their arrival.
    paying: Vec<String>,
    /// How long the first of them has been paying.
    paying_for_ms: u64,
    /// In the order of their arrival. The buyers of another process may be served in another order.
    waiting: Vec<String>,
}

impl BoxOffice {
    /// Returns the current state of an event.
    pub(crate) async fn look(&self, event: &Event) -> Result<Snapshot, StoreError> {
        let (sales, elsewhere) = self.store.read(event).await?;
        Ok(Snapshot::new(self, event, &sales, &elsewhere))
    }

    /// Returns the current state of an event. If the store does not answer, the state has the sales of its last
    /// answer.
    pub(crate) async fn look_or_remember(&self, event: &Event) -> Snapshot {
        self.look(event).await.unwrap_or_else(|_| Snapshot {
            store_answers: false,
            ..Snapshot::new(self, event, &lock(&event.sales), &[])
        })
    }
}

impl Snapshot {
    /// Combines the sales with the people in line, in this process and in others.
    fn new(office: &BoxOffice, event: &Event, sales: &Sales, elsewhere: &[Person]) -> Self {
        let mut taken = BTreeMap::<u32, Taken>::new();
        // Another process may have sold more seats than this one was started with.
        for (&seat, sale) in sales.sold.range(..=event.terms.seats) {
            let taken = taken.entry(seat).or_default();
            taken.owner = Some(sale.owner.clone());
            taken.payments = sale.payments;
        }
        let now = now();
        let mut people = event.line.people();
        people.extend_from_slice(elsewhere);
        people.retain(|person| person.seat <= event.terms.seats);
        people.sort_by_key(|person| person.since);
        for person in people {
            let taken = taken.entry(person.seat).or_default();
            if !person.pays {
                taken.waiting.push(person.name);
            } else if taken.owner.as_ref() != Some(&person.name) {
                let paying_for = now.saturating_sub(person.since);
                taken.paying_for_ms = taken.paying_for_ms.max(paying_for);
                taken.paying.push(person.name);
            } // Otherwise the person has paid, and leaves the line in a moment.
        }
        let events = office.events.iter();
        let nodes = office.redlock.nodes();
        Self {
            event: event.name.as_str().to_owned(),
            events: events.map(|it| it.name.as_str().to_owned()).collect(),
            server: office.server.clone(),
            locked: event.terms.locked,
            nodes: nodes
                .iter()
                .map(|node| Light::new(&node.address, &node.state))
                .collect(),
            payment_ms: millis(event.terms.payment),
            wait_ms: millis(event.terms.wait),
            store_answers: true,
            sold_twice: sales.sold_twice,
            seats: event.terms.seats,
            taken,
        }
    }

    /// Returns the snapshot as JSON, in one line.
    pub(crate) fn json(&self) -> Arc<str> {
        // Strings, numbers and lists of them always serialise.
        serde_json::to_string(self).unwrap_or_default().into()
    }
}
