//! The reports of a worker.

use std::io::{Write, stdout};

use crate::line::Line;

pub(super) fn tell(line: &Line) {
    let line = serde_json::to_string(line).expect("numbers and names are JSON");
    // An error means that the parent has ended; then this process is about to be killed.
    let _ = writeln!(stdout().lock(), "{line}");
}

/// Reports an event, which is counted by its name.
pub(super) fn saw(what: impl Into<String>) {
    tell(&Line::Saw(what.into()));
}
