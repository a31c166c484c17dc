use redlock_core::{Slot, SlotSet};

use super::hashed_table::HashedTable;
use crate::{Key, random::Random, sync::Mutex};

/// Which slots of semaphores this process uses, by the key of the semaphore. If a semaphore is forgotten, an attempt may
/// be at a slot that the process has already. That costs a round trip, and does no other harm.
#[derive(Debug)]
pub(crate) struct SlotTable(Mutex<HashedTable<Slots>>);

#[derive(Debug, Default)]
struct Slots {
    in_use: SlotSet,
    /// The slot that was given back last.
    last: Option<Slot>,
}

impl SlotTable {
    pub(crate) fn new(random: &Random) -> Self {
        Self(Mutex::new(HashedTable::new(random)))
    }

    /// Returns the slot that the process had last, if no other lease uses it now.
    pub(crate) fn last(&self, semaphore: &Key) -> Option<Slot> {
        self.0.lock().get_mut(semaphore)?.last
    }

    /// Returns the slots that other leases of the process use than the one with this slot.
    pub(crate) fn others(&self, semaphore: &Key, own: Option<Slot>) -> SlotSet {
        let mut table = self.0.lock();
        let in_use = table
            .get_mut(semaphore)
            .map_or(SlotSet::EMPTY, |slots| slots.in_use);
        in_use.difference(own.into_iter().collect())
    }

    /// Notes that a lease uses another slot than before, or none.
    pub(crate) fn change(&self, semaphore: &Key, before: Option<Slot>, now: Option<Slot>) {
        let mut table = self.0.lock();
        let slots = table.get_or_insert_with(semaphore, |_| Slots::default());
        if let Some(before) = before {
            slots.in_use.remove(before);
        }
        match now {
            Some(now) => _ = slots.in_use.insert(now),
            None => slots.last = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_sees_the_slots_of_others_and_the_last_one_that_was_given_back() {
        let table = SlotTable::new(&Random::system());
        let key = Key::new("k").unwrap();
        let [zero, one, two] = [0, 1, 2].map(|index| Slot::new(index).unwrap());
        assert_eq!(
            (table.last(&key), table.others(&key, None)),
            (None, SlotSet::EMPTY)
        );
        table.change(&key, None, Some(zero));
        table.change(&key, None, Some(one));
        assert_eq!(table.others(&key, Some(one)), [zero].into_iter().collect());
        table.change(&key, Some(zero), Some(two));
        assert_eq!(table.last(&key), None, "another client has it");
        table.change(&key, Some(two), Some(zero));
        table.change(&key, Some(zero), None);
        assert_eq!(
            (table.last(&key), table.others(&key, None)),
            (Some(zero), [one].into_iter().collect())
        );
    }
}
