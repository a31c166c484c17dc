//! The lives of processes, from boot to end.

use std::sync::Arc;

use crate::{
    clock::SECOND,
    host::Host,
    process::{Process, Stage},
    seen::Seen,
    setup::Setup,
    users::Environment,
    violation::{Kind, Violation},
    world::{TICK, World},
};

impl World {
    pub(crate) fn resume(&mut self, index: usize, life: u32) {
        let at = self.at();
        if let Some(process) = &self.processes[index]
            && process.host.life == life
        {
            let stopped_at = process.host.thaw();
            let registry = &self.records.registry;
            registry.lock().note_stop(&process.host, stopped_at, at);
            process.resume(at);
        }
    }

    pub(crate) fn reboot(&mut self, index: usize) {
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
        host.set_wall_clock(self.draw_wall_clock());
        self.hosts.push(Arc::downgrade(&host));
        let process = Process::start(Arc::clone(&host), self.stage, |stages| {
            let environment = Environment {
                host,
                network: self.network.clone(),
                records: self.records.clone(),
                configuration: self.configuration,
                scale: self.scale,
                stages,
            };
            Setup::new(environment, self.rng.fork()).main()
        });
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
        self.records.registry.lock().end_all_of(host);
        self.records.services.lock().forget(host);
        self.network.lock().forget(host);
    }

    /// Drops what a process has moved out of its runtime, after the runtime. None of it is valid.
    pub(crate) fn drop_outliving(&self, host: &Arc<Host>) {
        let guards = self.records.outliving.lock().take(host, |_, _| true);
        for guard in &guards {
            self.network.lock().seen.note(Seen::Outlived);
            if let Some(text) = guard.contradiction_after_runtime() {
                self.records.registry.lock().fail(text);
            }
        }
    }

    /// Notes the processes that have shut down, and looks at each of them a moment later.
    pub(crate) fn note_departures(&mut self) {
        if self.stage == Stage::End {
            return;
        }
        for (process, it) in self.processes.iter_mut().enumerate() {
            // Holds in other hands keep the connections.
            if let Some(it) = it
                && it.has_ended()
                && !it.is_ending
                && self.records.registry.lock().holds_of(&it.host) == 0
            {
                it.is_ending = true;
                let life = it.host.life;
                let mut network = self.network.lock();
                let at = network.at() + TICK;
                let look = move |world: &mut Self| world.replace_ended(process, life);
                network.queue.push(at, look);
            }
        }
    }

    /// Ends a process that has shut down, and boots it again later. Nothing of it may be left.
    pub(crate) fn replace_ended(&mut self, process: usize, life: u32) {
        let Some(it) = &self.processes[process] else {
            return;
        };
        if it.host.life != life || self.stage == Stage::End {
            return;
        }
        // It had no time to end if it stood still meanwhile.
        if it.host.stood_still_since(self.at().saturating_sub(TICK)) {
            return self.push(TICK, move |world| world.replace_ended(process, life));
        }
        self.look_for_remains(process);
        self.network.lock().seen.note(Seen::BootedAgain);
        self.end_process(process);
        let length = self.rng.around(self.max_ttl() / 2);
        self.push(length, move |world| world.reboot(process));
    }

    /// Looks for tasks and connections of a process that has shut down.
    pub(crate) fn look_for_remains(&mut self, index: usize) {
        let Some(process) = &self.processes[index] else {
            return;
        };
        let tasks = process.tasks();
        let connections = self.network.lock().connections_of(&process.host);
        if tasks > 0 || connections > 0 {
            let name = process.host.name();
            let text = format!("{name} has {tasks} tasks and {connections} connections left");
            self.failures.push(Violation::new(Kind::Remains, text));
        }
    }
}
