use std::{
    env,
    ops::Range,
    process::Command,
    sync::{Mutex, MutexGuard, mpsc::Sender},
    time::Duration,
};

use fastrand::Rng;
use redlock_kit::Worker;

use crate::{Result, fault::Fault, foreign, run::News, worker::Order};

/// How many worker processes lock in all ways.
pub(crate) const WORKERS: usize = 3;

/// The workers that do nothing but wait.
pub(crate) const WAITERS: Range<usize> = WORKERS..WORKERS + 8;

/// The programs with their processes, by name: the workers, and then the foreign clients. They end when this process
/// ends, for whatever reason.
pub(crate) struct Crew {
    members: Vec<(String, Mutex<(Command, Worker)>)>,
    inbox: Sender<News>,
    /// How many restarts the foreign clients must not see now. They know of no quarantine.
    hidden: Mutex<usize>,
}

impl Crew {
    /// Starts the processes, whose output goes to the inbox.
    pub(crate) fn hire(
        order: &Order,
        foreign: Vec<(&str, Command)>,
        inbox: Sender<News>,
    ) -> Result<Self> {
        let mut crew = Self {
            members: Vec::new(),
            inbox,
            hidden: Mutex::default(),
        };
        for number in 0..WAITERS.end {
            let order = Order {
                waits: WAITERS.contains(&number),
                // The seeds only have to differ.
                seed: order.seed.wrapping_add(1 + number as u64),
                ..order.clone()
            };
            let mut program = Command::new(env::current_exe()?);
            program.args(order.arguments()?);
            let kind = if order.waits { "waiter" } else { "worker" };
            crew.add(format!("{kind} {number}"), program)?;
        }
        for (name, mut program) in foreign {
            program.arg(foreign::task(order));
            crew.add(name.to_owned(), program)?;
        }
        Ok(crew)
    }

    /// Returns how many processes there are.
    pub(crate) fn size(&self) -> usize {
        self.members.len()
    }

    /// Reports a fault. If the listener has ended, it says why.
    pub(crate) fn tell(&self, fault: Fault) {
        let _ = self.inbox.send(News::Fault(fault));
    }

    /// Stops processes. Kills and replaces each second of the waiters. The new ones end when this thread ends.
    pub(crate) fn fail(&self, victims: &[usize]) -> Result<()> {
        for victim in victims {
            let (program, process) = &mut *self.member(*victim);
            if WAITERS.contains(victim) && victim.is_multiple_of(2) {
                *process = self.start(&self.members[*victim].0, program)?;
            } else {
                process.freeze();
            }
        }
        Ok(())
    }

    /// Continues processes.
    pub(crate) fn thaw(&self, victims: &[usize]) {
        victims.iter().for_each(|it| self.member(*it).1.thaw());
    }

    /// Stops the foreign clients, until each call of this has been taken back.
    pub(crate) fn hide(&self) {
        let mut hidden = self.hidden.lock().expect("no panic");
        *hidden += 1;
        (WAITERS.end..self.size()).for_each(|it| self.member(it).1.freeze());
    }

    /// Takes [`hide`](Self::hide) back.
    pub(crate) fn show(&self) {
        let mut hidden = self.hidden.lock().expect("no panic");
        *hidden -= 1;
        if *hidden == 0 {
            (WAITERS.end..self.size()).for_each(|it| self.member(it).1.thaw());
        }
    }

    /// Asks all processes to end, waits for each, and returns the failures.
    pub(crate) fn bury(self, limit: Duration) -> Result<Vec<String>> {
        (0..self.size()).for_each(|it| self.member(it).1.dismiss());
        let mut complaints = Vec::new();
        for (number, (name, _)) in self.members.iter().enumerate() {
            match self.member(number).1.end(limit)? {
                Some(status) if status.success() => {}
                Some(status) => complaints.push(format!("{name} ended with {status}")),
                None => complaints.push(format!("{name} did not end")),
            }
        }
        Ok(complaints)
    }

    fn add(&mut self, name: String, mut program: Command) -> Result<()> {
        let process = self.start(&name, &mut program)?;
        self.members.push((name, Mutex::new((program, process))));
        Ok(())
    }

    fn start(&self, name: &str, program: &mut Command) -> Result<Worker> {
        let (inbox, name) = (self.inbox.clone(), name.to_owned());
        let hear = move |line| drop(inbox.send(News::Said(name.clone(), line)));
        Ok(Worker::start(program, hear)?)
    }

    fn member(&self, number: usize) -> MutexGuard<'_, (Command, Worker)> {
        self.members[number].1.lock().expect("no panic")
    }
}

/// Draws waiters that fail at one time. At least two are left, so that one waits for the other.
pub(crate) fn some_waiters(rng: &mut Rng) -> Vec<usize> {
    let mut waiters: Vec<_> = WAITERS.collect();
    rng.shuffle(&mut waiters);
    waiters.truncate(rng.usize(4..waiters.len() - 1));
    waiters
}
