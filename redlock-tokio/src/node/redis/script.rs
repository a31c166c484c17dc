//! The table of the Lua scripts. Each row says what its script is called with, and how the reply is read, so all scripts are
//! loaded, called and read in one way.

pub(super) mod line;
pub(super) mod readers;

use std::{iter, sync::OnceLock};

use deadpool_redis::redis::{self, Cmd, Pipeline};
use redlock_core::{Access, FencingToken, Operation, Token, Ttl};

use super::key_tag::KeyTag;
use crate::{Key, node::Command};

/// A Lua script, which is a row of the table.
pub(super) struct Script {
    /// The names on the server that it is called with. Each is there once for each key.
    names: &'static [Name],
    /// What follows the names. (The callers of [`LINE`](line::LINE) add that themselves.)
    arguments: &'static [Argument],
    pub(super) reply: Reply,
    pub(super) source: &'static str,
    /// Whether a new connection loads it, so that it may be called by its hash.
    is_loaded: bool,
    /// When the server begins to track the keys.
    pub(super) tracked: Option<Tracked>,
    /// The script that does the same for plain locks, without the names beside the key.
    pub(super) plain: Option<&'static Self>,
    hash: OnceLock<String>,
}

/// A name that a script uses.
pub(super) enum Name {
    Key,
    /// The name with this prefix that goes with the key.
    Beside(&'static str),
    /// The set of the members that are alive, whatever the key is.
    Living,
}

/// An argument, which is taken from a command. One in the plural is there once for each key.
pub(super) enum Argument {
    Values,
    Value,
    /// The value that the key must have for an adoption.
    Giver,
    Ttl,
    /// The ttls. One is negative if it shortens a life.
    Ttls,
    Fences,
    CounterLifetime,
    /// The value of the mark that a writer sets.
    Mark,
    /// 1 if a reader does not mind such a mark, and 0 if it does.
    Insists,
}

/// What a script replies.
#[derive(Clone, Copy)]
pub(super) enum Reply {
    /// 1 if it has done all, and 0 if it has done nothing.
    Done,
    /// A digit for each key, of the same meaning.
    Digits,
    /// For each key the milliseconds that it had left, or `-` if it is not ours.
    TimesLeft,
    /// For each key what became of its counter.
    Counters,
    /// For each slot the milliseconds that it has left.
    Slots,
    /// No vote. The callers of the script read it themselves.
    Other,
}

/// Before or behind a script, the server begins to track its keys, for a message when somebody else changes one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tracked {
    Before,
    /// A server forgets that it tracks a key when the key changes.
    Behind,
}

/// How a script that is loaded is called. A session decides once, by its rights.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    ByHash,
    InFull,
}

/// The table.
static ALL: [&Script; 13] = [
    &RELEASE,
    &EXTEND,
    &FENCE,
    &SLOTS,
    &ACQUIRE_ALL,
    &ADOPT,
    &LOOK_UP,
    &NOTHING,
    &readers::JOIN,
    &readers::EXTEND_READER,
    &readers::RELEASE_READER,
    &readers::RELEASE_WRITER,
    &line::LINE,
];

/// Returns for each key that exists its number, its value and the milliseconds that it has left, as `PTTL` does. A key of
/// another type has no value.
pub(super) static LOOK_UP: Script = Script::new(
    &[Name::Key],
    &[],
    Reply::Other,
    "local found = {} \
     for i = 1, #KEYS do \
       local left = redis.call('PTTL', KEYS[i]) \
       if left ~= -2 then \
         found[#found + 1] = {i, redis.call('MGET', KEYS[i])[1], left} \
       end \
     end \
     return found",
)
.in_full();

/// Returns for each slot of a semaphore the milliseconds that it has left, as `PTTL` does, separated by commas.
pub(super) static SLOTS: Script = Script::new(
    &[Name::Key],
    &[],
    Reply::Slots,
    "local left = {} \
     for i = 1, #KEYS do \
       left[i] = redis.call('PTTL', KEYS[i]) \
     end \
     return table.concat(left, ',')",
)
.tracked(Tracked::Before);

/// Deletes each key whose value is its token. Returns a digit for each key, 1 if it was deleted: a text is
/// cheaper to make and to read than an array. Mostly all keys have their tokens, and then no tables are needed. For each
/// key this is the script of the Redlock page ("Correct implementation with a single instance"). `MGET` finds nothing in
/// a key of another type, where `GET` would end the script.
///
/// Like [`EXTEND`] and [`FENCE`], it knows keys and no locks: a lock of several keys repeats its token for each key.
pub(super) static RELEASE: Script = Script::new(
    &[Name::Key],
    &[Argument::Values],
    Reply::Digits,
    "local found = redis.call('MGET', unpack(KEYS)) \
     local other = 1 \
     while other <= #KEYS and found[other] == ARGV[other] do \
       other = other + 1 \
     end \
     if other > #KEYS then \
       redis.call('DEL', unpack(KEYS)) \
       return string.rep('1', #KEYS) \
     end \
     local ours, answers = {}, {} \
     for i = 1, #KEYS do \
       if found[i] == ARGV[i] then \
         ours[#ours + 1] = KEYS[i] \
         answers[i] = '1' \
       else \
         answers[i] = '0' \
       end \
     end \
     if #ours > 0 then \
       redis.call('DEL', unpack(ours)) \
     end \
     return table.concat(answers)",
);

/// Lets each key live for its ttl from now if its value is its token. Returns for each key the milliseconds that it had
/// left (-1 for a key without an end, as `PTTL` does), or `-` if another client has it or it is gone, separated by
/// commas. The script never shortens a life, so an extension that arrives late, after a longer one, does no harm. Except if the
/// ttl is negative: then the key lives for no longer than that.
///
/// If a lock has lost some of its keys here, the others are extended all the same. The lock counts the answer as a
/// denial. Those keys live no longer than the keys on other nodes, and the release, which goes to all nodes, deletes
/// them.
pub(super) static EXTEND: Script = Script::new(
    &[Name::Key],
    &[Argument::Values, Argument::Ttls],
    Reply::TimesLeft,
    "local found = redis.call('MGET', unpack(KEYS)) \
     local answers = {} \
     for i = 1, #KEYS do \
       if found[i] == ARGV[i] then \
         local ttl = tonumber(ARGV[#KEYS + i]) \
         local left = redis.call('PTTL', KEYS[i]) \
         if left < ttl or ttl < 0 then \
           redis.call('PEXPIRE', KEYS[i], math.abs(ttl)) \
         end \
         answers[i] = left \
       else \
         answers[i] = '-' \
       end \
     end \
     return table.concat(answers, ',')",
)
.tracked(Tracked::Behind);

/// Raises the fencing counter of each key whose value is its token. The counters come after as many keys, the fences
/// after as many tokens, and the lifetime of the counters last. Returns for each key `1` if its counter was raised, `-` if
/// the key is not ours, the counter if it is not smaller, or what is wrong with the counter, separated by commas. `MGET`
/// finds nothing in a counter of another type, which `NX` leaves alone. `2^53 - 1` is the last number that Lua
/// distinguishes from its neighbours.
///
/// A lock that has lost some of its keys here raises the counters of the others. That does no harm: they belong to keys
/// that it has, so nobody else can raise them now, and counters only grow.
pub(super) static FENCE: Script = Script::new(
    &[Name::Key, Name::Beside(Key::COUNTERS)],
    &[
        Argument::Values,
        Argument::Fences,
        Argument::CounterLifetime,
    ],
    Reply::Counters,
    "local n = #KEYS / 2 \
     local lifetime = ARGV[2 * n + 1] \
     local found = redis.call('MGET', unpack(KEYS)) \
     local answers = {} \
     for i = 1, n do \
       local answer = '1' \
       local fence, name, counter = ARGV[n + i], KEYS[n + i], found[n + i] \
       if found[i] ~= ARGV[i] then \
         answer = '-' \
       elseif not counter then \
         if not redis.call('SET', name, fence, 'NX', 'PX', lifetime) then \
           answer = 'type' \
         end \
       elseif counter == '' or string.find(counter, '%D') then \
         answer = 'text' \
       elseif #counter > 16 or tonumber(counter) > 9007199254740991 then \
         answer = 'beyond' \
       elseif tonumber(counter) >= tonumber(fence) then \
         answer = counter \
       else \
         redis.call('SET', name, fence, 'PX', lifetime) \
       end \
       answers[i] = answer \
     end \
     return table.concat(answers, ',')",
);

/// Sets all keys, unless one of them exists with another value. Returns 1 if it did. Keys with the token itself
/// are set again, which repairs a node that has lost some of the keys. node-redlock sets the same values for several
/// resources, so the two exclude each other.
pub(super) static ACQUIRE_ALL: Script = Script::new(
    &[Name::Key],
    &[Argument::Value, Argument::Ttl],
    Reply::Done,
    "local found = redis.call('MGET', unpack(KEYS)) \
     local ours = 0 \
     for i = 1, #KEYS do \
       if found[i] == ARGV[1] then \
         ours = ours + 1 \
       end \
     end \
     if redis.call('EXISTS', unpack(KEYS)) > ours then \
       return 0 \
     end \
     for _, key in ipairs(KEYS) do \
       redis.call('SET', key, ARGV[1], 'PX', ARGV[2]) \
     end \
     return 1",
)
.in_full();

/// Sets the key to another value, with a new ttl, if it has the giver's. Returns 1 if it had. `MGET` finds nothing in a key
/// of another type.
pub(super) static ADOPT: Script = Script::new(
    &[Name::Key],
    &[Argument::Giver, Argument::Value, Argument::Ttl],
    Reply::Done,
    "if redis.call('MGET', KEYS[1])[1] ~= ARGV[1] then \
       return 0 \
     end \
     redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) \
     return 1",
)
.in_full();

/// Has no effect.
pub(super) static NOTHING: Script = Script::new(&[], &[], Reply::Other, "return 1").in_full();

/// Loads what is called by hash.
pub(super) fn load(pipeline: &mut Pipeline) {
    for script in ALL.iter().filter(|it| it.is_loaded) {
        pipeline.cmd("SCRIPT").arg("LOAD").arg(script.source);
    }
}

impl Script {
    const fn new(
        names: &'static [Name],
        arguments: &'static [Argument],
        reply: Reply,
        source: &'static str,
    ) -> Self {
        Self {
            names,
            arguments,
            reply,
            source,
            is_loaded: true,
            tracked: None,
            plain: None,
            hash: OnceLock::new(),
        }
    }

    /// Says that the script is rare, and sent in full. If the server did not know its hash, the command would have to be
    /// sent again, after others that came behind it.
    const fn in_full(mut self) -> Self {
        self.is_loaded = false;
        self
    }

    const fn tracked(mut self, when: Tracked) -> Self {
        self.tracked = Some(when);
        self
    }

    const fn or_plain(mut self, script: &'static Self) -> Self {
        self.plain = Some(script);
        self
    }

    /// Returns the script that carries out a command, if one does.
    pub(super) fn of(command: &Command) -> Option<&'static Self> {
        Some(match (command.access(), command.operation()) {
            (Access::Reader { .. }, Operation::Acquire { .. }) => &readers::JOIN,
            (Access::Reader { .. }, Operation::Extend { .. }) => &readers::EXTEND_READER,
            (Access::Reader { .. }, Operation::Release { .. }) => &readers::RELEASE_READER,
            (Access::Writer, Operation::Release { .. }) => &readers::RELEASE_WRITER,
            (_, Operation::Acquire { .. }) if command.has_several_keys() => &ACQUIRE_ALL,
            (_, Operation::Adopt { .. }) if !command.has_several_keys() => &ADOPT,
            (_, Operation::Extend { .. }) => &EXTEND,
            (_, Operation::Release { .. }) => &RELEASE,
            _ => return None,
        })
    }

    /// Returns whether one call can carry out many commands.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self.arguments, [Argument::Values, ..])
    }

    /// Returns whether it uses a name with this prefix.
    pub(super) fn uses(&self, prefix: &str) -> bool {
        self.names
            .iter()
            .any(|it| matches!(it, Name::Beside(it) if *it == prefix))
    }

    /// `EVALSHA hash count name.. argument..`, or `EVAL source count name.. argument..`
    pub(super) fn carry_out<'a>(
        &self,
        by: Call,
        tag: &KeyTag,
        commands: impl Iterator<Item = &'a Command> + Clone,
    ) -> Cmd {
        let keys = commands.clone().flat_map(Command::keys);
        let mut cmd = self.call(by, tag, &keys.map(Key::as_bytes));
        let each = commands.flat_map(|it| iter::repeat_n(it, it.key_count()));
        for argument in self.arguments {
            let count = if argument.is_plural() { usize::MAX } else { 1 };
            each.clone()
                .take(count)
                .for_each(|it| argument.push(&mut cmd, it));
        }
        cmd
    }

    /// The same, without the arguments.
    pub(super) fn call<'a>(
        &self,
        by: Call,
        tag: &KeyTag,
        keys: &(impl Iterator<Item = &'a [u8]> + Clone),
    ) -> Cmd {
        let (count, len) = keys
            .clone()
            .fold((0, 0), |(count, len), it| (count + 1, len + it.len()));
        let count = count * self.names.len();
        let len = len * self.names.len() + count * (tag.len() + Token::LEN + 8);
        let mut cmd = Cmd::with_capacity(3 + 3 * count, 64 + len);
        match self.by(by) {
            Call::ByHash => cmd.arg("EVALSHA").arg(self.hash()),
            Call::InFull => cmd.arg("EVAL").arg(self.source),
        };
        cmd.arg(count);
        for name in self.names {
            for key in keys.clone() {
                match name {
                    Name::Key => cmd.arg(tag.on(key)),
                    Name::Beside(prefix) => cmd.arg(tag.beside(prefix, key)),
                    Name::Living => cmd.arg(tag.beside(Key::LIVING, b"")),
                };
            }
        }
        cmd
    }

    /// Returns how this script is called where those that are loaded are called in this way.
    pub(super) fn by(&self, by: Call) -> Call {
        if self.is_loaded { by } else { Call::InFull }
    }

    fn hash(&self) -> &str {
        let hash = || redis::Script::new(self.source).get_hash().to_owned();
        self.hash.get_or_init(hash)
    }
}

impl Argument {
    fn is_plural(&self) -> bool {
        matches!(self, Self::Values | Self::Ttls | Self::Fences)
    }

    fn push(&self, cmd: &mut Cmd, command: &Command) {
        match self {
            Self::Value | Self::Values => cmd.arg(command.value()),
            Self::Giver => cmd.arg(command.giver()),
            Self::Ttl => cmd.arg(command.ttl().map(Ttl::as_millis)),
            Self::Ttls => {
                let shortens = matches!(
                    command.operation(),
                    Operation::Extend { shortens: true, .. }
                );
                let sign = if shortens { -1 } else { 1 };
                cmd.arg(command.ttl().map(|ttl| sign * ttl.as_millis() as i64))
            }
            Self::Fences => cmd.arg(command.fence().map(FencingToken::get)),
            Self::CounterLifetime => cmd.arg(FencingToken::COUNTER_LIFETIME.as_millis()),
            Self::Mark => cmd.arg(command.mark()),
            Self::Insists => {
                let insists = matches!(command.access(), Access::Reader { insists: true });
                cmd.arg(u8::from(insists))
            }
        };
    }
}
