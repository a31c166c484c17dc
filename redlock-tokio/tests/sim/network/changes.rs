//! When servers have changed.

use crate::server::{Condition, Server};

/// When each server changed for the last time, in true time.
#[derive(Default)]
pub(super) struct Changes(Vec<Change>);

struct Change {
    condition: Condition,
    at: u64,
}

impl Changes {
    /// Looks which servers have changed.
    pub(super) fn note(&mut self, at: u64, servers: &[Server]) {
        for (index, server) in servers.iter().enumerate() {
            let condition = server.condition();
            match self.0.get_mut(index) {
                Some(last) if last.condition == condition => {}
                Some(last) => *last = Change { condition, at },
                None => self.0.push(Change { condition, at }),
            }
        }
    }

    pub(super) fn last_of(&self, server: usize) -> u64 {
        self.0.get(server).map_or(0, |it| it.at)
    }
}
