//! A smaller run of the same seed, and how a failing run is made smaller: fewer processes, users and faults.

use std::{collections::BTreeSet, fmt};

use crate::{violation::Kind, world::Outcome};

/// What a run has less of than its seed would give it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reduction {
    /// At most so many processes.
    pub(crate) processes: Option<usize>,
    /// At most so many users in each of them.
    pub(crate) users: Option<usize>,
    /// Only these faults, by their numbers. All if `None`.
    pub(crate) faults: Option<BTreeSet<u32>>,
}

impl Reduction {
    pub(crate) fn none() -> Self {
        Self {
            processes: None,
            users: None,
            faults: None,
        }
    }

    /// Returns whether a fault happens.
    pub(crate) fn includes(&self, fault: u32) -> bool {
        self.faults.as_ref().is_none_or(|it| it.contains(&fault))
    }
}

impl fmt::Display for Reduction {
    /// Writes the variables that ask for it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(processes) = self.processes {
            write!(f, " SIM_PROCESSES={processes}")?;
        }
        if let Some(users) = self.users {
            write!(f, " SIM_USERS={users}")?;
        }
        if let Some(faults) = &self.faults {
            let numbers: Vec<_> = faults.iter().map(u32::to_string).collect();
            write!(f, " SIM_FAULTS={}", numbers.join(","))?;
        }
        Ok(())
    }
}

/// Returns a small reduction with which the run still shows a violation of this kind.
pub(crate) fn shrink(
    from: &Reduction,
    failure: &Outcome,
    kind: Kind,
    run: impl Fn(&Reduction) -> Outcome,
) -> Reduction {
    let fails = |reduction: &Reduction| run(reduction).has(kind);
    let mut best = from.clone();
    let with_processes = |it| Reduction {
        processes: Some(it),
        ..best.clone()
    };
    let fewest = (1..failure.processes).map(with_processes).find(fails);
    best = fewest.unwrap_or(best);
    let with_users = |it| Reduction {
        users: Some(it),
        ..best.clone()
    };
    let fewest = (1..failure.users).map(with_users).find(fails);
    best = fewest.unwrap_or(best);
    let faults = run(&best).faults;
    let mut kept: BTreeSet<u32> = (0..faults).filter(|it| best.includes(*it)).collect();
    // Half of the faults at a time, then a quarter, down to single ones.
    let mut size = kept.len().div_ceil(2);
    while size > 0 {
        let all: Vec<_> = kept.iter().copied().collect();
        for part in all.chunks(size) {
            let mut fewer = kept.clone();
            fewer.retain(|it| !part.contains(it));
            let smaller = Reduction {
                faults: Some(fewer.clone()),
                ..best.clone()
            };
            if fails(&smaller) {
                kept = fewer;
            }
        }
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }
    Reduction {
        faults: Some(kept),
        ..best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::violation::Violation;

    /// Panics with at least two processes and the faults 3 and 17, and otherwise fails in another way.
    fn run(reduction: &Reduction) -> Outcome {
        let fails = reduction.processes.is_none_or(|it| it >= 2)
            && [3, 17].into_iter().all(|fault| reduction.includes(fault));
        let mut outcome = Outcome::of_panic();
        (outcome.processes, outcome.users, outcome.faults) = (4, 4, 40);
        if !fails {
            outcome.violations = vec![Violation::new(Kind::Service, "another failure")];
        }
        outcome
    }

    #[test]
    fn what_remains_is_needed() {
        let all = Reduction::none();
        let smallest = shrink(&all, &run(&all), Kind::Panic, run);
        assert_eq!(
            smallest.to_string(),
            " SIM_PROCESSES=2 SIM_USERS=1 SIM_FAULTS=3,17"
        );
    }
}
