use std::{
    io,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use tracing::{Dispatch, Level, subscriber::DefaultGuard};
use tracing_subscriber::fmt::format::FmtSpan;

/// A second subscriber for as long as the process lives. While there is only one, a thread without a subscriber that
/// comes to a line of the log first turns the line off for all threads (`tracing_core::callsite`).
static SECOND: OnceLock<Dispatch> = OnceLock::new();

/// The log of this thread.
#[derive(Clone, Default)]
pub(crate) struct Log {
    bytes: Arc<Mutex<Vec<u8>>>,
    panics: Arc<AtomicBool>,
}

impl Log {
    /// Starts a log of what users see.
    pub(crate) fn start() -> (Self, DefaultGuard) {
        Self::with_level(Level::INFO)
    }

    pub(crate) fn with_level(level: Level) -> (Self, DefaultGuard) {
        Self::with(level, FmtSpan::NONE)
    }

    /// Starts a log of everything but traces, with a line for each new span.
    pub(crate) fn with_spans() -> (Self, DefaultGuard) {
        Self::with(Level::DEBUG, FmtSpan::NEW)
    }

    fn with(level: Level, spans: FmtSpan) -> (Self, DefaultGuard) {
        SECOND.get_or_init(|| {
            let unseen = tracing_subscriber::fmt().with_writer(io::sink);
            Dispatch::new(unseen.finish())
        });
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_span_events(spans)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    /// Makes the subscriber panic at each line, or not any more.
    pub(crate) fn set_panics(&self, panics: bool) {
        self.panics.store(panics, SeqCst);
    }

    /// Returns how many lines have this text.
    pub(crate) fn count(&self, text: &str) -> usize {
        self.text().lines().filter(|it| it.contains(text)).count()
    }

    pub(crate) fn mentions(&self, text: &str) -> bool {
        self.count(text) > 0
    }

    /// Returns whether a line of this level has this text.
    pub(crate) fn has(&self, level: Level, text: &str) -> bool {
        let mut lines = self.lines().into_iter();
        lines.any(|(of, line)| of == level && line.contains(text))
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

    /// Returns the lines, each with its level, which is the word behind the time.
    fn lines(&self) -> Vec<(Level, String)> {
        let text = self.text();
        let level = |line: &str| line.split_whitespace().nth(1).unwrap().parse().unwrap();
        text.lines().map(|it| (level(it), it.to_owned())).collect()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap()).into_owned()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        assert!(
            !self.panics.load(SeqCst),
            "this subscriber panics on purpose"
        );
        self.bytes.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
