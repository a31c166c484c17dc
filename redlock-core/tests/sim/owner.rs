//! What the members of an authority say about the owner of a node.

use std::time::Duration;

use redlock_core::{MemberId, MemberReport, NodeId, Owner, Tenure, Timestamp};

use crate::configuration::Mutant;

/// How many members each authority has.
pub(crate) const MEMBERS: usize = 3;

/// The only node of an electorate that a lane keeps.
pub(crate) const NODE: fn() -> NodeId = || NodeId::new(0).expect("the first node");

/// The owner of a node by the word of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reign {
    pub(crate) server: usize,
    pub(crate) epoch: u64,
}

/// The members of the authority that names the owner of one node.
pub(crate) struct Authority {
    pub(crate) members: [Member; MEMBERS],
}

#[derive(Clone, Copy)]
pub(crate) struct Member {
    pub(crate) reign: Reign,
    /// Since when it knows that, and has been up.
    pub(crate) since: u64,
    /// It learns nothing until then.
    pub(crate) lags_until: u64,
    /// It answers nobody until then.
    pub(crate) down_until: u64,
}

/// What a member answers.
#[derive(Clone, Copy)]
pub(crate) struct Word {
    pub(crate) member: usize,
    pub(crate) asked_at: Timestamp,
    pub(crate) reign: Reign,
    pub(crate) age: Duration,
}

impl Authority {
    pub(crate) fn new(server: usize) -> Self {
        let reign = Reign { server, epoch: 1 };
        let member = Member {
            reign,
            since: 0,
            lags_until: 0,
            down_until: 0,
        };
        Self {
            members: [member; MEMBERS],
        }
    }
}

impl Reign {
    pub(crate) fn tenure(self) -> Tenure {
        Tenure {
            owner: Owner::new(self.server.to_string()),
            epoch: self.epoch,
        }
    }

    pub(crate) fn of(tenure: &Tenure) -> Self {
        Self {
            server: tenure.owner.as_str().parse().expect("its number"),
            epoch: tenure.epoch,
        }
    }
}

impl Word {
    /// What a driver makes of the word: the truth, unless it is broken.
    pub(crate) fn report(
        self,
        node: usize,
        answering: [bool; MEMBERS],
        mutant: Option<Mutant>,
    ) -> MemberReport {
        let id = |member: usize| MemberId::new([(node * MEMBERS + member) as u8; MemberId::LEN]);
        let is_known =
            |it: &usize| mutant != Some(Mutant::CountsAnsweringMembers) || answering[*it];
        MemberReport {
            asked_at: self.asked_at,
            member: id(self.member),
            members: (0..MEMBERS).filter(is_known).map(id).collect(),
            tenure: Some(self.reign.tenure()),
            age: self.age,
        }
    }
}
