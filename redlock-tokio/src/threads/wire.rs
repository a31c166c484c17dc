//! The way from a lane to its node and back: the node is a task of its own.

use futures::{
    FutureExt,
    future::{BoxFuture, Future},
};
use tokio::sync::{mpsc, oneshot};

use crate::{
    MemoryNode, NodeError,
    node::{Answer, Command, LineAnswer, LineRequest, Node, Session},
};

/// The lane's end of a connection.
pub(super) struct Wire(mpsc::UnboundedSender<Work>);

type Work = Box<dyn FnOnce(&mut dyn Session) -> BoxFuture<'static, ()> + Send>;

type Outcome<T> = BoxFuture<'static, Result<Vec<T>, NodeError>>;

/// Connects to a node. Returns the connection, and what the node does until the connection is closed.
pub(super) fn connect(node: &MemoryNode) -> (Wire, impl Future<Output = ()> + use<>) {
    let session = node.connect().now_or_never();
    let mut session = session.and_then(Result::ok).expect("the node is up");
    let (requests, mut inbox) = mpsc::unbounded_channel::<Work>();
    let serve = async move {
        while let Some(work) = inbox.recv().await {
            work(&mut *session).await;
        }
    };
    (Wire(requests), serve)
}

impl Wire {
    fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&mut dyn Session) -> Outcome<T> + Send + 'static,
    ) -> Outcome<T> {
        let (answer, outcome) = oneshot::channel();
        // An error means that the lane has closed the connection, or that the node has ended.
        let work: Work = Box::new(|session| ask(session).map(|it| _ = answer.send(it)).boxed());
        let _ = self.0.send(work);
        let gone = |_| Err(NodeError::Disconnected("the node has ended".into()));
        async move { outcome.await.unwrap_or_else(gone) }.boxed()
    }
}

impl Session for Wire {
    fn execute(&mut self, batch: &[Command]) -> Outcome<Answer> {
        let batch = batch.to_vec();
        self.ask(move |session| session.execute(&batch))
    }

    fn line(&mut self, requests: &[LineRequest]) -> Outcome<LineAnswer> {
        let requests = requests.to_vec();
        self.ask(move |session| session.line(&requests))
    }
}
