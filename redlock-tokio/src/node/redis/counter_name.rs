//! The name of a lock's fencing counter.

use super::key_slot::KeySlot;

/// Returns the name of the key's counter: `redlock:fence:{key}`, or `redlock:fence:{tag}:key`. Different
/// keys have different counters.
///
/// The tag keeps the counter in the slot of the key, which a proxy before a cluster may ask for. If the key has a hash
/// tag, that is the tag. Otherwise the slot depends on the whole key, and the whole key is the tag. But a tag ends at its
/// first `}`, so a key that contains one cannot be a tag. Its counter is `redlock:fence:key`, in another slot.
pub(super) fn name_of(key: &[u8]) -> Vec<u8> {
    let prefix = crate::Key::COUNTERS.as_bytes();
    match KeySlot::hash_tag(key) {
        Some(tag) => [prefix, b"{", tag, b"}:", key].concat(),
        None if !key.contains(&b'}') => [prefix, b"{", key, b"}"].concat(),
        None => [prefix, key].concat(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn shown(key: &str) -> String {
        String::from_utf8(name_of(key.as_bytes())).unwrap()
    }

    #[test]
    fn counter_names_are_readable() {
        assert_eq!(shown("order:42"), "redlock:fence:{order:42}");
        assert_eq!(shown("{u1}:cart"), "redlock:fence:{u1}:{u1}:cart");
        assert_eq!(shown("a{b"), "redlock:fence:{a{b}");
        assert_eq!(shown("a}b"), "redlock:fence:a}b");
    }

    /// Those with a `}` and no tag have none in their slot. Tries all keys of up to six bytes that are braces or one of two letters, and random keys.
    #[test]
    fn every_key_has_a_counter_of_its_own_in_its_slot() {
        let mut names = HashSet::new();
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for len in 1..=6u32 {
            for code in 0..4usize.pow(len) {
                let byte = |place| b"{}ab"[code / 4usize.pow(place) % 4];
                keys.push((0..len).map(byte).collect());
            }
        }
        let mut random = 7u64;
        for _ in 0..5000 {
            let key = (0..9).map(|_| {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                let byte = random.to_be_bytes()[0];
                if byte < 60 {
                    b"{}"[usize::from(byte % 2)]
                } else {
                    byte
                }
            });
            keys.push(key.collect());
        }
        keys.sort();
        keys.dedup();
        let kinds = [true, false].map(|is_tagged| {
            let kind = keys
                .iter()
                .filter(|key| KeySlot::hash_tag(key).is_some() == is_tagged);
            kind.count()
        });
        assert!(kinds.iter().all(|count| *count > 1000), "{kinds:?}");
        for key in &keys {
            let name = name_of(key);
            if KeySlot::hash_tag(key).is_some() || !key.contains(&b'}') {
                assert_eq!(
                    KeySlot::of(&name),
                    KeySlot::of(key),
                    "{}",
                    name.escape_ascii()
                );
            }
            assert!(names.insert(name), "two keys have one counter");
        }
    }
}
