use std::{fmt, sync::Arc};

/// Receives from a [`Session`](super::Session) that a key which somebody waits for is gone, or that this process may try to
/// get it.
///
/// ```
/// use std::sync::mpsc;
///
/// use redlock_tokio::node::{FreedNotifier, Notice};
///
/// let (sender, receiver) = mpsc::channel();
/// let freed = FreedNotifier::new(move |notice| {
///     let _ = sender.send(matches!(notice, Notice::Freed(b"order:42")));
/// });
/// freed.key(b"order:42");
/// freed.every_key();
/// assert_eq!((receiver.recv()?, receiver.recv()?), (true, false));
/// # Ok::<_, mpsc::RecvError>(())
/// ```
#[derive(Clone)]
pub struct FreedNotifier(Arc<Notify>);

type Notify = dyn Fn(Notice<'_>) + Send + Sync;

/// What a [`FreedNotifier`] is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice<'a> {
    /// This key was deleted, has expired or was changed.
    Freed(&'a [u8]),
    /// All keys are gone.
    AllFreed,
    /// This process is among the first in the line of this key now. `is_taken` is whether the one before it has got the lock,
    /// so that there will be another call when it is released.
    Called { key: &'a [u8], is_taken: bool },
}

impl FreedNotifier {
    /// Creates a notifier that calls a function, which must not block.
    #[must_use]
    pub fn new(notify: impl Fn(Notice<'_>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(notify))
    }

    /// Reports that a key was deleted, has expired or was changed. Never blocks.
    pub fn key(&self, key: &[u8]) {
        (self.0)(Notice::Freed(key));
    }

    /// Reports that all keys are gone (`FLUSHALL`). Never blocks.
    pub fn every_key(&self) {
        (self.0)(Notice::AllFreed);
    }

    /// Reports that this process is among the first in the [line](super::LineRequest) of a key now, before any answer that the
    /// node has given later. Else the process may pass others. `is_taken` is whether the one before it
    /// [has the lock](super::LineAction::Leave). Never blocks.
    pub fn called(&self, key: &[u8], is_taken: bool) {
        (self.0)(Notice::Called { key, is_taken });
    }
}

impl PartialEq for FreedNotifier {
    /// Returns whether the two are clones of each other.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for FreedNotifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FreedNotifier")
    }
}
