use std::hash::{DefaultHasher, Hash, Hasher};

use crate::{Key, random::Random};

/// How many keys there is room for.
const PLACES: usize = PAGES * PLACES_OF_PAGE;

const PAGES: usize = 32;
const PLACES_OF_PAGE: usize = 32;

/// A map of a fixed size, for what may be forgotten: a key takes the place of another with a similar hash.
///
/// The hashes have a secret key, so that nobody can choose keys that make the table forget others.
#[derive(Clone)]
pub(crate) struct HashedTable<V> {
    /// Each page is allocated when the first key is put into it, because most programs lock few keys.
    pages: [Option<Page<V>>; PAGES],
    /// Has taken in the secret key.
    hasher: DefaultHasher,
}

type Page<V> = Box<[Option<Place<V>>]>;

#[derive(Clone)]
struct Place<V> {
    hash: u64,
    value: V,
}

impl<V> HashedTable<V> {
    pub(crate) fn new(random: &Random) -> Self {
        Self {
            pages: [const { None }; PAGES],
            hasher: random.hasher(),
        }
    }

    pub(crate) fn insert(&mut self, key: &Key, value: V) {
        let hash = self.hash(key);
        *self.place(hash) = Some(Place { hash, value });
    }

    pub(crate) fn remove(&mut self, key: &Key) -> Option<V> {
        let hash = self.hash(key);
        let place = self.known_place(hash)?;
        place
            .take_if(|entry| entry.hash == hash)
            .map(|entry| entry.value)
    }

    pub(crate) fn get_mut(&mut self, key: &Key) -> Option<&mut V> {
        let hash = self.hash(key);
        let place = self.known_place(hash)?.as_mut();
        place
            .filter(|entry| entry.hash == hash)
            .map(|entry| &mut entry.value)
    }

    /// Returns the value of a key. If there is none, it is made of the hash.
    pub(crate) fn get_or_insert_with(&mut self, key: &Key, value: impl FnOnce(u64) -> V) -> &mut V {
        let hash = self.hash(key);
        let place = self.place(hash);
        place.take_if(|entry| entry.hash != hash);
        let value = || Place {
            hash,
            value: value(hash),
        };
        &mut place.get_or_insert_with(value).value
    }

    /// Returns the hash of a key, which is another one in each table.
    pub(crate) fn hash(&self, key: &Key) -> u64 {
        let mut hasher = self.hasher.clone();
        key.hash(&mut hasher);
        hasher.finish()
    }

    /// Returns the place of a hash, unless its page is not allocated.
    fn known_place(&mut self, hash: u64) -> Option<&mut Option<Place<V>>> {
        let (page, place) = position(hash);
        self.pages[page].as_mut().map(|page| &mut page[place])
    }

    fn place(&mut self, hash: u64) -> &mut Option<Place<V>> {
        let (page, place) = position(hash);
        let page = &mut self.pages[page];
        let page = page.get_or_insert_with(|| (0..PLACES_OF_PAGE).map(|_| None).collect());
        &mut page[place]
    }
}

/// Returns the page of a hash, and the place on it.
const fn position(hash: u64) -> (usize, usize) {
    let place = hash as usize % PLACES;
    (place / PLACES_OF_PAGE, place % PLACES_OF_PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(count: usize) -> Vec<Key> {
        let key = |number: usize| Key::new(number.to_string()).unwrap();
        (0..count).map(key).collect()
    }

    #[test]
    fn a_key_never_finds_the_value_of_another() {
        let mut table = HashedTable::new(&Random::system());
        let keys = keys(10 * PLACES);
        for (number, key) in keys.iter().enumerate() {
            table.insert(key, number);
        }
        let mut found = 0;
        for (number, key) in keys.iter().enumerate() {
            let value = table.remove(key);
            assert!(value.is_none_or(|earlier| earlier == number));
            found += usize::from(value.is_some());
        }
        assert!((1..=PLACES).contains(&found), "{found}");
        assert_eq!(*table.get_or_insert_with(&keys[0], |_| 0), 0);
        *table.get_or_insert_with(&keys[0], |_| 1) += 7;
        assert_eq!(table.get_mut(&keys[0]), Some(&mut 7));
        assert_eq!(table.remove(&keys[0]), Some(7));
        assert_eq!(table.get_mut(&keys[0]), None);
    }

    #[test]
    fn only_an_insertion_allocates_a_page() {
        let mut table = HashedTable::new(&Random::system());
        let allocated = |table: &HashedTable<()>| table.pages.iter().flatten().count();
        let key = Key::new("k").unwrap();
        assert_eq!(table.get_mut(&key), None);
        assert_eq!(table.remove(&key), None);
        assert_eq!(allocated(&table), 0);
        table.insert(&key, ());
        assert_eq!(allocated(&table), 1);
    }

    /// Returns which keys the table still has after twice as many as there are places.
    fn kept(random: &Random) -> Vec<usize> {
        let mut table = HashedTable::new(random);
        let keys = keys(2 * PLACES);
        for key in &keys {
            table.insert(key, ());
        }
        let numbers = 0..keys.len();
        numbers
            .filter(|number| table.get_mut(&keys[*number]).is_some())
            .collect()
    }

    #[test]
    fn which_keys_are_forgotten_follows_from_the_secret_key_alone() {
        assert_eq!(kept(&Random::seeded(7)), kept(&Random::seeded(7)));
        assert_ne!(kept(&Random::seeded(7)), kept(&Random::seeded(8)));
        assert_ne!(kept(&Random::system()), kept(&Random::system()));
    }
}
