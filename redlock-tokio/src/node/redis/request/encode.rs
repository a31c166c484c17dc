//! The commands of a server that carry out the commands of a batch, other than scripts.

use deadpool_redis::redis::{self, Cmd};
use redlock_core::{Operation, Ttl};

use crate::{
    Key,
    node::{Command, redis::key_tag::KeyTag},
};

/// `SET key token NX PX ttl`
pub(super) fn set(tag: &KeyTag, command: &Command, ttl: Ttl) -> Cmd {
    let key = tag.on(command.key().as_bytes());
    let mut cmd = Cmd::with_capacity(8, 40 + key.len() + command.value().len());
    cmd.arg("SET").arg(key).arg(command.value());
    cmd.arg("NX").arg("PX").arg(ttl.as_millis());
    cmd
}

/// `MGET key..`
pub(super) fn values<'a>(tag: &KeyTag, keys: impl Iterator<Item = &'a Key>) -> Cmd {
    let mut cmd = redis::cmd("MGET");
    for key in keys {
        cmd.arg(tag.on(key.as_bytes()));
    }
    cmd
}

/// `PTTL key`
pub(super) fn time_left(tag: &KeyTag, key: &Key) -> Cmd {
    let mut cmd = redis::cmd("PTTL");
    cmd.arg(tag.on(key.as_bytes()));
    cmd
}

/// `PTTL mark`
pub(super) fn mark_left(tag: &KeyTag, key: &Key) -> Cmd {
    let mut cmd = redis::cmd("PTTL");
    cmd.arg(tag.beside(Key::MARKS, key.as_bytes()));
    cmd
}

/// `SET mark nonce PX time`, if the command marks its key. The reply does not matter.
pub(super) fn mark(tag: &KeyTag, command: &Command) -> Option<Cmd> {
    let Operation::Probe { mark, .. } = command.operation() else {
        return None;
    };
    let time = mark?.as_millis();
    let mut cmd = redis::cmd("SET");
    cmd.arg(tag.beside(Key::MARKS, command.key().as_bytes()));
    cmd.arg(command.mark()).arg("PX").arg(time);
    Some(cmd)
}

/// `CLIENT CACHING YES`: the server tracks the key of the next command.
pub(super) fn caching() -> Cmd {
    let mut cmd = redis::cmd("CLIENT");
    cmd.arg("CACHING").arg("YES");
    cmd
}
