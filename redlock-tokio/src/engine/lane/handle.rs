use std::sync::Arc;

use redlock_core::Timestamp;
use tokio::sync::{futures::Notified, oneshot};

use super::{
    counters::Counters,
    requester::ReplyTo,
    status_board::{Prospect, StatusBoard},
};
use crate::{NodeError, NodeStatus, engine::warning::Warning, node::Command, sync::mpsc};

/// A message to a lane from its handle.
#[derive(Debug)]
pub(super) enum Message {
    /// A command for the node.
    Request(Command, ReplyTo),
    /// Asks the lane to answer when nothing is in flight or owed.
    Drain(oneshot::Sender<()>),
}

/// The end of a lane that callers have.
#[derive(Debug)]
pub(crate) struct LaneHandle {
    address: Arc<str>,
    inbox: mpsc::UnboundedSender<Message>,
    counters: Arc<Counters>,
    status: Arc<StatusBoard>,
    expires_too_early: Warning,
    expires_too_late: Warning,
}

/// The lane's runtime has ended, so the command was not sent.
pub(crate) struct LaneClosed;

impl LaneHandle {
    pub(super) fn new(
        address: &str,
        inbox: mpsc::UnboundedSender<Message>,
        counters: Arc<Counters>,
        status: Arc<StatusBoard>,
    ) -> Self {
        Self {
            address: address.into(),
            inbox,
            counters,
            status,
            expires_too_early: Warning::default(),
            expires_too_late: Warning::default(),
        }
    }

    /// Passes a command to the lane. Never blocks.
    pub(crate) fn send(&self, command: Command, reply_to: ReplyTo) -> Result<(), LaneClosed> {
        self.counters.note_given(&command);
        let sent = self.inbox.send(Message::Request(command, reply_to));
        sent.map_err(|unsent| {
            if let Message::Request(command, _) = unsent.0 {
                self.counters.note_taken(&command);
            }
            LaneClosed
        })
    }

    /// Returns whether more requests wait for the node than it should get while the other nodes are a majority.
    pub(crate) fn is_behind(&self, command: &Command) -> bool {
        self.counters.is_behind(command)
    }

    /// Returns whether more requests wait for the node already than it can carry out soon, so that it should not be
    /// asked for this as well.
    pub(crate) fn is_overloaded(&self, command: &Command) -> bool {
        self.counters.is_too_much(command)
    }

    /// Waits until all earlier requests are answered and the node is owed no release.
    pub(crate) async fn drain(&self) {
        let (done, drained) = oneshot::channel();
        if self.inbox.send(Message::Drain(done)).is_ok() {
            // An error means that the lane has ended, so there is nothing to wait for.
            let _ = drained.await;
        }
    }

    pub(crate) fn address(&self) -> &Arc<str> {
        &self.address
    }

    /// Returns the warning that keys on the node have less time left than they should have.
    pub(crate) fn expires_too_early(&self) -> &Warning {
        &self.expires_too_early
    }

    /// Returns the warning that keys on the node have more time left than they should have.
    pub(crate) fn expires_too_late(&self) -> &Warning {
        &self.expires_too_late
    }

    /// Returns how the node is.
    pub(crate) fn status(&self, now: Timestamp) -> NodeStatus {
        if self.is_closed() {
            self.status.disconnected(now, runtime_ended());
        }
        self.status.status(&self.address, now)
    }

    /// Returns whether the node reports when a probed key is gone.
    pub(crate) fn notifies(&self) -> bool {
        self.status.notifies()
    }

    /// Returns whether the node can vote at `by`. A failure to connect that is not later than `since`
    /// leaves that in doubt.
    pub(crate) fn prospect(&self, now: Timestamp, by: Timestamp, since: Timestamp) -> Prospect {
        self.status.prospect(now, by, since)
    }

    /// Ends the pause before the next attempt to connect, if the last one has failed.
    pub(crate) fn want_connection(&self) {
        self.status.want_connection();
    }

    /// Resolves when the node's [status](Self::status) has changed. A quarantine that ends by itself
    /// is no such change.
    pub(crate) fn status_changed(&self) -> Notified<'_> {
        self.status.changed()
    }

    /// Returns whether the lane's runtime has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.inbox.is_closed()
    }

    /// Returns how many releases were not delivered yet, or never will be. A release counts even if
    /// the request to set its key still waits in the queue before it.
    pub(crate) fn undelivered(&self) -> usize {
        self.counters.undelivered()
    }

    /// Returns how many releases wait for the node to come back.
    #[cfg(feature = "test-util")]
    pub(crate) fn owed(&self) -> usize {
        self.counters.owed()
    }

    /// Returns how many releases are on their way to the node.
    #[cfg(feature = "test-util")]
    pub(crate) fn under_way(&self) -> usize {
        self.counters.under_way()
    }
}

/// Why nothing is sent to the nodes any more.
pub(crate) fn runtime_ended() -> NodeError {
    NodeError::Unreachable("the runtime has shut down".into())
}
