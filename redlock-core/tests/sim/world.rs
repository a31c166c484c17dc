//! The simulated world: one queue of events in true time, and everything that they act on.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use redlock_core::{
    Drift, Electorate, FencingToken, NodeKind, OwnerRule, Quarantine, Quorum, Ttl, Voter,
};

use crate::{
    client::Client,
    clock::{Clock, HOUR, MICRO, MILLI, SECOND},
    configuration::{Configuration, Expectation},
    events::{ClientEvent, Event},
    history::{Breach, History, MAX_LATE, Violation},
    lane::Lane,
    master::Master,
    owner::{Authority, MEMBERS, NODE},
    rng::Rng,
    seen::{Seen, Tally},
    trace::Trace,
};

/// How long a run goes on under faults, in true time.
const DURATION: u64 = HOUR / 2;

/// The longest pause of a client.
pub(crate) const MAX_PAUSE: u64 = 60 * SECOND;

pub(crate) struct World {
    pub(crate) at: u64,
    queue: BinaryHeap<Reverse<Scheduled>>,
    scheduled: u64,
    pub(crate) rng: Rng,
    pub(crate) configuration: Configuration,
    pub(crate) scale: Scale,
    pub(crate) clients: Vec<Client>,
    /// The server of each node, and where authorities name it, a second one of each.
    pub(crate) masters: Vec<Master>,
    /// What names the owner of each node.
    pub(crate) authorities: Vec<Authority>,
    /// One for each client and master; see [`World::lane`].
    pub(crate) lanes: Vec<Lane>,
    /// The protected resource: for each key, the largest fencing token it was shown.
    pub(crate) resources: Vec<Option<FencingToken>>,
    pub(crate) history: History,
    pub(crate) seen: Tally,
    pub(crate) trace: Trace,
    /// The faults are over.
    pub(crate) calm: bool,
    probed: Vec<bool>,
}

/// The measures of one run, drawn from its seed.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    pub(crate) quorum: Quorum,
    pub(crate) keys: usize,
    pub(crate) max_ttl: Ttl,
    /// The shortest time that a message takes.
    pub(crate) latency: u64,
    /// A master that was not seen yet, as the only node.
    pub(crate) electorate: Electorate,
}

/// What is left of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) hash: u64,
    pub(crate) events: u64,
    pub(crate) virtual_time: u64,
    pub(crate) leases: u64,
    pub(crate) seen: Tally,
    /// How many violations have their cause at hand.
    pub(crate) explained: u64,
    /// The first violation without one.
    pub(crate) failure: Option<String>,
    /// The first with one, as an example.
    pub(crate) example: Option<String>,
}

struct Scheduled {
    at: u64,
    /// Keeps events of the same time in the order in which they were scheduled.
    number: u64,
    event: Event,
}

impl World {
    pub(crate) fn new(configuration: Configuration, seed: u64, print: bool) -> Self {
        let mut rng = Rng::new(seed);
        let mut nodes = rng.between(5, 9) as usize;
        let mut clients = rng.between(10, 40) as usize;
        let mut keys = rng.between(3, 9) as usize;
        if configuration.authorities {
            // One group, or a cluster of three shards. The members of authorities are asked all the time.
            nodes = rng.pick(&[1, 1, 3]);
            clients = 3 + clients / 4;
            keys = 1 + keys / 3;
        }
        let max_ttl = rng.pick(&[2, 4, 10, 30]) * SECOND;
        // Both are whole milliseconds, at least one, and 5 to 9 nodes are no error.
        let ttl = |nanos| Ttl::new(Duration::from_nanos(nanos)).expect("seconds");
        let quarantined = ttl(max_ttl / configuration.quarantine_share);
        let max_ttl = ttl(max_ttl);
        let quarantine = Quarantine::new(quarantined, Drift::default());
        let scale = Scale {
            quorum: Quorum::majority(nodes).expect("5 to 9 nodes"),
            keys,
            max_ttl,
            latency: rng.between(50 * MICRO, 3 * MILLI),
            electorate: electorate(&configuration, quarantine, max_ttl),
        };
        let servers = if configuration.authorities {
            2 * nodes
        } else {
            nodes
        };
        let masters = (0..servers).map(|server| {
            let mut master = Master::new(Clock::draw(&mut rng), keys);
            if server >= nodes {
                master.demote();
            }
            master
        });
        let masters = masters.collect();
        let clients: Vec<_> = (0..clients)
            .map(|_| Client::draw(&mut rng, &configuration, keys))
            .collect();
        let lane = |node| Lane::new(node, scale.electorate.clone());
        let lanes = (0..clients.len()).flat_map(|_| (0..nodes).map(lane));
        let lanes = lanes.collect();
        let mut world = Self {
            at: 0,
            queue: BinaryHeap::new(),
            scheduled: 0,
            rng,
            configuration,
            authorities: (0..nodes).map(Authority::new).collect(),
            scale,
            lanes,
            clients,
            masters,
            resources: vec![None; keys],
            history: History::new(keys),
            seen: Tally::new(),
            trace: Trace::new(print),
            calm: false,
            probed: vec![false; keys],
        };
        for client in 0..world.clients.len() {
            for master in 0..nodes {
                if configuration.authorities {
                    let poll = ClientEvent::Poll { node: master };
                    world.schedule_client(0, client, poll);
                    world.lane(client, master).connected = false;
                    world.reconnect(client, master);
                } else {
                    world.meet(client, master);
                }
            }
            world.think(client);
        }
        world.schedule_faults();
        world.schedule(SECOND, Event::Sweep);
        world.schedule(DURATION, Event::Calm);
        world
    }

    /// Runs to the end, or to the first violation that nothing explains.
    pub(crate) fn run(mut self) -> Outcome {
        while let Some(Reverse(Scheduled { at, event, .. })) = self.queue.pop() {
            self.at = at;
            match event {
                Event::Arrive(arrival) => self.arrive(arrival),
                Event::Client {
                    client,
                    life,
                    event,
                } => self.client_event(client, life, event),
                Event::Resume { client, life } => self.resume(client, life),
                Event::Reboot { client } => self.reboot(client),
                Event::Restart { master } => self.restart(master),
                Event::Turn {
                    node,
                    member,
                    reign,
                } => self.turn(node, member, reign),
                Event::Demote { node, server } => self.demote(node, server),
                Event::Fault(fault) => self.strike(fault),
                Event::Sweep => self.sweep(),
                Event::Calm => self.calm_down(),
                Event::Inspect => self.inspect(),
                Event::Probe => self.probe(),
                Event::End => {
                    self.finish();
                    break;
                }
            }
            if self.history.violations().iter().any(|it| !it.explained) {
                break;
            }
        }
        let violations = self.history.violations();
        let text = |explained| {
            let first = violations.iter().find(|it| it.explained == explained);
            first.map(ToString::to_string)
        };
        Outcome {
            hash: self.trace.hash(),
            events: self.trace.events(),
            virtual_time: self.at,
            leases: self.history.leases(),
            explained: violations.iter().filter(|it| it.explained).count() as u64,
            failure: text(false),
            example: text(true),
            seen: self.seen,
        }
    }

    pub(crate) fn schedule(&mut self, at: u64, event: Event) {
        self.scheduled += 1;
        self.queue.push(Reverse(Scheduled {
            at,
            number: self.scheduled,
            event,
        }));
    }

    /// Schedules what will reach this client in its present life.
    pub(crate) fn schedule_client(&mut self, at: u64, client: usize, event: ClientEvent) {
        let life = self.clients[client].life;
        self.schedule(
            at,
            Event::Client {
                client,
                life,
                event,
            },
        );
    }

    pub(crate) fn lane(&mut self, client: usize, master: usize) -> &mut Lane {
        &mut self.lanes[client * self.scale.quorum.nodes() + master]
    }

    pub(crate) fn note(&mut self, what: Seen) {
        self.seen.note(what);
    }

    /// Reports what no broken assumption can explain.
    pub(crate) fn fail(&mut self, kind: Breach) {
        self.report(kind, false);
    }

    pub(crate) fn report(&mut self, kind: Breach, explained: bool) {
        let violation = Violation {
            at: self.at,
            kind,
            explained: explained && self.configuration.expectation == Expectation::Violated,
        };
        self.trace
            .tell(self.at, || format!("VIOLATION {}", violation.kind));
        self.history.violation(violation);
    }

    pub(crate) fn note_probed(&mut self, key: usize) {
        self.probed[key] = true;
        self.note(Seen::Probed);
    }

    /// Looks for keys that live longer than they may.
    fn sweep(&mut self) {
        let at = self.at;
        let outlived = self.masters.iter().enumerate().find_map(|(master, it)| {
            let mut live = it.live(at);
            live.find(|(_, entry)| !self.history.may_live(at, entry.lease))
                .map(|(key, _)| Breach::KeyOutlived { key, master })
        });
        if let Some(breach) = outlived {
            self.fail(breach);
        }
        self.schedule(at + 5 * SECOND, Event::Sweep);
    }

    /// Ends all faults: whatever still runs is released, and nothing new begins.
    fn calm_down(&mut self) {
        self.calm = true;
        for lane in &mut self.lanes {
            lane.mute_until = 0;
            lane.deaf_until = 0;
            lane.members_cut_until = [0; MEMBERS];
        }
        for client in 0..self.clients.len() {
            self.schedule_client(self.at, client, ClientEvent::Retire);
        }
        // Until the last pause, the last straggler and the last key are over.
        let inspected = self.at + 2 * MAX_PAUSE + 2 * MAX_LATE + self.max_ttl();
        self.schedule(inspected, Event::Inspect);
        // Until the last quarantine is over.
        let probed = inspected + 3 * self.max_ttl();
        self.schedule(probed, Event::Probe);
    }

    /// Breaks the connections to processes that are gone. A client that asks for nothing finds this by
    /// its inspections. Otherwise it would find it when it probes, and the quarantine of the new
    /// process would start then.
    fn inspect(&mut self) {
        for client in 0..self.clients.len() {
            for master in 0..self.nodes() {
                let server = self.lane(client, master).server;
                let incarnation = self.masters[server].incarnation;
                let lane = self.lane(client, master);
                if lane.incarnation != incarnation {
                    let epoch = lane.epoch;
                    self.break_up(client, master, epoch);
                }
            }
        }
    }

    /// Acquires every key once more.
    fn probe(&mut self) {
        for key in 0..self.scale.keys {
            self.schedule_client(self.at, key, ClientEvent::Begin { key: Some(key) });
        }
        self.schedule(self.at + 60 * SECOND, Event::End);
    }

    fn finish(&mut self) {
        if let Some(key) = self.probed.iter().position(|probed| !probed) {
            self.fail(Breach::Stuck { key });
        }
        let at = self.at;
        let left = self.masters.iter().enumerate();
        let left = left
            .filter_map(|(master, it)| it.live(at).next().map(|(key, _)| (key, master)))
            .next();
        if let Some((key, master)) = left {
            self.fail(Breach::KeyOutlived { key, master });
        }
    }

    /// How many nodes there are. Each has one master, or two servers of which one is the owner.
    pub(crate) fn nodes(&self) -> usize {
        self.scale.quorum.nodes()
    }

    pub(crate) fn max_ttl(&self) -> u64 {
        self.scale.max_ttl.as_millis() * MILLI
    }
}

/// Returns what a client knows at first of a master, as the only node.
fn electorate(configuration: &Configuration, quarantine: Quarantine, max_ttl: Ttl) -> Electorate {
    let mut electorate = Electorate::new(if configuration.quarantine {
        Voter::new(quarantine)
    } else {
        Voter::trusted(quarantine)
    });
    if configuration.authorities {
        let rule = OwnerRule::new(max_ttl, Drift::default(), OwnerRule::DEFAULT_WINDOW);
        let kind = NodeKind::ClusterSlot {
            rule,
            may_share_server: false,
        };
        electorate.set_kind(NODE(), kind);
    }
    electorate
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}
