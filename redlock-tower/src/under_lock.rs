use std::{pin::Pin, task::Poll, thread::panicking};

/// Polls work that runs under a lock. Returns `None` if the work has ended before.
///
/// If the work panics, this drops the work first and then the lock, while the thread unwinds. So the work is
/// dropped under its lock, and the lock is not handed over to a waiter in this process. Otherwise a caller that
/// catches the panic would drop both later, and the lock would be handed over as after a success.
pub(crate) fn poll<W, L, T>(
    work: Pin<&mut Option<W>>,
    lock: &mut Option<L>,
    poll: impl FnOnce(Pin<&mut W>) -> Poll<T>,
) -> Option<Poll<T>> {
    let mut under_lock = UnderLock {
        work,
        lock: lock.take(),
    };
    let polled = under_lock.work.as_mut().as_pin_mut().map(poll);
    *lock = under_lock.lock.take();
    polled
}

struct UnderLock<'a, W, L> {
    work: Pin<&'a mut Option<W>>,
    /// Dropped after the work.
    lock: Option<L>,
}

impl<W, L> Drop for UnderLock<'_, W, L> {
    fn drop(&mut self) {
        if panicking() {
            self.work.set(None);
        }
    }
}
