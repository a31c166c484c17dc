//! A cluster whose slots vote, each as a node of its own.

mod authority;
mod directory;
mod error;
pub(super) mod identity;
mod layout;
mod member;
mod seeds;
mod url;

use std::{collections::BTreeMap, fmt, sync::Arc};

use futures::{
    FutureExt,
    future::{BoxFuture, ready},
};

pub(crate) use self::authority::ClusterAuthority;
pub use self::error::ClusterError;
use self::seeds::Seeds;
use super::{
    address::AddressMap,
    callback::{Callback, CallbackError},
    credentials::{Credentials, CredentialsCallback},
    key_slot::KeySlot,
    tls::TlsOptions,
};
use crate::node::{AuthorityKind, NamedBy, Node, NodeError, Session};

/// A Redis (or Valkey) cluster whose slots vote. Give it to
/// [`RedlockBuilder::cluster`](crate::RedlockBuilder::cluster).
///
/// A [list of nodes](crate::RedlockBuilder::node_list) names the same cluster by its URL,
/// `redis+cluster://[user[:password]@]host[:port],host[:port]`, with the parameters `voters`, `tags`,
/// `allow_shared_servers=true` and `protocol=resp2`. `rediss+cluster://` is for TLS.
///
/// A lock over a cluster has three voters by default. Each voter is a hash slot, so all clients agree on the voters,
/// whatever server owns which slots. The voters are equal distances apart, each in the middle of its part. On the server of
/// a voter, a lock's key is `{tag}key`, where the tag is the smallest decimal number in the voter's slot:
///
/// | voters | tags |
/// |---|---|
/// | 1 | 8209 |
/// | 3 | 21418, 8209, 16418 |
/// | 5 | 736, 11431, 8209, 9345, 12226 |
/// | 7 | 2589, 7989, 29029, 8209, 28798, 15018, 3238 |
///
/// The fencing counter of the key is in the same slot. So clients that lock the bare `key` in the
/// cluster are not excluded.
///
/// # What a failover costs
///
/// A replica that becomes the master may lack the newest locks. So a voter has no vote for about the longest ttl and
/// three seconds after its server has changed. The other voters go on, and locks stay held. The master of a voter's
/// slot is the server that more than half of *all* nodes of the cluster name, including replicas. If half of them
/// cannot be reached, nobody gets a lock.
///
/// By default a cluster that has lost a master refuses *all* commands for a while, until a replica has taken over. With
/// `cluster-require-full-coverage no` the other shards go on.
///
/// A voter also loses its vote for that time when its slot moves to another server, and usually when its server gets any
/// slot of another one. If two of three voters lose their votes at the same time, all held locks are lost. So never move
/// a voter's slot straight to a server that has a voter. `DEPLOYMENTS.md` in the repository has the rules for resharding
/// while locks are held.
///
/// Two voters on one server fail together. [`build`](crate::RedlockBuilder::build) refuses that with
/// [`ClusterError::SharedServer`], and names the slots and the server. Three voters need at least three shards. For
/// one or two shards choose [`voters(1)`](Self::voters): each failover of that shard is then an outage, and loses the
/// locks that are held.
///
/// # Rights
///
/// Besides the rights of a plain master, the user of this client needs `+cluster|nodes` and `+cluster|myid`. All its key
/// patterns begin with `{*}`, except `redlock:fence:*`. `DEPLOYMENTS.md` has a line that creates the user.
///
/// ```no_run
/// # use redlock_tokio::{ClusterNodes, Redlock};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // Two seeds, so that one of them may be down. The others are learned.
/// let cluster = ClusterNodes::new(["redis://a:7000", "redis://b:7000"]).voters(5);
/// let redlock = Redlock::builder().cluster(cluster).build().await?;
/// let guard = redlock.lock("order:42").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "it does nothing until given to a builder"]
pub struct ClusterNodes {
    seeds: Vec<String>,
    credentials: Option<CredentialsCallback>,
    tls: Option<TlsOptions>,
    voters: Voters,
    map: Option<AddressMap>,
    allow_shared_servers: bool,
}

#[derive(Clone, Debug)]
enum Voters {
    Count(usize),
    Tags(Vec<String>),
}

impl ClusterNodes {
    /// Describes the cluster of these nodes, by URLs as for [`RedisNode::from_url`](crate::RedisNode::from_url). The
    /// other nodes are learned from any of them that answers. User, password and TLS apply to all nodes, so the
    /// URLs must agree on them. Does not connect.
    pub fn new<I>(seeds: I) -> Self
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        Self {
            seeds: seeds
                .into_iter()
                .map(|seed| seed.as_ref().to_owned())
                .collect(),
            credentials: None,
            tls: None,
            voters: Voters::Count(3),
            map: None,
            allow_shared_servers: false,
        }
    }

    /// Sets the function that is asked for the credentials of each new connection to any node. The URLs of the seeds
    /// then have no user and no password. See [`RedisNodeBuilder::credentials`](crate::RedisNodeBuilder::credentials).
    ///
    /// ```
    /// # use redlock_tokio::{ClusterNodes, Credentials};
    /// # async fn token() -> Result<String, std::io::Error> { Ok(String::new()) }
    /// let cluster = ClusterNodes::new(["rediss://n1.internal:6379", "rediss://n2.internal:6379"])
    ///     .credentials(async || token().await.map(|it| Credentials::new("locker", it)));
    /// ```
    pub fn credentials<F, Fut, E>(mut self, ask: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<CallbackError>,
    {
        self.credentials = Some(Callback::new(ask));
        self
    }

    /// Sets how the connections to all nodes check the server, and which certificate they show. The seeds must begin
    /// with `rediss://`. Needs the feature `tls-rustls`.
    ///
    /// A certificate must be for the host that the node announces, or for the
    /// [name](TlsOptions::server_name) of the options, which is one for all nodes.
    pub fn tls(mut self, options: TlsOptions) -> Self {
        self.tls = Some(options);
        self
    }

    /// Sets the number of voters: an odd number, at most 63. Three by default.
    ///
    /// All clients must use the same number, so it never follows the number of shards by itself. The voters are
    /// those of the [table](Self). Replaces [`tags`](Self::tags).
    pub fn voters(mut self, count: usize) -> Self {
        self.voters = Voters::Count(count);
        self
    }

    /// Sets the voters by their hash tags, one for each voter, if the usual slots are not on different servers. An
    /// odd number, at most 63. A tag has 1 to 64 bytes, and no braces. All clients must use the same tags. Replaces
    /// [`voters`](Self::voters).
    ///
    /// `CLUSTER KEYSLOT tag` on a node returns the slot of a tag, and `CLUSTER SLOTS` the slots of each server.
    pub fn tags<I>(mut self, tags: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        self.voters = Voters::Tags(tags.into_iter().map(Into::into).collect());
        self
    }

    /// Lets two voters be slots of one server when the client starts. They fail together, so the locks tolerate fewer
    /// failed servers than the number of voters promises. The keys stay the same, so processes with and without this
    /// option exclude each other.
    ///
    /// Voters can also come together while a client runs, by resharding. They go on, with a warning in the log.
    pub fn allow_shared_servers(mut self) -> Self {
        self.allow_shared_servers = true;
        self
    }

    /// Translates the addresses that nodes announce, for a client behind a NAT or outside a container network.
    /// `None` leaves an address as it is. The seeds are not translated.
    ///
    /// The function gets `host:port`, and `[host]:port` for IPv6, in lower case. It may be called at any time, so it
    /// must not block. Each server needs an address of its own: if one address leads to different servers, the client
    /// cannot keep them apart.
    ///
    /// ```
    /// # use redlock_tokio::ClusterNodes;
    /// let cluster = ClusterNodes::new(["redis://127.0.0.1:7000", "redis://127.0.0.1:7001"])
    ///     .map_addresses(|announced| Some(announced.replace("10.0.0.5", "127.0.0.1")));
    /// ```
    pub fn map_addresses(
        mut self,
        map: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.map = Some(Arc::new(map));
        self
    }

    pub(crate) fn tags_of_voters(&self) -> Result<Vec<String>, ClusterError> {
        let is_usual = |count| count % 2 == 1 && count <= ClusterError::MAX_VOTERS;
        match &self.voters {
            Voters::Count(count) if is_usual(*count) => Ok((0..*count)
                .map(|voter| KeySlot::of_voter(voter, *count).tag())
                .collect()),
            Voters::Tags(tags) if is_usual(tags.len()) => {
                check_tags(tags)?;
                Ok(tags.clone())
            }
            Voters::Count(count) => Err(ClusterError::Voters { count: *count }),
            Voters::Tags(tags) => Err(ClusterError::Voters { count: tags.len() }),
        }
    }

    /// Returns the voters as nodes, and their authority.
    pub(crate) fn into_voters(self) -> Result<ClusterVoters, ClusterError> {
        let tags = self.tags_of_voters()?;
        let mut seeds = Seeds::parse(&self.seeds)?;
        seeds.settings = seeds
            .settings
            .with_tls(self.tls.as_ref())?
            .with_credentials(self.credentials)
            .ok_or(ClusterError::TwoCredentials)?;
        let name = seeds.endpoints[0].to_string();
        let authority = Arc::new(ClusterAuthority::new(seeds, &tags, self.map));
        let node = |(index, tag): (usize, &String)| {
            let slot = KeySlot::of(tag.as_bytes()).number();
            Arc::new(ClusterVoter {
                // With the tag, by which an operator finds the keys.
                address: format!("slot {slot} {{{tag}}} of the cluster at {name}").into(),
                authority: Arc::clone(&authority),
                index,
            }) as Arc<dyn Node>
        };
        Ok(ClusterVoters {
            nodes: tags.iter().enumerate().map(node).collect(),
            // The braces count too.
            tag_len: tags.iter().map(|tag| tag.len() + 2).max().unwrap_or(0),
            unshared: (!self.allow_shared_servers).then_some(authority),
        })
    }
}

pub(crate) struct ClusterVoters {
    pub(crate) nodes: Vec<Arc<dyn Node>>,
    /// How many bytes longer a key is on the servers.
    pub(crate) tag_len: usize,
    /// The authority that must name a server of its own for each voter, if servers must not be shared.
    pub(crate) unshared: Option<Arc<ClusterAuthority>>,
}

/// A slot of a cluster, which votes as a node.
struct ClusterVoter {
    address: Box<str>,
    authority: Arc<ClusterAuthority>,
    index: usize,
}

impl Node for ClusterVoter {
    fn address(&self) -> &str {
        &self.address
    }

    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        let text = "the nodes of the cluster name the server of a slot";
        ready(Err(NodeError::Unreachable(text.into()))).boxed()
    }

    fn named_by(&self) -> Option<NamedBy> {
        let authority = Arc::clone(&self.authority);
        let kind = AuthorityKind::Cluster {
            // Two voters can come together on one server at any time. The check at the start names them.
            may_share_server: true,
        };
        Some(NamedBy::new(authority, self.index, kind))
    }
}

fn check_tags(tags: &[String]) -> Result<(), ClusterError> {
    let mut positions = BTreeMap::new();
    for (index, tag) in tags.iter().enumerate() {
        let position = index + 1;
        let is_odd = |it: char| it.is_control() || matches!(it, '{' | '}');
        if tag.is_empty() || tag.len() > ClusterError::MAX_TAG || tag.contains(is_odd) {
            return Err(ClusterError::Tag { position });
        }
        let slot = KeySlot::of(tag.as_bytes()).number();
        if let Some(first) = positions.insert(slot, position) {
            return Err(ClusterError::SameSlot {
                first,
                second: position,
                slot,
            });
        }
    }
    Ok(())
}

impl fmt::Debug for ClusterNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The seeds may hold a password.
        f.debug_struct("ClusterNodes")
            .field("seeds", &self.seeds.len())
            .field("tls", &self.tls)
            .field("voters", &self.voters)
            .field("allow_shared_servers", &self.allow_shared_servers)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(nodes: &ClusterNodes) -> Result<String, String> {
        let tags = nodes.tags_of_voters();
        tags.map(|tags| tags.join(" "))
            .map_err(|error| error.to_string())
    }

    fn cluster() -> ClusterNodes {
        ClusterNodes::new(["redis://ann:hunter2@a:7000"])
    }

    #[test]
    fn the_voters_are_the_documented_slots_unless_there_are_tags() {
        assert_eq!(tags(&cluster()).as_deref(), Ok("21418 8209 16418"));
        for (count, documented) in [
            (1, "8209"),
            (5, "736 11431 8209 9345 12226"),
            (7, "2589 7989 29029 8209 28798 15018 3238"),
        ] {
            assert_eq!(tags(&cluster().voters(count)).as_deref(), Ok(documented));
        }
        let explicit = cluster().tags(["a", "b", "c"]);
        assert_eq!(tags(&explicit).as_deref(), Ok("a b c"));
        assert_eq!(tags(&explicit.voters(1)).as_deref(), Ok("8209"));
    }

    #[test]
    fn each_voter_has_a_name_without_secrets() {
        let voters = cluster().into_voters().unwrap();
        let names: Vec<_> = voters.nodes.iter().map(|node| node.address()).collect();
        assert_eq!(names[1], "slot 8192 {8209} of the cluster at a:7000");
        assert_eq!(voters.tag_len, "{21418}".len());
        assert!(!format!("{:?}", cluster()).contains("hunter2"));
    }
}
