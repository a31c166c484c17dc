//! Tasks that lock and release all the time, with a record of their holds.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use redlock_tokio::{LockGuard, Redlock};
use tokio::task::JoinHandle;

/// How long a task holds a lock. With a shorter time the tasks keep the processors busy, and the servers that fail
/// over get too little of them.
const HOLD: Duration = Duration::from_millis(10);

/// Contending tasks over several clients.
pub(crate) struct Load {
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    /// The holds of each key. A recorded hold begins after the lock was granted and ends before its release. So it is
    /// never longer than the real hold.
    holds: Mutex<HashMap<String, Vec<(Instant, Instant)>>>,
    /// How many locks there were in the current phase.
    locks: AtomicUsize,
    /// How many requests got no lock.
    refused: AtomicUsize,
    is_over: AtomicBool,
}

/// How many locks there were in one phase.
pub(crate) struct Phase {
    name: &'static str,
    locks: usize,
}

impl Load {
    /// Starts so many tasks for each client. Each key has four contenders for each client.
    pub(crate) fn start(clients: &[Redlock], tasks: usize) -> Self {
        let shared = Arc::<Shared>::default();
        let task = |(number, client): (usize, &Redlock)| {
            let (shared, client) = (Arc::clone(&shared), client.clone());
            tokio::spawn(async move { shared.work(&client, &format!("load:{}", number / 4)).await })
        };
        let tasks = clients
            .iter()
            .flat_map(|client| (0..tasks).map(move |number| (number, client)))
            .map(task)
            .collect();
        Self { shared, tasks }
    }

    /// Runs what blocks the thread. Prints and returns how many locks there were meanwhile.
    pub(crate) fn during(&self, name: &'static str, run: impl FnOnce()) -> Phase {
        self.shared.locks.store(0, SeqCst);
        tokio::task::block_in_place(run);
        let locks = self.shared.locks.load(SeqCst);
        let phase = Phase { name, locks };
        println!("{phase}");
        phase
    }

    /// Returns how many locks were held until their release so far.
    pub(crate) fn holds(&self) -> usize {
        self.shared
            .holds
            .lock()
            .unwrap()
            .values()
            .map(Vec::len)
            .sum()
    }

    pub(crate) fn refused(&self) -> usize {
        self.shared.refused.load(SeqCst)
    }

    pub(crate) fn has_two_holders(&self) -> bool {
        self.shared.overlap().is_some()
    }

    /// Ends the tasks. Panics if two holds of a key overlap.
    pub(crate) async fn judge(self) {
        self.shared.is_over.store(true, SeqCst);
        for task in self.tasks {
            task.await.unwrap();
        }
        assert_eq!(self.shared.overlap(), None, "two holders");
    }
}

impl Shared {
    async fn work(&self, client: &Redlock, key: &str) {
        while !self.is_over.load(SeqCst) {
            let Ok(guard) = client.lock(key).await else {
                self.refused.fetch_add(1, SeqCst);
                continue;
            };
            self.locks.fetch_add(1, SeqCst);
            self.hold(key, guard).await;
        }
    }

    async fn hold(&self, key: &str, guard: LockGuard) {
        let from = Instant::now();
        tokio::time::sleep(HOLD).await;
        // Read before the validity, so that the lock was valid then.
        let to = Instant::now();
        if guard.is_valid() {
            let mut holds = self.holds.lock().unwrap();
            holds.entry(key.to_owned()).or_default().push((from, to));
        }
        // Without a handover, so that each hold is a lock of its own.
        guard.release().await;
    }

    /// Returns a key of which two holds overlap.
    fn overlap(&self) -> Option<String> {
        let mut holds = self.holds.lock().unwrap();
        holds.iter_mut().find_map(|(key, holds)| {
            holds.sort_unstable();
            let overlaps = holds.windows(2).any(|pair| pair[1].0 < pair[0].1);
            overlaps.then(|| key.clone())
        })
    }
}

impl Phase {
    pub(crate) fn locks(&self) -> usize {
        self.locks
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<8} {:>6} locks", self.name, self.locks)
    }
}
