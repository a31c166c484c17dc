//! A client: one process with a clock, one lease at a time, and the loop that drives it.

mod drive;
mod script;

use std::{collections::VecDeque, time::Duration};

use redlock_core::{Eligibility, Lease, NodeId, Reply, RoundId, Sighting, Timestamp, Withdrawal};

pub(crate) use self::script::Act;
use crate::{
    clock::{Clock, MICRO},
    configuration::{Configuration, Mutant},
    history::Breach,
    lane::Purpose,
    master::{Request, Vote},
    rng::Rng,
    seen::Seen,
    world::{Arrival, World, within},
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

#[derive(Clone, Copy)]
pub(crate) enum ClientEvent {
    /// Starts a lease, of a given key if it is a probe.
    Begin {
        key: Option<usize>,
    },
    /// The lease's timer fires.
    Wake,
    /// A request leaves after the pause that held it up.
    Send {
        master: usize,
        request: Request,
        purpose: Purpose,
    },
    Answer(Answer),
    /// Perhaps a request was not answered in time.
    Late {
        master: usize,
        epoch: u32,
    },
    Broken {
        master: usize,
        epoch: u32,
    },
    Connect {
        master: usize,
    },
    Connected {
        master: usize,
        incarnation: u32,
        sighting: Sighting,
    },
    DeliverOwed {
        master: usize,
    },
    /// The client does something with the lease of this number.
    Act {
        lease: usize,
        act: Act,
    },
    /// The run ends: whatever there is, is released.
    Retire,
}

#[derive(Clone, Copy)]
pub(crate) struct Answer {
    pub(crate) arrival: Arrival,
    pub(crate) vote: Vote,
}

impl Client {
    pub(crate) fn draw(rng: &mut Rng, configuration: &Configuration, keys: usize) -> Self {
        let mut clock = within(rng);
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

impl World {
    /// Lets an event act on a client, or wait until the client's pause is over.
    pub(crate) fn client_event(&mut self, client: usize, life: u32, event: ClientEvent) {
        let it = &mut self.clients[client];
        if it.life != life || !it.up {
            return;
        }
        if it.paused_at.is_some() {
            it.stalled.push_back(event);
            return;
        }
        let at = self.at;
        let trace = |code: u64, detail: u64| [at, code << 32 | client as u64, detail, 0];
        match event {
            ClientEvent::Begin { key } => {
                self.trace.event(trace(10, 0));
                self.begin(client, key);
            }
            ClientEvent::Wake => {
                self.trace.event(trace(11, 0));
                self.wake(client);
            }
            ClientEvent::Send {
                master,
                request,
                purpose,
            } => {
                self.trace.event(trace(12, master as u64));
                self.send(client, master, request, purpose);
            }
            ClientEvent::Answer(answer) => {
                self.trace.event(trace(13, answer.arrival.flight));
                self.land(client, answer);
            }
            ClientEvent::Late { master, epoch } => {
                self.trace.event(trace(14, master as u64));
                self.time_out(client, master, epoch);
            }
            ClientEvent::Broken { master, epoch } => {
                self.trace.event(trace(15, master as u64));
                self.break_up(client, master, epoch);
            }
            ClientEvent::Connect { master } => {
                self.trace.event(trace(16, master as u64));
                self.connect(client, master);
            }
            ClientEvent::Connected {
                master,
                incarnation,
                sighting,
            } => {
                self.trace.event(trace(17, u64::from(incarnation)));
                self.connected(client, master, incarnation, &sighting);
            }
            ClientEvent::DeliverOwed { master } => {
                self.trace.event(trace(18, master as u64));
                self.deliver_owed(client, master);
            }
            ClientEvent::Act { lease, act } => {
                self.trace.event(trace(19, lease as u64));
                self.act(client, lease, act);
            }
            ClientEvent::Retire => self.retire(client),
        }
        self.settle(client);
    }

    /// Ends a pause: what has piled up is dealt with, the timer first or last.
    pub(crate) fn resume(&mut self, client: usize, life: u32) {
        let at = self.at;
        let it = &mut self.clients[client];
        let Some(paused_at) = it.paused_at.filter(|_| it.life == life) else {
            return;
        };
        let held_before = it
            .active
            .as_ref()
            .is_some_and(|active| active.lease.valid_until(it.now(paused_at)).is_some());
        let believes = it
            .active
            .as_ref()
            .is_some_and(|active| active.lease.valid_until(it.now(at)).is_some());
        if self.configuration.mutant == Some(Mutant::ClockStopsInPause) {
            it.stopped_for += it.clock.local(at) - it.clock.local(paused_at);
        }
        it.paused_at = None;
        let stalled = std::mem::take(&mut it.stalled);
        self.trace
            .event([at, 20, client as u64, stalled.len() as u64]);
        if held_before && !believes {
            self.note(Seen::ResumedTooLate);
        }
        if self.rng.chance(500_000) {
            self.client_event(client, life, ClientEvent::Wake);
        }
        for event in stalled {
            self.client_event(client, life, event);
        }
    }

    fn wake(&mut self, client: usize) {
        let (at, now) = (self.at, self.clients[client].now(self.at));
        let Some(active) = &mut self.clients[client].active else {
            return;
        };
        if active.armed.is_some_and(|armed| armed <= at) {
            active.armed = None;
        }
        let spurious = active.lease.poll_timeout().is_none_or(|due| due > now);
        // It is told now and then that a key is free, whether it is or not.
        let attempts = active.lease.attempts();
        if self.rng.chance(300_000) {
            let node = NodeId::new(self.rng.index(self.scale.quorum.nodes())).expect("a master");
            active.lease.handle_freed(now, node);
        }
        let freed = active.lease.attempts() > attempts;
        active.lease.handle_timeout(now);
        let moved_on = active.lease.poll_timeout().is_none_or(|due| due > now);
        if freed {
            self.note(Seen::FreedNotifier);
        }
        if spurious {
            self.note(Seen::Spurious);
        }
        if !moved_on {
            self.fail(Breach::TimeoutNotLater { client });
        }
    }
}
