use core::{error::Error, fmt};

/// How many clients may hold a semaphore at once: 1 to 128.
///
/// A semaphore has one key for each permit: its [slots](Slot). A client that holds a permit holds one slot, as it would
/// hold a lock. Two clients never hold the same slot, so there are no more holders than slots. If clients use different
/// numbers of permits for one key, the largest number is the limit.
///
/// ```
/// use redlock_core::{Permits, PermitsError};
///
/// let permits = Permits::new(4)?;
/// assert_eq!(permits.slots().len(), 4);
/// assert!(Permits::new(0).is_err());
/// assert!(Permits::new(129).is_err());
/// # Ok::<(), PermitsError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Permits(u8);

impl Permits {
    /// The most permits that a semaphore can have. A look at the semaphore asks each node for each slot.
    pub const MAX: usize = 128;

    /// Creates the number of permits.
    ///
    /// # Errors
    ///
    /// Refuses zero permits, and more than [`Permits::MAX`].
    pub const fn new(permits: usize) -> Result<Self, PermitsError> {
        match permits {
            // The range fits into u8.
            1..=Self::MAX => Ok(Self(permits as u8)),
            _ => Err(PermitsError { permits }),
        }
    }

    /// Returns the number of permits.
    #[must_use]
    pub const fn count(self) -> usize {
        self.0 as usize
    }

    /// Returns all slots.
    #[must_use]
    pub const fn slots(self) -> SlotSet {
        SlotSet::from_bits(u128::MAX >> (Self::MAX - self.count()))
    }
}

/// One slot of a semaphore, counted from zero. Its key is `<key>:slot:<index>`.
///
/// ```
/// use redlock_core::Slot;
///
/// let third = Slot::new(2).expect("below 128");
/// assert_eq!(third.index(), 2);
/// assert_eq!(Slot::new(128), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u8);

impl Slot {
    /// The first slot. A lock is a semaphore of this slot only, whose key has another name.
    pub const FIRST: Self = Self(0);

    /// Creates the slot with this index, or `None` if `index` is 128 or more.
    #[must_use]
    pub const fn new(index: usize) -> Option<Self> {
        if index < Permits::MAX {
            // Below 128, so it fits.
            Some(Self(index as u8))
        } else {
            None
        }
    }

    /// Returns the index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot {}", self.0)
    }
}

/// A set of slots, one bit each.
///
/// ```
/// use redlock_core::{Slot, SlotSet};
///
/// let taken: SlotSet = [0, 127].into_iter().filter_map(Slot::new).collect();
/// assert_eq!(taken.len(), 2);
/// assert_eq!(format!("{taken:?}"), "{0, 127}");
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct SlotSet {
    /// The lower and the upper 64. A `u128` would need a larger alignment.
    halves: [u64; 2],
}

impl SlotSet {
    /// The set without slots.
    pub const EMPTY: Self = Self { halves: [0; 2] };

    /// The set of all slots.
    pub(crate) const ALL: Self = Self {
        halves: [u64::MAX; 2],
    };

    /// The set of the one slot that a lock has.
    pub(crate) const OF_A_LOCK: Self = Self { halves: [1, 0] };

    const fn from_bits(bits: u128) -> Self {
        Self {
            halves: [bits as u64, (bits >> 64) as u64],
        }
    }

    const fn bits(self) -> u128 {
        let [lower, upper] = self.halves;
        lower as u128 | (upper as u128) << 64
    }

    /// Adds a slot. Returns whether the slot was absent.
    pub const fn insert(&mut self, slot: Slot) -> bool {
        let is_new = !self.contains(slot);
        *self = Self::from_bits(self.bits() | 1 << slot.0);
        is_new
    }

    /// Removes a slot. Returns whether the slot was in the set.
    pub const fn remove(&mut self, slot: Slot) -> bool {
        let was_there = self.contains(slot);
        *self = Self::from_bits(self.bits() & !(1 << slot.0));
        was_there
    }

    /// Returns whether the slot is in the set.
    #[must_use]
    pub const fn contains(self, slot: Slot) -> bool {
        self.bits() & (1 << slot.0) != 0
    }

    /// Returns the number of slots in the set.
    #[must_use]
    pub const fn len(self) -> usize {
        self.bits().count_ones() as usize
    }

    /// Returns whether the set has no slots.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.bits() == 0
    }

    /// Returns the slots that are in either set.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self::from_bits(self.bits() | other.bits())
    }

    /// Returns the slots that are in both sets.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self::from_bits(self.bits() & other.bits())
    }

    /// Returns the slots of this set that are not in `other`.
    #[must_use]
    pub const fn difference(self, other: Self) -> Self {
        Self::from_bits(self.bits() & !other.bits())
    }

    /// Returns the slots in ascending order.
    pub fn iter(self) -> impl Iterator<Item = Slot> {
        let mut rest = self.bits();
        core::iter::from_fn(move || {
            let index = rest.trailing_zeros() as u8;
            rest &= rest.checked_sub(1)?;
            Some(Slot(index))
        })
    }
}

impl FromIterator<Slot> for SlotSet {
    fn from_iter<I: IntoIterator<Item = Slot>>(slots: I) -> Self {
        let mut set = Self::EMPTY;
        for slot in slots {
            set.insert(slot);
        }
        set
    }
}

impl fmt::Debug for SlotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Slot::index)).finish()
    }
}

/// Why a semaphore cannot have this number of permits: it is zero, or more than [`Permits::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PermitsError {
    permits: usize,
}

impl fmt::Display for PermitsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = Permits::MAX;
        match self.permits {
            0 => f.write_str("no permits: nobody could ever get one"),
            permits => write!(f, "{permits} permits: at most {most} are supported"),
        }
    }
}

impl Error for PermitsError {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{string::ToString, vec::Vec};

    fn set(indices: &[usize]) -> SlotSet {
        indices.iter().filter_map(|it| Slot::new(*it)).collect()
    }

    #[test]
    fn permits_are_counted_from_1_to_128() {
        for count in [1, 2, 63, 64, 65, 128] {
            let slots = Permits::new(count).unwrap().slots();
            assert_eq!(slots.len(), count);
            let indices: Vec<_> = slots.iter().map(Slot::index).collect();
            assert_eq!(indices, (0..count).collect::<Vec<_>>());
        }
        let [none, many] = [0, 129].map(|count| Permits::new(count).unwrap_err().to_string());
        assert_eq!(none, "no permits: nobody could ever get one");
        assert_eq!(many, "129 permits: at most 128 are supported");
    }

    #[test]
    fn sets_of_slots() {
        let mut slots = set(&[3, 64, 127]);
        assert!(!slots.insert(Slot(64)) && slots.insert(Slot(0)));
        assert!(slots.remove(Slot(3)) && !slots.remove(Slot(3)));
        assert_eq!(slots, set(&[0, 64, 127]));
        assert_eq!(slots.intersection(set(&[1, 64])), set(&[64]));
        assert_eq!(slots.difference(set(&[1, 64])), set(&[0, 127]));
        assert!(SlotSet::EMPTY.is_empty() && !slots.is_empty());
        assert_eq!(SlotSet::OF_A_LOCK, set(&[Slot::FIRST.index()]));
        assert_eq!(Slot(127).to_string(), "slot 127");
    }
}
