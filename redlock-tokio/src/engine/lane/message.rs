use tokio::sync::oneshot;

use super::requester::Origin;
use crate::node::Command;

/// What a lane is sent by its handle.
#[derive(Debug)]
pub(super) enum Message<R> {
    /// A command for the node.
    Request(Command, Origin<R>),
    /// Asks the lane to answer when nothing is in flight or owed.
    Drain(oneshot::Sender<()>),
}
