use std::{ffi::OsString, slice, time::Duration};

use redlock_tokio::{LockGuard, LockOptions, Redlock};

use crate::{
    args::{Connection, ElectArgs, LockArgs, RunArgs, Work},
    child,
    exit::{Exit, Failure, Result},
    output::Output,
    signals::Signals,
    waiting,
};

/// How long the last releases may take. A majority has confirmed them by then, and a node that is down will not.
pub(crate) const SHUTDOWN: Duration = Duration::from_millis(500);

pub(crate) async fn run(nodes: &Connection, args: &RunArgs, output: &Output) -> Result<Exit> {
    let wait = match (args.no_wait, args.wait) {
        (true, _) => Duration::ZERO,
        (false, wait) => wait.unwrap_or(Duration::MAX),
    };
    let options = LockOptions::new()
        .wait(wait)
        .max_hold(args.max_hold.unwrap_or(Duration::MAX));
    args.lock.check(&args.keys)?;
    if let Some(keep) = args.keep_for {
        nodes.check_keep(keep)?;
    }
    let mut worker =
        Worker::start(nodes, &args.keys, &args.work, args.lock.clone(), output).await?;
    worker.is_endless = wait == Duration::MAX;
    worker.keep_for = args.keep_for;
    let outcome = worker.work(options).await;
    worker.end().await;
    match outcome {
        Err(failure) if failure.exit == Exit::Contended => {
            output.failure(&failure);
            Ok(Exit::Of(args.conflict_exit_code))
        }
        outcome => outcome,
    }
}

/// Runs the command as the leader of all processes that do so, until the command ends by itself.
pub(crate) async fn elect(nodes: &Connection, args: &ElectArgs, output: &Output) -> Result<Exit> {
    let options = LockOptions::new()
        .wait(Duration::MAX)
        .max_hold(Duration::MAX);
    let lock = LockArgs {
        fenced: args.fenced,
        ..LockArgs::default()
    };
    let keys = slice::from_ref(&args.key);
    let mut worker = Worker::start(nodes, keys, &args.work, lock, output).await?;
    worker.is_endless = true;
    loop {
        match worker.work(options).await {
            // A lost leadership, or an outage.
            Err(failure) if [Exit::Lost, Exit::Unavailable].contains(&failure.exit) => {
                output.failure(&failure);
            }
            outcome => {
                worker.end().await;
                return outcome;
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The time between SIGTERM and SIGKILL, if the ttl is long enough.
const DEFAULT_GRACE: Duration = Duration::from_secs(2);

/// How long a candidate pauses after a loss or an outage.
const PAUSE: Duration = Duration::from_millis(200);

/// A process that runs a command under a lock.
struct Worker<'a> {
    redlock: Option<Redlock>,
    nodes: &'a Connection,
    keys: &'a [OsString],
    work: &'a Work,
    lock: LockArgs,
    /// Whether to wait for as long as it takes.
    is_endless: bool,
    keep_for: Option<Duration>,
    ttl: Duration,
    grace: Duration,
    output: &'a Output,
    signals: Signals,
}

impl<'a> Worker<'a> {
    async fn start(
        nodes: &'a Connection,
        keys: &'a [OsString],
        work: &'a Work,
        lock: LockArgs,
        output: &'a Output,
    ) -> Result<Self> {
        let ttl = nodes.ttl(work.ttl);
        let grace = work.grace.unwrap_or(DEFAULT_GRACE.min(ttl / 4));
        if grace > ttl / 2 {
            return Err(Failure::usage("--grace is longer than half of the ttl"));
        }
        let signals = Signals::listen()?;
        Ok(Self {
            redlock: None,
            nodes,
            keys,
            work,
            lock,
            is_endless: false,
            keep_for: None,
            ttl,
            grace,
            output,
            signals,
        })
    }

    /// Has the nodes get the last releases.
    async fn end(self) {
        if let Some(redlock) = self.redlock {
            redlock.shutdown(SHUTDOWN).await;
        }
    }

    /// Waits for the lock, and runs the command.
    async fn work(&mut self, options: LockOptions) -> Result<Exit> {
        let (keys, work, output) = (self.keys, self.work, self.output);
        let is_endless = self.is_endless;
        let acquiring = async {
            let redlock = match &mut self.redlock {
                Some(redlock) => redlock,
                None => self.redlock.insert(self.nodes.connect(self.ttl).await?),
            };
            let lock = || self.lock.lock(redlock, keys).options(options);
            waiting::acquire(redlock, keys, lock, is_endless, work.quiet, output).await
        };
        let guard = tokio::select! {
            biased;
            signal = self.signals.next_ending() => Err(signal),
            guard = acquiring => Ok(guard),
        };
        output.progress("");
        let guard = match guard {
            Ok(guard) => guard?,
            Err(signal) => return Ok(Exit::Signal(signal.as_raw())),
        };
        let outcome = child::run(&work.command, guard.hold(), self.grace, &mut self.signals).await;
        match self.keep_for {
            Some(time) if has_begun(&outcome) => keep(guard, time, output).await,
            _ => _ = guard.release().await,
        }
        outcome
    }
}

/// Returns whether the command was started, and so may have done something, however it has ended.
fn has_begun(outcome: &Result<Exit>) -> bool {
    let is_lost = |failure: &Failure| failure.exit == Exit::Lost;
    outcome.as_ref().map_or_else(is_lost, |_| true)
}

/// Leaves the lock taken. The command is done, so a failure changes nothing about its code.
async fn keep(guard: LockGuard, time: Duration, output: &Output) {
    if let Err(error) = guard.release_after(time).await {
        let message = format!("the command is done, and others may run it too: {error}");
        output.failure(&Failure::new(Exit::Unavailable, message));
    }
}
