mod key_set;
mod slot_keys;

use std::{borrow::Borrow, fmt, sync::Arc};

use thiserror::Error;

pub(crate) use self::{key_set::KeySet, slot_keys::SlotKeys};

/// The name of a lock: 1 byte to 64 KiB of any bytes, as they go to Redis.
///
/// Cheap to clone. `Debug` shows only the length, since keys often contain personal data. Use
/// [`Key::as_bytes`] to see the key.
///
/// ```
/// use redlock_tokio::{Key, errors::KeyError};
///
/// let key = Key::new("order:42")?;
/// assert_eq!(key.as_bytes(), b"order:42");
/// assert_eq!(format!("{key:?}"), "Key(8 bytes)");
/// assert_eq!(Key::new(""), Err(KeyError::Empty));
/// # Ok::<_, KeyError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<[u8]>);

impl Key {
    /// The longest key, in bytes.
    ///
    /// Redis accepts 512 MiB. But all locks share one connection to each node, and a huge key would delay the
    /// others.
    pub const MAX_LEN: usize = 64 * 1024;

    /// The largest number of keys that are locked at once. A server does nothing else while it sets them.
    pub const MAX_KEYS: usize = 1024;

    /// The prefix of fencing counters.
    pub(crate) const COUNTERS: &'static str = "redlock:fence:";

    /// The prefix of the sets of readers.
    pub(crate) const READERS: &'static str = "redlock:readers:";

    /// The prefix of the marks of writers that wait.
    pub(crate) const MARKS: &'static str = "redlock:wait:";

    /// The prefix of the channels on which processes that wait are called, and of all names that concern lines.
    pub(crate) const CALLS: &'static str = "redlock:line:";

    /// The prefix of the lines of processes that wait. (Older builds, whose processes
    /// sent no beats, had lines without the `of:`.)
    pub(crate) const LINES: &'static str = "redlock:line:of:";

    /// The prefix of the set of those that are alive, of their count, and of their places.
    pub(crate) const LIVING: &'static str = "redlock:line:living:";

    /// The value of a key that readers have.
    pub(crate) const SHARED: &'static str = "redlock:shared";

    /// The prefixes of keys that are not locks: counters, sets of readers, marks of writers, lines, and
    /// [markers](redlock_core::AgeMarker) of histories and of tenures.
    const RESERVED: [&'static str; 6] = [
        Self::COUNTERS,
        Self::READERS,
        Self::MARKS,
        Self::CALLS,
        "redlock:since:",
        "redlock:owner:",
    ];

    /// Creates a key.
    ///
    /// # Errors
    ///
    /// - [`KeyError::Empty`]: all callers with a missing key would share it.
    /// - [`KeyError::TooLong`]: the key exceeds [`Key::MAX_LEN`].
    /// - [`KeyError::Reserved`]: the key begins with `redlock:fence:`, `redlock:readers:`, `redlock:wait:`, `redlock:line:`,
    ///   `redlock:since:` or `redlock:owner:`. Fencing counters, sets of readers, marks of writers, lines, and markers have
    ///   such names.
    pub fn new(key: impl AsRef<[u8]>) -> Result<Self, KeyError> {
        Self::with_prefix(&Prefix::default(), key.as_ref())
    }

    /// Creates one key from parts, such as the kind of resource, the tenant and the number.
    ///
    /// Joins the parts with colons, and puts a backslash before each colon and backslash within a part. So
    /// different parts never make the same key. Programs in other languages can follow the same rule.
    /// `redlock_axum::key("order", [header("x-tenant"), path("order")])` makes the same key from a request.
    ///
    /// ```
    /// use redlock_tokio::Key;
    ///
    /// let order = Key::parts(["order", "acme", "42"])?;
    /// assert_eq!(order.as_bytes(), b"order:acme:42");
    /// assert_ne!(Key::parts(["ab", "c"])?, Key::parts(["a", "bc"])?);
    /// // `a\:b:c` and `a:b\:c`
    /// assert_ne!(Key::parts(["a:b", "c"])?, Key::parts(["a", "b:c"])?);
    /// # Ok::<_, redlock_tokio::errors::KeyError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - [`KeyError::NoParts`], [`KeyError::EmptyPart`]: all callers with a missing part would share the key.
    /// - [`KeyError::TooLong`], [`KeyError::Reserved`]: as for [`Key::new`].
    pub fn parts<I>(parts: I) -> Result<Self, KeyError>
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        let mut key = Vec::new();
        for (index, part) in parts.into_iter().enumerate() {
            let part = part.as_ref();
            if part.is_empty() {
                return Err(KeyError::EmptyPart { index });
            }
            if index > 0 {
                key.push(b':');
            }
            for &byte in part {
                if matches!(byte, b':' | b'\\') {
                    key.push(b'\\');
                }
                key.push(byte);
            }
        }
        if key.is_empty() {
            return Err(KeyError::NoParts);
        }
        Self::new(key)
    }

    pub(crate) fn with_prefix(prefix: &Prefix, key: &[u8]) -> Result<Self, KeyError> {
        let len = prefix.len_on_servers() + key.len();
        if key.is_empty() {
            Err(KeyError::Empty)
        } else if len > Self::MAX_LEN {
            Err(KeyError::TooLong { len })
        } else {
            let key: Arc<[u8]> = match prefix.as_bytes() {
                [] => key.into(),
                prefix => prefix.iter().chain(key).copied().collect(),
            };
            match Self::reserved(&key) {
                Some(name) => Err(KeyError::Reserved { name }),
                None => Ok(Self(key)),
            }
        }
    }

    /// Returns the reserved name with which these bytes begin.
    pub(crate) fn reserved(bytes: &[u8]) -> Option<&'static str> {
        let begins = |name: &&str| bytes.starts_with(name.as_bytes());
        Self::RESERVED.into_iter().find(begins)
    }

    /// Returns the bytes that go to Redis, with the prefix.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The bytes that all keys of a [`Redlock`](crate::Redlock) have in front of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prefix {
    bytes: Box<[u8]>,
    /// On the servers of a cluster, up to so many more bytes are in front of each key.
    pub(crate) tag_len: usize,
}

impl Prefix {
    pub(crate) fn new(bytes: Box<[u8]>, tag_len: usize) -> Self {
        Self { bytes, tag_len }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns how many bytes of a key on a server are not the caller's.
    pub(crate) fn len_on_servers(&self) -> usize {
        self.tag_len + self.bytes.len()
    }
}

/// Returns bytes as people read them: text as it is, unless a control character could garble a terminal.
pub(crate) fn shown(bytes: &[u8]) -> String {
    match str::from_utf8(bytes) {
        Ok(text) if !text.contains(char::is_control) => text.to_owned(),
        _ => bytes.escape_ascii().to_string(),
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

impl From<Key> for Vec<u8> {
    fn from(key: Key) -> Self {
        key.0.to_vec()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.0.len())
    }
}

/// Why bytes cannot be a key, or keys cannot be locked together.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The key is empty.
    #[error("the key is empty: give each resource a name of its own")]
    Empty,
    /// The key has no parts.
    #[error("the key has no parts: give each resource a name of its own")]
    NoParts,
    /// One of the key's parts is empty.
    #[error("part {index} of the key is empty, counted from 0")]
    EmptyPart {
        /// The position of the part, counted from 0.
        index: usize,
    },
    /// The key, with its prefix, begins with a name that this crate needs for other keys than locks.
    #[error(
        "the key begins with `{name}`, which is reserved for keys that are not locks: choose another"
    )]
    Reserved {
        /// The beginning that is reserved.
        name: &'static str,
    },
    /// A lock of several keys has none.
    #[error("no keys are given: there is nothing to lock")]
    NoKeys,
    /// A lock of several keys has more than [`Key::MAX_KEYS`].
    #[error(
        "{count} keys are too many to lock at once, the limit is {}",
        Key::MAX_KEYS
    )]
    TooMany {
        /// The number of keys, without repetitions.
        count: usize,
    },
    /// The key, or all keys of a lock together, have more than [`Key::MAX_LEN`] bytes. On a cluster, the tag that stands
    /// in front of each key counts too.
    #[error(
        "the key has {len} bytes with its prefix, and the limit is {}",
        Key::MAX_LEN
    )]
    TooLong {
        /// The number of bytes, with the prefix and the longest tag.
        len: usize,
    },
}

#[cfg(test)]
mod tests {
    use redlock_core::{AgeMarker, Owner, ReplicationId, Tenure};

    use super::*;

    fn prefix(text: &str) -> Prefix {
        Prefix::new(text.as_bytes().into(), 0)
    }

    #[test]
    fn the_tag_of_a_cluster_counts() {
        let tagged = Prefix::new(b"lock:"[..].into(), 7);
        let longest = vec![b'x'; Key::MAX_LEN - 12];
        let key = Key::with_prefix(&tagged, &longest).unwrap();
        // The tag is no part of it.
        assert!(key.as_bytes().starts_with(b"lock:x"));
        let len = Key::MAX_LEN + 1;
        let longer = [&longest[..], b"x"].concat();
        let one = Key::with_prefix(&tagged, &longer);
        assert_eq!(one, Err(KeyError::TooLong { len }));
        let half = |first| [&[first], &longest[..Key::MAX_LEN / 2 - 12]].concat();
        let len = Key::MAX_LEN + 2;
        let all = KeySet::all(&tagged, [half(b'a'), half(b'b')]);
        assert_eq!(all.map(|set| set.count()), Err(KeyError::TooLong { len }));
    }

    #[test]
    fn empty_and_long_keys_are_refused() {
        assert_eq!(Key::new(""), Err(KeyError::Empty));
        let prefixed = Key::with_prefix(&prefix("lock:"), b"");
        assert_eq!(prefixed, Err(KeyError::Empty));
        assert!(Key::new(vec![b'x'; Key::MAX_LEN]).is_ok());
        let len = Key::MAX_LEN + 1;
        assert_eq!(Key::new(vec![b'x'; len]), Err(KeyError::TooLong { len }));
    }

    #[test]
    fn different_parts_make_different_keys() {
        let all = [
            vec!["ab", "c"],
            vec!["a", "bc"],
            vec!["a:b", "c"],
            vec!["a", "b:c"],
            vec!["a\\", "b"],
            vec!["a\\:b"],
            vec!["a", "b"],
            vec!["a:b"],
            vec!["abc"],
        ];
        let keys: std::collections::HashSet<_> =
            all.iter().map(|parts| Key::parts(parts).unwrap()).collect();
        assert_eq!(keys.len(), all.len());
        let escaped = Key::parts(["order", r"a:b\c", "7"]).unwrap();
        assert_eq!(escaped.as_bytes(), br"order:a\:b\\c:7");
    }

    #[test]
    fn empty_parts_are_refused() {
        assert_eq!(Key::parts::<[&str; 0]>([]), Err(KeyError::NoParts));
        let error = Key::parts(["order", "", "7"]);
        assert_eq!(error, Err(KeyError::EmptyPart { index: 1 }));
        let long = "x".repeat(Key::MAX_LEN);
        let len = Key::MAX_LEN + 2;
        assert_eq!(Key::parts(["a", &long]), Err(KeyError::TooLong { len }));
    }

    #[test]
    fn names_of_counters_and_markers_are_refused() {
        let reserved = |name| Err(KeyError::Reserved { name });
        assert_eq!(Key::new("redlock:fence:{a}"), reserved("redlock:fence:"));
        let in_two = Key::with_prefix(&prefix("redlock:"), b"fence:x");
        assert_eq!(in_two, reserved("redlock:fence:"));
        assert!(Key::with_prefix(&prefix("lock:"), b"redlock:fence:x").is_ok());
        for name in ["redlock:readers:", "redlock:wait:", "redlock:line:"] {
            assert_eq!(Key::new(format!("{name}{{a}}")), reserved(name));
        }

        let history = ReplicationId::new([b'7'; ReplicationId::LEN]);
        let marker = Key::new(AgeMarker::key_of_history(history));
        assert_eq!(marker, reserved("redlock:since:"));
        let tenure = Tenure {
            owner: Owner::new("a:1"),
            epoch: 1,
        };
        let marker = Key::new(AgeMarker::key_of_tenure(&tenure));
        assert_eq!(marker, reserved("redlock:owner:"));
    }
}
