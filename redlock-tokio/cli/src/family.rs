//! The command and all that stems from it, in whatever process group or session.
//!
//! On Linux the guardian adopts the orphans among its descendants (it is their *subreaper*), and the program those of the
//! guardian. So nothing that a command starts escapes by the end of its parent. On other systems a process whose parent has
//! ended is not found.

use nix::unistd::{self, getpgid, getpgrp, getsid};
use rustix::process::{Pid, Signal, getpid, kill_process};

#[derive(Debug, Default)]
pub(crate) struct Family {
    /// The command, while it runs. It is known even where no list of processes can be read.
    pub(crate) command: Option<Pid>,
    /// The guardian, for the program: the family is what stems from it, or what the program has adopted from it.
    pub(crate) guardian: Option<Pid>,
    /// Other children of the program. A shell that becomes the program by `exec` leaves it those that it has.
    others: Vec<Pid>,
}

impl Family {
    /// Returns the family of a guardian that is about to start. The children that this process has already do not
    /// belong to it.
    pub(crate) fn of_guardian() -> Self {
        let mut others = list::processes();
        others.retain(|it| it.parent == Some(getpid()));
        Self {
            others: others.iter().map(|it| it.id).collect(),
            ..Self::default()
        }
    }

    /// Returns all that live.
    pub(crate) fn members(&self) -> Vec<Pid> {
        let processes = list::processes();
        let lives = |id| processes.iter().any(|it| it.id == id && !it.is_zombie);
        let root = self.guardian.filter(|it| lives(*it));
        let mut members = vec![root.unwrap_or_else(getpid)];
        let mut next = 0;
        while let Some(parent) = members.get(next).copied() {
            let children = processes.iter().filter(|it| it.parent == Some(parent));
            let children = children.map(|it| it.id);
            members.extend(children.filter(|it| !self.others.contains(it)));
            next += 1;
        }
        members.remove(0);
        members.extend(self.command.filter(|it| !members.contains(it)));
        let is_zombie = |id| processes.iter().any(|it| it.id == id && it.is_zombie);
        members.retain(|it| !is_zombie(*it));
        members
    }

    /// Returns those that are no daemons: a daemon leaves the session.
    pub(crate) fn in_session(&self) -> Vec<Pid> {
        let mut members = self.members();
        let session = getsid(None);
        members.retain(|it| getsid(Some(id(*it))) == session);
        members
    }

    /// Sends a signal to those that would have got it if it had been for the process group of the program: the command,
    /// and what is in this group. If they have got it, only to a command that has left the group.
    pub(crate) fn pass_on(&self, signal: Signal, has_reached_group: bool) {
        let is_in_group = |it: &Pid| getpgid(Some(id(*it))) == Ok(getpgrp());
        let mut members = self.members();
        members.retain(|it| match is_in_group(it) {
            true => !has_reached_group,
            false => Some(*it) == self.command,
        });
        send(&members, signal);
        // One that is stopped could not act on it.
        if ![Signal::USR1, Signal::USR2].contains(&signal) {
            send(&members, Signal::CONT);
        }
    }
}

/// `rustix` panics at a group or session of another namespace, whose id is 0.
fn id(process: Pid) -> unistd::Pid {
    unistd::Pid::from_raw(process.as_raw_nonzero().get())
}

/// Sends a signal to each. One may have ended, or belong to somebody else.
pub(crate) fn send(processes: &[Pid], signal: Signal) {
    for process in processes {
        let _ = kill_process(*process, signal);
    }
}

/// Asks processes to end, even if they are stopped.
pub(crate) fn ask_to_end(processes: &[Pid]) {
    send(processes, Signal::TERM);
    send(processes, Signal::CONT);
}

#[derive(Debug, PartialEq, Eq)]
struct Process {
    id: Pid,
    parent: Option<Pid>,
    is_zombie: bool,
}

#[cfg(target_os = "linux")]
mod list {
    use std::fs;

    use rustix::process::{Pid, getpid};

    use super::Process;

    pub(super) fn processes() -> Vec<Process> {
        let own = fs::read_link("/proc/self").ok();
        let own = own.and_then(|it| it.to_str()?.parse().ok());
        let folder = fs::read_dir("/proc");
        // The list may be that of another container, whose ids mean other processes.
        let (true, Ok(folder)) = (own == Some(getpid().as_raw_nonzero().get()), folder) else {
            return Vec::new();
        };
        let stats = folder.filter_map(|it| fs::read(it.ok()?.path().join("stat")).ok());
        stats.filter_map(|it| parse(&it)).collect()
    }

    /// Reads the id, the name in brackets, which may contain anything, the state, and the parent.
    pub(super) fn parse(stat: &[u8]) -> Option<Process> {
        let text = String::from_utf8_lossy(stat);
        let (id, _) = text.split_once(' ')?;
        let mut words = text.rsplit_once(')')?.1.split_whitespace();
        Some(Process {
            id: Pid::from_raw(id.parse().ok()?)?,
            is_zombie: ["Z", "X"].contains(&words.next()?),
            parent: Pid::from_raw(words.next()?.parse().ok()?),
        })
    }
}

#[cfg(any(test, not(target_os = "linux")))]
mod portable_list {
    use std::process::{Command, Stdio};

    use rustix::process::Pid;

    use super::Process;

    pub(super) fn processes() -> Vec<Process> {
        let mut command = Command::new("ps");
        command.args(["-A", "-o", "pid=", "-o", "ppid=", "-o", "stat="]);
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
        let Ok(ps) = command.spawn() else {
            return Vec::new();
        };
        let own = Pid::from_child(&ps);
        let output = ps.wait_with_output().map(|it| it.stdout);
        let output = output.unwrap_or_default();
        let text = String::from_utf8_lossy(&output);
        let processes = text.lines().filter_map(parse);
        processes.filter(|it| it.id != own).collect()
    }

    fn parse(line: &str) -> Option<Process> {
        let mut words = line.split_whitespace();
        Some(Process {
            id: Pid::from_raw(words.next()?.parse().ok()?)?,
            parent: Pid::from_raw(words.next()?.parse().ok()?),
            is_zombie: words.next()?.starts_with('Z'),
        })
    }
}
#[cfg(not(target_os = "linux"))]
use portable_list as list;

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_look_like_the_rest_of_the_line() {
        let parsed = list::parse(b"17 (a) Z 1 (\xff) S 5 17 17 0");
        let expected = Process {
            id: Pid::from_raw(17).unwrap(),
            parent: Pid::from_raw(5),
            is_zombie: false,
        };
        assert_eq!(parsed, Some(expected));
        assert_eq!(list::parse(b"17 (a"), None);
    }

    #[test]
    fn both_lists_know_this_process_and_its_parent() {
        for processes in [list::processes(), portable_list::processes()] {
            let own = processes.iter().find(|it| it.id == getpid());
            assert_eq!(own.unwrap().parent, rustix::process::getppid());
        }
    }
}
