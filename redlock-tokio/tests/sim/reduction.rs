//! A smaller run of the same seed.

use std::{collections::BTreeSet, fmt};

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
