//! The tower layer: a small service behind a `LockLayer`, and callers that go away.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use redlock_tokio::LockGuard;
use redlock_tower::{LockError, LockLayer, LockRequest, Locked, OnCancel, OnLost, TaskTracker};
use tokio::time::sleep;
use tower::{Layer, ServiceExt, service_fn, util::BoxCloneSyncService};

use super::{
    asked::{self, Asked, Keys},
    cancel::Cancel,
    environment::Environment,
    panics::INTENDED,
    service::Service,
    terms::{Terms, around},
};
use crate::{judge::HoldId, process::Stage, requests::Order, rng::Rng, seen::Seen};

/// A service behind a lock layer, with the rules of the layer. Clones are handles of the same service.
#[derive(Clone)]
pub(crate) struct Counter {
    environment: Environment,
    service: Service,
    calls: BoxCloneSyncService<Job, (), LockError<Fails>>,
    rules: Rules,
    tasks: TaskTracker,
    /// How many calls run in the inner service.
    running: Arc<AtomicUsize>,
}

#[derive(Clone, Copy, Debug)]
struct Rules {
    is_detached: bool,
    on_lost: OnLost,
    on_cancel: OnCancel,
    fails_open: bool,
    max_waiters: usize,
}

/// A call.
struct Job {
    environment: Environment,
    keys: Vec<String>,
    terms: Terms,
    work: Duration,
    ending: Ending,
    rules: Rules,
    lock: Option<Locked>,
    progress: Arc<Progress>,
    /// Kept for as long as the inner service has the lock.
    asked: Arc<Asked>,
}

/// How a call ends in the inner service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Responds,
    Fails,
    Panics,
    ReleasesEarly,
    TakesOver,
}

/// How far a call has come in the inner service.
#[derive(Debug, Default)]
struct Progress {
    has_begun: AtomicBool,
    running: Arc<AtomicUsize>,
}

/// The inner service fails on purpose.
#[derive(Clone, Copy, Debug)]
struct Fails;

/// Notes when the inner service ends a call, or the call is dropped.
struct Mark {
    environment: Environment,
    rules: Rules,
    progress: Arc<Progress>,
    /// Whether the call began with a lock.
    has_lock: bool,
    hold: Option<HoldId>,
    ending: Option<Ending>,
    _asked: Arc<Asked>,
}

impl fmt::Display for Fails {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the call fails on purpose")
    }
}

impl Rules {
    fn draw(rng: &mut Rng) -> Self {
        Self {
            is_detached: rng.bool(),
            on_lost: rng.pick(&[OnLost::Signal, OnLost::Fail, OnLost::Cancel]),
            on_cancel: rng.pick(&[OnCancel::Release, OnCancel::Release, OnCancel::Expire]),
            fails_open: rng.chance(300_000),
            max_waiters: rng.pick(&[usize::MAX, 1]),
        }
    }
}

impl Counter {
    pub(crate) fn draw(environment: &Environment, service: &Service, rng: &mut Rng) -> Self {
        let rules = Rules::draw(rng);
        let tasks = TaskTracker::new();
        let wanted = |job: &Job| LockRequest::all(job.keys.clone()).options(job.terms.options);
        let layer = LockLayer::new(service.redlock.clone(), wanted)
            .options(Terms::usual(&environment.scale).options)
            .on_lost(rules.on_lost)
            .on_cancel(rules.on_cancel)
            .max_waiters_total(rules.max_waiters)
            .share_hold(|job: &mut Job, lock: Locked| job.lock = Some(lock));
        let layer = if rules.fails_open {
            layer.fail_open()
        } else {
            layer
        };
        let inner = service_fn(serve);
        let calls = if rules.is_detached {
            let layer = layer.detached().tasks(tasks.clone());
            BoxCloneSyncService::new(layer.layer(inner))
        } else {
            BoxCloneSyncService::new(layer.layer(inner))
        };
        Self {
            environment: environment.clone(),
            service: service.clone(),
            calls,
            rules,
            tasks,
            running: Arc::default(),
        }
    }

    /// Calls the service until the process or its `Redlock` ends.
    pub(crate) async fn run(self, mut rng: Rng) {
        loop {
            let think = self.environment.scale.think;
            self.environment.pause(&mut rng, think).await;
            let is_over = self.environment.stages.has_come(Stage::End);
            if is_over || self.service.closed_at().is_some() {
                break;
            }
            self.call(&mut rng).await;
        }
    }

    /// Waits until all calls have ended, those without a caller too.
    pub(crate) async fn finish(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        if self.rules.on_cancel == OnCancel::Expire {
            // Locks of calls that were cut short are kept for that long.
            sleep(self.environment.scale.max_ttl).await;
        }
        let running = self.running.load(Relaxed);
        if running > 0 {
            let text = format_args!("{running} calls run, and the layer counts none");
            self.environment.fail(text);
        }
    }

    async fn call(&self, rng: &mut Rng) {
        let terms = Terms::draw(rng, &self.environment.scale);
        let key = |rng: &mut Rng| format!("key-{}", rng.usize(..self.environment.scale.keys));
        let mut keys = vec![key(rng)];
        if rng.chance(200_000) {
            keys.push(key(rng));
            keys.sort();
            keys.dedup();
        }
        let asked = Arc::new(self.ask(&keys, terms));
        let ending = rng.pick(&[
            Ending::Responds,
            Ending::Responds,
            Ending::Responds,
            Ending::Responds,
            Ending::Fails,
            Ending::Panics,
            Ending::ReleasesEarly,
            Ending::TakesOver,
        ]);
        let progress = Arc::new(Progress {
            has_begun: AtomicBool::new(false),
            running: Arc::clone(&self.running),
        });
        let job = Job {
            environment: self.environment.clone(),
            keys,
            terms,
            work: around(rng, self.environment.work()),
            ending,
            rules: self.rules,
            lock: None,
            progress: Arc::clone(&progress),
            asked: Arc::clone(&asked),
        };
        let call = self.calls.clone().oneshot(job);
        let cancel = rng
            .chance(400_000)
            .then(|| Cancel::draw(rng, &self.environment.scale))
            .filter(|_| !self.must_stay());
        // A panic of the inner service comes to the caller.
        let task = tokio::spawn(async move {
            match cancel {
                None => Some(call.await),
                Some(cancel) => cancel.run(call).await,
            }
        });
        let has_begun = || progress.has_begun.load(Relaxed);
        match task.await {
            Ok(Some(outcome)) => self.judge(&asked, ending, has_begun(), outcome),
            Ok(None) => self
                .environment
                .note(match (has_begun(), self.rules.is_detached) {
                    (false, _) => Seen::CallerLeftWaiting,
                    (true, false) => Seen::CallerLeftRunning,
                    (true, true) => Seen::CallerLeftDetached,
                }),
            Err(error) => {
                self.environment.note(Seen::CallPanicked);
                if !error.is_panic() || ending != Ending::Panics {
                    let text = format_args!("a call ended as {error:?}");
                    self.environment.fail(text);
                }
            }
        }
    }

    /// Returns whether callers wait for the end of their calls. After the faults, they do if the lock of a call that is
    /// cut off is kept for a ttl: a few such locks would take all the time in which everybody must be served.
    fn must_stay(&self) -> bool {
        self.rules.on_cancel == OnCancel::Expire && self.environment.stages.has_come(Stage::Calm)
    }

    fn ask(&self, keys: &[String], terms: Terms) -> Asked {
        let host = Arc::clone(&self.environment.host);
        let requests = &self.environment.records.requests;
        let ticket = requests.begin(
            self.service.id,
            keys.to_vec(),
            Order::Unwatched,
            move || host.now(),
        );
        Asked {
            environment: self.environment.clone(),
            service: self.service.clone(),
            terms,
            ticket,
            at: self.environment.host.timestamp(),
            keys: if keys.len() > 1 {
                Keys::Several
            } else {
                Keys::Shared
            },
        }
    }

    fn judge(
        &self,
        asked: &Asked,
        ending: Ending,
        has_begun: bool,
        outcome: Result<(), LockError<Fails>>,
    ) {
        let environment = &self.environment;
        environment.tell(("call", has_begun, outcome.is_ok()));
        let error = match outcome {
            Ok(()) => {
                environment.note(Seen::CallServed);
                if !has_begun {
                    environment.fail("a call was answered that the service has not seen");
                }
                return;
            }
            Err(error) => error,
        };
        if error.was_called() != has_begun {
            environment.fail(format_args!(
                "called: {has_begun}, and the error is {error}"
            ));
        }
        match error {
            LockError::Inner(Fails) => {
                environment.note(Seen::CallFailed);
                if ending != Ending::Fails {
                    environment.fail("a call fails that should not");
                }
            }
            LockError::Lost(reason) => {
                environment.note(Seen::CallLost);
                if self.rules.on_lost == OnLost::Signal {
                    environment.fail(format_args!("a call fails by a loss: {reason}"));
                }
            }
            LockError::QueueFull(refusal) if self.rules.max_waiters < usize::MAX => {
                environment.note(Seen::CallQueueFull);
                environment.tell(("queue full", refusal.error.to_string()));
            }
            LockError::Contended(refusal)
            | LockError::QueueFull(refusal)
            | LockError::WaitTooLong(refusal) => asked.judge(&refusal.error),
            LockError::Unavailable(error) => {
                if self.rules.fails_open && asked::is_outage(&error) {
                    environment.fail(format_args!("fail_open did not help: {error}"));
                }
                asked.judge(&error);
            }
            LockError::Misconfigured(error) => {
                asked.judge(&redlock_tokio::LockError::InvalidOptions(error));
            }
            error => environment.fail(format_args!("a call ended as {error}")),
        }
    }
}

/// The inner service.
async fn serve(mut job: Job) -> Result<(), Fails> {
    let lock = job.lock.take();
    let mut mark = Mark::new(&job, lock.as_ref());
    let mut owned: Option<LockGuard> = None;
    sleep(job.work).await;
    match (job.ending, lock) {
        (Ending::ReleasesEarly, Some(lock)) => {
            job.environment.note(Seen::CallReleasedEarly);
            mark.give_up();
            lock.release_early().await;
        }
        (Ending::TakesOver, Some(lock)) => {
            owned = lock.into_owned();
            job.environment.note(Seen::CallTookOver);
            if owned.is_none() {
                job.environment.fail("a call that runs has no guard");
            }
            sleep(job.work).await;
        }
        (Ending::Panics, _) => {
            mark.ending = Some(Ending::Panics);
            std::panic::panic_any(INTENDED)
        }
        _ => {}
    }
    mark.ending = Some(job.ending);
    drop(mark);
    drop(owned);
    if job.ending == Ending::Fails {
        Err(Fails)
    } else {
        Ok(())
    }
}

impl Mark {
    fn new(job: &Job, lock: Option<&Locked>) -> Self {
        let environment = job.environment.clone();
        job.progress.has_begun.store(true, Relaxed);
        job.progress.running.fetch_add(1, Relaxed);
        let registry = &environment.records.registry;
        let hold = lock.map(|lock| registry.begin(&environment.host, lock.hold(), false));
        environment.tell(("call begins", hold));
        if hold.is_some() {
            environment.note(Seen::Acquired);
        } else {
            environment.note(Seen::CallWithoutLock);
            let is_quiet = environment.records.quiet.since(job.asked.ticket.since());
            if !job.rules.fails_open || is_quiet {
                environment.fail("a call runs without a lock");
            }
        }
        Self {
            environment,
            rules: job.rules,
            progress: Arc::clone(&job.progress),
            has_lock: hold.is_some(),
            hold,
            ending: None,
            _asked: Arc::clone(&job.asked),
        }
    }

    /// Notes that the call no longer relies on its lock.
    fn give_up(&mut self) {
        if let Some(hold) = self.hold.take() {
            self.environment.records.registry.give_up(hold);
        }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.give_up();
        self.progress.running.fetch_sub(1, Relaxed);
        let registry = &self.environment.records.registry;
        let is_cut_off = self.ending.is_none() && !registry.has_ended(&self.environment.host);
        if is_cut_off {
            self.environment.note(Seen::CallCutOff);
            // A call without a lock runs in its caller, also in the detached mode.
            let is_detached = self.rules.is_detached && self.has_lock;
            if is_detached && self.rules.on_lost != OnLost::Cancel {
                let text = "a detached call is cut off, and not by the loss of its lock";
                self.environment.fail(text);
            }
        }
    }
}
