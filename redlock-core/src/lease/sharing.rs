//! The other holders that a lock may have beside this lease, and which slot of a semaphore the lease asks for.

use alloc::boxed::Box;

#[cfg(doc)]
use super::Event;
use super::{Access, Lease, RoundId, State, key_watch::KeyWatch};
use crate::{Permits, Slot, SlotSet, Timestamp};

/// The other holders that a lock may have at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Share {
    /// Nobody. Readers and writers are kept out, but they do not make way.
    Exclusive,
    /// Nobody. Readers make way while this client waits.
    Writer,
    /// Other readers, but no writer and no exclusive lock.
    ///
    /// The lock cannot be fenced, and has one key.
    Reader,
    /// As many clients as there are permits, each with one of its own.
    Permit(Permits),
}

/// Which slot of a semaphore a lease asks for or holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Slots {
    permits: Permits,
    preferred: SlotSet,
    /// The slots that the last look has shown free, but for the one that the lease has asked for since.
    pub(super) spare: SlotSet,
    /// The slots that the driver has excluded.
    excluded: SlotSet,
}

impl Slots {
    /// Returns the slots that the lease may ask for.
    fn wanted(&self) -> SlotSet {
        self.permits.slots().difference(self.excluded)
    }

    /// Returns the slot to ask for after so many attempts, if these slots are the best by what a look has shown.
    fn choose(&self, best: SlotSet, attempts: u32, random: u64) -> Slot {
        let (best, wanted, all) = (
            best.intersection(self.wanted()),
            self.wanted(),
            self.permits.slots(),
        );
        let preferred = match attempts {
            0 => self.preferred,
            _ => SlotSet::EMPTY,
        };
        // If all are excluded, the nodes deny any choice.
        let choices = [
            best.intersection(preferred),
            best,
            wanted.intersection(preferred),
            wanted,
        ];
        let choice = choices.into_iter().find(|it| !it.is_empty());
        let choice = choice.unwrap_or(all);
        let index = (u128::from(random) * choice.len() as u128) >> 64;
        choice.iter().nth(index as usize).unwrap_or(Slot::FIRST)
    }
}

impl Lease {
    /// Sets who else may hold the lock at the same time: nobody, unless this is called. Has no effect once the lease
    /// has started.
    ///
    /// With [`Share::Permit`] the lock is a semaphore. Each attempt asks all nodes for one slot. After an attempt that
    /// failed, the lease looks at all slots (after the second one, if it [stands in a line](Self::stand_in_line), only
    /// once it may [proceed](Self::proceed)), and asks for one that is free on a majority of nodes, at random. It fails
    /// as [contended](crate::AcquireFailure::Contended) if it sees none, or if other clients were faster once more. So
    /// even if the deadline has passed, it makes one attempt, one look if its schedule has
    /// [probes](crate::RetrySchedule::with_probes), and one more attempt if it sees a free slot.
    pub fn set_share(&mut self, share: Share) {
        if !matches!(self.state, State::Idle { .. }) {
            return;
        }
        self.slots = None;
        match share {
            Share::Exclusive => self.outbox.aim_at(Access::Exclusive, None),
            Share::Writer => self.outbox.aim_at(Access::Writer, None),
            Share::Reader => self.aim_at_reader(false),
            Share::Permit(permits) => {
                self.slots = Some(Box::new(Slots {
                    permits,
                    preferred: SlotSet::EMPTY,
                    spare: SlotSet::EMPTY,
                    excluded: SlotSet::EMPTY,
                }));
                // The first attempt chooses the slot.
                let slot = Access::Slot(Slot::FIRST);
                self.outbox.aim_at(slot, Some(permits));
            }
        }
    }

    /// Turns a lock that is held by this client alone into one of a reader. Returns whether an extension has started
    /// that does so. Costs one round.
    ///
    /// From now on other readers may hold the lock too. The answer is the next [`Event::Extended`] or
    /// [`Event::ExtendFailed`], or the [loss](crate::End::Lost) of the lock, as for any [extension](Self::extend), and
    /// renewal goes on as before. A fencing token does not outlive the downgrade.
    ///
    /// Nothing happens if the lock is not held, if it is a permit, a reader's or one of several keys, or if it was held
    /// for the longest time that [`KeepAlive`](crate::KeepAlive) allows.
    ///
    /// A reader cannot become a writer: two readers that tried would wait for each other.
    pub fn downgrade(&mut self, now: Timestamp) -> bool {
        let may_downgrade = self.has_one_owner();
        self.held(now)
            .is_some_and(|(held, mut cx)| may_downgrade && held.downgrade(&mut cx))
    }

    /// Notes that one more reader of this client has a held lock, beside those that have it already, without a request
    /// to the nodes. Returns whether readers hold the lock.
    ///
    /// The longest time for which the lock may be held starts anew. The driver must release the lock only after the
    /// last of them has gone.
    pub fn join(&mut self, now: Timestamp) -> bool {
        let is_reader = self.is_reader();
        self.held(now)
            .is_some_and(|(held, cx)| is_reader && held.join(&cx))
    }

    /// Has the first attempt ask for one of these slots of the semaphore at random, unless all are excluded or known to
    /// be taken. Otherwise the first attempt asks for any. A process that asks for a slot that it has given back, or
    /// that one of its leases has [seen](Self::take_spare_slots), often finds it free.
    pub fn prefer_slots(&mut self, preferred: SlotSet) {
        if let Some(slots) = &mut self.slots {
            slots.preferred = preferred;
        }
    }

    /// Returns the slots that a look has shown free besides the one that the lease has asked for since. Other leases of
    /// the process may [try](Self::try_slots) them.
    pub fn take_spare_slots(&mut self) -> SlotSet {
        let spare = self.slots.as_mut().map(|it| &mut it.spare);
        spare.map_or(SlotSet::EMPTY, core::mem::take)
    }

    /// Excludes these slots of the semaphore, and only these, from all attempts from now on. Exclude the slots that
    /// other leases of the process hold or ask for.
    pub fn exclude_slots(&mut self, excluded: SlotSet) {
        let Some(slots) = &mut self.slots else {
            return;
        };
        slots.excluded = excluded;
        let wanted = slots.wanted();
        if let State::Backoff(it) = &mut self.state
            && let Some(key_watch) = &mut it.key_watch
        {
            key_watch.wanted = wanted;
        }
    }

    /// Returns the slot that the lease holds or has asked for last, if it is one of a semaphore that it has asked for.
    #[must_use]
    pub fn slot(&self) -> Option<Slot> {
        match self.outbox.access() {
            Access::Slot(slot) if self.attempts > 0 => Some(slot),
            _ => None,
        }
    }

    /// Returns whether the lease waits and has seen that too many nodes have each slot that it may ask for.
    #[must_use]
    pub fn finds_all_slots_taken(&self, now: Timestamp) -> bool {
        let finds_none = match &self.state {
            State::Backoff(it) => it.is_taken(now),
            State::InLine(_) => true,
            _ => false,
        };
        self.slots.is_some() && finds_none
    }

    /// Returns whether the lock is, or will be, one of a reader, which other readers may share.
    #[must_use]
    pub const fn is_reader(&self) -> bool {
        matches!(self.outbox.access(), Access::Reader { .. })
    }

    /// Returns whether the lease may ask for one of these slots.
    pub(super) fn wants_any(&self, slots: SlotSet) -> bool {
        let wanted = self.slots.as_ref().map(|it| it.wanted());
        wanted.is_some_and(|wanted| !wanted.intersection(slots).is_empty())
    }

    pub(super) const fn is_writer(&self) -> bool {
        matches!(self.outbox.access(), Access::Writer)
    }

    pub(super) fn aim_at_reader(&mut self, insists: bool) {
        let access = Access::Reader { insists };
        self.outbox.aim_at(access, None);
    }

    /// Chooses the slot of the next attempt, by what is known, or whether a reader insists.
    pub(super) fn prepare_access(&mut self, best: SlotSet, insists: bool) {
        if self.is_reader() {
            self.aim_at_reader(insists);
        }
        // Not the bits that decide about delays.
        let random = self.nonce.jitter(!self.attempts);
        if let Some(slots) = &mut self.slots {
            let slot = slots.choose(best, self.attempts, random);
            slots.spare.remove(slot);
            self.outbox.aim_at(Access::Slot(slot), Some(slots.permits));
        }
    }

    /// Starts to watch the key, or all slots of the semaphore, with the probe of this round.
    pub(super) fn watch_with(&self, id: RoundId) -> KeyWatch {
        let (count, wanted) = match &self.slots {
            Some(slots) => (slots.permits.count(), slots.wanted()),
            None => (1, SlotSet::OF_A_LOCK),
        };
        KeyWatch::new(id, self.config.quorum, count, wanted)
    }
}
