use std::collections::VecDeque;

use super::Arrival;
use crate::engine::shrink;

/// How many places of waiters that gave up a line may have besides as many as there are waiters.
const SPARE: usize = 16;

/// Waiters in the order of their arrivals.
///
/// Most join at the end and leave from the front. A waiter that gives up leaves an empty place behind, which is removed
/// with others, so that the next ones need not move up each time.
#[derive(Clone, Debug)]
pub(super) struct Line<T> {
    /// Neither the first nor the last is empty.
    places: VecDeque<(Arrival, Option<T>)>,
    waiting: usize,
}

impl<T> Line<T> {
    pub(super) const fn new() -> Self {
        Self {
            places: VecDeque::new(),
            waiting: 0,
        }
    }

    /// Adds a waiter. Its arrival may be a little older than those of others that joined before.
    pub(super) fn push(&mut self, arrival: Arrival, waiter: T) {
        let place = (arrival, Some(waiter));
        self.waiting += 1;
        if self.places.is_empty() {
            // Most lines are short.
            self.places.reserve_exact(1);
        }
        if self.places.back().is_none_or(|(last, _)| *last < arrival) {
            self.places.push_back(place);
        } else {
            let index = self
                .places
                .partition_point(|(earlier, _)| *earlier < arrival);
            self.places.insert(index, place);
        }
    }

    /// Removes the first waiter.
    pub(super) fn pop(&mut self) -> Option<(Arrival, T)> {
        let (arrival, waiter) = self.places.pop_front()?;
        self.waiting -= 1;
        self.tidy();
        Some((arrival, waiter?))
    }

    /// Removes a waiter. Returns whether it was there.
    pub(super) fn remove(&mut self, arrival: Arrival) -> bool {
        let index = self.places.binary_search_by_key(&arrival, |(it, _)| *it);
        let place = index.ok().and_then(|index| self.places.get_mut(index));
        if place.and_then(|(_, waiter)| waiter.take()).is_none() {
            return false;
        }
        self.waiting -= 1;
        self.tidy();
        true
    }

    pub(super) fn first(&self) -> Option<(Arrival, &T)> {
        let (arrival, waiter) = self.places.front()?;
        Some((*arrival, waiter.as_ref()?))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().filter_map(|(_, waiter)| waiter.as_ref())
    }

    pub(super) fn last(&self) -> Option<Arrival> {
        self.places.back().map(|(arrival, _)| *arrival)
    }

    pub(super) const fn len(&self) -> usize {
        self.waiting
    }

    /// Removes empty places at both ends, and all of them if they are many.
    fn tidy(&mut self) {
        while let Some((_, None)) = self.places.front() {
            self.places.pop_front();
        }
        while let Some((_, None)) = self.places.back() {
            self.places.pop_back();
        }
        if self.places.len() > 2 * self.waiting + SPARE {
            self.places.retain(|(_, waiter)| waiter.is_some());
        }
        shrink::deque(&mut self.places);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::random::Random;

    #[test]
    fn a_line_keeps_the_order_of_the_tickets_whoever_leaves() {
        let random = Random::seeded(7);
        let (mut line, mut expected) = (Line::new(), BTreeMap::new());
        for number in 0..20_000_u64 {
            let choice = random.u32().unwrap();
            // Each arrival is drawn once, and some come too late.
            let arrival = Arrival::new(number ^ (0b101 & (number >> 3)));
            // The line grows at first.
            if choice % 16 < 9 - number as u32 / 4000 {
                expected.insert(arrival, number);
                line.push(arrival, number);
            } else if choice.is_multiple_of(3) {
                assert_eq!(line.pop(), expected.pop_first());
            } else {
                let back = u64::from(choice) % (2 * expected.len() as u64 + 1);
                let arrival = Arrival::new(number.saturating_sub(back));
                assert_eq!(line.remove(arrival), expected.remove(&arrival).is_some());
            }
            let first = expected.first_key_value();
            assert_eq!(line.first(), first.map(|(arrival, it)| (*arrival, it)));
            assert_eq!(line.last(), expected.last_key_value().map(|(it, _)| *it));
            assert_eq!(line.len(), expected.len());
            assert!(line.places.len() <= 2 * line.len() + SPARE);
        }
        while let Some(next) = line.pop() {
            assert_eq!(Some(next), expected.pop_first());
        }
        assert!(expected.is_empty());
    }
}
