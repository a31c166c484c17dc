//! Tables that give back the memory of a peak.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
};

/// Tables with room for fewer entries are left alone.
const SMALL: usize = 1024;

/// Shrinks the map if it has become almost empty. Call this after each removal: the cost is constant on average, because
/// the map must first lose three quarters of its entries again.
pub(crate) fn map<K: Eq + Hash, V>(map: &mut HashMap<K, V>) {
    if is_almost_empty(map.len(), map.capacity()) {
        map.shrink_to(2 * map.len());
    }
}

/// Likewise.
pub(crate) fn deque<T>(deque: &mut VecDeque<T>) {
    if is_almost_empty(deque.len(), deque.capacity()) {
        deque.shrink_to(2 * deque.len());
    }
}

const fn is_almost_empty(len: usize, capacity: usize) -> bool {
    capacity > SMALL && len < capacity / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_gives_back_the_memory_of_its_peak_in_few_steps() {
        let mut table: HashMap<_, _> = (0..100_000).map(|number| (number, ())).collect();
        let (mut steps, mut capacity) = (0, table.capacity());
        for number in 0..100_000 {
            table.remove(&number);
            map(&mut table);
            // The capacity falls a little with each removal, too.
            steps += usize::from(table.capacity() < capacity / 2);
            capacity = table.capacity();
        }
        assert!(
            table.capacity() <= SMALL && steps <= 8,
            "{steps} steps to {}",
            table.capacity()
        );
    }

    #[test]
    fn a_table_that_grows_and_shrinks_by_little_keeps_its_size() {
        let mut queue: VecDeque<_> = (0..100_000).collect();
        queue.truncate(2000);
        deque(&mut queue);
        let capacity = queue.capacity();
        assert!(capacity < 10_000, "{capacity}");
        for _ in 0..100 {
            queue.extend(0..1000);
            queue.drain(..1500);
            deque(&mut queue);
            queue.extend(0..500);
            assert_eq!(queue.capacity(), capacity);
        }
    }
}
