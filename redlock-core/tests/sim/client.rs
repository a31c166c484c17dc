//! A client: one process with a clock, one lease at a time, and the loop that drives it.

mod drive;
mod reacting;
mod script;

use std::{collections::VecDeque, time::Duration};

use redlock_core::{Eligibility, Lease, NodeId, Reply, RoundId, Timestamp, Withdrawal};

use crate::{
    clock::{Clock, MICRO},
    configuration::Configuration,
    events::ClientEvent,
    rng::Rng,
};

pub(crate) struct Client {
    clock: Clock,
    /// How far its wall clock is off, in microseconds. It seeds fencing tokens and nothing else.
    wall_offset: u64,
    /// Counts its processes; what was meant for an earlier one is lost.
    pub(crate) life: u32,
    pub(crate) up: bool,
    /// Since when it does nothing, while the world goes on.
    pub(crate) paused_at: Option<u64>,
    /// For how long its clock has stood still; only the mutant's does.
    pub(crate) stopped_for: u64,
    /// What has reached it during the pause.
    stalled: VecDeque<ClientEvent>,
    pub(crate) active: Option<Box<Active>>,
    /// Replies that its lanes have for the lease, oldest first.
    replies: VecDeque<(usize, RoundId, NodeId, Said)>,
    /// For each key, the largest fencing token it has seen.
    seen_fences: Vec<u64>,
}

/// A master's reply, and what the client says that its votes are worth.
#[derive(Clone, Copy)]
pub(crate) struct Said {
    pub(crate) reply: Reply,
    pub(crate) eligibility: Eligibility,
}

/// The lease that a client is busy with.
pub(crate) struct Active {
    /// The checker's number for it.
    pub(crate) number: usize,
    pub(crate) key: usize,
    pub(crate) lease: Lease,
    /// When the timer that was armed last fires, in true time.
    armed: Option<u64>,
    /// The fence was proposed again after the key was set.
    fenced_twice: bool,
    /// The longest that it may be held after its acquisition, on the client's clock.
    longest: Duration,
    acquired_at: Option<Timestamp>,
    renewal_fails: bool,
    /// The round in which the mutant has forged a vote.
    forged_in: Option<RoundId>,
}

impl Client {
    pub(crate) fn draw(rng: &mut Rng, configuration: &Configuration, keys: usize) -> Self {
        let mut clock = Clock::draw(rng);
        if configuration.slow_clients && rng.chance(300_000) {
            let slower = rng.between(100_000, 400_000) as i64;
            clock = Clock::new(clock.local(0), -slower);
        }
        Self {
            clock,
            wall_offset: rng.below(configuration.wall_clocks_differ) / MICRO,
            life: 0,
            up: true,
            paused_at: None,
            stopped_for: 0,
            stalled: VecDeque::new(),
            active: None,
            replies: VecDeque::new(),
            seen_fences: vec![0; keys],
        }
    }

    /// Returns what its clock shows.
    pub(crate) fn now(&self, at: u64) -> Timestamp {
        self.clock.timestamp(at).saturating_sub(self.stopped())
    }

    /// Returns whether it believes, by its own clock, that it holds the lease of this number.
    pub(crate) fn believes_in(&self, at: u64, lease: usize) -> bool {
        let active = self.active.as_ref().filter(|it| it.number == lease);
        active.is_some_and(|it| it.lease.valid_until(self.now(at)).is_some())
    }

    pub(crate) fn is_slow(&self) -> bool {
        self.clock.rate() < -Clock::RATE_WITHIN
    }

    pub(crate) fn hand_over(&mut self, lease: usize, round: RoundId, node: NodeId, said: Said) {
        self.replies.push_back((lease, round, node, said));
    }

    /// Takes the news that votes of a master count for nothing.
    pub(crate) fn withdraw(&mut self, now: Timestamp, node: NodeId, withdrawal: Withdrawal) {
        if let Some(active) = &mut self.active {
            active.lease.handle_withdrawal(now, node, withdrawal);
        }
    }

    /// Ends its process. Returns the number of the lease that is forgotten.
    pub(crate) fn crash(&mut self) -> Option<usize> {
        self.life += 1;
        self.up = false;
        self.paused_at = None;
        self.stalled.clear();
        self.replies.clear();
        self.active.take().map(|active| active.number)
    }

    fn stopped(&self) -> Duration {
        Duration::from_nanos(self.stopped_for)
    }

    /// Returns the true time at which its clock shows this.
    fn when(&self, local: Timestamp) -> u64 {
        self.clock
            .when(local.saturating_add(self.stopped()).as_nanos())
    }
}
