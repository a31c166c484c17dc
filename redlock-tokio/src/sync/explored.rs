//! Tokio's notifications, with a point before each use where another thread may run.
//!
//! Tokio's own code runs as one step between two points. It never blocks, and it wakes tasks when its own locks are
//! free.

use shuttle::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::futures::Notified;

/// Lets shuttle decide which thread goes on.
#[derive(Debug, Default)]
struct Point(AtomicBool);

impl Point {
    fn pass(&self) {
        self.0.load(Ordering::SeqCst);
    }
}

#[derive(Debug, Default)]
pub(crate) struct Notify {
    point: Point,
    notify: tokio::sync::Notify,
}

impl Notify {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn notified(&self) -> Notified<'_> {
        self.point.pass();
        self.notify.notified()
    }

    pub(crate) fn notify_one(&self) {
        self.point.pass();
        self.notify.notify_one();
    }

    pub(crate) fn notify_waiters(&self) {
        self.point.pass();
        self.notify.notify_waiters();
    }
}
