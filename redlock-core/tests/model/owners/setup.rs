//! What is checked: the configurations, and the mutations that must be caught.

use std::ops::RangeInclusive;

use redlock_core::{Drift, Electorate, Lease, NodeKind, Nonce, OwnerRule, Quarantine, Ttl, Voter};

use super::world::{Client, Faults, Member, OwnerWorld, Reign, Seen, Server, TICK, node};
use crate::{setup::lease_config, world::Phase};

/// One configuration of a world with an authority.
#[derive(Clone, Debug)]
pub(crate) struct OwnerSetup {
    pub(super) name: &'static str,
    pub(super) servers: usize,
    pub(super) members: usize,
    pub(super) authority: Authority,
    /// How many of the members, the last ones, are another authority, which names the last server.
    pub(super) strangers: usize,
    /// Whether each failover gives the new owner the first epoch, so that two tenures of one server look the same.
    pub(super) epochs_begin_anew: bool,
    /// Whether members can be exchanged for one another, so that one order of them is enough.
    pub(super) are_alike: bool,
    /// The members that each client knows of.
    pub(super) lists: [&'static [usize]; 2],
    /// How many of them each client may ask in a tick. Which ones differs from tick to tick.
    pub(super) polls: [&'static [usize]; 2],
    /// Whether the answers to each client come one by one, in any order and at any time.
    pub(super) scatters: [bool; 2],
    /// Whether each client has confirmed the first owner long ago.
    pub(super) watched: [bool; 2],
    pub(super) failovers: Failovers,
    /// Whether a new owner waits until all locks of the old one are over.
    pub(super) settles: bool,
    /// Whether clients see that a server was promoted.
    pub(super) sees_promotions: bool,
    /// Whether members tell ages.
    pub(super) ages: bool,
    /// Whether clients write and read markers.
    pub(super) markers: bool,
    /// The ttl of every lock, in ticks.
    pub(super) ttl: u8,
    /// For how many ticks a lock is renewed; 0 for not at all.
    pub(super) max_hold: u8,
    /// The last tick at which each client may begin.
    pub(super) begin_by: [u8; 2],
    /// When the first failover may begin, and the second one.
    pub(super) fail_over_at: [RangeInclusive<u8>; 2],
    pub(super) faults: Faults,
    /// The allowance for drift, in ticks.
    pub(super) drift: u8,
    /// How long a confirmation counts, in ticks.
    pub(super) window: u8,
    pub(super) fewest_members: usize,
    pub(super) mutation: Option<Mutation>,
    /// The `sometimes` properties that must be reached.
    pub(super) reaches: &'static [&'static str],
    /// The property that must be violated, in a negative control.
    pub(super) violates: Option<&'static str>,
}

/// What the members are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Authority {
    Sentinels,
    /// Its epochs last.
    Cluster,
}

/// What a failover does to the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failovers {
    /// The new owner lacks them.
    LoseKeys,
    /// The new owner has them, and the old one carries out nothing any more.
    LoseNothing,
    /// The new owner has them, and the old one goes on. So the new one lacks the keys that come later.
    CopyKeys,
}

/// A driver or a member that breaks one of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutation {
    /// The members are those that are listed.
    ListedMembersOnly,
    /// The second client counts the members of two authorities together.
    StrangersCounted,
    /// The members are the masters, as each member sees them.
    MastersOnly,
    /// The watch goes on when another tenure is confirmed.
    WatchNotRestarted,
    /// The first client has a longer window than the other settles for.
    LongerWindow,
    /// Owners settle for one tick less than the longest ttl.
    SettledTooSoon,
    /// A confirmation is dated when the answers come.
    DatedByTheAnswer,
    /// A confirmation counts for ever.
    NeverLapses,
    /// A member's age goes on when the same server is the owner again.
    AgeOfTheServer,
    /// Markers are named after the owner alone.
    MarkerWithoutEpoch,
    /// A marker is written by a client that has heard of the owner from one member.
    MarkedTooSoon,
    /// A client that starts confirms an owner when the first majority has answered.
    JudgedOneByOne,
    /// The first client takes its connection to the first owner for one to each later owner.
    ConnectionKept,
}

impl OwnerSetup {
    /// Three members, two clients that have watched them for long, and one failover.
    pub(super) const FAILOVER: Self = Self {
        name: "a failover",
        servers: 2,
        members: 3,
        authority: Authority::Cluster,
        strangers: 0,
        epochs_begin_anew: false,
        are_alike: true,
        lists: [&[0, 1, 2]; 2],
        polls: [&[2]; 2],
        scatters: [false; 2],
        watched: [true; 2],
        failovers: Failovers::LoseKeys,
        settles: true,
        sees_promotions: true,
        ages: false,
        markers: false,
        ttl: 1,
        max_hold: 0,
        begin_by: [3, 3],
        // What comes before it is the same at each time.
        fail_over_at: [1..=1, 1..=1],
        faults: Faults {
            failovers: 1,
            restarts: 0,
            renewals: 0,
            returns: 0,
            late_answers: 0,
            late_sets: 0,
            marks: 0,
            stalls: 0,
        },
        drift: 0,
        window: 1,
        fewest_members: 1,
        mutation: None,
        reaches: &[
            "the new owner has voted",
            "the old owner has voted after the failover",
            "a confirmation expired",
            "an owner had not settled",
        ],
        violates: None,
    };

    /// A negative control: in this world two clients can hold the lock.
    pub(super) const fn control(mut self, name: &'static str) -> Self {
        self.name = name;
        self.violates = Some("one holder");
        self.reaches = &[];
        self
    }

    /// A negative control: the same because of a driver or a member.
    pub(super) const fn broken(mut self, mutation: Mutation, name: &'static str) -> Self {
        self.mutation = Some(mutation);
        self.control(name)
    }

    pub(super) fn world(&self) -> OwnerWorld {
        let reign = |member| {
            if self.is_stranger(member) {
                let owner = self.servers - 1;
                Reign {
                    owner,
                    ..Reign::FIRST
                }
            } else {
                Reign::FIRST
            }
        };
        let member = |member| Member {
            reign: reign(member),
            since: None,
            is_alone: false,
        };
        let mut world = OwnerWorld {
            now: 0,
            servers: (0..self.servers).map(|it| self.server(it)).collect(),
            members: (0..self.members).map(member).collect(),
            clients: (0..2).map(|it| self.client(it)).collect(),
            faults: self.faults,
        };
        for client in 0..2 {
            if self.watched[client] {
                self.watch_from_the_beginning(&mut world, client);
            }
        }
        world
    }

    pub(super) fn is_stranger(&self, member: usize) -> bool {
        member >= self.members - self.strangers
    }

    /// The tick by which every lease has ended.
    pub(super) fn end(&self) -> u8 {
        self.begin_by[1] + self.max_hold + self.ttl + 1 + self.faults.stalls
    }

    pub(super) fn rule(&self, client: usize) -> OwnerRule {
        let window = match self.mutation {
            Some(Mutation::LongerWindow) if client == 0 => self.window + 1,
            _ => self.window,
        };
        let longest = match self.mutation {
            Some(Mutation::SettledTooSoon) => self.ttl - 1,
            _ => self.ttl,
        };
        let rule = OwnerRule::new(ttl(longest), self.drift(), TICK * window.into())
            .with_fewest_members(self.fewest_members);
        if self.settles {
            rule
        } else {
            rule.without_settling()
        }
    }

    fn server(&self, index: usize) -> Server {
        Server {
            is_deposed: self.failovers != Failovers::LoseKeys && index > 0,
            ..Server::default()
        }
    }

    fn client(&self, index: usize) -> Client {
        let quarantine = Quarantine::new(ttl(self.ttl), self.drift());
        let mut electorate = Electorate::new(if !self.settles {
            Voter::lossless(quarantine)
        } else if self.sees_promotions {
            Voter::new(quarantine)
        } else {
            Voter::trusted(quarantine)
        });
        let rule = self.rule(index);
        let kind = match self.authority {
            Authority::Sentinels => NodeKind::SentinelGroup(rule),
            Authority::Cluster => NodeKind::ClusterSlot {
                rule,
                slot: 0,
                may_share_server: false,
            },
        };
        electorate.set_kind(node(), kind);
        let [ttl, drift, max_hold] =
            [self.ttl, self.drift, self.max_hold].map(|it| TICK * it.into());
        let mut config = lease_config(1, ttl, drift, max_hold);
        config.retry = config.retry.with_max_attempts(1);
        Client {
            electorate,
            lease: Lease::new(config, Nonce::new(index as u128 + 1)),
            phase: Phase::Idle,
            lag: 0,
            server: None,
            has_polled: false,
            late_answers: Vec::new(),
            roll_call: None,
            late_set: None,
            seen: Seen::default(),
        }
    }

    fn drift(&self) -> Drift {
        Drift::new(0, TICK * self.drift.into())
    }
}

fn ttl(ticks: u8) -> Ttl {
    Ttl::new(TICK * ticks.into()).expect("a ttl")
}
