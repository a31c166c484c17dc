use std::time::Duration;

use redlock_core::{Pause, Timestamp};

use super::{
    hashed_table::HashedTable,
    turns::{TurnLength, Turns},
};
use crate::{Key, random::Random, sync::Mutex};

/// How this process takes turns with other processes, by key. A key that is forgotten has its next pause at
/// another time, and no other harm.
#[derive(Debug)]
pub(crate) struct TurnTable(Mutex<HashedTable<Turns>>);

impl TurnTable {
    pub(crate) fn new(random: &Random) -> Self {
        Self(Mutex::new(HashedTable::new(random)))
    }

    /// Ends a turn. Returns how to let other processes go first, or `None` if the turn may go on.
    pub(crate) fn end(
        &self,
        key: &Key,
        now: Timestamp,
        length: TurnLength,
        share: u8,
    ) -> Option<Pause> {
        self.0.lock().get_or_default(key).end(now, length, share)
    }

    /// Starts a turn after other processes could go first. Returns how long the turn may last.
    pub(crate) fn start(
        &self,
        key: &Key,
        now: Timestamp,
        was_contended: bool,
        missed: u32,
        length: TurnLength,
    ) -> Duration {
        let mut table = self.0.lock();
        let Some(turns) = table.get_mut(key) else {
            return length.usual;
        };
        turns.start(now, was_contended, missed);
        turns.length(length)
    }
}
