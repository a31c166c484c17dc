//! Reading the answer to `INFO`.

use std::time::Duration;

use deadpool_redis::redis::Value;
use redlock_core::{Replication, ReplicationId, RunId};

use super::{server_error::refusal, shorten::shorten};
use crate::node::{NodeError, Server, ServerInfo};

/// Reads the answer on a new connection.
pub(super) fn read_first(reply: Value) -> Result<Server, NodeError> {
    match read_text(reply) {
        Ok(text) => parse(&text).map(Server::Known),
        Err(NodeError::Refused { code, message }) if matches!(&*code, "NOPERM" | "ERR") => {
            Ok(Server::Withheld(NodeError::Refused { code, message }))
        }
        // `LOADING`, `BUSY` and the like: the server may answer later.
        Err(error) => Err(NodeError::Unreachable(error.to_string().into())),
    }
}

/// Reads the answers for several sections on a connection that was opened before. An answer that tells
/// nothing about the server still shows that the server is there.
pub(super) fn read_again(sections: impl IntoIterator<Item = Value>) -> Server {
    let texts: Result<Vec<_>, _> = sections.into_iter().map(read_text).collect();
    texts
        .and_then(|texts| parse(&texts.join("\r\n")))
        .map_or_else(Server::Withheld, Server::Known)
}

/// Returns the text of one section, or of all.
fn read_text(reply: Value) -> Result<String, NodeError> {
    match reply {
        Value::BulkString(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
        Value::VerbatimString { text, .. } => Ok(text),
        Value::ServerError(error) => Err(refusal(&error)),
        _ => Err(NodeError::Unexpected(
            "the answer to INFO is not a text".into(),
        )),
    }
}

/// The second history of a server that has continued no other.
const NO_HISTORY: ReplicationId = ReplicationId::new([b'0'; ReplicationId::LEN]);

/// Parses the text. The order of the fields does not matter, and unknown fields are ignored.
fn parse(text: &str) -> Result<ServerInfo, NodeError> {
    let field = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(str::trim)
    };
    let required = |name: &str| {
        field(name).ok_or_else(|| unexpected(format!("the answer to INFO lacks {name}")))
    };
    let run_id = required("run_id")?;
    let run_id = run_id.as_bytes().try_into().map_err(|_| {
        let len = run_id.len();
        unexpected(format!(
            "the answer to INFO has a run_id of {len} bytes instead of {}",
            RunId::LEN
        ))
    })?;
    let uptime = required("uptime_in_seconds")?
        .parse()
        .map_err(|_| unexpected("the answer to INFO has an uptime that is not a number".into()))?;
    let role = required("role")?;
    let version = match field("valkey_version") {
        Some(version) => format!("valkey {version}"),
        None => format!("redis {}", field("redis_version").unwrap_or("?")),
    };
    let replica_of = (role != "master").then(|| {
        let host = field("master_host").unwrap_or("?");
        let port = field("master_port").unwrap_or("?");
        shorten(format!("{host}:{port}"))
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
    let has_memory_limit = field("maxmemory").is_some_and(|limit| limit != "0");
    Ok(ServerInfo {
        run_id: RunId::new(run_id),
        uptime: Duration::from_secs(uptime),
        replication,
        version: shorten(version),
        replica_of,
        in_cluster: field("cluster_enabled") == Some("1"),
        eviction: field("maxmemory_policy")
            .filter(|_| has_memory_limit)
            .map(|policy| shorten(policy.to_owned())),
        appends_to_file: field("aof_enabled") == Some("1"),
    })
}

fn unexpected(text: String) -> NodeError {
    NodeError::Unexpected(text.into())
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
    fn a_master_is_described() {
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
        assert_eq!(parse(REDIS), Ok(expected));
    }

    #[test]
    fn replicas_cluster_nodes_and_evicting_servers_are_recognized() {
        let text = REDIS
            .replace(
                "role:master",
                "role:slave\r\nmaster_host:a\r\nmaster_port:6379",
            )
            .replace("cluster_enabled:0", "cluster_enabled:1")
            .replace("maxmemory:0", "maxmemory:1000")
            .replace("noeviction", "volatile-ttl")
            .replace("# Server", "valkey_version:9.1.2");
        let info = parse(&text).unwrap();
        assert_eq!(info.replica_of.as_deref(), Some("a:6379"));
        assert!(info.in_cluster);
        assert_eq!(info.eviction.as_deref(), Some("volatile-ttl"));
        assert_eq!(info.version, "valkey 9.1.2");
    }

    #[test]
    fn a_promotion_shows_in_the_second_history() {
        let continues = |second: &str| {
            let text = REDIS.replace(&"0".repeat(40), second);
            let info = parse(&text).unwrap();
            info.replication.map(|it| it.continues)
        };
        let second = ReplicationId::new([b'b'; ReplicationId::LEN]);
        assert_eq!(continues(&"0".repeat(40)), Some(None));
        assert_eq!(continues(&"b".repeat(40)), Some(Some(second)));
        assert_eq!(continues("b"), None, "unknown");
        let text = REDIS.replace("master_replid2", "master_offset");
        assert_eq!(parse(&text).unwrap().replication, None);
    }

    #[test]
    fn missing_and_odd_fields_are_named() {
        for (from, to, named) in [
            ("run_id", "walk_id", "run_id"),
            ("uptime_in_seconds:42", "uptime_in_seconds:-1", "uptime"),
            ("01234567\r\n", "\r\n", "32 bytes"),
            ("role:", "roll:", "role"),
        ] {
            let error = parse(&REDIS.replace(from, to)).unwrap_err();
            assert!(error.to_string().contains(named), "{error}");
        }
    }
}
