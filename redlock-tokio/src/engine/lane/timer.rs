use std::{pin::Pin, time::Duration};

use tokio::time::{Instant, Sleep, sleep};

/// One timer for many deadlines. It is moved only to an earlier time, so deadlines that keep moving
/// away cost nothing; its owner looks what is due when it fires.
pub(super) struct Timer {
    sleep: Pin<Box<Sleep>>,
    armed: bool,
}

impl Timer {
    pub(super) fn new() -> Self {
        Self {
            sleep: Box::pin(sleep(Duration::ZERO)),
            armed: false,
        }
    }

    /// Lets the timer fire at `due` at the latest.
    pub(super) fn arm_for(&mut self, due: Option<Instant>) {
        if let Some(due) = due
            && (!self.armed || due < self.sleep.deadline())
        {
            self.sleep.as_mut().reset(due);
            self.armed = true;
        }
    }

    /// Waits until the timer fires, for ever if it is not armed. It is not armed afterwards.
    pub(super) async fn fired(&mut self) {
        if !self.armed {
            std::future::pending::<()>().await;
        }
        self.sleep.as_mut().await;
        self.armed = false;
    }
}
