use std::{fmt, slice, sync::Arc};

use redlock_core::Share;

use super::{Prefix, SlotKeys};
use crate::{Key, KeyError};

/// How many keys of a lock a line of the log shows: enough to recognise the lock.
const LOGGED_KEYS: usize = 8;
/// How many characters of each key it shows. A client may have chosen the key, and a line must stay readable.
const LOGGED_CHARS: usize = 200;

/// The keys of a lock: mostly one, or several, in order and without repetitions.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KeySet(Keys);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Keys {
    One(Key),
    /// At least two.
    Several(Arc<[Key]>),
    /// The key of a semaphore, with those of its slots.
    Semaphore(Arc<SlotKeys>),
    /// A key that readers share.
    Read(Key),
    /// The same key, for a writer.
    Write(Key),
}

impl KeySet {
    /// Creates a set of these keys with the prefix. Together they may have no more bytes than one key.
    pub(crate) fn all<I>(prefix: &Prefix, keys: I) -> Result<Self, KeyError>
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        let keys = keys.into_iter();
        let mut keys = keys
            .map(|key| Key::with_prefix(prefix, key.as_ref()))
            .collect::<Result<Vec<_>, _>>()?;
        keys.sort_unstable();
        keys.dedup();
        let own = |key: &Key| prefix.tag_len + key.as_bytes().len();
        let len = keys.iter().map(own).sum();
        if keys.len() > Key::MAX_KEYS {
            return Err(KeyError::TooMany { count: keys.len() });
        }
        if len > Key::MAX_LEN {
            return Err(KeyError::TooLong { len });
        }
        Self::in_order(keys)
    }

    /// Creates a set of these keys, and leaves them in their order.
    pub(super) fn in_order(keys: Vec<Key>) -> Result<Self, KeyError> {
        match &keys[..] {
            [] => Err(KeyError::NoKeys),
            [key] => Ok(key.clone().into()),
            _ => Ok(Self(Keys::Several(keys.into()))),
        }
    }

    pub(crate) fn first(&self) -> &Key {
        match &self.0 {
            Keys::One(key) | Keys::Read(key) | Keys::Write(key) => key,
            Keys::Several(keys) => &keys[0],
            Keys::Semaphore(slots) => slots.semaphore(),
        }
    }

    pub(crate) fn iter(&self) -> slice::Iter<'_, Key> {
        match &self.0 {
            Keys::One(key) | Keys::Read(key) | Keys::Write(key) => slice::from_ref(key),
            Keys::Several(keys) => keys,
            Keys::Semaphore(slots) => slice::from_ref(slots.semaphore()),
        }
        .iter()
    }

    pub(crate) fn count(&self) -> usize {
        self.iter().len()
    }

    /// Returns what a log may show of the keys: text without control characters, of limited length.
    pub(crate) fn for_log(&self) -> impl fmt::Debug + use<> {
        let text = |key: &Key| {
            let text = String::from_utf8_lossy(key.as_bytes());
            text.chars().take(LOGGED_CHARS).collect()
        };
        // `Debug` escapes control characters.
        let keys = self.iter().take(LOGGED_KEYS).map(text);
        keys.collect::<Vec<String>>()
    }

    /// Returns the slots of a semaphore, if this is its key.
    pub(crate) fn slots(&self) -> Option<&SlotKeys> {
        match &self.0 {
            Keys::Semaphore(slots) => Some(slots),
            Keys::One(_) | Keys::Several(_) | Keys::Read(_) | Keys::Write(_) => None,
        }
    }

    /// Creates the set of one key that readers share.
    pub(crate) const fn to_read(key: Key) -> Self {
        Self(Keys::Read(key))
    }

    /// Creates the set of one key, for a writer beside readers.
    pub(crate) const fn to_write(key: Key) -> Self {
        Self(Keys::Write(key))
    }

    /// Returns who else may hold the lock.
    pub(crate) fn share(&self) -> Share {
        match &self.0 {
            Keys::One(_) | Keys::Several(_) => Share::Exclusive,
            Keys::Semaphore(slots) => Share::Permit(slots.permits()),
            Keys::Read(_) => Share::Reader,
            Keys::Write(_) => Share::Writer,
        }
    }

    pub(crate) fn has_several(&self) -> bool {
        matches!(self.0, Keys::Several(_))
    }
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl From<SlotKeys> for KeySet {
    fn from(slots: SlotKeys) -> Self {
        Self(Keys::Semaphore(slots.into()))
    }
}

impl From<Key> for KeySet {
    fn from(key: Key) -> Self {
        Self(Keys::One(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_order_without_repetitions() {
        let keys = KeySet::all(&Prefix::new(b"lock:"[..].into(), 0), ["b", "a", "b"]).unwrap();
        let shown: Vec<_> = keys.iter().map(Key::as_bytes).collect();
        assert_eq!(shown, [b"lock:a", b"lock:b"]);
        assert!(keys.has_several() && keys.count() == 2 && keys.first().as_bytes() == b"lock:a");
        let one = KeySet::all(&Prefix::default(), ["a", "a"]).unwrap();
        assert!(!one.has_several() && one.count() == 1 && one.iter().count() == 1);
    }

    #[test]
    fn a_log_shows_a_few_short_keys_without_control_characters() {
        let shown = |keys: &[&[u8]]| {
            let keys = KeySet::all(&Prefix::default(), keys).unwrap();
            format!("{:?}", keys.for_log())
        };
        assert_eq!(shown(&[b"order:42"]), r#"["order:42"]"#);
        let forged = b"a\nWARN redlock: \x1b[0m \xff";
        let expected = "[\"a\\nWARN redlock: \\u{1b}[0m \u{fffd}\"]";
        assert_eq!(shown(&[forged]), expected);
        let many: Vec<_> = (b'a'..=b'z').map(|letter| [letter; 300]).collect();
        let many: Vec<_> = many.iter().map(|part| &part[..]).collect();
        assert_eq!(shown(&many).len(), "[]".len() + 8 * 202 + 7 * ", ".len());
    }

    #[test]
    fn no_keys_and_too_many_are_refused() {
        let all =
            |keys: Vec<Vec<u8>>| KeySet::all(&Prefix::default(), keys).map(|keys| keys.count());
        let numbered = |count| {
            (0..count)
                .map(|it: usize| it.to_string().into_bytes())
                .collect()
        };
        assert_eq!(all(Vec::new()), Err(KeyError::NoKeys));
        assert_eq!(all(vec![b"a".to_vec(), Vec::new()]), Err(KeyError::Empty));
        assert_eq!(all(numbered(Key::MAX_KEYS)), Ok(Key::MAX_KEYS));
        let count = Key::MAX_KEYS + 1;
        assert_eq!(all(numbered(count)), Err(KeyError::TooMany { count }));
        let half = |first| [&[first], &*vec![b'x'; Key::MAX_LEN / 2]].concat();
        let len = Key::MAX_LEN + 2;
        assert_eq!(
            all(vec![half(b'a'), half(b'b')]),
            Err(KeyError::TooLong { len })
        );
    }
}
