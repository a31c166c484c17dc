use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    time::{Duration, Instant},
};

use redlock_tokio::{Inspection, LockGuard, LockOptions, Redlock, Verdict};
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    args::{Connection, ElectArgs, RunArgs, Work},
    child,
    exit::{Exit, Failure},
    inspect,
    output::{Output, shown},
    signals::Signals,
};

/// How long the last releases may take. A majority has confirmed them by then, and a node that is down will not.
pub(crate) const SHUTDOWN: Duration = Duration::from_millis(500);

pub(crate) async fn run(
    nodes: &Connection,
    args: &RunArgs,
    output: &Output,
) -> Result<Exit, Failure> {
    let wait = match (args.no_wait, args.wait) {
        (true, _) => Duration::ZERO,
        (false, wait) => wait.unwrap_or(Duration::MAX),
    };
    let options = LockOptions::new()
        .wait(wait)
        .max_hold(args.max_hold.unwrap_or(Duration::MAX));
    let mut worker = Worker::start(nodes, &args.work, output).await?;
    let outcome = worker.work(options).await;
    worker.end().await;
    match outcome {
        Err(failure) if failure.exit == Exit::Contended => {
            output.failure(&failure);
            Ok(Exit::Of(args.conflict_exit_code))
        }
        Ok(Exit::Lost) => {
            let message = "the lock was lost before the command was done";
            Err(Failure::new(Exit::Lost, message))
        }
        outcome => outcome,
    }
}

/// Runs the command as the leader of all processes that do so, until the command ends by itself.
pub(crate) async fn elect(
    nodes: &Connection,
    args: &ElectArgs,
    output: &Output,
) -> Result<Exit, Failure> {
    let options = LockOptions::new()
        .wait(Duration::MAX)
        .max_hold(Duration::MAX);
    let mut worker = Worker::start(nodes, &args.work, output).await?;
    loop {
        match worker.work(options).await {
            Ok(Exit::Lost) => output.failure(&Failure::new(Exit::Lost, "the leadership was lost")),
            // An outage.
            Err(failure) if failure.exit == Exit::Unavailable => output.failure(&failure),
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
    work: &'a Work,
    ttl: Duration,
    grace: Duration,
    output: &'a Output,
    signals: Signals,
}

impl<'a> Worker<'a> {
    async fn start(
        nodes: &'a Connection,
        work: &'a Work,
        output: &'a Output,
    ) -> Result<Self, Failure> {
        let ttl = nodes.ttl(work.ttl);
        let grace = work.grace.unwrap_or(DEFAULT_GRACE.min(ttl / 4));
        if grace > ttl / 2 {
            return Err(Failure::usage("--grace is longer than half of the ttl"));
        }
        let signals = Signals::listen()?;
        Ok(Self {
            redlock: None,
            nodes,
            work,
            ttl,
            grace,
            output,
            signals,
        })
    }

    /// Has the nodes get the last releases.
    async fn end(self) {
        if let Some(redlock) = self.redlock {
            redlock.shutdown_within(SHUTDOWN).await;
        }
    }

    /// Waits for the lock, and runs the command.
    async fn work(&mut self, options: LockOptions) -> Result<Exit, Failure> {
        let Self {
            redlock,
            nodes,
            work,
            ttl,
            grace,
            output,
            signals,
        } = self;
        let acquiring = async {
            let redlock = match redlock {
                Some(redlock) => redlock,
                None => redlock.insert(nodes.connect(*ttl).await?),
            };
            acquire(redlock, work, options, output).await
        };
        let guard = tokio::select! {
            biased;
            signal = signals.next() => Err(signal),
            guard = acquiring => Ok(guard),
        };
        output.progress("");
        let guard = match guard {
            Ok(guard) => guard?,
            Err(signal) => return Ok(Exit::of_signal(signal as i32)),
        };
        let outcome = child::run(&work.command, guard.hold(), *grace, signals).await;
        guard.release().await;
        outcome
    }
}

/// Waits for the lock, and shows for whom.
async fn acquire(
    redlock: &Redlock,
    work: &Work,
    options: LockOptions,
    output: &Output,
) -> Result<LockGuard, Failure> {
    let acquired = work
        .lock
        .lock(redlock, &work.key)
        .options(options)
        .into_future();
    let acquired = if !output.is_live() || work.quiet {
        acquired.await
    } else {
        tokio::select! {
            biased;
            acquired = acquired => acquired,
            never = show(redlock, &work.key, output) => match never {},
        }
    };
    match acquired {
        Ok(guard) => Ok(guard),
        Err(error) => Err(inspect::failure(redlock, &work.key, error).await),
    }
}

/// Shows a line about the wait, for as long as it takes.
async fn show(redlock: &Redlock, key: &OsStr, output: &Output) -> std::convert::Infallible {
    let since = Instant::now();
    let mut looks = interval(Duration::from_millis(250));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut seen = None;
    for number in 0_u64.. {
        looks.tick().await;
        // Four lines for each look at the nodes.
        if number % 4 == 1 {
            seen = redlock
                .inspect(key.as_bytes())
                .await
                .ok()
                .map(|it| (it, Instant::now()));
        }
        let seen = seen.as_ref().map(|(it, at)| whom(it, at.elapsed()));
        let seen = seen.unwrap_or_default();
        let waited = since.elapsed().as_secs_f64();
        output.progress(format_args!(
            "waiting for {} for {waited:.1} s{seen}",
            shown(key.as_bytes())
        ));
    }
    std::future::pending().await
}

/// Says who has the lock, according to a look at the nodes so long ago.
fn whom(inspection: &Inspection, ago: Duration) -> String {
    let verdict = match inspection.verdict() {
        Verdict::Held { by, remaining } => {
            let remaining = remaining.saturating_sub(ago).as_secs_f64();
            format!("held by {by} for another {remaining:.1} s")
        }
        Verdict::Shared { readers } => format!("shared by {} readers", readers.len()),
        other => other.to_string(),
    };
    format!(": {verdict}")
}
