use std::{future::pending, time::Duration};

use futures::FutureExt;
use tokio::time::timeout;

use super::{STEP_LIMIT, Task, admitted, journal};
use crate::{
    Result, bed, clock,
    line::{Line, Wait},
    settings::Breakage,
    support::MS,
};

/// How often a waiter reports that it waits.
const TICK: Duration = Duration::from_millis(250);

impl Task {
    /// Waits for a key, and reports each part of the wait. Mostly holds the key for a moment, and sometimes for longer.
    pub(super) async fn wait(&mut self) -> Result<()> {
        let key = bed::AWAITED.start + self.number;
        let lock = self.redlock.lock(bed::name(key)).ttl(self.ttls()[0]);
        let mut request = lock.wait(STEP_LIMIT.mul_f64(0.8)).into_future().boxed();
        if self.is_broken(Breakage::Idle) && self.order.seed.is_multiple_of(2) {
            request = pending().boxed();
        }
        let [began, from, until] = [clock::now(); 3];
        let mut wait = Wait {
            key,
            began,
            from,
            until,
        };
        let outcome = loop {
            let outcome = timeout(TICK, &mut request).await;
            (wait.from, wait.until) = (wait.until, clock::now());
            // Else the process stood still.
            if wait.until - wait.from < 2 * TICK.as_nanos() as u64 {
                journal::tell(&Line::Waited(wait));
            }
            if *self.stopped.borrow() {
                return Ok(());
            }
            if let Ok(outcome) = outcome {
                break outcome;
            }
        };
        if let Some(guard) = admitted(outcome) {
            let longest = if self.is_one_in(4) { 1500 } else { 200 };
            let pause = MS(self.rng.u64(..longest));
            self.increment(&[key], guard.hold(), pause).await?;
        }
        Ok(())
    }
}
