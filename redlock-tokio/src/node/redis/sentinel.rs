mod address;
mod group;
mod question;
mod roster;
mod url;

use std::{error::Error, fmt, sync::Arc};

use deadpool_redis::redis::RedisConnectionInfo;
use futures::{FutureExt, future::BoxFuture};

use self::{
    address::parse_address,
    group::{AddressMap, Group, Sentinels},
    url::GroupUrl,
};
use super::{
    callback::Callback,
    connect::{ConnectionSettings, Endpoint, Transport},
    credentials::{Credentials, CredentialsCallback},
    tls::{Tls, TlsError, TlsOptions},
    url::UrlError,
};
use crate::{
    node::{AuthorityKind, NamedBy, Node, NodeError, Session},
    sync::Mutex,
};

/// The port of a sentinel without a port.
const PORT: u16 = 26379;

/// The master of a group that sentinels watch, as one node. Created by
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
/// the channel `+switch-master`. At the servers: as for any node, and `SET`, `GET` and `PTTL` on the keys
/// `redlock:owner:*`, by which new clients know how long the master has been one.
///
/// ```
/// use redlock_tokio::{Node, RedisNode};
///
/// let sentinels = ["sentinel-a", "sentinel-b", "sentinel-c:26380"];
/// let node = RedisNode::sentinel("orders", sentinels)?
///     .password("of the servers")
///     .sentinel_password("of the sentinels");
/// assert_eq!(
///     node.address(),
///     "orders@sentinel-a:26379,sentinel-b:26379,sentinel-c:26380"
/// );
/// # Ok::<_, redlock_tokio::UrlError>(())
/// ```
#[derive(Clone)]
#[must_use = "a node does nothing until it is given to a builder"]
pub struct SentinelNode {
    /// What logs call the node.
    address: Box<str>,
    name: String,
    sentinels: Vec<Endpoint>,
    servers: Access,
    at_sentinels: Access,
    database: i64,
    excludes_resp3: bool,
    address_map: Option<AddressMap>,
}

/// User, password and TLS of one kind of server.
#[derive(Clone, Default)]
struct Access {
    user: Option<String>,
    password: Option<String>,
    credentials: Option<CredentialsCallback>,
    tls: Option<Tls>,
}

impl SentinelNode {
    pub(super) fn new<I>(name: &str, sentinels: I) -> Result<Self, UrlError>
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        if name.is_empty() {
            return Err(UrlError::new("the name of the sentinel group is empty"));
        }
        let mut endpoints: Vec<Endpoint> = Vec::new();
        for address in sentinels {
            let endpoint = parse_address(address.as_ref(), Some(PORT))
                .ok_or_else(|| UrlError::new("a sentinel's address is not host or host:port"))?;
            if endpoints
                .iter()
                .any(|it| it.to_string() == endpoint.to_string())
            {
                return Err(UrlError::new("a sentinel is given twice"));
            }
            endpoints.push(endpoint);
        }
        if endpoints.is_empty() {
            return Err(UrlError::new("there are no sentinels"));
        }
        let addresses: Vec<_> = endpoints.iter().map(Endpoint::to_string).collect();
        Ok(Self {
            address: format!("{name}@{}", addresses.join(",")).into(),
            name: name.to_owned(),
            sentinels: endpoints,
            servers: Access::default(),
            at_sentinels: Access::default(),
            database: 0,
            excludes_resp3: false,
            address_map: None,
        })
    }

    /// Returns the node at a URL, or `None` if the URL is not one of a group.
    pub(super) fn from_url(url: &str) -> Option<Result<Self, UrlError>> {
        let url = GroupUrl::parse(url.trim())?;
        Some(url.and_then(Self::from_parts))
    }

    fn from_parts(url: GroupUrl) -> Result<Self, UrlError> {
        let mut node = Self::new(&url.name, &url.sentinels)?;
        let tls = |is_on: bool| {
            let tls = is_on.then(|| Tls::new(&TlsOptions::new())).transpose();
            tls.map_err(|error| UrlError::new(error.to_string()))
        };
        node.servers = Access {
            user: url.user,
            password: url.password,
            credentials: None,
            tls: tls(url.has_tls)?,
        };
        node.at_sentinels = Access {
            user: url.sentinel_user,
            password: url.sentinel_password,
            credentials: None,
            tls: tls(url.has_sentinel_tls)?,
        };
        node.database = url.database.into();
        node.excludes_resp3 = url.excludes_resp3;
        Ok(node)
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
        self.database = number.into();
        self
    }

    /// Sets the function that is asked for the credentials of each new connection to a server, instead of
    /// [`user`](Self::user) and [`password`](Self::password). See
    /// [`RedisNodeBuilder::credentials`](crate::RedisNodeBuilder::credentials).
    pub fn credentials<F, Fut, E>(mut self, ask: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.servers.credentials = Some(Callback::new(move |()| ask()));
        self
    }

    /// Connects to the servers by TLS, with these options. Needs the feature `tls-rustls`.
    ///
    /// Sentinels name IP addresses by default, so a certificate must be for these, or for the
    /// [name](TlsOptions::server_name) of the options.
    ///
    /// # Errors
    ///
    /// [`TlsError`] says what cannot be used.
    pub fn tls(mut self, options: &TlsOptions) -> Result<Self, TlsError> {
        self.servers.tls = Some(Tls::new(options)?);
        Ok(self)
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
    /// # Errors
    ///
    /// [`TlsError`] says what cannot be used.
    pub fn sentinel_tls(mut self, options: &TlsOptions) -> Result<Self, TlsError> {
        self.at_sentinels.tls = Some(Tls::new(options)?);
        Ok(self)
    }

    /// Speaks RESP2 to servers and sentinels, as by `protocol=resp2` in a URL.
    pub fn resp2(mut self) -> Self {
        self.excludes_resp3 = true;
        self
    }

    /// Translates the addresses that sentinels name, of servers and of other sentinels, for a client behind a NAT or
    /// outside of a container network. `None` leaves an address as it is.
    ///
    /// The function gets `host:port`, and `[host]:port` for IPv6, in lower case. It may be called at any time, so it
    /// must not block.
    ///
    /// ```
    /// # use redlock_tokio::RedisNode;
    /// use std::collections::HashMap;
    ///
    /// let published = HashMap::from([
    ///     ("172.18.0.2:6379", "localhost:7001"),
    ///     ("172.18.0.3:6379", "localhost:7002"),
    /// ]);
    /// let node = RedisNode::sentinel("orders", ["localhost:26379"])?
    ///     .map_addresses(move |announced| published.get(announced).map(|it| (*it).to_owned()));
    /// # Ok::<_, redlock_tokio::UrlError>(())
    /// ```
    pub fn map_addresses(
        mut self,
        map: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.address_map = Some(Arc::new(map));
        self
    }

    fn authority(&self) -> Sentinels {
        Sentinels(Arc::new(Group {
            name: self.name.clone(),
            listed: self.sentinels.clone(),
            sentinel_settings: self.at_sentinels.settings(0, self.excludes_resp3),
            server_settings: self.servers.settings(self.database, self.excludes_resp3),
            address_map: self.address_map.clone(),
            objections: Mutex::default(),
        }))
    }
}

impl Access {
    fn settings(&self, database: i64, excludes_resp3: bool) -> ConnectionSettings {
        let mut redis = RedisConnectionInfo::default().set_db(database);
        if let Some(user) = &self.user {
            redis = redis.set_username(user);
        }
        if let Some(password) = &self.password {
            redis = redis.set_password(password);
        }
        let transport = self.tls.clone().map_or(Transport::Plain, Transport::Tls);
        let settings = ConnectionSettings::new(redis, transport, excludes_resp3);
        match &self.credentials {
            Some(callback) => settings.with_credentials(callback.clone()),
            None => settings,
        }
    }
}

impl Node for SentinelNode {
    fn address(&self) -> &str {
        &self.address
    }

    /// Fails: only the [authority](Self::named_by) knows the master.
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        let text = "the sentinels name the master: connect through `named_by`";
        async move { Err(NodeError::Unreachable(text.into())) }.boxed()
    }

    fn named_by(&self) -> Option<NamedBy> {
        let named_by = NamedBy::new(Arc::new(self.authority()), 0, AuthorityKind::Sentinels);
        Some(named_by.with_fewest_members(self.sentinels.len()))
    }
}

impl fmt::Debug for SentinelNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SentinelNode").field(&self.address).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_and_the_methods_are_the_same() {
        let url = "redis+sentinel://me:a@S1,s2:7/g/3?sentinel_user=you&sentinel_password=b&protocol=resp2";
        let by_url = SentinelNode::from_url(url).unwrap().unwrap();
        let by_methods = SentinelNode::new("g", ["s1", "s2:7"]).unwrap();
        let by_methods = by_methods.user("me").password("a").database(3);
        let by_methods = by_methods
            .sentinel_user("you")
            .sentinel_password("b")
            .resp2();
        let parts = |node: &SentinelNode| {
            let pair = |it: &Access| (it.user.clone(), it.password.clone());
            let access = (pair(&node.servers), pair(&node.at_sentinels));
            let rest = (node.database, node.excludes_resp3);
            (node.address.clone(), access, rest)
        };
        assert_eq!(parts(&by_url), parts(&by_methods));
        assert_eq!(by_url.address(), "g@s1:26379,s2:7");
        assert!(!format!("{by_url:?}").contains("\"a\""));
        let fewest = by_url.named_by().unwrap().fewest_members;
        assert_eq!(fewest, 2);
    }

    #[test]
    fn a_url_for_tls_needs_the_feature() {
        for url in [
            "rediss+sentinel://s1/g",
            "redis+sentinel://s1/g?sentinel_tls=true",
        ] {
            match SentinelNode::from_url(url).unwrap() {
                Ok(node) => {
                    let is_on = |it: &Access| u32::from(it.tls.is_some());
                    assert_eq!(is_on(&node.servers) + is_on(&node.at_sentinels), 1);
                }
                Err(error) => assert!(error.to_string().contains("the feature"), "{error}"),
            }
        }
    }

    #[test]
    fn a_group_has_a_name_and_different_sentinels() {
        for (name, sentinels, words) in [
            ("", &["s1"][..], "name"),
            ("g", &[], "no sentinels"),
            ("g", &["s1", ""], "host:port"),
            ("g", &["redis://s1"], "host:port"),
            ("g", &["s1", "S1:26379"], "twice"),
        ] {
            let error = SentinelNode::new(name, sentinels).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
