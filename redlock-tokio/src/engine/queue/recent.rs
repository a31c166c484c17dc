use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use redlock_core::Timestamp;

use super::{hold_times::HoldTimes, streak::Streak};
use crate::Key;

/// How soon after a release the next hold is one in a row with it. Whoever else was waiting would have
/// had the time to be faster, had he been let.
const IN_A_ROW: Duration = Duration::from_millis(2);

/// For how long a release is remembered for how long the lock was held before.
const REMEMBERED: Duration = Duration::from_secs(60);

/// How many keys are remembered. Those that share a place forget each other, which costs others a turn, or
/// a key what is known of its holds, and nothing else.
const PLACES: usize = 1024;

/// What is known of keys that nobody holds or wants: their streaks, because a process that always comes
/// back at once would keep all others out; and how long they were held.
pub(super) struct Recent {
    places: Box<[Option<Place>]>,
    hasher: RandomState,
}

#[derive(Clone, Copy)]
struct Place {
    hash: u64,
    past: Past,
    ended: Timestamp,
}

/// What is known of a key from before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Past {
    pub(super) streak: Option<Streak>,
    pub(super) holds: HoldTimes,
}

impl Recent {
    pub(super) fn new() -> Self {
        Self {
            places: vec![None; PLACES].into(),
            hasher: RandomState::new(),
        }
    }

    pub(super) fn note(&mut self, key: &Key, past: Past, ended: Timestamp) {
        if past.streak.is_none() && past.holds.is_empty() {
            return;
        }
        let hash = self.hasher.hash_one(key);
        self.places[place_of(hash)] = Some(Place { hash, past, ended });
    }

    /// Returns what a hold that begins now goes on with: the streak, if it follows at once.
    pub(super) fn take(&mut self, key: &Key, now: Timestamp) -> Past {
        let hash = self.hasher.hash_one(key);
        let place = self.places[place_of(hash)].take_if(|it| it.hash == hash);
        let Some(Place { past, ended, .. }) = place else {
            return Past::default();
        };
        let pause = now.saturating_duration_since(ended);
        Past {
            streak: past.streak.filter(|_| pause < IN_A_ROW),
            holds: if pause < REMEMBERED {
                past.holds
            } else {
                HoldTimes::default()
            },
        }
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
