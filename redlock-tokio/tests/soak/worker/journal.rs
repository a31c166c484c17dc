//! The reports of a worker.

use std::{
    io::{Write, stdout},
    thread,
    time::Duration,
};

use crate::{clock, line::Line};

const BEAT: Duration = Duration::from_millis(20);

/// How much later than planned a beat may come on a busy machine.
const LATE: Duration = Duration::from_millis(100);

pub(super) fn tell(line: &Line) {
    let line = serde_json::to_string(line).expect("numbers and names are JSON");
    // An error means that the parent has ended; then this process is about to be killed.
    let _ = writeln!(stdout().lock(), "{line}");
}

/// Reports an event, which is counted by its name.
pub(super) fn saw(what: impl Into<String>) {
    tell(&Line::Saw(what.into()));
}

/// Reports each time in which this process stood still, until the process ends.
pub(super) fn beat() {
    let most = (BEAT + LATE).as_nanos() as u64;
    loop {
        let from = clock::now();
        thread::sleep(BEAT);
        let until = clock::now();
        if until - from > most {
            tell(&Line::Stalled { from, until });
        }
    }
}
