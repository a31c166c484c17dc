//! The rights of a client on a server, asked for before the first lock is granted.

use deadpool_redis::redis::{Pipeline, Value, aio::MultiplexedConnection};
use redlock_core::Operation;

use super::{
    connect::send,
    key_tag::KeyTag,
    server_error::{disconnected, is_denied_command, is_denied_key},
};
use crate::{
    node::{Command, NodeError},
    random::Random,
};

/// The commands to ask about, with arguments that have no effect. A key that nobody has replaces `KEY`.
const PROBES: [(&str, &[&str]); 17] = [
    // A contradiction, so a syntax error.
    ("SET", &[KEY, "", "NX", "XX"]),
    ("MGET", &[KEY]),
    ("EXISTS", &[KEY]),
    ("PTTL", &[KEY]),
    // No number.
    ("PEXPIRE", &[KEY, "x"]),
    ("DEL", &[KEY]),
    // No script has this hash.
    (
        "EVALSHA",
        &["0000000000000000000000000000000000000000", "0"],
    ),
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

/// The commands in the scripts that extend and release.
const SCRIPTS: [&str; 4] = ["MGET", "PTTL", "PEXPIRE", "DEL"];

/// The commands of the script that acquires several keys. The others are those of every lock.
const SEVERAL: [&str; 4] = ["EVAL", "MGET", "EXISTS", "SET"];

const ADOPTION: [&str; 3] = ["EVAL", "MGET", "SET"];

const READER: [&str; 12] = [
    "MGET",
    "EXISTS",
    "SET",
    "PTTL",
    "DEL",
    "TIME",
    "PEXPIREAT",
    "ZSCORE",
    "ZADD",
    "ZREM",
    "ZREMRANGEBYSCORE",
    "ZRANGE",
];

const LINE: [&str; 8] = [
    "EVAL", "TIME", "ZRANGE", "ZREM", "ZADD", "PEXPIRE", "ZRANK", "ZCARD",
];

pub(super) const REPLIES: usize = PROBES.len() + 3;

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
    pipeline.cmd("DISCARD");
    pipeline.cmd("EVAL").arg("return 1").arg(0);
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
    Err(misconfigured(&format!(
        "this client may not use keys with the prefix of its locks here: grant the key pattern {tag}{prefix}*"
    )))
}

#[derive(Debug)]
pub(super) struct Rights {
    denied: Vec<&'static str>,
    /// Why the client cannot lock at all, if it cannot.
    pub(super) denial: Option<NodeError>,
}

impl Rights {
    /// Reads the replies to [`ask`]. `knows_scripts` says whether the server has loaded the scripts.
    pub(super) fn read(replies: &[Value], knows_scripts: bool) -> Self {
        let (script, transaction) = replies.split_last().unzip();
        let transaction = transaction.unwrap_or_default();
        let answers = PROBES.iter().zip(transaction.iter().skip(1));
        let denied = answers
            .filter(|((name, _), reply)| {
                is_denied(reply) || (*name == "PUBLISH" && is_denied_channel(reply))
            })
            .map(|((name, _), _)| *name)
            .chain(
                script
                    .filter(|reply| is_failed_script(reply))
                    .map(|_| "EVAL"),
            )
            .collect();
        let mut rights = Self {
            denied,
            denial: None,
        };
        let (begun, given_up) = (transaction.first(), transaction.last());
        if begun == Some(&Value::Okay) && given_up.is_some_and(is_denied) {
            rights.denial = Some(misconfigured(
                "the server lets this client begin a transaction (MULTI) but not discard it: DISCARD is \
                 missing",
            ));
            return rights;
        }
        rights.denial = rights.hindrance(knows_scripts);
        rights
    }

    /// Returns why the client cannot lock at all, if it cannot.
    fn hindrance(&self, knows_scripts: bool) -> Option<NodeError> {
        let always = self.missing(&["SET", "PTTL"]);
        if !always.is_empty() {
            return Some(misconfigured(&format!(
                "every lock needs commands that this client may not use here, or that were renamed: {}",
                always.join(", ")
            )));
        }
        let mut missing = self.missing(&SCRIPTS);
        if !(knows_scripts && self.missing(&["EVALSHA"]).is_empty()) {
            missing.extend(self.missing(&["EVAL"]));
        }
        if missing.is_empty() {
            return None;
        }
        Some(misconfigured(&format!(
            "locks could neither be extended nor released, because this client may not use some commands \
             here, or they were renamed: {}",
            missing.join(", ")
        )))
    }

    /// Returns why a command is not sent: the server might set its keys, but not extend or release them.
    pub(super) fn refusal(&self, command: &Command) -> Option<NodeError> {
        if self.denial.is_some() {
            return self.denial.clone();
        }
        match command.operation() {
            Operation::Acquire { .. } if command.has_several_keys() => {
                self.refusal_of("a lock of several keys", &SEVERAL)
            }
            Operation::Adopt { .. } => self.refusal_of("an adoption", &ADOPTION),
            // The extension may be the downgrade of a writer.
            Operation::Acquire { .. } | Operation::Extend { .. } if command.is_readers() => {
                self.refusal_of("a reader", &READER)
            }
            // These need no more than every lock.
            Operation::Acquire { .. }
            | Operation::Extend { .. }
            | Operation::Fence { .. }
            | Operation::Probe { .. }
            | Operation::Release { .. } => None,
            _ => Some(NodeError::unknown_operation()),
        }
    }

    pub(super) fn refusal_of_lines(&self) -> Option<NodeError> {
        self.refusal_of("a line", &LINE)
    }

    /// Returns whether this client may call others.
    pub(super) fn can_call(&self) -> bool {
        self.missing(&["PUBLISH"]).is_empty()
    }

    fn refusal_of(&self, what: &str, needs: &[&'static str]) -> Option<NodeError> {
        let missing = self.missing(needs);
        (!missing.is_empty()).then(|| NodeError::Refused {
            code: "NOPERM".into(),
            message: format!(
                "{what} needs commands that this client may not use here, or that were renamed: {}",
                missing.join(", ")
            )
            .into(),
        })
    }

    fn missing(&self, needs: &[&'static str]) -> Vec<&'static str> {
        let is_missing = |need: &&&'static str| self.denied.contains(*need);
        needs.iter().filter(is_missing).copied().collect()
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

fn misconfigured(text: &str) -> NodeError {
    NodeError::Misconfigured(text.into())
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
