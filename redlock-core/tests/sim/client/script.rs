//! What clients do with their leases, and what the checker makes of what they gain.

use std::time::Duration;

use redlock_core::{
    AcquireFailure, Drift, Event as LeaseEvent, FencingToken, KeepAlive, Lease, LeaseConfig,
    LossReason, Nonce, RetrySchedule, Timestamp, Ttl, Validity,
};

use super::Active;
use crate::{
    clock::{MICRO, MILLI, SECOND},
    configuration::{Expectation, Mutant},
    events::{Act, ClientEvent},
    history::{Breach, Hold},
    seen::Seen,
    world::World,
};

/// What a client is to do with its next lease.
struct Plan {
    config: LeaseConfig,
    /// For how long it tries.
    budget: Duration,
    /// For how long it may hold the lock.
    longest: Duration,
}

impl World {
    /// Lets a client begin its next lease after a while.
    pub(crate) fn think(&mut self, client: usize) {
        if !self.calm {
            let after = self.rng.around(4 * self.max_ttl());
            let event = ClientEvent::Begin { key: None };
            self.schedule_client(self.at + after, client, event);
        }
    }

    /// Starts a lease, of a given key if it is a probe.
    pub(super) fn begin(&mut self, client: usize, probed: Option<usize>) {
        if self.clients[client].active.is_some() || (self.calm && probed.is_none()) {
            return;
        }
        let key = probed.unwrap_or_else(|| self.rng.index(self.scale.keys));
        let Plan {
            config,
            budget,
            longest,
        } = self.draw_plan(probed.is_some());
        let nonce = u128::from(self.rng.next()) << 64 | u128::from(self.rng.next());
        let mut lease = Lease::new(config.clone(), Nonce::new(nonce));
        let now = self.clients[client].now(self.at);
        let deadline = now.saturating_add(budget);
        // Each key is fenced or not, for all.
        if key % 2 == 1 {
            let it = &self.clients[client];
            let wall_clock = 1_700_000_000_000_000 + self.at / MICRO + it.wall_offset;
            let proposal = FencingToken::new(wall_clock.max(it.seen_fences[key] + 1));
            lease.acquire_fenced(now, deadline, proposal);
        } else {
            lease.acquire(now, deadline);
        }
        let ttl = config.validity.ttl().as_millis() * MILLI;
        let number = self.history.begin(ttl);
        self.clients[client].active = Some(Box::new(Active {
            number,
            key,
            lease,
            armed: None,
            fenced_twice: false,
            longest,
            acquired_at: None,
            renewal_fails: false,
            forged_in: None,
        }));
        if self.rng.chance(20_000) && probed.is_none() {
            self.will(client, number, ttl / 4, Act::Cancel);
        }
    }

    fn draw_plan(&mut self, probe: bool) -> Plan {
        let rng = &mut self.rng;
        let ttl = self.scale.max_ttl.as_millis() / rng.pick(&[1, 1, 2, 4]);
        let millis = Duration::from_millis;
        // All of these are in range: ttls from half a second, delays and intervals from 20 ms.
        let ttl = Ttl::new(millis(ttl)).expect("half a second at least");
        let driftless = self.configuration.mutant == Some(Mutant::AllowsNoDrift);
        let drift = if driftless {
            Drift::new(0, Duration::ZERO)
        } else {
            Drift::default()
        };
        let validity = Validity::new(ttl, drift).expect("longer than its drift");
        let longest_validity = Validity::new(self.scale.max_ttl, drift).expect("no shorter");
        let ttl = ttl.as_millis();
        let delay = rng.pick(&[
            (ttl / 10, ttl / 2),
            (ttl / 5, ttl),
            (20, 200),
            (ttl / 4, ttl / 4),
        ]);
        let budget = rng.pick(&[0, ttl / 2, 2 * ttl, 4 * ttl]);
        let budget = if probe { 30_000 } else { budget };
        let delay = millis(delay.0)..=millis(delay.1);
        let max_hold = millis(ttl * rng.between(1, 8));
        // What expires is not renewed, so that its last moments are seen more often.
        let keep_alive = if rng.chance(750_000) && !driftless {
            let interval = KeepAlive::default_interval(validity);
            KeepAlive::every(interval, max_hold, validity).expect("shorter than the validity")
        } else {
            KeepAlive::on_demand(max_hold)
        };
        let mut retry = RetrySchedule::new(delay).expect("a range that is not empty");
        if !probe {
            // What comes after so many attempts is nothing new, and takes the simulator's time.
            retry = retry.with_max_attempts(20);
        }
        // Where exclusion is to be broken, attempts must come at the very moment when a key has gone.
        let may_look = self.configuration.expectation == Expectation::Safe;
        if rng.chance(500_000) && may_look {
            retry = retry.with_probes();
        }
        let config = LeaseConfig {
            quorum: self.scale.quorum,
            validity,
            retry,
            keep_alive,
        };
        Plan {
            config,
            budget: millis(budget),
            longest: max_hold.saturating_add(longest_validity.span()),
        }
    }

    pub(super) fn act(&mut self, client: usize, lease: usize, act: Act) {
        if let Act::Write { key, fence } = act {
            return self.write(key, fence);
        }
        let it = &mut self.clients[client];
        let now = it.now(self.at);
        let Some(active) = it.active.as_mut().filter(|it| it.number == lease) else {
            return;
        };
        match act {
            Act::Extend(ttl) => {
                active.lease.extend_for(now, ttl);
                let longest = active.lease.longest_ttl().as_millis() * MILLI;
                self.history.note_ttl(lease, longest);
            }
            Act::Release => active.lease.release(now),
            Act::Cancel if active.acquired_at.is_none() => {
                active.lease.release(now);
                self.note(Seen::Cancelled);
            }
            Act::Cancel => {}
            Act::Abandon => active.lease.abandon(),
            Act::Write { .. } => {}
        }
    }

    /// The protected resource refuses what is older than what it has seen.
    fn write(&mut self, key: usize, fence: FencingToken) {
        if self.resources[key] > Some(fence) {
            self.note(Seen::StaleWrite);
        } else {
            self.resources[key] = Some(fence);
        }
    }

    /// Lets a client act on its lease about this much later.
    fn will(&mut self, client: usize, lease: usize, after: u64, act: Act) {
        let at = self.at + self.rng.around(after);
        self.schedule_client(at, client, ClientEvent::Act { lease, act });
    }

    pub(super) fn retire(&mut self, client: usize) {
        let it = &mut self.clients[client];
        let now = it.now(self.at);
        if let Some(active) = &mut it.active {
            active.lease.release(now);
        }
    }

    pub(super) fn acquired(
        &mut self,
        client: usize,
        active: &mut Active,
        valid_until: Timestamp,
        fence: Option<FencingToken>,
    ) {
        self.note(Seen::Acquired);
        if active.lease.attempts() > 1 {
            self.note(Seen::Retried);
        }
        let Active { number, key, .. } = *active;
        active.acquired_at = Some(self.clients[client].now(self.at));
        self.check_gain(client, active, valid_until);
        if let Some(fence) = fence {
            self.check_fence(active, fence);
            self.clients[client].seen_fences[key] = fence.get();
        }
        if self.calm {
            self.note_probed(key);
            return self.will(client, number, SECOND, Act::Release);
        }
        let hold = self.max_ttl();
        self.will(client, number, 2 * hold, Act::Release);
        if self.rng.chance(300_000) {
            let ttl = self.scale.max_ttl.as_millis() / self.rng.pick(&[1, 2, 4]);
            let ttl = Ttl::new(Duration::from_millis(ttl)).expect("half a second at least");
            self.will(client, number, hold / 2, Act::Extend(ttl));
        }
        if self.rng.chance(10_000) {
            self.will(client, number, hold, Act::Abandon);
        }
        if let Some(fence) = fence {
            let write = Act::Write { key, fence };
            self.will(client, number, hold / 4, write);
            self.will(client, number, hold, write);
        }
    }

    /// The property: a client that gains validity is the only one that has it, each by its own clock.
    pub(super) fn check_gain(&mut self, client: usize, active: &Active, valid_until: Timestamp) {
        let at = self.at;
        let Active { number, key, .. } = *active;
        let clients = &self.clients;
        let is_valid = |hold: &Hold| clients[hold.client].believes_in(at, hold.lease);
        let others = self.history.others(key, number, is_valid);
        let new = self.history.hold(at, key, client, number);
        for old in others {
            let explained = self.explains(old, new);
            self.report(Breach::TwoHolders { key, old, new }, explained);
        }
        // The attempt started before it was won, so this is the longest that it may be.
        let end = active
            .acquired_at
            .map(|it| it.saturating_add(active.longest));
        if end.is_some_and(|end| valid_until > end) {
            self.fail(Breach::HeldTooLong { key, client });
        }
    }

    /// The other property: fencing tokens grow in the order in which they are acquired.
    fn check_fence(&mut self, active: &Active, fence: FencingToken) {
        let key = active.key;
        self.note(Seen::Fenced);
        if active.fenced_twice {
            self.note(Seen::SecondFence);
        }
        if let Some(old) = self.history.fence(key, fence) {
            let new = fence;
            let explained = self.explains_fences(old, new);
            self.report(Breach::FenceWentBack { key, old, new }, explained);
        }
    }

    /// Returns whether something accounts for fencing tokens that do not grow. Two holders alone do
    /// not: on the master that two majorities share, one key was gone when the other came.
    fn explains_fences(&self, old: FencingToken, new: FencingToken) -> bool {
        let mutant = self.configuration.mutant;
        let lost = self.masters.iter().any(|it| it.forgot_counters);
        // A clock that lies about validity lets a client learn too late that it had won, and take
        // it for now. The tokens are still distinct.
        let lies = self.configuration.slow_clients || mutant == Some(Mutant::ClockStopsInPause);
        // An old owner raises counters that the new one does not have.
        let two_owners = mutant.is_some() && self.configuration.authorities;
        lost || two_owners || mutant == Some(Mutant::ForgesAVote) || (lies && new < old)
    }

    /// Returns whether an assumption that does not hold in this world accounts for two holders.
    fn explains(&self, old: Hold, new: Hold) -> bool {
        let slow = |hold: Hold| self.clients[hold.client].is_slow();
        // An attempt may have begun, and been granted, well before it was won.
        let since = old.since.min(new.since).saturating_sub(self.max_ttl());
        let mut forgot = self.masters.iter().filter_map(|it| it.forgot_keys_at);
        let mutant = self.configuration.mutant.is_some();
        mutant || slow(old) || slow(new) || forgot.any(|at| at >= since)
    }

    /// Counts how leases end.
    pub(super) fn note_end(&mut self, event: LeaseEvent) {
        match event {
            LeaseEvent::Exhausted { failure, .. } => {
                self.note(Seen::Exhausted);
                if matches!(failure, AcquireFailure::Quarantined { .. }) {
                    self.note(Seen::QuarantinedRefusal);
                }
            }
            LeaseEvent::Released(_) => self.note(Seen::Released),
            LeaseEvent::Lost(reason) => self.note(match reason {
                LossReason::KeysLost => Seen::LostKeys,
                LossReason::MaxHold => Seen::LostMaxHold,
                LossReason::Abandoned => Seen::Abandoned,
                _ => Seen::LostExpired,
            }),
            _ => {}
        }
    }

    /// Lets go of a lease that has closed.
    pub(super) fn end(&mut self, client: usize, lease: usize) {
        self.history.end(self.at, lease);
        self.think(client);
    }
}
