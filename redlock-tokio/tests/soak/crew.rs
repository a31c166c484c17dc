use std::{
    env,
    io::{BufRead, BufReader},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::Sender,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::{
    Result,
    foreign::{Foreign, ForeignOrder},
    news::News,
    order::Order,
    source::Source,
};

/// How many worker processes run.
pub(crate) const WORKERS: usize = 3;

/// The worker processes and the foreign clients. They end when this process ends, for whatever reason.
pub(crate) struct Crew {
    workers: Vec<Member>,
    foreign: Vec<Member>,
}

struct Member {
    source: Source,
    process: Child,
    /// The process works until this pipe is closed.
    leash: Option<ChildStdin>,
}

impl Crew {
    /// Starts the worker processes. Their output goes to the inbox.
    pub(crate) fn hire(order: &Order, inbox: &Sender<News>) -> Result<Self> {
        let mut workers = Vec::new();
        for number in 0..WORKERS {
            let order = Order {
                // The seeds only have to differ.
                seed: order.seed.wrapping_add(1 + number as u64),
                ..order.clone()
            };
            let mut program = Command::new(env::current_exe()?);
            program.args(order.arguments()?);
            workers.push(Member::start(Source::Worker(number), program, inbox)?);
        }
        Ok(Self {
            workers,
            foreign: Vec::new(),
        })
    }

    /// Starts foreign clients, too.
    pub(crate) fn invite(
        &mut self,
        programs: Vec<(Foreign, Command)>,
        order: &ForeignOrder,
        inbox: &Sender<News>,
    ) -> Result<()> {
        for (foreign, mut program) in programs {
            program.arg(serde_json::to_string(order)?);
            let member = Member::start(Source::Foreign(foreign), program, inbox)?;
            self.foreign.push(member);
        }
        Ok(())
    }

    /// Returns how many processes there are.
    pub(crate) fn size(&self) -> usize {
        self.workers.len() + self.foreign.len()
    }

    pub(crate) fn stop(&self, worker: usize) {
        self.workers[worker].signal(Signal::STOP);
    }

    pub(crate) fn resume(&self, worker: usize) {
        self.workers[worker].signal(Signal::CONT);
    }

    /// Stops the foreign clients. Returns when they stand still.
    pub(crate) fn stop_foreign(&self) -> Result<()> {
        for foreign in &self.foreign {
            foreign.signal(Signal::STOP);
            foreign.wait_for_stop()?;
        }
        Ok(())
    }

    pub(crate) fn resume_foreign(&self) {
        for foreign in &self.foreign {
            foreign.signal(Signal::CONT);
        }
    }

    /// Asks all processes to end.
    pub(crate) fn dismiss(&mut self) {
        for member in self.members() {
            drop(member.leash.take());
        }
    }

    /// Waits until all processes have ended, and returns the failures.
    pub(crate) fn bury(&mut self, limit: Duration) -> Result<Vec<String>> {
        let deadline = Instant::now() + limit;
        let mut complaints = Vec::new();
        for member in self.members() {
            let source = member.source;
            let status = loop {
                match member.process.try_wait()? {
                    None if Instant::now() < deadline => thread::sleep(Duration::from_millis(10)),
                    status => break status,
                }
            };
            match status {
                Some(status) if status.success() => {}
                Some(status) => complaints.push(format!("{source} ended with {status}")),
                None => {
                    complaints.push(format!("{source} did not end"));
                    member.process.kill()?;
                    member.process.wait()?;
                }
            }
        }
        Ok(complaints)
    }

    fn members(&mut self) -> impl Iterator<Item = &mut Member> {
        self.workers.iter_mut().chain(&mut self.foreign)
    }
}

impl Member {
    fn start(source: Source, mut program: Command, inbox: &Sender<News>) -> Result<Self> {
        let program = program.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = program.spawn()?;
        let leash = process.stdin.take();
        let output = process.stdout.take().ok_or("it was piped")?;
        let inbox = inbox.clone();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // An error means that the run is over.
                let _ = inbox.send(News::Line(source, line));
            }
            let _ = inbox.send(News::Gone(source));
        });
        Ok(Self {
            source,
            process,
            leash,
        })
    }

    fn signal(&self, signal: Signal) {
        // Nothing has waited for the process yet, so the pid is still its own, even after its end.
        let _ = kill_process(Pid::from_child(&self.process), signal);
    }

    /// Waits until the process stands still or has ended.
    fn wait_for_stop(&self) -> Result<()> {
        let process = WaitId::Pid(Pid::from_child(&self.process));
        // The end of the process can still be waited for afterwards.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(process, options)?;
        Ok(())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // Both fail for a process that has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
