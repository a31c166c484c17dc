use std::{fmt, sync::Arc, time::Duration};

use crate::shown_time::ShownTime;

/// How a lock was acquired. Returned by [`LockGuard::acquisition`](crate::LockGuard::acquisition).
///
/// Its `Display` form is one line for a log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Acquisition {
    /// A majority of nodes granted the lock.
    #[non_exhaustive]
    Granted {
        /// The addresses of the nodes whose votes won the lock, in the order in which the nodes were given. Nodes that
        /// granted it later are not among them.
        granted_by: Vec<Arc<str>>,
        /// How many nodes had to agree.
        votes_needed: usize,
        /// How many nodes there are.
        nodes_total: usize,
        /// How many attempts were made, as [`Attempts::count`](crate::Attempts::count) counts them.
        attempts: u32,
        /// The time from the request to the lock.
        waited: Duration,
    },
    /// The holder before handed the lock over within this process. No node was asked.
    #[non_exhaustive]
    HandedOver {
        /// The time from the request to the lock.
        waited: Duration,
    },
    /// Another reader of this process had the lock, and shares it. No node was asked.
    #[non_exhaustive]
    Joined {
        /// The time from the request to the lock.
        waited: Duration,
    },
}

impl Acquisition {
    /// Returns the time from the request to the lock.
    #[must_use]
    pub fn waited(&self) -> Duration {
        match self {
            Self::Granted { waited, .. }
            | Self::HandedOver { waited }
            | Self::Joined { waited } => *waited,
        }
    }
}

impl fmt::Display for Acquisition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waited = ShownTime(self.waited());
        match self {
            Self::Granted {
                granted_by,
                nodes_total,
                attempts,
                ..
            } => {
                let s = if *attempts == 1 { "" } else { "s" };
                write!(
                    f,
                    "granted by {} of {nodes_total} nodes ({}) with {attempts} attempt{s} in {waited}",
                    granted_by.len(),
                    granted_by.join(", ")
                )
            }
            Self::HandedOver { .. } => write!(f, "handed over within this process in {waited}"),
            Self::Joined { .. } => write!(f, "shared within this process in {waited}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acquisition_is_one_line_that_names_the_nodes() {
        let waited = Duration::from_nanos(1_234_567);
        let granted = |attempts| Acquisition::Granted {
            granted_by: vec!["a:6379".into(), "c:6379".into()],
            votes_needed: 2,
            nodes_total: 3,
            attempts,
            waited,
        };
        assert_eq!(
            granted(1).to_string(),
            "granted by 2 of 3 nodes (a:6379, c:6379) with 1 attempt in 1.234 ms"
        );
        assert_eq!(
            granted(2).to_string(),
            "granted by 2 of 3 nodes (a:6379, c:6379) with 2 attempts in 1.234 ms"
        );
        assert_eq!(
            Acquisition::HandedOver { waited }.to_string(),
            "handed over within this process in 1.234 ms"
        );
    }
}
