use std::{
    future::pending,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use futures::FutureExt;
use redlock_tokio::{FencingToken, Hold};
use tokio::{task::JoinSet, time::sleep};

use super::{journal, sight::Sight, store::Deadline};
use crate::{
    clock,
    line::{self, Line},
    support::MS,
};

const TICK: Duration = Duration::from_millis(20);

/// How many ticks a holder waits for the news of a loss: for longer than the judge tolerates.
const TICKS: usize = 150;

/// Observes a hold from its creation to its end or drop, and then reports it. The report is never longer than the
/// hold.
pub(super) struct Watch {
    keys: Vec<usize>,
    hold: Hold,
    pub(super) is_shared: bool,
    from: u64,
    sight: Arc<Mutex<Sight>>,
    /// When the holder was told that the lock is lost.
    told: Arc<OnceLock<u64>>,
    /// One task looks at the hold now and then, and another one waits for the news of its loss. They end with the
    /// watch.
    _observers: JoinSet<()>,
}

impl Watch {
    /// Starts to observe a hold. With `hears`, also waits for the news of its loss.
    pub(super) fn new(keys: &[usize], hold: &Hold, hears: bool) -> Self {
        let from = clock::now();
        let sight = Arc::new(Mutex::new(Sight::new(from)));
        let told = Arc::<OnceLock<u64>>::default();
        let mut observers = JoinSet::new();
        observers.spawn(look_on(hold.view(), Arc::clone(&sight)));
        observers.spawn(listen(hold.view(), Arc::clone(&told), hears));
        let watch = Self {
            keys: keys.to_vec(),
            hold: hold.view(),
            is_shared: false,
            from,
            sight,
            told,
            _observers: observers,
        };
        watch.look();
        watch
    }

    /// Reports the hold. If it is over, waits for the news of its loss first. The lock must not be released before,
    /// because nobody is told of a loss after the release.
    pub(super) async fn end(self) {
        let is_held = self.look();
        // A stop of the process is one tick, however long it lasts.
        for _ in 0..TICKS {
            if is_held || self.told.get().is_some() {
                break;
            }
            sleep(TICK).await;
        }
    }

    /// Returns whether the keys are held now, and notes the end of their validity.
    pub(super) fn look(&self) -> bool {
        look(&self.sight, &self.hold)
    }

    /// Returns the time from which a write is too late, unless it is too late now.
    pub(super) fn deadline(&self) -> Option<Deadline> {
        let deadline = Deadline::after(|| self.hold.remaining());
        self.look().then_some(deadline)
    }
}

/// Looks again. Returns whether the keys are held now.
fn look(sight: &Mutex<Sight>, hold: &Hold) -> bool {
    let mut sight = sight.lock().unwrap_or_else(PoisonError::into_inner);
    let now = clock::now();
    sight.renew(now, hold.remaining())
}

/// Waits for the news of the loss. Nothing else may wake this task: it would then find a loss of which nobody told it.
async fn listen(hold: Hold, told: Arc<OnceLock<u64>>, hears: bool) {
    if !hears {
        pending::<()>().await;
    }
    hold.lost().await;
    let _ = told.set(clock::now()); // it is set once
}

/// Looks at a hold now and then.
async fn look_on(hold: Hold, sight: Arc<Mutex<Sight>>) {
    loop {
        sleep(MS(50)).await;
        look(&sight, &hold);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let now = clock::now();
        let is_held = self.look();
        let sight = *self.sight.lock().unwrap_or_else(PoisonError::into_inner);
        let until = if is_held {
            now
        } else {
            sight.end(now, self.hold.lost().now_or_never())
        };
        let told = self.told.get().copied();
        journal::tell(&Line::Hold(line::Hold {
            keys: self.keys.clone(),
            from: self.from,
            until,
            valid_until: sight.valid_until,
            told: told.or((!is_held).then_some(now)),
            fence: self.hold.fencing_token().map(FencingToken::get),
            is_shared: self.is_shared,
        }));
    }
}
