mod builder;
mod group;

use super::{
    commands::order_any,
    error::TopologyError,
    peer::{Peer, divide, elect, sides},
    proxy::Proxy,
    server::RedisServer,
    waiting::wait_until,
};

pub use self::builder::SentinelsBuilder;

/// How many sentinels a group has. Two of them must find the master down before one of them starts a failover.
const SENTINELS: usize = 3;

/// A master, its replicas, and the sentinels that watch them, as processes on free ports of the loopback
/// interface.
///
/// Each server and each sentinel has a number, from zero on. At the start the master is server 0. All processes
/// end when this is dropped, and even when the test's process ends in any way.
///
/// # Faults
///
/// | fault | how |
/// |---|---|
/// | a failover that an operator orders | [`fail_over`](Self::fail_over) |
/// | a host that crashes | [`server`](Self::server)`(0).`[`kill`](RedisServer::kill)`()`, later [`restart`](RedisServer::restart) |
/// | a server that pauses | [`freeze`](RedisServer::freeze), later [`thaw`](RedisServer::thaw) |
/// | a master that clients reach, and its replicas and sentinels do not | [`cut_off`](Self::cut_off)`(&[0], &[])`, later [`heal`](Self::heal) |
/// | the same, with a minority of the sentinels on the master's side | [`cut_off`](Self::cut_off)`(&[0], &[0])` |
/// | a sentinel that is down, or does not answer | [`sentinel`](Self::sentinel)`(0)`, with the methods of a server |
/// | a faulty network between clients and a server | [`server_proxy`](Self::server_proxy) |
///
/// # Addresses and blocking
///
/// As for a [`Cluster`](super::Cluster#addresses): clients that ask the sentinels, the replicas, and the sentinels
/// themselves reach every process through its [`Proxy`], and methods that ask the servers block the thread.
///
/// ```
/// use redlock_kit::Sentinels;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let group = Sentinels::spawn()?; // a master, two replicas, three sentinels
/// assert_eq!(group.master(), Some(0));
///
/// let promoted = group.fail_over()?;
/// assert_ne!(promoted, 0);
/// assert_eq!(group.master(), Some(promoted));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Sentinels {
    servers: Vec<Peer>,
    sentinels: Vec<Peer>,
    password: Option<String>,
    sentinel_password: Option<String>,
}

impl SentinelsBuilder {
    /// Starts the processes. Blocks until the replicas have the master's data and the sentinels know each other,
    /// which takes a few seconds.
    pub fn spawn(self) -> Result<Sentinels, TopologyError> {
        let mut group = Sentinels::spawn_servers(&self)?;
        // The sentinels look at a master's replicas when they start, and then only once in ten seconds.
        wait_until("the replicas have the master's data", || {
            let mut servers = 0..group.servers.len();
            servers.try_for_each(|it| group.check_server(it, 0))
        })?;
        group.spawn_sentinels(&self)?;
        group.settle()?;
        Ok(group)
    }
}

impl Sentinels {
    /// The name by which the sentinels know the master.
    pub const NAME: &'static str = "group";

    /// Starts a master, two replicas and three sentinels. Blocks until the replicas have the master's data and
    /// the sentinels know each other, which takes a few seconds.
    ///
    /// The program is `redis-server`, or the one that the environment variable `REDIS_SERVER` names.
    pub fn spawn() -> Result<Self, TopologyError> {
        Self::builder().spawn()
    }

    /// Returns a builder of a group with other numbers, times or passwords.
    pub fn builder() -> SentinelsBuilder {
        SentinelsBuilder::default()
    }

    /// Orders a failover, although the master may be up (`SENTINEL FAILOVER`). Blocks until the sentinels name
    /// another master and that server is one. Returns its number.
    ///
    /// The old master becomes a replica a moment later, see [`settle`](Self::settle).
    pub fn fail_over(&self) -> Result<usize, TopologyError> {
        let old = wait_until("the sentinels name a master", || {
            self.master().ok_or_else(|| self.opinions())
        })?;
        wait_until("a sentinel starts a failover", || {
            // Another failover may be under way, or the sentinel may not know yet that a replica is fit.
            let password = self.sentinel_password.as_deref();
            let sentinels = self.sentinels.iter().map(|it| it.commands(password));
            order_any(sentinels, &["SENTINEL", "FAILOVER", Self::NAME])
        })?;
        self.wait_for_other_master(old)
    }

    /// Blocks until the sentinels name another master than this server, and that server is one. Returns its
    /// number.
    pub fn wait_for_other_master(&self, old: usize) -> Result<usize, TopologyError> {
        wait_until("the sentinels name another master", || {
            let new = self.master().filter(|new| *new != old);
            let new = new.ok_or_else(|| self.opinions())?;
            self.check_server(new, new).map(|()| new)
        })
    }

    /// Blocks until all servers and sentinels are up and agree: the sentinels know each other, name the same
    /// master and see its replicas, and the replicas have the master's data. Returns the master's number.
    pub fn settle(&self) -> Result<usize, TopologyError> {
        wait_until("all servers and sentinels agree", || self.settled())
    }

    /// Cuts these servers and these sentinels off from all others: nothing passes any more between the two
    /// sides. Clients reach both sides. An earlier cut ends.
    ///
    /// No connection breaks. The bytes are held, and arrive after [`heal`](Self::heal), as those of a network
    /// that recovers do.
    ///
    /// # Panics
    ///
    /// If there is no server or sentinel with one of these numbers. On systems other than Linux, where all
    /// processes have one address.
    pub fn cut_off(&self, servers: &[usize], sentinels: &[usize]) {
        let servers = sides(&self.servers, servers);
        divide(servers.chain(sides(&self.sentinels, sentinels)));
    }

    /// Ends the effect of [`cut_off`](Self::cut_off). Faults of proxies stay.
    pub fn heal(&self) {
        self.cut_off(&[], &[]);
    }

    /// Returns the number of the server that a majority of all sentinels names as the master, if there is one.
    /// Sentinels that do not answer count as part of the whole.
    ///
    /// The server may be down, if the sentinels have not noticed yet.
    #[must_use]
    pub fn master(&self) -> Option<usize> {
        let vote = |sentinel| self.port_named_by(sentinel).ok();
        let votes: Vec<_> = self.sentinels.iter().map(vote).collect();
        elect(&self.servers, &votes)
    }

    /// Returns the addresses of all sentinels, such as `127.0.0.1:26379`.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        let addresses = self.sentinels.iter().map(|it| it.address().to_string());
        addresses.collect()
    }

    /// Returns the URL of the group, such as `redis+sentinel://127.0.0.1:26379,127.0.0.1:26380/group`. It has
    /// the group's passwords.
    #[must_use]
    pub fn url(&self) -> String {
        let user = self
            .password
            .as_deref()
            .map(|it| format!(":{}@", encoded(it)));
        let query = self.sentinel_password.as_deref();
        let query = query.map(|it| format!("?sentinel_password={}", encoded(it)));
        let addresses = self.addresses().join(",");
        format!(
            "redis+sentinel://{}{addresses}/{}{}",
            user.unwrap_or_default(),
            Self::NAME,
            query.unwrap_or_default()
        )
    }

    /// Returns one of the servers.
    #[must_use]
    pub fn server(&self, number: usize) -> &RedisServer {
        &self.servers[number].process
    }

    /// Returns one of the sentinels, which is a process like a server.
    #[must_use]
    pub fn sentinel(&self, number: usize) -> &RedisServer {
        &self.sentinels[number].process
    }

    /// Returns the proxy between the clients and one of the servers.
    #[must_use]
    pub fn server_proxy(&self, number: usize) -> &Proxy {
        &self.servers[number].proxy
    }

    /// Returns the number of servers: the master and its replicas.
    #[must_use]
    pub fn server_count(&self) -> usize {
        self.servers.len()
    }

    /// Returns the number of sentinels.
    #[must_use]
    pub fn sentinel_count(&self) -> usize {
        self.sentinels.len()
    }
}

/// Percent-encodes a part of a URL.
fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'-' | b'_' | b'.' => char::from(byte).to_string(),
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}
