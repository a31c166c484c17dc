//! The command, in a process group of its own, for as long as the lock is held.

use std::{
    ffi::OsString, io, os::unix::process::ExitStatusExt, process::ExitStatus, time::Duration,
};

use nix::{
    errno::Errno,
    sys::{
        signal::{Signal, killpg},
        wait::{Id, WaitPidFlag, WaitStatus, waitid},
    },
    unistd::Pid,
};
use redlock_tokio::Hold;
use tokio::{
    process::Command,
    signal::unix::{SignalKind, signal},
    time::{MissedTickBehavior, interval},
};

use crate::{
    exit::{Exit, Failure},
    guardian::Guardian,
    launch,
    signals::Signals,
    terminal::Foreground,
};

/// Runs a command until it ends, or until the lock does. `grace` is the time between SIGTERM and SIGKILL.
pub(crate) async fn run(
    command: &[OsString],
    hold: &Hold,
    grace: Duration,
    signals: &mut Signals,
) -> Result<Exit, Failure> {
    let mut guardian = Guardian::start(grace)?;
    let mut stops = signal(SignalKind::child())?;
    let mut child = start(command, hold)?;
    let group = child
        .id()
        .and_then(|id| i32::try_from(id).ok())
        .map(Pid::from_raw);
    let group = group.ok_or_else(|| io::Error::other("the command has no process id"))?;
    launch::wait_for_stop(group)?;
    guardian.guard(group, hold.remaining()).await;
    let foreground = Foreground::give(group);
    let _ = killpg(group, Signal::SIGCONT);

    let mut renewals = interval((hold.remaining() / 10).clamp(MIN_INTERVAL, MAX_INTERVAL));
    renewals.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut is_lost, mut is_guarded) = (false, true);
    let status = loop {
        tokio::select! {
            biased;
            status = child.wait() => break status?,
            received = signals.next() => {
                let _ = killpg(group, received);
            }
            _ = hold.lost(), if !is_lost => {
                is_lost = true;
                guardian.guard(group, grace).await;
            }
            () = guardian.ended(), if is_guarded => {
                // It has ended the group, unless somebody has killed it.
                is_guarded = false;
                is_lost = true;
                let _ = killpg(group, Signal::SIGKILL);
            }
            _ = stops.recv() => {
                // Ctrl-Z has stopped it. The lock would go on, or end it.
                if foreground.is_some() && is_stopped(group) {
                    let _ = killpg(group, Signal::SIGCONT);
                }
            }
            _ = renewals.tick(), if !is_lost => guardian.guard(group, hold.remaining()).await,
        }
    };
    // Less than the grace is left if the guardian has begun to end the group.
    is_lost |= hold.remaining() <= grace;
    drop(foreground);
    guardian.finish().await;
    Ok(if is_lost { Exit::Lost } else { exit_of(status) })
}

const MIN_INTERVAL: Duration = Duration::from_millis(10);
const MAX_INTERVAL: Duration = Duration::from_secs(1);

fn start(command: &[OsString], hold: &Hold) -> io::Result<tokio::process::Child> {
    let mut command = Command::from(launch::launcher(command)?);
    command.env("REDLOCK_KEY", key_of(hold));
    command.env("REDLOCK_TOKEN", hold.token().to_string());
    command.env_remove("REDLOCK_FENCE");
    if let Some(fence) = hold.fencing_token() {
        command.env("REDLOCK_FENCE", fence.to_string());
    }
    command.spawn()
}

/// Returns the key, with the prefix.
fn key_of(hold: &Hold) -> OsString {
    use std::os::unix::ffi::OsStringExt;
    OsString::from_vec(hold.key().as_bytes().to_vec())
}

fn is_stopped(group: Pid) -> bool {
    let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG;
    let state: Result<WaitStatus, Errno> = waitid(Id::Pid(group), flags);
    matches!(state, Ok(WaitStatus::Stopped(..)))
}

fn exit_of(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Of(u8::try_from(code).unwrap_or(u8::MAX)),
        (None, Some(signal)) => Exit::of_signal(signal),
        (None, None) => Exit::Internal,
    }
}
