use std::collections::BTreeSet;

use super::held_lease::Generation;

/// The holders of a lease that has several at once, because readers share it. Empty for a lease that has one after the other.
#[derive(Debug, Default)]
pub(super) struct Holders(Option<Box<Readers>>);

#[derive(Debug)]
struct Readers {
    /// The one that the others have joined.
    first: Generation,
    present: BTreeSet<Generation>,
}

impl Holders {
    /// Returns whether this holder is there. `last` is the one that came last.
    pub(super) fn contains(&self, holder: Generation, last: Generation) -> bool {
        let readers = self.0.as_ref();
        readers.map_or(last == holder, |readers| readers.present.contains(&holder))
    }

    /// Returns whether this holder has joined another one.
    pub(super) fn has_joined(&self, holder: Generation) -> bool {
        let readers = self.0.as_ref();
        readers.is_some_and(|readers| readers.first < holder)
    }

    /// Adds the next holder beside the others.
    pub(super) fn join(&mut self, last: &mut Generation) {
        let readers = self.0.get_or_insert_with(|| {
            Box::new(Readers {
                first: *last,
                present: [*last].into(),
            })
        });
        *last = last.next();
        readers.present.insert(*last);
    }

    /// Removes a holder, unless it is the only one. Returns whether others are left.
    pub(super) fn remove(&mut self, holder: Generation) -> bool {
        let Some(readers) = &mut self.0 else {
            return false;
        };
        let has_others = readers.present.len() > 1;
        if has_others {
            readers.present.remove(&holder);
        }
        has_others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_that_takes_over_is_alone() {
        let mut holders = Holders::default();
        let [first, second] = [Generation::FIRST, Generation::FIRST.next()];
        assert!(holders.contains(first, first) && !holders.contains(second, first));
        assert!(!holders.contains(first, second) && holders.contains(second, second));
        assert!(!holders.remove(second));
    }

    #[test]
    fn holders_that_join_are_there_until_each_is_removed() {
        let mut holders = Holders::default();
        let first = Generation::FIRST;
        let mut last = first;
        let mut join = |holders: &mut Holders| {
            holders.join(&mut last);
            last
        };
        let (second, third) = (join(&mut holders), join(&mut holders));
        let is_there = |holders: &Holders| {
            [first, second, third].map(|holder| holders.contains(holder, third))
        };
        assert_eq!(is_there(&holders), [true; 3]);
        assert!(holders.remove(first));
        assert_eq!(is_there(&holders), [false, true, true]);
        assert!(holders.remove(third));
        assert_eq!(is_there(&holders), [false, true, false]);
        assert!(!holders.remove(second), "the last one ends the lease");
        let fourth = join(&mut holders);
        assert!(holders.remove(second) && holders.contains(fourth, fourth));
    }
}
