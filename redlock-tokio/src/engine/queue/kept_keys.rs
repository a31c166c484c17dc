//! Which waiter may have a key that is free: one for this key alone, or one for this key and others.
//!
//! A waiter for several keys has its turn when all of them are free. Until then others overtake it, and busy keys would keep it
//! waiting for ever. So half of the time belongs to it: in one [slice](SLICE) of time of each pair, the keys of a waiter that is the
//! first in the queue of each of them are *kept* for it. No later waiter gets one of them, so all are free together once their
//! holders have released them. Two waiters that share a key are never both the first in its queue, so no key is kept twice.
//!
//! A holder may want a kept key before it releases its own. It gets the key when the slice is over, or when the next
//! one is over, if keys are kept in both.

use std::{collections::HashMap, time::Duration};

use redlock_core::Timestamp;

use super::{
    Arrival, FollowUp,
    beside::Role,
    key_queue::{KeyQueue, Pace},
};
use crate::{Key, key::KeySet};

/// Shorter holds end within a slice. A holder that wants a kept key waits for up to two slices.
pub(super) const SLICE: Duration = Duration::from_millis(100);

/// How many waiters for several keys a handover looks at. The end of a turn looks at all.
pub(super) const FEW: usize = 8;

/// The turns and waiters of all keys of locks, or of all semaphores.
#[derive(Clone, Debug)]
pub(super) struct KeyQueues<T> {
    /// The order in which the map has them must not be seen, because it differs in each run.
    pub(super) by_key: HashMap<Key, KeyQueue<T>>,
    /// How many wait for several keys.
    pub(super) several: usize,
}

/// Whether a request may have all its keys now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Availability {
    Available,
    /// Another lease has the turn for one of them, or will get it first.
    Taken,
    /// All are free, but one is kept for another waiter until then.
    Kept {
        until: Timestamp,
    },
}

/// The waiter that gets a free key.
#[derive(Debug)]
pub(super) enum Choice<T> {
    /// The first waiter for this key alone.
    One,
    /// A waiter for this key and others, which are free too.
    Several {
        arrival: Arrival,
        keys: KeySet,
        waiter: T,
    },
    /// Nobody before then, because a key is kept. This waiter could have it.
    Later {
        waiter: T,
        at: Timestamp,
    },
    Nobody,
}

/// Returns when the slice of time ends in which keys are kept, if this is one. It is one of each pair, in no regular order: with
/// one, a key that is released at regular times could always be released in the other slices.
pub(super) fn kept_until(now: Timestamp) -> Option<Timestamp> {
    let slice = SLICE.as_nanos() as u64;
    let number = now.as_nanos() / slice;
    // Fibonacci hashing.
    let hash = (number / 2 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (number % 2 == hash >> 63).then(|| Timestamp::from_nanos((number + 1).saturating_mul(slice)))
}

impl<T: Clone> KeyQueues<T> {
    pub(super) fn new() -> Self {
        Self {
            by_key: HashMap::new(),
            several: 0,
        }
    }

    /// Returns the queue of a key, which is created if there is none.
    pub(super) fn queue(&mut self, key: &Key) -> &mut KeyQueue<T> {
        let queue = self.by_key.entry(key.clone());
        queue.or_insert_with(KeyQueue::new)
    }

    /// Returns whether a request with this arrival may have all its keys now, or once `but_for` is free.
    pub(super) fn availability(
        &self,
        keys: &KeySet,
        (arrival, role): (Arrival, Role),
        now: Timestamp,
        but_for: Option<&Key>,
    ) -> Availability {
        let mut availability = Availability::Available;
        for key in keys.iter() {
            let Some(queue) = self.by_key.get(key) else {
                continue;
            };
            // An earlier waiter at a free key will be called before.
            if Some(key) != but_for && !queue.may_begin(role, arrival) {
                return Availability::Taken;
            }
            if let Some(until) = self.kept_from(queue, arrival, now) {
                availability = Availability::Kept { until };
            }
        }
        availability
    }

    /// Gives turns for a key to the waiters that may have them.
    pub(super) fn advance(&mut self, key: &Key, now: Timestamp, pace: Pace) -> Vec<FollowUp<T>> {
        let mut follow_ups = Vec::new();
        while follow_ups.len() < pace.most
            && let Some(queue) = self.by_key.get(key)
            && let is_free = queue.is_free()
            && (is_free || queue.is_open(pace))
        {
            let mut backs_off = pace.backs_off;
            // A waiter for several keys never begins beside others.
            let most_of_several = if is_free { usize::MAX } else { 0 };
            let waiter = match self.choose(key, now, most_of_several) {
                Choice::Nobody => break,
                Choice::Later { waiter, at } => {
                    follow_ups.push(FollowUp::LookAgain { waiter, at });
                    break;
                }
                Choice::One => {
                    let queue = self.queue(key);
                    let Some((arrival, role, waiter)) = queue.pop() else {
                        break;
                    };
                    backs_off &= role.takes_turns();
                    queue.give_turn(arrival, role, waiter.clone());
                    waiter
                }
                Choice::Several {
                    arrival,
                    keys,
                    waiter,
                } => {
                    for key in keys.iter() {
                        let queue = self.queue(key);
                        queue.remove(arrival);
                        queue.give_turn(arrival, Role::Lock, waiter.clone());
                    }
                    self.several -= 1;
                    waiter
                }
            };
            follow_ups.push(FollowUp::StartTurn { waiter, backs_off });
        }
        follow_ups
    }

    /// Chooses the waiter that gets a key once it is free. Looks at `most` of the waiters for several keys.
    pub(super) fn choose(&self, key: &Key, now: Timestamp, most: usize) -> Choice<T> {
        let Some(queue) = self.by_key.get(key) else {
            return Choice::Nobody;
        };
        let single = queue.first_single();
        let mut later = None;
        for (arrival, (keys, waiter)) in queue.several().take(most) {
            if single.is_some_and(|(single, ..)| single < *arrival) {
                break;
            }
            match self.availability(keys, (*arrival, Role::Lock), now, Some(key)) {
                Availability::Available => {
                    return Choice::Several {
                        arrival: *arrival,
                        keys: keys.clone(),
                        waiter: waiter.clone(),
                    };
                }
                Availability::Kept { until } => later = later.or(Some((waiter, until))),
                Availability::Taken => {}
            }
        }
        if let Some((arrival, _, waiter)) = single {
            match self.kept_from(queue, arrival, now) {
                None => return Choice::One,
                Some(until) => later = later.or(Some((waiter, until))),
            }
        }
        later.map_or(Choice::Nobody, |(waiter, at)| {
            let waiter = waiter.clone();
            Choice::Later { waiter, at }
        })
    }

    /// Returns until when a key is kept for an earlier waiter than this one.
    fn kept_from(&self, queue: &KeyQueue<T>, own: Arrival, now: Timestamp) -> Option<Timestamp> {
        let (first, (keys, _)) = queue.several().next().filter(|(it, _)| **it < own)?;
        let until = kept_until(now)?;
        let is_first = |key| {
            let queue = self.by_key.get(key);
            queue.is_some_and(|queue| queue.first() == Some(*first))
        };
        keys.iter().all(is_first).then_some(until)
    }
}
