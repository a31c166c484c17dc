//! What is logged.

use std::{
    io,
    sync::{Arc, Mutex, OnceLock},
};

use tracing::{Dispatch, Level, subscriber::DefaultGuard};
use tracing_subscriber::fmt::format::FmtSpan;

/// A second subscriber for as long as the process lives. While there is only one, a test without a subscriber that
/// comes to a line of the log first turns the line off for all tests (`tracing_core::callsite`).
static SECOND: OnceLock<Dispatch> = OnceLock::new();

/// Everything that is logged on this thread, for as long as the guard lives: a line for each event and for each new span.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(crate) fn listen() -> (Self, DefaultGuard) {
        SECOND.get_or_init(|| Dispatch::new(tracing_subscriber::registry()));
        let log = Self::default();
        let writer = log.clone();
        let lines = tracing_subscriber::fmt()
            .with_max_level(Level::DEBUG)
            .with_span_events(FmtSpan::NEW)
            .without_time()
            .with_ansi(false)
            .with_writer(move || writer.clone());
        (log, tracing::subscriber::set_default(lines.finish()))
    }

    pub(crate) fn louder_than(&self, level: Level) -> Vec<String> {
        let lines = self.lines().into_iter().filter(|(of, _)| *of < level);
        lines.map(|(_, line)| line).collect()
    }

    pub(crate) fn only_warning(&self) -> String {
        let warnings = self.louder_than(Level::INFO);
        assert_eq!(warnings.len(), 1, "{warnings:#?}");
        warnings.concat()
    }

    pub(crate) fn has(&self, level: Level, part: &str) -> bool {
        let lines = self.lines();
        lines
            .iter()
            .any(|(of, it)| *of == level && it.contains(part))
    }

    pub(crate) fn mentions(&self, part: &str) -> bool {
        self.lines().iter().any(|(_, it)| it.contains(part))
    }

    /// Returns the lines, each with its level, which is its first word.
    fn lines(&self) -> Vec<(Level, String)> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let level = |line: &str| line.split_whitespace().next().unwrap().parse().unwrap();
        text.lines().map(|it| (level(it), it.to_owned())).collect()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
