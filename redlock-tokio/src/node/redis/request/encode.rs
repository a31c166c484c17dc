//! The commands of a server that carry out the commands of a batch.

use deadpool_redis::redis::{self, Cmd};
use redlock_core::{FencingToken, Token, Ttl};

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

    /// `EVALSHA hash n key.. token.. ttl..`, with [counters](Self::counters) instead of the ttls, or `MGET key..`
    pub(super) fn shared<'a>(
        &self,
        shared: Shared,
        by: Call,
        commands: impl Iterator<Item = &'a Command> + Clone,
    ) -> Cmd {
        let keys = commands.clone().map(Command::key);
        let script = match shared {
            Shared::Extensions => &script::EXTEND,
            Shared::Releases => &script::RELEASE,
            Shared::Fences => return self.counters(&script::FENCE, by, keys.zip(commands)),
            Shared::Holders => return self.values(keys),
        };
        let mut cmd = self.script(script, by, keys.clone().count(), keys);
        for command in commands.clone() {
            cmd.arg(command.value());
        }
        for command in commands {
            cmd.arg(command.ttl().map(Ttl::as_millis));
        }
        cmd
    }

    /// The same for the counters of all keys of one command, in full.
    pub(super) fn fence_all(&self, command: &Command) -> Cmd {
        let targets = command.keys().map(|key| (key, command));
        self.counters(&script::FENCE_ALL, Call::InFull, targets)
    }

    /// `EVAL source n key.. token ttl`
    ///
    /// Commands for several keys are rare. If the server did not know the hash of the script, the command
    /// would have to be sent again, after others that came behind it.
    pub(super) fn all_keys(&self, command: &Command, script: &Script) -> Cmd {
        let mut cmd = self.script(script, Call::InFull, command.key_count(), command.keys());
        cmd.arg(command.value());
        cmd.arg(command.ttl().map(Ttl::as_millis));
        cmd
    }

    /// `EVALSHA hash n key..`
    pub(super) fn slots(&self, command: &Command, by: Call) -> Cmd {
        self.script(&script::SLOTS, by, command.key_count(), command.keys())
    }

    /// `EVAL source 1 key giver value ttl`, in full like commands for several keys
    pub(super) fn adopt(&self, command: &Command) -> Cmd {
        let key = [command.key()].into_iter();
        let mut cmd = self.script(&script::ADOPT, Call::InFull, 1, key);
        cmd.arg(command.giver()).arg(command.value());
        cmd.arg(command.ttl().map(Ttl::as_millis));
        cmd
    }

    fn start(&self, command: &Command) -> Cmd {
        Cmd::with_capacity(8, 40 + self.key(command).len() + command.value().len())
    }

    fn key<'a>(&'a self, command: &'a Command) -> WireKey<'a> {
        self.tag.on(command.key().as_bytes())
    }

    /// `EVALSHA hash 2n key.. counter.. token.. fence.. lifetime`
    fn counters<'a>(
        &self,
        script: &Script,
        by: Call,
        targets: impl Iterator<Item = (&'a Key, &'a Command)> + Clone,
    ) -> Cmd {
        let keys = targets.clone().map(|(key, _)| key);
        let mut cmd = self.script(script, by, 2 * keys.clone().count(), keys.clone());
        for key in keys {
            cmd.arg(self.tag.counter_of(key.as_bytes()));
        }
        for (_, command) in targets.clone() {
            cmd.arg(command.value());
        }
        for (_, command) in targets {
            cmd.arg(command.fence().map(FencingToken::get));
        }
        cmd.arg(FencingToken::COUNTER_LIFETIME.as_millis());
        cmd
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
