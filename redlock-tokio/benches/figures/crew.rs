use std::{
    env,
    process::Command,
    sync::mpsc::{self, Receiver},
    time::Duration,
};

use redlock_kit::Worker;

use crate::{
    Result, contestants::Name, group::Order, history::TaskHistory, packages, worker::READY,
};

/// How long a worker may take to end after its last report.
const LIMIT: Duration = Duration::from_secs(10);

/// The worker processes, and their reports. They end when this one does, however it ends.
#[derive(Default)]
pub(crate) struct Crew(Vec<(Worker, Receiver<String>)>);

impl Crew {
    /// Starts a process for each order, and blocks until all can begin.
    pub(crate) fn hire(orders: &[Order]) -> Result<Self> {
        let hire = |order: &Order| {
            let mut program = program(order.group.contestant)?;
            program.arg(serde_json::to_string(order)?);
            let (lines, reports) = mpsc::channel();
            let worker = Worker::start(&mut program, move |line| {
                // An error means that the crew is gone.
                let _ = line.map(|line| lines.send(line));
            })?;
            Ok((worker, reports))
        };
        let workers: Vec<_> = orders.iter().map(hire).collect::<Result<_>>()?;
        for (_, reports) in &workers {
            match reports.recv().as_deref() {
                Ok(READY) => {}
                said => return Err(format!("a worker said {said:?} instead of {READY}").into()),
            }
        }
        Ok(Self(workers))
    }

    /// Lets all begin.
    pub(crate) fn start(&mut self) -> Result<()> {
        let mut workers = self.0.iter_mut();
        Ok(workers.try_for_each(|(worker, _)| worker.tell("go"))?)
    }

    pub(crate) fn workers(&self) -> impl Iterator<Item = &Worker> {
        self.0.iter().map(|(worker, _)| worker)
    }

    /// Kills all. What their tasks went through is lost.
    pub(crate) fn kill(&mut self) {
        self.0.clear();
    }

    /// Lets all come to an end, and returns what each process's tasks went through.
    pub(crate) fn stop(mut self) -> Result<Vec<Vec<TaskHistory>>> {
        self.0.iter_mut().for_each(|(worker, _)| worker.dismiss());
        let reports = self.0.iter_mut().map(|(worker, reports)| {
            let report = reports.recv()?;
            match worker.end(LIMIT)? {
                Some(status) if status.success() => Ok(serde_json::from_str(&report)?),
                status => Err(format!("a worker ended with {status:?}").into()),
            }
        });
        reports.collect()
    }
}

/// The command that carries out an order, which is its last argument.
pub(crate) fn program(contestant: Name) -> Result<Command> {
    match contestant {
        Name::NodeRedlock | Name::RedisSemaphore => {
            packages::script("benches/figures/scripts/poller.cjs")
        }
        _ => {
            let mut program = Command::new(env::current_exe()?);
            program.args(["--bench", "--work"]);
            Ok(program)
        }
    }
}
