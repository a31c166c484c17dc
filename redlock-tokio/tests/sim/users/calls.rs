//! The tower layer: a small service behind a `LockLayer`, and callers that go away.

mod inner;
mod progress;
mod rules;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use futures::FutureExt;
use redlock_tokio::{LossReason, WaiterLimit};
use redlock_tower::{CallError, LockLayer, LockRequest, Locked, OnCancel, OnLost, TaskTracker};
use tokio::time::sleep;
use tower::{Layer, ServiceExt, service_fn, util::BoxCloneSyncService};

use self::{
    inner::{Ending, Fails, Job, serve},
    progress::{CallQueue, End, LockAtEnd, Progress},
    rules::Rules,
};
use super::{
    asked::{self, Asked},
    cancel::Cancel,
    environment::Environment,
    service::Service,
    terms::{Terms, around},
};
use crate::{
    process::Stage,
    requests::{Keys, Order},
    rng::Rng,
    seen::Seen,
};

/// A service behind a lock layer, with the rules of the layer. Clones are handles of the same service.
#[derive(Clone)]
pub(crate) struct Counter {
    environment: Environment,
    service: Service,
    calls: BoxCloneSyncService<Job, (), CallError<Fails>>,
    rules: Rules,
    tasks: TaskTracker,
    /// How many calls run in the inner service.
    running: Arc<AtomicUsize>,
    /// The calls that wait behind the layer.
    queue: CallQueue,
}

/// A call that has ended, and its caller knows.
struct Ended<'a> {
    asked: &'a Asked,
    ending: Ending,
    progress: &'a Progress,
    /// How many calls waited behind the layer when this one came.
    before: usize,
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
            .share_hold(|job: &mut Job, lock: Locked| {
                job.progress.leave_queue();
                job.lock = Some(lock);
            });
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
            queue: CallQueue::default(),
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
        let scale = self.environment.scale;
        // Some calls take longer than their locks last.
        let is_long = !self.environment.is_calm() && rng.chance(80_000);
        let (terms, work) = if is_long {
            (Terms::drowsy(&scale), scale.max_ttl / 2)
        } else {
            (Terms::draw(rng, &scale), self.environment.work())
        };
        let key = |rng: &mut Rng| format!("key-{}", rng.usize(..scale.keys));
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
        let ending = match ending {
            Ending::Panics if self.must_stay() => Ending::Fails,
            ending => ending,
        };
        let progress = Arc::new(Progress::new(&self.running));
        let job = Job {
            environment: self.environment.clone(),
            keys,
            terms,
            work: around(rng, work),
            ending,
            rules: self.rules,
            lock: None,
            progress: Arc::clone(&progress),
            asked: Arc::clone(&asked),
        };
        let call = self.calls.clone().oneshot(job);
        let cancel = if rng.chance(400_000) && !self.must_stay() {
            Cancel::draw(rng, &scale)
        } else {
            Cancel::Never
        };
        let (watched, queue) = (Arc::clone(&progress), self.queue.clone());
        // A panic of the inner service comes to the caller.
        let task = tokio::spawn(async move {
            let call = watched.run(call, queue);
            cancel.run(call).await
        });
        let has_begun = || progress.has_begun.load(Relaxed);
        match task.await {
            Ok(Some((outcome, before))) => {
                let ended = Ended {
                    asked: &asked,
                    ending,
                    progress: &progress,
                    before,
                };
                self.judge(&ended, outcome);
            }
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

    /// Returns whether calls run to their end, without a panic and with their callers. After the faults, they do if the
    /// lock of a call that is cut off is kept for a ttl: a few such locks would take all the time in which everybody must
    /// be served.
    fn must_stay(&self) -> bool {
        self.rules.on_cancel == OnCancel::Expire && self.environment.stages.has_come(Stage::Calm)
    }

    fn ask(&self, keys: &[String], terms: Terms) -> Asked {
        let host = Arc::clone(&self.environment.host);
        let requests = &self.environment.records.requests;
        let open = requests.begin(
            self.service.id,
            keys.to_vec(),
            Order::Unwatched,
            move || host.now(),
        );
        Asked {
            environment: self.environment.clone(),
            service: self.service.clone(),
            terms,
            open,
            at: self.environment.host.timestamp(),
            keys: if keys.len() > 1 {
                Keys::Several
            } else {
                Keys::Shared
            },
        }
    }

    fn judge(&self, ended: &Ended<'_>, outcome: Result<(), CallError<Fails>>) {
        let (environment, asked) = (&self.environment, ended.asked);
        let has_begun = ended.progress.has_begun.load(Relaxed);
        environment.tell(("call", has_begun, outcome.is_ok()));
        self.judge_end(ended, &outcome);
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
            CallError::Inner(Fails) => {
                environment.note(Seen::CallFailed);
                if ended.ending != Ending::Fails {
                    environment.fail("a call fails that should not");
                }
            }
            CallError::Lost(reason) => self.judge_loss(ended, reason),
            CallError::QueueFull(refusal) => self.judge_full_queue(ended, &refusal.error),
            CallError::Contended(refusal) => {
                asked.judge(&refusal.error);
            }
            CallError::Unavailable(error) => {
                if self.rules.fails_open && asked::is_outage(&error) {
                    environment.fail(format_args!("fail_open did not help: {error}"));
                }
                asked.judge(&error);
            }
            CallError::Misconfigured(error) => {
                asked.judge(&redlock_tokio::LockError::InvalidOptions(error));
            }
            error => environment.fail(format_args!("a call ended as {error}")),
        }
    }

    /// Checks that a call fails by a loss if its lock was lost while the layer had it, and only then.
    fn judge_end(&self, ended: &Ended<'_>, outcome: &Result<(), CallError<Fails>>) {
        let Some(&End { is_cut_off, lock }) = ended.progress.end.get() else {
            return;
        };
        let on_lost = self.rules.on_lost;
        let must_fail = on_lost != OnLost::Signal && lock == LockAtEnd::Lost;
        let fails = matches!(outcome, Err(CallError::Lost(_)));
        let is_wrongly_cut_off = is_cut_off && (on_lost != OnLost::Cancel || !must_fail);
        if fails != must_fail || is_wrongly_cut_off {
            self.environment.fail(format_args!(
                "a call ended as {outcome:?}, its lock was {lock:?}, cut off: {is_cut_off}, {on_lost:?}"
            ));
        }
        if must_fail && !is_cut_off {
            self.environment.note(Seen::CallEndedAfterLoss);
        }
    }

    fn judge_loss(&self, ended: &Ended<'_>, reason: LossReason) {
        let environment = &self.environment;
        environment.note(Seen::CallLost);
        let Some(view) = ended.progress.view.get() else {
            return environment.fail(format_args!("a call without a lock has lost it: {reason}"));
        };
        view.check_loss(reason);
        let recorded = view.hold.lost().now_or_never();
        if recorded != Some(reason) {
            environment.fail(format_args!(
                "a call fails by a loss, {reason}, and the loss was {recorded:?}"
            ));
        }
    }

    /// Checks that at least as many calls wait as a refusal says.
    fn judge_full_queue(&self, ended: &Ended<'_>, error: &redlock_tokio::LockError) {
        let (environment, before) = (&self.environment, ended.before);
        environment.tell(("queue full", error.to_string()));
        let redlock_tokio::LockError::QueueFull {
            waiting,
            limit,
            limited_by,
        } = *error
        else {
            return environment.fail(format_args!("a full queue: {error}"));
        };
        let may_be_of_layer = limited_by == WaiterLimit::Total && limit == self.rules.max_waiters;
        // Calls that need not wait for other calls do not count.
        if may_be_of_layer && (limit..=before).contains(&waiting) {
            environment.note(Seen::CallQueueFull);
        } else {
            ended.asked.judge(error);
        }
    }
}
