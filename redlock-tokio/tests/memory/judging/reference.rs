//! The judge's rules once more, as slowly and as simply as possible: each pair of holds, and each instant.

use std::collections::BTreeSet;

use crate::judge::{End, Grant, HoldId, Violation};

/// The whole story of one hold.
#[derive(Clone, Debug)]
pub(crate) struct Tale {
    pub(crate) grant: Grant,
    /// Until when it is valid because of an extension.
    pub(crate) extended_until: Option<u64>,
    /// When its writer became a reader.
    pub(crate) downgraded_at: Option<u64>,
    pub(crate) end: Option<Ended>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) how: End,
    pub(crate) at: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Stop {
    pub(crate) client: String,
    pub(crate) from: u64,
    pub(crate) until: u64,
}

/// What must not be mistaken in a violation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Finding {
    TwoHolders(String, HoldId, HoldId),
    FenceDidNotGrow(String, HoldId, HoldId),
    ToldLate { hold: HoldId, told: u64, late: u64 },
}

impl From<Violation> for Finding {
    fn from(violation: Violation) -> Self {
        match violation {
            Violation::TwoHolders { key, first, second } => {
                Self::TwoHolders(key, first.id, second.id)
            }
            Violation::FenceDidNotGrow {
                key,
                earlier,
                later,
            } => Self::FenceDidNotGrow(key, earlier.hold.id, later.hold.id),
            Violation::ToldLate { hold, told, late } => Self::ToldLate {
                hold: hold.id,
                told,
                late,
            },
            Violation::NotTold { .. } => unreachable!("the judge does not say this"),
        }
    }
}

impl Tale {
    fn valid_until(&self) -> u64 {
        let extended = self.extended_until.unwrap_or(0);
        self.grant.valid_until.max(extended)
    }

    fn until(&self) -> u64 {
        self.valid_until()
            .min(self.end.map_or(u64::MAX, |it| it.at))
    }

    /// Returns the times in which the hold is valid and excludes all others.
    fn times_alone(&self) -> BTreeSet<u64> {
        let shared_from = match self.grant.is_shared {
            true => 0,
            false => self.downgraded_at.unwrap_or(u64::MAX / 2),
        };
        let times = self.times().into_iter();
        times.filter(|it| *it < 2 * shared_from).collect()
    }

    fn was_valid(&self) -> bool {
        self.grant.at < self.valid_until() && self.until() >= self.grant.at
    }

    fn is_instant(&self) -> bool {
        self.grant.at == self.until()
    }

    /// Returns the times in which the hold is valid. An even number is an instant, and an odd one is the time between
    /// two instants.
    fn times(&self) -> BTreeSet<u64> {
        let (from, until) = (self.grant.at, self.until());
        match self.was_valid() {
            false => BTreeSet::new(),
            true if from == until => BTreeSet::from([2 * from]),
            true => (2 * from + 1..2 * until).collect(),
        }
    }
}

/// Returns the findings in order.
pub(crate) fn judge(tales: &[(HoldId, Tale)], stops: &[Stop], tolerance: u64) -> Vec<Finding> {
    let mut found = Vec::new();
    let keys: BTreeSet<&String> = tales.iter().flat_map(|(_, it)| &it.grant.keys).collect();
    for key in keys {
        let mut holds: Vec<_> = tales.iter().collect();
        holds.retain(|(_, it)| it.grant.keys.contains(key) && it.was_valid());
        holds.sort_by_key(|(id, it)| (it.grant.at, *id));
        for (position, later) in holds.iter().enumerate() {
            let earlier = &holds[..position];
            let overlapping = earlier.iter().filter(|it| overlap(&it.1, &later.1));
            found.extend(overlapping.map(|it| Finding::TwoHolders(key.clone(), it.0, later.0)));
            let largest = earlier.iter().filter_map(|it| it.1.grant.fence).max();
            if later.1.grant.fence.is_some() && later.1.grant.fence <= largest {
                let first = earlier.iter().find(|it| it.1.grant.fence == largest);
                let first = first.expect("it has the largest token").0;
                found.push(Finding::FenceDidNotGrow(key.clone(), first, later.0));
            }
        }
    }
    for (id, tale) in tales {
        let due = tale.valid_until().max(tale.grant.at);
        if let Some(Ended {
            how: End::Lost { told },
            ..
        }) = tale.end
        {
            let late = running_time(stops, &tale.grant.client, due, told);
            let hold = *id;
            found.extend((late > tolerance).then_some(Finding::ToldLate { hold, told, late }));
        }
    }
    found.sort();
    found
}

fn overlap(one: &Tale, other: &Tale) -> bool {
    let are_instants = one.is_instant() && other.is_instant();
    let excludes = |one: &Tale, other: &Tale| !one.times_alone().is_disjoint(&other.times());
    !are_instants && (excludes(one, other) || excludes(other, one))
}

fn running_time(stops: &[Stop], client: &str, from: u64, until: u64) -> u64 {
    let stops_at = |now: u64| {
        let mut own = stops.iter().filter(|it| it.client == client);
        own.any(|it| (it.from..it.until).contains(&now))
    };
    (from..until).filter(|now| !stops_at(*now)).count() as u64
}
