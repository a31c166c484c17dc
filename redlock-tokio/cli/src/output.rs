use std::{
    fmt::Display,
    io::{self, IsTerminal, Write},
    os::fd::AsFd,
    time::Duration,
};

use clap::ColorChoice;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Value, json};

use crate::exit::{Exit, Failure, Result};

/// How to write: for people or for scripts, with colours or without.
#[derive(Debug)]
pub(crate) struct Output {
    is_json: bool,
    has_colors: bool,
    /// Whether stderr is a terminal, which shows a line that changes.
    is_live: bool,
}

/// A colour, as terminals know it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Color {
    Red = 31,
    Green = 32,
    Yellow = 33,
}

impl Output {
    pub(crate) fn new(is_json: bool, color: ColorChoice) -> Self {
        let has_colors = match color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => {
                let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|it| !it.is_empty());
                io::stdout().is_terminal() && !is_unwanted
            }
        };
        Self {
            is_json,
            has_colors: has_colors && !is_json,
            is_live: io::stderr().is_terminal() && !is_json,
        }
    }

    pub(crate) const fn is_live(&self) -> bool {
        self.is_live
    }

    /// Writes a line for people, or the value for scripts.
    pub(crate) fn line(&self, text: impl Display, value: impl FnOnce() -> Value) -> Result<()> {
        let mut stdout = io::stdout().lock();
        let written = if self.is_json {
            writeln!(stdout, "{}", value())
        } else {
            writeln!(stdout, "{text}")
        };
        written.map_err(|error| Failure::unwritten(&error))
    }

    /// Waits until nobody reads stdout any more.
    pub(crate) async fn closed() -> Failure {
        let mut looks = tokio::time::interval(Duration::from_millis(200));
        loop {
            looks.tick().await;
            let stdout = io::stdout();
            // No event is asked for: errors are always reported.
            let mut stdout = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
            let closed = PollFlags::POLLERR | PollFlags::POLLHUP;
            let is_reported = poll(&mut stdout, PollTimeout::ZERO).is_ok();
            if is_reported && stdout[0].revents().is_some_and(|it| it.intersects(closed)) {
                return Failure::unwritten(&io::ErrorKind::BrokenPipe.into());
            }
        }
    }

    /// Says why the program fails, unless nobody reads what it writes.
    pub(crate) fn failure(&self, failure: &Failure) {
        if failure.exit == Exit::Unread {
            return;
        }
        let mut stderr = io::stderr().lock();
        let _ = if self.is_json {
            let mut value = failure.seen.clone();
            value["error"] = json!(failure.exit.name());
            value["message"] = json!(failure.message);
            writeln!(stderr, "{value}")
        } else {
            writeln!(stderr, "redlock: {}", failure.message)
        };
    }

    /// Writes a line that only people need.
    pub(crate) fn hint(&self, text: impl Display) {
        if !self.is_json {
            let _ = writeln!(io::stderr(), "redlock: {text}");
        }
    }

    pub(crate) fn paint(&self, color: Color, text: impl Display) -> String {
        if self.has_colors {
            format!("\x1b[{}m{text}\x1b[0m", color as u8)
        } else {
            text.to_string()
        }
    }

    /// Shows a line on the terminal in place of the last one. An empty text removes it.
    pub(crate) fn progress(&self, text: impl Display) {
        if self.is_live {
            let mut stderr = io::stderr().lock();
            let _ = write!(stderr, "\r\x1b[K{text}");
            let _ = stderr.flush();
        }
    }
}

/// Returns bytes as people read them, like the `Display` of an inspection.
pub(crate) fn shown(bytes: &[u8]) -> String {
    match str::from_utf8(bytes) {
        Ok(text) if !text.contains(char::is_control) => text.to_owned(),
        _ => bytes.escape_ascii().to_string(),
    }
}
