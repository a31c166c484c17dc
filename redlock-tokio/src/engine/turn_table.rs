use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use redlock_core::{Pause, PollerShare, Timestamp, TurnLength, Turns};

use crate::{
    Key,
    sync::{Mutex, MutexGuard},
};

/// For how many keys it is remembered. Keys that share a place forget what the other has learned, which
/// moves a pause and does no other harm.
const PLACES: usize = 1024;

/// How this process takes turns with others, by key, for the keys that it uses most.
pub(crate) struct TurnTable {
    places: Mutex<Box<[Option<Place>]>>,
    hasher: RandomState,
}

#[derive(Clone, Copy)]
struct Place {
    hash: u64,
    turns: Turns,
}

impl TurnTable {
    pub(crate) fn new() -> Self {
        Self {
            places: Mutex::new(vec![None; PLACES].into()),
            hasher: RandomState::new(),
        }
    }

    /// Ends a turn. Returns how to let other processes go first, unless the turn may go on.
    pub(crate) fn end(
        &self,
        key: &Key,
        now: Timestamp,
        length: TurnLength,
        share: PollerShare,
    ) -> Option<Pause> {
        let hash = self.hasher.hash_one(key);
        let mut places = self.places();
        let place = &mut places[place_of(hash)];
        let place = match place {
            Some(place) if place.hash == hash => place,
            _ => place.insert(Place {
                hash,
                turns: Turns::default(),
            }),
        };
        place.turns.end(now, length, share)
    }

    /// Starts a turn after others were let go first. Returns how long the turn is to be.
    pub(crate) fn start(
        &self,
        key: &Key,
        now: Timestamp,
        was_contended: bool,
        length: TurnLength,
    ) -> Duration {
        let hash = self.hasher.hash_one(key);
        let place = &mut self.places()[place_of(hash)];
        let Some(place) = place.as_mut().filter(|it| it.hash == hash) else {
            return length.usual();
        };
        place.turns.start(now, was_contended);
        place.turns.length(length)
    }

    fn places(&self) -> MutexGuard<'_, Box<[Option<Place>]>> {
        self.places.lock()
    }
}

fn place_of(hash: u64) -> usize {
    hash as usize % PLACES
}

impl fmt::Debug for TurnTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TurnTable")
    }
}
