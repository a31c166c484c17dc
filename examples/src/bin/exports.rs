//! Exports that are too heavy to run all at once: at most two for each tenant, in the whole fleet.
//!
//! ```sh
//! cargo run -p redlock-examples --features exports --bin exports
//! cargo run -p redlock-examples --features exports --bin exports -- --no-limit
//! ```

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use axum::{
    Router,
    body::Body,
    extract::{Path, Request, State},
    http::StatusCode,
    routing::post,
};
use clap::Parser;
use redlock_axum::{LockLayer, Locked, key, path};
use tokio::{task::JoinSet, time::sleep};
use tower::ServiceExt;

/// How many exports of a tenant may run at once.
const PERMITS: usize = 2;

const TENANTS: [&str; 2] = ["acme", "globex"];

/// Requests exports of two tenants, all at once.
#[derive(Clone, Copy, Debug, Parser)]
struct Options {
    /// How many exports of each tenant are requested.
    #[arg(long, default_value_t = 6)]
    requests: usize,
    /// Runs the exports without the layer.
    #[arg(long)]
    no_limit: bool,
}

/// Which exports run.
#[derive(Clone, Default)]
struct Engine(Arc<Mutex<BTreeMap<String, Load>>>);

#[derive(Default)]
struct Load {
    running: usize,
    most: usize,
}

impl Engine {
    fn change<T>(&self, tenant: &str, change: impl FnOnce(&mut Load) -> T) -> T {
        let mut loads = redlock_examples::lock(&self.0);
        change(loads.entry(tenant.to_owned()).or_default())
    }
}

/// Exports a tenant's data. `permit` says which of the permits the export has.
async fn export(
    State(engine): State<Engine>,
    Path(tenant): Path<String>,
    permit: Option<Locked>,
) -> String {
    engine.change(&tenant, |load| {
        load.running += 1;
        load.most = load.most.max(load.running);
    });
    sleep(Duration::from_millis(200)).await; // the heavy work
    engine.change(&tenant, |load| load.running -= 1);
    match permit.and_then(|permit| permit.slot()) {
        Some(slot) => format!("exported with permit {slot}"),
        None => "exported without a permit".to_owned(),
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    redlock_examples::init_logging();
    let options = Options::parse();
    let (redlock, nodes) = redlock_examples::connect().await?;
    println!("redlock exports, on {nodes}");

    let engine = Engine::default();
    let app = Router::new().route("/tenants/{tenant}/export", post(export));
    let app = if options.no_limit {
        app
    } else {
        let layer = LockLayer::new(redlock.clone(), key("export", path("tenant")));
        let layer = layer.permits(PERMITS).wait(Duration::from_secs(30));
        layer.check()?;
        app.route_layer(layer)
    };
    let app = app.with_state(engine.clone());

    let start = Instant::now();
    let mut requests = JoinSet::new();
    for tenant in TENANTS.repeat(options.requests) {
        let request = Request::post(format!("/tenants/{tenant}/export")).body(Body::empty())?;
        let response = app.clone().oneshot(request);
        requests.spawn(async move {
            let response = response.await?;
            ensure!(response.status() == StatusCode::OK, "{}", response.status());
            let body = axum::body::to_bytes(response.into_body(), 1024).await?;
            let (time, text) = (start.elapsed().as_millis(), String::from_utf8_lossy(&body));
            println!("{time:>5} ms  {tenant}: {text}");
            Ok(())
        });
    }
    while let Some(outcome) = requests.join_next().await {
        outcome??;
    }
    for tenant in TENANTS {
        let most = engine.change(tenant, |load| load.most);
        println!("{tenant}: at most {most} exports ran at once");
        ensure!(most <= PERMITS, "{most} exports of {tenant} ran at once");
    }
    redlock.shutdown(None).await;
    Ok(())
}
