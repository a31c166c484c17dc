use std::{sync::Arc, time::Duration};

use crate::Key;

/// A process in the line of a key, by a random number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Member(pub u64);

/// A request about the line of a key: the processes that wait for it, in the order in which they came.
///
/// The line is advice. A node that loses it, or has none, costs order and no safety.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineRequest {
    /// The key that the processes wait for.
    pub key: Key,
    /// What to do.
    pub action: LineAction,
    /// The name of the client, which [`KeyState::waiting`](super::KeyState::waiting) shows.
    pub client_name: Option<Arc<str>>,
}

/// What a process asks of the node of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineAction {
    /// Takes a place at the end, unless the member has one. The answer is [`LineAnswer::Standing`], but for a place that is
    /// wanted only behind others. A place is forgotten [`LineRequest::LIFETIME`] after the last of these.
    Join {
        /// The process that asks.
        member: Member,
        /// How many of the line may try at a time.
        active: u32,
        /// A member that loses its place first, if it is the first of the line.
        evicts: Option<Member>,
        /// Takes a place only behind others. The answer is [`LineAnswer::Waiting`] with zero if nobody stands in the line.
        only_behind_others: bool,
    },
    /// Gives the place up. Calls the process that is the first because of that, and the one that is among the first `active`
    /// because of that. The answer is [`LineAnswer::Left`].
    Leave {
        /// The process that asks.
        member: Member,
        /// As for [`Join`](Self::Join).
        active: u32,
    },
    /// Asks how many stand in the line. The answer is [`LineAnswer::Waiting`].
    Count,
}

/// The answer of a node to a [`LineRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineAnswer {
    /// The place of a process.
    Standing {
        /// How many stand before it.
        ahead: u32,
        /// The first of the line.
        first: Member,
        /// Whether the session reports a call by [`FreedNotifier::called`](super::FreedNotifier::called).
        is_called: bool,
    },
    /// The place is given up.
    Left,
    /// So many processes wait.
    Waiting(u32),
}

impl LineRequest {
    /// How long a place is kept for which nobody asks. A process that waits asks for its place more often.
    pub const LIFETIME: Duration = Duration::from_secs(25);
}
