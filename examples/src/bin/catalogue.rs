//! A catalogue that many read while it is rebuilt: readers share the lock, and the rebuild has it alone.
//!
//! ```sh
//! cargo run -p redlock-examples --features catalogue --bin catalogue
//! cargo run -p redlock-examples --features catalogue --bin catalogue -- --no-lock
//! ```

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use axum::{
    Router,
    body::Body,
    extract::{Path, Request, State},
    http::{Method, StatusCode},
    routing::get,
};
use clap::Parser;
use redlock_axum::{LockLayer, key, path};
use redlock_examples::lock;
use tokio::{task::JoinSet, time::sleep};
use tower::ServiceExt;

/// How many parts a catalogue has. Each takes a while to read or to write, as files or rows of a database do.
const PARTS: usize = 5;

const READ: Duration = Duration::from_millis(10);

/// Writing takes longer, so that a reader can overtake.
const WRITE: Duration = Duration::from_millis(20);

/// Readers read a catalogue again and again, while a writer rebuilds it.
#[derive(Clone, Copy, Debug, Parser)]
struct Options {
    /// How many readers there are.
    #[arg(long, default_value_t = 8)]
    readers: usize,
    /// How often the catalogue is rebuilt.
    #[arg(long, default_value_t = 3)]
    rebuilds: usize,
    /// Reads and rebuilds without the layer.
    #[arg(long)]
    no_lock: bool,
}

#[derive(Default)]
struct Catalogue {
    /// The edition of each part. A whole catalogue has parts of one edition.
    parts: Mutex<[usize; PARTS]>,
    reading: AtomicUsize,
    most_reading: AtomicUsize,
}

impl Catalogue {
    fn part(&self, index: usize) -> usize {
        lock(&self.parts)[index]
    }
}

/// Reads part after part. The read is torn if a rebuild comes in between.
async fn read(State(catalogue): State<Arc<Catalogue>>, _shop: Path<String>) -> String {
    let reading = catalogue.reading.fetch_add(1, SeqCst) + 1;
    catalogue.most_reading.fetch_max(reading, SeqCst);
    let mut editions = Vec::new();
    for index in 0..PARTS {
        editions.push(catalogue.part(index));
        sleep(READ).await;
    }
    catalogue.reading.fetch_sub(1, SeqCst);
    let first = editions[0];
    if editions.iter().all(|&edition| edition == first) {
        format!("edition {first}")
    } else {
        format!("torn: {editions:?}")
    }
}

/// Rebuilds part after part, the other way round, so that readers that come meanwhile meet both editions.
async fn rebuild(State(catalogue): State<Arc<Catalogue>>, _shop: Path<String>) -> String {
    let edition = catalogue.part(0) + 1;
    for index in (0..PARTS).rev() {
        lock(&catalogue.parts)[index] = edition;
        sleep(WRITE).await;
    }
    format!("rebuilt as edition {edition}")
}

async fn request(app: Router, method: Method) -> Result<String> {
    let request = Request::builder()
        .method(method)
        .uri("/shops/acme/catalogue");
    let response = app.oneshot(request.body(Body::empty())?).await?;
    ensure!(response.status() == StatusCode::OK, "{}", response.status());
    let body = axum::body::to_bytes(response.into_body(), 1024).await?;
    Ok(String::from_utf8_lossy(&body).into_owned())
}

#[tokio::main]
async fn main() -> Result<()> {
    redlock_examples::init_logging();
    let options = Options::parse();
    let (redlock, nodes) = redlock_examples::connect().await?;
    println!("redlock catalogue, on {nodes}");

    let catalogue = Arc::new(Catalogue::default());
    let app = Router::new().route("/shops/{shop}/catalogue", get(read).put(rebuild));
    let app = if options.no_lock {
        app
    } else {
        let layer = LockLayer::new(redlock.clone(), key("catalogue", path("shop")));
        let layer = layer.read_write().wait(Duration::from_secs(30));
        layer.check()?;
        app.route_layer(layer)
    };
    let app = app.with_state(Arc::clone(&catalogue));

    let start = Instant::now();
    let is_done = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    for _ in 0..options.readers {
        let (app, is_done) = (app.clone(), Arc::clone(&is_done));
        clients.spawn(async move {
            let (mut reads, mut torn) = (0, 0);
            while !is_done.load(SeqCst) {
                let text = request(app.clone(), Method::GET).await?;
                reads += 1;
                if text.starts_with("torn") {
                    torn += 1;
                    println!("{:>5} ms  {text}", start.elapsed().as_millis());
                }
            }
            anyhow::Ok((reads, torn))
        });
    }
    for _ in 0..options.rebuilds {
        sleep(Duration::from_millis(100)).await;
        let text = request(app.clone(), Method::PUT).await?;
        println!("{:>5} ms  {text}", start.elapsed().as_millis());
    }
    is_done.store(true, SeqCst);
    let (mut reads, mut torn) = (0, 0);
    while let Some(counts) = clients.join_next().await {
        let (more_reads, more_torn) = counts??;
        reads += more_reads;
        torn += more_torn;
    }
    let most = catalogue.most_reading.load(SeqCst);
    println!("{reads} reads, at most {most} at once, {torn} torn");
    redlock.shutdown(None).await;
    ensure!(torn == 0, "{torn} of {reads} reads were torn");
    Ok(())
}
