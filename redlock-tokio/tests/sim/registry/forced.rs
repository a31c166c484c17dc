//! Which locks may have been released by force, and what that allows.

use std::collections::{BTreeMap, HashMap};

use redlock_tokio::Token;

use crate::judge::{Hold, HoldId, Violation};

/// The tokens that a person has ordered to delete, and the holds with their tokens. The order of the maps is never looked at.
#[derive(Default)]
pub(super) struct Forced {
    /// When that was ordered first, in true time.
    tokens: HashMap<Token, u64>,
    holds: BTreeMap<HoldId, Token>,
}

impl Forced {
    pub(super) fn order(&mut self, token: Token, at: u64) {
        self.tokens.entry(token).or_insert(at);
    }

    /// Notes a hold. Its token may be that of an earlier holder, which has handed the lock over.
    pub(super) fn note_hold(&mut self, hold: HoldId, token: Token) {
        self.holds.insert(hold, token);
    }

    pub(super) fn contains(&self, token: Token) -> bool {
        self.tokens.contains_key(&token)
    }

    /// Returns whether a forced release allows something that must not happen otherwise: a holder does not know at once that its lock was
    /// released by force, and works beside the next one until then.
    pub(super) fn excuses(&self, violation: &Violation) -> bool {
        match violation {
            Violation::TwoHolders { first, second, .. } => {
                let mut both = [first, second].into_iter();
                both.any(|it| self.was_ordered(it, second.from))
            }
            // The holder was told that it has the lock after the next one.
            Violation::FenceDidNotGrow { later, .. } => {
                self.was_ordered(&later.hold, later.hold.from)
            }
            Violation::ToldLate { .. } => false,
        }
    }

    fn was_ordered(&self, hold: &Hold, by: u64) -> bool {
        let token = self.holds.get(&hold.id);
        let at = token.and_then(|it| self.tokens.get(it));
        at.is_some_and(|at| *at <= by)
    }
}
