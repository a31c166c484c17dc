use std::{mem, sync::Arc};

use deadpool_redis::Pool;

use crate::{
    BuildError, Clock, ClusterNodes, Durability, MemoryNode, RedisNodeError, RedlockBuilder,
    TlsOptions,
    node::{ClusterAuthority, Node, RedisNode},
};

/// What a builder was given.
pub(super) enum Given {
    Url(Box<str>),
    Cluster(ClusterNodes),
    Node(Arc<dyn Node>),
}

/// What the builder makes of it.
#[derive(Default)]
pub(super) struct Nodes {
    pub(super) nodes: Vec<Arc<dyn Node>>,
    /// The clusters whose voters must be on different servers.
    pub(super) unshared: Vec<Arc<ClusterAuthority>>,
}

/// The nodes.
impl RedlockBuilder {
    /// Adds masters by URL. [`RedisNode::from_url`] lists the forms of a URL. A cluster has the URL
    /// `redis+cluster://host,host`, whose parameters [`ClusterNodes`] explains. [`node_list`](Self::node_list) takes the
    /// URLs as one text.
    ///
    /// ```no_run
    /// # use redlock_tokio::Redlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let urls = [
    ///     "redis://a:6379",
    ///     "redis://user:secret@b:6379/1",
    ///     "unix:///run/redis.sock",
    /// ];
    /// let redlock = Redlock::builder().nodes(urls).build().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn nodes<I>(mut self, urls: I) -> Self
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        let urls = urls.into_iter();
        let urls = urls.map(|url| Given::Url(url.as_ref().into()));
        self.given.extend(urls);
        self
    }

    /// Adds masters by a list of URLs in one text, such as the value of an environment variable. Commas, spaces or line
    /// breaks separate the URLs. [`RedisNode::from_url`](crate::RedisNode::from_url) lists the forms of a URL.
    ///
    /// The URL of a Sentinel group has commas of its own, which separate its sentinels, and that of a cluster between its
    /// seeds and its tags. They do not end the URL. Write any other comma in a URL, such as one in a password, as `%2C`.
    ///
    /// [`build`](Self::build) reports a URL that cannot be used, with its position in the list. It refuses a list
    /// without any URL, unless other calls add nodes.
    ///
    /// ```no_run
    /// # use redlock_tokio::Redlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // `redis://a,redis://b,redis://c`, `redis+sentinel://s1,s2,s3/orders` or `redis+cluster://a,b,c?voters=3`
    /// let nodes = std::env::var("REDLOCK_NODES")?;
    /// let redlock = Redlock::builder().node_list(&nodes).build().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn node_list(self, list: &str) -> Self {
        self.nodes(urls_in(list))
    }

    /// Adds the voters of a cluster: three hash slots, unless the description says otherwise. Each votes as a node.
    ///
    /// A description that cannot be used is reported by [`build`](Self::build).
    ///
    /// ```no_run
    /// # use redlock_tokio::{ClusterNodes, Redlock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let seeds = ["rediss://:secret@n1.internal", "rediss://:secret@n2.internal"];
    /// let cluster = ClusterNodes::new(seeds).voters(1);
    /// let redlock = Redlock::builder().cluster(cluster).build().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn cluster(mut self, cluster: ClusterNodes) -> Self {
        self.given.push(Given::Cluster(cluster));
        self
    }

    /// Sets how all connections to nodes that are given by URL check the server, and which certificate they show. Each of
    /// these URLs must then ask for TLS (`rediss://`, `rediss+sentinel://`, `rediss+cluster://`, or
    /// `sentinel_tls=true`). Needs the feature `tls-rustls`.
    ///
    /// ```no_run
    /// # use redlock_tokio::{Redlock, TlsOptions};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tls = TlsOptions::new().ca_certificates(std::fs::read("ca.pem")?);
    /// let builder = Redlock::builder().nodes(["rediss://a", "rediss://b", "rediss://c"]);
    /// let redlock = builder.tls(tls).build().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn tls(mut self, options: TlsOptions) -> Self {
        self.tls = Some(options);
        self
    }

    /// Adds masters by pools of your own, each with the name that errors and logs use for it.
    ///
    /// A `Redlock` keeps one connection of each pool. Servers send no notifications over such a connection, so
    /// waiters poll (see [`LockOptions::retry_delay`](crate::LockOptions::retry_delay)). Pools that do wake them are added as
    /// nodes: [`RedisNode::from_pool_with`].
    ///
    /// ```no_run
    /// # use redlock_tokio::Redlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use redlock_tokio::deadpool_redis::{Config, Runtime};
    ///
    /// let mut pools = Vec::new();
    /// for host in ["a", "b", "c"] {
    ///     let config = Config::from_url(format!("redis://{host}"));
    ///     pools.push((host, config.create_pool(Some(Runtime::Tokio1))?));
    /// }
    /// let redlock = Redlock::builder().pools(pools).build().await?;
    /// # Ok(())
    /// # }
    /// ```
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

    /// Adds masters of any type that implements [`Node`], such as [`MemoryNode`].
    ///
    /// ```
    /// # use redlock_tokio::{Clock, MemoryNode, Redlock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let nodes = [(); 3].map(|()| MemoryNode::new());
    /// let builder = Redlock::builder().custom_nodes(nodes.clone());
    /// let redlock = builder.clock(Clock::tokio()).build().await?;
    /// nodes[0].set_down(true);
    /// assert!(redlock.lock("order:42").await.is_ok()); // two of three agree
    /// # Ok(())
    /// # }
    /// ```
    pub fn custom_nodes<I>(mut self, nodes: I) -> Self
    where
        I: IntoIterator,
        I::Item: Node,
    {
        let nodes = nodes.into_iter();
        self.given
            .extend(nodes.map(|node| Given::Node(Arc::new(node))));
        self
    }

    /// Adds five [`MemoryNode`]s, and sets [`Clock::tokio`], by which their keys expire.
    ///
    /// Also sets [`Durability::AssumedForTests`], which applies to all nodes. So do not combine this method with real
    /// servers.
    pub fn embedded(self) -> Self {
        let nodes = (0..5).map(|_| MemoryNode::new());
        self.custom_nodes(nodes)
            .clock(Clock::tokio())
            .durability(Durability::AssumedForTests)
    }

    /// Makes the nodes of what was given, in its order.
    pub(super) fn take_nodes(&mut self) -> Result<Nodes, BuildError> {
        let mut made = Nodes::default();
        for (index, given) in mem::take(&mut self.given).into_iter().enumerate() {
            match given {
                Given::Node(node) => made.nodes.push(node),
                Given::Cluster(cluster) => self.add_voters(cluster, &mut made)?,
                Given::Url(url) => {
                    let defect = |error| defect(index + 1, error);
                    if let Some(cluster) = ClusterNodes::from_url(&url) {
                        let cluster = cluster.map_err(|error| defect(error.into()))?;
                        let cluster = match &self.tls {
                            Some(options) => cluster.tls(options.clone()),
                            None => cluster,
                        };
                        self.add_voters(cluster, &mut made)?;
                    } else {
                        let node = RedisNode::from_url_with(&url, self.tls.as_ref());
                        made.nodes.push(Arc::new(node.map_err(defect)?));
                    }
                }
            }
        }
        Ok(made)
    }

    fn add_voters(&mut self, cluster: ClusterNodes, made: &mut Nodes) -> Result<(), BuildError> {
        let voters = cluster.into_voters()?;
        self.prefix.tag_len = self.prefix.tag_len.max(voters.tag_len);
        made.nodes.extend(voters.nodes);
        made.unshared.extend(voters.unshared);
        Ok(())
    }
}

fn defect(position: usize, error: RedisNodeError) -> BuildError {
    match error {
        RedisNodeError::Tls(error) => BuildError::Tls { position, error },
        other => BuildError::Url {
            position,
            error: other.into_url_error(),
        },
    }
}

/// Returns the URLs in a list.
fn urls_in(list: &str) -> Vec<String> {
    let mut urls: Vec<String> = Vec::new();
    let is_separator = |it: char| it == ',' || it.is_whitespace();
    for part in list.split(is_separator).filter(|part| !part.is_empty()) {
        match urls.last_mut().filter(|url| may_go_on(url)) {
            Some(url) if !part.contains("://") => *url += &format!(",{part}"),
            _ => urls.push(part.to_owned()),
        }
    }
    urls
}

/// Returns true if the text is the URL of a cluster, or that of a Sentinel group without the slash that follows the last
/// sentinel.
fn may_go_on(url: &str) -> bool {
    let sentinels = url.split_once("+sentinel://");
    url.contains("+cluster://") || sentinels.is_some_and(|(_, rest)| !rest.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_and_white_space_separate_urls_but_not_the_servers_of_one() {
        let group = "redis+sentinel://:secret@a:1,b:2/orders?protocol=resp2";
        for (list, expected) in [
            ("redis://a,redis://b", &["redis://a", "redis://b"][..]),
            (
                " redis://a, redis://b\n\tunix:///c.sock,,\n",
                &["redis://a", "redis://b", "unix:///c.sock"],
            ),
            (
                &format!("{group},{group},redis://c"),
                &[group, group, "redis://c"],
            ),
            (&group.replace(',', ",\n  "), &[group]),
            (
                "redis+sentinel://a,b,redis://c",
                &["redis+sentinel://a,b", "redis://c"],
            ),
            (
                "redis+cluster://a,b:1?tags=x,y,z,redis://c",
                &["redis+cluster://a,b:1?tags=x,y,z", "redis://c"],
            ),
            ("redis://a,nonsense,", &["redis://a", "nonsense"]),
            ("", &[]),
            (" ,\n", &[]),
        ] {
            assert_eq!(urls_in(list), expected, "{list}");
        }
    }
}
