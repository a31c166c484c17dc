//! What a lock costs, counted and not timed: instructions under callgrind, and allocations. Other work of the machine
//! does not change them.
//!
//! ```sh
//! make cost                       # compares with cost.json
//! make cost COST=--renew          # writes it
//! ```

use std::{
    collections::BTreeMap,
    env, fs,
    path::Path,
    pin::pin,
    process::{Command, ExitCode},
    sync::Arc,
    time::Duration,
};

use axum::{Router, body::Body, routing::post};
use comfy_table::{Table, presets};
use futures::{future::join_all, poll};
use http_body_util::BodyExt;
use redlock_axum::{LockLayer, Request};
use redlock_core::{
    Drift, Eligibility, KeepAlive, Lease, LeaseConfig, Nonce, Quorum, Reply, RetrySchedule, Status,
    Timestamp, Ttl, Validity,
};
use redlock_kit::RedisServers;
use redlock_tokio::{Durability, Redlock};
use serde::{Deserialize, Serialize};
use tokio::{
    runtime::{Builder, Runtime},
    sync::{Mutex, RwLock},
};
use tower::ServiceExt;

/// How often each part runs. What the longer run takes beyond the shorter one is the part without its preparations.
const TIMES: [u32; 2] = [512, 2048];

/// How often the allocations are counted.
const RUNS: u32 = 9;

/// A cost may grow by this without a failure, in percent.
const TOLERANCE: f64 = 3.0;

/// And by so many allocations: some of them happen only now and then.
const HALF: f64 = 0.5;

const INSTALL: &str = "apt-get update && apt-get install -y valgrind";

/// Something that is counted, and how to do it so many times.
struct Part {
    name: &'static str,
    run: fn(&World, u32),
}

/// What the parts run in.
struct World {
    runtime: Runtime,
    /// Redis servers of this bench, which are not counted.
    urls: Vec<String>,
}

/// Tells a counted process where the servers are.
const URLS: &str = "REDLOCK_BENCH_URLS";

/// Locks of a batch.
const BATCH: u32 = 64;

const fn part(name: &'static str, run: fn(&World, u32)) -> Part {
    Part { name, run }
}

/// The first is the yardstick of the others.
const PARTS: [Part; 13] = [
    part("tokio::sync::Mutex, lock and unlock", mutex),
    part("core: a lease of five nodes, acquired and released", lease),
    part("a lock without contention, five nodes in memory", lone),
    part("the same, two keys", two_keys),
    part("a handover to the next task", handover),
    part("joining a queue and leaving it", give_up),
    part("a lock over five Redis servers", over_redis),
    part("each of 64 locks in a batch over them", batches),
    part("tokio::sync::RwLock, read and unlock", rw_lock),
    part("a reader that joins another", joined),
    part("a reader over five Redis servers", reader_over_redis),
    part("axum: a handler alone", handler),
    part("axum: a handler behind a layer", layer),
];

/// What one run of a part takes.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Cost {
    /// Not known without valgrind.
    instructions: Option<f64>,
    allocations: f64,
}

fn main() -> ExitCode {
    let arguments = env::args().skip(1).filter(|argument| argument != "--bench");
    let arguments: Vec<_> = arguments.collect();
    if let [flag, part, times] = &arguments[..]
        && flag == "--run"
    {
        let part = PARTS.iter().find(|known| known.name == part);
        let times = times.parse().expect("a number");
        let urls = env::var(URLS).expect("servers");
        let world = World::new(urls.split(' ').map(str::to_owned).collect());
        (part.expect("a part").run)(&world, times);
        return ExitCode::SUCCESS;
    }
    let servers = RedisServers::spawn(5).expect("five servers");
    let world = World::new(servers.urls());
    let costs = PARTS.map(|part| (part.name, part.cost(&world)));
    let known = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/cost.json");
    if arguments.iter().any(|argument| argument == "--renew") {
        let costs: BTreeMap<_, _> = costs.into_iter().collect();
        let text = serde_json::to_string_pretty(&costs).expect("costs") + "\n";
        fs::write(known, text).expect("cost.json can be written");
        return ExitCode::SUCCESS;
    }
    let earlier = fs::read_to_string(known).unwrap_or_else(|_| "{}".into());
    let earlier: BTreeMap<String, Cost> = serde_json::from_str(&earlier).expect("costs");
    compare(&costs, &earlier)
}

/// Prints the costs beside the earlier ones. Fails if one has grown.
fn compare(costs: &[(&str, Cost)], earlier: &BTreeMap<String, Cost>) -> ExitCode {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    let columns = "|instructions|of the mutex|before|allocations|before";
    table.set_header(columns.split('|'));
    let mutex = costs[0].1.instructions;
    let mut grown = Vec::new();
    for (name, cost) in costs {
        let before = earlier.get(*name).copied();
        let count = |count: Option<f64>| count.map_or("NOT RUN".into(), |it| format!("{it:.0}"));
        let ratio = cost.instructions.zip(mutex).map(|(own, mutex)| own / mutex);
        table.add_row([
            (*name).to_owned(),
            count(cost.instructions),
            ratio.map_or("NOT RUN".into(), |ratio| format!("{ratio:.1}")),
            count(before.and_then(|before| before.instructions)),
            format!("{:.1}", cost.allocations),
            before.map_or("-".into(), |it| format!("{:.1}", it.allocations)),
        ]);
        let Some(before) = before else { continue };
        let instructions = before.instructions.zip(cost.instructions);
        let allocations = Some((before.allocations, cost.allocations));
        for (what, pair, spare) in [
            ("instructions", instructions, 0.0),
            ("allocations", allocations, HALF),
        ] {
            if let Some((before, now)) = pair
                && now > before * (1.0 + TOLERANCE / 100.0) + spare
            {
                grown.push(format!("{name}: {now:.1} {what}, before {before:.1}"));
            }
        }
    }
    println!("{table}");
    if mutex.is_none() {
        println!("NOT RUN: instructions need valgrind ({INSTALL})");
    }
    for line in &grown {
        println!("more than {TOLERANCE} % more: {line}");
    }
    ExitCode::from(u8::from(!grown.is_empty()))
}

impl Part {
    fn cost(&self, world: &World) -> Cost {
        (self.run)(world, TIMES[0]);
        let [fewer, more] = TIMES.map(|times| {
            let count = |_| allocation_counter::measure(|| (self.run)(world, times)).count_total;
            // Over servers they depend on how many answers come at once. The least of several runs is nearly the same
            // each time.
            (0..RUNS).map(count).min().unwrap_or_default() as f64
        });
        let instructions = TIMES.map(|times| self.instructions(world, times));
        let per_run = |[fewer, more]: [f64; 2]| (more - fewer) / f64::from(TIMES[1] - TIMES[0]);
        Cost {
            instructions: match instructions {
                [Some(fewer), Some(more)] => Some(per_run([fewer, more])),
                _ => None,
            },
            allocations: per_run([fewer, more]),
        }
    }

    /// Counts the instructions of a whole process. `None` without valgrind.
    fn instructions(&self, world: &World, times: u32) -> Option<f64> {
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
        valgrind.arg(env::current_exe().expect("this program"));
        valgrind.args(["--run", self.name, &times.to_string()]);
        valgrind.env(URLS, world.urls.join(" "));
        let output = valgrind.output().ok()?;
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
        let line = text.lines().find(|line| line.contains("Collected"))?;
        line.split(':').next_back()?.trim().parse().ok()
    }
}

impl World {
    fn new(urls: Vec<String>) -> Self {
        let mut builder = Builder::new_current_thread();
        let runtime = builder.enable_all().build().expect("a runtime");
        Self { runtime, urls }
    }

    /// Runs in a task, as a service does: the future in `block_on` itself runs only when no task is ready.
    fn run(&self, work: impl Future<Output = ()> + Send + 'static) {
        let task = self.runtime.spawn(work);
        self.runtime.block_on(task).expect("no panic");
    }

    /// A client of the servers that is patient: valgrind makes it slow.
    fn client_of_servers(&self) -> impl Future<Output = Redlock> + use<> {
        let builder = Redlock::builder()
            .nodes(&self.urls)
            .ttl(Duration::from_secs(60));
        let builder = builder.node_timeout(Duration::from_secs(20)).random_seed(7);
        // The id of this process would have another length in each run.
        let builder = builder.client_name("cost");
        let builder = builder.durability(Durability::AssumedForTests);
        async { builder.build().await.expect("five servers") }
    }
}

/// A client whose random choices are the same in each run.
async fn client() -> Redlock {
    let builder = Redlock::builder().embedded().random_seed(7);
    let builder = builder.client_name("cost");
    let redlock = builder.wait(Duration::from_secs(60)).build().await;
    redlock.expect("nodes in memory")
}

fn mutex(world: &World, times: u32) {
    world.run(async move {
        let mutex = Mutex::new(());
        for _ in 0..times {
            drop(mutex.lock().await);
        }
    });
}

fn lease(_: &World, times: u32) {
    let ttl = Ttl::new(Duration::from_secs(10)).expect("a ttl");
    let validity = Validity::new(ttl, Drift::default()).expect("longer than its drift");
    let delay = Duration::from_millis(20)..=Duration::from_millis(200);
    let quorum = Quorum::majority(5).expect("five");
    let retry = RetrySchedule::new(delay).expect("a range");
    let interval = KeepAlive::default_interval(validity);
    let keep_alive = KeepAlive::every(interval, Duration::from_secs(60), validity);
    let config = LeaseConfig::new(quorum, validity, retry, keep_alive.expect("shorter"));
    let config = Arc::new(config);
    let now = Timestamp::ZERO;
    for nonce in 0..times {
        let mut lease = Lease::new(Arc::clone(&config), Nonce::new(nonce.into()));
        lease.acquire(now, Timestamp::MAX);
        answer(&mut lease, now);
        assert!(lease.valid_until(now).is_some());
        lease.release(now);
        answer(&mut lease, now);
        assert!(matches!(lease.status(), Status::Ended(_)));
    }
}

fn answer(lease: &mut Lease, now: Timestamp) {
    while let Some(transmit) = lease.poll_transmit() {
        for node in transmit.nodes.iter() {
            let always = Eligibility::ALWAYS;
            lease.handle_reply(now, transmit.round, node, Reply::Granted, always);
        }
    }
    while lease.poll_event().is_some() {}
}

fn lone(world: &World, times: u32) {
    world.run(async move {
        one_after_the_other(client().await, times).await;
    });
}

async fn one_after_the_other(redlock: Redlock, times: u32) {
    for _ in 0..times {
        let guard = redlock.lock("k").await.expect("a free lock");
        guard.release().await;
    }
}

fn two_keys(world: &World, times: u32) {
    world.run(async move {
        let redlock = client().await;
        for _ in 0..times {
            let guard = redlock.lock_all(["a", "b"]).await.expect("free locks");
            guard.release().await;
        }
    });
}

/// Two tasks pass the lock to each other.
fn handover(world: &World, times: u32) {
    world.run(async move {
        let redlock = client().await;
        let redlock = Arc::new(redlock);
        let tasks = [(); 2].map(|()| {
            let redlock = Arc::clone(&redlock);
            tokio::spawn(async move {
                for _ in 0..times / 2 {
                    let guard = redlock.lock("k").await.expect("its turn");
                    // The other task waits by then.
                    tokio::task::yield_now().await;
                    drop(guard);
                }
            })
        });
        for task in tasks {
            task.await.expect("no panic");
        }
    });
}

fn give_up(world: &World, times: u32) {
    world.run(async move {
        let redlock = client().await;
        let guard = redlock.lock("k").await.expect("a free lock");
        for _ in 0..times {
            let waiting = pin!(redlock.lock("k").into_future());
            assert!(poll!(waiting).is_pending());
        }
        guard.release().await;
    });
}

fn rw_lock(world: &World, times: u32) {
    world.run(async move {
        let lock = RwLock::new(());
        let _other = lock.read().await;
        for _ in 0..times {
            drop(lock.read().await);
        }
    });
}

fn joined(world: &World, times: u32) {
    world.run(async move {
        let builder = Redlock::builder().embedded().random_seed(7);
        let open = builder.handover_for(Duration::from_secs(3600));
        let lock = open.build().await.expect("nodes in memory").rw_lock("k");
        let _other = lock.read().await.expect("a free lock");
        for _ in 0..times {
            drop(lock.read().await.expect("it joins"));
        }
    });
}

fn reader_over_redis(world: &World, times: u32) {
    let client = world.client_of_servers();
    world.run(async move {
        let lock = client.await.rw_lock("r");
        for _ in 0..times {
            let guard = lock.read().await.expect("a free lock");
            guard.release().await;
        }
    });
}

fn over_redis(world: &World, times: u32) {
    let client = world.client_of_servers();
    world.run(async move {
        one_after_the_other(client.await, times).await;
    });
}

fn batches(world: &World, times: u32) {
    let client = world.client_of_servers();
    world.run(async move {
        let redlock = client.await;
        let keys: Vec<_> = (0..BATCH).map(|key| format!("k{key}")).collect();
        for _ in 0..times / BATCH {
            let locks = keys.iter().map(|key| redlock.lock(key).into_future());
            let guards = join_all(locks).await.into_iter();
            join_all(guards.map(|it| it.expect("a free lock").release())).await;
        }
    });
}

fn handler(world: &World, times: u32) {
    world.run(async move {
        requests(Router::new().route("/", post(async || "done")), times).await;
    });
}

fn layer(world: &World, times: u32) {
    world.run(async move {
        let layer = LockLayer::new(client().await, |_: &Request| "k");
        let app = Router::new().route("/", post(async || "done"));
        requests(app.route_layer(layer), times).await;
    });
}

async fn requests(app: Router, times: u32) {
    // `axum::serve` does so too. Otherwise axum builds the routes and their layers for each request.
    let app = app.with_state(());
    for _ in 0..times {
        let request = axum::http::Request::post("/").body(Body::empty());
        let response = app.clone().oneshot(request.expect("a request"));
        let response = response.await.expect("infallible");
        assert!(response.status().is_success(), "{}", response.status());
        response.into_body().collect().await.expect("infallible");
    }
}
