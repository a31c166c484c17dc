use redlock_core::{Operation, Token};

use super::part::Shared;
use crate::node::Command;

/// Commands in groups, so that the extensions share a script, and the releases share another. Both groups
/// are sent before the rest, so a command may join them only if it overtakes none with its own token.
#[derive(Default)]
pub(super) struct Groups {
    pub(super) extensions: Vec<usize>,
    pub(super) releases: Vec<usize>,
    pub(super) rest: Vec<usize>,
    /// The tokens of the rest. A batch has few, so a search is faster than a hash.
    tokens: Vec<Token>,
}

impl Groups {
    /// Returns whether the command may join.
    pub(super) fn admits(&self, command: &Command) -> bool {
        Shared::of(command).is_none() || !self.tokens.contains(&command.operation().token())
    }

    /// Adds the command with this position in the batch.
    pub(super) fn push(&mut self, position: usize, command: &Command) {
        match Shared::of(command) {
            Some(Shared::Extensions) => self.extensions.push(position),
            Some(Shared::Releases) => self.releases.push(position),
            None => {
                let operation = command.operation();
                // A probe changes nothing, so its order does not matter.
                if !matches!(operation, Operation::Probe { .. }) {
                    self.tokens.push(operation.token());
                }
                self.rest.push(position);
            }
        }
    }
}
