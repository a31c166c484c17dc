//! The time after the faults, in which nothing may fail and every user must be served.

use std::{collections::BTreeSet, time::Duration};

use crate::{clock::SECOND, requests::Keys, scale::Scale};

/// How long a user keeps a lock after the faults, on average at the most. Short, so that many users are served soon.
pub(crate) const CALM_WORK: Duration = Duration::from_millis(50);

/// Returns how long after the end of the faults everything is mended.
///
/// The longest fault lasts for four ttls: four times the mean of its length. A server that starts again after two has
/// no vote for one more, and a little longer, by the seconds that servers count. A key that nobody releases lives for
/// one ttl. A lock that nobody gives back lives for `max_hold`, which is two, and one more. Lost connections take some
/// seconds.
pub(crate) fn settling(scale: &Scale) -> u64 {
    4 * scale.max_ttl.as_nanos() as u64 + 10 * SECOND
}

/// Returns how long it takes at most until each user has got a lock in quiet times.
///
/// Each user keeps a lock for ten times its usual work at most. In one process, all others of the process may be served
/// before. The order between processes may be lost for a while, so a process has eight times the streaks of all others.
/// Most requests are such that they need not be served, so a user thinks ten times before it makes one that must be, and
/// that for each kind of lock.
pub(crate) fn service(scale: &Scale) -> u64 {
    let users = scale.processes as u64 * (scale.users as u64 + 2);
    let hold = 10 * CALM_WORK.as_nanos() as u64;
    let thoughts = 40 * KINDS.len() as u64 * scale.think.as_nanos() as u64;
    8 * users * hold + thoughts
}

/// The kinds of locks with which each user must be served.
pub(crate) const KINDS: [Keys; 3] = [Keys::Shared, Keys::Read, Keys::Write];

/// A user, by its process and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct UserId {
    pub(crate) process: usize,
    pub(crate) user: usize,
}

/// From when on the world is quiet, and who is still to be served.
#[derive(Default)]
pub(crate) struct Quiet {
    /// In true time. `None` before the end of the faults.
    from: Option<u64>,
    /// The users that have not got a lock of each kind since the quiet began.
    pub(crate) unserved: BTreeSet<(UserId, Keys)>,
}

impl Quiet {
    /// Lets the quiet begin at this time.
    pub(crate) fn begin(&mut self, from: u64) {
        self.from = Some(from);
    }

    /// Returns whether the world is quiet since this time at least.
    pub(crate) fn since(&self, at: u64) -> bool {
        self.from.is_some_and(|from| at >= from)
    }

    pub(crate) fn arrive(&mut self, user: UserId) {
        self.unserved.extend(KINDS.map(|kind| (user, kind)));
    }

    /// Notes that a user has got a lock of this kind at this time.
    pub(crate) fn serve(&mut self, user: UserId, kind: Keys, at: u64) {
        if self.since(at) {
            self.unserved.remove(&(user, kind));
        }
    }
}
