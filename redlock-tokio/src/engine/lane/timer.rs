use std::{pin::Pin, time::Duration};

use tokio::time::{Instant, Sleep, sleep};

/// One timer for many deadlines.
///
/// The timer is moved only to an earlier time, so deadlines that move to a later time cost nothing.
/// When it fires, its owner checks which deadlines have passed.
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

    /// Makes the timer fire at `due` or earlier.
    pub(super) fn arm_for(&mut self, due: Option<Instant>) {
        if let Some(due) = due
            && (!self.armed || due < self.sleep.deadline())
        {
            self.sleep.as_mut().reset(due);
            self.armed = true;
        }
    }

    /// Waits until the timer fires, and disarms it. Pending for ever if the timer is not armed.
    pub(super) async fn fired(&mut self) {
        if !self.armed {
            std::future::pending::<()>().await;
        }
        self.sleep.as_mut().await;
        self.armed = false;
    }
}
