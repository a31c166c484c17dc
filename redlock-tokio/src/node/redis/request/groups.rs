use redlock_core::{Operation, Token};

use super::part::Shared;
use crate::node::Command;

/// Commands in groups, so that the extensions share a script, the releases share another, and so does the raising of
/// fencing counters. Extensions and releases are sent before the rest, so a command may join them only if it overtakes none
/// with its own token. Counters are raised after the rest, by a script that reads all of them first, so each token is there
/// once.
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
    pub(super) fn admits(&self, command: &Command) -> bool {
        let is_moved = Shared::of(command).is_some() || raises_counter(command);
        !is_moved || !self.tokens.contains(&command.operation().token())
    }

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
        let raises_counter = raises_counter(command);
        if raises_counter {
            self.fences.push(position);
        }
        if !(raises_counter && matches!(operation, Operation::Fence { .. })) {
            self.rest.push(position);
        }
    }
}

/// Returns whether the command joins the script that raises counters.
fn raises_counter(command: &Command) -> bool {
    !command.has_several_keys() && command.fence().is_some()
}
