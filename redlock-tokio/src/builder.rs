mod common;
mod connect;
mod error;
mod launch;
mod nodes;
#[cfg(feature = "test-util")]
mod simulation;
mod voting;

use std::{fmt, sync::Arc, time::Duration};

use redlock_core::{OwnerRule, Quorum, Ttl};
use tokio::runtime::Handle;

pub use self::error::BuildError;
use self::nodes::Given;
use crate::{
    ClientNameError, Clock, Durability, Key, LockOptions, Redlock,
    client_name::ClientName,
    engine::wall_clock::WallClock,
    key::Prefix,
    node::redis::{NodeOptions, UrlNodes},
    observer::Observer,
    options::CommonSettings,
    random::Random,
};

/// Nobody waits longer than this for a node.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(3600);

/// Builds a [`Redlock`]. Made by [`Redlock::builder`].
///
/// Give nodes as URLs. The calls add up. Give the same nodes to every process that locks the same resources. Choose an
/// odd number of them, and at least three: a majority must agree, so four nodes tolerate one failed node, as three do,
/// and two nodes tolerate none.
///
/// ```no_run
/// # use redlock_tokio::Redlock;
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let redlock = Redlock::builder()
///     .nodes(["redis://a", "redis://b", "redis://c"])
///     .prefix("shop:lock:")
///     .wait(Duration::from_secs(2))
///     .build()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a builder does nothing until built"]
pub struct RedlockBuilder {
    given: Vec<Given>,
    node_options: NodeOptions,
    prefix: Prefix,
    client_name: Result<ClientName, ClientNameError>,
    defaults: LockOptions,
    common: CommonSettings,
    node_timeout: Duration,
    connect_timeout: Duration,
    clock: Clock,
    random: Random,
    wall_clock: WallClock,
    max_ttl: Option<Duration>,
    durability: Durability,
    allow_unvetted: bool,
    confirmation_window: Duration,
    max_waiters_total: usize,
    logs_keys: bool,
    observers: Vec<Arc<dyn Observer>>,
}

impl RedlockBuilder {
    pub(crate) fn new() -> Self {
        Self {
            given: Vec::new(),
            node_options: NodeOptions::default(),
            prefix: Prefix::default(),
            client_name: Ok(ClientName::of_process()),
            defaults: LockOptions::new(),
            common: CommonSettings::default(),
            node_timeout: Duration::from_millis(50),
            connect_timeout: Duration::from_secs(1),
            clock: Clock::system(),
            random: Random::system(),
            wall_clock: WallClock::system(),
            max_ttl: None,
            durability: Durability::default(),
            allow_unvetted: false,
            confirmation_window: OwnerRule::DEFAULT_WINDOW,
            max_waiters_total: 65_536,
            logs_keys: false,
            observers: Vec::new(),
        }
    }

    /// Sets a prefix for all keys. None by default.
    ///
    /// Use one if other programs use the same servers: a lock conflicts with any other value of the same name.
    /// Clients in other languages must add the same prefix to get the same locks. The prefix counts towards
    /// [`Key::MAX_LEN`].
    ///
    /// A user of Redis whose rights are limited to some keys needs all keys with the prefix. This is checked on each
    /// new connection: a node that refuses such a key has no vote. Without a prefix, only the locks themselves show
    /// which keys are refused.
    ///
    /// ```
    /// # use redlock_tokio::Redlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let builder = Redlock::builder().embedded().prefix("shop:lock:");
    /// let redlock = builder.build().await?;
    /// let guard = redlock.lock("order:42").await?;
    /// assert_eq!(guard.key().as_bytes(), b"shop:lock:order:42");
    /// # Ok(())
    /// # }
    /// ```
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> Self {
        self.prefix = Prefix::new(prefix.as_ref().into(), self.prefix.tag_len);
        self
    }

    /// Sets the name by which people find this client: in the values of the keys that it sets, in
    /// [inspections](Redlock::inspect), and in the errors of other clients that want the same lock. By default the name of
    /// the host and the id of the process, such as `web-3:4711`.
    ///
    /// At most 64 bytes without control characters. The value of a key is then `<token>@<name>`, or the token alone if
    /// the name is empty. Clients compare such values whole, so clients in other languages need not know about the
    /// name. Everybody who may read keys on the nodes can read it.
    ///
    /// ```
    /// # use redlock_tokio::{MemoryNode, Redlock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let node = MemoryNode::new();
    /// let builder = Redlock::builder().custom_nodes([node.clone()]);
    /// let redlock = builder.client_name("web-3").build().await?;
    /// let _guard = redlock.lock("order:42").await?;
    /// assert!(node.value("order:42").unwrap().ends_with(b"@web-3"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn client_name(mut self, name: impl AsRef<str>) -> Self {
        self.client_name = ClientName::new(name.as_ref());
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

    /// Sets whether locks have a [fencing token](LockOptions::fenced) by default.
    pub fn fenced(self, fenced: bool) -> Self {
        self.options(LockOptions::new().fenced(fenced))
    }

    /// Sets how many requests may [wait](LockOptions::max_waiters_per_key) for a key in this process by default.
    /// [`max_waiters_total`](Self::max_waiters_total) limits the requests for all keys together.
    pub fn max_waiters_per_key(self, waiters: usize) -> Self {
        self.options(LockOptions::new().max_waiters_per_key(waiters))
    }

    /// Sets the [label](LockOptions::label) that locks have in the log by default.
    pub fn label(self, label: &'static str) -> Self {
        self.options(LockOptions::new().label(label))
    }

    /// Sets whether each line of the log that is about a single lock shows its keys, as the field `keys`.
    ///
    /// By default the log has no keys, because they often contain personal data. At most eight keys of a lock are shown,
    /// and of each key the first 200 characters. Control characters are escaped, so that a key cannot forge a line.
    /// [`LockOptions::label`] is enough if you only need to know what kind of lock it was.
    ///
    /// ```
    /// # use redlock_tokio::Redlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let redlock = Redlock::builder().embedded().log_keys(true).build().await?;
    /// let guard = redlock.lock("order:42").await?;
    /// // WARN redlock: a lock was lost keys=["order:42"] token=.. reason=..
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    pub fn log_keys(mut self, logs_keys: bool) -> Self {
        self.logs_keys = logs_keys;
        self
    }

    /// Adds an observer, which is told what happens to locks and nodes. None by default. The calls add up.
    ///
    /// An observer runs beside the work of locks, and sees their keys: [`Observer`] says more. Without one, nothing is
    /// prepared for it, so a client that is not observed pays nothing.
    ///
    /// ```
    /// # use redlock_tokio::{Redlock, events::{Event, NodeChange}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let builder = Redlock::builder().embedded().observer(|event: &Event| {
    ///     if let Event::Node(node) = event
    ///         && let NodeChange::Entered(state) = &node.change
    ///     {
    ///         println!("{}: {state}", node.address);
    ///     }
    /// });
    /// let redlock = builder.build().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observers.push(Arc::new(observer));
        self
    }

    /// Sets how long a node may take to answer before it counts as silent. 50 ms by default, at most one hour.
    ///
    /// The default is well above a round trip, and well below the time that a caller would wait for a sick node.
    ///
    /// The time is for 128 keys. If this process has asked for more of them at once, it gives the node proportionally
    /// more time, so that a node which works is not taken for a silent one. The time starts anew with each answer.
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = timeout;
        self
    }

    /// Sets how long an attempt to connect may take. 1 s by default, at most one hour. Only
    /// [`build`](Self::build) waits for a connection.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets how many requests may wait within this process, for all keys together. 65 536 by default.
    ///
    /// Further requests fail with [`LockError::QueueFull`](crate::LockError::QueueFull).
    /// [`max_waiters_per_key`](Self::max_waiters_per_key) limits the requests for one key.
    pub fn max_waiters_total(mut self, waiters: usize) -> Self {
        self.max_waiters_total = waiters;
        self
    }

    /// Sets the clock that decides on validity. [`Clock::system`] by default.
    ///
    /// ```
    /// # use redlock_tokio::{Clock, MemoryNode, Redlock};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let builder = Redlock::builder().custom_nodes([MemoryNode::new()]);
    /// let redlock = builder.clock(Clock::tokio()).build().await?;
    /// let guard = redlock.lock("order:42").await?;
    /// tokio::time::advance(Duration::from_secs(11)).await; // past the ttl
    /// assert!(!guard.is_valid());
    /// # Ok(())
    /// # }
    /// ```
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Connects to the nodes.
    ///
    /// Waits until each node is connected or the attempt has failed, which takes at most the connect timeout.
    /// Nodes that are down are not an error, even if all of them are: the service can start, and its locks fail with
    /// [`LockError::NoQuorum`](crate::LockError::NoQuorum) until a majority is up. A minority of nodes that refuse
    /// this client (a wrong password, a replica) is not an error either. Each is logged, is shown by
    /// [`Redlock::nodes`], and is tried again at least once per second.
    ///
    /// An even number of nodes is logged as a warning: it tolerates no more failures than one node fewer.
    ///
    /// **The `Redlock` belongs to the runtime that calls this method**, on which all background work runs: requests,
    /// renewal and the end of waiting. When that runtime has ended, locks are lost, and requests fail with
    /// [`LockError::ShutDown`](crate::LockError::ShutDown), even those on another runtime. So a `Redlock` in a `static`
    /// serves only the first of several `#[tokio::test]`s. The work stops while the runtime is not driven, such as a
    /// `current_thread` runtime between two calls of `block_on`. Then a [`lock`](Redlock::lock) that is awaited
    /// elsewhere can take longer than its `wait`, and locks expire. So keep a runtime that you build by hand driven for
    /// as long as its `Redlock` is in use.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connections that were opened.
    ///
    /// # Errors
    ///
    /// [`BuildError`] lists the errors. Fails if:
    ///
    /// - there are no nodes, or more than 64;
    /// - a URL, an option or `max_ttl` is invalid;
    /// - a timeout is zero, or longer than an hour;
    /// - the [client name](Self::client_name) is too long, or has a control character;
    /// - the prefix is too long, or begins with a [reserved](crate::KeyError::Reserved) name;
    /// - two voters of a cluster are on one server;
    /// - two addresses are the same, or lead to one server (detected only if the server answers at both);
    /// - too many nodes refuse this client for the others to form a majority;
    /// - there is no tokio runtime.
    pub async fn build(mut self) -> Result<Redlock, BuildError> {
        let UrlNodes { nodes, tag_len } = self.take_nodes()?;
        self.prefix.tag_len = tag_len;
        let quorum = Quorum::majority(nodes.len())?;
        launch::warn_of_single_group(&nodes);
        let max_ttl = self.check(quorum)?;
        let runtime = Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        let (redlock, connecting) = self.launch(quorum, max_ttl, nodes, &runtime);
        redlock.check(LockOptions::new())?;
        launch::warn_of_even_number(quorum);
        let refusals = launch::refusals(&redlock, connecting).await;
        launch::refuse_to_start(&redlock, refusals)?;
        Ok(redlock)
    }

    /// Checks what can be checked without the nodes. Returns the longest ttl.
    fn check(&self, quorum: Quorum) -> Result<Ttl, BuildError> {
        self.defaults.resolve(quorum, self.common.drift)?;
        let max_ttl = self.max_ttl.unwrap_or(self.defaults.ttl_or_default());
        let max_ttl = Ttl::new(max_ttl).map_err(BuildError::MaxTtl)?;
        let len = self.prefix.len_on_servers();
        if len >= Key::MAX_LEN {
            return Err(BuildError::Prefix { len });
        }
        if let Err(error) = self.client_name {
            return Err(BuildError::ClientName(error));
        }
        if let Some(name) = Key::reserved(self.prefix.as_bytes()) {
            return Err(BuildError::ReservedPrefix { name });
        }
        for (name, timeout) in [
            ("node_timeout", self.node_timeout),
            ("connect_timeout", self.connect_timeout),
            ("confirmation_window", self.confirmation_window),
        ] {
            if timeout.is_zero() || timeout > LONGEST_TIMEOUT {
                return Err(BuildError::Timeout { name, timeout });
            }
        }
        Ok(max_ttl)
    }
}

impl fmt::Debug for RedlockBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedlockBuilder")
            .field("nodes", &self.given.len())
            .field("defaults", &self.defaults)
            .finish_non_exhaustive()
    }
}
