//! Before a lease asks any node, and when it passes from one holder to the next.

use std::{
    cell::RefCell,
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    task::Waker,
};

use redlock_core::{AcquireFailure, FencingToken, Lease, LeaseConfig, Nonce, Timestamp};
use tokio::sync::Notify;

use super::{AtomicNodeSet, CellState, LeaseCell, Phase};
use crate::{
    Hold, Key,
    queue::{Joined, Next, Terms},
    shared::Shared,
};

/// What a lock is asked for.
pub(crate) struct Request {
    pub(crate) key: Key,
    /// The further keys, if there are several, in order, and all after the first.
    pub(crate) others: Arc<[Key]>,
    pub(crate) config: LeaseConfig,
    pub(crate) terms: Terms,
    pub(crate) nonce: Nonce,
    pub(crate) proposal: Option<FencingToken>,
}

impl LeaseCell {
    /// Creates a lease. It asks the nodes as soon as nobody else in this process has a key of it.
    pub(crate) fn start(shared: &Arc<Shared>, request: Request) -> Arc<Self> {
        static CREATED: AtomicU64 = AtomicU64::new(0);
        let Request {
            key,
            others,
            config,
            terms,
            nonce,
            proposal,
        } = request;
        // Redlock step 1: the clock is read before the first byte leaves.
        let now = shared.clock.now();
        let deadline = config.retry.deadline(now);
        let lease = Lease::new(config.clone(), nonce);
        let cell = Arc::new(Self {
            id: CREATED.fetch_add(1, Ordering::Relaxed),
            shared: Arc::clone(shared),
            key,
            others,
            config,
            terms,
            state: Mutex::new(CellState::new(lease, deadline, proposal)),
            changed: Notify::new(),
            asked: AtomicNodeSet::default(),
            unanswered: AtomicNodeSet::default(),
        });
        cell.advance(now, false);
        cell
    }

    /// Takes the turn for one more key.
    fn take_turn(self: &Arc<Self>, now: Timestamp, stands_back: bool) {
        self.state().queued.turns += 1;
        self.advance(now, stands_back);
    }

    /// Joins one line after the other, by the order of the keys, so that no two ever wait for each other.
    /// With the turn for all keys, asks the nodes.
    fn advance(self: &Arc<Self>, now: Timestamp, mut stands_back: bool) {
        loop {
            let turns = self.state().queued.turns;
            let Some(key) = self.keys().nth(turns) else {
                return self.step(now, |state| self.begin(state, now, stands_back));
            };
            let queue = &self.shared.queue;
            let joined = queue.join(key, self.id, now, Arc::clone(self), &self.terms);
            let mut state = self.state();
            if !state.phase.is_in_line() {
                drop(state);
                // It has ended while it joined, and has not left this line yet.
                return self.leave(now, None);
            }
            match joined {
                Ok(Joined::Turn { stands_back: again }) => {
                    state.queued.turns += 1;
                    stands_back |= again;
                }
                Ok(Joined::Waiting) => {
                    // The keeper is to be told of the deadline, as of every change.
                    drop(state);
                    return self.step(now, |_| ());
                }
                Err(refusal) => {
                    drop(state);
                    return self.step(now, |state| {
                        if state.phase == Phase::Queued {
                            self.enter(state, Phase::Refused(refusal));
                        }
                    });
                }
            }
        }
    }

    /// Asks the nodes, now or a little later.
    fn begin(&self, state: &mut CellState, now: Timestamp, stands_back: bool) {
        if state.phase != Phase::Queued {
            return;
        }
        if stands_back {
            let begin_at = now.saturating_add(self.shared.stand_back());
            if begin_at < state.queued.deadline {
                state.queued.begin_at = Some(begin_at);
                return;
            }
        }
        self.enter(state, Phase::Acquiring);
        state.lease.set_deadline(now, state.queued.deadline);
        match state.queued.proposal {
            Some(proposal) => state.lease.acquire_fenced(now, proposal),
            None => state.lease.acquire(now),
        }
    }

    /// Does what is due while it waits.
    pub(super) fn queue_timeout(&self, state: &mut CellState, now: Timestamp) {
        if state.phase != Phase::Queued {
            return;
        }
        if state.queued.begin_at.is_some_and(|at| at <= now) {
            self.begin(state, now, false);
        } else if state.queued.deadline <= now {
            self.enter(state, Phase::exhausted(AcquireFailure::Contended));
        }
    }

    /// Hands the lock over to the next that waits for it within this process, without a word to the
    /// nodes. Returns whether it did; if not, it is to be released.
    pub(crate) fn hand_over(self: &Arc<Self>, tenure: u64) -> bool {
        let now = self.now();
        match self.step(now, |state| self.try_hand_over(state, now, tenure)) {
            None => false,
            Some(waker) => {
                if let Some(waker) = waker {
                    waker.wake();
                }
                true
            }
        }
    }

    /// Returns whom to wake then.
    fn try_hand_over(
        self: &Arc<Self>,
        state: &mut CellState,
        now: Timestamp,
        tenure: u64,
    ) -> Option<Option<Waker>> {
        if !self.terms.hands_over || state.tenure != tenure || state.phase != Phase::Held {
            return None;
        }
        let held_since = state.held_since?;
        // The next should have time to work, and renewal time to fail and be tried again.
        let left = state.lease.valid_until(now)?.saturating_duration_since(now);
        if left < self.ttl().as_duration() / 2 || state.fence.is_some() || !self.others.is_empty() {
            return None;
        }
        loop {
            let queue = &self.shared.queue;
            let fits = |heir: &Arc<Self>| heir.could_take(self);
            let heir = queue.heir(&self.key, now, held_since, &self.terms, fits)?;
            let given = Hold::of(Arc::clone(self), state.tenure + 1);
            // Otherwise it has given up at this very moment.
            if let Some(waker) = heir.inherit(given) {
                state.tenure += 1;
                state.held_since = Some(now);
                state.lease.hand_over(now);
                return Some(waker);
            }
        }
    }

    /// Returns whether a lock like the other would do.
    fn could_take(&self, other: &Self) -> bool {
        self.terms.hands_over
            && self.others.is_empty()
            && self.config.validity == other.config.validity
            && self.config.keep_alive == other.config.keep_alive
            && self.state().queued.proposal.is_none()
    }

    /// Takes over a lock, if this lease still waits for one. Returns whom to wake then.
    fn inherit(self: &Arc<Self>, given: Hold) -> Option<Option<Waker>> {
        let mut state = self.state();
        if state.phase != Phase::Queued {
            return None;
        }
        let due = state.due.take();
        let _ = self.shared.keeper.reschedule(self, due, None);
        state.given = Some(given);
        self.enter(&mut state, Phase::Given);
        Some(state.waiting.take())
    }

    /// Leaves all lines, and lets the next begin.
    pub(super) fn leave(&self, now: Timestamp, held: Option<Timestamp>) {
        let next = self.keys().filter_map(|key| {
            self.shared
                .queue
                .leave(key, self.id, now, held, &self.terms)
        });
        give_turns(now, next.collect());
    }
}

thread_local! {
    /// Who is to be given a turn by this thread, while it gives another.
    static TURNS: RefCell<Option<VecDeque<Next<Arc<LeaseCell>>>>> = const { RefCell::new(None) };
}

/// Gives turns one after the other. A lease that ends as soon as it begins (because the runtime has
/// gone) gives the turn away while it is given its own; thousands of them must not be thousands deep on
/// the stack.
fn give_turns(now: Timestamp, next: Vec<Next<Arc<LeaseCell>>>) {
    let pop = || TURNS.with_borrow_mut(|turns| turns.as_mut()?.pop_front());
    let is_outermost = TURNS.try_with(|turns| {
        let mut turns = turns.borrow_mut();
        let is_outermost = turns.is_none();
        turns.get_or_insert_default().extend(next.iter().cloned());
        is_outermost
    });
    match is_outermost {
        Ok(true) => {
            while let Some(next) = pop() {
                next.who.take_turn(now, next.stands_back);
            }
            TURNS.set(None);
        }
        Ok(false) => {}
        // A guard is dropped by a thread that is at its very end.
        Err(_) => {
            for next in next {
                next.who.take_turn(now, next.stands_back);
            }
        }
    }
}
