//! The commands of a server that carry out the commands of a batch.

use deadpool_redis::redis::{self, Cmd};
use redlock_core::{FencingToken, Token, Ttl};

use super::part::{Call, Shared};
use crate::node::{
    Command,
    redis::{
        compare::Native,
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
    ///
    /// Called by its hash, the script might have to be sent again, and would then arrive after the lock's own
    /// release.
    pub(super) fn acquire_fenced(
        &self,
        command: &Command,
        ttl: Ttl,
        fence: FencingToken,
        gathers: bool,
    ) -> Cmd {
        let script = match (command.has_several_keys(), gathers) {
            (true, true) => &script::GATHER_FENCED,
            (true, false) => &script::ACQUIRE_ALL_FENCED,
            (false, _) => &script::ACQUIRE_FENCED,
        };
        let mut cmd = self.start(command);
        call(&mut cmd, script, Call::InFull);
        self.add_keys_and_counters(&mut cmd, command);
        cmd.arg(command.token())
            .arg(ttl.as_millis())
            .arg(fence.get())
            .arg(counter_lifetime());
        cmd
    }

    /// `EVALSHA hash 2n key.. counter.. token fence lifetime`
    pub(super) fn fence(&self, command: &Command, by: Call) -> Cmd {
        let mut cmd = self.start(command);
        call(&mut cmd, &script::FENCE, by);
        self.add_keys_and_counters(&mut cmd, command);
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

    /// `SET key token IFEQ token PX ttl`
    ///
    /// The ttl is never shorter than the time for which the lock relies on the key.
    pub(super) fn extend(&self, command: &Command, ttl: Ttl) -> Cmd {
        let mut cmd = self.start(command);
        cmd.arg("SET").arg(self.key(command)).arg(command.token());
        cmd.arg("IFEQ").arg(command.token());
        cmd.arg("PX").arg(ttl.as_millis());
        cmd
    }

    /// `DELEX key IFEQ token` or `DELIFEQ key token`
    pub(super) fn release(&self, command: &Command, native: Native) -> Cmd {
        let mut cmd = self.start(command);
        match native {
            Native::Delex => cmd.arg("DELEX").arg(self.key(command)).arg("IFEQ"),
            Native::DelIfEq => cmd.arg("DELIFEQ").arg(self.key(command)),
        };
        cmd.arg(command.token());
        cmd
    }

    /// `EVALSHA hash n key.. token.. ttl..`
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
        call(&mut cmd, shared.script(), by).arg(count);
        for command in commands.clone() {
            cmd.arg(self.key(command));
        }
        for command in commands.clone() {
            cmd.arg(command.token());
        }
        for command in commands {
            cmd.arg(command.ttl().map(Ttl::as_millis));
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

    fn add_keys_and_counters(&self, cmd: &mut Cmd, command: &Command) {
        cmd.arg(2 * command.key_count());
        for key in command.keys() {
            cmd.arg(self.tag.on(key.as_bytes()));
        }
        for key in command.keys() {
            cmd.arg(self.tag.counter_of(key.as_bytes()));
        }
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
