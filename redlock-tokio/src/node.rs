//! The seam between the lock and what stores its keys.

mod freed;
mod memory;
mod redis;
mod server_info;

use std::{fmt, future::pending, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use redlock_core::{FencingToken, Operation, Reply, Timestamp, Token};
use thiserror::Error;

pub use self::{
    freed::Freed,
    memory::MemoryNode,
    redis::{RedisNode, UrlError},
    server_info::{Server, ServerInfo},
};

use crate::{Key, key_set::KeySet};

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

    /// Takes where to tell that a key is gone that was [looked at](Operation::Look). Called once for
    /// each session. A session that cannot tell ignores it, as by default; whoever waits then looks
    /// again now and then.
    fn watch(&mut self, freed: Freed) {
        let _ = freed;
    }

    /// Resolves when the session is found to be broken while nothing is asked of it, so that the
    /// next request need not find out. Called once for each session. Pending for ever by default.
    fn closed(&mut self) -> BoxFuture<'static, NodeError> {
        pending().boxed()
    }
}

/// What a node is asked to do with a key.
///
/// Cheap to clone: all nodes that are asked share it.
#[derive(Clone)]
pub struct Command(Arc<Content>);

struct Content {
    keys: KeySet,
    operation: Operation,
    token: [u8; Token::LEN],
}

impl Command {
    /// Creates a command.
    #[must_use]
    pub fn new(key: Key, operation: Operation) -> Self {
        Self::for_all(key.into(), operation)
    }

    /// Creates a command for several keys at once, which is carried out for all of them or for none.
    pub(crate) fn for_all(keys: KeySet, operation: Operation) -> Self {
        Self(Arc::new(Content {
            keys,
            operation,
            token: operation.token().to_ascii(),
        }))
    }

    /// Returns the key; the first of them, if the lock has several.
    #[must_use]
    pub fn key(&self) -> &Key {
        self.0.keys.first()
    }

    /// Returns all keys. What is asked must be done to all of them, or to none.
    pub fn keys(&self) -> impl Iterator<Item = &Key> + Clone {
        self.0.keys.iter()
    }

    /// Returns how many keys there are.
    #[must_use]
    pub fn key_count(&self) -> usize {
        self.0.keys.count()
    }

    /// Returns whether there is more than one key.
    pub(crate) fn has_several_keys(&self) -> bool {
        self.0.keys.has_several()
    }

    /// Returns what to do with it.
    #[must_use]
    pub fn operation(&self) -> Operation {
        self.0.operation
    }

    /// Returns the operation's token as it goes over the wire.
    #[must_use]
    pub fn token(&self) -> &[u8] {
        &self.0.token
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command")
            .field("key", self.key())
            .field("operation", &self.operation())
            .finish()
    }
}

/// What a node says to one command.
pub type Answer = Result<Vote, NodeError>;

/// A node's answer to a command that it carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vote {
    /// It did what was asked.
    Granted,
    /// It extended the key, and tells what it had left, which shows whether its clock has jumped or
    /// somebody has changed the key's expiry. [`Granted`](Self::Granted) is as good.
    Extended {
        /// How long the key would have lived without it.
        remaining: Duration,
    },
    /// It did not, because the key is another's, or not ours any more.
    Denied,
    /// It was asked to look, and does not have the key.
    Free,
    /// It was asked to look, and has the key, or one of several.
    Taken {
        /// For how long, unless it is extended or released; for ever if it has no end.
        remaining: Duration,
    },
    /// The key is ours, but its fencing counter is no smaller than the fence, and was left alone.
    Outbid {
        /// The counter.
        counter: FencingToken,
    },
}

/// Why a node gave no vote.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NodeError {
    /// There is no connection, so the command never left.
    #[error("not connected: {0}")]
    Unreachable(Arc<str>),
    /// The node answers, but will not work with this client until somebody changes something: the
    /// credentials, the database, the address. The command never left.
    #[error("misconfigured: {0}")]
    Misconfigured(Arc<str>),
    /// The node is a server that another node's address leads to as well, so it must not vote twice.
    #[error("the same server as {address}: one server must not vote twice")]
    SameServer {
        /// The address of the other node.
        address: Arc<str>,
    },
    /// The node has stopped answering, so the command was not sent.
    #[error("silent since an earlier request")]
    Silent,
    /// The node answers, but more slowly than it is asked, so the command was not sent.
    #[error("overloaded: too many requests wait for it")]
    Overloaded,
    /// The node answered with an error, so it did not carry out the command.
    #[error("{code} {message}")]
    Refused {
        /// The first word of the error, such as `OOM` or `NOPERM`.
        code: Arc<str>,
        /// The rest of it.
        message: Arc<str>,
    },
    /// Something else is where the lock's fencing counter should be. The command was not carried out,
    /// and nothing was changed.
    #[error("`{name}` is not a fencing counter, because it {defect}: delete it or rename it there")]
    NotACounter {
        /// The name of the counter on the node, with other than ASCII characters escaped.
        name: Arc<str>,
        /// What is wrong with what is there.
        defect: CounterDefect,
    },
    /// No answer came in time. The command may have been carried out, or still be.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The connection broke before the answer came. The command may have been carried out.
    #[error("connection lost: {0}")]
    Disconnected(Arc<str>),
    /// The answer makes no sense. The command may have been carried out.
    #[error("unexpected answer: {0}")]
    Unexpected(Arc<str>),
}

/// Why a key is not a fencing counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CounterDefect {
    /// It is a list, a hash or the like.
    #[error("holds no text")]
    OtherType,
    /// Its text is no whole number.
    #[error("is no number")]
    NoNumber,
    /// Its number is beyond [`FencingToken::MAX`].
    #[error("is beyond the largest token")]
    Beyond,
    /// It has a time to live; a counter has none.
    #[error("expires")]
    Expires,
}

impl NodeError {
    /// Returns whether the node is not any more what it was when it was connected to.
    pub(crate) fn is_change_of_role(&self) -> bool {
        match self {
            Self::Refused { code, .. } => matches!(&**code, "READONLY" | "MOVED" | "NOAUTH"),
            _ => false,
        }
    }

    /// Returns whether the node answers, but must not vote until somebody changes something.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Misconfigured(_) | Self::SameServer { .. })
    }

    /// Returns what the error means for a vote.
    pub(crate) fn reply(&self) -> Reply {
        match self {
            Self::Unreachable(_)
            | Self::Misconfigured(_)
            | Self::SameServer { .. }
            | Self::Silent
            | Self::Overloaded
            | Self::Refused { .. }
            | Self::NotACounter { .. } => Reply::Refused,
            Self::TimedOut(_) | Self::Disconnected(_) | Self::Unexpected(_) => Reply::Unknown,
        }
    }
}

/// Returns what an answer that came at `now` is to the algorithm.
pub(crate) fn reply_of(answer: &Answer, now: Timestamp) -> Reply {
    match answer {
        Ok(Vote::Free) => Reply::Free,
        Ok(Vote::Taken { remaining }) => Reply::Taken {
            // The server counts in whole milliseconds, and may drop up to one.
            until: now
                .saturating_add(*remaining)
                .saturating_add(Duration::from_millis(1)),
        },
        Ok(Vote::Granted | Vote::Extended { .. }) => Reply::Granted,
        Ok(Vote::Denied) => Reply::Denied,
        Ok(Vote::Outbid { counter }) => Reply::Outbid { counter: *counter },
        Err(error) => error.reply(),
    }
}
