//! How a batch travels: which commands share a request, and which reply answers which command.

mod encode;
mod groups;
mod part;
mod read;
#[cfg(test)]
mod tests;

use std::mem;

use deadpool_redis::redis::{Cmd, Pipeline, Value};
use redlock_core::Operation;

use self::{
    encode::Encoder,
    groups::Groups,
    part::{Ask, Call, Fallback, Part, Shared},
};
use super::{compare::Compare, key_tag::KeyTag, script};
use crate::node::{Answer, Command, NodeError};

/// The most bytes of keys that share a script, which the server runs without a pause: for some
/// milliseconds. 512 keys of a usual length are a tenth of this.
const MAX_SHARED: usize = 128 * 1024;

/// A batch on its way to a server and back.
pub(super) struct Request {
    encoder: Encoder,
    batch: Vec<Command>,
    /// The answers so far, in the order of the batch.
    answers: Vec<Option<Answer>>,
    /// The commands that are sent next.
    pipeline: Pipeline,
    /// One part for each command of the pipeline.
    parts: Vec<Part>,
    /// The positions in the batch that the parts are for, one part after the other.
    positions: Vec<usize>,
    /// The positions of commands that were sent as scripts because the server did not seem to have the
    /// command.
    replaced: Vec<usize>,
}

impl Request {
    /// Encodes a batch. `is_tracking` says whether the server reports when probed keys change.
    pub(super) fn new(
        tag: &KeyTag,
        batch: &[Command],
        compare: Compare,
        is_tracking: bool,
    ) -> Self {
        let mut request = Self {
            encoder: Encoder::new(tag),
            batch: batch.to_vec(),
            answers: vec![None; batch.len()],
            pipeline: Pipeline::with_capacity(batch.len()),
            parts: Vec::with_capacity(batch.len()),
            positions: Vec::with_capacity(batch.len()),
            replaced: Vec::new(),
        };
        match compare {
            Compare::ByScript => request.push_in_groups(batch, is_tracking),
            Compare::Natively(_) => {
                for (position, command) in batch.iter().enumerate() {
                    request.push_command(position, command, compare, is_tracking);
                }
            }
        }
        request
    }

    /// Returns the commands to send.
    pub(super) fn pipeline_mut(&mut self) -> &mut Pipeline {
        &mut self.pipeline
    }

    /// Reads the replies to the pipeline. Returns whether some commands must be sent in another way: a
    /// new pipeline is ready then.
    pub(super) fn read(&mut self, replies: Vec<Value>) -> bool {
        self.pipeline = Pipeline::new();
        let parts = mem::take(&mut self.parts);
        let positions = mem::take(&mut self.positions);
        let mut positions = positions.as_slice();
        for (part, reply) in parts.into_iter().zip(replies) {
            let (own, rest) = positions.split_at(part.count);
            positions = rest;
            if part.may_be_unknown(&reply) {
                self.replaced.extend_from_slice(own);
            }
            match part.fallback(&reply) {
                Some(fallback) => self.push_fallback(fallback, own),
                None => self.take_reply(part.ask, reply, own),
            }
        }
        !self.parts.is_empty()
    }

    /// Returns whether a script did what the server refused to do by command. The cause was then the
    /// command, not the key.
    pub(super) fn has_replaced_commands(&self) -> bool {
        let is_done = |position: &usize| matches!(self.answers[*position], Some(Ok(_)));
        self.replaced.iter().any(is_done)
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
            (Ask::Shared(shared, _), _) => {
                let answers = read::shared(shared, reply, positions.len());
                for (&position, answer) in positions.iter().zip(answers) {
                    self.answers[position] = Some(answer);
                }
            }
            (_, &[position]) => {
                let earlier = self.answers[position].take();
                let command = &self.batch[position];
                let tag = self.encoder.tag();
                self.answers[position] = read::single(ask, reply, command, tag, earlier);
            }
            // `CLIENT CACHING` is for no command.
            _ => {}
        }
    }

    fn push_fallback(&mut self, fallback: Fallback, positions: &[usize]) {
        match fallback {
            Fallback::Fence => {
                for &position in positions {
                    let cmd = self.encoder.fence(&self.batch[position], Call::InFull);
                    self.push(Ask::Fence(Call::InFull), cmd, &[position]);
                }
            }
            Fallback::Together(shared) => self.push_shared(shared, Call::InFull, positions),
            Fallback::Apart(shared) => {
                for &position in positions {
                    self.push_shared(shared, Call::InFull, &[position]);
                }
            }
        }
    }

    /// Encodes the batch for a server that compares by scripts, each of which serves many keys.
    fn push_in_groups(&mut self, batch: &[Command], is_tracking: bool) {
        let mut groups = Groups::default();
        for (position, command) in batch.iter().enumerate() {
            if !groups.admits(command) {
                self.push_groups(mem::take(&mut groups), is_tracking);
            }
            groups.push(position, command);
        }
        self.push_groups(groups, is_tracking);
    }

    fn push_groups(&mut self, groups: Groups, is_tracking: bool) {
        self.push_in_chunks(Shared::Extensions, &groups.extensions);
        self.push_in_chunks(Shared::Releases, &groups.releases);
        for position in groups.rest {
            let command = self.batch[position].clone();
            self.push_command(position, &command, Compare::ByScript, is_tracking);
        }
    }

    /// Shares a script among as many keys as a server may serve without a pause.
    fn push_in_chunks(&mut self, shared: Shared, positions: &[usize]) {
        let mut from = 0;
        let mut len = 0;
        for (to, &position) in positions.iter().enumerate() {
            let key = self.batch[position].key().as_bytes();
            let own = self.encoder.tag().len() + key.len();
            len += own;
            if len > MAX_SHARED && to > from {
                self.push_shared(shared, Call::ByHash, &positions[from..to]);
                from = to;
                len = own;
            }
        }
        if from < positions.len() {
            self.push_shared(shared, Call::ByHash, &positions[from..]);
        }
    }

    fn push_shared(&mut self, shared: Shared, by: Call, positions: &[usize]) {
        let commands = positions.iter().map(|&position| &self.batch[position]);
        let cmd = self.encoder.shared(shared, by, commands);
        self.push(Ask::Shared(shared, by), cmd, positions);
    }

    /// Encodes one command that shares no script with others.
    fn push_command(
        &mut self,
        position: usize,
        command: &Command,
        compare: Compare,
        is_tracking: bool,
    ) {
        let has_several = command.has_several_keys();
        let (ask, cmd) = match (command.operation(), compare) {
            (Operation::Probe { .. }, _) => {
                return self.push_probe(position, command, is_tracking);
            }
            (
                Operation::Acquire {
                    ttl,
                    fence: Some(fence),
                    gathers,
                    ..
                },
                _,
            ) => {
                let cmd = self.encoder.acquire_fenced(command, ttl, fence, gathers);
                (Ask::AcquireFenced, cmd)
            }
            (Operation::Acquire { gathers, .. }, _) if has_several => {
                let script = if gathers {
                    &script::GATHER
                } else {
                    &script::ACQUIRE_ALL
                };
                let cmd = self.encoder.all_keys(command, script);
                (Ask::AcquireAll, cmd)
            }
            (Operation::Extend { .. }, _) if has_several => {
                let cmd = self.encoder.all_keys(command, &script::EXTEND_ALL);
                (Ask::ExtendAll, cmd)
            }
            (Operation::Release { .. }, _) if has_several => {
                let cmd = self.encoder.all_keys(command, &script::RELEASE_ALL);
                (Ask::ReleaseAll, cmd)
            }
            (Operation::Acquire { ttl, .. }, _) => (Ask::Set, self.encoder.set(command, ttl)),
            (Operation::Fence { .. }, _) => {
                let cmd = self.encoder.fence(command, Call::ByHash);
                (Ask::Fence(Call::ByHash), cmd)
            }
            (Operation::Extend { ttl, .. }, Compare::Natively(_)) => {
                let peek = self.encoder.time_left(command.key().as_bytes());
                self.push(Ask::Peek, peek, &[position]);
                (Ask::Extend, self.encoder.extend(command, ttl))
            }
            (Operation::Release { .. }, Compare::Natively(native)) => {
                (Ask::Release, self.encoder.release(command, native))
            }
            (Operation::Extend { .. }, Compare::ByScript) => {
                return self.push_shared(Shared::Extensions, Call::ByHash, &[position]);
            }
            (Operation::Release { .. }, Compare::ByScript) => {
                return self.push_shared(Shared::Releases, Call::ByHash, &[position]);
            }
            _ => {
                self.answers[position] = Some(Err(NodeError::unknown_operation()));
                return;
            }
        };
        self.push(ask, cmd, &[position]);
    }

    /// Probes each key, and asks for a message when the key is gone.
    fn push_probe(&mut self, position: usize, command: &Command, is_tracking: bool) {
        for key in command.keys() {
            if is_tracking {
                self.push(Ask::Caching, encode::caching(), &[]);
            }
            let cmd = self.encoder.time_left(key.as_bytes());
            self.push(Ask::Probe, cmd, &[position]);
        }
    }

    fn push(&mut self, ask: Ask, cmd: Cmd, positions: &[usize]) {
        self.pipeline.add_command(cmd);
        self.parts.push(Part {
            ask,
            count: positions.len(),
        });
        self.positions.extend_from_slice(positions);
    }
}
