//! The state of a world with an authority.

use std::{collections::BTreeMap, time::Duration};

use redlock_core::{Electorate, Lease, MemberId, MemberReport, NodeId, Owner, Tenure, Timestamp};

use crate::world::{Master, Message, Phase};

/// One tick is a millisecond, the smallest unit of a ttl.
pub(super) const TICK: Duration = Duration::from_millis(1);

/// What is older than a world is so old.
pub(super) const LONG: Duration = Duration::from_millis(40);

/// Everything that can change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OwnerWorld {
    /// True time, in ticks.
    pub(super) now: u8,
    pub(super) servers: Vec<Server>,
    pub(super) members: Vec<Member>,
    pub(super) clients: Vec<Client>,
    /// What may still go wrong.
    pub(super) faults: Faults,
}

/// How often each fault may still happen in the whole world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Faults {
    /// A member makes a server the owner that lacks the keys.
    pub(super) failovers: u8,
    /// The second member restarts, and tells no age from before.
    pub(super) restarts: u8,
    /// The first member is set up anew, with the first owner, and knows no other member.
    pub(super) renewals: u8,
    /// A member goes back to the first owner, as from a backup.
    pub(super) returns: u8,
    /// Answers of members to the first client that come when they like, in any order.
    pub(super) late_answers: u8,
    /// A SET of the first client that arrives when it likes.
    pub(super) late_sets: u8,
    /// A tick that a client's clock misses.
    pub(super) stalls: u8,
    /// A client that is not modelled has a confirmation, and writes a marker.
    pub(super) marks: u8,
}

/// The owner by a member's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Reign {
    pub(super) epoch: u8,
    pub(super) owner: usize,
}

/// A set of members, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Members(u8);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Server {
    pub(super) master: Master,
    /// It is a replica, where failovers keep the keys.
    pub(super) is_deposed: bool,
    /// When each marker was written.
    pub(super) markers: BTreeMap<String, u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Member {
    pub(super) reign: Reign,
    /// Since when it knows that; `None` for ever.
    pub(super) since: Option<u8>,
    /// It was set up anew, and knows no other.
    pub(super) is_alone: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Client {
    pub(super) electorate: Electorate,
    pub(super) lease: Lease,
    pub(super) phase: Phase,
    /// How far its clock is behind.
    pub(super) lag: u8,
    /// The server that it is connected to.
    pub(super) server: Option<usize>,
    /// Whether it has asked members in this tick.
    pub(super) has_polled: bool,
    /// Answers that are late, and the members that gave them.
    pub(super) late_answers: Vec<(usize, MemberReport)>,
    /// The roll call of a client without an owner, since it has asked last.
    pub(super) roll_call: Option<RollCall>,
    /// A SET that is late, and the server that it is for.
    pub(super) late_set: Option<(usize, Message)>,
    pub(super) seen: Seen,
}

/// The members on a client's list that it has not heard, since it has asked at this time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RollCall {
    pub(super) asked_at: Timestamp,
    pub(super) unheard: Vec<usize>,
}

/// What has happened to a client that its state does not show any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Seen {
    /// It connected to an owner that a member had left already.
    pub(super) old_owner: bool,
    /// A grant did not count, because the owner was not confirmed any more.
    pub(super) expired: bool,
    /// A grant did not count, because the owner had not been confirmed for long enough.
    pub(super) settling: bool,
    /// Its lock was extended when a member had turned to another owner.
    pub(super) extended: bool,
    /// A marker showed that the owner had been confirmed before the client heard of it.
    pub(super) marked: bool,
}

impl OwnerWorld {
    /// What a client's clock shows.
    pub(super) fn local(&self, client: usize) -> Timestamp {
        ticks(self.now - self.clients[client].lag)
    }

    /// Whether a client would say that it holds the lock.
    pub(super) fn is_valid(&self, client: usize) -> bool {
        let lease = &self.clients[client].lease;
        lease.valid_until(self.local(client)).is_some()
    }

    pub(super) fn holders(&self) -> usize {
        let clients = 0..self.clients.len();
        clients.filter(|&client| self.is_valid(client)).count()
    }
}

impl Members {
    /// All sets of one of these sizes of these members.
    pub(super) fn sets_of(sizes: &[usize], members: &[usize]) -> impl Iterator<Item = Self> {
        let among = members.iter().fold(0, |set, member| set | 1 << member);
        let sets = (1..=u8::MAX).map(Self);
        sets.filter(move |it| it.0 & !among == 0 && sizes.contains(&(it.0.count_ones() as usize)))
    }

    pub(super) fn iter(self) -> impl Iterator<Item = usize> {
        (0..8).filter(move |member| self.0 >> member & 1 == 1)
    }
}

impl Reign {
    /// The owner of every member at first.
    pub(super) const FIRST: Self = Self { epoch: 1, owner: 0 };

    pub(super) fn tenure(self) -> Tenure {
        Tenure {
            owner: Owner::new(server_name(self.owner)),
            epoch: self.epoch.into(),
        }
    }

    pub(super) fn of(tenure: &Tenure) -> Self {
        let is_owner = |it: &usize| server_name(*it) == tenure.owner.as_str();
        Self {
            epoch: u8::try_from(tenure.epoch).expect("a few failovers"),
            owner: (0..3).find(is_owner).expect("a server of this world"),
        }
    }

    /// What a member says, if each of its epochs is the first.
    pub(super) fn anew(self) -> Self {
        Self {
            epoch: Self::FIRST.epoch,
            ..self
        }
    }
}

pub(super) const fn server_name(server: usize) -> &'static str {
    ["M", "R", "S"][server]
}

pub(super) fn ticks(ticks: u8) -> Timestamp {
    Timestamp::ZERO
        .saturating_add(LONG)
        .saturating_add(TICK * ticks.into())
}

/// The one node.
pub(super) fn node() -> NodeId {
    NodeId::new(0).expect("the first node")
}

/// The id of a member. One that was set up anew has another.
pub(super) fn member_id(member: usize, is_alone: bool) -> MemberId {
    let first = if is_alone { b'A' } else { b'a' };
    MemberId::new([first + member as u8; MemberId::LEN])
}
