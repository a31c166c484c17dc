//! One seed, one run: processes, servers and the network between them, in true time.

use std::sync::{Arc, Weak, atomic::Ordering::Relaxed};

use crate::{
    authority::{Authorities, Layout, Outages},
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
    seen::{Seen, Tally},
    server::{Disk, Server, Withheld},
    setup::Setup,
    trace::Trace,
    users::{Records, panics},
    violation::Violation,
};

/// For how long there are faults.
const FAULTS: u64 = 60 * SECOND;

/// The longest step of a process. A process that runs ahead of another by this much hears of the other's messages
/// that much too late, which a network could do, too.
const LONGEST_STEP: u64 = 5 * MILLI;

/// How often the world looks whether all processes have ended.
const TICK: u64 = 100 * MILLI;

pub(crate) struct World {
    pub(crate) configuration: Configuration,
    pub(crate) scale: Scale,
    pub(crate) network: SharedNetwork,
    /// `None` while a process does not exist.
    pub(crate) processes: Vec<Option<Process>>,
    rates: Vec<Rate>,
    lives: Vec<u32>,
    pub(crate) rng: Rng,
    pub(crate) records: Records,
    /// All processes that ever were, to see that nothing of them is left.
    hosts: Vec<Weak<Host>>,
    pub(crate) is_calm: bool,
    pub(crate) reduction: Reduction,
    /// How many faults were planned and came.
    pub(crate) faults: u32,
    stage: Stage,
    failures: Vec<Violation>,
}

/// What a run has shown.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) hash: u64,
    pub(crate) events: u64,
    pub(crate) virtual_time: u64,
    pub(crate) seen: Tally,
    pub(crate) violations: Vec<Violation>,
    pub(crate) processes: usize,
    /// In each process.
    pub(crate) users: usize,
    pub(crate) faults: u32,
    pub(crate) outages: Outages,
}

impl Outcome {
    /// The outcome of a run that ended in a panic of the simulator itself.
    pub(crate) fn of_panic() -> Self {
        Self {
            hash: 0,
            events: 0,
            virtual_time: 0,
            seen: Tally::new(),
            violations: vec![Violation("the simulator panicked".into())],
            processes: 0,
            users: 0,
            faults: 0,
            outages: Outages::default(),
        }
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
        let scale = Scale::draw(&mut rng);
        let owners = configuration.owners;
        let scale = owners.map_or(scale, |it| it.scale(scale, &mut rng));
        let scale = scale.reduced(reduction);
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
            network.authorities = Authorities::new(owners, &mut rng);
        }
        let mut world = Self {
            configuration,
            scale,
            network: SharedNetwork::new(network),
            processes: (0..scale.processes).map(|_| None).collect(),
            rates,
            lives: vec![0; scale.processes],
            rng,
            records: Records::new(),
            hosts: Vec::new(),
            is_calm: false,
            reduction: reduction.clone(),
            faults: 0,
            stage: Stage::Faults,
            failures: Vec::new(),
        };
        for process in 0..scale.processes {
            world.push(0, Event::Reboot { process });
        }
        world.plan_faults();
        world.push(FAULTS, Event::Calm);
        world
    }

    /// Runs the world to its end.
    pub(crate) fn run(mut self) -> Outcome {
        loop {
            self.catch_up();
            let Some(event) = self.next_event() else {
                continue;
            };
            if matches!(event, Event::End) {
                break;
            }
            self.handle(event);
        }
        self.conclude()
    }

    pub(crate) fn at(&self) -> u64 {
        self.network.lock().at()
    }

    pub(crate) fn max_ttl(&self) -> u64 {
        self.scale.max_ttl.as_nanos() as u64
    }

    /// Plans an event.
    pub(crate) fn push(&self, delay: u64, event: Event) {
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
            let behind = |process: &Process| !process.stands_still && process.host.now() < target;
            let mut all_there = true;
            for process in self.processes.iter().flatten() {
                if behind(process) {
                    process.run_until(target);
                    all_there &= process.host.now() >= target;
                }
            }
            if all_there && self.next_moment() >= target {
                self.records.registry.look(self.at());
                self.network.lock().now.store(target, Relaxed);
                self.note_service();
                return;
            }
        }
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

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrive(arrival) => self.network.lock().arrive(arrival),
            Event::Answer {
                connection,
                number,
                response,
            } => self.network.lock().deliver(connection, number, response),
            Event::Invalidate { connection, key } => {
                self.network.lock().deliver_invalidation(connection, key);
            }
            Event::Break { connection } => self.network.lock().break_off(connection),
            Event::Expire { server, key } => {
                let mut network = self.network.lock();
                let at = network.at();
                network.notify_of(at, server, &key);
            }
            Event::Authority(step) => self.handle_authority(step),
            Event::Fault(fault) => self.strike(fault),
            Event::Start { server, disk } => {
                let mut network = self.network.lock();
                let at = network.at();
                network.servers[server].start(at, disk);
                network
                    .authorities
                    .handle_start(server, disk != Disk::Empty);
            }
            Event::Restart { server, length } => self.restart(server, length),
            Event::Recover { server } => self.network.lock().servers[server].recover(),
            Event::Reinstate {
                server,
                connections,
            } => self.reinstate(server, connections),
            Event::Depose { server } => self.depose(server),
            Event::Pause {
                process,
                life,
                length,
            } => self.pause_again(process, life, length),
            Event::Resume { process, life } => self.resume(process, life),
            Event::Reboot { process } => self.reboot(process),
            Event::Calm => self.calm(),
            Event::ShutDown => self.shut_down(),
            Event::Tick => self.tick(),
            Event::End => {}
        }
    }

    fn resume(&mut self, index: usize, life: u32) {
        let at = self.at();
        if let Some(process) = &mut self.processes[index]
            && process.host.life == life
        {
            process.host.thaw();
            self.records.registry.go_on(&process.host, at);
            process.resume(at);
        }
    }

    fn reboot(&mut self, index: usize) {
        self.lives[index] += 1;
        let zero = self.rng.u64(1000..10_000) * SECOND;
        let now = Arc::clone(&self.network.lock().now);
        let host = Arc::new(Host::new(
            index,
            self.lives[index],
            self.rates[index],
            zero,
            now,
        ));
        host.set_wall_clock(self.rng.u64(..Host::WALL_CLOCKS_DIFFER_BY));
        self.hosts.push(Arc::downgrade(&host));
        let setup = Setup {
            configuration: self.configuration,
            scale: self.scale,
            host: Arc::clone(&host),
            network: self.network.clone(),
            records: self.records.clone(),
            rng: self.rng.fork(),
        };
        let process = Process::start(host, self.stage, |stages| setup.main(stages));
        self.processes[index] = Some(process);
    }

    /// Ends a process at once: nothing that it still wants to do happens.
    pub(crate) fn end_process(&mut self, index: usize) {
        if let Some(process) = self.processes[index].take() {
            let host = Arc::clone(&process.host);
            self.forget_process(&host);
            drop(process);
            self.drop_outliving(&host);
        }
    }

    /// Notes that a process has ended.
    pub(crate) fn forget_process(&self, host: &Arc<Host>) {
        self.records.registry.end_all_of(host);
        self.network.lock().forget(host);
    }

    /// Drops what a process has moved out of its runtime, after the runtime.
    pub(crate) fn drop_outliving(&self, host: &Arc<Host>) {
        for _ in 0..self.records.drop_outliving(host) {
            self.network.lock().seen.note(Seen::Outlived);
        }
    }

    /// Ends the faults. What is broken is mended soon.
    fn calm(&mut self) {
        self.is_calm = true;
        self.network.lock().calm();
        self.calm_authorities();
        self.enter(Stage::Calm);
        let settled = quiet::settling(&self.scale);
        self.records.quiet.begin(self.at() + settled);
        self.push(settled, Event::ShutDown);
    }

    /// Ends all processes, once each user was served.
    fn shut_down(&mut self) {
        let unserved = self.records.quiet.unserved();
        if !unserved.is_empty() {
            let bound = quiet::service(&self.scale);
            if !self.records.quiet.since(self.at().saturating_sub(bound)) {
                return self.push(SECOND, Event::ShutDown);
            }
            let text = format!("{unserved:?} got no lock in {} s", bound / SECOND);
            self.failures.push(Violation(text));
        }
        self.enter(Stage::End);
        self.push(3 * self.max_ttl() + 5 * SECOND, Event::End);
        self.push(TICK, Event::Tick);
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
                    self.failures.push(Violation(text));
                }
            }
        } else {
            self.push(TICK, Event::Tick);
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
        for process in self.processes.iter().flatten() {
            let index = process.host.process;
            if !process.has_ended() {
                self.failures
                    .push(Violation(format!("process {index} does not end")));
            } else if process.tasks() > 0 {
                let text = format!("process {index} has {} tasks left", process.tasks());
                self.failures.push(Violation(text));
            }
        }
        for index in 0..self.processes.len() {
            self.end_process(index);
        }
        self.records.registry.clear();
        self.look_for_leaks();
        self.failures.extend(self.records.registry.violations());
        let panics = panics::take();
        let panics = panics.into_iter().map(Violation);
        self.failures.extend(panics);
        let mut network = self.network.lock();
        self.failures.append(&mut network.releases.violations);
        let at = network.at();
        Outcome {
            hash: network.trace.hash(),
            events: network.trace.events(),
            virtual_time: at,
            seen: network.seen.clone(),
            violations: self.failures.clone(),
            processes: self.scale.processes,
            users: self.scale.users,
            faults: self.faults,
            outages: network.authorities.outages(),
        }
    }
}

impl World {
    /// Looks for something that keeps a process in memory.
    fn look_for_leaks(&mut self) {
        for host in self.hosts.iter().filter_map(Weak::upgrade) {
            // One is `host`.
            let handles = Arc::strong_count(&host) - 1;
            let text = format!(
                "{handles} handles of process {} (life {}) are left",
                host.process, host.life
            );
            self.failures.push(Violation(text));
        }
    }
}
