//! How a batch travels: which commands share a request, and which reply answers which command.

mod encode;
mod part;
mod read;
mod sharing;
#[cfg(test)]
mod tests;

use std::mem;

use deadpool_redis::redis::{Cmd, Pipeline, Value};
use redlock_core::{Operation, Token};

use self::{
    encode::Encoder,
    part::{Ask, Part, Positions, Scripted, Shared},
    sharing::Sharing,
};
pub(super) use self::{
    part::Call,
    read::{failure, number, time_left},
};
use super::{key_tag::KeyTag, script};
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
    encoder: Encoder,
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
            encoder: Encoder::new(tag),
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
            let own = part.positions.as_slice();
            match part.again(&reply) {
                Some((scripted, by)) => {
                    for &position in own {
                        self.push_scripted(scripted, by, position);
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
            (Ask::Scripted(Scripted::Shared(shared), _), _) => {
                let commands = positions.iter().map(|&position| &self.batch[position]);
                let answers = read::shared(shared, reply, commands, self.encoder.tag());
                for (&position, answer) in positions.iter().zip(answers) {
                    let earlier = &mut self.answers[position];
                    // A key that was not set has no counter to raise. A probe may be asked again.
                    let is_unknown = matches!(earlier, None | Some(Ok(Vote::Granted)));
                    if is_unknown || matches!(shared, Shared::Holders) {
                        *earlier = Some(answer);
                    }
                }
            }
            (Ask::Extended, _) => self.deny_changed(&reply, positions),
            (_, &[position]) => {
                let earlier = self.answers[position].take();
                let command = &self.batch[position];
                let tag = self.encoder.tag();
                self.answers[position] = read::single(ask, reply, command, tag, earlier);
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

    fn push_scripted(&mut self, scripted: Scripted, by: Call, position: usize) {
        match scripted {
            Scripted::Shared(shared) => self.push_shared(shared, by, position),
            Scripted::Sharing(sharing) => self.push_sharing(sharing, by, position),
            Scripted::Slots => self.push_slots(position, by),
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
        self.push_in_chunks(Shared::Extensions, groups.extensions);
        self.push_in_chunks(Shared::Releases, groups.releases);
        for position in groups.rest {
            self.push_unshared(position);
        }
        self.push_in_chunks(Shared::Holders, groups.probes);
        self.push_in_chunks(Shared::Fences, groups.fences);
    }

    /// Shares a script among as many keys as a server may serve without a pause.
    fn push_in_chunks(&mut self, shared: Shared, mut positions: Vec<usize>) {
        while !positions.is_empty() {
            let (mut count, mut len) = (0, 0);
            let mut fits = |&position: &usize| {
                for key in self.batch[position].keys() {
                    count += 1;
                    len += self.encoder.tag().len() + key.as_bytes().len();
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
            self.push_shared(shared, self.by, Positions::Many(positions));
            positions = rest;
        }
    }

    fn push_shared(&mut self, shared: Shared, by: Call, positions: impl Into<Positions>) {
        let positions = positions.into();
        if let Shared::Holders = shared {
            self.track_next(positions.as_slice()[0]);
        }
        let commands = positions
            .as_slice()
            .iter()
            .map(|&position| &self.batch[position]);
        let keys = commands.clone().flat_map(Command::keys);
        let tracks = self.is_tracking && matches!(shared, Shared::Extensions);
        let extended = tracks.then(|| (self.encoder.values(keys), positions.as_slice().to_vec()));
        let cmd = self.encoder.shared(shared, by, commands);
        let probes = match shared {
            Shared::Holders => positions.as_slice().to_vec(),
            _ => Vec::new(),
        };
        self.push(Ask::Scripted(Scripted::Shared(shared), by), cmd, positions);
        // Behind the script, since a server forgets that it tracks a key when the key changes. And not within the script: for
        // each command of it, servers up to Redis 7.0 remember all keys of the script.
        if let Some((cmd, positions)) = extended {
            self.track_next(positions[0]);
            self.push(Ask::Extended, cmd, Positions::Many(positions));
        }
        for position in probes {
            let cmd = self
                .encoder
                .time_left(self.batch[position].key().as_bytes());
            self.push(Ask::TimeLeft, cmd, position);
        }
    }

    /// Encodes one command that shares no script with others.
    fn push_command(&mut self, position: usize) {
        let command = &self.batch[position];
        let raises_counter = command.fence().is_some();
        if !matches!(command.operation(), Operation::Fence { .. }) {
            self.push_unshared(position);
        }
        if raises_counter {
            self.push_shared(Shared::Fences, self.by, position);
        }
    }

    fn push_sharing(&mut self, sharing: Sharing, by: Call, position: usize) {
        let cmd = sharing.encode(&self.encoder, &self.batch[position], by);
        self.push(Ask::Scripted(Scripted::Sharing(sharing), by), cmd, position);
    }

    /// Encodes one command, but not the raising of its counters.
    fn push_unshared(&mut self, position: usize) {
        let command = &self.batch[position].clone();
        if let Some(sharing) = Sharing::of(command) {
            return self.push_sharing(sharing, self.by, position);
        }
        let has_several = command.has_several_keys();
        match command.operation() {
            Operation::Probe { .. } => self.push_probe(position, command),
            Operation::Acquire { .. } if has_several => {
                let cmd = self.encoder.in_full(command, &script::ACQUIRE_ALL);
                self.push(Ask::InFull, cmd, position);
            }
            Operation::Acquire { ttl, .. } => {
                self.push(Ask::Set, self.encoder.set(command, ttl), position);
            }
            Operation::Adopt { .. } if !has_several => {
                let cmd = self.encoder.in_full(command, &script::ADOPT);
                self.push(Ask::InFull, cmd, position);
            }
            Operation::Extend { .. } => {
                self.push_shared(Shared::Extensions, self.by, position);
            }
            Operation::Release { .. } => {
                self.push_shared(Shared::Releases, self.by, position);
            }
            _ => self.answers[position] = Some(Err(NodeError::unknown_operation())),
        }
    }

    /// Probes each key, and asks for a message when the key is gone. A reader asks whether the key is shared or marked, too,
    /// and a writer marks it.
    fn push_probe(&mut self, position: usize, command: &Command) {
        if let Some(cmd) = sharing::mark(command, self.encoder.tag()) {
            self.push(Ask::Ignored, cmd, position);
        }
        let is_readers = command.is_readers();
        if asks_for_holder(command) {
            return self.push_shared(Shared::Holders, self.by, position);
        }
        if command.probes_slots() {
            return self.push_slots(position, self.by);
        }
        for key in command.keys() {
            self.track_next(position);
            if is_readers {
                let cmd = self.encoder.values([key].into_iter());
                self.push(Ask::Value, cmd, position);
            }
            let cmd = self.encoder.time_left(key.as_bytes());
            self.push(Ask::Probe, cmd, position);
            if is_readers {
                let cmd = self.encoder.mark_left(key.as_bytes());
                self.push(Ask::Mark, cmd, position);
            }
        }
    }

    /// Probes slots of a semaphore. Their tracking begins with one command for all of them, before the question: for each
    /// command of a script, Redis 7.0 tracks all keys of the script, which takes a millisecond for a hundred slots.
    fn push_slots(&mut self, position: usize, by: Call) {
        let command = &self.batch[position].clone();
        if self.is_tracking {
            self.track_next(position);
            let cmd = self.encoder.values(command.keys());
            self.push(Ask::Ignored, cmd, position);
        }
        let cmd = self.encoder.slots(command, by);
        self.push(Ask::Scripted(Scripted::Slots, by), cmd, position);
    }

    /// Asks for a message when somebody else changes a key that the next command reads.
    fn track_next(&mut self, position: usize) {
        if self.is_tracking {
            self.push(Ask::Ignored, encode::caching(), position);
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
        let is_moved = Shared::of(command).is_some() || command.fence().is_some();
        !is_moved || !self.tokens.contains(&command.operation().token())
    }

    fn push(&mut self, position: usize, command: &Command) {
        let operation = command.operation();
        match Shared::of(command) {
            Some(Shared::Extensions) => return self.extensions.push(position),
            Some(Shared::Releases) => return self.releases.push(position),
            _ => {}
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

/// Returns whether a probe asks who has the key.
fn asks_for_holder(command: &Command) -> bool {
    let has_one_key = !command.has_several_keys() && !command.probes_slots();
    has_one_key && !command.is_readers()
}
