//! The whole life of a lock, from the first attempt to its release or loss.

mod attempt;
mod config;
mod event;
mod held;
mod in_line;
mod inputs;
mod key_watch;
mod outbox;
mod proposals;
mod retrying;
mod sharing;
mod status;
mod transferring;
mod transmit;
mod watching;

use alloc::{boxed::Box, sync::Arc};
use core::time::Duration;

pub use config::LeaseConfig;
pub use event::{Event, ExpiryAnomaly};
pub use sharing::Share;
pub use status::{End, LossReason, Status};
pub use transmit::{Access, Operation, RoundId, Transmit};

use self::{
    attempt::Attempt,
    held::{Context, Held},
    in_line::{InLine, Order},
    outbox::Outbox,
    proposals::Proposals,
    retrying::{Backoff, RetryState, Writer},
    sharing::Slots,
};
use crate::{
    AcquireFailure, FencingToken, Nonce, ReleaseVerdict, SlotSet, Timestamp, Token, Ttl,
    round::Release,
};

/// One client's attempt to hold one lock: acquiring, retrying, renewing, releasing.
///
/// ```text
///            acquire            quorum in time              release
///    Idle ----------> Acquiring ---------------> Held ---------------> Releasing
///                      |  ^  ^                     |  |                   |
///               failed |  |  +-- counters ahead:   |  | validity over,    | quorum, or
///                      v  |      another round     |  | keys lost         | no node left
///                 Backoff |                        |  v                   v
///                      |  |                        |  Ended (Lost)      Ended (Released)
///       deadline over  |  +-- delay over, or       |
///                      v      key seen free        +-- extension due: Extend round, still Held
///                    Ended (Exhausted)
/// ```
///
/// A held lock can pass to another client: this one [gives](Self::give) it away, which ends the lease, and the other
/// one [adopts](Self::adopt) it, in an attempt of another kind.
///
/// A lease does no I/O and reads no clock. Its driver calls commands ([`acquire`](Self::acquire),
/// [`extend`](Self::extend), [`release`](Self::release)) and inputs ([`handle_reply`](Self::handle_reply),
/// [`handle_withdrawal`](Self::handle_withdrawal), [`handle_timeout`](Self::handle_timeout)). After each of them it
/// drains [`poll_transmit`](Self::poll_transmit) and [`poll_event`](Self::poll_event), looks at the
/// [status](Self::status), and arms a timer for [`poll_timeout`](Self::poll_timeout). The [front page](crate) shows
/// the whole loop.
///
/// A lease panics on no input. A command that does not fit the state changes nothing, and neither does
/// a repeated or stale reply, or a spurious timeout.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use redlock_core::*;
/// use std::time::Duration;
///
/// let validity = Validity::new(Ttl::new(Duration::from_secs(10))?, Drift::default())?;
/// let config = LeaseConfig::new(
///     Quorum::majority(3)?,
///     validity,
///     RetrySchedule::new(Duration::from_millis(20)..=Duration::from_millis(200))?,
///     KeepAlive::on_demand(Duration::from_secs(60)),
/// );
/// let now = Timestamp::ZERO;
/// let mut lease = Lease::new(config, Nonce::new(0x5eed));
/// lease.acquire(now, now.saturating_add(Duration::from_secs(5)));
///
/// // Two of three nodes set the key.
/// let request = lease.poll_transmit().expect("the first attempt");
/// for node in request.nodes.iter().take(2) {
///     lease.handle_reply(now, request.round, node, Reply::Granted, Eligibility::ALWAYS);
/// }
/// assert!(matches!(lease.poll_event(), Some(Event::Acquired { .. })));
/// assert_eq!(lease.valid_until(now), Some(validity.until(now)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    config: Arc<LeaseConfig>,
    nonce: Nonce,
    attempts: u32,
    /// Whether the nodes report when a probed key is gone.
    is_notified: bool,
    /// Whether the lock has several keys.
    has_several_keys: bool,
    /// Which slot it asks for, if the lock is a semaphore.
    slots: Option<Box<Slots>>,
    /// The fencing tokens that its attempts propose, if the lock is fenced.
    proposals: Option<Box<Proposals>>,
    state: State,
    outbox: Outbox,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    Idle {
        /// Whether the lease is to wait in a line.
        order: Order,
    },
    // Most leases are held, so what is larger has a place of its own.
    Acquiring(Box<Attempt>),
    Backoff(Box<Backoff>),
    InLine(Box<InLine>),
    Held(Box<Held>),
    Releasing(Box<Releasing>),
    Ended(End),
}

/// A held lock that is being released.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Releasing {
    id: RoundId,
    round: Release,
    /// When the keys have expired by themselves.
    until: Timestamp,
}

impl Lease {
    /// Creates a lease that holds nothing yet. Leases may share a configuration.
    ///
    /// Use 128 new random bits as the `nonce` of each lease. Two leases with one nonce use the same tokens,
    /// so each could release the other's keys.
    #[must_use]
    pub fn new(config: impl Into<Arc<LeaseConfig>>, nonce: Nonce) -> Self {
        let config = config.into();
        Self {
            outbox: Outbox::new(config.validity.ttl()),
            config,
            nonce,
            attempts: 0,
            is_notified: false,
            has_several_keys: false,
            slots: None,
            proposals: None,
            state: State::Idle { order: Order::Free },
        }
    }

    // Commands.

    /// Starts to acquire the lock. Changes nothing unless the lease is new.
    ///
    /// Only the first attempt may start at `deadline` or later, or run beyond it. So if `deadline` has
    /// already passed, the lease makes exactly one attempt.
    ///
    /// Costs one round for each attempt, and one more for the release of an attempt that failed.
    pub fn acquire(&mut self, now: Timestamp, deadline: Timestamp) {
        if let State::Idle { order } = self.state {
            let retry = RetryState {
                writer: self.is_reader().then_some(Writer::Unseen),
                order,
                ..RetryState::new(deadline)
            };
            if order == Order::AtOnce && now < deadline {
                self.wait_in_line(retry);
            } else {
                self.attempt(now, retry, SlotSet::EMPTY);
            }
        }
    }

    /// Starts to acquire the lock with a fencing token, as [`acquire`](Self::acquire) does. Changes
    /// nothing unless the lease is new.
    ///
    /// `proposal` is the wall clock in microseconds, read at `now`; see [`FencingToken::new`]. Each
    /// later attempt proposes a new token: `proposal` plus the microseconds from `now` to its start, and
    /// always more than any counter that a node has told.
    ///
    /// An attempt costs one round if its proposal is larger than the counters of a majority of nodes,
    /// and otherwise two or more. [`Event::Acquired`] carries the token that a majority accepted. A
    /// [reader](Share::Reader) gets none.
    pub fn acquire_fenced(&mut self, now: Timestamp, deadline: Timestamp, proposal: FencingToken) {
        if matches!(self.state, State::Idle { .. }) {
            let proposals = || Box::new(Proposals::new(proposal, now));
            self.proposals = (!self.is_reader()).then(proposals);
            self.acquire(now, deadline);
        }
    }

    /// Notes that the lock has several keys, so it cannot be given away. Has no effect once the lease has started.
    pub fn set_several_keys(&mut self) {
        if matches!(self.state, State::Idle { .. }) {
            self.has_several_keys = true;
        }
    }

    /// Notes that the holder has taken the lock. Renewal starts now. Changes nothing unless the lock is
    /// held.
    ///
    /// A lock that is held but not claimed is not renewed, so a holder that never runs again blocks
    /// other clients for one validity only. Call this when the holder learns of [`Event::Acquired`], and
    /// when the next holder takes a lock after [`hand_over`](Self::hand_over). If renewal is overdue, it
    /// starts with the next [`handle_timeout`](Self::handle_timeout), which is due at once.
    pub fn claim(&mut self, now: Timestamp) {
        if let Some((held, mut cx)) = self.held(now) {
            held.claim(&mut cx);
        }
    }

    /// Notes that a held lock has passed from one holder to the next without a request to the nodes.
    /// Returns whether the lock was held.
    ///
    /// The longest time for which the lock may be held starts anew, and the next holder has to
    /// [claim](Self::claim) the lock. The lease keeps its token and its validity, so the lock is as safe
    /// as before. The driver must see to it that the previous holder does nothing more under the lock.
    pub fn hand_over(&mut self, now: Timestamp) -> bool {
        self.held(now).is_some_and(|(held, cx)| held.hand_over(&cx))
    }

    /// Extends a held lock now, instead of when renewal is due. The lock is then valid for its own ttl
    /// from now, less the drift allowance. See [`extend_for`](Self::extend_for).
    pub fn extend(&mut self, now: Timestamp) -> bool {
        self.extend_for(now, self.config.validity.ttl())
    }

    /// Extends a held lock so that it is valid for `ttl` from now, less the drift allowance. Returns
    /// whether an extension for at least this ttl is under way now. Costs one round.
    ///
    /// The answer is the next [`Event::Extended`] or [`Event::ExtendFailed`], or the [loss](End::Lost) of the lock.
    /// There is none, and no extension, if the lock is not held, or if it was held for the longest time that
    /// [`KeepAlive`](crate::KeepAlive) allows.
    ///
    /// An extension never shortens the validity: if the old validity ends later, it stays. If an
    /// extension for at least this ttl is under way, this one joins it. It takes the place of a shorter
    /// one.
    ///
    /// Later renewals use the lock's own ttl again. They keep the longer validity, also on the nodes,
    /// until the own ttl reaches further. A lock that is renewed is extended by at least its own ttl,
    /// even if a shorter one is asked for.
    ///
    /// The driver must refuse a ttl that is longer than the `max_ttl` of the [`Quarantine`]. Otherwise a
    /// node that restarts could forget such a lock and vote before the lock has ended.
    ///
    /// [`Quarantine`]: crate::Quarantine
    pub fn extend_for(&mut self, now: Timestamp, ttl: Ttl) -> bool {
        self.held(now)
            .is_some_and(|(held, mut cx)| held.extend(&mut cx, ttl))
    }

    /// Ends the lease: releases a held lock, or gives up an attempt that is under way. Costs one round.
    ///
    /// The [end](Status::Ended) of a lock that was held is [`End::Released`], once a majority has replied. All else is
    /// [given up](End::GivenUp) at once.
    pub fn release(&mut self, now: Timestamp) {
        self.expire(now);
        match &self.state {
            State::Idle { .. } => self.end(End::GivenUp),
            State::Backoff(_) | State::InLine(_) => {
                self.end(End::GivenUp);
                if self.is_writer() {
                    // The mark.
                    self.release_in_passing();
                }
            }
            State::Acquiring(_) => {
                self.end(End::GivenUp);
                self.release_in_passing();
            }
            State::Held(_) => self.start_release(now),
            State::Releasing(_) | State::Ended(_) => {}
        }
    }

    /// Releases a held lock at `at`, and not before: the holder is done, and others are to find the lock held until
    /// then. Returns false, and changes nothing, unless the lock is held and valid until `at`:
    /// [extend](Self::extend_for) it first.
    ///
    /// From now on the lock is neither renewed nor extended nor handed over, and nobody may work under it. The nodes
    /// keep the keys until `at`, even if the driver ends before: neither [`abandon`](Self::abandon) nor a lost vote
    /// sends a release. They keep them for no longer than that, and the drift allowance.
    ///
    /// The lock is watched all the same. Extensions that add no time check it: one now, one at each time at which a
    /// renewal would be due, and one when nodes [report](Self::handle_key_changed) that no majority can have the keys.
    /// Each costs one round, and so does the release at `at`.
    ///
    /// The end is [`End::Released`]. It comes early if a majority has lost the keys, and early and unconfirmed after a
    /// lost vote or if the driver ends. The keys that are left then are not released: they block others until they
    /// expire.
    pub fn release_at(&mut self, now: Timestamp, at: Timestamp) -> bool {
        let is_set = self
            .held(now)
            .is_some_and(|(held, mut cx)| held.release_at(&mut cx, at));
        self.expire(now);
        is_set
    }

    /// Ends the lease because the driver stops: it can no longer send requests or run timers.
    ///
    /// A driver that can still deliver releases can poll them.
    pub fn abandon(&mut self) {
        match &mut self.state {
            State::Ended(_) => {}
            State::Idle { .. } => self.exhaust(AcquireFailure::Abandoned),
            State::Acquiring(_) => {
                self.release_in_passing();
                self.exhaust(AcquireFailure::Abandoned);
            }
            State::Backoff(_) | State::InLine(_) => {
                self.exhaust_waiting(AcquireFailure::Abandoned);
            }
            State::Held(_) => self.lose(LossReason::Abandoned),
            State::Releasing(it) => {
                if let Some(verdict) = it.round.give_up() {
                    self.end(End::Released(verdict));
                }
            }
        }
    }

    // Outputs.

    /// Returns the next request to send. The answer may change after any command or input.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.outbox.poll_transmit()
    }

    /// Returns the next thing to tell the holder. The answer may change after any command or
    /// input.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.outbox.poll_event();
        // A lock that was extended is probably held for long.
        if event.is_none()
            && let State::Held(held) = &self.state
            && held.was_extended()
        {
            self.outbox.shrink();
        }
        event
    }

    /// Returns whether there is something to poll. A driver that finds nothing new after an input may save the polls.
    #[must_use]
    pub fn has_outputs(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) must be called next. The answer may
    /// change after any command or input; after `handle_timeout(t)` it is later than `t`.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        match &self.state {
            State::Idle { .. } | State::Ended(_) => None,
            State::Acquiring(it) => Some(it.timeout(self.attempts)),
            State::Backoff(it) => Some(it.timeout()),
            State::InLine(it) => Some(it.retry.deadline),
            State::Releasing(it) => Some(it.until),
            State::Held(held) => Some(held.timeout()),
        }
    }

    // Getters.

    /// Returns how far the lease has come. The answer may change after any command or input.
    #[must_use]
    pub const fn status(&self) -> Status {
        match self.state {
            State::Idle { .. } => Status::New,
            State::Acquiring(_) | State::Backoff(_) | State::InLine(_) => Status::Asking,
            State::Held(_) => Status::Held,
            State::Releasing(_) => Status::Releasing,
            State::Ended(end) => Status::Ended(end),
        }
    }

    /// Returns the end of validity, if the lock is held at `now`.
    #[must_use]
    pub fn valid_until(&self, now: Timestamp) -> Option<Timestamp> {
        match &self.state {
            State::Held(held) if now < held.valid_until => Some(held.valid_until),
            _ => None,
        }
    }

    /// Checks the time to live that a node reports in its reply to an extension: what the key had left
    /// when the node extended it. Returns an anomaly if this time is too short or too long.
    ///
    /// Call this before, or together with, [`handle_reply`](Self::handle_reply). Returns `None` for any
    /// round but the last extension. An anomaly changes nothing; log a warning.
    #[must_use]
    pub fn judge_remaining(
        &self,
        now: Timestamp,
        id: RoundId,
        remaining: Duration,
    ) -> Option<ExpiryAnomaly> {
        match &self.state {
            State::Held(held) => held.judge_remaining(now, id, remaining, self.longest_ttl()),
            _ => None,
        }
    }

    /// Returns the token under which the lock is held or was last tried.
    #[must_use]
    pub fn token(&self) -> Token {
        self.nonce.token(self.attempts)
    }

    /// Returns the longest ttl that was sent to a node so far. After the last request of this lease has
    /// arrived at a node, its key there lives for at most this long.
    #[must_use]
    pub fn longest_ttl(&self) -> Ttl {
        self.outbox.longest_ttl()
    }

    /// Returns how many attempts to acquire were started.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Returns how often the lease has tried to get a lock that it does not hold yet: by attempts, or by scheduled
    /// [probes](crate::RetrySchedule::with_probes) of a taken key. [`End::Exhausted`] has the final number.
    #[must_use]
    pub fn tries(&self) -> u32 {
        let retry = match &self.state {
            State::Acquiring(it) => Some(&it.retry),
            State::Backoff(it) => Some(&it.retry),
            State::InLine(it) => Some(&it.retry),
            State::Idle { .. } | State::Held(_) | State::Releasing(_) | State::Ended(_) => None,
        };
        retry.map_or(self.attempts, |retry| retry.tries(self.attempts))
    }

    // Private.

    /// Declares a held lock lost when its validity is over. Every command and input starts with this, or gets the lock
    /// by [`held`](Self::held), so that nothing is decided on a validity that has ended.
    ///
    /// A lock that is to be released later is released when its time is over.
    fn expire(&mut self, now: Timestamp) {
        let State::Held(held) = &self.state else {
            return;
        };
        if held.is_over(now) {
            self.start_release(now);
        } else if let Some(reason) = held.expiry(now, &self.config) {
            self.lose(reason);
        }
    }

    /// Returns the lock if it is held at `now`, and what it works with.
    fn held(&mut self, now: Timestamp) -> Option<(&mut Held, Context<'_>)> {
        self.expire(now);
        let token = self.token();
        let Self {
            config,
            outbox,
            state: State::Held(held),
            ..
        } = self
        else {
            return None;
        };
        let cx = Context {
            now,
            token,
            config,
            outbox,
        };
        Some((held, cx))
    }

    fn start_release(&mut self, now: Timestamp) {
        let (quorum, token) = (self.config.quorum, self.token());
        // The last request may still let a key live for this long.
        let longest = self.outbox.longest_ttl().as_duration();
        self.state = State::Releasing(Box::new(Releasing {
            id: self.outbox.ask(quorum.all(), Operation::Release { token }),
            round: Release::new(quorum),
            until: now.saturating_add(longest),
        }));
    }

    /// Ends a held lock that was not released. Releases the rest of its keys, unless the holder has gone.
    fn lose(&mut self, reason: LossReason) {
        if let State::Held(held) = &self.state
            && held.has_no_holder()
        {
            // No holder is there to learn of a loss. The keys that are left are to block other clients, also when a
            // majority has lost its own: one that restarted empty may not vote yet.
            return self.end(End::Released(if reason == LossReason::KeysLost {
                ReleaseVerdict::NotHeld
            } else {
                ReleaseVerdict::Unconfirmed
            }));
        }
        self.end(End::Lost(reason));
        self.release_in_passing();
    }

    fn end(&mut self, end: End) {
        self.state = State::Ended(end);
    }

    /// Releases the token of the last attempt on every node, without regard to the replies.
    fn release_in_passing(&mut self) {
        let (nodes, token) = (self.config.quorum.all(), self.token());
        self.outbox.tell_nodes(nodes, Operation::Release { token });
    }
}

#[cfg(test)]
mod tests;
