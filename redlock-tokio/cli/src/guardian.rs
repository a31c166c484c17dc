//! The parent of the command, as the program sees it. `guard` is what it does.
//!
//! The command is in the process group of the program, as it would be without the program. So the terminal, the shell and the
//! keys do with it what they always do, and nothing here emulates them. A crate for process groups, like `process-wrap`, moves
//! the command to a group of its own: the terminal must then be given to this group and taken back, a shell does not see that
//! it has stopped, and a descendant that leaves the group escapes. Instead, the guardian is the parent of all that stems from
//! the command.
//!
//! The guardian is in a group of its own, so that neither the terminal nor a signal to the program's group reaches it. The
//! program ends the command itself as long as it can: the guardian is the net.
//!
//! They speak over a socket, in lines. It is the guardian's standard input, and the command's comes over it.

use std::{
    ffi::{OsStr, OsString},
    io::{self, IoSlice},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{ffi::OsStrExt, net::UnixStream, process::CommandExt},
    },
    process::Command,
    time::Duration,
};

use nix::unistd::getpgrp;
use redlock_tokio::Hold;
use rustix::{
    net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg},
    process::{Pid, Signal, WaitOptions, wait, waitpid},
    time::{ClockId, clock_gettime},
};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    net::unix::{OwnedReadHalf, OwnedWriteHalf},
};

use crate::{
    child::Loss,
    exit::{Exit, Failure, Result},
    family::send,
    signals::Ignored,
};

/// The first argument of a guardian. No command for people.
pub(crate) const ARGUMENT: &str = "--guardian";

/// The last word about a command that the guardian had told to end.
pub(crate) const TOLD: &str = "told";

/// How often to look who is left.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How long to wait for processes after SIGKILL. One that hangs in the kernel may never end.
pub(crate) const LAST_WAIT: Duration = Duration::from_secs(1);

/// Returns the time since the machine was started. All its processes agree on it, and it goes on while the machine sleeps.
pub(crate) fn now() -> Duration {
    #[cfg(target_os = "linux")]
    let clock = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

/// What the guardian says.
pub(crate) enum Report {
    Started(Pid),
    /// Why the command could not begin.
    Failed(Failure),
    /// How the command has ended, and why the guardian had told it to.
    Ended(Exit, Option<Loss>),
    /// All that was to end has ended.
    Done,
    /// Somebody has killed the guardian.
    Gone,
}

pub(crate) struct Guardian {
    pub(crate) id: Pid,
    has_ended: bool,
    words: OwnedWriteHalf,
    reports: Option<Lines<BufReader<OwnedReadHalf>>>,
}

impl Guardian {
    /// Starts a guardian, which starts the command.
    pub(crate) fn start(command: &[OsString], hold: &Hold, grace: Duration) -> Result<Self> {
        #[cfg(target_os = "linux")]
        nix::sys::prctl::set_child_subreaper(true).map_err(io::Error::from)?;
        let (ours, theirs) = UnixStream::pair()?;
        let mut guardian = own_program()?;
        let group = getpgrp();
        let valid_until = now() + hold.remaining();
        let numbers = [grace, valid_until].map(|it| it.as_millis().to_string());
        guardian.arg(ARGUMENT).args(numbers).arg(group.to_string());
        guardian.arg(Ignored::inherited().0.to_string());
        guardian.args(command);
        guardian.env("REDLOCK_KEY", OsStr::from_bytes(hold.key().as_bytes()));
        guardian.env("REDLOCK_TOKEN", hold.token().to_string());
        guardian.env_remove("REDLOCK_FENCE");
        if let Some(fence) = hold.fencing_token() {
            guardian.env("REDLOCK_FENCE", fence.to_string());
        }
        guardian.stdin(OwnedFd::from(theirs));
        // A group of another namespace has no id here. The command could not join it, so they all stay in it.
        if group.as_raw() != 0 {
            guardian.process_group(0);
        }
        let id = Pid::from_child(&guardian.spawn()?);
        drop(guardian); // and with it the other end of the socket
        send_input(&ours)?;
        ours.set_nonblocking(true)?;
        let (reports, words) = tokio::net::UnixStream::from_std(ours)?.into_split();
        Ok(Self {
            id,
            has_ended: false,
            words,
            reports: Some(BufReader::new(reports).lines()),
        })
    }

    /// Waits for the next report. Nothing comes after the last one.
    pub(crate) async fn report(&mut self) -> Report {
        loop {
            let Some(reports) = &mut self.reports else {
                return std::future::pending().await;
            };
            let Ok(Some(line)) = reports.next_line().await else {
                self.reports = None;
                return Report::Gone;
            };
            if let Some(report) = parse(&line) {
                return report;
            }
        }
    }

    pub(crate) const fn is_gone(&self) -> bool {
        self.reports.is_none()
    }

    /// Says until when the lock is valid, or when all that has not ended gets SIGKILL. Never waits: a guardian that is
    /// stopped does not read.
    pub(crate) fn tell(&self, word: &str, time: Duration) {
        let line = format!("{word} {}\n", time.as_millis());
        let _ = self.words.try_write(line.as_bytes());
    }

    /// Reaps what has ended, orphans too, and continues the guardian if it was stopped.
    pub(crate) fn look(&mut self) {
        while let Ok(Some((child, status))) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            if child != self.id {
                continue;
            }
            if status.stopped() {
                send(&[child], Signal::CONT);
            } else {
                self.has_ended = true;
            }
        }
    }

    /// Ends the guardian, which has nothing left to do.
    pub(crate) fn end(self) {
        if !self.has_ended {
            send(&[self.id], Signal::KILL);
            let _ = waitpid(Some(self.id), WaitOptions::empty());
        }
        // Those that it has not reaped.
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
    }
}

/// Returns a command for another process of this program: the same file, even if there is a newer one in its place by now.
fn own_program() -> io::Result<Command> {
    #[cfg(target_os = "linux")]
    let path = "/proc/self/exe";
    #[cfg(not(target_os = "linux"))]
    let path = std::env::current_exe()?;
    let mut command = Command::new(path);
    command.arg0("redlock");
    Ok(command)
}

/// Sends the standard input of the command. The guardian has another one.
fn send_input(guardian: &UnixStream) -> io::Result<()> {
    let input = io::stdin();
    let files = [input.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut message = SendAncillaryBuffer::new(&mut space);
    message.push(SendAncillaryMessage::ScmRights(&files));
    let bytes = [IoSlice::new(b"\n")];
    sendmsg(guardian, &bytes, &mut message, SendFlags::empty())?;
    Ok(())
}

/// Reads what `Guard` reports.
fn parse(line: &str) -> Option<Report> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    Some(match word {
        "started" => Report::Started(Pid::from_raw(rest.parse().ok()?)?),
        "failed" => {
            let (code, message) = rest.split_once(' ')?;
            let code: u8 = code.parse().ok()?;
            let mut exits = [Exit::NotFound, Exit::NotExecutable].into_iter();
            let exit = exits.find(|it| it.code() == code);
            Report::Failed(Failure::new(exit.unwrap_or(Exit::Internal), message))
        }
        "ended" => {
            let mut words = rest.split(' ');
            let kind = words.next()?;
            let number = words.next()?.parse().ok()?;
            let exit = match kind {
                "signal" => Exit::Signal(number),
                _ => Exit::Of(u8::try_from(number).unwrap_or(u8::MAX)),
            };
            let loss = (words.next()? == TOLD).then_some(Loss::Stopped);
            Report::Ended(exit, loss)
        }
        "done" => Report::Done,
        _ => return None,
    })
}
