use std::{pin::Pin, task::Poll, thread::panicking};

/// Polls work that has a lock beside it. `None` if it is over.
///
/// If it panics, what is left of it is dropped while the lock is still held. Then the lock is, while this
/// unwinds, so that it is not handed over: whoever catches the panic further out drops the rest later, as if
/// nothing had happened.
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
