mod address;
mod callback;
mod cluster;
mod connect;
mod credentials;
mod info;
mod invalidations;
mod key_slot;
mod key_tag;
mod lines;
mod look_up;
mod marker;
mod options;
mod pool;
mod request;
mod rights;
mod script;
mod sentinel;
mod server_error;
mod session;
mod survey;
mod tls;
mod url;

use std::{fmt, sync::Arc};

use deadpool_redis::Pool;
use futures::{FutureExt, future::BoxFuture};

pub(crate) use self::{
    callback::{Callback, CallbackError},
    connect::BoxedStream,
    options::NodeOptions,
};
pub use self::{credentials::Credentials, pool::PoolMessages, tls::TlsOptions, url::UrlError};
use self::{key_tag::KeyTag, pool::OwnPool, session::RedisSession, url::NodeUrl};
use super::{NamedBy, Node, NodeError, Session};

/// Nodes that were given by URL, or otherwise.
#[derive(Default)]
pub(crate) struct UrlNodes {
    pub(crate) nodes: Vec<Arc<dyn Node>>,
    /// How many bytes longer a key is on the servers.
    pub(crate) tag_len: usize,
}

impl UrlNodes {
    /// Returns the nodes at a URL of any kind. Does not connect yet.
    pub(crate) fn at(url: &str, options: &NodeOptions) -> Result<Self, UrlError> {
        if let Some(voters) = cluster::at(url, options) {
            return voters;
        }
        Ok(Self {
            nodes: vec![Arc::new(RedisNode::at(url, options)?)],
            ..Self::default()
        })
    }
}

/// A Redis (or Valkey) master, the master of a group that sentinels watch, or a slot of a cluster.
pub struct RedisNode {
    address: Box<str>,
    source: Source,
}

enum Source {
    Url(Box<NodeUrl>),
    Pool(OwnPool),
    /// Sentinels, or the nodes of a cluster, know where the server is.
    Named(NamedBy),
}

impl RedisNode {
    /// Creates the node at a URL, which is none of a cluster.
    ///
    /// # Errors
    ///
    /// [`UrlError`] says what is wrong with the URL.
    #[cfg(any(test, feature = "test-util"))]
    pub fn from_url(url: &str) -> Result<Self, UrlError> {
        Self::at(url, &NodeOptions::default())
    }

    fn at(url: &str, options: &NodeOptions) -> Result<Self, UrlError> {
        if let Some(group) = sentinel::at(url, options) {
            return group;
        }
        let url = NodeUrl::parse(url, options)?;
        Ok(Self {
            address: url.name().into(),
            source: Source::Url(url.into()),
        })
    }

    /// Creates a node whose server an authority names.
    fn named(address: String, named_by: NamedBy) -> Self {
        Self {
            address: address.into(),
            source: Source::Named(named_by),
        }
    }

    /// Creates a node from a pool of the user.
    pub(crate) fn of_pool(address: String, pool: Pool, messages: Option<PoolMessages>) -> Self {
        Self {
            address: address.into(),
            source: Source::Pool(OwnPool { pool, messages }),
        }
    }
}

impl Node for RedisNode {
    fn address(&self) -> &str {
        &self.address
    }

    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        async {
            let opened = match &self.source {
                Source::Url(url) => url.settings.open(&url.endpoint).await?,
                Source::Pool(pool) => pool.open().await?,
                Source::Named(_) => {
                    let text = "its authority names the server: connect through `named_by`";
                    return Err(NodeError::Unreachable(text.into()));
                }
            };
            let session = RedisSession::open(opened, KeyTag::NONE, None).await?;
            Ok(Box::new(session) as Box<dyn Session>)
        }
        .boxed()
    }

    fn named_by(&self) -> Option<NamedBy> {
        match &self.source {
            Source::Named(named_by) => Some(named_by.clone()),
            Source::Url(_) | Source::Pool(_) => None,
        }
    }

    fn objection(&self) -> Option<NodeError> {
        match &self.source {
            Source::Pool(pool) => pool.objection(),
            Source::Url(_) | Source::Named(_) => None,
        }
    }
}

impl fmt::Debug for RedisNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisNode").field(&self.address).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_carry_no_secrets() {
        let address = |url| RedisNode::from_url(url).unwrap().address().to_owned();
        assert_eq!(address("redis://Localhost"), "localhost:6379");
        assert_eq!(address("redis://user:hunter2@Host:7000/0"), "host:7000");
        assert_eq!(address("redis://user:hunter2@Host:7000/3"), "host:7000/3");
        assert_eq!(address("redis://[::1]:7000"), "[::1]:7000");
        assert_eq!(address("unix:///run/a.sock?pass=hunter2"), "/run/a.sock");
        assert_eq!(address("unix:///run/a.sock?db=2"), "/run/a.sock?db=2");
        assert_eq!(
            address("redis+sentinel://:hunter2@s1,s2/group/3"),
            "group/3@s1:26379,s2:26379"
        );
    }

    #[test]
    fn debug_carries_no_secrets() {
        let node = RedisNode::from_url("redis://user:hunter2@host").unwrap();
        assert_eq!(format!("{node:?}"), "RedisNode(\"host:6379\")");
    }
}
