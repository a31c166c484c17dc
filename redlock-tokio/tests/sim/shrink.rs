//! Makes a failing run smaller: fewer processes, users and faults.

use std::collections::BTreeSet;

use crate::{reduction::Reduction, violation::Kind, world::Outcome};

/// Returns a small reduction with which the run still shows a violation of this kind.
pub(crate) fn shrink(
    from: &Reduction,
    failure: &Outcome,
    kind: Kind,
    run: impl Fn(&Reduction) -> Outcome,
) -> Reduction {
    let fails = |reduction: &Reduction| run(reduction).has(kind);
    let mut best = from.clone();
    for processes in 1..failure.processes {
        let smaller = Reduction {
            processes: Some(processes),
            ..best.clone()
        };
        if fails(&smaller) {
            best = smaller;
            break;
        }
    }
    for users in 1..failure.users {
        let smaller = Reduction {
            users: Some(users),
            ..best.clone()
        };
        if fails(&smaller) {
            best = smaller;
            break;
        }
    }
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
