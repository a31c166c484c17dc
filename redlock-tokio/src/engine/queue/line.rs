use std::collections::VecDeque;

use super::Ticket;
use crate::engine::shrink;

/// How many places of waiters that gave up a line may have besides as many as there are waiters.
const SPARE: usize = 16;

/// Waiters in the order of their tickets.
///
/// Most join at the end and leave from the front. A waiter that gives up leaves an empty place behind, which is removed
/// with others, so that the next ones need not move up each time.
#[derive(Clone, Debug)]
pub(super) struct Line<T> {
    /// Neither the first nor the last is empty.
    places: VecDeque<(Ticket, Option<T>)>,
    waiting: usize,
}

impl<T> Line<T> {
    pub(super) const fn new() -> Self {
        Self {
            places: VecDeque::new(),
            waiting: 0,
        }
    }

    /// Adds a waiter. Its ticket may be a little older than those of others that joined before.
    pub(super) fn push(&mut self, ticket: Ticket, waiter: T) {
        let place = (ticket, Some(waiter));
        self.waiting += 1;
        if self.places.is_empty() {
            // Most lines are short.
            self.places.reserve_exact(1);
        }
        if self.places.back().is_none_or(|(last, _)| *last < ticket) {
            self.places.push_back(place);
        } else {
            let index = self
                .places
                .partition_point(|(earlier, _)| *earlier < ticket);
            self.places.insert(index, place);
        }
    }

    /// Removes the first waiter.
    pub(super) fn pop(&mut self) -> Option<(Ticket, T)> {
        let (ticket, waiter) = self.places.pop_front()?;
        self.waiting -= 1;
        self.tidy();
        Some((ticket, waiter?))
    }

    /// Removes a waiter. Returns whether it was there.
    pub(super) fn remove(&mut self, ticket: Ticket) -> bool {
        let index = self.places.binary_search_by_key(&ticket, |(it, _)| *it);
        let place = index.ok().and_then(|index| self.places.get_mut(index));
        if place.and_then(|(_, waiter)| waiter.take()).is_none() {
            return false;
        }
        self.waiting -= 1;
        self.tidy();
        true
    }

    pub(super) fn first(&self) -> Option<(Ticket, &T)> {
        let (ticket, waiter) = self.places.front()?;
        Some((*ticket, waiter.as_ref()?))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().filter_map(|(_, waiter)| waiter.as_ref())
    }

    pub(super) fn last(&self) -> Option<Ticket> {
        self.places.back().map(|(ticket, _)| *ticket)
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
            // Each ticket is drawn once, and some come too late.
            let ticket = Ticket::new(number ^ (0b101 & (number >> 3)));
            // The line grows at first.
            if choice % 16 < 9 - number as u32 / 4000 {
                expected.insert(ticket, number);
                line.push(ticket, number);
            } else if choice.is_multiple_of(3) {
                assert_eq!(line.pop(), expected.pop_first());
            } else {
                let back = u64::from(choice) % (2 * expected.len() as u64 + 1);
                let ticket = Ticket::new(number.saturating_sub(back));
                assert_eq!(line.remove(ticket), expected.remove(&ticket).is_some());
            }
            let first = expected.first_key_value();
            assert_eq!(line.first(), first.map(|(ticket, it)| (*ticket, it)));
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
