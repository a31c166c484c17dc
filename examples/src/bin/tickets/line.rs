use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

use crate::event::Event;

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
    time.map_or(0, |it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX))
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
        self.lock().present.values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, People> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A person's place in the line. The drop of the last clone leaves the line.
///
/// The turn travels with the request, through the lock layer to the handler. So a person that is turned away, or
/// disconnects while waiting, leaves the line. A person that disconnects while the handler works stays until the
/// handler has finished.
#[derive(Clone, Debug)]
pub(crate) struct Turn(Arc<Place>);

#[derive(Debug)]
struct Place {
    event: Arc<Event>,
    arrival: u64,
}

impl Turn {
    /// Lines up for a seat.
    pub(crate) fn wait(event: Arc<Event>, seat: u32, name: &str) -> Self {
        let mut people = event.line.lock();
        people.arrivals += 1;
        let arrival = people.arrivals;
        let person = Person {
            seat,
            name: name.to_owned(),
            pays: false,
            since: now(),
        };
        people.present.insert(arrival, person);
        drop(people);
        event.changed();
        Self(Arc::new(Place { event, arrival }))
    }

    /// Shows that the person pays now.
    pub(crate) fn pay(&self) {
        let Place { event, arrival } = &*self.0;
        if let Some(person) = event.line.lock().present.get_mut(arrival) {
            person.pays = true;
            person.since = now();
        }
        event.changed();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.event.line.lock().present.remove(&self.arrival);
        self.event.changed();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::event::{self, Terms};

    #[test]
    fn a_turn_is_shown_until_its_last_clone_is_dropped() {
        let terms = Terms {
            seats: 2,
            payment: Duration::ZERO,
            wait: Duration::ZERO,
            locked: true,
        };
        let [event] = &event::open(vec!["rock".parse().unwrap()], terms).unwrap()[..] else {
            panic!("not one event");
        };
        let shown = || {
            let people = event.line.people().into_iter();
            people.map(|it| (it.name, it.pays)).collect::<Vec<_>>()
        };
        let ada = Turn::wait(Arc::clone(event), 1, "Ada");
        let bob = Turn::wait(Arc::clone(event), 1, "Bob");
        ada.pay();
        let rows = [("Ada".to_owned(), true), ("Bob".to_owned(), false)];
        assert_eq!(shown(), rows);

        let with_the_handler = ada.clone();
        drop(ada);
        assert_eq!(shown(), rows);
        drop(with_the_handler);
        assert_eq!(shown(), rows[1..]);
        drop(bob);
        assert_eq!(shown(), []);
    }
}
