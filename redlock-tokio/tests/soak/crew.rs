use std::{
    env,
    io::{BufRead, BufReader},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::Sender,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Result, news::News, order::Order, source::Source};

/// How many worker processes run.
pub(crate) const WORKERS: usize = 3;

/// The worker processes. They end when this process ends, for whatever reason.
pub(crate) struct Crew {
    workers: Vec<Worker>,
}

struct Worker {
    process: Child,
    /// The worker works until this pipe is closed.
    leash: Option<ChildStdin>,
}

impl Crew {
    /// Starts the processes. Their output goes to the inbox.
    pub(crate) fn hire(order: &Order, inbox: &Sender<News>) -> Result<Self> {
        let mut workers = Vec::new();
        for number in 0..WORKERS {
            let order = Order {
                // The seeds only have to differ.
                seed: order.seed.wrapping_add(1 + number as u64),
                ..order.clone()
            };
            let mut process = Command::new(env::current_exe()?)
                .args(order.arguments())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            let leash = process.stdin.take();
            let output = process.stdout.take().ok_or("it was piped")?;
            let inbox = inbox.clone();
            thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    // An error means that the run is over.
                    let _ = inbox.send(News::Line(Source::Worker(number), line));
                }
                let _ = inbox.send(News::Gone(Source::Worker(number)));
            });
            workers.push(Worker { process, leash });
        }
        Ok(Self { workers })
    }

    pub(crate) fn stop(&self, worker: usize) {
        self.workers[worker].signal(Signal::STOP);
    }

    pub(crate) fn resume(&self, worker: usize) {
        self.workers[worker].signal(Signal::CONT);
    }

    /// Asks all workers to end.
    pub(crate) fn dismiss(&mut self) {
        for worker in &mut self.workers {
            drop(worker.leash.take());
        }
    }

    /// Waits until all workers have ended, and returns the failures.
    pub(crate) fn bury(&mut self, limit: Duration) -> Result<Vec<String>> {
        let deadline = Instant::now() + limit;
        let mut complaints = Vec::new();
        for (number, worker) in self.workers.iter_mut().enumerate() {
            let status = loop {
                match worker.process.try_wait()? {
                    None if Instant::now() < deadline => thread::sleep(Duration::from_millis(10)),
                    status => break status,
                }
            };
            match status {
                Some(status) if status.success() => {}
                Some(status) => complaints.push(format!("worker {number} ended with {status}")),
                None => {
                    complaints.push(format!("worker {number} did not end"));
                    worker.process.kill()?;
                    worker.process.wait()?;
                }
            }
        }
        Ok(complaints)
    }
}

impl Worker {
    fn signal(&self, signal: Signal) {
        // Nothing has waited for the process yet, so the pid is still its own, even after its end.
        let _ = kill_process(Pid::from_child(&self.process), signal);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Both fail for a process that has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
