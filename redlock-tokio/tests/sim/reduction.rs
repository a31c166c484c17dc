//! A smaller run of the same seed, and how a failing run is made smaller: fewer faults.

use std::{collections::BTreeSet, fmt};

use crate::{violation::Kind, world::Outcome};

/// What a run has less of than its seed would give it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reduction {
    /// Only these faults, by their numbers. All if `None`.
    pub(crate) faults: Option<BTreeSet<u32>>,
}

impl Reduction {
    pub(crate) fn none() -> Self {
        Self { faults: None }
    }

    /// Returns whether a fault happens.
    pub(crate) fn includes(&self, fault: u32) -> bool {
        self.faults.as_ref().is_none_or(|it| it.contains(&fault))
    }
}

impl fmt::Display for Reduction {
    /// Writes the variable that asks for it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(faults) = &self.faults else {
            return Ok(());
        };
        let numbers: Vec<_> = faults.iter().map(u32::to_string).collect();
        write!(f, " SIM_FAULTS={}", numbers.join(","))
    }
}

/// Returns a small reduction with which the run still shows a violation of this kind.
pub(crate) fn shrink(
    from: &Reduction,
    failure: &Outcome,
    kind: Kind,
    run: impl Fn(&Reduction) -> Outcome,
) -> Reduction {
    let of = |faults| Reduction {
        faults: Some(faults),
    };
    let mut kept: BTreeSet<u32> = (0..failure.faults)
        .filter(|it| from.includes(*it))
        .collect();
    // Half of the faults at a time, then a quarter, down to single ones.
    let mut size = kept.len().div_ceil(2);
    while size > 0 {
        let all: Vec<_> = kept.iter().copied().collect();
        for part in all.chunks(size) {
            let mut fewer = kept.clone();
            fewer.retain(|it| !part.contains(it));
            if run(&of(fewer.clone())).has(kind) {
                kept = fewer;
            }
        }
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }
    of(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::violation::Violation;

    /// Panics with the faults 3 and 17, and otherwise fails in another way.
    fn run(reduction: &Reduction) -> Outcome {
        let mut outcome = Outcome::of_panic();
        outcome.faults = 40;
        if ![3, 17].into_iter().all(|fault| reduction.includes(fault)) {
            outcome.violations = vec![Violation::new(Kind::Service, "another failure")];
        }
        outcome
    }

    #[test]
    fn what_remains_is_needed() {
        let all = Reduction::none();
        let smallest = shrink(&all, &run(&all), Kind::Panic, run);
        assert_eq!(smallest.to_string(), " SIM_FAULTS=3,17");
    }
}
