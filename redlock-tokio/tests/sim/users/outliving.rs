//! Guards that are moved out of their runtime, and dropped after it.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard},
};

use crate::host::Host;

/// Drops a guard, and returns what it said that must not be.
pub(crate) type Dropping = Box<dyn FnOnce() -> Result<(), String> + Send>;

/// The guards that processes have moved out of their runtimes. Clones are handles of the same list.
#[derive(Clone, Default)]
pub(crate) struct Outliving(Arc<Mutex<Vec<Moved>>>);

struct Moved {
    host: Arc<Host>,
    dropping: Dropping,
}

impl Outliving {
    pub(crate) fn push(&self, host: &Arc<Host>, dropping: Dropping) {
        let host = Arc::clone(host);
        self.guards().push(Moved { host, dropping });
    }

    /// Takes the guards of a process.
    pub(crate) fn take(&self, host: &Arc<Host>) -> Vec<Dropping> {
        let mut guards = self.guards();
        let (of_host, others) = mem::take(&mut *guards)
            .into_iter()
            .partition::<Vec<_>, _>(|it| Arc::ptr_eq(&it.host, host));
        *guards = others;
        of_host.into_iter().map(|it| it.dropping).collect()
    }

    fn guards(&self) -> MutexGuard<'_, Vec<Moved>> {
        self.0
            .lock()
            .expect("no code panics while it holds this lock")
    }
}
