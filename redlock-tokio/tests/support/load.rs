//! Tasks that lock and release all the time, and how long their locks took.

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use redlock_tokio::{LockGuard, Redlock};
use tokio::task::JoinHandle;

use super::history::History;

/// How long a task holds a lock. With a shorter time the tasks keep the processors busy, and the servers that fail
/// over get too little of them.
const HOLD: Duration = Duration::from_millis(10);

/// Contending tasks over several clients, with a record of their holds.
pub(crate) struct Load {
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    history: History,
    /// The times of the current phase.
    times: Mutex<Vec<Duration>>,
    /// How many locks were lost before their release.
    lost: AtomicUsize,
    /// How many requests got no lock.
    refused: AtomicUsize,
    is_over: AtomicBool,
}

/// How long the locks of one phase took.
pub(crate) struct Phase {
    name: &'static str,
    lasted: Duration,
    times: Vec<Duration>,
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

    /// Runs what blocks the thread. Prints and returns how long the locks took meanwhile.
    pub(crate) fn during(&self, name: &'static str, run: impl FnOnce()) -> Phase {
        self.shared.times.lock().unwrap().clear();
        let start = Instant::now();
        tokio::task::block_in_place(run);
        let times = std::mem::take(&mut *self.shared.times.lock().unwrap());
        let phase = Phase {
            name,
            lasted: start.elapsed(),
            times,
        };
        println!("{phase}");
        phase
    }

    /// Returns how many locks were held until their release so far.
    pub(crate) fn holds(&self) -> usize {
        self.shared.history.len()
    }

    pub(crate) fn refused(&self) -> usize {
        self.shared.refused.load(SeqCst)
    }

    pub(crate) fn has_two_holders(&self) -> bool {
        self.shared.history.overlap().is_some()
    }

    /// Ends the tasks. Panics if two holds of a key overlap.
    pub(crate) async fn judge(self) {
        self.shared.is_over.store(true, SeqCst);
        for task in self.tasks {
            task.await.unwrap();
        }
        assert_eq!(self.shared.history.overlap(), None, "two holders");
        let lost = self.shared.lost.load(SeqCst);
        let holds = self.shared.history.len();
        println!("{holds} holds, {lost} lost, 0 overlaps");
    }
}

impl Shared {
    async fn work(&self, client: &Redlock, key: &str) {
        while !self.is_over.load(SeqCst) {
            let start = Instant::now();
            let Ok(guard) = client.lock(key).await else {
                self.refused.fetch_add(1, SeqCst);
                continue;
            };
            self.times.lock().unwrap().push(start.elapsed());
            self.hold(key, guard).await;
        }
    }

    async fn hold(&self, key: &str, guard: LockGuard) {
        let from = Instant::now();
        tokio::time::sleep(HOLD).await;
        // Read before the validity, so that the lock was valid then.
        let to = Instant::now();
        if guard.is_valid() {
            self.history.add(key, from, to);
        } else {
            self.lost.fetch_add(1, SeqCst);
        }
        // Without a handover, so that each hold is a lock of its own.
        guard.release().await;
    }
}

impl Phase {
    pub(crate) fn locks(&self) -> usize {
        self.times.len()
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let longest = self.times.iter().max().copied().unwrap_or_default();
        write!(
            f,
            "{:<8} {:>5.1} s, {:>6} locks, the longest took {longest:.1?}",
            self.name,
            self.lasted.as_secs_f64(),
            self.locks(),
        )
    }
}
