//! A `Redlock` with three nodes whose lanes, timers and callers run as tasks of shuttle.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Waker},
    time::Duration,
};

use redlock_core::{Eligibility, Quorum, Timestamp, Ttl, Withdrawal};
use shuttle::{future, thread};
use tokio::sync::mpsc::{self, UnboundedSender};

use super::{Time, referee::Referee, wire};
use crate::{
    Clock, Lock, LockError, LockFuture, LockGuard, LockOptions, MemoryNode, Redlock,
    client_name::ClientName,
    engine::{
        lane::stand_in::{Order, StandIn},
        lease_cell::listeners,
        line::Lines,
        queue::{Queue, QueueStatus},
        timers::Timers,
    },
    node::Session,
    random::Random,
};

pub(super) const NODES: usize = 3;

/// How long a lock lives that is not renewed.
pub(super) const TTL: Duration = Duration::from_secs(10);

/// Returns options with which nothing expires while time passes.
pub(super) fn patient() -> LockOptions {
    let hour = Duration::from_secs(3600);
    LockOptions::new().ttl(hour).wait(hour)
}

/// One process and its nodes.
pub(super) struct World {
    pub(super) redlock: Redlock,
    pub(super) nodes: Vec<MemoryNode>,
    pub(super) referee: Referee,
    pub(super) events: Events,
    pub(super) lanes: Vec<future::JoinHandle<()>>,
    pub(super) timers: future::JoinHandle<()>,
    servers: Vec<future::JoinHandle<()>>,
}

impl World {
    pub(super) fn new() -> Self {
        let time = Arc::new(Time::new());
        let clock = Clock::explored(Arc::clone(&time));
        let nodes = [0; NODES].map(|_| MemoryNode::with_clock(clock.clone()));
        Self::over(1, time, nodes.into(), Referee::default())
    }

    /// Starts another client of the same nodes.
    pub(super) fn beside(other: &Self) -> Self {
        let (time, nodes) = (Arc::clone(&other.events.time), other.nodes.clone());
        Self::over(2, time, nodes, other.referee.clone())
    }

    fn over(seed: u64, time: Arc<Time>, nodes: Vec<MemoryNode>, referee: Referee) -> Self {
        let clock = Clock::explored(Arc::clone(&time));
        let queue = Arc::new(Queue::new(usize::MAX, &Random::seeded(seed)));
        let timers = Timers::new(clock.clone());
        let quorum = Quorum::majority(NODES).expect("there are nodes");
        let lines = Lines::new(&Random::seeded(seed), quorum, ClientName::NONE);
        let lines = Arc::new(lines);
        let (mut handles, mut lanes) = (Vec::new(), Vec::new());
        let (mut servers, mut orders) = (Vec::new(), Vec::new());
        for (id, node) in quorum.all().iter().zip(&nodes) {
            let (mut wire, server) = wire::connect(node);
            let listeners = listeners(id, &queue, &timers, &lines);
            wire.watch(listeners.freed_notifier.clone());
            let (orderer, obeyed) = mpsc::unbounded_channel();
            let address = format!("node-{}", id.index());
            let session = Box::new(wire);
            let (handle, lane) =
                StandIn::new(id, &address, clock.clone(), session, obeyed, listeners);
            handles.push(handle);
            lanes.push(future::spawn(lane.run()));
            servers.push(future::spawn(server));
            orders.push(orderer);
        }
        let running = future::spawn(Arc::clone(&timers).run());
        let settings = Redlock::builder()
            .clock(clock)
            .random_seed(seed)
            .ttl(TTL)
            .node_timeout(Duration::ZERO);
        let redlock = Redlock::new(settings.client(Ttl::MAX, None, handles, timers, queue, lines));
        Self {
            redlock,
            nodes,
            referee,
            events: Events { time, orders },
            lanes,
            timers: running,
            servers,
        }
    }

    // What callers do, each on a thread of its own.

    /// Returns the request for a key.
    pub(super) fn lock(&self, key: &str) -> Lock {
        self.redlock.lock(key)
    }

    /// Takes a lock that nobody else may have, works, and drops the guard. Returns whether it got the lock.
    pub(super) fn visit(&self, lock: Lock) -> thread::JoinHandle<Visit> {
        let referee = self.referee.clone();
        thread::spawn(move || referee.visit(future::block_on(lock.into_future())))
    }

    /// Takes a lock on this thread. Nothing else wants it.
    pub(super) fn hold(&self, lock: Lock) -> LockGuard {
        future::block_on(lock.into_future()).expect("the lock is free")
    }

    /// Starts to wait for a lock.
    pub(super) fn wait(&self, lock: Lock) -> LockFuture {
        let mut lock = lock.into_future();
        let pending = Pin::new(&mut lock).poll(&mut Context::from_waker(Waker::noop()));
        assert!(pending.is_pending(), "the lock is taken");
        lock
    }

    // What happens to the process.

    /// Lets something happen on a thread of its own.
    pub(super) fn on_thread(
        &self,
        happens: impl FnOnce(&Events) + Send + 'static,
    ) -> thread::JoinHandle<()> {
        let events = self.events.clone();
        thread::spawn(move || happens(&events))
    }

    /// Lets time pass on a thread of its own, in steps of a few milliseconds.
    pub(super) fn run_time(&self) -> RunningTime {
        self.repeat(|events| events.advance(Duration::from_millis(25)))
    }

    fn repeat(&self, step: fn(&Events)) -> RunningTime {
        let is_over = Arc::<AtomicBool>::default();
        let until = Arc::clone(&is_over);
        let thread = self.on_thread(move |events| {
            while !until.load(Ordering::Relaxed) {
                step(events);
                thread::yield_now();
            }
        });
        RunningTime { thread, is_over }
    }

    // The end.

    /// Waits until the nodes are owed nothing. A lock that its last holder has released may still wait for the answer
    /// to whether other processes come next, and is released then.
    pub(super) fn drain(&self) {
        self.events.retry();
        while self.redlock.client().queue.turns().any(|it| it.is_held()) {
            thread::yield_now();
        }
        for lane in &self.redlock.client().lanes {
            future::block_on(lane.drain());
        }
    }

    /// Drops the last handle, and waits for the end of all tasks. Each release must have been delivered, and nothing
    /// must be left of any lock.
    pub(super) fn end(self) {
        self.drain();
        let lanes = &self.redlock.client().lanes;
        let undelivered: usize = lanes.iter().map(|it| it.counters.undelivered()).sum();
        assert_eq!(undelivered, 0, "releases that were not delivered");
        self.end_drained();
    }

    /// Does the same after all keys may have expired. A release that came too late for its key is not delivered.
    pub(super) fn end_after_expiry(self) {
        let recovery = self.repeat(|events| {
            events.advance(TTL / 2);
            events.retry();
        });
        self.drain();
        recovery.stop();
        self.end_drained();
    }

    fn end_drained(self) {
        for node in &self.nodes {
            assert!(node.is_empty(), "a key is neither held nor released");
        }
        expect_no_leases(&self.redlock);
        drop(self.redlock);
        drop(self.events);
        let tasks = self
            .lanes
            .into_iter()
            .chain([self.timers])
            .chain(self.servers);
        for task in tasks {
            future::block_on(task).expect("no task was aborted");
        }
    }

    /// Ends what is left of the runtime. No lease must be in the queue or have a deadline. Keys may be left on the
    /// nodes, where they expire.
    pub(super) fn end_with_the_runtime(self) {
        for task in self.lanes.into_iter().chain([self.timers]) {
            task.abort();
            // An error means that it was aborted in time.
            let _ = future::block_on(task);
        }
        expect_no_leases(&self.redlock);
    }
}

/// Checks that no lease is in the queue or has a deadline.
fn expect_no_leases(redlock: &Redlock) {
    let client = redlock.client();
    let nothing = QueueStatus {
        keys: 0,
        waiting: 0,
    };
    assert_eq!(client.queue.status(), nothing, "left in the queue");
    // The timers forget the leases that they have called back when they run again.
    for _ in 0..1000 {
        if client.timers.all().next().is_none() {
            return;
        }
        thread::yield_now();
    }
    panic!(
        "deadlines are left: {:?}",
        client.timers.all().collect::<Vec<_>>()
    );
}

/// How a visit ended.
pub(super) type Visit = Result<Handed, LockError>;

/// Where a lock came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handed {
    ByNodes,
    Over,
}

/// What happens to a process from outside.
#[derive(Clone, Debug)]
pub(super) struct Events {
    time: Arc<Time>,
    orders: Vec<UnboundedSender<Order>>,
}

impl Events {
    pub(super) fn advance(&self, by: Duration) {
        self.time.advance(by);
    }

    /// Lets a lane find that its node is late.
    pub(super) fn time_out(&self, node: usize) {
        self.order(node, Order::TimeOut);
    }

    /// Lets a lane find that its node may have forgotten all keys.
    pub(super) fn withdraw(&self, node: usize) {
        let quarantined_until = self.time.now().saturating_add(TTL);
        self.order(
            node,
            Order::Withdraw(Withdrawal {
                since: Timestamp::ZERO,
                eligibility: Eligibility::since(quarantined_until),
            }),
        );
    }

    /// Lets all lanes deliver what they owe.
    fn retry(&self) {
        for node in 0..NODES {
            self.order(node, Order::Retry);
        }
    }

    fn order(&self, node: usize, order: Order) {
        // An error means that the lane has ended.
        let _ = self.orders[node].send(order);
    }
}

/// Time that passes until it is stopped.
#[must_use]
pub(super) struct RunningTime {
    thread: thread::JoinHandle<()>,
    is_over: Arc<AtomicBool>,
}

impl RunningTime {
    pub(super) fn stop(self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}
