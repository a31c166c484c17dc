use redlock_core::{Slot, SlotSet};

use super::hashed_table::HashedTable;
use crate::{Key, random::Random};

/// Which slots of semaphores this process uses, by the key of the semaphore. If a semaphore is forgotten, an attempt may
/// be at a slot that the process has already. That costs a round trip, and does no other harm.
pub(crate) struct SlotTable(HashedTable<Slots>);

#[derive(Debug, Default)]
struct Slots {
    in_use: SlotSet,
    /// Those that it has given back or seen free, and not asked for since.
    free: SlotSet,
}

impl SlotTable {
    pub(crate) fn new(random: &Random) -> Self {
        Self(HashedTable::new(random))
    }

    /// Returns the slots that are probably free: the process has given them back or seen them free.
    pub(crate) fn free(&mut self, semaphore: &Key) -> SlotSet {
        self.0
            .get_mut(semaphore)
            .map_or(SlotSet::EMPTY, |slots| slots.free)
    }

    /// Notes which slots a lease has seen free.
    pub(crate) fn note_free(&mut self, semaphore: &Key, free: SlotSet) {
        if let Some(slots) = self.0.get_mut(semaphore) {
            slots.free = free;
        }
    }

    /// Returns the slots that other leases of the process use than the one with this slot.
    pub(crate) fn others(&mut self, semaphore: &Key, own: Option<Slot>) -> SlotSet {
        let in_use = self
            .0
            .get_mut(semaphore)
            .map_or(SlotSet::EMPTY, |slots| slots.in_use);
        in_use.difference(own.into_iter().collect())
    }

    /// Notes that a lease uses another slot than before, or none. `was_held` says whether it held the permit of the one before.
    pub(crate) fn change(
        &mut self,
        semaphore: &Key,
        before: Option<Slot>,
        now: Option<Slot>,
        was_held: bool,
    ) {
        let slots = self.0.get_or_insert_with(semaphore, |_| Slots::default());
        if let Some(before) = before {
            slots.in_use.remove(before);
        }
        if let Some(before) = before.filter(|_| was_held) {
            slots.free.insert(before);
        }
        if let Some(now) = now {
            slots.in_use.insert(now);
            slots.free.remove(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_sees_the_slots_of_others_and_those_that_are_probably_free() {
        let mut table = SlotTable::new(&Random::system());
        let key = Key::new("k").unwrap();
        let slots = [0, 1, 2].map(|index| Slot::new(index).unwrap());
        let [zero, one, two] = slots;
        let set = |slots: &[Slot]| slots.iter().copied().collect::<SlotSet>();
        assert_eq!(
            (table.free(&key), table.others(&key, None)),
            (set(&[]), set(&[]))
        );
        table.change(&key, None, Some(zero), false);
        table.change(&key, None, Some(one), false);
        assert_eq!(table.others(&key, Some(one)), set(&[zero]));
        table.change(&key, Some(zero), Some(two), false);
        assert_eq!(table.free(&key), set(&[]), "another client has it");
        table.change(&key, Some(two), None, true);
        assert_eq!(
            (table.free(&key), table.others(&key, None)),
            (set(&[two]), set(&[one]))
        );
        table.note_free(&key, set(&[zero, two]));
        table.change(&key, None, Some(two), false);
        assert_eq!(table.free(&key), set(&[zero]));
    }
}
