//! The cost of the layer on top of a lock: the handler alone, the handler under a guard of its own, and the handler
//! behind the layer in each of its modes, over nodes in memory.
//!
//! ```sh
//! cargo bench -p redlock-axum --bench overhead
//! ```

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use axum::{Router, body::Body, http::Method, routing::post};
use comfy_table::{Table, presets};
use http_body_util::BodyExt;
use redlock_axum::{LockLayer, Request};
use redlock_tokio::Redlock;
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt;

/// How many requests a contestant sends in its turn. Contestants take turns, so that other load on the machine affects
/// all of them.
const TURN: u32 = 500;
const TURNS: u32 = 40;

fn main() {
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_all().build().expect("a runtime");
    let redlock = runtime.block_on(Redlock::embedded());
    let redlock = redlock.expect("five nodes in memory");
    let guarded = {
        let redlock = redlock.clone();
        async move || {
            let _guard = redlock.lock("k").await.expect("a free lock");
            "done"
        }
    };
    let layer = || LockLayer::new(redlock.clone(), |_: &Request| "k");
    let plain = || Router::new().route("/", post(async || "done"));
    let guarded = Router::new().route("/", post(guarded));
    let cancels = plain().route_layer(layer().cancel_on_disconnect());
    let lasts = plain().route_layer(layer().hold_until_body_end(Duration::from_secs(1)));
    let all = [
        ("handler alone", plain()),
        ("a guard in the handler", guarded),
        ("layer", plain().route_layer(layer())),
        ("layer, cancel_on_disconnect", cancels),
        ("layer, hold_until_body_end", lasts),
    ];
    // `axum::serve` does so too. Otherwise axum builds the routes and their layers for each request.
    let all = all.map(|(name, app)| (name, app.with_state(())));
    let mut times = [(); 5].map(|()| Vec::new());
    for _ in 0..=TURNS {
        for ((_, app), times) in all.iter().zip(&mut times) {
            let start = Instant::now();
            run(&runtime, app, TURN);
            times.push(start.elapsed() / TURN);
        }
    }
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    let columns = "|per request, median|more than a guard|allocations";
    table.set_header(columns.split('|'));
    let medians = times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2].as_nanos() as f64 / 1000.0
    });
    for ((name, app), median) in all.iter().zip(medians) {
        let counted = allocation_counter::measure(|| run(&runtime, app, TURN));
        let allocations = counted.count_total as f64 / f64::from(TURN);
        table.add_row([
            (*name).to_owned(),
            format!("{median:.1} us"),
            format!("{:+.1} us", median - medians[1]),
            format!("{allocations:.1}"),
        ]);
    }
    println!("{table}");
}

/// Sends requests one after the other, from a task, as a server's connections do. (The future in `block_on` itself runs
/// only when no task is ready.)
fn run(runtime: &Runtime, app: &Router, requests: u32) {
    let app = app.clone();
    let connection = runtime.spawn(async move {
        for _ in 0..requests {
            let request = axum::http::Request::builder().method(Method::POST).uri("/");
            let request = request.body(Body::empty()).expect("a request");
            let response = app.clone().oneshot(request).await.expect("infallible");
            assert!(response.status().is_success(), "{}", response.status());
            let body = response.into_body().collect().await;
            black_box(body.expect("a body"));
        }
    });
    runtime.block_on(connection).expect("no panic");
}
