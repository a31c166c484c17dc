//! The reports of a worker.

use std::io::{Write, stdout};

use rustix::time::{ClockId, clock_gettime};

use crate::line::Line;

pub(super) fn tell(line: &Line) {
    // An error means that the parent has ended; then this process is about to be killed.
    let _ = writeln!(stdout().lock(), "{line}");
}

/// Reports an event, which is counted by its name.
pub(super) fn saw(what: impl Into<String>) {
    tell(&Line::Saw(what.into()));
}

/// Returns the nanoseconds of the clock that decides on validity. All processes share it.
pub(super) fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    // Neither is negative, since the clock starts with the machine.
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
