//! A `Redlock` with three nodes whose lanes, timers and callers run as tasks of shuttle.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use redlock_core::{Quorum, Ttl};
use shuttle::{future, thread};
use tokio::sync::mpsc::{self, UnboundedSender};

use super::{Time, wire};
use crate::{
    Acquisition, Clock, Key, Lock, LockError, LockFuture, LockGuard, MemoryNode, Observer, Redlock,
    client_name::ClientName,
    engine::{
        lane::stand_in::{Order, StandIn},
        requests::Link,
    },
    node::Member,
};

const NODES: usize = 3;

/// How long a lock lives that is not renewed.
pub(super) const TTL: Duration = Duration::from_secs(10);

/// One process and its nodes.
pub(super) struct World {
    pub(super) redlock: Redlock,
    pub(super) nodes: Vec<MemoryNode>,
    pub(super) events: Events,
    pub(super) lanes: Vec<future::JoinHandle<()>>,
    pub(super) timers: future::JoinHandle<()>,
    servers: Vec<future::JoinHandle<()>>,
    held: Arc<Mutex<HashSet<Key>>>,
}

pub(super) type Visit = thread::JoinHandle<Result<Acquisition, LockError>>;

impl World {
    pub(super) fn new() -> Self {
        Self::observed(None::<fn(&crate::events::Event)>)
    }

    pub(super) fn observed(observer: Option<impl Observer>) -> Self {
        let time = Arc::<Time>::default();
        let clock = Clock::explored(Arc::clone(&time));
        let nodes = Vec::from([0; NODES].map(|_| MemoryNode::with_clock(clock.clone())));
        let quorum = Quorum::majority(NODES).expect("there are nodes");
        let me = (Member(1), ClientName::NONE);
        let (mut lanes, mut servers, mut orders) = (Vec::new(), Vec::new(), Vec::new());
        let mut settings = Redlock::builder()
            .clock(clock.clone())
            .random_seed(1)
            .ttl(TTL)
            .max_waiters_total(usize::MAX)
            .node_timeout(Duration::ZERO);
        if let Some(observer) = observer {
            settings = settings.observer(observer);
        }
        let engine = settings.engine(quorum);
        let client = Arc::new_cyclic(|client| {
            let mut handles = Vec::new();
            for (id, node) in quorum.all().iter().zip(&nodes) {
                let (wire, server) = wire::connect(node);
                let link = Link::new(client, &engine, id, me.0, &me.1);
                let (orderer, obeyed) = mpsc::unbounded_channel();
                let (session, clock) = (Box::new(wire), clock.clone());
                let (handle, lane) = StandIn::new(id, "node", clock, session, obeyed, link);
                handles.push(handle);
                lanes.push(lane.run());
                servers.push(future::spawn(server));
                orders.push(orderer);
            }
            settings.client(quorum, Ttl::MAX, None, (handles, engine), me.clone())
        });
        let timers = client.timers.run(Arc::downgrade(&client), clock);
        Self {
            redlock: Redlock::new(client),
            nodes,
            events: Events { time, orders },
            lanes: lanes.into_iter().map(future::spawn).collect(),
            timers: future::spawn(timers),
            servers,
            held: Arc::default(),
        }
    }

    pub(super) fn lock(&self, key: &str) -> Lock {
        self.redlock.lock(key)
    }

    /// Takes a lock on a thread of its own, and drops the guard. Nobody else may have the lock meanwhile.
    pub(super) fn visit(&self, lock: Lock) -> Visit {
        let held = Arc::clone(&self.held);
        thread::spawn(move || {
            let guard = future::block_on(lock.into_future())?;
            let key = guard.key().clone();
            let is_first = held.lock().unwrap().insert(key.clone());
            assert!(is_first, "two holders at once");
            let acquisition = guard.acquisition();
            held.lock().unwrap().remove(&key);
            drop(guard);
            Ok(acquisition)
        })
    }

    /// Takes a lock on this thread. Nothing else wants it.
    pub(super) fn hold(&self, lock: Lock) -> LockGuard {
        future::block_on(lock.into_future()).expect("the lock is free")
    }

    /// Starts to wait for a lock.
    pub(super) fn wait(&self, lock: Lock) -> LockFuture {
        let mut lock = lock.into_future();
        assert!((&mut lock).now_or_never().is_none(), "the lock is taken");
        lock
    }

    /// Repeats something on a thread of its own. Returns what stops it.
    pub(super) fn repeat(&self, step: fn(&Events)) -> impl FnOnce() + use<> {
        let is_over = Arc::<AtomicBool>::default();
        let until = Arc::clone(&is_over);
        let events = self.events.clone();
        let thread = thread::spawn(move || {
            while !until.load(Ordering::Relaxed) {
                step(&events);
                thread::yield_now();
            }
        });
        move || {
            is_over.store(true, Ordering::Relaxed);
            thread.join().unwrap();
        }
    }

    /// Waits until the nodes are owed nothing, and ends. A lock that its last holder has released may still wait for the
    /// answer to whether other processes come next, and is released then.
    pub(super) fn end(self) {
        self.events.retry();
        while self.redlock.client().held_count() > 0 {
            thread::yield_now();
        }
        for lane in &self.redlock.client().lanes {
            future::block_on(lane.drain());
        }
        expect_no_leases(&self.redlock);
        self.end_by_itself();
    }

    /// Drops the last handle, and waits for the end of all tasks. No key must be left on the nodes.
    pub(super) fn end_by_itself(self) {
        drop(self.redlock);
        let tasks = self.lanes.into_iter().chain([self.timers]);
        for task in tasks.chain(self.servers) {
            future::block_on(task).expect("no task was aborted");
        }
        let is_free = self.nodes.iter().all(MemoryNode::is_empty);
        assert!(is_free, "a key is neither held nor released");
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
    let queue = client.queue();
    assert_eq!((queue.keys, queue.waiting), (0, 0), "left in the queue");
    let deadlines = client.engine.lock().deadlines.count();
    assert_eq!(deadlines, 0, "deadlines are left");
}

/// What happens to a process from outside.
#[derive(Clone)]
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
        // An error means that the lane has ended.
        let _ = self.orders[node].send(Order::TimeOut);
    }

    /// Lets all lanes deliver what they owe.
    pub(super) fn retry(&self) {
        for orders in &self.orders {
            let _ = orders.send(Order::Retry);
        }
    }
}
