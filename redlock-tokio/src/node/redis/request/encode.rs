//! The commands of a server that carry out the commands of a batch.

use std::iter;

use deadpool_redis::redis::{self, Cmd};
use redlock_core::{FencingToken, Operation, Token, Ttl};

use super::part::{Call, Shared};
use crate::{
    Key,
    node::{
        Command,
        redis::{
            key_tag::{KeyTag, WireKey},
            script::{self, Script},
        },
    },
};

/// Encodes commands whose keys have this tag on the server.
pub(super) struct Encoder {
    tag: KeyTag,
}

impl Encoder {
    pub(super) fn new(tag: &KeyTag) -> Self {
        Self { tag: tag.clone() }
    }

    pub(super) fn tag(&self) -> &KeyTag {
        &self.tag
    }

    /// `SET key token NX PX ttl`
    pub(super) fn set(&self, command: &Command, ttl: Ttl) -> Cmd {
        let mut cmd = self.start(command);
        cmd.arg("SET").arg(self.key(command)).arg(command.value());
        cmd.arg("NX").arg("PX").arg(ttl.as_millis());
        cmd
    }

    /// `MGET key..`
    pub(super) fn values<'a>(&self, keys: impl Iterator<Item = &'a Key>) -> Cmd {
        let mut cmd = redis::cmd("MGET");
        for key in keys {
            cmd.arg(self.tag.on(key.as_bytes()));
        }
        cmd
    }

    /// `PTTL mark`
    pub(super) fn mark_left(&self, key: &[u8]) -> Cmd {
        let mut cmd = redis::cmd("PTTL");
        cmd.arg(self.tag.beside(Key::MARKS, key));
        cmd
    }

    /// `PTTL key`
    pub(super) fn time_left(&self, key: &[u8]) -> Cmd {
        let mut cmd = redis::cmd("PTTL");
        cmd.arg(self.tag.on(key));
        cmd
    }

    /// `EVALSHA hash n key.. token.. ttl..`, or `MGET key..`. For fences, the counters follow the keys, the fences are
    /// in place of the ttls, and the lifetime of the counters comes last.
    ///
    /// A command for several keys repeats its token, and its ttl or fence.
    pub(super) fn shared<'a>(
        &self,
        shared: Shared,
        by: Call,
        commands: impl Iterator<Item = &'a Command> + Clone,
    ) -> Cmd {
        let keys = commands.clone().flat_map(Command::keys);
        let count = keys.clone().count();
        let (script, count) = match shared {
            Shared::Extensions => (&script::EXTEND, count),
            Shared::Releases => (&script::RELEASE, count),
            Shared::Fences => (&script::FENCE, 2 * count),
            Shared::Holders => return self.values(keys),
        };
        let mut cmd = self.script(script, by, count, keys.clone());
        let is_fences = matches!(shared, Shared::Fences);
        for key in keys.filter(|_| is_fences) {
            cmd.arg(self.tag.counter_of(key.as_bytes()));
        }
        let commands = commands.flat_map(|it| iter::repeat_n(it, it.key_count()));
        commands.clone().for_each(|it| _ = cmd.arg(it.value()));
        commands.for_each(|it| {
            _ = if is_fences {
                cmd.arg(it.fence().map(FencingToken::get))
            } else {
                let shortens = matches!(it.operation(), Operation::Extend { shortens: true, .. });
                let sign = if shortens { -1 } else { 1 };
                cmd.arg(it.ttl().map(|ttl| sign * ttl.as_millis() as i64))
            }
        });
        let lifetime = FencingToken::COUNTER_LIFETIME.as_millis();
        cmd.arg(is_fences.then_some(lifetime));
        cmd
    }

    /// `EVAL source n key.. giver token ttl`, of which only an adoption has a giver
    ///
    /// These commands are rare. If the server did not know the hash of the script, the command would have to be sent
    /// again, after others that came behind it.
    pub(super) fn in_full(&self, command: &Command, script: &Script) -> Cmd {
        let mut cmd = self.script(script, Call::InFull, command.key_count(), command.keys());
        cmd.arg(command.giver()).arg(command.value());
        cmd.arg(command.ttl().map(Ttl::as_millis));
        cmd
    }

    /// `EVALSHA hash n key..`
    pub(super) fn slots(&self, command: &Command, by: Call) -> Cmd {
        self.script(&script::SLOTS, by, command.key_count(), command.keys())
    }

    fn start(&self, command: &Command) -> Cmd {
        Cmd::with_capacity(8, 40 + self.key(command).len() + command.value().len())
    }

    fn key<'a>(&'a self, command: &'a Command) -> WireKey<'a> {
        self.tag.on(command.key().as_bytes())
    }

    /// `EVALSHA hash count key..`, or `EVAL source count key..`
    pub(super) fn script<'a>(
        &self,
        script: &Script,
        by: Call,
        count: usize,
        keys: impl Iterator<Item = &'a Key> + Clone,
    ) -> Cmd {
        let keys = keys.map(|key| self.tag.on(key.as_bytes()));
        let keys_len: usize = keys.clone().map(WireKey::len).sum();
        let mut cmd = Cmd::with_capacity(3 + 3 * count, 64 + keys_len + count * (Token::LEN + 8));
        match by {
            Call::ByHash => cmd.arg("EVALSHA").arg(script.hash()),
            Call::InFull => cmd.arg("EVAL").arg(script.source()),
        };
        cmd.arg(count);
        for key in keys {
            cmd.arg(key);
        }
        cmd
    }
}

/// `CLIENT CACHING YES`: the server tracks the key of the next command.
pub(super) fn caching() -> Cmd {
    let mut cmd = redis::cmd("CLIENT");
    cmd.arg("CACHING").arg("YES");
    cmd
}
