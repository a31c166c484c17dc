//! The way from a lane to its node and back: the node is a task of its own.

use futures::{
    FutureExt,
    future::{BoxFuture, Future},
};
use tokio::sync::{mpsc, oneshot};

use crate::{
    MemoryNode, NodeError,
    node::{Answer, Command, FreedNotifier, LineAnswer, LineRequest, Node, Session},
};

/// The lane's end of a connection.
#[derive(Debug)]
pub(super) struct Wire {
    requests: mpsc::UnboundedSender<Message>,
}

#[derive(Debug)]
enum Message {
    Batch(Vec<Command>, oneshot::Sender<Outcome<Answer>>),
    Line(Vec<LineRequest>, oneshot::Sender<Outcome<LineAnswer>>),
    Watch(FreedNotifier),
}

type Outcome<T> = Result<Vec<T>, NodeError>;

/// Connects to a node. Returns the connection, and what the node does until the connection is closed.
pub(super) fn connect(node: &MemoryNode) -> (Wire, impl Future<Output = ()> + use<>) {
    let session = node.connect().now_or_never();
    let session = session.and_then(Result::ok).expect("the node is up");
    let (requests, inbox) = mpsc::unbounded_channel();
    (Wire { requests }, serve(session, inbox))
}

async fn serve(mut session: Box<dyn Session>, mut inbox: mpsc::UnboundedReceiver<Message>) {
    while let Some(message) = inbox.recv().await {
        match message {
            Message::Batch(batch, answer) => {
                let outcome = session.execute(&batch).await;
                // An error means that the lane has closed the connection.
                let _ = answer.send(outcome);
            }
            Message::Line(requests, answer) => {
                let outcome = session.line(&requests).await;
                let _ = answer.send(outcome);
            }
            Message::Watch(freed) => drop(session.watch(freed)),
        }
    }
}

impl Wire {
    /// Sends what the node is asked, with the sender of the answer.
    fn ask<T: Send + 'static>(
        &self,
        message: impl FnOnce(oneshot::Sender<Outcome<T>>) -> Message,
    ) -> BoxFuture<'static, Outcome<T>> {
        let (answer, outcome) = oneshot::channel();
        let sent = self.requests.send(message(answer));
        async move {
            let gone = || NodeError::Disconnected("the node has ended".into());
            sent.map_err(|_| gone())?;
            outcome.await.map_err(|_| gone())?
        }
        .boxed()
    }
}

impl Session for Wire {
    fn execute(&mut self, batch: &[Command]) -> BoxFuture<'static, Outcome<Answer>> {
        self.ask(|answer| Message::Batch(batch.to_vec(), answer))
    }

    fn line(&mut self, requests: &[LineRequest]) -> BoxFuture<'static, Outcome<LineAnswer>> {
        self.ask(|answer| Message::Line(requests.to_vec(), answer))
    }

    fn watch(&mut self, freed: FreedNotifier) -> bool {
        // An error means that the node has ended.
        self.requests.send(Message::Watch(freed)).is_ok()
    }
}
