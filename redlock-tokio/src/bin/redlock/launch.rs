//! The first moments of a command: its process stops until the guardian knows it. So a command is never left alone, even if
//! the program is killed just then.

use std::{
    ffi::OsString,
    io,
    os::unix::process::{CommandExt, parent_id},
    process::Command,
};

use nix::{
    sys::{
        signal::{Signal, raise},
        wait::{Id, WaitPidFlag, waitid},
    },
    unistd::Pid,
};

use crate::exit::Exit;

/// The first argument of a process that becomes a command. No command for people.
const ARGUMENT: &str = "--launch";

/// Returns what starts a process that becomes this command.
pub(crate) fn launcher(command: &[OsString]) -> io::Result<Command> {
    let mut launcher = Command::new(std::env::current_exe()?);
    launcher.arg(ARGUMENT).arg(std::process::id().to_string());
    launcher.args(command).process_group(0);
    Ok(launcher)
}

/// Waits until the process has stopped, or ended.
pub(crate) fn wait_for_stop(process: Pid) -> io::Result<()> {
    let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    waitid(Id::Pid(process), flags)?;
    Ok(())
}

/// Becomes the command, if this process is to be one. Returns only if it is not, or how it has failed.
pub(crate) fn launch() -> Option<Exit> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != ARGUMENT {
        return None;
    }
    let parent: u32 = arguments.next()?.to_str()?.parse().ok()?;
    let program = arguments.next()?;
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).ok()?;
    if parent_id() == parent {
        raise(Signal::SIGSTOP).ok()?;
    }
    // One whose parent is gone goes on by itself on some systems.
    if parent_id() != parent {
        return Some(Exit::Internal);
    }
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_pdeathsig(None).ok()?;
    let error = Command::new(&program).args(arguments).exec();
    eprintln!("redlock: {}: {error}", program.display());
    Some(match error.kind() {
        io::ErrorKind::NotFound => Exit::NotFound,
        _ => Exit::NotExecutable,
    })
}
