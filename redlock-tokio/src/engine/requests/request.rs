//! A request for a lock, from its first poll to the end of the lock.

use std::{
    mem,
    sync::Arc,
    task::{Poll, Waker},
    time::Duration,
};

use redlock_core::{
    End, FencingToken, Lease, LossReason, NodeId, NodeSet, Slot, Status, Timestamp, Transmit, Ttl,
};
use smallvec::SmallVec;

use super::{
    Client, Cx, RequestId,
    extensions::{ExtensionNumber, ExtensionOutcome, Extensions},
    held_lease::{Claimant, Generation},
    holders::Holders,
    local::{Held, Local, Others, RequestEnd},
    observed::Observed,
    permits::ForOthers,
    placed::Placed,
    terms::{LeaseRequest, Terms},
    waiting::Successor,
    watched_round::WatchedRound,
};
use crate::{
    Acquisition,
    engine::{
        lane::SetRequests,
        queue::{Arrival, Refusal},
    },
    key::KeySet,
    observer::LockChange,
};

pub(super) type Watchers = SmallVec<[Waker; 1]>;

/// A request and its lease. A lock that is handed over stays with the request that has got it from the nodes.
pub(crate) struct Request {
    pub(super) id: RequestId,
    pub(super) arrival: Arrival,
    pub(super) keys: KeySet,
    pub(super) terms: Arc<Terms>,
    /// When the time to wait is over.
    pub(super) deadline: Timestamp,
    /// The requests to set the keys that lanes sent for this lease, once it asks the nodes.
    pub(super) set_requests: Option<Arc<SetRequests>>,
    /// How many handles there are.
    pub(super) handles: u32,
    pub(super) lease: Lease,
    pub(super) local: Local,
    generation: Generation,
    /// Those that share the lock, if it was ever shared.
    holders: Holders,
    /// What the lock is for, according to its present holder.
    label: Option<&'static str>,
    pub(super) watched: WatchedRound,
    /// The place in the line of its key, if it has one.
    pub(super) placed: Option<Box<Placed>>,
    /// How often it has tried to get the lock, as far as that can be counted in so few bytes.
    tries: u16,
    /// `None` if there are no observers.
    pub(super) observed: Option<Box<Observed>>,
    pub(super) extensions: Extensions,
    /// The fencing token, once the lock was acquired with one.
    pub(super) fence: Option<FencingToken>,
    /// The nodes whose votes won the lock, once it was acquired.
    pub(super) granted_by: NodeSet,
    /// The last attempt, and the nodes that were not asked to set the key for it.
    pub(super) unasked_attempt: u32,
    pub(super) unasked: NodeSet,
    /// Whether other leases of the process know that this one has found no permit free.
    pub(super) found_none: bool,
    /// The slot that other leases of the process know as this one's.
    pub(super) slot: Option<Slot>,
    /// The deadline that the timers know.
    pub(super) due: Option<Timestamp>,
    /// The task that waits for the lock. Once it is held, the tasks that wait for a change that a holder can see.
    watchers: Watchers,
    /// Whether these can see a difference since the last look at the changes.
    has_news: bool,
    /// Whether it was seen since the last look at the changes that no other process waits for a permit.
    pub(super) is_alone: bool,
}

/// What has changed and concerns others.
#[must_use]
pub(super) struct Changes {
    /// The task that need not wait for the lock any longer, or those that can see a change.
    pub(super) watchers: Watchers,
    pub(super) departure: Option<Departure>,
    pub(super) for_others: ForOthers,
}

/// The turn is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Departure {
    /// Set if it held the lock until then.
    pub(super) held: Option<Held>,
}

/// What a lease is to one of its holders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HoldState {
    Held,
    Lost(LossReason),
    /// The holder has released the lock or handed it over.
    Released,
}

impl Request {
    /// Creates a request that has asked no node, and has one handle.
    pub(super) fn new(
        (id, arrival): (RequestId, Arrival),
        lease: Lease,
        request: &LeaseRequest,
        deadline: Timestamp,
    ) -> Self {
        Self {
            id,
            arrival,
            keys: request.keys.clone(),
            terms: Arc::clone(&request.terms),
            deadline,
            set_requests: None,
            handles: 1,
            unasked_attempt: lease.token().attempt(),
            unasked: NodeSet::EMPTY,
            lease,
            local: Local::Nothing,
            generation: Generation::FIRST,
            holders: Holders::default(),
            label: request.label,
            watched: WatchedRound::default(),
            placed: None,
            tries: 0,
            observed: request.subject.as_ref().map(Observed::new),
            extensions: Extensions::default(),
            fence: None,
            granted_by: NodeSet::EMPTY,
            found_none: false,
            slot: None,
            due: None,
            watchers: Watchers::new(),
            has_news: false,
            is_alone: false,
        }
    }

    // The turn.

    /// Waits in the queue, and looks again at this time.
    pub(super) fn look_again_at(&mut self, at: Timestamp) {
        if self.lease.status() == Status::New {
            self.local = Local::Waits { due: at };
        }
    }

    /// Ends the wait with the lock of another request. Returns `None` if this one does not wait any more.
    pub(super) fn serve(
        &mut self,
        now: Timestamp,
        held: (RequestId, Generation),
    ) -> Option<Successor> {
        if self.lease.status() != Status::New {
            return None;
        }
        // Not in a step, so without a departure: it is not in the queue any more.
        self.give_up(now, Local::Served(held));
        Some(Successor {
            label: self.label,
            waker: self.watchers.pop(),
        })
    }

    /// Ends a lease that is new.
    pub(super) fn give_up(&mut self, now: Timestamp, reason: Local) {
        self.lease.release(now);
        self.local = reason;
    }

    // Changes of the lease.

    /// Notes a request that is about to be sent.
    pub(super) fn note_transmit(&mut self, transmit: &Transmit) {
        // The objections to what came before are still wanted.
        if transmit.asks_for_votes {
            self.watched.watch(transmit.round, transmit.operation);
        }
    }

    /// Notes how often the lease has tried. It forgets that when it has the lock.
    pub(super) fn note_tries(&mut self) {
        if self.is_pending() {
            self.tries = u16::try_from(self.lease.tries()).unwrap_or(u16::MAX);
        }
    }

    pub(super) fn tries(&self) -> u32 {
        match self.lease.status() {
            Status::Ended(End::Exhausted { tries, .. }) => tries,
            _ => self.tries.into(),
        }
    }

    pub(super) fn note_extension(&mut self, succeeded: bool) {
        self.extensions.note_end(succeeded);
        self.has_news = true;
    }

    // Commands.

    /// Starts an extension. Returns `None` if the lock cannot be extended.
    pub(super) fn extend_for(
        &mut self,
        now: Timestamp,
        generation: Generation,
        ttl: Ttl,
    ) -> Option<ExtensionNumber> {
        let number = self.extensions.next();
        (self.is_generation(generation) && self.lease.extend_for(now, ttl)).then_some(number)
    }

    /// Starts to turn the lock of a writer into one of a reader. Returns `None` if that is not possible.
    pub(super) fn downgrade(
        &mut self,
        now: Timestamp,
        generation: Generation,
    ) -> Option<ExtensionNumber> {
        let number = self.extensions.next();
        if !self.is_generation(generation) || !self.lease.downgrade(now) {
            return None;
        }
        self.fence = None;
        self.observe_downgrade(now);
        self.restart_hold(now);
        Some(number)
    }

    /// Adds a holder beside the others. Returns its number, or `None` if no readers hold the lock.
    pub(super) fn join(&mut self, now: Timestamp) -> Option<Generation> {
        self.lease.join(now).then(|| {
            self.holders.join(&mut self.generation);
            self.generation
        })
    }

    /// Ends one hold, if the lock is still held. Returns whether others are left, which keep the lock. Returns false
    /// for a lost lock, so that the release of the holder reports the loss.
    pub(super) fn end_hold(&mut self, now: Timestamp, generation: Generation) -> bool {
        if self.lease.valid_until(now).is_none() {
            return false;
        }
        let has_others = self.holders.remove(generation);
        self.has_news |= has_others;
        if has_others {
            self.observe_release(now, generation);
        }
        has_others
    }

    /// Notes that the holder has taken the lock. Returns whether the lock is still held.
    pub(super) fn claim(
        &mut self,
        cx: Cx<'_>,
        generation: Generation,
        claimant: &Claimant<'_>,
    ) -> bool {
        if !self.is_generation(generation) {
            return false;
        }
        self.lease.claim(cx.now);
        let is_held = self.lease.valid_until(cx.now).is_some();
        if let Some(subject) = claimant.subject.filter(|_| is_held) {
            let waited = cx.now.saturating_duration_since(claimant.since);
            let acquisition = self.acquisition(cx.client, generation, waited);
            self.observe_claim(cx.now, generation, Arc::clone(subject), acquisition);
        }
        is_held
    }

    /// Returns how a holder has got the lock, after this time.
    pub(super) fn acquisition(
        &self,
        client: &Client,
        generation: Generation,
        waited: Duration,
    ) -> Acquisition {
        if self.holders.has_joined(generation) {
            return Acquisition::Joined { waited };
        } else if generation != Generation::FIRST {
            return Acquisition::HandedOver { waited };
        }
        let address = |node: NodeId| Arc::clone(&client.lanes[node.index()].address);
        Acquisition::Granted {
            granted_by: self.granted_by.iter().map(address).collect(),
            votes_needed: client.quorum.votes(),
            nodes_total: client.quorum.nodes(),
            attempts: self.tries(),
            waited,
        }
    }

    /// Releases the lock, or gives up acquiring it. Returns the lock of another request, which the caller must release.
    pub(super) fn release(
        &mut self,
        now: Timestamp,
        generation: Generation,
    ) -> Option<(RequestId, Generation)> {
        if !self.is_generation(generation) || self.end_hold(now, generation) {
            return None;
        }
        self.observe_release(now, generation);
        self.lease.release(now);
        self.take_served()
    }

    fn take_served(&mut self) -> Option<(RequestId, Generation)> {
        match mem::take(&mut self.local) {
            Local::Served(held) => Some(held),
            other => {
                self.local = other;
                None
            }
        }
    }

    /// Ends the hold, and releases the lock at this time. Returns the number of the check with which the nodes learn of that.
    /// Returns `None`, and changes nothing, unless the holder has it and it is valid until then.
    pub(super) fn release_at(
        &mut self,
        now: Timestamp,
        generation: Generation,
        until: Timestamp,
    ) -> Option<ExtensionNumber> {
        let number = self.extensions.next();
        if until <= now {
            let is_held = self.is_generation(generation) && self.lease.valid_until(now).is_some();
            let _ = self.release(now, generation);
            return is_held.then_some(number);
        }
        let is_set = self.is_generation(generation) && self.lease.release_at(now, until);
        if is_set {
            self.observe_release(now, generation);
            // There is no holder until then.
            self.generation = self.generation.next();
            self.has_news = true;
        }
        is_set.then_some(number)
    }

    /// Returns whether a check has ended, or the lock.
    pub(super) fn is_checked(&self, number: ExtensionNumber) -> bool {
        self.lease.status() != Status::Held || self.extensions.outcome(number).is_some()
    }

    /// Gives the lock away. Returns the end of its validity, or `None` if the holder does not have it any more.
    pub(super) fn give(&mut self, now: Timestamp, generation: Generation) -> Option<Timestamp> {
        if !self.is_generation(generation) {
            return None;
        }
        let valid_until = self.lease.give(now)?;
        self.observe_end(now, |token, held| LockChange::GivenAway { token, held });
        Some(valid_until)
    }

    /// Lets the next holder have the lock.
    pub(super) fn hand_over(&mut self, now: Timestamp, label: Option<&'static str>) {
        self.observe_end(now, |token, held| LockChange::HandedOver { token, held });
        self.lease.hand_over(now);
        self.label = label;
        self.restart_hold(now);
        self.generation = self.generation.next();
        self.has_news = true;
    }

    fn restart_hold(&mut self, now: Timestamp) {
        if let Local::Held(held) = &mut self.local {
            held.since = now;
        }
    }

    // Outputs.

    /// Returns whether the lock is held, by this request or by another one that has passed it on, or why it will not be. Wakes
    /// the task when it knows. Leaves a waker that is not needed, since its end may run code of the user.
    pub(super) fn poll_acquired(
        &mut self,
        waker: &mut Waker,
    ) -> Poll<Result<Option<(RequestId, Generation)>, RequestEnd>> {
        let end = match self.lease.status() {
            Status::New | Status::Asking => {
                match self.watchers.first_mut() {
                    Some(known) => mem::swap(known, waker),
                    None => self
                        .watchers
                        .push(mem::replace(waker, Waker::noop().clone())),
                }
                return Poll::Pending;
            }
            Status::Held => return Poll::Ready(Ok(None)),
            // Released before the task has taken it.
            Status::Releasing => End::GivenUp,
            Status::Ended(end) => end,
        };
        Poll::Ready(match self.local {
            Local::Served(_) => Ok(self.take_served()),
            Local::WaitIsOver => Err(RequestEnd::Refused(Refusal::Busy)),
            Local::NoRandomness(error) => Err(RequestEnd::NoRandomness(error)),
            _ => Err(RequestEnd::Ended(end)),
        })
    }

    /// Returns the task that waits for the lock. It registers anew when it is polled.
    pub(super) fn take_waiting_task(&mut self) -> Option<Waker> {
        self.is_pending().then(|| self.watchers.pop()).flatten()
    }

    /// Wakes this task when a holder can see a change. Leaves a waker that is not needed, as above.
    pub(super) fn watch(&mut self, waker: &mut Waker) {
        if !self.watchers.iter().any(|it| it.will_wake(waker)) {
            let waker = mem::replace(waker, Waker::noop().clone());
            self.watchers.push(waker);
        }
    }

    /// Returns what has changed in a step that began with this status.
    pub(super) fn take_changes(&mut self, before: Status, mut for_others: ForOthers) -> Changes {
        let status = self.new_status(before);
        self.has_news |= status.is_some();
        for_others.is_alone = mem::take(&mut self.is_alone);
        for_others.is_acquired = status == Some(Status::Held);
        Changes {
            watchers: if !self.is_pending() && mem::take(&mut self.has_news) {
                mem::take(&mut self.watchers)
            } else {
                Watchers::new()
            },
            departure: self.departure(before),
            for_others,
        }
    }

    /// Returns the status, if it is another one than before.
    pub(super) fn new_status(&self, before: Status) -> Option<Status> {
        Some(self.lease.status()).filter(|status| *status != before)
    }

    /// Returns how the turn has ended since the lease had this status, if it has.
    pub(super) fn departure(&self, before: Status) -> Option<Departure> {
        let held = match self.local {
            Local::Held(held) => Some(held),
            _ => None,
        };
        let has_left = is_in_queue(before) && !self.is_in_queue();
        has_left.then_some(Departure { held })
    }

    /// Notes what is known of other processes that wait.
    pub(super) fn note_others(&mut self, others: Others) {
        if let Local::Held(held) = &mut self.local {
            held.others = others;
        }
    }

    /// Ends the hold. Nobody holds the lock until the answer says whether another process comes next.
    pub(super) fn await_decision(&mut self, now: Timestamp, generation: Generation) {
        self.observe_release(now, generation);
        self.note_others(Others::Decide);
        self.generation = self.generation.next();
        self.has_news = true;
    }

    /// Returns whether the lock has no holder until it is known whether another process comes next.
    pub(super) fn is_undecided(&self) -> bool {
        self.held().is_some_and(|it| it.others == Others::Decide)
    }

    // Getters.

    pub(super) fn is_held(&self) -> bool {
        self.lease.status() == Status::Held
    }

    /// Returns whether nothing will happen to it any more, and nobody can ask.
    pub(super) const fn is_forgotten(&self) -> bool {
        self.handles == 0 && matches!(self.lease.status(), Status::Ended(_))
    }

    /// Returns the generation of the next holder.
    pub(super) fn next_generation(&self) -> Generation {
        self.generation.next()
    }

    /// Returns whether the task that wants the lock has to wait.
    pub(super) const fn is_pending(&self) -> bool {
        matches!(self.lease.status(), Status::New | Status::Asking)
    }

    /// Returns whether the lease has or awaits the turn for its keys.
    pub(super) const fn is_in_queue(&self) -> bool {
        is_in_queue(self.lease.status())
    }

    /// Returns when to look again, if it waits in the queue.
    pub(super) fn look_at(&self) -> Option<Timestamp> {
        match self.local {
            Local::Waits { due } if self.lease.status() == Status::New => Some(due),
            _ => None,
        }
    }

    /// Returns how the lock is held, if it is.
    pub(super) fn held(&self) -> Option<Held> {
        match self.local {
            Local::Held(held) if self.lease.status() == Status::Held => Some(held),
            _ => None,
        }
    }

    pub(super) const fn label(&self) -> Option<&'static str> {
        self.label
    }

    pub(super) fn is_generation(&self, generation: Generation) -> bool {
        self.holders.contains(generation, self.generation)
    }

    /// Returns since when the holder of this generation has the lock, if it has.
    pub(super) fn held_since(&self, generation: Generation) -> Option<Timestamp> {
        let held = self.held().filter(|_| self.is_generation(generation));
        held.map(|held| held.since)
    }

    /// Returns what the lease is to the holder of a generation.
    pub(super) fn hold_state(&self, generation: Generation) -> HoldState {
        match self.lease.status() {
            _ if !self.is_generation(generation) => HoldState::Released,
            Status::Held => HoldState::Held,
            Status::Ended(End::Lost(reason)) => HoldState::Lost(reason),
            _ => HoldState::Released,
        }
    }

    /// Returns how an extension ended, or `None` while it is under way. Without a number none has started.
    pub(super) fn extension_outcome(
        &self,
        generation: Generation,
        number: Option<ExtensionNumber>,
    ) -> Option<ExtensionOutcome> {
        match self.hold_state(generation) {
            HoldState::Held => number.map_or(Some(ExtensionOutcome::MaxHold), |number| {
                self.extensions.outcome(number)
            }),
            HoldState::Lost(reason) => Some(ExtensionOutcome::Lost(reason)),
            HoldState::Released => Some(ExtensionOutcome::Released),
        }
    }
}

/// Returns whether a lease of this status has or awaits the turn for its keys.
const fn is_in_queue(status: Status) -> bool {
    matches!(status, Status::New | Status::Asking | Status::Held)
}
