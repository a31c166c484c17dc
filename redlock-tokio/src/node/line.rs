use std::{sync::Arc, time::Duration};

use crate::Key;

/// A process in the lines of keys, by a random number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Member(pub u64);

/// A request about the line of a key: the processes that wait for it, in the order in which they came.
///
/// The line is advice. A node that loses it, or has none, costs order and no safety.
///
/// The node knows which members are alive: those that beat. It counts the seconds of its clock in which it was asked to
/// [`Join`](LineAction::Join) or to [`Beat`](LineAction::Beat), and a member that it has not heard for
/// [`DEAD_AFTER`](Self::DEAD_AFTER) counts is dead. So a node that hung for a while declares nobody dead, and neither does a clock that steps. A member is
/// dead as well if it [listens](Standing::is_called), and nobody hears a call. A death removes the member from all lines at
/// once, and calls those that are the first then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineRequest {
    /// The key that the processes wait for. A [beat](LineAction::Beat) concerns all keys.
    pub key: Key,
    /// Whether the process waits for other keys at the same time. Such processes stand in a line of their own beside the
    /// others: while they wait for one key, they must not keep the other one from anybody.
    ///
    /// Those whose sessions are not called also stand in lines of their own, since they are slower than others.
    pub of_several: bool,
    /// What to do.
    pub action: LineAction,
    /// The name of the client, which [`KeyState::waiting`](super::KeyState::waiting) shows.
    pub client_name: Option<Arc<str>>,
}

/// What a process asks of the node of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineAction {
    /// Takes a place, unless the member has one. The answer is [`LineAnswer::Standing`], except for a place that is wanted
    /// only behind others. Removes members that are dead from the head of the line first. A line is forgotten
    /// [`LineRequest::LIFETIME`] after the last of these.
    Join {
        /// The process that asks.
        member: Member,
        /// How many of the line may try at a time.
        active: u32,
        /// The number of the place: those with smaller ones stand before it. Without one, the place is at the end.
        number: Option<u64>,
        /// Takes a place only behind others. The answer is [`LineAnswer::Waiting`] with zero if nobody stands in the line.
        only_behind_others: bool,
    },
    /// Gives the place up, and then does the same as [`Call`](Self::Call).
    Leave {
        /// The process that asks.
        member: Member,
        /// As for [`Join`](Self::Join).
        active: u32,
        /// Whether it has got the lock. Its release will be a [`Call`](Self::Call).
        is_taken: bool,
    },
    /// Stands in front of the line of those that are called and wait for this key alone, so that they do not try. The answer is
    /// as for [`Join`](Self::Join).
    Keep {
        /// The process that asks.
        member: Member,
        /// As for [`Join`](Self::Join).
        active: u32,
    },
    /// Ends a [`Keep`](Self::Keep), and then does the same as [`Call`](Self::Call).
    LetGo {
        /// The process that asks.
        member: Member,
        /// As for [`Join`](Self::Join).
        active: u32,
    },
    /// Calls the first of the line, and the last of those that may try. A member whose call nobody hears is dead, and the next is
    /// called.
    /// The answer is [`LineAnswer::Done`].
    Call {
        /// As for [`Join`](Self::Join).
        active: u32,
    },
    /// Says that the process is alive. The answer is [`LineAnswer::Alive`].
    Beat {
        /// The process.
        member: Member,
        /// Gives up all places instead.
        leaves_all: bool,
    },
    /// Asks how many wait, in all lines of the key. The answer is [`LineAnswer::Waiting`].
    Count,
}

/// The answer of a node to a [`LineRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineAnswer {
    /// The place of a process.
    Standing(Standing),
    /// It is done.
    Done,
    /// The node has refused the request.
    Refused,
    /// So many processes wait.
    Waiting(u32),
    /// The node counts the process as alive.
    Alive {
        /// The life of the process, or `None` if it has no places.
        life: Option<u64>,
        /// Not all places of the dead are removed yet. Another beat goes on with that.
        has_more: bool,
    },
}

/// The place of a process in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Standing {
    /// How many stand before it.
    pub ahead: u32,
    /// The number of the place.
    pub number: u64,
    /// The life of the process: another number after each death. A place of another life is gone.
    pub life: u64,
    /// Whether the session reports a call by [`FreedNotifier::called`](super::FreedNotifier::called).
    pub is_called: bool,
}

impl LineRequest {
    /// How long a line is kept for which nobody asks.
    pub const LIFETIME: Duration = Duration::from_secs(3600);

    /// A member is dead if its last beat is this many counts old.
    pub const DEAD_AFTER: u64 = 3;

    /// How often a process beats at a node where it has places.
    pub const BEAT: Duration = Duration::from_secs(1);
}
