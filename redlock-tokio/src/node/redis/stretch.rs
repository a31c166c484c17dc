use redlock_core::{Operation, Token};

use crate::node::Command;

/// Commands of which the extensions and releases may travel first, so that each kind shares one
/// script: none of them would overtake a command with its own token.
#[derive(Default)]
pub(super) struct Stretch {
    pub(super) extensions: Vec<usize>,
    pub(super) releases: Vec<usize>,
    pub(super) rest: Vec<usize>,
    /// The tokens of the rest: as many as travel in a batch at most, and mostly so few that to look
    /// through them is faster than to hash.
    tokens: Vec<Token>,
}

impl Stretch {
    pub(super) fn admits(&self, command: &Command) -> bool {
        match command.operation() {
            _ if command.has_several_keys() => true,
            Operation::Extend { token, .. } | Operation::Release { token } => {
                !self.tokens.contains(&token)
            }
            _ => true,
        }
    }

    pub(super) fn push(&mut self, position: usize, command: &Command) {
        match command.operation() {
            operation if command.has_several_keys() => {
                self.tokens.push(operation.token());
                self.rest.push(position);
            }
            Operation::Acquire { token, .. } | Operation::Fence { token, .. } => {
                self.tokens.push(token);
                self.rest.push(position);
            }
            Operation::Extend { .. } => self.extensions.push(position),
            Operation::Release { .. } => self.releases.push(position),
            _ => self.rest.push(position),
        }
    }
}
