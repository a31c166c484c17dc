//! What goes wrong with a server.

use redlock_tokio::Key;

use super::{
    Lines, Outage, Refusal, Server, Withheld,
    store::{Contents, Entry, Name},
};

/// What a server finds on its disk when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Disk {
    /// Nothing.
    Empty,
    /// Everything.
    Complete,
    /// What was there this long ago, in nanoseconds.
    Older(u64),
}

impl Server {
    /// Ends its process. Everything that is not on disk is lost.
    pub(crate) fn stop(&mut self, at: u64, outage: Outage, disk: Disk) {
        self.outage = Some(outage);
        self.stopped_at = at;
        match disk {
            Disk::Empty => self.forget_keys(),
            Disk::Complete => {}
            Disk::Older(lag) => {
                let copy = self.store.as_of(at.saturating_sub(lag));
                self.store.replace(copy);
            }
        }
        self.end_connections();
    }

    /// Starts it again: as what it was before if an authority names it, and else as a master.
    pub(crate) fn start(&mut self, at: u64, disk: Disk, is_named: bool) {
        let local = self.local(at);
        self.outage = None;
        self.identity.restart(local, disk != Disk::Empty);
        if !is_named {
            self.identity.master = None;
        }
        self.stands_still_until = 0;
        // The rights of clients are those from before.
        self.refusal = None;
        self.slow_until = 0;
    }

    /// Ends its connections.
    pub(crate) fn end_connections(&mut self) {
        self.generation += 1;
        self.tracked.clear();
    }

    /// Ends what goes wrong for a while. What it has not carried out yet comes when its pause is over, in order.
    pub(crate) fn recover(&mut self) {
        self.end_refusal();
        self.identity.withholds = None;
        self.slow_until = 0;
    }

    pub(crate) fn refuse_commands(&mut self, refusal: Refusal) {
        self.end_refusal();
        self.refusal = Some(refusal);
    }

    fn end_refusal(&mut self) {
        if self.refusal.take() == Some(Refusal::MasterDown) && !self.is_replica() {
            self.reinstate();
        }
    }

    pub(crate) fn withhold(&mut self, what: Option<Withheld>) {
        self.identity.withholds = what;
    }

    /// Returns the keys that this replica of it has, which lags behind, by the clock of the replica.
    pub(crate) fn replicated(&self, at: u64, lag: u64, replica: &Self) -> Contents {
        let mut copy = self.store.as_of(at.saturating_sub(lag));
        let (ours, theirs) = (self.millis(at), replica.millis(at));
        // What is dead by our clock is dead by theirs.
        copy.entries.retain(|_, entry| entry.expires_at > ours);
        for entry in copy.entries.values_mut() {
            entry.expires_at = theirs + (entry.expires_at - ours);
        }
        copy
    }

    /// Returns the history that it writes.
    pub(crate) fn history(&self) -> u32 {
        self.identity.history
    }

    /// It becomes the master, with what it has of the master before, whose history it continues.
    pub(crate) fn take_over(&mut self, copy: Contents, history: u32) {
        self.store.replace(copy);
        self.identity.promote(history);
        self.end_connections();
    }

    /// Replaces its keys by those of another, without the keys that it lacks.
    pub(crate) fn take_keys(&mut self, mut copy: Contents, mut lacks: impl FnMut(&Key) -> bool) {
        copy.entries.retain(|name, _| {
            let is_lost = lacks(&name.key);
            if is_lost {
                copy.counters.remove(&name.key);
            }
            !is_lost
        });
        self.store.replace(copy);
    }

    /// Drops all keys and counters, as `FLUSHALL` does.
    pub(crate) fn forget_keys(&mut self) {
        self.store.clear();
        self.marks.clear();
        self.tenures.clear();
        self.lines = Lines::default();
    }

    /// It becomes a replica of a server that has none of its keys. Its connections go on.
    pub(crate) fn demote(&mut self, master: usize) {
        self.identity.master = Some(master);
        self.forget_keys();
    }

    /// A replica becomes a master again, with what it has.
    pub(crate) fn reinstate(&mut self) {
        let history = self.identity.history;
        self.identity.promote(history);
    }

    /// Its clock steps forward.
    pub(crate) fn step_clock(&mut self, by: u64) {
        self.stepped += by;
    }

    /// Its clock is set back, by no more than `most` in all. Returns by how much.
    pub(crate) fn set_clock_back(&mut self, by: u64, most: u64) -> u64 {
        let by = by.min(most.saturating_sub(self.set_back));
        self.set_back += by;
        self.stepped -= by;
        by
    }

    /// Deletes the keys that have not expired, if `is_evicted` says so. Returns them.
    pub(crate) fn evict(&mut self, at: u64, mut is_evicted: impl FnMut() -> bool) -> Vec<Key> {
        let now = self.millis(at);
        let is_live = |(_, entry): &(&Name, &Entry)| now < entry.expires_at;
        let live = self.store.entries().filter(is_live);
        let mut live: Vec<_> = live.map(|(name, _)| name.key.clone()).collect();
        live.dedup();
        let evicted: Vec<_> = live.into_iter().filter(|_| is_evicted()).collect();
        for key in &evicted {
            self.store.remove(at, key);
        }
        evicted
    }
}
