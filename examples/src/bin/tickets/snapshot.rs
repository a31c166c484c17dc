use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde::Serialize;

use crate::{
    event::Event,
    light::Light,
    line::{Person, now},
    office::BoxOffice,
    store::Sales,
};

/// All that there is to see of an event.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Snapshot {
    event: String,
    events: Vec<String>,
    /// Which process says so.
    server: String,
    /// Whether a lock makes the sales safe.
    locked: bool,
    /// How the lock nodes are.
    nodes: Vec<Light>,
    /// How long a payment takes.
    payment_ms: u64,
    /// How long people wait at most.
    wait_ms: u64,
    /// Or else what is sold may have changed meanwhile.
    store_answers: bool,
    /// How often a seat was sold that was sold already.
    sold_twice: u64,
    /// How many there are, numbered from 1.
    seats: u32,
    /// By seat; those that are not here are free, and nobody is there for them.
    taken: BTreeMap<u32, Taken>,
}

/// What there is to see of a seat.
#[derive(Clone, Debug, Default, Serialize)]
struct Taken {
    owner: Option<String>,
    /// How many people have paid for it; more than one if it was sold twice.
    payments: u32,
    /// First come, first.
    paying: Vec<String>,
    /// For how long the first of them has been paying.
    paying_for_ms: u64,
    /// First come, first. In another process a later one may have its turn earlier.
    waiting: Vec<String>,
}

impl Snapshot {
    /// Puts together what is sold, and who lines up, in this process and elsewhere.
    pub(crate) fn new(
        office: &BoxOffice,
        event: &Event,
        sales: &Sales,
        elsewhere: &[Person],
    ) -> Self {
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
            } // or else has paid, and leaves the line in a moment
        }
        let events = office.events.iter();
        Self {
            event: event.name.as_str().to_owned(),
            events: events.map(|it| it.name.as_str().to_owned()).collect(),
            server: office.server.clone(),
            locked: event.terms.locked,
            nodes: office
                .redlock
                .nodes()
                .into_iter()
                .map(Light::from)
                .collect(),
            payment_ms: millis(event.terms.payment),
            wait_ms: millis(event.terms.wait),
            store_answers: true,
            sold_twice: sales.sold_twice,
            seats: event.terms.seats,
            taken,
        }
    }

    /// Says that the store does not answer.
    pub(crate) fn of_the_past(self) -> Self {
        Self {
            store_answers: false,
            ..self
        }
    }

    /// Returns it as JSON, in one line.
    pub(crate) fn json(&self) -> Arc<str> {
        // Strings, numbers and lists of them always serialise.
        serde_json::to_string(self).unwrap_or_default().into()
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
