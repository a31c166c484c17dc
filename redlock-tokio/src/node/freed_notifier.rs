use std::{fmt, sync::Arc};

/// Receives from a [`Session`](super::Session) that a key which somebody waits for is gone.
///
/// ```
/// use std::sync::mpsc;
///
/// use redlock_tokio::node::FreedNotifier;
///
/// let (sender, receiver) = mpsc::channel();
/// let freed = FreedNotifier::new(move |key| {
///     let _ = sender.send(key.map(<[u8]>::to_vec));
/// });
/// freed.key(b"order:42");
/// freed.every_key();
/// assert_eq!(receiver.recv()?, Some(b"order:42".to_vec()));
/// assert_eq!(receiver.recv()?, None);
/// # Ok::<_, mpsc::RecvError>(())
/// ```
#[derive(Clone)]
pub struct FreedNotifier(Arc<Notify>);

type Notify = dyn Fn(Option<&[u8]>) + Send + Sync;

impl FreedNotifier {
    /// Creates a notifier that calls a function with the key, or with `None` if any key may be gone.
    ///
    /// The function must not block.
    #[must_use]
    pub fn new(notify: impl Fn(Option<&[u8]>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(notify))
    }

    /// Reports that a key was deleted, has expired or was changed. Never blocks.
    pub fn key(&self, key: &[u8]) {
        (self.0)(Some(key));
    }

    /// Reports that all keys are gone (`FLUSHALL`). Never blocks.
    pub fn every_key(&self) {
        (self.0)(None);
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
