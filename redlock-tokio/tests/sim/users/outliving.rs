//! Guards that are moved out of their runtime, and dropped after it.

use std::{
    mem,
    sync::{Arc, Mutex},
};

use futures::FutureExt;

use super::{environment::Records, kept::Kept};
use crate::host::Host;

/// The guards that a process has moved out of its runtime. Clones are handles of the same list.
#[derive(Clone, Default)]
pub(crate) struct Outliving(Arc<Mutex<Vec<Moved>>>);

struct Moved {
    host: Arc<Host>,
    kept: Kept,
}

/// Drops the guards of a process whose runtime has gone. None of them is valid. Returns how many there were.
pub(crate) fn drop_outliving(records: &Records, host: &Arc<Host>) -> usize {
    let kept = records.outliving.take(host);
    let count = kept.len();
    for kept in kept {
        let hold = &kept.view().hold;
        let loss = hold.lost().now_or_never();
        if hold.is_valid() || loss.is_none() {
            let text = format!(
                "a lock of process {} outlives its runtime: {loss:?}",
                host.process
            );
            records.registry.fail(text);
        }
    }
    count
}

impl Outliving {
    pub(crate) fn push(&self, host: &Arc<Host>, kept: Kept) {
        let host = Arc::clone(host);
        self.guards().push(Moved { host, kept });
    }

    /// Takes the guards of a process.
    pub(crate) fn take(&self, host: &Arc<Host>) -> Vec<Kept> {
        let mut guards = self.guards();
        let (of_host, others) = mem::take(&mut *guards)
            .into_iter()
            .partition::<Vec<_>, _>(|it| Arc::ptr_eq(&it.host, host));
        *guards = others;
        of_host.into_iter().map(|it| it.kept).collect()
    }

    fn guards(&self) -> std::sync::MutexGuard<'_, Vec<Moved>> {
        self.0
            .lock()
            .expect("no code panics while it holds this lock")
    }
}
