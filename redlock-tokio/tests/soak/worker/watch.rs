use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::FutureExt;
use redlock_tokio::{FencingToken, Hold, LossReason};
use tokio::{task::JoinHandle, time::sleep};

use super::{journal, sight::Sight, store::Deadline};
use crate::{
    clock,
    line::{self, Line},
    support::MS,
    topology::MAX_TTL,
};

/// Observes a hold from its creation to its drop, and then reports it. The report is never longer than the
/// hold.
pub(super) struct Watch {
    keys: Vec<usize>,
    /// None for a task that does not lock.
    hold: Option<Hold>,
    from: u64,
    sight: Arc<Mutex<Sight>>,
    /// Returns when it was told that the lock is lost.
    listener: Option<JoinHandle<u64>>,
}

impl Watch {
    pub(super) fn new(keys: &[usize], hold: Option<&Hold>) -> Self {
        let from = clock::now();
        let sight = Arc::new(Mutex::new(Sight::new(from)));
        let listener = hold.map(|it| tokio::spawn(listen(it.clone(), Arc::clone(&sight))));
        let watch = Self {
            keys: keys.to_vec(),
            hold: hold.cloned(),
            from,
            sight,
            listener,
        };
        watch.look();
        watch
    }

    /// Returns whether the keys are held now, and notes the end of their validity.
    pub(super) fn look(&self) -> bool {
        look(&self.sight, || self.remaining())
    }

    /// Returns the time from which a write is too late, unless it is too late now.
    pub(super) fn deadline(&self) -> Option<Deadline> {
        let deadline = Deadline::after(|| self.remaining());
        self.look().then_some(deadline)
    }

    /// Returns when the listener was told that the lock is lost, and ends the listener.
    fn told(&mut self) -> Option<u64> {
        let mut listener = self.listener.take()?;
        listener.abort();
        (&mut listener).now_or_never()?.ok()
    }

    fn reason(&self) -> Option<LossReason> {
        self.hold.as_ref()?.lost().now_or_never()
    }

    fn remaining(&self) -> Duration {
        self.hold.as_ref().map_or(MAX_TTL, Hold::remaining)
    }
}

/// Looks again. Returns whether the keys are held now.
fn look(sight: &Mutex<Sight>, remaining: impl FnOnce() -> Duration) -> bool {
    let mut sight = sight.lock().unwrap_or_else(PoisonError::into_inner);
    let now = clock::now();
    sight.renew(now, remaining())
}

/// Reports a token and the news of a loss that the judge must not accept.
fn make_up(report: &mut line::Hold) {
    const LATE: u64 = 5_000_000_000;
    report.fence = Some(1);
    report.told = Some(report.valid_until + LATE);
}

/// Looks at a hold now and then, until it is lost.
async fn listen(hold: Hold, sight: Arc<Mutex<Sight>>) -> u64 {
    loop {
        tokio::select! {
            biased;
            _ = hold.lost() => return clock::now(),
            () = sleep(MS(50)) => look(&sight, || hold.remaining()),
        };
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let now = clock::now();
        let is_held = self.look();
        let told = self.told();
        let sight = *self.sight.lock().unwrap_or_else(PoisonError::into_inner);
        let until = if is_held {
            now
        } else {
            sight.end(now, self.reason())
        };
        let mut report = line::Hold {
            keys: self.keys.clone(),
            from: self.from,
            until,
            valid_until: sight.valid_until,
            told,
            fence: None,
        };
        match &self.hold {
            Some(hold) => report.fence = hold.fencing_token().map(FencingToken::get),
            None => make_up(&mut report),
        }
        journal::tell(&Line::Hold(report));
    }
}
