use std::{fmt, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use redlock_core::{MemberId, MemberReport, Owner, Tenure, Timestamp};

use super::{NodeError, Session};
use crate::Clock;

/// How long a member of an authority is left alone at most.
const LONGEST_INTERVAL: Duration = Duration::from_secs(1);

/// Names the masters of some [nodes](super::Node): the sentinels of a group, or the nodes of a cluster.
///
/// A [`Redlock`](crate::Redlock) passes each report to an [`Electorate`](redlock_core::Electorate), which decides
/// which server is the master, and when its votes count. An authority only asks its members and passes on what
/// they say. Implement the trait to test with members that lag, restart, or disagree.
///
/// No master is confirmed before the first [`Reports::end_roll_call`].
pub trait Authority: Send + Sync + 'static {
    /// Asks each member about once a second, until the future is dropped, and passes on each answer.
    ///
    /// A member that does not answer must not delay the others. [`Reports::interval`] says how often to ask.
    fn watch(&self, reports: Reports) -> BoxFuture<'static, ()>;

    /// Opens a session with the owner of a node. See [`Node::connect`](super::Node::connect).
    ///
    /// # Errors
    ///
    /// As for [`Node::connect`](super::Node::connect).
    fn connect(
        &self,
        index: usize,
        tenure: &Tenure,
    ) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>>;

    /// Returns why no majority names a master of the node at `index`, if the authority knows. `None` by default.
    ///
    /// The [`Redlock`](crate::Redlock) asks while a node has no master. [`NodeError::Misconfigured`] means that
    /// somebody must change something first.
    fn objection(&self, index: usize) -> Option<NodeError> {
        let _ = index;
        None
    }

    /// Returns what messages call a member, such as its address. Its id by default.
    fn name_of(&self, member: MemberId) -> String {
        member.to_string()
    }

    /// Returns what messages call the owner of a node, such as its address. What [`Tenure::owner`] says by default.
    fn name_of_owner(&self, owner: &Owner) -> String {
        owner.to_string()
    }
}

/// The authority that names a node's master.
#[derive(Clone)]
#[non_exhaustive]
pub struct NamedBy {
    /// The authority. Nodes with the same authority share one [watch](Authority::watch).
    pub authority: Arc<dyn Authority>,
    /// The position of the node among those of the authority, from zero.
    pub index: usize,
    /// The kind of the authority.
    pub kind: AuthorityKind,
    /// How many members the authority has at least, whatever they know of each other. One by default. See
    /// [`OwnerRule::with_fewest_members`](redlock_core::OwnerRule::with_fewest_members).
    pub fewest_members: usize,
}

/// The authority that names the master of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthorityKind {
    /// The sentinels of a group.
    Sentinels,
    /// The nodes of a cluster.
    Cluster {
        /// The slot that the node is. See [`NodeKind::ClusterSlot`](redlock_core::NodeKind::ClusterSlot).
        slot: u16,
        /// Whether the node may get its first vote while another slot of the same server votes.
        may_share_server: bool,
    },
}

/// Takes what the members of an [`Authority`] say.
#[derive(Clone)]
pub struct Reports {
    clock: Clock,
    interval: Duration,
    deliver: Arc<dyn Fn(News) + Send + Sync>,
}

/// What an authority passes on.
#[derive(Clone, Debug)]
pub(crate) enum News {
    /// A report on the node at this position.
    Report(usize, MemberReport),
    /// The end of the roll call with this date.
    RollCall(Timestamp),
}

impl AuthorityKind {
    /// Returns what messages call the members of the authority.
    pub(crate) const fn members(self) -> &'static str {
        match self {
            Self::Sentinels => "sentinels",
            Self::Cluster { .. } => "cluster nodes",
        }
    }

    /// Returns the slot that the node is, if it is one.
    pub(crate) const fn slot(self) -> Option<u16> {
        match self {
            Self::Sentinels => None,
            Self::Cluster { slot, .. } => Some(slot),
        }
    }
}

impl NamedBy {
    /// Describes the node at `index` among those of the authority.
    #[must_use]
    pub fn new(authority: Arc<dyn Authority>, index: usize, kind: AuthorityKind) -> Self {
        Self {
            authority,
            index,
            kind,
            fewest_members: 1,
        }
    }

    /// Sets how many members the authority has at least.
    #[must_use]
    pub fn with_fewest_members(self, members: usize) -> Self {
        Self {
            fewest_members: members,
            ..self
        }
    }
}

impl Reports {
    /// Creates reports that go to `deliver`. A confirmation counts for `window`.
    pub(crate) fn new(
        clock: Clock,
        window: Duration,
        deliver: impl Fn(News) + Send + Sync + 'static,
    ) -> Self {
        Self {
            clock,
            // One answer of each member may be lost, and the next one may be slow.
            interval: (window / 3).min(LONGEST_INTERVAL),
            deliver: Arc::new(deliver),
        }
    }

    /// Returns the time for [`MemberReport::asked_at`]. Call this *before* the question leaves.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns how long to wait after one question to a member and before the next: a third of the
    /// [window](crate::RedlockBuilder::confirmation_window), and at most a second.
    #[must_use]
    pub const fn interval(&self) -> Duration {
        self.interval
    }

    /// Passes on what a member says about the node at `index`.
    pub fn deliver(&self, index: usize, report: MemberReport) {
        (self.deliver)(News::Report(index, report));
    }

    /// Says that a roll call is over: each configured address was asked at `asked_at` or later, and its answer was
    /// [delivered](Self::deliver), or it does not answer. A master is first confirmed when this is called. So an
    /// authority calls this again and again, and in time: a roll call whose `asked_at` is one
    /// [window](crate::RedlockBuilder::confirmation_window) ago counts for nothing.
    pub fn end_roll_call(&self, asked_at: Timestamp) {
        (self.deliver)(News::RollCall(asked_at));
    }
}

impl fmt::Debug for NamedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedBy")
            .field("index", &self.index)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Reports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reports").finish_non_exhaustive()
    }
}
