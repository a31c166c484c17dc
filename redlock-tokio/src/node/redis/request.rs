//! How a batch travels: which commands share a request, and which reply answers which command.

mod encode;
mod part;
mod read;
#[cfg(test)]
mod tests;

use std::mem;

use deadpool_redis::redis::{Cmd, Pipeline, Value};
use redlock_core::{Operation, Token};

use self::part::{Ask, Part, Positions};
pub(super) use self::read::{failure, number, time_left};
use super::{
    key_tag::KeyTag,
    script::{self, Call, Script, Tracked},
};
use crate::{
    Key,
    node::{Answer, Command, NodeError, Vote},
};

/// The most bytes of keys that share a script, which the server runs without a pause: for some
/// milliseconds. 512 keys of a usual length are a tenth of this. Lua unpacks 8,000 keys at most, so there are no more
/// than [`Key::MAX_KEYS`].
const MAX_SHARED: usize = 128 * 1024;

/// A batch on its way to a server and back.
pub(super) struct Request {
    tag: KeyTag,
    /// Whether the server reports when somebody else changes a key that was tracked.
    is_tracking: bool,
    by: Call,
    batch: Vec<Command>,
    /// The answers so far, in the order of the batch.
    answers: Vec<Option<Answer>>,
    pipeline: Pipeline,
    /// One part for each command of the pipeline.
    parts: Vec<Part>,
}

impl Request {
    /// Encodes a batch. `is_tracking` says whether the server reports when somebody else changes keys that were
    /// probed or extended, and `by` how scripts are called.
    pub(super) fn new(tag: &KeyTag, batch: &[Command], is_tracking: bool, by: Call) -> Self {
        // A `PING` comes behind the commands.
        let parts = batch.len() + 1;
        let mut request = Self {
            tag: tag.clone(),
            is_tracking,
            by,
            batch: batch.to_vec(),
            answers: vec![None; batch.len()],
            pipeline: Pipeline::with_capacity(parts),
            parts: Vec::with_capacity(batch.len()),
        };
        match batch {
            [_] => request.push_command(0),
            _ => request.push_in_groups(batch),
        }
        request
    }

    pub(super) fn pipeline_mut(&mut self) -> &mut Pipeline {
        &mut self.pipeline
    }

    /// Reads the replies to the pipeline. Returns whether some commands must be sent in another way: a
    /// new pipeline is ready then.
    pub(super) fn read(&mut self, replies: Vec<Value>) -> bool {
        self.pipeline = Pipeline::new();
        let parts = mem::take(&mut self.parts);
        for (part, reply) in parts.into_iter().zip(replies) {
            let own = &part.positions[..];
            match part.again(&reply) {
                Some(ask) => {
                    for &position in own {
                        self.push_shared(ask, [position]);
                    }
                }
                None => self.take_reply(part.ask, reply, own),
            }
        }
        !self.parts.is_empty()
    }

    /// Returns one answer for each command of the batch.
    pub(super) fn into_answers(self) -> Vec<Answer> {
        let no_answer = || Err(NodeError::Unexpected("no answer".into()));
        let answers = self.answers.into_iter();
        answers
            .map(|answer| answer.unwrap_or_else(no_answer))
            .collect()
    }

    fn take_reply(&mut self, ask: Ask, reply: Value, positions: &[usize]) {
        match (ask, positions) {
            (Ask::Script(script, _), _) => {
                let commands = positions.iter().map(|&position| &self.batch[position]);
                let answers = read::scripted(script, reply, commands, &self.tag);
                for (&position, answer) in positions.iter().zip(answers) {
                    let earlier = &mut self.answers[position];
                    // A key that was not set has no counter to raise.
                    if matches!(earlier, None | Some(Ok(Vote::Granted))) {
                        *earlier = Some(answer);
                    }
                }
            }
            (Ask::Holders, _) => {
                let answers = read::holders(reply, positions.len());
                for (&position, answer) in positions.iter().zip(answers) {
                    self.answers[position] = Some(answer);
                }
            }
            (Ask::Extended, _) => self.deny_changed(&reply, positions),
            (_, &[position]) => {
                let earlier = self.answers[position].take();
                let command = &self.batch[position];
                self.answers[position] = read::single(ask, reply, command, earlier);
            }
            // Only what is shared is for several.
            _ => {}
        }
    }

    /// Denies the extensions of keys that somebody else has changed before they were tracked.
    fn deny_changed(&mut self, reply: &Value, positions: &[usize]) {
        let Value::Array(values) = reply else { return };
        let mut values = &values[..];
        for &position in positions {
            let command = &self.batch[position];
            let (own, rest) = values.split_at(command.key_count().min(values.len()));
            values = rest;
            let is_ours = |it: &Value| matches!(it, Value::BulkString(it) if it == command.value());
            if let Some(answer @ Ok(Vote::Extended { .. })) = &mut self.answers[position]
                && own.iter().filter(|it| is_ours(it)).count() < command.key_count()
            {
                *answer = Ok(Vote::Denied);
            }
        }
    }

    /// Encodes the batch, whose releases share a script, and whose extensions share another.
    fn push_in_groups(&mut self, batch: &[Command]) {
        let mut groups = Groups::default();
        for (position, command) in batch.iter().enumerate() {
            if !groups.admits(command) {
                self.push_groups(mem::take(&mut groups));
            }
            groups.push(position, command);
        }
        self.push_groups(groups);
    }

    fn push_groups(&mut self, groups: Groups) {
        self.push_in_chunks(Ask::Script(&script::EXTEND, self.by), groups.extensions);
        self.push_in_chunks(Ask::Script(&script::RELEASE, self.by), groups.releases);
        for position in groups.rest {
            self.push_unshared(position);
        }
        self.push_in_chunks(Ask::Holders, groups.probes);
        self.push_in_chunks(Ask::Script(&script::FENCE, self.by), groups.fences);
    }

    /// Asks about as many keys at once as a server may serve without a pause.
    fn push_in_chunks(&mut self, ask: Ask, mut positions: Vec<usize>) {
        while !positions.is_empty() {
            let (mut count, mut len) = (0, 0);
            let mut fits = |&position: &usize| {
                for key in self.batch[position].keys() {
                    count += 1;
                    len += self.tag.len() + key.as_bytes().len();
                }
                count <= Key::MAX_KEYS && len <= MAX_SHARED
            };
            // A key that is too long for any chunk has one of its own.
            let chunk = positions
                .iter()
                .take_while(|&position| fits(position))
                .count()
                .max(1);
            let rest = positions.split_off(chunk);
            self.push_shared(ask, positions);
            positions = rest;
        }
    }

    /// Encodes a script, or a question for holders.
    fn push_shared(&mut self, ask: Ask, positions: impl Into<Positions>) {
        let positions = positions.into();
        let Ask::Script(script, by) = ask else {
            self.push_values(Ask::Holders, positions.clone());
            for &position in &positions {
                let cmd = encode::time_left(&self.tag, self.batch[position].key());
                self.push(Ask::TimeLeft, cmd, [position]);
            }
            return;
        };
        // Not within the script: for each command of it, servers up to Redis 7.0 remember all keys of the script, which
        // takes a millisecond for a hundred slots.
        let tracked = script.tracked.filter(|_| self.is_tracking);
        if tracked == Some(Tracked::Before) {
            self.push_values(Ask::Ignored, positions.clone());
        }
        let commands = positions.iter().map(|&it| &self.batch[it]);
        let cmd = script.carry_out(by, &self.tag, commands);
        let behind = (tracked == Some(Tracked::Behind)).then(|| positions.clone());
        self.push(ask, cmd, positions);
        if let Some(positions) = behind {
            self.push_values(Ask::Extended, positions);
        }
    }

    /// Asks for the values of all keys, which the server tracks from then on.
    fn push_values(&mut self, ask: Ask, positions: Positions) {
        self.track_next(positions[0]);
        let commands = positions.iter().map(|&it| &self.batch[it]);
        let cmd = encode::values(&self.tag, commands.flat_map(Command::keys));
        self.push(ask, cmd, positions);
    }

    /// Encodes one command that shares no script with others.
    fn push_command(&mut self, position: usize) {
        let command = &self.batch[position];
        let raises_counter = command.fence().is_some();
        if !matches!(command.operation(), Operation::Fence { .. }) {
            self.push_unshared(position);
        }
        if raises_counter {
            self.push_shared(Ask::Script(&script::FENCE, self.by), [position]);
        }
    }

    /// Encodes one command, but not the raising of its counters.
    fn push_unshared(&mut self, position: usize) {
        let command = &self.batch[position].clone();
        match (Script::of(command), command.operation()) {
            (Some(script), _) => self.push_shared(Ask::Script(script, self.by), [position]),
            (None, Operation::Probe { .. }) => self.push_probe(position, command),
            (None, Operation::Acquire { ttl, .. }) => {
                self.push(Ask::Set, encode::set(&self.tag, command, ttl), [position]);
            }
            _ => self.answers[position] = Some(Err(NodeError::unknown_operation())),
        }
    }

    /// Probes each key, and asks for a message when the key is gone. A reader asks whether the key is shared or marked, too,
    /// and a writer marks it.
    fn push_probe(&mut self, position: usize, command: &Command) {
        if let Some(cmd) = encode::mark(&self.tag, command) {
            self.push(Ask::Ignored, cmd, [position]);
        }
        let is_readers = command.is_readers();
        if asks_for_holder(command) {
            return self.push_shared(Ask::Holders, [position]);
        }
        if command.probes_slots() {
            return self.push_shared(Ask::Script(&script::SLOTS, self.by), [position]);
        }
        for key in command.keys() {
            self.track_next(position);
            if is_readers {
                let cmd = encode::values(&self.tag, [key].into_iter());
                self.push(Ask::Value, cmd, [position]);
            }
            let cmd = encode::time_left(&self.tag, key);
            self.push(Ask::Probe, cmd, [position]);
            if is_readers {
                let cmd = encode::mark_left(&self.tag, key);
                self.push(Ask::Mark, cmd, [position]);
            }
        }
    }

    /// Asks for a message when somebody else changes a key that the next command reads.
    fn track_next(&mut self, position: usize) {
        if self.is_tracking {
            self.push(Ask::Ignored, encode::caching(), [position]);
        }
    }

    fn push(&mut self, ask: Ask, cmd: Cmd, positions: impl Into<Positions>) {
        let positions = positions.into();
        self.pipeline.add_command(cmd);
        self.parts.push(Part { ask, positions });
    }
}

/// Commands in groups, so that the extensions share a script, the releases share another, and so does the raising of
/// fencing counters. Probes share an `MGET`. Extensions and releases are sent before the rest, so a command may join them
/// only if it overtakes none with its own token. Counters are raised after the rest, by a script that reads all of them
/// first, so each token is there once.
#[derive(Default)]
struct Groups {
    extensions: Vec<usize>,
    releases: Vec<usize>,
    rest: Vec<usize>,
    probes: Vec<usize>,
    fences: Vec<usize>,
    /// The tokens of the rest and of the fences. A batch has few, so a search is faster than a hash.
    tokens: Vec<Token>,
}

impl Groups {
    fn admits(&self, command: &Command) -> bool {
        let is_moved = shares_script(command) || command.fence().is_some();
        !is_moved || !self.tokens.contains(&command.operation().token())
    }

    fn push(&mut self, position: usize, command: &Command) {
        let operation = command.operation();
        match operation {
            _ if !shares_script(command) => {}
            Operation::Extend { .. } => return self.extensions.push(position),
            _ => return self.releases.push(position),
        }
        // A probe changes nothing, so its order does not matter.
        if matches!(operation, Operation::Probe { mark: None, .. }) && asks_for_holder(command) {
            return self.probes.push(position);
        }
        if !matches!(operation, Operation::Probe { .. }) {
            self.tokens.push(operation.token());
        }
        if command.fence().is_some() {
            self.fences.push(position);
        }
        if !matches!(operation, Operation::Fence { .. }) {
            self.rest.push(position);
        }
    }
}

/// Returns whether one call of a script can carry out this command and others.
fn shares_script(command: &Command) -> bool {
    Script::of(command).is_some_and(Script::is_shared)
}

/// Returns whether a probe asks who has the key.
fn asks_for_holder(command: &Command) -> bool {
    let has_one_key = !command.has_several_keys() && !command.probes_slots();
    has_one_key && !command.is_readers()
}
