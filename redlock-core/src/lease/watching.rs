//! Between two attempts: waiting for a delay, or watching a taken key until it is free.
//!
//! A lease that watches a key probes it. The same request has the server report when the key is gone, whoever deleted
//! it. The lease tries when a majority of nodes has reported the key, without another look, which saves a round trip
//! after each release. But an extension is reported like a release, so it costs an attempt of those that watch. A
//! report can be lost, so the lease also probes the key now and then without one.
//!
//! If attempts of several clients split the nodes, none has a majority. Each releases what it got, and backs off for a
//! random time that doubles with each failed attempt. As soon as another client is seen to have the key, the delays
//! begin at the shortest again. Otherwise a client would back off for longer the longer it waits, and clients that come
//! later would overtake it.

use alloc::boxed::Box;
use core::time::Duration;

use super::{
    Lease, State,
    key_watch::KeyWatch,
    retrying::{Backoff, Next, RetryState},
};
use crate::{AcquireFailure, NodeId, Reply, Slot, SlotSet, Timestamp};

/// The rare probes of a client that is notified are due at multiples of this, so that those of many keys share
/// requests.
const TICK: Duration = Duration::from_millis(100);

impl Lease {
    /// Watches a taken key, to try again as soon as it is free.
    pub(super) fn watch(&mut self, now: Timestamp, until: Timestamp, mut retry: RetryState) {
        let schedule = self.config.retry;
        // The other half of the random bits decides about the delay.
        let random = self.nonce.jitter(self.attempts).rotate_left(32);
        let backoff = schedule.backoff(retry.collisions, random);
        retry.handle_defeat();
        self.watch_for(now, until, now.saturating_add(backoff), retry);
    }

    /// Watches a key, to try as soon as it is free, but not before `not_before`.
    pub(super) fn watch_for(
        &mut self,
        now: Timestamp,
        until: Timestamp,
        not_before: Timestamp,
        retry: RetryState,
    ) {
        let (nodes, token) = (self.config.quorum.all(), self.token());
        let id = self.outbox.look(nodes, token, now, until);
        self.state = State::Backoff(Box::new(Backoff {
            until,
            not_before: not_before.min(until),
            key_watch: Some(self.watch_with(id)),
            retry,
            leaves_free: Duration::ZERO,
        }));
        if until <= now {
            self.retry(now);
        }
    }

    /// Takes the answer to a probe.
    pub(super) fn handle_probe_reply(&mut self, now: Timestamp, node: NodeId, reply: Reply) {
        self.probe_if(node, |key_watch| key_watch.handle_reply(node, reply));
        self.retry(now);
    }

    /// Takes the news that a watched key is gone from a node: it was deleted, or it has expired. The key of a semaphore
    /// is that of a `slot`.
    pub fn handle_freed(&mut self, now: Timestamp, node: NodeId, slot: Option<Slot>) {
        if self.is_watching() {
            let slot = slot.unwrap_or(Slot::FIRST);
            self.probe_if(node, |key_watch| key_watch.handle_freed(node, slot));
            self.retry(now);
        }
    }

    /// Takes the report of a node that somebody else has changed or deleted a key of the held lock.
    ///
    /// Once so many nodes have reported it that no majority can have the key, a lock that is renewed is extended at
    /// once. The replies show whether it is lost: within a round trip, and not at the next renewal. A report alone
    /// decides nothing, since it may be about an earlier state of the key. Does nothing if the lock is not held.
    pub fn handle_key_changed(&mut self, now: Timestamp, node: NodeId) {
        if let Some((held, mut cx)) = self.held(now)
            && cx.config.quorum.all().contains(node)
        {
            held.handle_key_changed(&mut cx, node);
        }
    }

    /// Notes whether enough nodes for a quorum report when a probed key is gone. The lease then
    /// probes a taken key more and more rarely, up to once in five to ten seconds, or in the delays of its
    /// [schedule](crate::RetrySchedule) if they are longer.
    pub fn set_notified(&mut self, is_notified: bool) {
        self.is_notified = is_notified;
    }

    /// Probes a node again, because one of several keys has changed there, or because there is a new
    /// connection to the node. A server reports a key as gone only on the connection that has probed it. Does nothing
    /// if the lease does not watch a key.
    pub fn probe_again(&mut self, node: NodeId) {
        if self.config.quorum.all().contains(node) {
            self.probe_if(node, |key_watch| key_watch.handle_change(node));
        }
    }

    fn is_watching(&self) -> bool {
        matches!(&self.state, State::Backoff(it) if it.key_watch.is_some())
    }

    /// Probes a node again if what has happened there makes it necessary.
    fn probe_if(&mut self, node: NodeId, doubted: impl FnOnce(&mut KeyWatch) -> Option<SlotSet>) {
        let token = self.token();
        if let State::Backoff(backoff) = &mut self.state
            && let Some(key_watch) = &mut backoff.key_watch
            && let Some(slots) = doubted(key_watch)
        {
            self.outbox.probe_again(key_watch.id, node, slots, token);
        }
    }

    /// Does what is due while the lease waits: another attempt, a probe, or nothing yet.
    pub(super) fn retry(&mut self, now: Timestamp) {
        let validity = self.config.validity;
        let is_semaphore = self.slots.is_some();
        let State::Backoff(backoff) = &mut self.state else {
            return;
        };
        if is_semaphore && self.attempts == 1 {
            backoff.allow_a_look(now, validity.until(now));
        }
        let (is_taken, retry) = (backoff.is_taken(now), backoff.retry);
        // Without an attempt it has no place in the line: others came while it left the key free.
        let has_no_place = is_semaphore || self.attempts == 0;
        if has_no_place && is_taken && self.falls_in_line(now, &retry) {
            return;
        }
        let State::Backoff(backoff) = &mut self.state else {
            return;
        };
        match backoff.next(now, self.attempts) {
            Next::Wait => {}
            Next::GiveUp(failure) => self.exhaust_waiting(failure),
            Next::Probe => self.probe_on_schedule(now),
            Next::Attempt => {
                let retry = backoff.retry;
                let key_watch = backoff.key_watch.as_ref();
                let best = key_watch.map_or(SlotSet::EMPTY, |watch| watch.best_slots(now));
                if let Some((slots, watch)) = self.slots.as_mut().zip(key_watch) {
                    slots.spare = watch.free_slots(now);
                }
                self.attempt(now, retry, best);
            }
        }
    }

    /// Gives up. A writer deletes its mark.
    pub(super) fn exhaust_waiting(&mut self, failure: AcquireFailure) {
        if self.is_writer() {
            self.release_in_passing();
        }
        self.exhaust(failure);
    }

    /// Probes a taken key although no notification came. A notification may be lost, and some servers send
    /// none.
    fn probe_on_schedule(&mut self, now: Timestamp) {
        let round = self.outbox.last_round().0;
        let random = self.nonce.jitter(self.attempts ^ round.rotate_left(16));
        let (schedule, attempts) = (self.config.retry, self.attempts);
        let is_notified = self.is_notified && !schedule.is_limited();
        let (nodes, token) = (self.config.quorum.all(), self.token());
        let State::Backoff(backoff) = &mut self.state else {
            return;
        };
        let failure = backoff.failure();
        let awaits_answers = backoff.awaits_answers(now);
        let Backoff {
            until,
            retry,
            key_watch: Some(key_watch),
            ..
        } = &mut **backoff
        else {
            return;
        };
        let is_patient = is_notified && !awaits_answers;
        retry.probes = retry.probes.saturating_add(u32::from(!awaits_answers));
        let tries = retry.tries(attempts);
        let schedule = if is_patient {
            let left = retry.deadline.saturating_duration_since(now);
            schedule.with_patience(left)
        } else {
            schedule
        };
        match schedule.next_probe(retry.deadline, tries, now, random) {
            None => self.exhaust_waiting(failure),
            Some(next) => {
                let next = if is_patient {
                    next_tick(next).min(retry.deadline)
                } else {
                    next
                };
                *until = next;
                if !awaits_answers {
                    key_watch.await_scheduled(self.outbox.look(nodes, token, now, next));
                }
            }
        }
    }
}

fn next_tick(at: Timestamp) -> Timestamp {
    let since = at.saturating_duration_since(Timestamp::ZERO).as_nanos();
    let over = (since % TICK.as_nanos()) as u64;
    at.saturating_add(TICK - Duration::from_nanos(over))
}
