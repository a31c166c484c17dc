use std::{
    fmt,
    hash::{BuildHasher, RandomState},
};

use crate::Key;

/// How many keys there is room for.
const PLACES: usize = 1024;

/// A map of a fixed size, for what may be forgotten: a key takes the place of another with a similar hash.
pub(crate) struct HashedTable<V> {
    places: Box<[Option<Place<V>>]>,
    hasher: RandomState,
}

struct Place<V> {
    hash: u64,
    value: V,
}

impl<V> HashedTable<V> {
    pub(crate) fn new() -> Self {
        Self {
            places: (0..PLACES).map(|_| None).collect(),
            hasher: RandomState::new(),
        }
    }

    pub(crate) fn insert(&mut self, key: &Key, value: V) {
        let hash = self.hash(key);
        *self.place(hash) = Some(Place { hash, value });
    }

    pub(crate) fn remove(&mut self, key: &Key) -> Option<V> {
        let hash = self.hash(key);
        let removed = self.place(hash).take_if(|it| it.hash == hash);
        removed.map(|it| it.value)
    }

    pub(crate) fn get_mut(&mut self, key: &Key) -> Option<&mut V> {
        let hash = self.hash(key);
        let place = self.place(hash).as_mut().filter(|it| it.hash == hash);
        place.map(|it| &mut it.value)
    }

    pub(crate) fn get_or_default(&mut self, key: &Key) -> &mut V
    where
        V: Default,
    {
        let hash = self.hash(key);
        let place = self.place(hash);
        place.take_if(|it| it.hash != hash);
        let place = place.get_or_insert_with(|| Place {
            hash,
            value: V::default(),
        });
        &mut place.value
    }

    fn hash(&self, key: &Key) -> u64 {
        self.hasher.hash_one(key)
    }

    fn place(&mut self, hash: u64) -> &mut Option<Place<V>> {
        &mut self.places[hash as usize % PLACES]
    }
}

impl<V> fmt::Debug for HashedTable<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashedTable")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_never_finds_the_value_of_another() {
        let mut table = HashedTable::new();
        let keys: Vec<_> = (0..10 * PLACES)
            .map(|number| Key::new(number.to_string()).unwrap())
            .collect();
        for (number, key) in keys.iter().enumerate() {
            table.insert(key, number);
        }
        let mut found = 0;
        for (number, key) in keys.iter().enumerate() {
            let value = table.remove(key);
            assert!(value.is_none_or(|it| it == number));
            found += usize::from(value.is_some());
        }
        assert!((1..=PLACES).contains(&found), "{found}");
        assert_eq!(*table.get_or_default(&keys[0]), 0);
        *table.get_or_default(&keys[0]) += 7;
        assert_eq!(table.get_mut(&keys[0]), Some(&mut 7));
        assert_eq!(table.remove(&keys[0]), Some(7));
        assert_eq!(table.get_mut(&keys[0]), None);
    }
}
