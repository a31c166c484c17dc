//! A small process beside the one that holds the lock. It ends the group of the command when the lock ends, even if the
//! holder is killed or stopped.

use std::{
    io::{self, BufRead},
    os::unix::process::CommandExt,
    process::{Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use rustix::time::{ClockId, clock_gettime};
use tokio::{
    io::AsyncWriteExt,
    process::{self, ChildStdin},
};

/// The first argument of a guardian. No command for people.
const ARGUMENT: &str = "--guardian";

/// How often to look whether a group has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The guardian as the holder of the lock sees it.
#[derive(Debug)]
pub(crate) struct Guardian {
    process: process::Child,
    /// To wait for a process closes its input, unless it is kept apart.
    input: Option<ChildStdin>,
}

impl Guardian {
    /// Starts a guardian, which does nothing yet.
    pub(crate) fn start(grace: Duration) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let grace = grace.as_millis().to_string();
        command.args([ARGUMENT, &grace]).stdin(Stdio::piped());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        // Neither the terminal nor the end of the holder's group reaches it.
        command.process_group(0);
        let mut process = process::Command::from(command).spawn()?;
        let input = process.stdin.take();
        Ok(Self { process, input })
    }

    /// Names the group, and says how long the lock is valid from now on. Called again after each extension.
    pub(crate) async fn guard(&mut self, group: Pid, valid_for: Duration) {
        let line = format!("{group} {}\n", (now() + valid_for).as_millis());
        if let Some(input) = &mut self.input {
            // An error means that the guardian has ended, which `ended` reports.
            let _ = input.write_all(line.as_bytes()).await;
        }
    }

    /// Waits until the guardian has ended: because the lock has, or because somebody has killed it.
    pub(crate) async fn ended(&mut self) {
        let _ = self.process.wait().await;
    }

    /// Ends the rest of the group, and then the guardian.
    pub(crate) async fn finish(self) {
        let Self { mut process, input } = self;
        drop(input);
        let _ = process.wait().await;
    }
}

/// Returns the grace if this process is to be a guardian.
pub(crate) fn grace() -> Option<Duration> {
    let mut arguments = std::env::args_os()
        .skip(1)
        .map_while(|it| it.into_string().ok());
    let is_guardian = arguments.next()? == ARGUMENT;
    let grace = arguments.next()?.parse().ok()?;
    is_guardian.then(|| Duration::from_millis(grace))
}

/// Guards the group that the holder names, until the lock or the holder ends.
pub(crate) fn run(grace: Duration) {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let (mut group, mut valid_until) = (None, Duration::MAX);
    loop {
        let left = valid_until.saturating_sub(now());
        match lines.recv_timeout(left.saturating_sub(grace).min(Duration::from_secs(3600))) {
            Ok(line) => {
                let Some((id, millis)) = parse(&line) else {
                    continue;
                };
                group = Some(Pid::from_raw(id));
                valid_until = Duration::from_millis(millis);
            }
            Err(RecvTimeoutError::Timeout) if left > grace => {}
            // The lock is about to end, or the holder has ended: by itself, or because somebody has killed it.
            Err(error) => {
                let left = match error {
                    RecvTimeoutError::Timeout => left,
                    RecvTimeoutError::Disconnected => left.min(grace),
                };
                if let Some(group) = group {
                    end(group, left);
                }
                return;
            }
        }
    }
}

/// Returns the time since the machine was started. All its processes agree on it, and it goes on while the machine sleeps.
fn now() -> Duration {
    #[cfg(target_os = "linux")]
    let clock = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

/// Reads the id of a group, and until when the lock is valid, in milliseconds.
fn parse(line: &str) -> Option<(i32, u64)> {
    let (group, millis) = line.split_once(' ')?;
    let group = group.parse().ok().filter(|it| *it > 1)?;
    Some((group, millis.parse().ok()?))
}

/// Ends a group: with SIGTERM, and with SIGKILL after the time. Returns as soon as the group has ended.
pub(crate) fn end(group: Pid, within: Duration) {
    let until = now() + within;
    if killpg(group, Signal::SIGTERM).is_err() {
        return; // nobody is left
    }
    // One that is stopped could not act on it.
    let _ = killpg(group, Signal::SIGCONT);
    while now() < until {
        thread::sleep(LOOK_EVERY.min(until.saturating_sub(now())));
        if killpg(group, None).is_err() {
            return;
        }
    }
    let _ = killpg(group, Signal::SIGKILL);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_group_of_its_own_is_guarded() {
        assert_eq!(parse("17 250"), Some((17, 250)));
        // These would be this group, all processes, and init.
        for line in ["0 250", "-1 250", "1 250", "17", "17 x", ""] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
