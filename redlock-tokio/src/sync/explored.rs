//! Tokio's notifications and channels, with a point before each use where another thread may run.
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

pub(crate) mod mpsc {
    use std::fmt;

    pub(crate) use tokio::sync::mpsc::UnboundedReceiver;
    use tokio::sync::mpsc::{self, error::SendError};

    use super::Point;

    pub(crate) struct UnboundedSender<T> {
        point: Point,
        sender: mpsc::UnboundedSender<T>,
    }

    impl<T> UnboundedSender<T> {
        pub(crate) fn send(&self, message: T) -> Result<(), SendError<T>> {
            self.point.pass();
            self.sender.send(message)
        }

        pub(crate) fn is_closed(&self) -> bool {
            self.point.pass();
            self.sender.is_closed()
        }
    }

    // As in tokio, whatever the messages are.
    impl<T> fmt::Debug for UnboundedSender<T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.sender.fmt(f)
        }
    }

    pub(crate) fn unbounded_channel<T>() -> (UnboundedSender<T>, UnboundedReceiver<T>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let point = Point::default();
        (UnboundedSender { point, sender }, receiver)
    }
}
