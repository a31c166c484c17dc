use std::{
    env,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    Result, contestants::Name, history::TaskHistory, order::Order, packages, worker::READY,
};

/// Where the workers are that are not written in Rust.
const SCRIPTS: &str = "benches/contention/scripts";

/// The worker processes. They end when this one does, however it ends.
pub(crate) struct Crew {
    workers: Vec<Worker>,
}

struct Worker {
    process: Child,
    /// The worker works until this ends.
    leash: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Crew {
    /// Starts a process for each order, and blocks until all can begin.
    pub(crate) fn hire(orders: &[Order]) -> Result<Self> {
        let workers = orders.iter().map(Worker::start).collect::<Result<_>>()?;
        let mut crew = Self { workers };
        for worker in &mut crew.workers {
            match worker.line()?.as_str() {
                READY => {}
                line => return Err(format!("a worker said {line:?} instead of {READY}").into()),
            }
        }
        Ok(crew)
    }

    /// Lets all begin.
    pub(crate) fn start(&mut self) -> Result<()> {
        for worker in &mut self.workers {
            let leash = worker.leash.as_mut().ok_or("stopped already")?;
            leash.write_all(b"go\n")?;
        }
        Ok(())
    }

    /// Kills a process. What its tasks went through is lost.
    pub(crate) fn kill(&mut self, process: u32) {
        self.workers.retain(|it| it.process.id() != process);
    }

    pub(crate) fn signal(&self, process: u32, signal: Signal) {
        for worker in self.workers.iter().filter(|it| it.process.id() == process) {
            // One that is gone is noticed at the end.
            let _ = kill_process(Pid::from_child(&worker.process), signal);
        }
    }

    /// Lets all come to an end, and returns what each process's tasks went through.
    pub(crate) fn stop(mut self) -> Result<Vec<Vec<TaskHistory>>> {
        for worker in &mut self.workers {
            drop(worker.leash.take());
        }
        let reports = self.workers.iter_mut();
        let reports = reports.map(|worker| {
            let report = worker.line()?;
            let status = worker.process.wait()?;
            if !status.success() {
                return Err(format!("a worker ended with {status}").into());
            }
            Ok(serde_json::from_str(&report)?)
        });
        reports.collect()
    }
}

impl Worker {
    fn start(order: &Order) -> Result<Self> {
        let mut process = program(order.contestant)?
            .arg(serde_json::to_string(order)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let leash = process.stdin.take();
        let output = process.stdout.take().ok_or("it was piped")?;
        Ok(Self {
            process,
            leash,
            output: BufReader::new(output),
        })
    }

    /// Returns its next line, or an empty one if it has ended: it sees to it itself that it does.
    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        line.truncate(line.trim_end().len());
        Ok(line)
    }
}

/// The command that carries out an order, which is its last argument.
fn program(contestant: Name) -> Result<Command> {
    let script = |name| {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(SCRIPTS)
            .join(name)
    };
    let mut program;
    match contestant {
        Name::NodeRedlock | Name::RedisSemaphore => {
            program = Command::new("node");
            program.env("NODE_PATH", packages::npm()?);
            program.arg(script("poller.cjs"));
        }
        Name::RedisPy => {
            program = Command::new("python3");
            program.env("PYTHONPATH", packages::pip()?);
            program.arg(script("poller.py"));
        }
        _ => {
            program = Command::new(env::current_exe()?);
            program.args(["--bench", "--work"]);
        }
    }
    Ok(program)
}

impl Drop for Worker {
    fn drop(&mut self) {
        // One that has ended well is not touched: both fail then.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
