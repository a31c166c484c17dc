use std::{env, io, process::Command, sync::mpsc::Sender, time::Duration};

use redlock_kit::Worker;

use crate::{Result, foreign, run::News, worker::Order};

/// How many worker processes run.
pub(crate) const WORKERS: usize = 3;

/// The worker processes, and then the foreign clients, with their names. They end when this process ends, for whatever
/// reason.
pub(crate) struct Crew {
    members: Vec<(String, Worker)>,
}

impl Crew {
    /// Starts the processes. Their output goes to the inbox.
    pub(crate) fn hire(
        order: &Order,
        foreign: Vec<(&str, Command)>,
        inbox: &Sender<News>,
    ) -> Result<Self> {
        let mut programs = Vec::new();
        for number in 0..WORKERS {
            let order = Order {
                // The seeds only have to differ.
                seed: order.seed.wrapping_add(1 + number as u64),
                ..order.clone()
            };
            let mut program = Command::new(env::current_exe()?);
            program.args(order.arguments()?);
            programs.push((format!("worker {number}"), program));
        }
        for (name, mut program) in foreign {
            program.arg(foreign::task(order));
            programs.push((name.to_owned(), program));
        }
        let start = |(name, mut program): (String, Command)| {
            let (inbox, source) = (inbox.clone(), name.clone());
            let hear = move |line| {
                let news = News::Said(source.clone(), line);
                let _ = inbox.send(news); // an error means that the run is over
            };
            Ok((name, Worker::start(&mut program, hear)?))
        };
        let members = programs.into_iter().map(start);
        Ok(Self {
            members: members.collect::<io::Result<_>>()?,
        })
    }

    /// Returns how many processes there are.
    pub(crate) fn size(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn worker(&self, number: usize) -> &Worker {
        &self.members[number].1
    }

    /// Returns the foreign clients.
    pub(crate) fn foreign(&self) -> impl Iterator<Item = &Worker> {
        self.members[WORKERS..].iter().map(|(_, worker)| worker)
    }

    /// Asks all processes to end.
    pub(crate) fn dismiss(&mut self) {
        for (_, member) in &mut self.members {
            member.dismiss();
        }
    }

    /// Waits for each process until it has ended, and returns the failures.
    pub(crate) fn bury(&mut self, limit: Duration) -> Result<Vec<String>> {
        let mut complaints = Vec::new();
        for (name, member) in &mut self.members {
            match member.end(limit)? {
                Some(status) if status.success() => {}
                Some(status) => complaints.push(format!("{name} ended with {status}")),
                None => complaints.push(format!("{name} did not end")),
            }
        }
        Ok(complaints)
    }
}
