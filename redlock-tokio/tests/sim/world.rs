//! One seed, one run: processes, servers and the network between them, in true time.

use std::sync::{Arc, Weak, atomic::Ordering::Relaxed};

use crate::{
    authority::{Authorities, Layout},
    clock::{MILLI, Rate, SECOND},
    configuration::Configuration,
    events::Event,
    host::Host,
    network::{Network, SharedNetwork, Weather},
    process::{Process, Stage},
    quiet,
    reduction::Reduction,
    rng::Rng,
    scale::Scale,
    seen::Tally,
    server::{Server, Withheld},
    trace::Trace,
    users::{Records, panics},
    violation::{Kind, Violation},
};

/// For how long there are faults.
const FAULTS: u64 = 60 * SECOND;

/// The longest step of a process. A process that runs ahead of another by this much hears of the other's messages
/// that much too late, which a network could do, too.
const LONGEST_STEP: u64 = 5 * MILLI;

/// How often the world looks whether all processes have ended, and how long a process that has ended gets for its last
/// tasks.
pub(crate) const TICK: u64 = 100 * MILLI;

/// The tables are compared to all requests once in so many looks.
const RARELY: u64 = 64;

pub(crate) struct World {
    pub(crate) configuration: Configuration,
    pub(crate) scale: Scale,
    pub(crate) network: SharedNetwork,
    /// `None` while a process does not exist.
    pub(crate) processes: Vec<Option<Process>>,
    pub(crate) rates: Vec<Rate>,
    pub(crate) lives: Vec<u32>,
    pub(crate) rng: Rng,
    pub(crate) records: Records,
    /// All processes that ever were, to see that nothing of them is left.
    pub(crate) hosts: Vec<Weak<Host>>,
    pub(crate) is_calm: bool,
    is_over: bool,
    pub(crate) reduction: Reduction,
    /// How many faults were planned and came.
    pub(crate) faults: u32,
    pub(crate) stage: Stage,
    pub(crate) failures: Vec<Violation>,
    looks: u64,
}

/// What a run has shown.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) hash: u64,
    pub(crate) virtual_time: u64,
    pub(crate) seen: Tally,
    pub(crate) violations: Vec<Violation>,
    pub(crate) faults: u32,
}

impl Outcome {
    /// The outcome of a run that ended in a panic of the simulator itself.
    pub(crate) fn of_panic() -> Self {
        let mut violations = vec![Violation::new(Kind::Panic, "the simulator panicked")];
        violations.extend(Violation::all(Kind::Panic, panics::take()));
        Self {
            violations,
            ..Self::default()
        }
    }

    /// Returns whether there is a violation of this kind.
    pub(crate) fn has(&self, kind: Kind) -> bool {
        self.violations.iter().any(|it| it.kind == kind)
    }
}

impl World {
    pub(crate) fn new(
        configuration: Configuration,
        seed: u64,
        reduction: &Reduction,
        print: bool,
    ) -> Self {
        panics::watch();
        let mut rng = Rng::new(seed);
        let scale = if configuration.is_crowded {
            Scale::draw_crowded(&mut rng)
        } else {
            Scale::draw(&mut rng)
        };
        let owners = configuration.owners;
        let scale = owners.map_or(scale, |it| it.scale(scale, &mut rng));
        let weather = Weather::draw(&mut rng, &configuration);
        // Each address has a second machine behind it, where one can take the place of the other.
        let machines = if configuration.has_replicas() {
            2 * scale.servers
        } else {
            scale.servers
        };
        let clocks = configuration.clocks;
        let machine = |number: u32, rng: &mut Rng| {
            let mut server = Server::new(number, clocks.of_server(rng));
            if configuration.allows_unvetted {
                server.withhold(Some(Withheld::Everything));
            }
            server
        };
        let servers = match owners {
            Some(owners) => Layout::new(owners.kind).create_servers(&mut rng),
            None => (0..machines as u32)
                .map(|it| machine(it, &mut rng))
                .collect(),
        };
        let rates = (0..scale.processes)
            .map(|_| clocks.of_process(&mut rng))
            .collect();
        let in_order = configuration.in_order;
        let mut network = Network::new(servers, weather, in_order, rng.fork(), Trace::new(print));
        if let Some(owners) = owners {
            network.authorities = Some(Authorities::new(owners, &mut rng));
        }
        let mut world = Self {
            configuration,
            scale,
            network: SharedNetwork::new(network),
            processes: (0..scale.processes).map(|_| None).collect(),
            rates,
            lives: vec![0; scale.processes],
            rng,
            records: Records::default(),
            hosts: Vec::new(),
            is_calm: false,
            is_over: false,
            reduction: reduction.clone(),
            faults: 0,
            stage: Stage::Faults,
            failures: Vec::new(),
            looks: 0,
        };
        for process in 0..scale.processes {
            world.push(0, move |world| world.reboot(process));
        }
        world.plan_faults();
        world.push(FAULTS, Self::calm);
        world
    }

    /// Runs the world to its end.
    pub(crate) fn run(mut self) -> Outcome {
        loop {
            self.catch_up();
            if let Some(event) = self.next_event() {
                event(&mut self);
            }
            if self.is_over {
                return self.conclude();
            }
        }
    }

    pub(crate) fn at(&self) -> u64 {
        self.network.lock().at()
    }

    pub(crate) fn max_ttl(&self) -> u64 {
        self.scale.max_ttl.as_nanos() as u64
    }

    /// Plans an event.
    pub(crate) fn push(&self, delay: u64, event: impl FnOnce(&mut Self) + Send + 'static) {
        let mut network = self.network.lock();
        let at = network.at() + delay;
        network.queue.push(at, event);
    }

    /// Notes something in the trace.
    pub(crate) fn tell(&self, what: impl std::hash::Hash, text: impl FnOnce() -> String) {
        let mut network = self.network.lock();
        let at = network.at();
        network.trace.note(at, what, text);
    }

    /// Lets all processes come to the moment of the next event. What they send meanwhile may be due before.
    fn catch_up(&mut self) {
        loop {
            let target = self.next_moment();
            let behind =
                |process: &Process| !process.host.stands_still() && process.host.now() < target;
            let mut all_there = true;
            for process in self.processes.iter().flatten() {
                if behind(process) {
                    process.run_until(target);
                    self.records.registry.lock().look_at(&process.host);
                    all_there &= process.host.now() >= target;
                }
            }
            if all_there && self.next_moment() >= target {
                self.look();
                let mut network = self.network.lock();
                network.now.store(target, Relaxed);
                network.note_changes();
                drop(network);
                return;
            }
        }
    }

    /// Looks at all holds, and at what each `Redlock` keeps.
    fn look(&mut self) {
        let at = self.at();
        let forgotten = self.records.registry.lock().look(at);
        drop(forgotten);
        let mut services = self.records.services.lock();
        let limits = services.check_limits();
        self.failures.extend(Violation::all(Kind::Limit, limits));
        self.looks += 1;
        if self.looks.is_multiple_of(RARELY) {
            let since = at.saturating_sub(2 * self.max_ttl());
            let requests = self.records.requests.lock();
            let sizes = services.check_sizes(&requests, since, self.records.quiet.lock().since(at));
            self.failures.extend(Violation::all(Kind::Remains, sizes));
        }
        drop(services);
        self.note_departures();
    }

    fn next_moment(&self) -> u64 {
        let network = self.network.lock();
        let latest = network.at() + LONGEST_STEP;
        network.queue.next_at().map_or(latest, |at| at.min(latest))
    }

    fn next_event(&mut self) -> Option<Event> {
        let mut network = self.network.lock();
        let is_due = network
            .queue
            .next_at()
            .is_some_and(|due| due <= network.at());
        if is_due { network.queue.pop() } else { None }
    }

    /// Ends the faults. Broken parts are mended soon.
    fn calm(&mut self) {
        self.is_calm = true;
        self.network.lock().calm();
        self.calm_authorities();
        self.enter(Stage::Calm);
        let settled = quiet::settling(&self.scale);
        self.records.quiet.lock().begin(self.at() + settled);
        self.push(settled, Self::shut_down);
    }

    /// Ends all processes, once each user was served.
    fn shut_down(&mut self) {
        let quiet = self.records.quiet.lock();
        if !quiet.unserved.is_empty() {
            let bound = quiet::service(&self.scale);
            if !quiet.since(self.at().saturating_sub(bound)) {
                return self.push(SECOND, Self::shut_down);
            }
            let (unserved, bound) = (&quiet.unserved, bound / SECOND);
            let text = format!("{unserved:?} got no lock in {bound} s");
            self.failures.push(Violation::new(Kind::Service, text));
        }
        drop(quiet);
        self.enter(Stage::End);
        self.push(3 * self.max_ttl() + 5 * SECOND, |world| {
            world.is_over = true;
        });
        self.push(TICK, Self::tick);
    }

    /// Looks for keys on the servers as soon as all processes have ended. In calm weather, each has released all that
    /// it had set.
    fn tick(&mut self) {
        if self.processes.iter().flatten().all(Process::has_ended) {
            let network = self.network.lock();
            let at = network.at();
            for (index, server) in network.servers.iter().enumerate() {
                let keys = server.live_keys(at);
                if keys > 0 {
                    let text =
                        format!("server {index} has {keys} keys after the end of all processes");
                    self.failures.push(Violation::new(Kind::LeftoverKey, text));
                }
            }
        } else {
            self.push(TICK, Self::tick);
        }
    }

    fn enter(&mut self, stage: Stage) {
        self.tell(stage as u8, || format!("{stage:?}"));
        self.stage = stage;
        for process in self.processes.iter().flatten() {
            process.enter(stage);
        }
    }

    fn conclude(mut self) -> Outcome {
        for index in 0..self.processes.len() {
            match &self.processes[index] {
                Some(process) if !process.has_ended() => {
                    let text = format!("{} does not end", process.host.name());
                    self.failures.push(Violation::new(Kind::Remains, text));
                }
                _ => self.look_for_remains(index),
            }
            self.end_process(index);
        }
        let holds = self.records.registry.lock().take_all();
        drop(holds);
        self.look_for_leaks();
        self.failures
            .extend(self.records.registry.lock().violations());
        self.failures
            .extend(Violation::all(Kind::Panic, panics::take()));
        let mut network = self.network.lock();
        self.failures.append(&mut network.violations);
        let at = network.at();
        Outcome {
            hash: network.trace.hash(),
            virtual_time: at,
            seen: network.seen.clone(),
            violations: self.failures.clone(),
            faults: self.faults,
        }
    }

    /// Looks for something that keeps a process in memory.
    fn look_for_leaks(&mut self) {
        for host in self.hosts.iter().filter_map(Weak::upgrade) {
            // One is `host`.
            let handles = Arc::strong_count(&host) - 1;
            let text = format!("{handles} handles of {} are left", host.name());
            self.failures.push(Violation::new(Kind::Remains, text));
        }
    }
}
