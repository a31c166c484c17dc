mod group;
mod question;
mod roster;
mod url;

use std::{fmt, sync::Arc};

use deadpool_redis::redis::RedisConnectionInfo;

use self::group::Group;
pub(super) use self::group::SentinelNode;
use super::{
    address::{AddressMap, Endpoint},
    builder::RedisNodeError,
    callback::{Callback, CallbackError},
    connect::{ConnectionSettings, Transport},
    credentials::{Credentials, CredentialsCallback},
    tls::{Tls, TlsError, TlsOptions},
    url::UrlError,
};
use crate::sync::Mutex;

const PORT: u16 = 26379;

/// Builds the node of the master of a group that sentinels watch. Made by
/// [`RedisNode::sentinel`](crate::RedisNode::sentinel).
///
/// A majority of *all* sentinels of the group must name the master, also of those that are not given here: they are
/// found through the others. A vote of the master counts for
/// [`confirmation_window`](crate::RedlockBuilder::confirmation_window) after that. After a failover, the new master has
/// no vote until all locks of the old one are over, for [`max_ttl`](crate::RedlockBuilder::max_ttl) and the window.
/// So a failover never gives one lock to two holders, although it loses keys.
///
/// One group is one vote. With a single group, a failover loses all locks, and no lock can be acquired for that time.
/// With three groups or more, nobody notices the failover of one.
///
/// Each sentinel is asked about once a second, over one connection. That is apart from the locks, and costs them
/// nothing.
///
/// # Rights and keys
///
/// At the sentinels: `+sentinel|myid +sentinel|master +sentinel|sentinels`, and for an earlier notice `+subscribe` on
/// the channel `+switch-master`. At the servers: as for any node.
///
/// ```
/// use redlock_tokio::{RedisNode, node::Node};
///
/// let sentinels = ["sentinel-a", "sentinel-b", "sentinel-c:26380"];
/// let node = RedisNode::sentinel("orders", sentinels)
///     .password("of the servers")
///     .sentinel_password("of the sentinels")
///     .build()?;
/// assert_eq!(
///     node.address(),
///     "orders@sentinel-a:26379,sentinel-b:26379,sentinel-c:26380"
/// );
/// # Ok::<_, redlock_tokio::RedisNodeError>(())
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until built"]
pub struct SentinelNodeBuilder {
    name: String,
    sentinels: Vec<String>,
    servers: Access,
    at_sentinels: Access,
    database: u32,
    excludes_resp3: bool,
    map: Option<AddressMap>,
}

/// User, password and TLS of one kind of server.
#[derive(Clone, Default)]
struct Access {
    user: Option<String>,
    password: Option<String>,
    credentials: Option<CredentialsCallback>,
    tls: Option<TlsOptions>,
}

impl SentinelNodeBuilder {
    pub(super) fn new<I>(name: &str, sentinels: I) -> Self
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        let sentinels = sentinels
            .into_iter()
            .map(|sentinel| sentinel.as_ref().to_owned());
        Self {
            name: name.to_owned(),
            sentinels: sentinels.collect(),
            servers: Access::default(),
            at_sentinels: Access::default(),
            database: 0,
            excludes_resp3: false,
            map: None,
        }
    }

    /// Sets the user at the servers.
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.servers.user = Some(user.into());
        self
    }

    /// Sets the password at the servers.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.servers.password = Some(password.into());
        self
    }

    /// Sets the database at the servers. 0 by default.
    pub fn database(mut self, number: u32) -> Self {
        self.database = number;
        self
    }

    /// Sets the function that is asked for the credentials of each new connection to a server. There are then no
    /// [`user`](Self::user) and no [`password`](Self::password). See
    /// [`RedisNodeBuilder::credentials`](crate::RedisNodeBuilder::credentials).
    pub fn credentials<F, Fut, E>(mut self, ask: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<CallbackError>,
    {
        self.servers.credentials = Some(Callback::new(ask));
        self
    }

    /// Connects to the servers by TLS, with these options. Needs the feature `tls-rustls`.
    ///
    /// Sentinels name IP addresses by default, so a certificate must be for these, or for the
    /// [name](TlsOptions::server_name) of the options.
    pub fn tls(mut self, options: TlsOptions) -> Self {
        self.servers.tls = Some(options);
        self
    }

    /// Sets the user at the sentinels.
    pub fn sentinel_user(mut self, user: impl Into<String>) -> Self {
        self.at_sentinels.user = Some(user.into());
        self
    }

    /// Sets the password at the sentinels.
    pub fn sentinel_password(mut self, password: impl Into<String>) -> Self {
        self.at_sentinels.password = Some(password.into());
        self
    }

    /// Connects to the sentinels by TLS, with these options. Needs the feature `tls-rustls`.
    ///
    /// Sentinels know each other by IP addresses by default, so a certificate must be for these too, or for the
    /// [name](TlsOptions::server_name) of the options.
    pub fn sentinel_tls(mut self, options: TlsOptions) -> Self {
        self.at_sentinels.tls = Some(options);
        self
    }

    /// Replaces the options of those connections that use TLS, of which there must be some.
    pub(super) fn with_tls(mut self, options: &TlsOptions) -> Result<Self, TlsError> {
        let all = [&mut self.servers, &mut self.at_sentinels];
        let used: Vec<_> = all.into_iter().filter_map(|it| it.tls.as_mut()).collect();
        if used.is_empty() {
            return Err(TlsError::NotTls);
        }
        used.into_iter().for_each(|it| *it = options.clone());
        Ok(self)
    }

    /// Speaks RESP2 to servers and sentinels, as by `protocol=resp2` in a URL.
    pub fn resp2(mut self) -> Self {
        self.excludes_resp3 = true;
        self
    }

    /// Translates the addresses that sentinels name, of servers and of other sentinels, for a client behind a NAT or
    /// outside a container network. `None` leaves an address as it is.
    ///
    /// The function gets `host:port`, and `[host]:port` for IPv6, in lower case. It may be called at any time, so it
    /// must not block. Each server needs an address of its own: if one address leads to different servers, the client
    /// cannot keep them apart.
    ///
    /// ```
    /// # use redlock_tokio::RedisNode;
    /// use std::collections::HashMap;
    ///
    /// let published = HashMap::from([
    ///     ("172.18.0.2:6379", "localhost:7001"),
    ///     ("172.18.0.3:6379", "localhost:7002"),
    /// ]);
    /// let node = RedisNode::sentinel("orders", ["localhost:26379"])
    ///     .map_addresses(move |announced| published.get(announced).map(|it| (*it).to_owned()))
    ///     .build()?;
    /// # Ok::<_, redlock_tokio::RedisNodeError>(())
    /// ```
    pub fn map_addresses(
        mut self,
        map: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.map = Some(Arc::new(map));
        self
    }

    pub(super) fn group(self) -> Result<SentinelNode, RedisNodeError> {
        let listed = endpoints(&self.sentinels)?;
        if self.name.is_empty() {
            return Err(UrlError::new("the name of the sentinel group is empty").into());
        }
        let group = Group {
            listed,
            sentinel_settings: self.at_sentinels.settings(0, self.excludes_resp3)?,
            server_settings: self.servers.settings(self.database, self.excludes_resp3)?,
            name: self.name,
            map: self.map,
            objections: Mutex::default(),
            roster: Mutex::default(),
        };
        Ok(SentinelNode(Arc::new(group)))
    }
}

impl Access {
    fn settings(
        self,
        database: u32,
        excludes_resp3: bool,
    ) -> Result<ConnectionSettings, RedisNodeError> {
        let mut redis = RedisConnectionInfo::default().set_db(database.into());
        if let Some(user) = &self.user {
            redis = redis.set_username(user);
        }
        if let Some(password) = &self.password {
            redis = redis.set_password(password);
        }
        let transport = match &self.tls {
            Some(options) => Transport::Tls(Tls::new(options)?),
            None => Transport::Plain,
        };
        let settings = ConnectionSettings::new(redis, transport, excludes_resp3);
        let settings = settings.with_credentials(self.credentials);
        settings.ok_or(RedisNodeError::TwoCredentials)
    }
}

fn endpoints(addresses: &[String]) -> Result<Vec<Endpoint>, UrlError> {
    let mut endpoints = Vec::new();
    for (index, address) in addresses.iter().enumerate() {
        let position = index + 1;
        let defect = |text: String| UrlError::new(format!("sentinel {position}: {text}"));
        let endpoint =
            Endpoint::parse(address, Some(PORT)).map_err(|error| defect(error.to_string()))?;
        if endpoints.contains(&endpoint) {
            return Err(defect("it is given twice".into()));
        }
        endpoints.push(endpoint);
    }
    if endpoints.is_empty() {
        return Err(UrlError::new("there are no sentinels"));
    }
    Ok(endpoints)
}

impl fmt::Debug for SentinelNodeBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An address may be a URL with a password, by mistake.
        f.debug_struct("SentinelNodeBuilder")
            .field("name", &self.name)
            .field("sentinels", &self.sentinels.len())
            .field("tls", &self.servers.tls)
            .field("sentinel_tls", &self.at_sentinels.tls)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Node;

    fn from_url(url: &str) -> SentinelNodeBuilder {
        SentinelNodeBuilder::from_url(url).unwrap().unwrap()
    }

    fn group() -> SentinelNodeBuilder {
        SentinelNodeBuilder::new("g", ["s1", "s2:7"])
    }

    #[test]
    fn a_url_and_the_methods_are_the_same() {
        let url = "redis+sentinel://me:s%40cret@S1,[::1]:7/my%20group/3\
                   ?sentinel_user=you&sentinel_password=p%26w&protocol=resp2";
        let by_url = from_url(url);
        let by_methods = SentinelNodeBuilder::new("my group", ["s1", "[::1]:7"])
            .user("me")
            .password("s@cret")
            .database(3)
            .sentinel_user("you")
            .sentinel_password("p&w")
            .resp2();
        let parts = |node: &SentinelNodeBuilder| {
            let pair = |it: &Access| (it.user.clone(), it.password.clone());
            let access = (pair(&node.servers), pair(&node.at_sentinels));
            (access, node.database, node.excludes_resp3)
        };
        assert_eq!(parts(&by_url), parts(&by_methods));
        for node in [by_url, by_methods] {
            assert!(!format!("{node:?}").contains("cret"));
            let node = node.build().unwrap();
            assert_eq!(node.address(), "my group/3@s1:26379,[::1]:7");
            assert_eq!(node.named_by().unwrap().fewest_members, 2);
        }
        let bare = from_url("redis+sentinel://:pw@s1/g");
        assert_eq!(parts(&bare), parts(&group().password("pw")));
    }

    #[test]
    fn a_url_for_tls_needs_the_feature() {
        for (url, expected) in [
            ("rediss+sentinel://s1/g", [true, false]),
            ("redis+sentinel://s1/g?sentinel_tls=true", [false, true]),
        ] {
            let node = from_url(url);
            let is_on = [&node.servers, &node.at_sentinels].map(|access| access.tls.is_some());
            assert_eq!(is_on, expected);
            let node = node.build();
            assert_eq!(node.is_ok(), cfg!(feature = "tls-rustls"));
            if let Err(error) = node {
                assert!(error.to_string().contains("the feature"), "{error}");
            }
        }
    }
}
