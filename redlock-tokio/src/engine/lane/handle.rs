use std::sync::{Arc, atomic::Ordering};

use redlock_core::Timestamp;
use tokio::sync::{futures::Notified, mpsc, oneshot};

use super::{counters::Counters, message::Message, requester::Origin, status_board::StatusBoard};
use crate::{NodeStatus, engine::warning::Warning, node::Command};

/// The caller's end of a lane.
#[derive(Debug)]
pub(crate) struct LaneHandle<R> {
    address: Arc<str>,
    inbox: mpsc::UnboundedSender<Message<R>>,
    counters: Arc<Counters>,
    status: Arc<StatusBoard>,
    keys_too_short: Warning,
    keys_too_long: Warning,
}

/// The lane's runtime is gone, and the command with it.
pub(crate) struct LaneClosed;

impl<R> LaneHandle<R> {
    pub(super) fn new(
        address: &str,
        inbox: mpsc::UnboundedSender<Message<R>>,
        counters: Arc<Counters>,
        status: Arc<StatusBoard>,
    ) -> Self {
        Self {
            address: address.into(),
            inbox,
            counters,
            status,
            keys_too_short: Warning::default(),
            keys_too_long: Warning::default(),
        }
    }

    pub(crate) fn send(&self, command: Command, origin: Origin<R>) -> Result<(), LaneClosed> {
        let message = Message::Request(command, origin);
        let is_release = message.is_release();
        if is_release {
            self.counters.queued.fetch_add(1, Ordering::Relaxed);
        }
        self.inbox.send(message).map_err(|_| {
            if is_release {
                self.counters.queued.fetch_sub(1, Ordering::Relaxed);
            }
            LaneClosed
        })
    }

    /// Waits until everything sent so far was answered and every owed release was delivered or
    /// has become pointless.
    pub(crate) async fn drain(&self) {
        let (done, drained) = oneshot::channel();
        if self.inbox.send(Message::Drain(done)).is_ok() {
            // An error means that the lane has ended, and then nothing is left to wait for.
            let _ = drained.await;
        }
    }

    pub(crate) fn address(&self) -> &Arc<str> {
        &self.address
    }

    /// The warning that keys of the node have less time left than they should have.
    pub(crate) fn keys_too_short(&self) -> &Warning {
        &self.keys_too_short
    }

    /// The warning that they have more.
    pub(crate) fn keys_too_long(&self) -> &Warning {
        &self.keys_too_long
    }

    pub(crate) fn status(&self, now: Timestamp) -> NodeStatus {
        self.status.status(&self.address, now)
    }

    /// Resolves when the node's [status](Self::status) has changed, but for what time alone changes.
    pub(crate) fn status_changed(&self) -> Notified<'_> {
        self.status.changed()
    }

    /// Returns whether the lane's runtime is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.inbox.is_closed()
    }

    /// Returns how many releases were not delivered and never will be, or not yet. (Those that wait
    /// behind a request to set their key, which has not left either, are among them.)
    pub(crate) fn undelivered(&self) -> usize {
        self.counters.undelivered()
    }
}
