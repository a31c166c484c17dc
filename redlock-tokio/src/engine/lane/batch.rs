use std::sync::Arc;

use redlock_core::Operation;

use super::{
    handle::{ReplyTo, Requester},
    owed_releases::Owed,
};
use crate::node::Command;

/// Commands that travel together, in order, and the purpose of each.
#[derive(Debug, Default)]
pub(super) struct Batch {
    commands: Vec<Command>,
    purposes: Vec<Purpose>,
    /// How many keys the commands have together.
    keys: usize,
}

/// Why a command is sent.
#[derive(Debug)]
pub(super) enum Purpose {
    /// A requester waits for the answer.
    Request(ReplyTo),
    /// The node is owed a release.
    OwedRelease(Owed),
}

impl Purpose {
    /// Returns for whom the command is sent.
    pub(super) fn requester(&self) -> &Arc<dyn Requester> {
        match self {
            Self::Request(reply_to) => &reply_to.requester,
            Self::OwedRelease(owed) => &owed.requester,
        }
    }
}

impl Batch {
    /// Creates an empty batch with room for so many commands.
    pub(super) fn with_capacity(commands: usize) -> Self {
        Self {
            commands: Vec::with_capacity(commands),
            purposes: Vec::with_capacity(commands),
            keys: 0,
        }
    }

    pub(super) fn push(&mut self, command: Command, purpose: Purpose) {
        self.keys += command.key_count();
        self.commands.push(command);
        self.purposes.push(purpose);
    }

    pub(super) fn keys(&self) -> usize {
        self.keys
    }

    pub(super) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    pub(super) fn releases(&self) -> usize {
        let is_release = |it: &&Command| matches!(it.operation(), Operation::Release { .. });
        self.commands.iter().filter(is_release).count()
    }

    pub(super) fn commands(&self) -> &[Command] {
        &self.commands
    }

    pub(super) fn requesters(&self) -> impl Iterator<Item = &ReplyTo> {
        self.purposes.iter().filter_map(|purpose| match purpose {
            Purpose::Request(reply_to) => Some(reply_to),
            Purpose::OwedRelease(_) => None,
        })
    }

    pub(super) fn into_commands(self) -> impl Iterator<Item = (Command, Purpose)> {
        self.commands.into_iter().zip(self.purposes)
    }
}
