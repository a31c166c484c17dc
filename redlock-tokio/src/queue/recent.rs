use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use redlock_core::Timestamp;

use super::streak::Streak;
use crate::Key;

/// How soon after a release the next hold is one in a row with it. Whoever else was waiting would have
/// had the time to be faster, had he been let.
const IN_A_ROW: Duration = Duration::from_millis(2);

/// How many are remembered. Keys that share a place forget each other's streak, which costs others a
/// turn and nothing else.
const PLACES: usize = 1024;

/// The streaks of lines that have gone: a process that always comes back at once, with nobody waiting
/// behind, would keep all others out.
pub(super) struct Recent {
    places: Box<[Option<Place>]>,
    hasher: RandomState,
}

#[derive(Clone, Copy)]
struct Place {
    hash: u64,
    streak: Streak,
    ended: Timestamp,
}

impl Recent {
    pub(super) fn new() -> Self {
        Self {
            places: vec![None; PLACES].into(),
            hasher: RandomState::new(),
        }
    }

    pub(super) fn note(&mut self, key: &Key, streak: Streak, ended: Timestamp) {
        let hash = self.hasher.hash_one(key);
        self.places[place_of(hash)] = Some(Place {
            hash,
            streak,
            ended,
        });
    }

    /// Returns the streak that a hold which begins now would go on with.
    pub(super) fn take(&mut self, key: &Key, now: Timestamp) -> Option<Streak> {
        let hash = self.hasher.hash_one(key);
        let place = self.places[place_of(hash)].take_if(|it| it.hash == hash)?;
        let pause = now.saturating_duration_since(place.ended);
        (pause < IN_A_ROW).then_some(place.streak)
    }
}

fn place_of(hash: u64) -> usize {
    // The upper bits are not those that the map of lines goes by.
    (hash >> 48) as usize % PLACES
}

impl fmt::Debug for Recent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recent")
    }
}
