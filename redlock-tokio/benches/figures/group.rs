use std::{fmt, rc::Rc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    contestants::{Access, Name},
    history::History,
    nodes::Commands,
};

/// Processes of one kind, whose tasks want the same key, or each a key of its own.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Group {
    pub(crate) contestant: Name,
    pub(crate) access: Access,
    pub(crate) processes: usize,
    /// Of each process.
    pub(crate) tasks: usize,
    pub(crate) hold: Duration,
    /// Whether a holder reads the clock all the time. Otherwise it sleeps.
    pub(crate) spins: bool,
    pub(crate) own_keys: bool,
}

/// The instructions of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) urls: Vec<String>,
    pub(crate) key: String,
    #[serde(flatten)]
    pub(crate) group: Group,
}

/// What happened to one of the groups that wanted a key.
pub(crate) struct Row {
    pub(crate) group: Group,
    pub(crate) history: History,
    pub(crate) all: Rc<All>,
}

/// What happened to all of them.
pub(crate) struct All {
    pub(crate) history: History,
    /// What all nodes together have carried out meanwhile.
    pub(crate) commands: Commands,
}

impl Group {
    /// Returns this crate's lock, whose holders sleep for a millisecond.
    pub(crate) const fn ours(processes: usize, tasks: usize) -> Self {
        Self {
            contestant: Name::Ours,
            access: Access::Lock,
            processes,
            tasks,
            hold: Duration::from_millis(1),
            spins: false,
            own_keys: false,
        }
    }

    /// Returns a cell for each number of tasks and each contestant. Each task has a key of its own.
    pub(crate) fn cells_of_own_keys(
        contestants: &[Name],
        tasks: &[usize],
    ) -> impl Iterator<Item = Vec<Self>> {
        let of = |tasks| move |it: &Name| vec![Self::of_own_keys(*it, tasks)];
        tasks
            .iter()
            .flat_map(move |&tasks| contestants.iter().map(of(tasks)))
    }

    /// Returns one process of such tasks, each of which acquires and releases a key of its own again and again.
    pub(crate) const fn of_own_keys(contestant: Name, tasks: usize) -> Self {
        Self {
            contestant,
            own_keys: true,
            ..Self::ours(1, tasks).spins(Duration::ZERO)
        }
    }

    /// Returns the same group of another kind.
    pub(crate) const fn of(self, contestant: Name) -> Self {
        Self { contestant, ..self }
    }

    /// Returns the same group, which wants to hold something else.
    pub(crate) const fn wants(self, access: Access) -> Self {
        Self { access, ..self }
    }

    /// Returns the same group, whose holders sleep for this time.
    pub(crate) const fn holds(self, hold: Duration) -> Self {
        Self { hold, ..self }
    }

    /// Returns the same group, whose holders read the clock for this time.
    pub(crate) const fn spins(self, hold: Duration) -> Self {
        let spins = true;
        Self {
            hold,
            spins,
            ..self
        }
    }

    /// Returns whether nobody else may be in beside a holder of this group.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.access != Access::Read
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            contestant,
            access,
            processes,
            tasks,
            ..
        } = self;
        write!(f, "{processes} x {tasks} {contestant}")?;
        match access {
            Access::Lock => Ok(()),
            access => write!(f, ", {access}"),
        }
    }
}

impl All {
    /// How many entries there were, and one if there were none.
    pub(crate) fn entries(&self) -> f64 {
        self.history.entries().max(1) as f64
    }
}
