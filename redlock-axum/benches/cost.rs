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
use redlock_kit::RedisServers;
use redlock_tokio::{Durability, Lock, Redlock, RedlockBuilder};
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

/// Tells a counted process where the servers are.
const URLS: &str = "REDLOCK_BENCH_URLS";

/// Locks of a batch.
const BATCH: u32 = 64;

/// Does something so many times.
type Part = fn(&World, u32);

/// The first is the yardstick of the others.
const PARTS: [(&str, Part); 15] = [
    ("tokio::sync::Mutex, lock and unlock", mutex),
    ("tokio::sync::Mutex, to the next task", contended_mutex),
    ("joining a queue and leaving it", give_up),
    ("a handover to the next task", handover),
    (
        "a lock without contention, five nodes in memory",
        |world, times| world.cycles(in_memory(), times, |it| it.lock("k")),
    ),
    ("the same, two keys", |world, times| {
        world.cycles(in_memory(), times, |it| it.lock_all(["a", "b"]));
    }),
    ("a lock over five Redis servers", |world, times| {
        world.cycles(world.over_servers(), times, |it| it.lock("k"));
    }),
    ("each of 64 locks in a batch over them", batches),
    ("tokio::sync::RwLock, read and unlock", rw_lock),
    ("a reader that joins another", joined),
    ("a reader over five Redis servers", |world, times| {
        world.cycles(world.over_servers(), times, |it| it.rw_lock("r").read());
    }),
    ("axum: a handler alone", |world, times| {
        world.requests(times, async || idle());
    }),
    ("axum: a handler with a guard", |world, times| {
        world.requests(times, async || {
            let redlock = connect(in_memory()).await;
            let handler = async move || {
                let _guard = redlock.lock("k").await.expect("a free lock");
            };
            Router::new().route("/", post(handler))
        });
    }),
    ("axum: a handler behind a layer", |world, times| {
        world.requests(times, async || idle().route_layer(layer().await));
    }),
    (
        "axum: the same, with cancel_on_disconnect",
        |world, times| {
            world.requests(times, async || {
                idle().route_layer(layer().await.cancel_on_disconnect())
            });
        },
    ),
];

/// What the parts run in.
struct World {
    runtime: Runtime,
    /// Redis servers of this bench, which are not counted.
    urls: Vec<String>,
}

/// What one run of a part takes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Cost {
    instructions: f64,
    allocations: f64,
}

fn main() -> ExitCode {
    let arguments = env::args().skip(1).filter(|argument| argument != "--bench");
    let arguments: Vec<_> = arguments.collect();
    if let [flag, part, times] = &arguments[..]
        && flag == "--run"
    {
        let part = PARTS.iter().find(|(name, _)| name == part);
        let times = times.parse().expect("a number");
        let urls = env::var(URLS).expect("servers");
        let world = World::new(urls.split(' ').map(str::to_owned).collect());
        (part.expect("a part").1)(&world, times);
        return ExitCode::SUCCESS;
    }
    let servers = RedisServers::spawn(5).expect("five servers");
    let world = World::new(servers.urls());
    let costs = PARTS.map(|(name, part)| (name, world.cost(name, part)));
    let known = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/cost.json");
    if arguments.iter().any(|argument| argument == "--renew") {
        let costs: BTreeMap<_, _> = costs.into_iter().collect();
        let text = serde_json::to_string_pretty(&costs).expect("costs") + "\n";
        fs::write(known, text).expect("cost.json can be written");
        return ExitCode::SUCCESS;
    }
    let earlier = fs::read_to_string(known).expect("cost.json");
    compare(&costs, &serde_json::from_str(&earlier).expect("costs"))
}

/// Prints the costs beside the earlier ones. Fails if one has grown.
fn compare(costs: &[(&str, Cost)], earlier: &BTreeMap<String, Cost>) -> ExitCode {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    let columns = "|instructions|of the mutex|before|allocations|before";
    table.set_header(columns.split('|'));
    let mutex = costs[0].1.instructions;
    let mut grown = Vec::new();
    for &(name, cost) in costs {
        let before = earlier.get(name).unwrap_or(&cost);
        table.add_row([
            name.to_owned(),
            format!("{:.0}", cost.instructions),
            format!("{:.1}", cost.instructions / mutex),
            format!("{:.0}", before.instructions),
            format!("{:.1}", cost.allocations),
            format!("{:.1}", before.allocations),
        ]);
        for (what, before, now, spare) in [
            ("instructions", before.instructions, cost.instructions, 0.0),
            ("allocations", before.allocations, cost.allocations, HALF),
        ] {
            if now > before * (1.0 + TOLERANCE / 100.0) + spare {
                grown.push(format!("{name}: {now:.1} {what}, before {before:.1}"));
            }
        }
    }
    println!("{table}");
    for line in &grown {
        println!("more than {TOLERANCE} % more: {line}");
    }
    ExitCode::from(u8::from(!grown.is_empty()))
}

impl World {
    fn new(urls: Vec<String>) -> Self {
        let mut builder = Builder::new_current_thread();
        let runtime = builder.enable_all().build().expect("a runtime");
        Self { runtime, urls }
    }

    fn cost(&self, name: &str, part: Part) -> Cost {
        part(self, TIMES[0]);
        let allocations = TIMES.map(|times| {
            let count = |_| allocation_counter::measure(|| part(self, times)).count_total;
            // Over servers they depend on how many answers come at once. The least of several runs is nearly the same
            // each time.
            (0..RUNS).map(count).min().unwrap_or_default() as f64
        });
        let instructions = TIMES.map(|times| self.instructions(name, times));
        let per_run = |[fewer, more]: [f64; 2]| (more - fewer) / f64::from(TIMES[1] - TIMES[0]);
        Cost {
            instructions: per_run(instructions),
            allocations: per_run(allocations),
        }
    }

    /// Counts the instructions of a whole process.
    fn instructions(&self, part: &str, times: u32) -> f64 {
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
        valgrind.arg(env::current_exe().expect("this program"));
        valgrind.args(["--run", part, &times.to_string()]);
        valgrind.env(URLS, self.urls.join(" "));
        let output = valgrind.output();
        let output = output.expect("valgrind: apt-get update && apt-get install -y valgrind");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
        let line = text.lines().find(|line| line.contains("Collected"));
        let count = line.and_then(|line| line.split(':').next_back()?.trim().parse().ok());
        count.expect("the instructions that were collected")
    }

    /// Runs in a task, as a service does: the future in `block_on` itself runs only when no task is ready.
    fn run(&self, work: impl Future<Output = ()> + Send + 'static) {
        let task = self.runtime.spawn(work);
        self.runtime.block_on(task).expect("no panic");
    }

    /// Acquires and releases locks, one after the other.
    fn cycles(&self, client: RedlockBuilder, times: u32, lock: fn(&Redlock) -> Lock) {
        self.run(async move {
            let redlock = connect(client).await;
            for _ in 0..times {
                let guard = lock(&redlock).await.expect("a free lock");
                guard.release().await;
            }
        });
    }

    /// Sends requests to a service, one after the other.
    fn requests<F>(&self, times: u32, app: impl FnOnce() -> F)
    where
        F: Future<Output = Router> + Send + 'static,
    {
        let app = app();
        self.run(async move {
            // `axum::serve` does so too. Otherwise axum builds the routes and their layers for each request.
            let app = app.await.with_state(());
            for _ in 0..times {
                let request = axum::http::Request::post("/").body(Body::empty());
                let response = app.clone().oneshot(request.expect("a request"));
                let response = response.await.expect("infallible");
                assert!(response.status().is_success(), "{}", response.status());
                response.into_body().collect().await.expect("infallible");
            }
        });
    }

    /// A client of the servers that is patient: valgrind makes it slow.
    fn over_servers(&self) -> RedlockBuilder {
        let builder = Redlock::builder().nodes(&self.urls);
        let builder = builder.ttl(Duration::from_secs(60));
        let builder = builder.node_timeout(Duration::from_secs(20));
        builder.durability(Durability::AssumedForTests)
    }
}

fn in_memory() -> RedlockBuilder {
    let builder = Redlock::builder().embedded();
    builder.wait(Duration::from_secs(60))
}

/// Makes a client whose random choices are the same in each run. The id of the process, which clients have in their
/// names, would have another length.
async fn connect(builder: RedlockBuilder) -> Redlock {
    // Under callgrind everything takes some thirty times as long, and so does a streak.
    let builder = builder.handover_for(Duration::from_secs(1));
    let builder = builder.random_seed(7).client_name("cost");
    builder.build().await.expect("five nodes")
}

fn idle() -> Router {
    Router::new().route("/", post(async || "done"))
}

async fn layer() -> LockLayer<fn(&Request) -> &'static str> {
    LockLayer::new(connect(in_memory()).await, |_| "k")
}

fn mutex(world: &World, times: u32) {
    world.run(async move {
        let mutex = Mutex::new(());
        for _ in 0..times {
            drop(mutex.lock().await);
        }
    });
}

fn contended_mutex(world: &World, times: u32) {
    let mutex = Arc::new(Mutex::new(()));
    world.run(pass_on(times, move || Arc::clone(&mutex).lock_owned()));
}

fn handover(world: &World, times: u32) {
    world.run(async move {
        let redlock = connect(in_memory()).await;
        pass_on(times, move || redlock.lock("k").into_future()).await;
    });
}

/// Two tasks pass a lock to each other.
async fn pass_on<F>(times: u32, lock: impl Fn() -> F + Clone + Send + 'static)
where
    F: Future<Output: Send> + Send,
{
    let tasks = [lock.clone(), lock].map(|lock| {
        tokio::spawn(async move {
            for _ in 0..times / 2 {
                let guard = lock().await;
                // The other task waits by then.
                tokio::task::yield_now().await;
                drop(guard);
            }
        })
    });
    for task in tasks {
        task.await.expect("no panic");
    }
}

fn give_up(world: &World, times: u32) {
    world.run(async move {
        let redlock = connect(in_memory()).await;
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
        let open = in_memory().handover_for(Duration::from_secs(3600));
        let lock = connect(open).await.rw_lock("k");
        let _other = lock.read().await.expect("a free lock");
        for _ in 0..times {
            drop(lock.read().await.expect("it joins"));
        }
    });
}

fn batches(world: &World, times: u32) {
    let client = world.over_servers();
    world.run(async move {
        let redlock = connect(client).await;
        let keys: Vec<_> = (0..BATCH).map(|key| format!("k{key}")).collect();
        for _ in 0..times / BATCH {
            let locks = keys.iter().map(|key| redlock.lock(key).into_future());
            let guards = join_all(locks).await.into_iter();
            join_all(guards.map(|it| it.expect("a free lock").release())).await;
        }
    });
}
