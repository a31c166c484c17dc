use std::io;

use nix::{
    errno::Errno,
    sys::signal::{SigSet, Signal},
    unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp},
};

/// The terminal, while a process group of this program is in its foreground. Without that, the group could not read from
/// it.
#[derive(Debug)]
pub(crate) struct Foreground(());

impl Foreground {
    /// Gives the terminal to the group, if this process has it.
    pub(crate) fn give(group: Pid) -> Option<Self> {
        (tcgetpgrp(io::stdin()) == Ok(getpgrp())).then_some(())?;
        set(group).ok()?;
        Some(Self(()))
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = set(getpgrp());
    }
}

/// A process that is not in the foreground is stopped when it does this, unless the signal is blocked.
fn set(group: Pid) -> Result<(), Errno> {
    let mut stops = SigSet::empty();
    stops.add(Signal::SIGTTOU);
    stops.thread_block()?;
    let outcome = tcsetpgrp(io::stdin(), group);
    stops.thread_unblock()?;
    outcome
}
