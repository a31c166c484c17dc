use std::cell::Cell;

thread_local! {
    static SEEDED: Cell<Option<Fault>> = const { Cell::new(None) };
}

/// A fault that a test seeds in the code, to show that a scenario finds it.
///
/// Shuttle runs all threads of a scenario on one thread of the system, which has its own fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A waiter that was handed a lock, and gives up before it takes the lock, forgets to release it.
    ForgetsUntakenLock,
    /// A waiter first looks whether there is a lock, and stores its waker later.
    StoresWakerLate,
    /// A holder first looks at the lease, and registers for changes later.
    RegistersLate,
    /// A deadline can be set after the timers have ended.
    SetsDeadlineInClosedTimers,
    /// The leases that the timers call back are not among all leases.
    ForgetsLeasesInHand,
}

impl Fault {
    pub(crate) fn is_seeded(self) -> bool {
        SEEDED.get() == Some(self)
    }

    /// Runs the code with the fault.
    pub(super) fn during<T>(self, run: impl FnOnce() -> T) -> T {
        SEEDED.set(Some(self));
        let result = run();
        SEEDED.set(None);
        result
    }
}
