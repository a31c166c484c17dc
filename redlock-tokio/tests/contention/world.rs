//! The clients of a run, their masters, and the way between them.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    time::Duration,
};

use fastrand::Rng;
use redlock_core::{
    Drift, Eligibility, Event as LeaseEvent, KeepAlive, Lease, LeaseConfig, NodeId, Nonce,
    Operation, Quorum, Reply, RetrySchedule, RoundId, Timestamp, Ttl, Validity,
};

use crate::{
    crowd::Crowd,
    master::{Answer, Master},
    turns::{TurnLength, Turns},
};

// In nanoseconds.
const MICRO: u64 = 1000;
const MILLI: u64 = 1000 * MICRO;
const SECOND: u64 = 1000 * MILLI;

const NODES: usize = 5;

/// For how long a client holds the lock each time. It asks again at once.
const HOLD: u64 = MILLI;

/// For how long a client goes on before it lets others go first, as in the driver.
const TURN: Duration = Duration::from_millis(30);

/// How long a run is, in virtual time.
const DURATION: u64 = 5 * SECOND;

/// What the clients of one run went through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waits {
    /// The most turns of others during one wait.
    pub(crate) turns: u64,
    pub(crate) longest: Duration,
    pub(crate) entries: u64,
    pub(crate) overlaps: u64,
}

struct Contention {
    crowd: Crowd,
    at: u64,
    queue: BTreeMap<(u64, u64), Event>,
    scheduled: u64,
    rng: Rng,
    latency: u64,
    masters: Vec<Master>,
    /// For each master and key, the clients that it informs when the key changes.
    tracked: Vec<Vec<BTreeSet<usize>>>,
    clients: Vec<Client>,
    /// For each key.
    holders: Vec<Option<usize>>,
    last_holders: Vec<usize>,
    turns: u64,
    waits: Waits,
}

struct Client {
    lease: Lease,
    keys: Range<usize>,
    /// The number of its lease.
    number: usize,
    schedule: Turns,
    /// When its turn began, unless it is over.
    turn: Option<u64>,
    backed_off: bool,
    asked: u64,
    turns_before: u64,
    /// When its timer fires.
    armed: Option<u64>,
    /// When the last message to each master arrives, and the last one from it.
    last: [(u64, u64); NODES],
}

#[derive(Clone, Copy)]
enum Event {
    Arrive {
        client: usize,
        master: usize,
        number: usize,
        round: RoundId,
        operation: Operation,
    },
    Answer {
        client: usize,
        number: usize,
        master: usize,
        round: RoundId,
        answer: Answer,
    },
    Freed {
        client: usize,
        master: usize,
    },
    Wake {
        client: usize,
    },
    Leave {
        client: usize,
    },
}

/// Lets clients contend.
pub(crate) fn run(crowd: Crowd, seed: u64) -> Waits {
    let mut rng = Rng::with_seed(seed);
    let latency = rng.u64(20 * MICRO..=200 * MICRO);
    let clients = (0..crowd.several + crowd.single).map(|client| Client {
        lease: lease(&mut rng),
        keys: crowd.keys_of(client),
        number: 0,
        schedule: Turns::default(),
        turn: None,
        backed_off: false,
        asked: 0,
        turns_before: 0,
        armed: None,
        last: [(0, 0); NODES],
    });
    let clients = clients.collect();
    let mut world = Contention {
        crowd,
        at: 0,
        queue: BTreeMap::new(),
        scheduled: 0,
        latency,
        masters: (0..NODES).map(|_| Master::new(crowd.keys)).collect(),
        tracked: vec![vec![BTreeSet::new(); crowd.keys]; NODES],
        rng,
        clients,
        holders: vec![None; crowd.keys],
        last_holders: vec![usize::MAX; crowd.keys],
        turns: 0,
        waits: Waits {
            turns: 0,
            longest: Duration::ZERO,
            entries: 0,
            overlaps: 0,
        },
    };
    for client in 0..world.clients.len() {
        world.begin(client);
    }
    while world.at < DURATION
        && let Some(((at, _), event)) = world.queue.pop_first()
    {
        world.at = at;
        world.handle(event);
    }
    for client in 0..world.clients.len() {
        let first = world.clients[client].keys.start;
        if world.holders[first] != Some(client) {
            world.note_wait(client);
        }
    }
    world.waits
}

fn lease(rng: &mut Rng) -> Lease {
    let millis = Duration::from_millis;
    let ttl = Ttl::new(millis(10_000)).expect("ten seconds");
    let retry = RetrySchedule::new(millis(20)..=millis(200)).expect("a range");
    let config = LeaseConfig::new(
        Quorum::majority(NODES).expect("five"),
        Validity::new(ttl, Drift::default()).expect("longer than the drift"),
        retry.with_probes(),
        KeepAlive::on_demand(millis(60_000)),
    );
    Lease::new(config, Nonce::new(rng.u128(..)))
}

impl Contention {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.at)
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.scheduled += 1;
        self.queue.insert((at, self.scheduled), event);
    }

    /// Lets a client ask for the lock.
    fn begin(&mut self, client: usize) {
        let (now, at, turns) = (self.now(), self.at, self.turns);
        let mut lease = lease(&mut self.rng);
        if self.crowd.gathers && self.clients[client].keys.len() > 1 {
            lease.set_several_keys();
            lease.set_notified(true);
        }
        let it = &mut self.clients[client];
        it.backed_off = false;
        if let Some(since) = it.turn
            && at - since >= TURN.as_nanos() as u64
        {
            let length = TurnLength::new(TURN, Ttl::new(Duration::from_secs(10)).expect("valid"));
            if let Some(pause) = it.schedule.end(now, length, 4) {
                it.backed_off = true;
                lease.back_off(pause);
            }
        }
        it.lease = lease;
        it.number += 1;
        it.asked = at;
        it.turns_before = turns;
        let it = &mut it.lease;
        it.acquire(now, now.saturating_add(Duration::from_secs(60)));
        self.settle(client);
    }

    fn handle(&mut self, event: Event) {
        let now = self.now();
        match event {
            Event::Arrive {
                client,
                master,
                number,
                round,
                operation,
            } => {
                let answer = self.execute(client, master, operation);
                let lands = self.lands(client, master, 0);
                let answer = Event::Answer {
                    client,
                    number,
                    master,
                    round,
                    answer,
                };
                self.schedule(lands, answer);
            }
            Event::Answer {
                client,
                number,
                master,
                round,
                answer,
            } => {
                let reply = match answer {
                    Answer::Granted => Reply::Granted,
                    Answer::Denied => Reply::Denied,
                    Answer::Free => Reply::Free,
                    Answer::Taken { left } => Reply::taken_for(now, left),
                };
                let node = NodeId::new(master).expect("one of five");
                let it = &mut self.clients[client];
                if it.number == number {
                    it.lease
                        .handle_reply(now, round, node, reply, Eligibility::ALWAYS);
                    self.settle(client);
                }
            }
            Event::Freed { client, master } => {
                let node = NodeId::new(master).expect("one of five");
                let it = &mut self.clients[client];
                if it.keys.len() > 1 {
                    it.lease.probe_again(node);
                } else {
                    it.lease.handle_freed(now, node);
                }
                self.settle(client);
            }
            Event::Wake { client } => {
                let armed = &mut self.clients[client].armed;
                armed.take_if(|it| *it <= self.at);
                self.clients[client].lease.handle_timeout(now);
                self.settle(client);
            }
            Event::Leave { client } => {
                for key in self.clients[client].keys.clone() {
                    self.holders[key] = None;
                }
                self.clients[client].lease.release(now);
                self.settle(client);
                self.begin(client);
            }
        }
    }

    /// Carries out a request for all keys of a client, and informs the clients that wait for one that has changed.
    fn execute(&mut self, client: usize, master: usize, operation: Operation) -> Answer {
        let (now, keys) = (self.now(), self.clients[client].keys.clone());
        let before = self.masters[master].owners(now, keys.clone());
        let answer = self.masters[master].execute(now, keys.clone(), operation);
        let after = self.masters[master].owners(now, keys.clone());
        for (index, key) in keys.enumerate() {
            if before[index] != after[index] {
                self.inform(master, key, client);
            }
            if let Operation::Probe { .. } = operation {
                self.tracked[master][key].insert(client);
            }
        }
        answer
    }

    /// Informs the clients that have probed a key since it changed last, in a fixed order.
    fn inform(&mut self, master: usize, key: usize, by: usize) {
        let tracked = std::mem::take(&mut self.tracked[master][key]);
        for (index, client) in tracked.into_iter().enumerate() {
            if client != by {
                let lands = self.lands(client, master, index as u64 * 2 * MICRO);
                self.schedule(lands, Event::Freed { client, master });
            }
        }
    }

    /// Returns when a message of a master to a client lands.
    fn lands(&mut self, client: usize, master: usize, after: u64) -> u64 {
        let at = self.at + after + self.delay();
        let last = &mut self.clients[client].last[master].1;
        *last = at.max(*last + 1);
        *last
    }

    fn delay(&mut self) -> u64 {
        let usual = self.latency + self.rng.u64(..self.latency);
        if self.rng.u32(..100) == 0 {
            // Often much shorter than the mean, and now and then several times longer.
            let most = self.rng.u64(..=2 * MILLI);
            usual + self.rng.u64(..=2 * most)
        } else {
            usual
        }
    }

    /// Sends what the lease wants to send, and hears what it has to tell.
    fn settle(&mut self, client: usize) {
        while let Some(transmit) = self.clients[client].lease.poll_transmit() {
            let number = self.clients[client].number;
            for node in transmit.nodes.iter() {
                let master = node.index();
                let at = self.at + self.delay();
                let last = &mut self.clients[client].last[master].0;
                *last = at.max(*last + 1);
                let at = *last;
                let arrival = Event::Arrive {
                    client,
                    master,
                    number,
                    round: transmit.round,
                    operation: transmit.operation,
                };
                self.schedule(at, arrival);
            }
        }
        while let Some(event) = self.clients[client].lease.poll_event() {
            if let LeaseEvent::Acquired { .. } = event {
                self.enter(client);
            }
        }
        if let Some(due) = self.clients[client].lease.poll_timeout() {
            let due = due.as_nanos().max(self.at);
            let it = &mut self.clients[client];
            if it.armed.is_none_or(|armed| due < armed) {
                it.armed = Some(due);
                self.schedule(due, Event::Wake { client });
            }
        }
    }

    fn enter(&mut self, client: usize) {
        let now = self.now();
        self.waits.entries += 1;
        self.note_wait(client);
        let mut is_new = false;
        for key in self.clients[client].keys.clone() {
            let holder = self.holders[key].replace(client);
            self.waits.overlaps += u64::from(holder.is_some());
            is_new |= std::mem::replace(&mut self.last_holders[key], client) != client;
        }
        self.turns += u64::from(is_new || self.clients[client].backed_off);
        let (at, it) = (self.at, &mut self.clients[client]);
        if it.backed_off {
            it.schedule
                .start(now, it.lease.was_contended(), it.lease.missed());
        }
        if is_new || it.backed_off {
            it.turn = Some(at);
        }
        self.schedule(at + HOLD, Event::Leave { client });
    }

    fn note_wait(&mut self, client: usize) {
        let it = &self.clients[client];
        let turns = self.turns - it.turns_before;
        self.waits.turns = self.waits.turns.max(turns);
        let waited = Duration::from_nanos(self.at - it.asked);
        self.waits.longest = self.waits.longest.max(waited);
    }
}
