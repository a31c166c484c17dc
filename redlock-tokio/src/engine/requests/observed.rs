//! The events of a lease, for observers. None of this exists if there are no observers.

use std::{mem, sync::Arc, time::Duration};

use redlock_core::{Timestamp, Token};

use super::{Cx, held_lease::Generation, request::Request};
use crate::{
    Acquisition,
    observer::{Event, LockChange, Subject},
};

/// The holders of a lease as observers know them, and the events that they have not seen yet.
pub(super) struct Observed {
    /// The request that began the lease.
    first: Arc<Subject>,
    /// The token of the last attempt. An attempt for several keys can have several rounds.
    attempted: Option<Token>,
    /// The holders that have taken the lock.
    holders: Vec<ObservedHold>,
    events: Vec<Event>,
}

struct ObservedHold {
    generation: Generation,
    subject: Arc<Subject>,
    since: Timestamp,
}

impl Observed {
    pub(super) fn new(first: &Arc<Subject>) -> Box<Self> {
        Box::new(Self {
            first: Arc::clone(first),
            attempted: None,
            holders: Vec::new(),
            events: Vec::new(),
        })
    }

    pub(super) fn note_attempt(&mut self, now: Timestamp, token: Token) {
        if self.attempted.replace(token) != Some(token) {
            let change = LockChange::Attempted { token };
            self.events.push(Event::of_lock(now, &self.first, change));
        }
    }

    /// Notes the end of some holds.
    #[cold]
    fn end(
        &mut self,
        now: Timestamp,
        is_over: impl Fn(&ObservedHold) -> bool,
        change: impl Fn(Duration) -> LockChange,
    ) {
        let over = self.holders.extract_if(.., |holder| is_over(holder));
        self.events.extend(over.map(|holder| {
            let held = now.saturating_duration_since(holder.since);
            Event::of_lock(now, &holder.subject, change(held))
        }));
    }
}

impl Request {
    /// Notes that a task has taken the lock.
    #[cold]
    pub(super) fn observe_claim(
        &mut self,
        now: Timestamp,
        generation: Generation,
        subject: Arc<Subject>,
        acquisition: Acquisition,
    ) {
        let (token, fence) = (self.lease.token(), self.fence);
        if let Some(observed) = &mut self.observed {
            let change = LockChange::Acquired {
                token,
                fence,
                acquisition,
            };
            observed.events.push(Event::of_lock(now, &subject, change));
            observed.holders.push(ObservedHold {
                generation,
                subject,
                since: now,
            });
        }
    }

    /// Notes that a holder gives the lock back. If the lock is lost, an end by [loss](LockChange::Lost) comes instead.
    #[inline]
    pub(super) fn observe_release(&mut self, now: Timestamp, generation: Generation) {
        if let Some(observed) = &mut self.observed
            && self.lease.valid_until(now).is_some()
        {
            let token = self.lease.token();
            let is_over = |holder: &ObservedHold| holder.generation == generation;
            observed.end(now, is_over, |held| LockChange::Released { token, held });
        }
    }

    /// Notes that the writer has become a reader.
    #[inline]
    pub(super) fn observe_downgrade(&mut self, now: Timestamp) {
        let Some(observed) = &mut self.observed else {
            return;
        };
        let token = self.lease.token();
        // A writer is the only holder.
        if let Some(holder) = observed.holders.first_mut() {
            let held = now.saturating_duration_since(holder.since);
            let change = LockChange::Downgraded { token, held };
            let reader = Arc::new(holder.subject.downgraded());
            let writer = mem::replace(&mut holder.subject, reader);
            holder.since = now;
            observed.events.push(Event::of_lock(now, &writer, change));
        }
    }

    /// Notes the end of all holds.
    #[inline]
    pub(super) fn observe_end(
        &mut self,
        now: Timestamp,
        change: impl Fn(Token, Duration) -> LockChange,
    ) {
        if let Some(observed) = &mut self.observed {
            let token = self.lease.token();
            observed.end(now, |_| true, |held| change(token, held));
        }
    }

    /// Takes the events since the last call.
    #[inline]
    pub(super) fn take_events(&mut self) -> Vec<Event> {
        let observed = self.observed.as_mut();
        observed.map_or_else(Vec::new, |it| mem::take(&mut it.events))
    }

    /// Notes how an extension has ended, for the holder that came last.
    #[inline]
    pub(super) fn observe_extension(&mut self, cx: Cx<'_>, succeeded: bool) {
        let Some(observed) = &mut self.observed else {
            return;
        };
        let token = self.lease.token();
        let change = if succeeded {
            LockChange::Extended { token }
        } else {
            let nodes = cx.client.reports(self.watched.objections());
            LockChange::ExtensionFailed { token, nodes }
        };
        if let Some(holder) = observed.holders.last() {
            let event = Event::of_lock(cx.now, &holder.subject, change);
            observed.events.push(event);
        }
    }
}
