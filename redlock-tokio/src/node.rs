//! The types that an implementation of a [`Node`] needs: a master that stores keys, and the sessions with it.
//!
//! Users of locks need none of this.

mod authority;
mod command;
pub(crate) mod durability;
pub(crate) mod error;
mod freed_notifier;
mod holder;
mod key_state;
mod line;
pub(crate) mod memory;
pub(crate) mod redis;
pub(crate) mod report;
pub(crate) mod server_info;
mod session;
pub(crate) mod status;

use futures::future::BoxFuture;

pub use redlock_core::{
    Access, MemberId, MemberReport, Operation, Origin, Replication, ReplicationId, RunId, Slot,
    SlotSet, Tenure,
};

pub(crate) use self::{
    authority::News,
    command::reply_of,
    error::{CounterDefect, NodeError, SHARED_SERVER},
    server_info::{Role, ServerInfo},
};
pub use self::{
    authority::{Authority, AuthorityKind, NamedBy, Reports},
    command::{Answer, Command, Vote},
    freed_notifier::{FreedNotifier, Notice},
    holder::Holder,
    key_state::{FoundKeys, KeyState, Occupant},
    line::{LineAction, LineAnswer, LineRequest, Member, Standing},
    redis::RedisNode,
    server_info::Server,
    session::Session,
};

/// One of the independent masters that vote on who holds a lock.
///
/// This crate has two: `RedisNode` and [`MemoryNode`](crate::MemoryNode). Implement the trait to test against masters
/// with faults of your own, or to store keys elsewhere.
///
/// A [`Redlock`](crate::Redlock) keeps one [`Session`] with each node, and opens another when that one breaks.
///
/// # Examples
///
/// A node in front of another that refuses every other batch:
///
/// ```
/// use futures::{FutureExt, future::{BoxFuture, ready}};
/// use redlock_tokio::{
///     MemoryNode, NodeError, Redlock,
///     node::{Answer, Command, Node, Session},
/// };
///
/// struct Moody(MemoryNode);
///
/// impl Node for Moody {
///     fn address(&self) -> &str {
///         self.0.address()
///     }
///
///     fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
///         async {
///             let session = self.0.connect().await?;
///             let session = MoodySession { session, batches: 0 };
///             Ok(Box::new(session) as Box<dyn Session>)
///         }
///         .boxed()
///     }
/// }
///
/// struct MoodySession {
///     session: Box<dyn Session>,
///     batches: u32,
/// }
///
/// impl Session for MoodySession {
///     fn execute(
///         &mut self,
///         batch: &[Command],
///     ) -> BoxFuture<'static, Result<Vec<Answer>, NodeError>> {
///         self.batches += 1;
///         if self.batches % 2 == 1 {
///             return self.session.execute(batch);
///         }
///         let refusal = NodeError::Refused {
///             code: "BUSY".into(),
///             message: "not in the mood".into(),
///         };
///         let answers = batch.iter().map(|_| Err(refusal.clone())).collect();
///         ready(Ok(answers)).boxed()
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let nodes = (0..3).map(|_| Moody(MemoryNode::new()));
/// let redlock = Redlock::builder().custom_nodes(nodes).build().await?;
/// let guard = redlock.lock("order:42").await?;
/// assert!(guard.is_valid());
/// # Ok(())
/// # }
/// ```
pub trait Node: Send + Sync + 'static {
    /// Returns the node's name in errors and logs. Must not contain secrets.
    fn address(&self) -> &str;

    /// Opens a session.
    ///
    /// May take any time: requests to this node fail at once until there is a session. The
    /// [`Redlock`](crate::Redlock) gives up after [`connect_timeout`](crate::RedlockBuilder::connect_timeout) and
    /// drops the future.
    ///
    /// # Errors
    ///
    /// [`NodeError::Misconfigured`] if the node is there but somebody must change something first. Any other error
    /// means that the node is not there now. The `Redlock` tries again in both cases, with increasing pauses.
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>>;

    /// Returns why [`connect`](Self::connect) takes too long, if the node knows. `None` by default.
    ///
    /// The [`Redlock`](crate::Redlock) asks when it has given up.
    fn objection(&self) -> Option<NodeError> {
        None
    }

    /// Returns the authority that names the node's master. `None` by default: the node has one address.
    ///
    /// The [`Redlock`](crate::Redlock) then opens sessions by [`Authority::connect`], and not by
    /// [`connect`](Self::connect). It asks for the authority once, when it is built.
    fn named_by(&self) -> Option<NamedBy> {
        None
    }
}
