use std::{sync::atomic, time::Duration};

use redlock_core::Timestamp;
use tokio::sync::Notify;

/// A clock that moves only when a scenario says so. Reading it is no point where another thread may run.
#[derive(Debug, Default)]
pub(crate) struct Time {
    nanos: atomic::AtomicU64,
    advanced: Notify,
}

/// Not zero, so that subtracting a little from the time makes a difference.
const START: Duration = Duration::from_secs(1000);

impl Time {
    pub(crate) fn now(&self) -> Timestamp {
        let nanos = self.nanos.load(atomic::Ordering::SeqCst);
        Timestamp::from_nanos(nanos).saturating_add(START)
    }

    pub(super) fn advance(&self, by: Duration) {
        let nanos = u64::try_from(by.as_nanos()).expect("a short time");
        self.nanos.fetch_add(nanos, atomic::Ordering::SeqCst);
        self.advanced.notify_waiters();
    }

    pub(crate) async fn sleep_until(&self, until: Timestamp) {
        loop {
            let advanced = self.advanced.notified();
            if until <= self.now() {
                return;
            }
            advanced.await;
        }
    }
}
