use std::time::Duration;

use redlock_core::{Replication, ReplicationId, RunId};

use super::NodeError;

/// What is known of the server behind a [`Session`](super::Session), for a lock to decide whether it
/// may vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    /// There is no server, so there is nothing to know: a node within the process.
    None,
    /// What it says of itself.
    Known(ServerInfo),
    /// It does not say, and why.
    Withheld(NodeError),
}

impl Server {
    /// Returns whether there is nothing to be judged now: no server, or one that is only busy. A server
    /// that does not allow the question will not answer it in a second either.
    pub(crate) fn may_tell_later(&self) -> bool {
        match self {
            Self::None => true,
            Self::Withheld(NodeError::Refused { code, .. }) => &**code != "NOPERM",
            Self::Withheld(_) => true,
            Self::Known(_) => false,
        }
    }
}

/// What a server says of itself (`INFO`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerInfo {
    /// What it calls itself from its start to its end.
    pub run_id: RunId,
    /// For how long it had been up when it was asked, in whole seconds. In a
    /// [`NodeStatus`](crate::NodeStatus) that is when it was last connected to.
    pub uptime: Duration,
    /// The history of its keys, which changes when it is promoted; `None` if it does not tell.
    pub replication: Option<Replication>,
    /// The version, such as `redis 7.0.15` or `valkey 9.1.2`.
    pub version: String,
    /// The master that it is a replica of.
    pub replica_of: Option<String>,
    /// Whether it is a node of a cluster.
    pub in_cluster: bool,
    /// What it does to keys when it runs out of memory, if it has a limit: `noeviction` if nothing.
    pub eviction: Option<String>,
    /// Whether it writes an append-only file.
    pub appends_to_file: bool,
}

/// What a server says that has continued no history.
const NO_HISTORY: ReplicationId = ReplicationId::new([b'0'; ReplicationId::LEN]);

impl ServerInfo {
    /// Describes a master of its own that is up for this long, and was never promoted; change the fields
    /// for others.
    #[must_use]
    pub fn new(run_id: RunId, uptime: Duration) -> Self {
        Self {
            run_id,
            uptime,
            replication: Some(Replication {
                id: ReplicationId::new([b'0'; ReplicationId::LEN]),
                continues: None,
            }),
            version: String::new(),
            replica_of: None,
            in_cluster: false,
            eviction: None,
            appends_to_file: false,
        }
    }

    /// Reads the answer to `INFO`, of which the order and everything unknown is of no consequence.
    pub(super) fn parse(text: &str) -> Result<Self, NodeError> {
        let field = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
                .map(str::trim)
        };
        let required = |name: &str| {
            let missing = || NodeError::Unexpected(format!("INFO does not tell {name}").into());
            field(name).ok_or_else(missing)
        };
        let run_id = required("run_id")?;
        let digits = run_id.as_bytes().try_into();
        let run_id = digits.map(RunId::new).map_err(|_| {
            NodeError::Unexpected(format!("INFO tells a run_id of {} bytes", run_id.len()).into())
        })?;
        let uptime = required("uptime_in_seconds")?.parse();
        let uptime = uptime
            .map(Duration::from_secs)
            .map_err(|_| NodeError::Unexpected("INFO tells an uptime that is no number".into()))?;
        let role = required("role")?;
        let version = match field("valkey_version") {
            Some(version) => format!("valkey {version}"),
            None => format!("redis {}", field("redis_version").unwrap_or("?")),
        };
        let replica_of = (role != "master").then(|| {
            let host = field("master_host").unwrap_or("?");
            let port = field("master_port").unwrap_or("?");
            format!("{host}:{port}")
        });
        let history = |name| {
            let digits = field(name)?.as_bytes().try_into().ok()?;
            Some(ReplicationId::new(digits))
        };
        let replication =
            history("master_replid")
                .zip(history("master_replid2"))
                .map(|(id, second)| Replication {
                    id,
                    continues: (second != NO_HISTORY).then_some(second),
                });
        let limited = field("maxmemory").is_some_and(|limit| limit != "0");
        Ok(Self {
            run_id,
            uptime,
            replication,
            version: super::redis::shorten(version),
            replica_of: replica_of.map(super::redis::shorten),
            in_cluster: field("cluster_enabled") == Some("1"),
            eviction: field("maxmemory_policy")
                .filter(|_| limited)
                .map(|policy| super::redis::shorten(policy.to_owned())),
            appends_to_file: field("aof_enabled") == Some("1"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REDIS: &str = "# Server\r\nredis_version:7.0.15\r\n\
        run_id:0123456789abcdef0123456789abcdef01234567\r\nuptime_in_seconds:42\r\n\
        # Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n\
        # Persistence\r\naof_enabled:1\r\n# Replication\r\nrole:master\r\n\
        master_replid:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n\
        master_replid2:0000000000000000000000000000000000000000\r\n\
        # Cluster\r\ncluster_enabled:0\r\n";

    const A_HISTORY: ReplicationId = ReplicationId::new([b'a'; ReplicationId::LEN]);

    #[test]
    fn a_master_says_what_it_is() {
        let run_id = RunId::new(*b"0123456789abcdef0123456789abcdef01234567");
        let expected = ServerInfo {
            version: "redis 7.0.15".into(),
            appends_to_file: true,
            replication: Some(Replication {
                id: A_HISTORY,
                continues: None,
            }),
            ..ServerInfo::new(run_id, Duration::from_secs(42))
        };
        assert_eq!(ServerInfo::parse(REDIS), Ok(expected));
    }

    #[test]
    fn others_say_what_is_wrong_with_them() {
        let text = REDIS
            .replace(
                "role:master",
                "role:slave\r\nmaster_host:a\r\nmaster_port:6379",
            )
            .replace("cluster_enabled:0", "cluster_enabled:1")
            .replace("maxmemory:0", "maxmemory:1000")
            .replace("noeviction", "volatile-ttl")
            .replace("# Server", "valkey_version:9.1.2");
        let info = ServerInfo::parse(&text).unwrap();
        assert_eq!(info.replica_of.as_deref(), Some("a:6379"));
        assert!(info.in_cluster);
        assert_eq!(info.eviction.as_deref(), Some("volatile-ttl"));
        assert_eq!(info.version, "valkey 9.1.2");
    }

    #[test]
    fn a_promotion_shows_in_the_second_history() {
        let continues = |second: &str| {
            let text = REDIS.replace(&"0".repeat(40), second);
            let info = ServerInfo::parse(&text).unwrap();
            info.replication.map(|it| it.continues)
        };
        let second = ReplicationId::new([b'b'; ReplicationId::LEN]);
        assert_eq!(continues(&"0".repeat(40)), Some(None));
        assert_eq!(continues(&"b".repeat(40)), Some(Some(second)));
        assert_eq!(continues("b"), None, "not told");
        let text = REDIS.replace("master_replid2", "master_offset");
        assert_eq!(ServerInfo::parse(&text).unwrap().replication, None);
    }

    #[test]
    fn what_is_missing_or_odd_is_named() {
        for (from, to, named) in [
            ("run_id", "walk_id", "run_id"),
            ("uptime_in_seconds:42", "uptime_in_seconds:-1", "uptime"),
            ("01234567\r\n", "\r\n", "32 bytes"),
            ("role:", "roll:", "role"),
        ] {
            let error = ServerInfo::parse(&REDIS.replace(from, to)).unwrap_err();
            assert!(error.to_string().contains(named), "{error}");
        }
    }
}
