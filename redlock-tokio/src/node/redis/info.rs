//! Reading the answer to `INFO`.

use std::time::Duration;

use deadpool_redis::redis::Value;
use redlock_core::{Origin, Replication, ReplicationId, RunId};

use super::server_error::{refusal, shorten};
use crate::node::{NodeError, Role, Server, ServerInfo};

/// Reads the answer on a new connection.
pub(super) fn read_first(reply: Value) -> Result<Server, NodeError> {
    match read_text(reply) {
        Ok(text) if is_sentinel(&text) => Err(NodeError::Misconfigured(
            "a sentinel, which stores no locks: name the group that the sentinels watch, and \
                 they name its master (redis+sentinel://host:port/group)"
                .into(),
        )),
        Ok(text) => Ok(describe(&text)),
        Err(error) if error.is_missing_right() => Ok(Server::Withheld(error)),
        // `LOADING`, `BUSY` and the like: the server may answer later.
        Err(error) => Err(NodeError::Unreachable(error.to_string().into())),
    }
}

/// Returns whether a sentinel has answered. Redis and Valkey name the field differently.
fn is_sentinel(text: &str) -> bool {
    let modes = ["redis_mode", "server_mode"].map(|name| field(text, name));
    modes.contains(&Some("sentinel"))
}

/// Reads the answers for several sections on a connection that was opened before. An answer that tells
/// nothing about the server still shows that the server is there.
pub(super) fn read_again(sections: impl IntoIterator<Item = Value>) -> Server {
    let texts: Result<Vec<_>, _> = sections.into_iter().map(read_text).collect();
    texts.map_or_else(Server::Withheld, |texts| describe(&texts.join("\r\n")))
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

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

/// Reads the text. A text with none of the fields by which a server is judged is no description.
fn describe(text: &str) -> Server {
    let fields = ["run_id", "uptime_in_seconds", "role", "master_replid"];
    if fields.iter().all(|name| field(text, name).is_none()) {
        let error = "the answer to INFO does not describe the server";
        return Server::Withheld(NodeError::Unexpected(error.into()));
    }
    Server::Known(parse(text))
}

/// Parses the text. The order of the fields does not matter, and unknown fields are ignored. A field with a
/// value that makes no sense counts as missing.
fn parse(text: &str) -> ServerInfo {
    let field = |name: &str| field(text, name);
    let digits = |name: &str| <[u8; RunId::LEN]>::try_from(field(name)?.as_bytes()).ok();
    let version = match field("valkey_version") {
        Some(version) => format!("valkey {version}"),
        None => format!("redis {}", field("redis_version").unwrap_or("?")),
    };
    let role = match field("role") {
        None | Some("") => Role::Withheld,
        Some("master") => Role::Master,
        Some(_) => {
            let host = field("master_host").unwrap_or("?");
            let port = field("master_port").unwrap_or("?");
            Role::ReplicaOf(shorten(format!("{host}:{port}")))
        }
    };
    let origin = match digits("master_replid2").map(ReplicationId::new) {
        None => Origin::Withheld,
        Some(ReplicationId::NONE) => Origin::Own,
        Some(earlier) => Origin::Continues(earlier),
    };
    let replication = digits("master_replid").map(|id| Replication {
        id: ReplicationId::new(id),
        origin,
    });
    let uptime = field("uptime_in_seconds").and_then(|text| text.parse().ok());
    let has_memory_limit = field("maxmemory").is_some_and(|limit| limit != "0");
    ServerInfo {
        run_id: digits("run_id").map(RunId::new),
        uptime: uptime.map(Duration::from_secs),
        replication,
        version: shorten(version),
        role,
        in_cluster: field("cluster_enabled") == Some("1"),
        eviction: field("maxmemory_policy")
            .filter(|_| has_memory_limit)
            .map(|policy| shorten(policy.to_owned())),
        appends_to_file: field("aof_enabled") == Some("1"),
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
    fn a_master_is_described() {
        let run_id = RunId::new(*b"0123456789abcdef0123456789abcdef01234567");
        let expected = ServerInfo {
            version: "redis 7.0.15".into(),
            appends_to_file: true,
            replication: Some(Replication {
                id: A_HISTORY,
                origin: Origin::Own,
            }),
            ..ServerInfo::new(run_id, Duration::from_secs(42))
        };
        assert_eq!(parse(REDIS), expected);
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
        let info = parse(&text);
        assert_eq!(info.role, Role::ReplicaOf("a:6379".into()));
        assert!(info.in_cluster);
        assert_eq!(info.eviction.as_deref(), Some("volatile-ttl"));
        assert_eq!(info.version, "valkey 9.1.2");
    }

    #[test]
    fn a_field_that_is_missing_or_makes_no_sense_is_left_out() {
        type Change = fn(&mut ServerInfo);
        let changes: [(_, _, Change); 5] = [
            ("run_id", "walk_id", |info| info.run_id = None),
            ("01234567\r\n", "\r\n", |info| info.run_id = None),
            ("seconds:42", "seconds:-1", |info| info.uptime = None),
            ("role:", "roll:", |info| info.role = Role::Withheld),
            ("role:master", "role:", |info| info.role = Role::Withheld),
        ];
        for (from, to, change) in changes {
            let mut expected = parse(REDIS);
            change(&mut expected);
            assert_eq!(parse(&REDIS.replace(from, to)), expected, "{from}");
        }
    }

    #[test]
    fn a_text_without_any_of_the_fields_is_no_description() {
        for text in ["", "# Server\r\n", "redis_version:7.0.15\r\n"] {
            let is_withheld = matches!(describe(text), Server::Withheld(NodeError::Unexpected(_)));
            assert!(is_withheld, "{text}");
        }
        assert!(matches!(describe("role:master"), Server::Known(_)));
    }

    #[test]
    fn a_sentinel_is_named() {
        for mode in ["redis_mode", "server_mode"] {
            let text = REDIS.replace("run_id", &format!("{mode}:sentinel\r\nrun_id"));
            let error = read_first(Value::BulkString(text.into_bytes())).unwrap_err();
            assert!(error.is_refusal(), "{error}");
            assert!(error.to_string().contains("redis+sentinel://"), "{error}");
        }
    }
}
