use std::{future::pending, time::Duration};

use futures::{
    FutureExt, TryFutureExt,
    future::{BoxFuture, try_join_all},
};
use redlock_core::Tenure;

use super::{
    Answer, Command, FoundKeys, FreedNotifier, KeyState, LineAnswer, LineRequest, NodeError, Server,
};
use crate::Key;

/// An open conversation with a [`Node`](super::Node): batches of commands in, answers out, in order.
///
/// Only [`execute`](Self::execute) is required. The other methods have defaults for a node that needs no
/// inspection. See [`Node`](super::Node) for an example.
pub trait Session: Send {
    /// Sends a batch, and resolves to one answer for each command, in the same order.
    ///
    /// The next batch may be sent before this one is answered. Batches must reach the node in the
    /// order of the calls, provided that each future is polled once before the next call. Within a
    /// batch, commands with the same [value](Command::value) must be carried out in order: a release
    /// must not overtake its acquisition.
    ///
    /// An operation that the session does not know must be answered with [`NodeError::Refused`].
    ///
    /// If the answer takes longer than [`node_timeout`](crate::RedlockBuilder::node_timeout), locks no longer wait
    /// for it. But the future is kept, because the node may still carry out the batch, and a late answer shows that
    /// the node is back. After about one more second of silence, the session and its futures are dropped together.
    ///
    /// # Errors
    ///
    /// An error means that the fate of every command of the batch is unknown, and that the session is broken. Errors
    /// of the node for a single command belong in the answers.
    fn execute(&mut self, batch: &[Command]) -> BoxFuture<'static, Result<Vec<Answer>, NodeError>>;

    /// Returns the server's description from when the session was opened. By default there is no server, and
    /// the node may vote at once.
    fn server(&self) -> Server {
        Server::None
    }

    /// Returns why the server would refuse commands that every lock needs, if that became known when the
    /// session was opened. The node has no vote then. `None` by default.
    fn refusal(&self) -> Option<NodeError> {
        None
    }

    /// Finds out whether this client may use all keys with this prefix. The [`Redlock`](crate::Redlock) calls this when a
    /// session opens, if its locks have a [prefix](crate::RedlockBuilder::prefix). By default it may.
    ///
    /// # Errors
    ///
    /// [`NodeError::Misconfigured`] if the client may not. The node has no vote then. Any other error means that the
    /// session is broken.
    fn check_prefix(&mut self, prefix: &[u8]) -> BoxFuture<'static, Result<(), NodeError>> {
        let _ = prefix;
        async { Ok(()) }.boxed()
    }

    /// Asks the server to describe itself again. The [`Redlock`](crate::Redlock) calls this about once a second while
    /// the session lasts, unless there is no server. By default the answer is that of [`server`](Self::server).
    ///
    /// A server that was promoted meanwhile, or another one in its place, may lack locks that the first one had. The
    /// `Redlock` then withdraws the node's last votes, and the node has no vote for a while. Answer
    /// [`Server::Withheld`] while a server cannot describe itself.
    ///
    /// # Errors
    ///
    /// An error means that the session is broken. Fail if the server does not answer for a while: otherwise a node that
    /// hangs seems to vote until the next lock is asked for.
    fn inspect(&mut self) -> BoxFuture<'static, Result<Server, NodeError>> {
        let server = self.server();
        async { Ok(server) }.boxed()
    }

    /// Returns a lower bound for the age of the server's [history](super::ServerInfo::replication), or `None` if the age is
    /// unknown (the default). See [`AgeMarker`](redlock_core::AgeMarker).
    ///
    /// The [`Redlock`](crate::Redlock) calls this when a session opens, and then about once an hour, but only if the
    /// history continues an earlier one. The question is about the history that the server had when the session was
    /// opened. If the server is promoted during a session, its new history is measured from the next session of any
    /// client on. Until then clients underestimate its age, which is safe.
    ///
    /// # Errors
    ///
    /// [`NodeError::Refused`] if the server refuses the question. With the code `NOPERM` or `ERR`, the client lacks the
    /// right, and the age counts as unknown. With any other code, such as `CLUSTERDOWN`, the refusal counts as temporary:
    /// a session that was being opened is given up, and the next one asks again. Any other error means that the session
    /// is broken.
    fn history_age(&mut self) -> BoxFuture<'static, Result<Option<Duration>, NodeError>> {
        async { Ok(None) }.boxed()
    }

    /// Returns for how long, at least, the server has been the owner of the node in this tenure, or `None` if that
    /// is unknown (the default). Notes for all clients that the tenure was confirmed. See
    /// [`AgeMarker`](redlock_core::AgeMarker).
    ///
    /// The [`Redlock`](crate::Redlock) calls this when a session opens, and then about once an hour, but only if an
    /// [`Authority`](super::Authority) names the node's master.
    ///
    /// # Errors
    ///
    /// As for [`history_age`](Self::history_age).
    fn tenure_age(
        &mut self,
        tenure: &Tenure,
    ) -> BoxFuture<'static, Result<Option<Duration>, NodeError>> {
        let _ = tenure;
        async { Ok(None) }.boxed()
    }

    /// Returns what the node has for a key, for people to see. [`Redlock::inspect`](crate::Redlock::inspect) calls this. By
    /// default the node does not know the operation.
    ///
    /// # Errors
    ///
    /// Any error is shown beside the node's address. The session stays in use.
    fn look_up(&mut self, key: &Key) -> BoxFuture<'static, Result<KeyState, NodeError>> {
        let _ = key;
        async { Err(NodeError::unknown_operation()) }.boxed()
    }

    /// Returns the same for each of these keys, in this order, without permits. [`Redlock::search`](crate::Redlock::search)
    /// calls this, with up to 128 keys. By default it looks up one after the other.
    ///
    /// # Errors
    ///
    /// As for [`look_up`](Self::look_up).
    fn look_up_locks(
        &mut self,
        keys: &[Key],
    ) -> BoxFuture<'static, Result<Vec<KeyState>, NodeError>> {
        let states: Vec<_> = keys.iter().map(|it| self.look_up(it)).collect();
        let of_lock = |mut state: KeyState| {
            state.permits.clear();
            state
        };
        let states = try_join_all(states).map_ok(move |it| it.into_iter().map(of_lock).collect());
        states.boxed()
    }

    /// Returns some of the keys that begin with this prefix and have a single value, and where to go on. A search begins with
    /// the cursor 0, and each later step has the [cursor](FoundKeys::next) of the step before. A key that lasts as long as the
    /// search is found at least once. [`Redlock::search`](crate::Redlock::search) calls this. By default the node does not
    /// know the operation.
    ///
    /// # Errors
    ///
    /// Any error ends the search at this node, and is shown beside its address. The session stays in use.
    fn search(
        &mut self,
        prefix: &[u8],
        cursor: u64,
    ) -> BoxFuture<'static, Result<FoundKeys, NodeError>> {
        let _ = (prefix, cursor);
        async { Err(NodeError::unknown_operation()) }.boxed()
    }

    /// Carries out requests about the lines of keys, in this order, and resolves to an answer for each. By default the node
    /// has no lines.
    ///
    /// Requests must reach the node in the order of the calls, provided that each future is polled once before the next call.
    ///
    /// # Errors
    ///
    /// With any error the processes that ask go without a line. The session stays in use.
    fn line(
        &mut self,
        requests: &[LineRequest],
    ) -> BoxFuture<'static, Result<Vec<LineAnswer>, NodeError>> {
        let _ = requests;
        async { Err(NodeError::unknown_operation()) }.boxed()
    }

    /// Takes the notifier for [probed](redlock_core::Operation::Probe) keys that are gone. The
    /// [`Redlock`](crate::Redlock) calls this once for each session. A session that cannot detect that a key is gone
    /// ignores the notifier, as by default. The waiters then probe from time to time.
    ///
    /// Returns whether the session will report each probed key that is gone. Waiters probe a key of such sessions
    /// only once in one or two seconds after a while. `false` by default.
    fn watch(&mut self, freed: FreedNotifier) -> bool {
        let _ = freed;
        false
    }

    /// Resolves when the session breaks while it is idle, so that no later request fails because of that. The
    /// [`Redlock`](crate::Redlock) calls this once for each session. Pending for ever by default.
    fn closed(&mut self) -> BoxFuture<'static, NodeError> {
        pending().boxed()
    }
}
