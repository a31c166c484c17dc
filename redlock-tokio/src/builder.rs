use std::{
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use deadpool_redis::Pool;
use redlock_core::{NodeId, Quarantine, Quorum, QuorumError, Ttl, TtlError};
use thiserror::Error;
use tokio::{runtime::Handle, sync::oneshot};

use crate::{
    Clock, Key, LockOptions, MemoryNode, NodeError, NodeReport, NodeReports, Objection,
    OptionsError, Redlock,
    engine::{
        lane::{
            Lane, LaneLimits, Withdraw,
            vetting::{RestartRule, Rules, Vetting},
        },
        lease_cell::LeaseCell,
        queue::Queue,
        shared::Shared,
        timers::Timers,
        turn_table::TurnTable,
        wall_clock::WallClock,
        warning::Outage,
    },
    node::{FreedNotifier, Node, RedisNode, UrlError},
};

/// Longer than anybody wants to wait for a node.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(3600);

/// Builds a [`Redlock`]. Made by [`Redlock::builder`].
///
/// Nodes can be given as URLs, as pools, or as anything that implements [`Node`], and mixed. Every
/// process that locks the same resources must be given the same nodes.
#[must_use = "a builder does nothing until built"]
pub struct RedlockBuilder {
    nodes: Vec<Result<Arc<dyn Node>, BuildError>>,
    prefix: Box<[u8]>,
    defaults: LockOptions,
    node_timeout: Duration,
    connect_timeout: Duration,
    clock: Clock,
    max_ttl: Option<Duration>,
    /// What a restarted node must do, given how long it would have to wait.
    restarts: fn(Quarantine) -> RestartRule,
    allow_unvetted: bool,
    max_waiters_total: usize,
}

impl RedlockBuilder {
    pub(crate) fn new() -> Self {
        Self {
            nodes: Vec::new(),
            prefix: Box::default(),
            defaults: LockOptions::new(),
            node_timeout: Duration::from_millis(50),
            connect_timeout: Duration::from_secs(1),
            clock: Clock::system(),
            max_ttl: None,
            restarts: RestartRule::Quarantined,
            allow_unvetted: false,
            max_waiters_total: 65_536,
        }
    }

    /// Adds masters by URL; see [`RedisNode::from_url`] for their form.
    pub fn nodes<I>(mut self, urls: I) -> Self
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        for url in urls {
            let position = self.nodes.len() + 1;
            let node = RedisNode::from_url(url.as_ref())
                .map(|node| Arc::new(node) as Arc<dyn Node>)
                .map_err(|error| BuildError::Url { position, error });
            self.nodes.push(node);
        }
        self
    }

    /// Adds masters by pools of your own, with the names that errors and logs call them by. A
    /// lock keeps one connection of each pool for itself.
    pub fn pools<I, S>(self, pools: I) -> Self
    where
        I: IntoIterator<Item = (S, Pool)>,
        S: Into<String>,
    {
        let nodes = pools
            .into_iter()
            .map(|(address, pool)| RedisNode::from_pool(address, pool));
        self.custom_nodes(nodes)
    }

    /// Adds masters of any kind, such as [`MemoryNode`](crate::MemoryNode)s.
    pub fn custom_nodes<I>(mut self, nodes: I) -> Self
    where
        I: IntoIterator,
        I::Item: Node,
    {
        let nodes = nodes.into_iter();
        self.nodes
            .extend(nodes.map(|node| Ok(Arc::new(node) as Arc<dyn Node>)));
        self
    }

    /// Adds five masters within this process, and sets tokio's clock, by which their keys expire.
    pub fn embedded(self) -> Self {
        let nodes = (0..5).map(|_| MemoryNode::new());
        self.custom_nodes(nodes)
            .clock(Clock::tokio())
            .trust_fresh_nodes()
    }

    /// Sets a prefix for all keys. None by default: a key goes to Redis as it is, where clients in
    /// other languages contend for it.
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> Self {
        self.prefix = prefix.as_ref().into();
        self
    }

    /// Sets options that locks have by default. Options that are not set keep what was set before.
    pub fn options(mut self, options: LockOptions) -> Self {
        self.defaults = options.or(self.defaults);
        self
    }

    /// Sets the default [time to live](LockOptions::ttl).
    pub fn ttl(self, ttl: Duration) -> Self {
        self.options(LockOptions::new().ttl(ttl))
    }

    /// Sets the default [waiting time](LockOptions::wait).
    pub fn wait(self, wait: Duration) -> Self {
        self.options(LockOptions::new().wait(wait))
    }

    /// Sets the default [longest hold](LockOptions::max_hold).
    pub fn max_hold(self, max_hold: Duration) -> Self {
        self.options(LockOptions::new().max_hold(max_hold))
    }

    /// Acquires all locks with a [fencing token](LockOptions::fenced). Locks of several keys then fail.
    pub fn fenced(self) -> Self {
        self.options(LockOptions::new().fenced())
    }

    /// Sets how many requests may [wait](LockOptions::max_waiters_per_key) for a key in this process by default.
    /// [`max_waiters_total`](Self::max_waiters_total) limits the requests for all keys together.
    pub fn max_waiters_per_key(self, waiters: usize) -> Self {
        self.options(LockOptions::new().max_waiters_per_key(waiters))
    }

    /// Sets after how long a node that has not answered counts as silent. 50 ms by default: well
    /// above a round trip, well below what anybody wants to wait for a sick node.
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = timeout;
        self
    }

    /// Sets after how long an attempt to connect is given up. 1 s by default. Only
    /// [`build`](Self::build) ever waits for it.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets the longest ttl that any lock over these nodes may have, in *any* process. The default
    /// [time to live](Self::ttl) by default.
    ///
    /// A node that came up less than this ago may have forgotten a lock that is still held, so it has
    /// no vote until then. All processes must agree on it.
    pub fn max_ttl(mut self, max_ttl: Duration) -> Self {
        self.max_ttl = Some(max_ttl);
        self
    }

    /// Lets nodes vote that have just come up, because none of them forgets anything: each writes to
    /// disk before it answers (`appendonly yes` and `appendfsync always`).
    ///
    /// A replica that was promoted behind the same address may lack keys all the same. It must wait
    /// if it is seen to be another server: because it was a replica, or is up for longer than the
    /// node is away. One that was restarted as it was promoted cannot be told from the node: give
    /// durable nodes no replicas.
    pub fn nodes_are_durable(mut self) -> Self {
        self.restarts = RestartRule::Durable;
        self
    }

    /// Lets nodes vote that have just come up, though they may have forgotten locks that are still
    /// held: *for tests*, whose servers have just come up for the first time.
    pub fn trust_fresh_nodes(mut self) -> Self {
        self.restarts = RestartRule::Trusted;
        self
    }

    /// Lets nodes vote that do not answer `INFO`, for want of rights: whether they are masters, how
    /// long they are up, and whether they are one and the same server is then not known. Without this
    /// they are refused.
    pub fn allow_unvetted_nodes(mut self) -> Self {
        self.allow_unvetted = true;
        self
    }

    /// Sets how many may wait within this process, for all keys together, before others are refused with
    /// [`LockError::QueueFull`](crate::LockError::QueueFull). 65 536 by default. For one key see
    /// [`LockOptions::max_waiters_per_key`].
    pub fn max_waiters_total(mut self, waiters: usize) -> Self {
        self.max_waiters_total = waiters;
        self
    }

    /// Sets the clock that decides on validity: [`Clock::system`] by default.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Connects to the nodes.
    ///
    /// Waits until each node has been connected to once or has failed to be, which takes at most
    /// the connect timeout. Nodes that are down do not prevent it, not even all of them: the
    /// service can start, and gets [`LockError::NoQuorum`](crate::LockError::NoQuorum) until a
    /// majority is up. A minority of nodes that refuse this client (a wrong password, a replica) does not
    /// prevent it either: each is logged, is shown by [`Redlock::nodes`], and is tried again, every
    /// second at the latest, until somebody has mended it.
    ///
    /// All background work runs on the runtime that calls this: requests, renewal and the end of waiting.
    /// It stands still while that runtime is not driven, such as a `current_thread` runtime between two
    /// calls of `block_on`. Then a [`lock`](Redlock::lock) that is awaited elsewhere can take longer than
    /// its `wait`, and locks expire. Where you build a runtime by hand, keep it driven for as long as its
    /// `Redlock` is in use.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes what was opened.
    ///
    /// # Errors
    ///
    /// Refuses a configuration that cannot work: invalid options, one server under two addresses (if
    /// it answers at both), and so many nodes that refuse this client that the others are no majority.
    pub async fn build(self) -> Result<Redlock, BuildError> {
        let nodes = self.nodes.into_iter().collect::<Result<Vec<_>, _>>()?;
        let quorum = Quorum::majority(nodes.len())?;
        refuse_duplicates(&nodes)?;
        self.defaults.resolve(quorum)?;
        let max_ttl = self.max_ttl.unwrap_or(self.defaults.ttl_or_default());
        let max_ttl = Ttl::new(max_ttl).map_err(BuildError::MaxTtl)?;
        if self.prefix.len() >= Key::MAX_LEN {
            let len = self.prefix.len();
            return Err(BuildError::Prefix { len });
        }
        for (name, timeout) in [
            ("node_timeout", self.node_timeout),
            ("connect_timeout", self.connect_timeout),
        ] {
            if timeout.is_zero() || timeout > LONGEST_TIMEOUT {
                return Err(BuildError::Timeout { name, timeout });
            }
        }
        let runtime = Handle::try_current().map_err(|_| BuildError::NoRuntime)?;

        let limits = LaneLimits {
            answer: self.node_timeout,
            connect: self.connect_timeout,
        };
        let quarantine = Quarantine::new(max_ttl, self.defaults.drift_or_default());
        let rules = Rules {
            restarts: (self.restarts)(quarantine),
            allow_unvetted: self.allow_unvetted,
        };
        let addresses = nodes.iter().map(|node| node.address().into());
        let vetting = Arc::new(Vetting::new(rules, addresses));
        let queue = Arc::new(Queue::new(self.max_waiters_total));
        let timers = Timers::new(self.clock.clone());
        let mut lanes = Vec::with_capacity(nodes.len());
        let mut connecting = Vec::with_capacity(nodes.len());
        for (id, node) in quorum.all().iter().zip(nodes) {
            let freed = freed_by(id, Arc::downgrade(&queue));
            let (handle, lane) = Lane::new(
                id,
                node,
                self.clock.clone(),
                limits,
                Arc::clone(&vetting),
                freed,
                withdrawn_from(id, Arc::downgrade(&timers)),
            );
            let (connected, outcome) = oneshot::channel();
            runtime.spawn(lane.run(connected));
            connecting.push((Arc::clone(handle.address()), outcome));
            lanes.push(handle);
        }
        runtime.spawn(Arc::clone(&timers).run());
        let redlock = Redlock::new(Shared {
            quorum,
            lanes: lanes.into(),
            timers,
            queue,
            turns: TurnTable::new(),
            clock: self.clock,
            prefix: self.prefix,
            defaults: self.defaults,
            max_ttl: (!matches!(rules.restarts, RestartRule::Trusted(_))).then_some(max_ttl),
            outage: Outage::default(),
            shut_down: false.into(),
            wall_clock: WallClock::default(),
            held: 0.into(),
            undeliverable: 0.into(),
        });
        redlock.check(LockOptions::new())?;
        let mut refusals = Vec::new();
        for (address, outcome) in connecting {
            // A lane that ends without a word belongs to a runtime that is shutting down.
            if let Ok(Err(error)) = outcome.await
                && error.is_refusal()
            {
                refusals.push((address, error));
            }
        }
        refuse_to_start(&redlock, refusals)?;
        Ok(redlock)
    }
}

impl fmt::Debug for RedlockBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedlockBuilder")
            .field("nodes", &self.nodes.len())
            .field("defaults", &self.defaults)
            .finish_non_exhaustive()
    }
}

/// Wakes whoever waits for a key when a node says that it is gone.
fn freed_by(node: NodeId, queue: Weak<Queue<Arc<LeaseCell>>>) -> FreedNotifier {
    FreedNotifier::new(move |key| {
        // All of them are gone with their queue.
        let Some(queue) = queue.upgrade() else {
            return;
        };
        match key {
            Some(key) => {
                if let Some(cell) = queue.turn(key) {
                    cell.handle_freed(node);
                }
            }
            None => {
                for cell in queue.turns() {
                    cell.handle_freed(node);
                }
            }
        }
    })
}

/// Tells all leases when votes of a node count for nothing.
fn withdrawn_from(node: NodeId, timers: Weak<Timers>) -> Withdraw {
    Box::new(move |withdrawal| {
        // All leases are gone with their timers.
        let leases = timers.upgrade().map(|it| it.leases()).unwrap_or_default();
        for cell in leases {
            cell.handle_withdrawal(node, withdrawal);
        }
    })
}

/// One server that is counted twice would be a majority with one more.
fn refuse_duplicates(nodes: &[Arc<dyn Node>]) -> Result<(), BuildError> {
    for (second, node) in nodes.iter().enumerate() {
        let same = |other: &Arc<dyn Node>| other.address() == node.address();
        if let Some(first) = nodes[..second].iter().position(same) {
            return Err(BuildError::DuplicateNode {
                address: node.address().into(),
                first: first + 1,
                second: second + 1,
            });
        }
    }
    Ok(())
}

/// Judges the nodes that answered and refused this client. A minority of them may be mended while the
/// others serve; one server under two addresses was never meant.
fn refuse_to_start(
    redlock: &Redlock,
    refusals: Vec<(Arc<str>, NodeError)>,
) -> Result<(), BuildError> {
    let addresses: Vec<_> = redlock.nodes().into_iter().map(|it| it.address).collect();
    for (address, error) in &refusals {
        if let NodeError::SameServer { address: other } = error {
            // In the order in which they were given, whichever was connected to first.
            let mut pair = [Arc::clone(address), Arc::clone(other)];
            pair.sort_by_key(|it| addresses.iter().position(|address| address == it));
            let [first, second] = pair;
            return Err(BuildError::SameServer { first, second });
        }
    }
    let quorum = redlock.shared().quorum;
    if refusals.len() <= quorum.tolerated_failures() {
        return Ok(());
    }
    let report = |(address, error)| NodeReport {
        address,
        objection: Objection::Failed(error),
    };
    Err(BuildError::Refused {
        votes_needed: quorum.votes(),
        votes_possible: quorum.nodes(),
        nodes: NodeReports::new(refusals.into_iter().map(report).collect()),
    })
}

/// Why a [`Redlock`] could not be built.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// There are no nodes, or more than 64.
    #[error(transparent)]
    Quorum(#[from] QuorumError),
    /// A node's URL cannot be used. It is not repeated here, since it may hold a password.
    #[error("node {position}: {error}")]
    Url {
        /// The position in the list of nodes, from 1.
        position: usize,
        /// What is wrong.
        error: UrlError,
    },
    /// Two nodes have the same address: one server would vote twice. (`localhost` and `127.0.0.1` are
    /// [`SameServer`](Self::SameServer), if it is up.)
    #[error("nodes {first} and {second} are both {address}: one server must not vote twice")]
    DuplicateNode {
        /// The address that occurs twice.
        address: Arc<str>,
        /// The position of the first, from 1.
        first: usize,
        /// The position of the second, from 1.
        second: usize,
    },
    /// The default options cannot be used.
    #[error("invalid defaults: {0}")]
    Options(#[from] OptionsError),
    /// The longest ttl is zero or too long.
    #[error("max_ttl: {0}")]
    MaxTtl(TtlError),
    /// A timeout is zero, so that no node could ever answer in time, or longer than an hour.
    #[error("{name} is {timeout:?}: choose more than zero and at most an hour")]
    Timeout {
        /// Which timeout.
        name: &'static str,
        /// What was given.
        timeout: Duration,
    },
    /// The prefix leaves no room for keys.
    #[error(
        "the prefix has {len} bytes, and keys with their prefix at most {}",
        Key::MAX_LEN
    )]
    Prefix {
        /// The length of the prefix.
        len: usize,
    },
    /// So many nodes answer and refuse this client that the others are no majority: see
    /// [`NodeError::Misconfigured`].
    #[error(
        "{votes_needed} of {votes_possible} nodes must agree, and too many refuse this client ({nodes})"
    )]
    Refused {
        /// How many nodes must agree.
        votes_needed: usize,
        /// How many nodes there are.
        votes_possible: usize,
        /// The nodes that refuse this client, and why.
        nodes: NodeReports,
    },
    /// Two addresses lead to one server, which would vote twice.
    #[error("{first} and {second} are one server: one server must not vote twice")]
    SameServer {
        /// The address that was given first.
        first: Arc<str>,
        /// The address that was given second.
        second: Arc<str>,
    },
    /// There is no tokio runtime to run the background work on.
    #[error("no tokio runtime: call this from within one, such as under #[tokio::main]")]
    NoRuntime,
}
