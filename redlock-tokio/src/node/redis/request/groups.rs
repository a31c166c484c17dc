use redlock_core::{Operation, Token};

use super::part::Shared;
use crate::node::Command;

/// Commands in groups, so that the extensions share a script, the releases share another, and so does the raising of
/// fencing counters. Extensions and releases are sent before the rest, so a command may join them only if it overtakes none
/// with its own token. Counters are raised after the rest.
#[derive(Default)]
pub(super) struct Groups {
    pub(super) extensions: Vec<usize>,
    pub(super) releases: Vec<usize>,
    pub(super) rest: Vec<usize>,
    pub(super) fences: Vec<usize>,
    /// The tokens of the rest and of the fences. A batch has few, so a search is faster than a hash.
    tokens: Vec<Token>,
}

impl Groups {
    /// Returns whether the command may join.
    pub(super) fn admits(&self, command: &Command) -> bool {
        Shared::of(command).is_none() || !self.tokens.contains(&command.operation().token())
    }

    /// Adds the command with this position in the batch.
    pub(super) fn push(&mut self, position: usize, command: &Command) {
        let operation = command.operation();
        match Shared::of(command) {
            Some(Shared::Extensions) => return self.extensions.push(position),
            Some(Shared::Releases) => return self.releases.push(position),
            _ => {}
        }
        // A probe changes nothing, so its order does not matter.
        if !matches!(operation, Operation::Probe { .. }) {
            self.tokens.push(operation.token());
        }
        let has_one_key = !command.has_several_keys();
        if has_one_key && command.fence().is_some() {
            self.fences.push(position);
        }
        if !(has_one_key && matches!(operation, Operation::Fence { .. })) {
            self.rest.push(position);
        }
    }
}
