use std::{
    future::pending,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use futures::FutureExt;
use redlock_tokio::{FencingToken, Hold, LossReason};
use tokio::{
    task::{JoinHandle, JoinSet},
    time::{sleep, timeout},
};

use super::{journal, sight::Sight, store::Deadline};
use crate::{
    clock,
    line::{self, Line, Loss},
    support::MS,
    topology::MAX_TTL,
};

const TICK: Duration = Duration::from_secs(1);

/// How many ticks a holder waits for the news of a loss: for longer than the judge tolerates.
const TICKS: usize = 3;

/// Observes a hold from its creation to its end or drop, and then reports it. The report is never longer than the
/// hold.
pub(super) struct Watch {
    keys: Vec<usize>,
    /// None for a task that does not lock.
    hold: Option<Hold>,
    is_shared: bool,
    from: u64,
    sight: Arc<Mutex<Sight>>,
    /// When the holder was told that the lock is lost.
    told: Arc<OnceLock<u64>>,
    /// Ends when the holder is told.
    listener: Option<JoinHandle<()>>,
    /// The task that looks at the hold until the end of the watch.
    looks: JoinSet<()>,
}

impl Watch {
    /// Starts to observe a hold. With `hears`, also waits for the news of its loss.
    pub(super) fn new(keys: &[usize], hold: Option<&Hold>, hears: bool) -> Self {
        let from = clock::now();
        let sight = Arc::new(Mutex::new(Sight::new(from)));
        let told = Arc::<OnceLock<u64>>::default();
        let mut looks = JoinSet::new();
        if let Some(hold) = hold {
            looks.spawn(look_on(hold.clone(), Arc::clone(&sight)));
        }
        let watch = Self {
            keys: keys.to_vec(),
            hold: hold.cloned(),
            is_shared: false,
            from,
            sight,
            listener: hold.map(|it| tokio::spawn(listen(it.clone(), Arc::clone(&told), hears))),
            told,
            looks,
        };
        watch.look();
        watch
    }

    /// The same, of a reader's lock.
    pub(super) fn shared(mut self) -> Self {
        self.is_shared = true;
        self
    }

    /// Reports the hold. If it is over, waits for the news of its loss first. The lock must not be released before,
    /// because nobody is told of a loss after the release.
    pub(super) async fn end(mut self) {
        if self.look() {
            return;
        }
        if let Some(mut listener) = self.listener.take() {
            // A stop of the process is one tick, however long it lasts.
            for _ in 0..TICKS {
                if timeout(TICK, &mut listener).await.is_ok() {
                    break;
                }
            }
            listener.abort();
        }
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

/// Reports a token and a loss that the judge must not accept.
fn make_up(report: &mut line::Hold) {
    const LATE: u64 = 5_000_000_000;
    let late = report.valid_until + LATE;
    report.fence = Some(1);
    // Each of the two is made up for some keys.
    report.loss = Some(match report.keys[0] % 2 {
        0 => Loss::Told { at: late },
        _ => Loss::NotTold { by: late },
    });
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
        look(&sight, || hold.remaining());
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
            sight.end(now, self.reason())
        };
        self.looks.abort_all();
        if let Some(listener) = &self.listener {
            listener.abort();
        }
        let told = self.told.get().map(|at| Loss::Told { at: *at });
        let mut report = line::Hold {
            keys: self.keys.clone(),
            from: self.from,
            until,
            valid_until: sight.valid_until,
            loss: told.or((!is_held).then_some(Loss::NotTold { by: now })),
            fence: None,
            is_shared: self.is_shared,
        };
        match &self.hold {
            Some(hold) => report.fence = hold.fencing_token().map(FencingToken::get),
            None => make_up(&mut report),
        }
        journal::tell(&Line::Hold(report));
    }
}
