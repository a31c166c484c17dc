use redlock_core::{Permits, Slot, SlotSet};

use super::{KeySet, Prefix};
use crate::{Key, KeyError};

/// Stands between the key of a semaphore and the number of a slot.
const SEPARATOR: &[u8] = b":slot:";

/// The keys of a semaphore's slots: `<key>:slot:<index>`.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SlotKeys {
    semaphore: Key,
    permits: Permits,
    /// In the order of the slots.
    keys: KeySet,
}

impl SlotKeys {
    /// Creates the keys for a semaphore with this key, without the prefix.
    pub(crate) fn new(prefix: &Prefix, key: &[u8], permits: Permits) -> Result<Self, KeyError> {
        let semaphore = Key::with_prefix(prefix, key)?;
        let named = |slot: Slot| Key::with_prefix(prefix, &Self::name(key, slot.index()));
        let keys = permits.slots().iter().map(named);
        let keys = KeySet::in_order(keys.collect::<Result<_, _>>()?)?;
        Ok(Self {
            semaphore,
            permits,
            keys,
        })
    }

    /// Returns the name of a slot.
    pub(crate) fn name(semaphore: &[u8], slot: usize) -> Vec<u8> {
        [semaphore, SEPARATOR, slot.to_string().as_bytes()].concat()
    }

    /// Returns the key of the semaphore, which no node has.
    pub(super) const fn semaphore(&self) -> &Key {
        &self.semaphore
    }

    pub(crate) const fn permits(&self) -> Permits {
        self.permits
    }

    /// Returns the key of one slot. `None` if there is no such slot.
    pub(crate) fn get(&self, slot: Slot) -> Option<&Key> {
        self.keys.iter().nth(slot.index())
    }

    /// Returns the key of the last slot, which says how many there are.
    pub(crate) fn last(&self) -> Option<&Key> {
        self.keys.iter().last()
    }

    /// Returns the keys of these slots, in the order of the slots.
    pub(crate) fn keys_of(&self, slots: SlotSet) -> KeySet {
        if slots == self.permits.slots() {
            return self.keys.clone();
        }
        let keys = slots.iter().filter_map(|slot| self.get(slot).cloned());
        KeySet::in_order(keys.collect()).unwrap_or_else(|_| self.keys.clone())
    }

    /// Returns the semaphore and the slot whose key has this name, if it can be one.
    pub(crate) fn parse(name: &[u8]) -> Option<(&[u8], Slot)> {
        let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit());
        let (rest, index) = name.split_at(name.len() - digits.count());
        let index = str::from_utf8(index).ok()?.parse().ok()?;
        Some((rest.strip_suffix(SEPARATOR)?, Slot::new(index)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(prefix: &Prefix, key: &[u8], permits: usize) -> Result<SlotKeys, KeyError> {
        SlotKeys::new(prefix, key, Permits::new(permits).unwrap())
    }

    #[test]
    fn each_slot_has_a_key_of_its_own_by_which_it_is_found() {
        let prefix = Prefix::new(b"lock:"[..].into(), 0);
        let slots = slots(&prefix, b"exports", 12).unwrap();
        let names: Vec<_> = slots.keys.iter().map(Key::as_bytes).collect();
        assert_eq!(names.len(), 12);
        assert_eq!(names[2], b"lock:exports:slot:2");
        assert_eq!(names[11], b"lock:exports:slot:11");
        let last = Slot::new(11).unwrap();
        assert_eq!(slots.get(last).map(Key::as_bytes), Some(names[11]));
        let parsed = SlotKeys::parse(names[11]);
        assert_eq!(parsed, Some((&b"lock:exports"[..], last)));
        assert_eq!(slots.get(Slot::new(12).unwrap()), None);
    }

    #[test]
    fn other_names_are_no_slots() {
        for name in [
            &b"order:42"[..],
            b"order:slot:",
            b"order:slot:128",
            b"order:slot:x",
            b"7",
            b"",
            b"order:slot:99999999999999999999999",
        ] {
            assert_eq!(SlotKeys::parse(name), None, "{}", name.escape_ascii());
        }
    }

    #[test]
    fn a_key_leaves_room_for_the_number_of_a_slot() {
        let none = Prefix::default();
        assert_eq!(slots(&none, b"", 1).err(), Some(KeyError::Empty));
        let long = vec![b'k'; Key::MAX_LEN - 8];
        assert!(slots(&none, &long, 100).is_ok());
        let len = Key::MAX_LEN + 1;
        let error = slots(&none, &long, 101).err();
        assert_eq!(error, Some(KeyError::TooLong { len }));
    }
}
