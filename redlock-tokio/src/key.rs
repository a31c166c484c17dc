use std::{borrow::Borrow, fmt, sync::Arc};

use thiserror::Error;

/// The name of a lock: any bytes, as they go to Redis. Not empty, and at most 64 KiB.
///
/// Cheap to clone. `Debug` shows the length only, since keys tend to carry names and numbers of
/// people; take [`Key::as_bytes`] if you want to see one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<[u8]>);

impl Key {
    /// The longest key, in bytes.
    ///
    /// Redis would take 512 MiB, but all locks share one connection to each node, and a huge key
    /// would keep the others waiting.
    pub const MAX_LEN: usize = 64 * 1024;

    /// The most keys that are locked at once. A server does nothing else while it sets them.
    pub const MAX_KEYS: usize = 1024;

    /// Creates a key.
    ///
    /// # Errors
    ///
    /// Refuses an empty key (all callers whose key is missing would share it), and one longer
    /// than [`Key::MAX_LEN`].
    pub fn new(key: impl AsRef<[u8]>) -> Result<Self, KeyError> {
        Self::with_prefix(&[], key.as_ref())
    }

    pub(crate) fn with_prefix(prefix: &[u8], key: &[u8]) -> Result<Self, KeyError> {
        let len = prefix.len() + key.len();
        if key.is_empty() {
            Err(KeyError::Empty)
        } else if len > Self::MAX_LEN {
            Err(KeyError::TooLong { len })
        } else if prefix.is_empty() {
            Ok(Self(key.into()))
        } else {
            Ok(Self([prefix, key].concat().into()))
        }
    }

    /// Returns the bytes that go to Redis, prefix included.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.0.len())
    }
}

/// Why some bytes are not a key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// There are no bytes.
    #[error("the key is empty: give each resource a name of its own")]
    Empty,
    /// There are no keys to lock all of.
    #[error("no keys are given: there is nothing to lock")]
    NoKeys,
    /// There are more than [`Key::MAX_KEYS`] keys to lock all of.
    #[error(
        "{count} keys are too many to lock at once, the limit is {}",
        Key::MAX_KEYS
    )]
    TooMany {
        /// How many there are, without repetitions.
        count: usize,
    },
    /// There are more than [`Key::MAX_LEN`].
    #[error(
        "the key has {len} bytes with its prefix, and the limit is {}",
        Key::MAX_LEN
    )]
    TooLong {
        /// The number of bytes, with the prefix.
        len: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_any_bytes() {
        let bytes = [0, b'\r', b'\n', 0xff, b' '];
        assert_eq!(Key::new(bytes).unwrap().as_bytes(), bytes);
        let prefixed = Key::with_prefix(b"lock:", &bytes).unwrap();
        assert_eq!(prefixed.as_bytes(), b"lock:\0\r\n\xff ");
    }

    #[test]
    fn refuses_none_and_too_many() {
        assert_eq!(Key::new(""), Err(KeyError::Empty));
        assert_eq!(Key::with_prefix(b"lock:", b""), Err(KeyError::Empty));
        assert!(Key::new(vec![b'x'; Key::MAX_LEN]).is_ok());
        let len = Key::MAX_LEN + 1;
        assert_eq!(Key::new(vec![b'x'; len]), Err(KeyError::TooLong { len }));
    }

    #[test]
    fn debug_does_not_show_it() {
        let key = Key::new("account:12345").unwrap();
        assert_eq!(format!("{key:?}"), "Key(13 bytes)");
    }
}
