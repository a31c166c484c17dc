//! A process: a runtime of its own that the world steps, with one `Redlock` and its users.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    runtime::{Builder, Runtime},
    sync::Notify,
    task::JoinHandle,
    time::{Instant, advance, sleep_until},
};

use crate::host::Host;

/// A process that runs, or stands still.
pub(crate) struct Process {
    pub(crate) host: Arc<Host>,
    runtime: Runtime,
    /// Where the runtime's clock stood at the start.
    origin: Instant,
    main: JoinHandle<()>,
    stage: Stages,
    /// It has shut down, and the world knows.
    pub(crate) is_ending: bool,
}

/// What the users of a process do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// They use locks while there are faults.
    Faults,
    /// The faults are over, so each of them must be served.
    Calm,
    /// They end, and the process shuts its `Redlock` down.
    End,
}

/// Tells the users of a process its stage. Clones tell the same. Wakes the waiters in the order in which they
/// came, which tokio's `watch` does not.
#[derive(Clone)]
pub(crate) struct Stages(Arc<Board>);

struct Board {
    stage: AtomicU8,
    changed: Notify,
}

impl Stages {
    fn new(stage: Stage) -> Self {
        Self(Arc::new(Board {
            stage: AtomicU8::new(stage as u8),
            changed: Notify::new(),
        }))
    }

    fn enter(&self, stage: Stage) {
        self.0.stage.store(stage as u8, Relaxed);
        self.0.changed.notify_waiters();
    }

    pub(crate) fn has_come(&self, stage: Stage) -> bool {
        self.0.stage.load(Relaxed) >= stage as u8
    }

    /// Waits until a stage has come.
    pub(crate) async fn come(&self, stage: Stage) {
        while !self.has_come(stage) {
            let changed = self.0.changed.notified();
            if self.has_come(stage) {
                return;
            }
            changed.await;
        }
    }
}

impl Process {
    /// Starts a process. `main` gets what it has to look at from time to time.
    pub(crate) fn start<M, F>(host: Arc<Host>, stage: Stage, main: M) -> Self
    where
        M: FnOnce(Stages) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime without I/O");
        let stage = Stages::new(stage);
        let origin = {
            let _context = runtime.enter();
            Instant::now()
        };
        let main = runtime.spawn(main(stage.clone()));
        Self {
            host,
            runtime,
            origin,
            main,
            stage,
            is_ending: false,
        }
    }

    /// Runs until a true time. Returns early when the process has sent something.
    pub(crate) fn run_until(&self, at: u64) {
        // Rounding must not leave the process short of the moment.
        let target = self.origin + Duration::from_nanos(self.host.elapsed_at(at) + 2);
        // The clock of the host reads tokio's, which outside of a runtime is the system's.
        let _context = self.runtime.enter();
        self.host.start_step(self.origin);
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = self.host.has_sent.notified() => {}
                () = sleep_until(target) => {}
            }
        });
        self.host.end_step();
    }

    /// Goes on after it stood still until a true time: its timers are late, all at once.
    pub(crate) fn resume(&self, at: u64) {
        let elapsed = Duration::from_nanos(self.host.elapsed_at(at));
        let _context = self.runtime.enter();
        self.host.start_step(self.origin);
        self.runtime.block_on(async {
            let late = elapsed.saturating_sub(self.origin.elapsed());
            advance(late).await;
        });
        self.host.end_step();
    }

    pub(crate) fn enter(&self, stage: Stage) {
        self.stage.enter(stage);
    }

    /// Returns whether its main task has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.main.is_finished()
    }

    /// Returns how many tasks are left.
    pub(crate) fn tasks(&self) -> usize {
        self.runtime.metrics().num_alive_tasks()
    }
}
