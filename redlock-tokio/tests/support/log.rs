use std::{
    io,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use tracing::{Dispatch, Level, subscriber::DefaultGuard};

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
        SECOND.get_or_init(|| {
            let unseen = tracing_subscriber::fmt().with_writer(io::sink);
            Dispatch::new(unseen.finish())
        });
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
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
