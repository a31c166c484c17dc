//! The command, for as long as the lock is held, as the program sees it. `guardian` is its parent.

use std::{ffi::OsString, fmt, io, time::Duration};

use nix::{
    errno::Errno,
    sys::signal::{SigSet, Signal as Stop, killpg},
    unistd::{getpgrp, tcgetpgrp, tcsetpgrp},
};
use redlock_tokio::{Hold, LossReason};
use rustix::process::{Pid, Signal};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use crate::{
    exit::{Exit, Failure, Result},
    family::{Family, ask_to_end, send},
    guardian::{Guardian, LAST_WAIT, LOOK_EVERY, Report, now},
    signals::{Received, Signals},
};

/// Runs a command until it ends, or until the lock does. `grace` is the time between SIGTERM and SIGKILL.
pub(crate) async fn run(
    command: &[OsString],
    hold: &Hold,
    grace: Duration,
    signals: &mut Signals,
) -> Result<Exit> {
    let mut child = Child::start(command, hold, grace)?;
    let mut renewals = interval((hold.remaining() / 10).clamp(MIN_INTERVAL, MAX_INTERVAL));
    renewals.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let until_grace = hold.remaining().saturating_sub(grace);
        let is_ending = child.kill_at.is_some();
        let next_look = child.next_look();
        tokio::select! {
            biased;
            report = child.guardian.report() => match report {
                Report::Started(command) => child.begin(command),
                Report::Failed(failure) => child.outcome = Some(Err(failure)),
                Report::Ended(exit, loss) => child.conclude(exit, loss, hold),
                Report::Done => break,
                Report::Gone => child.lose_guardian(grace.min(hold.remaining())),
            },
            received = signals.next() => child.handle(received),
            reason = hold.lost(), if !is_ending => {
                let is_over = matches!(reason, LossReason::Expired | LossReason::MaxHold);
                child.end(Loss::Lock(reason), if is_over { Duration::ZERO } else { grace });
            }
            () = sleep(until_grace), if !is_ending => child.end(Loss::NotExtended, hold.remaining()),
            _ = renewals.tick(), if !is_ending => child.guardian.tell("valid", now() + hold.remaining()),
            () = sleep(next_look), if is_ending => {
                if child.is_over() {
                    break;
                }
            }
        }
    }
    child.guardian.end();
    take_terminal();
    if let Some(Loss::NotExtended) = child.loss
        && let Ok(reason) = timeout(Duration::ZERO, hold.lost()).await
    {
        child.loss = Some(Loss::Lock(reason));
    }
    match (child.loss, child.outcome) {
        (None, Some(outcome)) => outcome,
        (loss, _) => Err(Failure::new(Exit::Lost, loss.unwrap_or(Loss::Guardian))),
    }
}

const MIN_INTERVAL: Duration = Duration::from_millis(10);
const MAX_INTERVAL: Duration = Duration::from_secs(1);

/// Why a command was told to end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Loss {
    Lock(LossReason),
    /// The validity was about to end.
    NotExtended,
    Stopped,
    Guardian,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lost = "the lock was lost before the command was done";
        match self {
            Self::Lock(reason) => write!(f, "{lost}: {reason}"),
            Self::NotExtended => {
                write!(f, "{lost}: nodes did not extend it, or --max-hold was over")
            }
            Self::Stopped => write!(f, "{lost}: it was stopped for too long"),
            Self::Guardian => {
                f.write_str("the command was ended before it was done: its guardian was killed")
            }
        }
    }
}

struct Child {
    guardian: Guardian,
    family: Family,
    /// Signals that came before there was a command.
    early: Vec<Signal>,
    /// Why the command was told to end, by this program or by the guardian.
    loss: Option<Loss>,
    /// When all that is left gets SIGKILL, if this program has told it to end.
    kill_at: Option<Instant>,
    is_killed: bool,
    /// How the command has ended, or why it could not begin.
    outcome: Option<Result<Exit>>,
}

impl Child {
    fn start(command: &[OsString], hold: &Hold, grace: Duration) -> Result<Self> {
        let mut family = Family::of_guardian();
        let guardian = Guardian::start(command, hold, grace)?;
        family.guardian = Some(guardian.id);
        Ok(Self {
            guardian,
            family,
            early: Vec::new(),
            loss: None,
            kill_at: None,
            is_killed: false,
            outcome: None,
        })
    }

    fn begin(&mut self, command: Pid) {
        self.family.command = Some(command);
        self.pass_on_early();
        if self.kill_at.is_some() {
            ask_to_end(&self.family.members());
        }
    }

    fn pass_on_early(&mut self) {
        for signal in std::mem::take(&mut self.early) {
            self.family.pass_on(signal, false);
        }
    }

    /// The guardian was killed. It may not have told that the command has begun. On Linux, this process has adopted all that
    /// has stemmed from the guardian.
    fn lose_guardian(&mut self, within: Duration) {
        self.pass_on_early();
        self.end(Loss::Guardian, within);
    }

    /// The command has ended. The processes that it has left end before the lock is released.
    fn conclude(&mut self, exit: Exit, loss: Option<Loss>, hold: &Hold) {
        let is_over = hold.remaining().is_zero().then_some(Loss::NotExtended);
        self.loss = self.loss.or(loss).or(is_over);
        self.outcome = Some(Ok(exit));
        self.family.command = None;
    }

    fn handle(&mut self, received: Received) {
        let has_begun = self.family.command.is_some() || self.outcome.is_some();
        let has_begun = has_begun || self.guardian.is_gone();
        match received {
            Received::Child => self.guardian.look(),
            Received::Ending { signal, .. } if !has_begun => self.early.push(signal),
            Received::Ending {
                signal,
                is_of_terminal,
            } => self.family.pass_on(signal, is_of_terminal),
        }
    }

    /// Tells the command and all that stems from it to end.
    fn end(&mut self, loss: Loss, within: Duration) {
        if self.kill_at.is_some() {
            return;
        }
        if self.outcome.is_none() {
            self.loss = self.loss.or(Some(loss));
        }
        self.kill_at = Some(Instant::now() + within);
        self.guardian.tell("end", now() + within);
        ask_to_end(&self.family.members());
    }

    /// Returns when to look whether all have ended. While there is a guardian, it says so before.
    fn next_look(&self) -> Duration {
        let until_kill = self
            .kill_at
            .map(|it| it.saturating_duration_since(Instant::now()));
        match until_kill {
            Some(until_kill) if !self.is_killed && self.guardian.is_gone() => {
                LOOK_EVERY.min(until_kill)
            }
            Some(until_kill) if !self.is_killed => until_kill,
            _ => LOOK_EVERY,
        }
    }

    fn is_over(&mut self) -> bool {
        let members = self.family.members();
        if self.kill_at.is_some_and(|it| it <= Instant::now()) {
            send(&members, Signal::KILL);
            self.is_killed = true;
        }
        members.is_empty() || self.kill_at.is_some_and(|it| it.elapsed() > LAST_WAIT)
    }
}

/// Takes the terminal if the group that has it is gone: that of a shell that was killed under the lock. Otherwise what follows
/// in a script could not read.
fn take_terminal() {
    let is_left = tcgetpgrp(io::stdin()).is_ok_and(|it| killpg(it, None) == Err(Errno::ESRCH));
    let mut stops = SigSet::empty();
    stops.add(Stop::SIGTTOU); // for a process that is not in the foreground
    if is_left && stops.thread_block().is_ok() {
        let _ = tcsetpgrp(io::stdin(), getpgrp());
        let _ = stops.thread_unblock();
    }
}
