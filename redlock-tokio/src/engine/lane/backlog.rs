use std::{collections::VecDeque, mem};

use super::{handle::ReplyTo, limits::SMALL};
use crate::{engine::shrink, node::Command};

/// The requests that a lane has taken from its inbox and not sent yet.
///
/// Small requests and large ones wait apart, so that a lock of one key does not wait behind all locks of many keys. The
/// requests of one lease stay in order: they have the same keys, or are for one slot or a look at all slots.
pub(super) struct Backlog {
    small: Line,
    large: Line,
    /// Large requests were left behind when small ones were taken last.
    large_are_due: bool,
}

/// Requests in the order in which they came.
pub(super) struct Line(VecDeque<Request>);

pub(super) type Request = (Command, ReplyTo);

impl Backlog {
    pub(super) const fn new() -> Self {
        Self {
            small: Line::new(),
            large: Line::new(),
            large_are_due: false,
        }
    }

    pub(super) fn push(&mut self, command: Command, reply_to: ReplyTo) {
        let line = if is_small(&command) {
            &mut self.small
        } else {
            &mut self.large
        };
        line.0.push_back((command, reply_to));
    }

    /// Returns the requests whose turn it is: the small ones, unless the large ones were left behind the last time.
    pub(super) fn next_line(&mut self) -> &mut Line {
        let is_large = self.large_are_due || self.small.0.is_empty();
        self.large_are_due = !is_large && !self.large.0.is_empty();
        if is_large {
            &mut self.large
        } else {
            &mut self.small
        }
    }

    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Request> + use<> {
        let Self { small, large, .. } = mem::replace(self, Self::new());
        small.0.into_iter().chain(large.0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.small.0.is_empty() && self.large.0.is_empty()
    }
}

/// A look at all slots of a semaphore is small however many there are, since it must not overtake the release of one.
fn is_small(command: &Command) -> bool {
    command.key_count() <= SMALL || command.probes_slots()
}

impl Line {
    const fn new() -> Self {
        Self(VecDeque::new())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes the oldest request.
    pub(super) fn pop(&mut self) -> Option<Request> {
        let request = self.0.pop_front();
        shrink::deque(&mut self.0);
        request
    }
}

#[cfg(test)]
mod tests {
    use redlock_core::{Access, Nonce, Operation, Permits, Slot};

    use super::*;
    use crate::{
        client_label::ClientLabel,
        key::{KeySet, Prefix, SlotKeys},
    };

    #[test]
    fn a_look_at_many_slots_stays_in_order_with_the_release_of_one() {
        let (prefix, token) = (Prefix::default(), Nonce::new(7).token(1));
        let probe = Operation::Probe { token, mark: None };
        let permits = Permits::new(2 * SMALL).unwrap();
        let slots = SlotKeys::new(&prefix, b"exports", permits).unwrap();
        let all = permits.slots();
        assert!(is_small(&Command::for_slots(
            slots.keys_of(all),
            all,
            probe
        )));
        let slot = slots.get(Slot::FIRST).unwrap().clone();
        assert!(is_small(&Command::new(slot, Operation::Release { token })));
        let keys = KeySet::all(&prefix, (0..=SMALL).map(|key| key.to_string())).unwrap();
        assert!(!is_small(&Command::for_all(
            keys,
            Operation::Release { token },
            Access::Exclusive,
            &ClientLabel::NONE
        )));
    }
}
