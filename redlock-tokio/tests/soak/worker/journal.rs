//! Where a worker tells what it does.

use std::io::{Write, stdout};

use rustix::time::{ClockId, clock_gettime};

use crate::line::Line;

pub(super) fn tell(line: &Line) {
    // It fails when nobody listens any more; then this process is about to be killed.
    let _ = writeln!(stdout().lock(), "{line}");
}

/// Counts something.
pub(super) fn saw(what: impl Into<String>) {
    tell(&Line::Saw(what.into()));
}

/// Returns the nanoseconds of the clock by which locks are valid, the same for all processes.
pub(super) fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    // Both count from the start of the machine.
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
