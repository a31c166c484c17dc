//! What goes wrong with processes.

use std::sync::Arc;

use crate::{
    clock::{MILLI, SECOND},
    seen::Seen,
    world::World,
};

impl World {
    pub(super) fn pause_some(&mut self) {
        let (process, length) = self.draw_pause();
        if self.pause(process, length) {
            self.network.lock().seen.note(Seen::Pause);
        }
    }

    /// Lets a process stand still many times, for a short time each.
    pub(super) fn stutter(&mut self) {
        let process = self.rng.usize(..self.scale.processes);
        let Some(life) = self.processes[process].as_ref().map(|it| it.host.life) else {
            return;
        };
        self.network.lock().seen.note(Seen::Stutter);
        let mut after = 0;
        for _ in 0..self.rng.usize(5..=30) {
            let length = self.rng.around(60 * MILLI);
            self.push(after, move |world| world.pause_again(process, life, length));
            after += length + self.rng.around(20 * MILLI) + MILLI;
        }
    }

    /// Lets a machine sleep whose clock does not count the time.
    pub(super) fn suspend(&mut self) {
        let (process, length) = self.draw_pause();
        if self.pause(process, length) {
            self.network.lock().seen.note(Seen::Suspension);
            if let Some(process) = &self.processes[process] {
                process.host.freeze();
            }
        }
    }

    fn draw_pause(&mut self) -> (usize, u64) {
        let process = self.rng.usize(..self.scale.processes);
        let length = self.rng.around(self.max_ttl()).min(30 * SECOND);
        (process, length)
    }

    /// Lets a process stand still when its turn has come, if it is the same as when that was planned.
    fn pause_again(&mut self, process: usize, life: u32, length: u64) {
        let is_same = self.processes[process]
            .as_ref()
            .is_some_and(|it| it.host.life == life);
        if is_same && !self.is_calm {
            self.pause(process, length);
        }
    }

    /// Lets a process stand still. Returns whether it went before.
    fn pause(&mut self, process: usize, length: u64) -> bool {
        let process_there = self.processes[process].as_ref();
        let Some(it) = process_there.filter(|it| !it.host.stands_still()) else {
            return false;
        };
        it.host.stop();
        let life = it.host.life;
        self.push(length, move |world| world.resume(process, life));
        true
    }

    pub(super) fn crash(&mut self) {
        let index = self.rng.usize(..self.scale.processes);
        let length = self.rng.around(self.max_ttl() / 2);
        if self.processes[index].is_some() {
            self.network.lock().seen.note(Seen::Crash);
            self.end_process(index);
            self.push(length, move |world| world.reboot(index));
        }
    }

    /// Ends a process whose `main` returns while tasks still run. All guards and futures are dropped.
    pub(super) fn drop_runtime(&mut self) {
        let index = self.rng.usize(..self.scale.processes);
        let length = self.rng.around(self.max_ttl() / 2);
        if let Some(process) = self.processes[index].take() {
            let host = Arc::clone(&process.host);
            self.network.lock().seen.note(Seen::RuntimeDrop);
            self.records.registry.lock().end_all_of(&host);
            drop(process);
            self.forget_process(&host);
            self.drop_outliving(&host);
            self.push(length, move |world| world.reboot(index));
        }
    }
}
