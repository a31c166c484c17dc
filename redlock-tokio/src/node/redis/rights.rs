//! The rights of a client on a server, asked for before the first lock is granted.

use std::iter;

use deadpool_redis::redis::{Pipeline, Value, aio::MultiplexedConnection};

use super::{
    connect::send,
    key_tag::KeyTag,
    script::{self, Call},
    server_error::{disconnected, is_denied_command, is_denied_key},
};
use crate::{node::NodeError, random::Random};

/// The commands that locks need, with arguments that have no effect. A key that nobody has replaces `KEY`. The lines of
/// `DEPLOYMENTS.md` grant them.
const PROBES: [(&str, &[&str]); 17] = [
    // A contradiction, so a syntax error.
    ("SET", &[KEY, "", "NX", "XX"]),
    ("GET", &[KEY]),
    ("MGET", &[KEY]),
    ("EXISTS", &[KEY]),
    ("PTTL", &[KEY]),
    // No number.
    ("PEXPIRE", &[KEY, "x"]),
    ("DEL", &[KEY]),
    ("TIME", &[]),
    ("PEXPIREAT", &[KEY, "x"]),
    ("ZSCORE", &[KEY, ""]),
    // None of these is a number.
    ("ZADD", &[KEY, "x", ""]),
    ("ZREM", &[KEY, ""]),
    ("ZREMRANGEBYSCORE", &[KEY, "x", "x"]),
    ("ZRANGE", &[KEY, "x", "x"]),
    ("ZRANK", &[KEY, ""]),
    ("ZCARD", &[KEY]),
    ("PUBLISH", &[CHANNEL, ""]),
];

/// A channel that nobody listens to.
const CHANNEL: &str = "redlock:line:probe";

const KEY: &str = "KEY";

/// Asks about the client's rights, within a transaction that is discarded. The server answers for each
/// command whether it accepts the command, and carries out none. On a server without transactions the
/// commands are carried out, and have no effect.
///
/// Only a script without effect is run: a server may have scripts turned off, and accept `EVAL` in a
/// transaction all the same.
///
/// Rights to keys are not asked for, since the keys are not known yet. [`check_prefix`] asks for them.
pub(super) fn ask(pipeline: &mut Pipeline, tag: &KeyTag) {
    let key = unused_key();
    pipeline.cmd("MULTI");
    for (name, arguments) in PROBES {
        let probe = pipeline.cmd(name);
        for &argument in arguments {
            if argument == KEY {
                probe.arg(tag.on(key.as_bytes()));
            } else {
                probe.arg(argument);
            }
        }
    }
    // No script has this hash.
    pipeline.cmd("EVALSHA").arg("0".repeat(40)).arg(0);
    pipeline.cmd("DISCARD");
    pipeline.add_command(script::NOTHING.call(Call::InFull, tag, &iter::empty()));
}

/// Returns a key that nobody has.
fn unused_key() -> String {
    // Without randomness it is only less unlikely that somebody has it.
    format!(
        "redlock:probe:{:032x}",
        Random::system().u128().unwrap_or(0)
    )
}

/// Asks whether the client may read and write keys with this prefix. Costs one round trip, and changes nothing.
///
/// # Errors
///
/// [`NodeError::Misconfigured`] if it may not.
pub(super) async fn check_prefix(
    mut connection: MultiplexedConnection,
    tag: KeyTag,
    prefix: Box<[u8]>,
) -> Result<(), NodeError> {
    let key = [&prefix, unused_key().as_bytes()].concat();
    let mut pipeline = Pipeline::new();
    pipeline.cmd("PTTL").arg(tag.on(&key));
    // A contradiction, so a syntax error. A server that does not mind it keeps the key for a millisecond.
    let write = pipeline.cmd("SET").arg(tag.on(&key)).arg("");
    write.arg("NX").arg("XX").arg("PX").arg(1);
    let replies = send(&mut connection, &pipeline).await;
    let replies = replies.map_err(|error| disconnected(&error))?;
    let is_denied = |it: &Value| matches!(it, Value::ServerError(error) if is_denied_key(error));
    if !replies.iter().any(is_denied) {
        return Ok(());
    }
    let (prefix, tag) = (
        prefix.escape_ascii(),
        if tag.len() > 0 { "{*}" } else { "" },
    );
    let text = format!(
        "this client may not use keys with the prefix of its locks here: grant the key pattern {tag}{prefix}*"
    );
    Err(NodeError::Misconfigured(text.into()))
}

pub(super) struct Rights {
    /// Why the client cannot lock, if it cannot.
    pub(super) denial: Option<NodeError>,
    /// How scripts are called.
    pub(super) by: Call,
    /// Whether this client may call others, by the channels of lines.
    pub(super) can_call: bool,
}

impl Rights {
    /// Reads the replies to [`ask`].
    pub(super) fn read(replies: &mut impl Iterator<Item = Value>) -> Self {
        let mut next = || replies.next().unwrap_or(Value::Nil);
        let begun = next();
        let answers = PROBES.map(|(name, _)| (name, next()));
        let [hash, given_up, script] = [next(), next(), next()];
        let denied = answers.iter().filter(|(_, reply)| is_denied(reply));
        let mut denied: Vec<_> = denied.map(|(name, _)| *name).collect();
        if is_failed_script(&script) && !denied.contains(&"EVAL") {
            denied.push("EVAL");
        }
        // The client has begun a transaction that it cannot leave.
        if begun == Value::Okay && is_denied(&given_up) {
            denied = vec!["DISCARD"];
        }
        let text = format!(
            "locks need commands that this client may not use here, or that were renamed: {}",
            denied.join(", ")
        );
        let [.., (_, publish)] = &answers;
        Self {
            denial: (!denied.is_empty()).then(|| NodeError::Misconfigured(text.into())),
            by: if is_denied(&hash) {
                Call::InFull
            } else {
                Call::ByHash
            },
            can_call: !is_denied_channel(publish),
        }
    }
}

fn is_denied(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if is_denied_command(error))
}

fn is_denied_channel(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if error.code() == "NOPERM")
}

/// Returns whether the script without effect failed, other than because the server is busy.
fn is_failed_script(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if matches!(error.code(), "ERR" | "NOPERM"))
}

#[cfg(test)]
mod tests {
    use deadpool_redis::redis::parse_redis_value;

    use super::*;

    #[test]
    fn an_error_about_a_key_is_not_a_missing_right() {
        for line in [
            "-NOPERM No permissions to access a key\r\n",
            "-READONLY You can't write\r\n",
            "-OOM command not allowed\r\n",
            "-ERR syntax error\r\n",
            ":0\r\n",
        ] {
            assert!(!is_denied(&parse_redis_value(line.as_bytes()).unwrap()));
        }
        assert!(is_denied(
            &parse_redis_value(b"-ERR unknown command 'EVAL', with args\r\n").unwrap()
        ));
    }
}
