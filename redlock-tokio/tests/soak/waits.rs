//! Whether each waiter has its turn, even if those before it have failed.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    fault::Kind,
    line::{Hold, Wait},
};

/// The waits for the keys that only waiters want, while all nodes are well, and the holds of these keys.
#[derive(Default)]
pub(crate) struct Waits {
    /// Whether a node has a fault, or recovers. Waiters fail only when all nodes have recovered.
    is_disturbed: bool,
    waits: Vec<(String, Wait)>,
    /// When the latest wait of a process for a key began.
    began: BTreeMap<(String, usize), u64>,
    /// Each hold: its key, from when until when, and when the wait for it began.
    holds: BTreeSet<(usize, u64, u64, u64)>,
}

impl Waits {
    /// How many nanoseconds a wait may lose. Waiters that fail at one time cost those behind them at most four seconds.
    /// A holder that fails with them keeps the key for its ttl, and a later process that has just got the key holds it:
    /// one and a half seconds in either case. Two seconds are for a machine that a dozen processes keep busy.
    pub(crate) const BOUND: u64 = 7_500_000_000;

    pub(crate) fn fault(&mut self, kind: Kind) {
        self.is_disturbed &= kind != Kind::FailWaiters;
        self.is_disturbed |= !kind.is_of_processes();
    }

    pub(crate) fn waited(&mut self, process: String, wait: Wait) {
        self.began.insert((process.clone(), wait.key), wait.began);
        if !self.is_disturbed {
            self.waits.push((process, wait));
        }
    }

    pub(crate) fn held(&mut self, process: &str, hold: &Hold) {
        let key = hold.keys[0];
        if let Some(began) = self.began.get(&(process.to_owned(), key)) {
            self.holds.insert((key, hold.from, hold.until, *began));
        }
    }

    /// Returns for how long each wait lost its turn, and when the wait ended, by process, key and beginning. A wait loses
    /// its turn while nobody holds the key, or a process holds it that began to wait later.
    pub(crate) fn losses(&self) -> BTreeMap<(&str, usize, u64), (u64, u64)> {
        let mut losses = BTreeMap::new();
        for (process, wait) in &self.waits {
            let times = (wait.key, 0, 0, 0)..(wait.key, wait.until, 0, 0);
            let holds = self.holds.range(times).rev();
            let holds = holds.take_while(|it| it.2 > wait.from);
            let in_order = holds.filter(|it| it.3 < wait.began);
            let in_order = in_order.map(|it| it.2.min(wait.until) - it.1.max(wait.from));
            let lost = (wait.until - wait.from).saturating_sub(in_order.sum());
            let wait_of = (&**process, wait.key, wait.began);
            let (sum, until) = losses.entry(wait_of).or_default();
            (*sum, *until) = (*sum + lost, wait.until);
        }
        losses
    }
}
