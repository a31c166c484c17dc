//! What is logged.

use std::{
    fmt::Write as _,
    sync::{Arc, Mutex, OnceLock},
};

use tracing::{
    Dispatch, Event, Level, Subscriber,
    field::{Field, Visit},
    span::Attributes,
    subscriber::DefaultGuard,
};
use tracing_subscriber::{
    Layer,
    layer::{Context, SubscriberExt},
    registry::LookupSpan,
};

/// A second subscriber for as long as the process lives. While there is only one, a test without a subscriber that
/// comes to a line of the log first turns the line off for all tests (`tracing_core::callsite`).
static SECOND: OnceLock<Dispatch> = OnceLock::new();

/// Everything that is logged on this thread, with its level, for as long as the guard lives.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<(Level, String)>>>);

impl Log {
    pub(crate) fn listen() -> (Self, DefaultGuard) {
        SECOND.get_or_init(|| Dispatch::new(tracing_subscriber::registry()));
        let log = Self::default();
        let subscriber = tracing_subscriber::registry().with(log.clone());
        (log, tracing::subscriber::set_default(subscriber))
    }

    pub(crate) fn louder_than(&self, level: Level) -> Vec<String> {
        let lines = self.0.lock().unwrap();
        let loud = lines.iter().filter(|(of, _)| *of < level);
        loud.map(|(_, text)| text.clone()).collect()
    }

    pub(crate) fn only_warning(&self) -> String {
        let warnings = self.louder_than(Level::INFO);
        assert_eq!(warnings.len(), 1, "{warnings:#?}");
        warnings.concat()
    }

    pub(crate) fn has(&self, level: Level, part: &str) -> bool {
        let lines = self.0.lock().unwrap();
        let is_it = |(of, text): &(Level, String)| *of == level && text.contains(part);
        lines.iter().any(is_it)
    }

    pub(crate) fn mentions(&self, part: &str) -> bool {
        let lines = self.0.lock().unwrap();
        lines.iter().any(|(_, text)| text.contains(part))
    }

    fn add(&self, level: Level, name: &str, record: impl FnOnce(&mut Text)) {
        let mut text = Text(name.to_owned());
        record(&mut text);
        self.0.lock().unwrap().push((level, text.0));
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Log {
    fn on_new_span(&self, span: &Attributes<'_>, _: &tracing::Id, _: Context<'_, S>) {
        let meta = span.metadata();
        self.add(*meta.level(), meta.name(), |text| span.record(text));
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        self.add(*event.metadata().level(), "", |text| event.record(text));
    }
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}
