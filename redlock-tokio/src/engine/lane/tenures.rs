use std::future::pending;

use redlock_core::Tenure;
use tokio::sync::watch;

/// A lane's view of the server that the authority of its node has confirmed last.
pub(super) struct Tenures(watch::Receiver<Option<Tenure>>);

impl Tenures {
    pub(super) const fn new(reported: watch::Receiver<Option<Tenure>>) -> Self {
        Self(reported)
    }

    /// Waits until any server is confirmed.
    pub(super) async fn first(&mut self) -> Tenure {
        loop {
            let current = self.0.borrow_and_update().clone();
            match current {
                Some(tenure) => return tenure,
                None => self.reported().await,
            }
        }
    }

    /// Waits until another tenure than this one is confirmed.
    pub(super) async fn other_than(&mut self, tenure: &Tenure) {
        while self.is_current(tenure) {
            self.reported().await;
        }
    }

    /// Waits for the next report of any member. The tenure may be the same as before.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no report.
    pub(super) async fn reported(&mut self) {
        // Without the authority there will be no report.
        if self.0.changed().await.is_err() {
            pending::<()>().await;
        }
    }

    /// Returns the tenure that was confirmed last.
    pub(super) fn current(&self) -> Option<Tenure> {
        self.0.borrow().clone()
    }

    /// Returns whether this tenure was the last that was confirmed.
    pub(super) fn is_current(&self, tenure: &Tenure) -> bool {
        self.0.borrow().as_ref() == Some(tenure)
    }
}
