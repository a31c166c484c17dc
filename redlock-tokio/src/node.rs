//! The seam between the lock and what stores its keys.

mod command;
mod error;
mod freed_notifier;
mod memory;
mod redis;
mod report;
mod server_info;
pub(crate) mod status;

use std::{future::pending, time::Duration};

use futures::{FutureExt, future::BoxFuture};

pub(crate) use self::command::reply_of;
pub use self::{
    command::{Answer, Command, Vote},
    error::{CounterDefect, NodeError},
    freed_notifier::FreedNotifier,
    memory::MemoryNode,
    redis::{RedisNode, UrlError},
    report::{NodeReport, NodeReports, Objection},
    server_info::{Server, ServerInfo},
    status::{NodeState, NodeStatus},
};

/// One of the independent masters that vote on who holds a lock.
///
/// Two ship with this crate: [`RedisNode`] and [`MemoryNode`]. Implement it to test against
/// masters that misbehave in ways of your own.
///
/// A lock keeps one [`Session`] with each node, and asks for another when that one breaks.
pub trait Node: Send + Sync + 'static {
    /// Returns what errors and logs call this node. Must not contain secrets.
    fn address(&self) -> &str;

    /// Opens a session.
    ///
    /// May take as long as it likes: nobody waits for it but the node's own lane, which gives up
    /// after a while by dropping the future.
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>>;
}

/// An open conversation with a [`Node`]: batches of commands in, answers out, in order.
pub trait Session: Send {
    /// Sends a batch, and resolves to one answer for each command, in the same order.
    ///
    /// The next batch may be sent before this one is answered. Batches must reach the node in the
    /// order of the calls, provided that each future is polled once before the next call. Within a
    /// batch, commands with the same [token](Command::token) must be carried out in order: a release
    /// must not overtake its acquisition.
    ///
    /// # Errors
    ///
    /// An error means that nobody knows what became of any command of the batch, and that the
    /// session is broken. What the node itself says about a single command, errors included,
    /// belongs into the answers.
    fn execute(&mut self, batch: &[Command]) -> BoxFuture<'static, Result<Vec<Answer>, NodeError>>;

    /// Returns what is known of the server, as of when the session was opened. Nothing by default,
    /// and then it may vote.
    fn server(&self) -> Server {
        Server::None
    }

    /// Returns why the server would not do what every lock needs, if that was found out when the session
    /// was opened. The node has no vote then. `None` by default.
    fn refusal(&self) -> Option<NodeError> {
        None
    }

    /// Asks the server what it is now. Called about once a second while the session lasts, unless there
    /// is no server. By default what [`server`](Self::server) returns by then.
    ///
    /// A server that was promoted meanwhile, or another one in its place, may not know of locks that
    /// the first one knew. Its last votes are taken back then, and it has none for a while. While a
    /// server cannot say what it is, answer [`Server::Withheld`].
    ///
    /// # Errors
    ///
    /// An error means that the session is broken.
    fn inspect(&mut self) -> BoxFuture<'static, Result<Server, NodeError>> {
        let server = self.server();
        async { Ok(server) }.boxed()
    }

    /// Returns for how long the server's [history](ServerInfo::replication) exists at least, or `None`
    /// if that is not known, as by default. Called for a server that has continued another history,
    /// when the session was opened and about once an hour: see
    /// [`HistoryMarker`](redlock_core::HistoryMarker).
    ///
    /// # Errors
    ///
    /// [`NodeError::Refused`] if the server does not allow to find out; anything else means that the
    /// session is broken.
    fn history_age(&mut self) -> BoxFuture<'static, Result<Option<Duration>, NodeError>> {
        async { Ok(None) }.boxed()
    }

    /// Takes where to tell that a key is gone that was [looked at](crate::Operation::Probe). Called once for
    /// each session. A session that cannot tell ignores it, as by default; whoever waits then looks
    /// again now and then.
    fn watch(&mut self, freed: FreedNotifier) {
        let _ = freed;
    }

    /// Resolves when the session is found to be broken while nothing is asked of it, so that the
    /// next request need not find out. Called once for each session. Pending for ever by default.
    fn closed(&mut self) -> BoxFuture<'static, NodeError> {
        pending().boxed()
    }
}
