use std::{
    collections::BTreeMap,
    sync::Mutex,
    time::{SystemTime, UNIX_EPOCH},
};

use redlock_examples::{lock, millis};
use serde::{Deserialize, Serialize};

/// A person who wants to buy a seat, or to give it back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Person {
    pub(crate) seat: u32,
    pub(crate) name: String,
    /// Whether the person pays or waits.
    pub(crate) pays: bool,
    /// The begin of the payment or of the wait, in milliseconds of Unix time. Other hosts read it, so it is only as
    /// exact as the clocks of the hosts.
    pub(crate) since: u64,
}

/// Returns the milliseconds of Unix time.
pub(crate) fn now() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH);
    time.map_or(0, millis)
}

/// The people who wait for seats of an event, and those who pay.
#[derive(Debug, Default)]
pub(crate) struct Line(Mutex<People>);

#[derive(Debug, Default)]
struct People {
    arrivals: u64,
    /// In the order of their arrival.
    present: BTreeMap<u64, Person>,
}

impl Line {
    /// Returns the people in the order of their arrival.
    pub(crate) fn people(&self) -> Vec<Person> {
        lock(&self.0).present.values().cloned().collect()
    }

    /// Adds a person who waits for a seat. Returns the number of the arrival.
    pub(crate) fn join(&self, seat: u32, name: &str) -> u64 {
        let mut people = lock(&self.0);
        people.arrivals += 1;
        let arrival = people.arrivals;
        let person = Person {
            seat,
            name: name.to_owned(),
            pays: false,
            since: now(),
        };
        people.present.insert(arrival, person);
        arrival
    }

    /// Notes that a person pays from now on.
    pub(crate) fn pay(&self, arrival: u64) {
        if let Some(person) = lock(&self.0).present.get_mut(&arrival) {
            person.pays = true;
            person.since = now();
        }
    }

    /// Removes a person.
    pub(crate) fn leave(&self, arrival: u64) {
        lock(&self.0).present.remove(&arrival);
    }
}
