use std::cmp::Ordering;

/// The place of a waiter in the order of arrival: the smaller ticket came first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

impl Ticket {
    pub(crate) const fn new(number: u64) -> Self {
        Self(number)
    }
}

impl PartialOrd for Ticket {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ticket {
    fn cmp(&self, other: &Self) -> Ordering {
        #[cfg(test)]
        comparisons::count();
        self.0.cmp(&other.0)
    }
}

/// Counts the comparisons of tickets on each thread, so that a test can show what an operation costs.
#[cfg(test)]
pub(super) mod comparisons {
    use std::cell::Cell;

    thread_local! {
        static COUNT: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn count() {
        COUNT.set(COUNT.get() + 1);
    }

    /// Returns how many comparisons this takes.
    pub(in crate::engine::queue) fn during(run: impl FnOnce()) -> usize {
        let before = COUNT.get();
        run();
        COUNT.get() - before
    }
}
