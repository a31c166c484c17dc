//! Log messages of a layer, and their levels.

use std::{
    fmt::Write as _,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use axum::{Router, routing::post as routed_post};
use redlock_axum::{CompositeKey, LockLayer, Locked, key, path};
use tokio::time::sleep;
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

use crate::support::{Bed, MS, post, problem, text};

/// A second subscriber for as long as the process lives. While there is only one, a test without a subscriber that
/// comes to a line of the log first turns the line off for all tests (`tracing_core::callsite`).
static SECOND: OnceLock<Dispatch> = OnceLock::new();

/// Everything that is logged on this thread, with its level, for as long as the guard lives.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(Level, String)>>>);

impl Log {
    fn listen() -> (Self, DefaultGuard) {
        SECOND.get_or_init(|| Dispatch::new(tracing_subscriber::registry()));
        let log = Self::default();
        let subscriber = tracing_subscriber::registry().with(log.clone());
        (log, tracing::subscriber::set_default(subscriber))
    }

    fn louder_than(&self, level: Level) -> Vec<String> {
        let lines = self.0.lock().unwrap();
        let loud = lines.iter().filter(|(of, _)| *of < level);
        loud.map(|(_, text)| text.clone()).collect()
    }

    fn has(&self, level: Level, part: &str) -> bool {
        let lines = self.0.lock().unwrap();
        lines
            .iter()
            .any(|(of, text)| *of == level && text.contains(part))
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

fn layer(it: &Bed) -> LockLayer<CompositeKey> {
    LockLayer::new(it.redlock.clone(), key("event", path("event"))).label("sales")
}

#[tokio::test(start_paused = true)]
async fn contention_is_logged_at_debug_and_no_key_is_logged() {
    let (log, _listening) = Log::listen();
    let it = Bed::new().await;
    let app = it.app(
        layer(&it)
            .wait(MS(300))
            .max_waiters_per_key(1)
            .max_waiters_total(8),
    );
    text(post(&app, "/events/secret").await).await;
    let guard = it.redlock.lock("event:secret").await.unwrap();
    let (one, other) = tokio::join!(post(&app, "/events/secret"), post(&app, "/events/secret"));
    problem(one, 423, "locked").await;
    problem(other, 429, "queue-full").await;
    guard.release().await;
    let _guard = it.nodes.contend("event:secret").await.unwrap();
    problem(post(&app, "/events/secret").await, 423, "locked").await;
    assert_eq!(log.louder_than(Level::DEBUG), Vec::<String>::new());
    assert!(log.has(Level::DEBUG, "result=\"contended\""));
    assert!(log.has(Level::DEBUG, "result=\"queue_full\""));
    for span in ["lock_wait", "lock_held"] {
        assert!(
            log.has(Level::DEBUG, &format!("{span} policy=\"sales\"")),
            "{span}"
        );
    }
    let all = log.0.lock().unwrap();
    assert!(all.iter().all(|(_, text)| !text.contains("secret")));
}

#[tokio::test(start_paused = true)]
async fn losses_misconfigurations_and_outages_are_logged_as_warnings_or_errors() {
    let (log, _listening) = Log::listen();
    let it = Bed::new().await;
    let lost = async |locked: Locked| {
        locked.lost().await;
        sleep(MS(10)).await;
    };
    let app = Router::new().route("/events/{event}", routed_post(lost));
    it.nodes.lose_next("event:secret");
    text(post(&app.route_layer(layer(&it)), "/events/secret").await).await;
    assert!(log.has(Level::WARN, "the lock of a call was lost while it ran"));

    let wrong = it.app(layer(&it).ttl(Duration::ZERO));
    problem(post(&wrong, "/events/secret").await, 500, "misconfigured").await;
    assert!(log.has(
        Level::ERROR,
        r#"policy="sales" error=the lock layer is misconfigured"#
    ));

    it.nodes.go_down();
    let closed = it.app(layer(&it).wait(MS(100)));
    for _ in 0..5 {
        problem(post(&closed, "/events/secret").await, 503, "unavailable").await;
    }
    let warnings = log.louder_than(Level::INFO);
    let of_outage = |it: &&String| it.contains("no lock can be acquired");
    assert_eq!(
        warnings.iter().filter(of_outage).count(),
        1,
        "{warnings:#?}"
    );
    assert!(log.has(Level::DEBUG, "request gets no lock"));
    let open = it.app(layer(&it).wait(MS(100)).fail_open());
    text(post(&open, "/events/secret").await).await;
    assert!(log.has(Level::WARN, "the call runs without a lock"));
    it.nodes.come_up();
    sleep(MS(2000)).await;
    text(post(&it.app(layer(&it)), "/events/secret").await).await;
    assert!(log.has(Level::INFO, "locks can be acquired again"));
    assert!(log.has(Level::INFO, "connected again"));
    let all = log.0.lock().unwrap();
    assert!(all.iter().all(|(_, text)| !text.contains("secret")));
}

#[tokio::test(start_paused = true)]
async fn requests_without_a_lock_are_one_warning_in_ten_seconds_for_each_layer() {
    let (log, _listening) = Log::listen();
    let it = Bed::new().await;
    it.nodes.go_down();
    let open = layer(&it).wait(Duration::ZERO).fail_open();
    let [one, clone] = [it.app(open.clone()), it.app(open)];
    let warnings = || {
        let loud = log.louder_than(Level::INFO);
        let of_layer = loud.into_iter().filter(|it| it.contains("without a lock"));
        of_layer.collect::<Vec<_>>()
    };
    for _ in 0..3 {
        text(post(&one, "/events/secret").await).await;
        text(post(&clone, "/events/secret").await).await;
    }
    assert_eq!(warnings().len(), 1, "{:#?}", warnings());
    sleep(MS(10_000)).await;
    text(post(&one, "/events/secret").await).await;
    let [_, second] = &warnings()[..] else {
        panic!("not two warnings: {:#?}", warnings());
    };
    assert!(second.contains("withheld=5"), "{second}");
    let other = it.app(layer(&it).wait(Duration::ZERO).fail_open());
    text(post(&other, "/events/secret").await).await;
    assert_eq!(warnings().len(), 3, "another layer warns by itself");
}
