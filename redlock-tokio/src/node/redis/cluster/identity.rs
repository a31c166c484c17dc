use deadpool_redis::redis::Value;
use redlock_core::MemberId;

use crate::node::{
    NodeError,
    redis::{
        server_error::{refusal, shorten},
        survey::member_id,
    },
};

/// Reads the answer to `CLUSTER MYID` of the server that should be this node.
///
/// # Errors
///
/// The address may lead to another server by now. Its votes would count as those of the node.
pub(in crate::node::redis) fn check(reply: &Value, expected: MemberId) -> Result<(), NodeError> {
    let text = match reply {
        Value::BulkString(id) => {
            let id = String::from_utf8_lossy(id);
            if member_id(&id) == Some(expected) {
                return Ok(());
            }
            let text =
                format!("another node of a cluster is at this address: {id} and not {expected}");
            return Err(NodeError::Unreachable(shorten(text).into()));
        }
        Value::ServerError(error) => format!("CLUSTER MYID: {}", refusal(error)),
        other => format!("an unexpected answer to CLUSTER MYID: {other:?}"),
    };
    Err(NodeError::Misconfigured(shorten(text).into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use deadpool_redis::redis::parse_redis_value;

    #[test]
    fn only_the_expected_node_passes() {
        let id = MemberId::new([b'a'; MemberId::LEN]);
        let answer = |text: &str| {
            let reply = parse_redis_value(text.as_bytes()).unwrap();
            check(&reply, id).map_err(|error| error.to_string())
        };
        assert_eq!(answer(&format!("$40\r\n{id}\r\n")), Ok(()));
        for (reply, named) in [
            (format!("$40\r\n{}\r\n", "b".repeat(40)), "another node"),
            ("$1\r\na\r\n".into(), "another node"),
            ("-NOPERM no\r\n".into(), "CLUSTER MYID: NOPERM"),
            (
                "-ERR This instance has cluster support disabled\r\n".into(),
                "disabled",
            ),
            (":1\r\n".into(), "an unexpected answer"),
        ] {
            let error = answer(&reply).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }
}
