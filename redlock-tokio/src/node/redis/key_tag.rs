//! Text in front of the keys of a cluster.

use std::{borrow::Cow, io::Write, sync::Arc};

use deadpool_redis::redis::{RedisWrite, ToRedisArgs};

use super::key_slot::KeySlot;
use crate::{
    Key,
    node::{FreedNotifier, Notice},
};

/// The text that all keys of a session have in front of them on the server: `{tag}` for a voter of a cluster,
/// whose keys must all be in one slot, and nothing elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KeyTag(Option<Arc<[u8]>>);

/// A key as it goes to the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct WireKey<'a> {
    tag: &'a [u8],
    key: &'a [u8],
}

impl KeyTag {
    /// Keys go to the server as they are.
    pub(super) const NONE: Self = Self(None);

    /// Keys go to the server as `{tag}key`.
    pub(super) fn in_braces(tag: &str) -> Self {
        Self(Some(format!("{{{tag}}}").into_bytes().into()))
    }

    /// Returns the key as it goes to the server. Allocates nothing.
    pub(super) fn on<'a>(&'a self, key: &'a [u8]) -> WireKey<'a> {
        WireKey {
            tag: self.as_bytes(),
            key,
        }
    }

    /// Returns the key that the server calls by this name. `None` if the name has no tag, or another one.
    pub(super) fn strip<'a>(&self, name: &'a [u8]) -> Option<&'a [u8]> {
        name.strip_prefix(self.as_bytes())
    }

    /// Returns a notifier of keys by the names that the server has for them.
    pub(super) fn stripped_for(&self, freed: FreedNotifier) -> FreedNotifier {
        if self.0.is_none() {
            return freed;
        }
        let tag = self.clone();
        FreedNotifier::new(move |notice| match notice {
            Notice::Freed(name) => _ = tag.strip(name).map(|key| freed.key(key)),
            Notice::Called {
                key: name,
                is_taken,
            } => {
                _ = tag.strip(name).map(|key| freed.called(key, is_taken));
            }
            Notice::AllFreed => freed.every_key(),
        })
    }

    pub(super) fn counter_of(&self, key: &[u8]) -> Vec<u8> {
        self.beside(Key::COUNTERS, key)
    }

    /// Returns the name with this prefix that goes with the key, such as `redlock:fence:{key}` or `redlock:fence:{tag}:key`.
    /// Different keys have different names.
    ///
    /// The tag keeps it in the slot of the key, which a proxy before a cluster may ask for. If the key has a hash tag, that
    /// is the tag. Otherwise the slot depends on the whole key, and the whole key is the tag. But a tag ends at its first
    /// `}`, so a key that contains one cannot be a tag. Its counter is `redlock:fence:key`, in another slot.
    pub(super) fn beside(&self, prefix: &str, key: &[u8]) -> Vec<u8> {
        let prefix = prefix.as_bytes();
        let key = &*self.on(key).to_bytes();
        match KeySlot::hash_tag(key) {
            Some(tag) => [prefix, b"{", tag, b"}:", key].concat(),
            None if !key.contains(&b'}') => [prefix, b"{", key, b"}"].concat(),
            None => [prefix, key].concat(),
        }
    }

    /// Returns how many bytes longer a key is on the server.
    pub(super) fn len(&self) -> usize {
        self.as_bytes().len()
    }

    fn as_bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl<'a> WireKey<'a> {
    pub(super) fn len(self) -> usize {
        self.tag.len() + self.key.len()
    }

    pub(super) fn to_bytes(self) -> Cow<'a, [u8]> {
        if self.tag.is_empty() {
            self.key.into()
        } else {
            [self.tag, self.key].concat().into()
        }
    }
}

impl ToRedisArgs for WireKey<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        if self.tag.is_empty() {
            return out.write_arg(self.key);
        }
        let mut argument = out.writer_for_next_arg();
        for part in [self.tag, self.key] {
            argument
                .write_all(part)
                .expect("a command is a buffer in memory, which takes any bytes");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_tag_stands_before_the_key_on_the_server_and_nowhere_else() {
        let tag = KeyTag::in_braces("8209");
        assert_eq!(tag.on(b"a\0b").to_redis_args(), [b"{8209}a\0b"]);
        assert_eq!(tag.on(b"a\0b").len(), tag.len() + 3);
        assert_eq!(tag.strip(b"{8209}a\0b"), Some(&b"a\0b"[..]));
        assert_eq!(tag.strip(b"{1}a"), None);
        assert_eq!(KeyTag::NONE.on(b"a").to_redis_args(), [b"a"]);
        assert_eq!(KeyTag::NONE.strip(b"{1}a"), Some(&b"{1}a"[..]));
    }

    #[test]
    fn a_key_and_its_counter_are_in_the_slot_of_the_tag() {
        for voter in 0..7 {
            let slot = KeySlot::of_voter(voter, 7);
            let tag = KeyTag::in_braces(&slot.tag());
            for key in ["a", "{b}", "}", "{}", "{", "a}{b"] {
                let [name] = &tag.on(key.as_bytes()).to_redis_args()[..] else {
                    panic!("one argument");
                };
                assert_eq!(KeySlot::of(name), slot, "{key}");
                for prefix in [Key::COUNTERS, Key::READERS, Key::MARKS] {
                    let beside = tag.beside(prefix, key.as_bytes());
                    assert_eq!(KeySlot::of(&beside), slot, "{key}");
                }
            }
        }
    }

    #[test]
    fn counter_names_are_readable() {
        for (key, name) in [
            ("order:42", "redlock:fence:{order:42}"),
            ("{u1}:cart", "redlock:fence:{u1}:{u1}:cart"),
            ("a{b", "redlock:fence:{a{b}"),
            ("a}b", "redlock:fence:a}b"),
        ] {
            let counter = KeyTag::NONE.counter_of(key.as_bytes());
            assert_eq!(String::from_utf8(counter).unwrap(), name);
        }
    }

    /// Those with a `}` and no tag have none in their slot. Tries all keys of up to six bytes that are braces or one of
    /// two letters.
    #[test]
    fn every_key_has_a_counter_of_its_own_in_its_slot() {
        let mut names = HashSet::new();
        for len in 1..=6u32 {
            for code in 0..4usize.pow(len) {
                let byte = |place| b"{}ab"[code / 4usize.pow(place) % 4];
                let key: Vec<u8> = (0..len).map(byte).collect();
                let name = KeyTag::NONE.counter_of(&key);
                if KeySlot::hash_tag(&key).is_some() || !key.contains(&b'}') {
                    let shown = name.escape_ascii();
                    assert_eq!(KeySlot::of(&name), KeySlot::of(&key), "{shown}");
                }
                assert!(names.insert(name), "two keys have one counter");
            }
        }
    }
}
