use std::{fmt, sync::Arc};

/// Where a [`Session`](super::Session) tells that a key is gone which somebody waits for.
#[derive(Clone)]
pub struct FreedNotifier(Arc<Tell>);

type Tell = dyn Fn(Option<&[u8]>) + Send + Sync;

impl FreedNotifier {
    /// Creates it from what is to be done: with the key, or without one if it may be any.
    #[must_use]
    pub fn new(tell: impl Fn(Option<&[u8]>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    /// Tells that a key was deleted, has expired or was changed. Never blocks.
    pub fn key(&self, key: &[u8]) {
        (self.0)(Some(key));
    }

    /// Tells that all keys are gone (`FLUSHALL`). Never blocks.
    pub fn every_key(&self) {
        (self.0)(None);
    }
}

impl PartialEq for FreedNotifier {
    /// Whether they are clones of one another.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for FreedNotifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FreedNotifier")
    }
}
