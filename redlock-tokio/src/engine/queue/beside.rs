use std::collections::BTreeMap;

use redlock_core::{Permits, Timestamp};

use super::Arrival;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The key for itself, with other keys or without.
    Lock,
    /// One of so many permits of a semaphore.
    Permit(Permits),
    /// To read, beside another reader of this process if it can.
    Reader,
    /// To read, by a request to the nodes.
    LoneReader,
    Writer,
    /// A lock that another client has given away. It waits for nobody.
    Adopter,
}

/// The turns for a key that several may have at once, in order of arrival.
#[derive(Clone, Debug)]
pub(super) struct Beside<T> {
    turns: BTreeMap<Arrival, Turn<T>>,
    /// The one that waits for a permit for all that have found none.
    scout: Option<Arrival>,
    /// How many permits there are. Requests of one process should agree. If not, the largest number counts, as it does
    /// among processes.
    permits: usize,
}

#[derive(Clone, Debug)]
struct Turn<T> {
    lease: T,
    role: Role,
    /// Since when this process holds the lock or permit.
    since: Option<Timestamp>,
    /// Whether it has found no permit free.
    found_none: bool,
}

impl Role {
    pub(crate) const fn is_reader(self) -> bool {
        matches!(self, Self::Reader | Self::LoneReader)
    }

    /// Returns whether it lets other processes have their turns.
    pub(super) const fn takes_turns(self) -> bool {
        matches!(self, Self::Lock | Self::Permit(_) | Self::Writer)
    }

    /// Returns how many permits it counts with.
    const fn permits(self) -> usize {
        match self {
            Self::Permit(permits) => permits.count(),
            _ => 1,
        }
    }
}

impl<T> Turn<T> {
    /// Returns whether it has found no permit free, and waits for one.
    fn waits(&self) -> bool {
        self.found_none && self.since.is_none()
    }

    fn is_reading(&self) -> bool {
        self.role.is_reader() && self.since.is_some()
    }
}

impl<T> Default for Beside<T> {
    fn default() -> Self {
        Self {
            turns: BTreeMap::new(),
            scout: None,
            permits: 1,
        }
    }
}

impl<T> Beside<T> {
    /// Returns whether one more may have a turn.
    ///
    /// - A plain lock is alone. Nobody comes in beside an adopted lock.
    /// - There are no more turns than permits. They ask at once, each for another slot, so a burst costs one round trip. No
    ///   further turn begins while one has found no slot free and still waits, but for those that the [scout](Self::make_scout)
    ///   has seen free.
    /// - One reader at a time asks the nodes. Readers that come before its answer wait for it, and then share its lease.
    /// - One writer at a time asks the nodes, beside readers that hold the lock: so it keeps readers of other processes out.
    pub(super) fn has_room(&self, role: Role, seen_free: bool) -> bool {
        let mut turns = self.turns.values();
        match role {
            Role::Lock => turns.len() == 0,
            Role::Permit(_) => {
                let has_place = turns.len() < self.permits.max(role.permits());
                has_place && (seen_free || !turns.any(Turn::waits))
            }
            Role::Reader | Role::Writer => turns.all(Turn::is_reading),
            Role::LoneReader => turns.all(|turn| turn.role.is_reader()),
            Role::Adopter => true,
        }
    }

    pub(super) fn give_turn(&mut self, arrival: Arrival, role: Role, lease: T) {
        let turn = Turn {
            lease,
            role,
            since: None,
            found_none: false,
        };
        self.note_permits(role);
        self.turns.insert(arrival, turn);
    }

    /// Notes how many permits a request counts with.
    pub(super) fn note_permits(&mut self, role: Role) {
        self.permits = self.permits.max(role.permits());
    }

    /// Ends the turn with this arrival. Returns whether it was there.
    pub(super) fn end_turn(&mut self, arrival: Arrival) -> bool {
        self.turns.remove(&arrival).is_some()
    }

    pub(super) fn turns(&self) -> impl Iterator<Item = (Arrival, &T)> {
        let turns = self.turns.iter();
        turns.map(|(arrival, turn)| (*arrival, &turn.lease))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Returns since when this process holds the lock or permit of the turn with this arrival.
    pub(super) fn since(&self, arrival: Arrival) -> Option<Timestamp> {
        self.turns.get(&arrival)?.since
    }

    /// Notes that a lease has got the lock or a permit.
    pub(super) fn note_hold(&mut self, arrival: Arrival, now: Timestamp) {
        if let Some(turn) = self.turns.get_mut(&arrival) {
            turn.since.get_or_insert(now);
        }
    }

    /// Notes whether a lease has found no permit free. That is taken back if it finds that no other process waits.
    pub(super) fn note_none_found(&mut self, arrival: Arrival, found_none: bool) {
        if let Some(turn) = self.turns.get_mut(&arrival) {
            turn.found_none = found_none;
        }
    }

    /// Notes that a writer has become a reader.
    pub(super) fn note_downgrade(&mut self, arrival: Arrival) {
        if let Some(turn) = self.turns.get_mut(&arrival) {
            turn.role = Role::LoneReader;
        }
    }

    /// Returns whether a lease has found no permit free, and waits for one.
    pub(super) fn waits_for_permit(&self, arrival: Arrival) -> bool {
        self.turns.get(&arrival).is_some_and(Turn::waits)
    }

    /// Makes a lease that has found no permit free the scout, unless there is one that counts with as many permits: it alone
    /// stands in the line of processes and watches all slots, for all requests of this process. Returns whether it is the scout.
    pub(super) fn make_scout(&mut self, arrival: Arrival) -> bool {
        let permits = |turn: &Turn<T>| turn.role.permits();
        let better = self.scout().map(permits) < self.turns.get(&arrival).map(permits);
        if better {
            self.scout = Some(arrival);
        }
        self.scout == Some(arrival)
    }

    /// Returns the lease of the scout, if there is one.
    pub(super) fn scouting(&self) -> Option<&T> {
        self.scout().map(|turn| &turn.lease)
    }

    fn scout(&self) -> Option<&Turn<T>> {
        let turn = self.turns.get(&self.scout?)?;
        turn.waits().then_some(turn)
    }

    /// Returns those that have found no permit free, and wait for one, in order of arrival.
    pub(super) fn found_none(&self) -> impl Iterator<Item = &T> {
        let turns = self.turns.values().filter(|turn| turn.waits());
        turns.map(|turn| &turn.lease)
    }

    /// Returns those that ask for a permit, and have not found that none is free.
    pub(super) fn asking(&self) -> impl Iterator<Item = &T> {
        let turns = self.turns.values();
        let asking = turns.filter(|turn| turn.since.is_none() && !turn.found_none);
        asking.map(|turn| &turn.lease)
    }

    /// Returns whether the process holds the lock or a permit.
    pub(super) fn is_held(&self) -> bool {
        self.turns.values().any(|turn| turn.since.is_some())
    }

    /// Returns the readers that came last, if they hold the lock and others may join them.
    pub(super) fn open_turn(&self) -> Option<&T> {
        let (_, turn) = self.turns.last_key_value()?;
        let is_open = turn.is_reading() && !self.has_writer();
        is_open.then_some(&turn.lease)
    }

    /// Returns whether those with this arrival are readers that others may join.
    pub(super) fn may_be_joined(&self, arrival: Arrival) -> bool {
        let turn = self.turns.get(&arrival);
        turn.is_some_and(|turn| turn.role.is_reader()) && !self.has_writer()
    }

    fn has_writer(&self) -> bool {
        let mut turns = self.turns.values();
        turns.any(|turn| turn.role == Role::Writer)
    }
}
