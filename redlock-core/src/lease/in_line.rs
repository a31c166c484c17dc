//! Waiting in a line: the driver keeps an order among clients, and says when the lease may watch the key and try.

use alloc::boxed::Box;
use core::time::Duration;

#[cfg(doc)]
use super::Event as LeaseEvent;
use super::{Event, Lease, State, key_watch::KeyWatch, retrying::RetryState};
use crate::{AcquireFailure, NodeId, Reply, SlotSet, Timestamp};

/// Whether a lease waits in a line, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Order {
    /// It does not, or may go on.
    Free,
    /// Once it has found the key taken.
    OnceTaken,
    /// From the start.
    AtOnce,
}

/// A lease that sends nothing until it may go on, but for a look now and then.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct InLine {
    pub(super) retry: RetryState,
    /// What is known of the key by the look that is under way.
    pub(super) look: Option<KeyWatch>,
}

impl Lease {
    /// Has the lease wait in a line that the driver keeps: once an attempt has found the key taken, or, unless
    /// it `tries_first`, from the start. Has no effect once the lease has started, or if its schedule has no
    /// [probes](crate::RetrySchedule::with_probes) or a [limit](crate::RetrySchedule::with_max_attempts) of attempts.
    ///
    /// A lease [in the line](Self::is_in_line) sends nothing until the driver tells it to [look](Self::look), to
    /// [proceed](Self::proceed) or to [try](Self::try_first). At its deadline it fails as contended. If it has not made
    /// any attempt by then, it makes one.
    pub fn stand_in_line(&mut self, tries_first: bool) {
        let retry = self.config.retry;
        if let State::Idle { order, .. } = &mut self.state
            && retry.has_probes()
            && !retry.is_limited()
        {
            *order = if tries_first {
                Order::OnceTaken
            } else {
                Order::AtOnce
            };
        }
    }

    /// Returns whether the lease waits in the line.
    #[must_use]
    pub fn is_in_line(&self) -> bool {
        matches!(self.state, State::InLine(_))
    }

    /// Asks all nodes whether the key is free. The answer is [`Event::Looked`](LeaseEvent::Looked). Changes nothing
    /// unless the lease is in the line and does not look already. Costs one round.
    pub fn look(&mut self, now: Timestamp) {
        let (nodes, token) = (self.config.quorum.all(), self.token());
        if matches!(&self.state, State::InLine(it) if it.look.is_none()) {
            let id = self.outbox.probe(nodes, token);
            let look = self.watch_with(id);
            if let State::InLine(it) = &mut self.state {
                it.look = Some(look);
            }
            self.conclude_look(now);
        }
    }

    /// Lets the lease go on. It watches the key, or tries at once if it `tries`, because the key is
    /// probably free. Changes nothing unless the lease is in the line.
    ///
    /// With a `pause` it first leaves the key free for so long, once it is free, for clients that poll and stand in no
    /// line.
    pub fn proceed(&mut self, now: Timestamp, tries: bool, pause: Duration) {
        self.go_on(now, tries, pause, Order::Free);
    }

    /// Has a lease that watches the key wait in the line again, since others must try before it. Has an effect only while the
    /// lease waits for a taken key, and none during an attempt.
    pub fn step_back(&mut self) {
        if let State::Backoff(it) = &self.state
            && it.key_watch.is_some()
            && !it.retry.looks_once
        {
            self.wait_in_line(it.retry);
        }
    }

    /// Lets the lease try at once, since nobody stands in the line. If the key is taken, it waits in the line again.
    /// With a `pause` it leaves the key free first, as in [`proceed`](Self::proceed).
    pub fn try_first(&mut self, now: Timestamp, pause: Duration) {
        self.go_on(now, true, pause, Order::OnceTaken);
    }

    /// Lets the lease ask for one of these slots of the semaphore, which another lease has seen free. If it is taken,
    /// the lease waits in the line again. Returns false, and changes nothing, unless the lease is in the line before
    /// its deadline, and may ask for one of them.
    pub fn try_slots(&mut self, now: Timestamp, slots: SlotSet) -> bool {
        let State::InLine(it) = &self.state else {
            return false;
        };
        let retry = it.retry.in_order(Order::OnceTaken);
        let tries = now < retry.deadline && self.wants_any(slots);
        if tries {
            self.attempt(now, retry, slots);
        }
        tries
    }

    fn go_on(&mut self, now: Timestamp, tries: bool, pause: Duration, order: Order) {
        let State::InLine(it) = &self.state else {
            return;
        };
        let retry = it.retry.in_order(order);
        if (tries && pause.is_zero()) || now >= retry.deadline {
            return self.attempt(now, retry, SlotSet::EMPTY);
        }
        match self.next_try(now, AcquireFailure::Contended, true, &retry) {
            None => self.exhaust_waiting(AcquireFailure::Contended),
            Some(until) => {
                self.watch_for(now, until, now, retry);
                if let State::Backoff(backoff) = &mut self.state {
                    backoff.leaves_free = pause;
                }
            }
        }
    }

    /// Starts to wait in the line.
    pub(super) fn wait_in_line(&mut self, retry: RetryState) {
        let failure = Some(AcquireFailure::Contended);
        let retry = RetryState { failure, ..retry };
        self.state = State::InLine(Box::new(InLine { retry, look: None }));
    }

    /// Waits in the line, if there is one, since the key is taken. Returns whether it does.
    pub(super) fn falls_in_line(&mut self, now: Timestamp, retry: &RetryState) -> bool {
        let may_wait = now < retry.deadline && !retry.looks_once;
        let waits = retry.order != Order::Free && may_wait;
        if waits {
            self.wait_in_line(*retry);
        }
        waits
    }

    /// Takes the answer to a look.
    pub(super) fn handle_look_reply(&mut self, now: Timestamp, node: NodeId, reply: Reply) {
        if let State::InLine(it) = &mut self.state
            && let Some(look) = &mut it.look
        {
            look.handle_reply(node, reply);
            self.conclude_look(now);
        }
    }

    fn conclude_look(&mut self, now: Timestamp) {
        if let State::InLine(it) = &mut self.state
            && let Some(look) = it.look.take_if(|it| it.is_settled(now))
        {
            let is_free = look.free_at().is_some_and(|at| at <= now);
            self.outbox.tell(Event::Looked { is_free });
        }
    }

    /// Ends the wait: the time is over.
    pub(super) fn end_line(&mut self, now: Timestamp) {
        if let State::InLine(it) = &self.state {
            let retry = it.retry.in_order(Order::Free);
            if self.attempts == 0 {
                self.attempt(now, retry, SlotSet::EMPTY);
            } else {
                self.exhaust_waiting(AcquireFailure::Contended);
            }
        }
    }
}
