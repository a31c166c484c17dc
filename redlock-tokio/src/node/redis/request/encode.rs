//! The commands of a server that carry out the commands of a batch.

use deadpool_redis::redis::{self, Cmd};
use redlock_core::{FencingToken, Token, Ttl};

use super::part::{Call, Shared};
use crate::node::{
    Command,
    redis::{
        key_tag::{KeyTag, WireKey},
        script::{self, Script},
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
        cmd.arg("SET").arg(self.key(command)).arg(command.token());
        cmd.arg("NX").arg("PX").arg(ttl.as_millis());
        cmd
    }

    /// `EVAL source 2n key.. counter.. token ttl fence lifetime`
    pub(super) fn acquire_all_fenced(
        &self,
        command: &Command,
        ttl: Ttl,
        fence: FencingToken,
        gathers: bool,
    ) -> Cmd {
        let script = if gathers {
            &script::GATHER_FENCED
        } else {
            &script::ACQUIRE_ALL_FENCED
        };
        let mut cmd = self.all_keys_and_counters(command, script);
        cmd.arg(command.token())
            .arg(ttl.as_millis())
            .arg(fence.get())
            .arg(counter_lifetime());
        cmd
    }

    /// `EVAL source 2n key.. counter.. token fence lifetime`
    pub(super) fn fence_all(&self, command: &Command) -> Cmd {
        let mut cmd = self.all_keys_and_counters(command, &script::FENCE_ALL);
        cmd.arg(command.token())
            .arg(command.fence().map(FencingToken::get))
            .arg(counter_lifetime());
        cmd
    }

    /// `PTTL key`
    pub(super) fn time_left(&self, key: &[u8]) -> Cmd {
        let mut cmd = redis::cmd("PTTL");
        cmd.arg(self.tag.on(key));
        cmd
    }

    /// `EVALSHA hash n key.. token.. ttl..`, or `EVALSHA hash 2n key.. counter.. token.. fence.. lifetime`
    pub(super) fn shared<'a>(
        &self,
        shared: Shared,
        by: Call,
        commands: impl Iterator<Item = &'a Command> + Clone,
    ) -> Cmd {
        let count = commands.clone().count();
        let keys_len: usize = commands
            .clone()
            .map(|command| self.key(command).len())
            .sum();
        let mut cmd = Cmd::with_capacity(3 + 3 * count, 64 + keys_len + count * (Token::LEN + 8));
        let raises_counters = matches!(shared, Shared::Fences);
        let keys = if raises_counters { 2 * count } else { count };
        call(&mut cmd, shared.script(), by).arg(keys);
        for command in commands.clone() {
            cmd.arg(self.key(command));
        }
        if raises_counters {
            for command in commands.clone() {
                cmd.arg(self.tag.counter_of(command.key().as_bytes()));
            }
        }
        for command in commands.clone() {
            cmd.arg(command.token());
        }
        if raises_counters {
            for command in commands {
                cmd.arg(command.fence().map(FencingToken::get));
            }
            cmd.arg(counter_lifetime());
        } else {
            for command in commands {
                cmd.arg(command.ttl().map(Ttl::as_millis));
            }
        }
        cmd
    }

    /// `EVAL source n key.. token ttl`
    ///
    /// Commands for several keys are rare. If the server did not know the hash of the script, the command
    /// would have to be sent again, after others that came behind it.
    pub(super) fn all_keys(&self, command: &Command, script: &Script) -> Cmd {
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(script.source()).arg(command.key_count());
        for key in command.keys() {
            cmd.arg(self.tag.on(key.as_bytes()));
        }
        cmd.arg(command.token());
        cmd.arg(command.ttl().map(Ttl::as_millis));
        cmd
    }

    fn start(&self, command: &Command) -> Cmd {
        Cmd::with_capacity(8, 80 + self.key(command).len())
    }

    fn key<'a>(&'a self, command: &'a Command) -> WireKey<'a> {
        self.tag.on(command.key().as_bytes())
    }

    fn all_keys_and_counters(&self, command: &Command, script: &Script) -> Cmd {
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(script.source()).arg(2 * command.key_count());
        for key in command.keys() {
            cmd.arg(self.tag.on(key.as_bytes()));
        }
        for key in command.keys() {
            cmd.arg(self.tag.counter_of(key.as_bytes()));
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

/// Returns how long a counter lives after a raise, in milliseconds.
fn counter_lifetime() -> u128 {
    FencingToken::COUNTER_LIFETIME.as_millis()
}

fn call<'a>(cmd: &'a mut Cmd, script: &Script, by: Call) -> &'a mut Cmd {
    match by {
        Call::ByHash => cmd.arg("EVALSHA").arg(script.hash()),
        Call::InFull => cmd.arg("EVAL").arg(script.source()),
    }
}
