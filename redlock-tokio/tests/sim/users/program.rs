//! What a process does with one `Redlock`, from its start to its shutdown.

use std::time::Duration;

use futures::FutureExt;
use redlock_tokio::{LockError, ShutdownReport};
use tokio::time::sleep;

use super::{
    cancel::Cancel,
    environment::Environment,
    outliving::{Fate, Forgotten},
    terms::around,
    user::User,
};
use crate::{
    clock::{MILLI, SECOND},
    process::Stage,
    quiet::UserId,
    rng::Rng,
    seen::Seen,
    services::{Service, left_after_shutdown},
};

/// Whether a process goes on after a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It starts another `Redlock`.
    AnotherRedlock,
    /// It ends, and boots again later.
    Reboot,
    /// It ends.
    End,
}

/// How much longer than its limit a shutdown may take.
const SLACK: u64 = 5 * MILLI;

/// How much longer than the longest ttl a shutdown without a limit may take: until a request and an attempt to connect
/// have ended that are under way then.
const PROMPT: u64 = 2 * SECOND + SECOND / 5;

/// How often a process looks whether locks of forgotten guards have ended.
const GLANCE: Duration = Duration::from_millis(20);

/// Lets users work with a `Redlock` until the process ends, or somebody shuts the `Redlock` down.
pub(crate) async fn run(environment: &Environment, service: Service, rng: &mut Rng) -> Next {
    let services = &environment.records.services;
    services.lock().watch(&environment.host, &service);
    let mut tasks = Vec::new();
    for user in 0..environment.scale.users {
        let id = UserId {
            process: environment.host.process,
            user,
        };
        let user = User {
            id,
            environment: environment.clone(),
            service: service.clone(),
            rng: rng.fork(),
        };
        tasks.push(tokio::spawn(user.run()));
    }
    let next = wait_for_end(environment, rng).await;
    if next != Next::End {
        environment.note(Seen::ShutDownInTheMiddle);
        shut_down_early(environment, &service, rng).await;
    }
    for task in tasks {
        // The hook has noted a panic.
        let _ = task.await;
    }
    drop(environment.take_outliving(|fate, _| fate == Fate::MovedOut));
    service.close(environment.now());
    let may_release_more = may_release_more(environment);
    let mut report = shut_down_promptly(environment, &service, may_release_more).await;
    if may_release_more {
        report = outwait_forgotten(environment, &service, report).await;
    }
    check_last(environment, &service, report);
    next
}

async fn wait_for_end(environment: &Environment, rng: &mut Rng) -> Next {
    let life = around(rng, Duration::from_secs(60));
    tokio::select! {
        biased;
        () = environment.stages.come(Stage::End) => Next::End,
        () = sleep(life) => {
            if !environment.is_calm() {
                return rng.pick(&[Next::AnotherRedlock, Next::Reboot]);
            }
            environment.stages.come(Stage::End).await;
            Next::End
        }
    }
}

/// Shuts a `Redlock` down while its users work.
async fn shut_down_early(environment: &Environment, service: &Service, rng: &mut Rng) {
    let since = environment.now();
    service.close(since);
    let redlock = &service.redlock;
    if rng.bool() {
        let cancel = Cancel::draw(rng, &environment.scale);
        if cancel.run(redlock.shutdown(None)).await.is_none() {
            environment.note(Seen::ShutdownCancelled);
        }
    }
    let since = environment.now();
    let report = if rng.bool() {
        let limit = around(rng, environment.scale.max_ttl / 4);
        let report = redlock.shutdown(limit).await;
        let passed = environment.now() - since;
        let is_late = passed > limit.as_nanos() as u64 * 101 / 100 + SLACK;
        if is_late && !environment.stood_still_since(since) {
            environment.fail(format_args!("a shutdown within {limit:?} took {passed} ns"));
        }
        report
    } else {
        let report = redlock.shutdown(None).await;
        if report.timed_out {
            environment.fail("a shutdown without a limit timed out");
        }
        report
    };
    if report.timed_out {
        environment.note(Seen::ShutdownTimedOut);
    }
    if report.held > 0 {
        environment.note(Seen::ShutdownWhileHeld);
    }
    environment.tell(("shut down", report.held, report.abandoned, report.timed_out));
    let refusal = redlock.try_lock("key-0").now_or_never();
    if !matches!(refusal, Some(Err(LockError::ShutDown))) {
        environment.fail(format_args!("a lock after a shutdown: {refusal:?}"));
    }
}

/// Returns whether locks that nobody uses any more have not ended yet.
fn may_release_more(environment: &Environment) -> bool {
    let host = &environment.host;
    let forgotten = environment.records.outliving.lock().forgotten(host).all;
    forgotten + environment.registry().to_release_later(host) > 0
}

/// Shuts a `Redlock` down that nobody uses any more. A lock that ends meanwhile is released, and most of those releases
/// are waited for, too.
async fn shut_down_promptly(
    environment: &Environment,
    service: &Service,
    may_release_more: bool,
) -> ShutdownReport {
    let since = environment.now();
    let report = service.redlock.shutdown(None).await;
    let passed = environment.now() - since;
    let is_late = passed > environment.max_ttl() + PROMPT && !may_release_more;
    if is_late && !environment.stood_still_since(since) {
        environment.fail(format_args!("the last shutdown took {passed} ns"));
    }
    report
}

/// Waits until the locks of forgotten guards have ended by themselves, and those that are to be released later, and
/// shuts down again: a lock that ended during the first shutdown may have been released after a lane had nothing more
/// to deliver.
async fn outwait_forgotten(
    environment: &Environment,
    service: &Service,
    report: ShutdownReport,
) -> ShutdownReport {
    let host = &environment.host;
    let forgotten = || environment.records.outliving.lock().forgotten(host);
    let Forgotten { held, all } = forgotten();
    let to_release = || environment.registry().to_release_later(host);
    let most = all + to_release();
    // A lock whose end the timers have not noticed yet still counts.
    if most > 0 && !(held..=most).contains(&report.held) {
        let text =
            format_args!("{held} of {all} forgotten locks are held, of {most} in all: {report:?}");
        environment.fail(text);
    }
    if held > 0 {
        environment.note(Seen::ShutdownWhileForgotten);
    }
    environment.tell(("forgotten", held, all));
    while forgotten().all + to_release() > 0 {
        sleep(GLANCE).await;
        environment.drop_ended();
    }
    service.redlock.shutdown(None).await
}

fn check_last(environment: &Environment, service: &Service, report: ShutdownReport) {
    environment.tell(("ended", report.held, report.abandoned));
    if report.held > 0 {
        environment.fail(format_args!("held after a shutdown: {report:?}"));
    }
    let holds = environment.registry().holds_of(&environment.host);
    let tables = service.redlock.tables()();
    if let Some(text) = tables.and_then(|it| left_after_shutdown(&it, holds)) {
        environment.fail(text);
    }
    if report.abandoned > 0 {
        return;
    }
    if !environment.is_calm() {
        environment.note(Seen::ShutdownDelivered);
    }
    let network = environment.network.lock();
    let left = network.keys_left_by(service.id, environment.scale.servers);
    drop(network);
    for key in left {
        environment.fail(format_args!("{key}, and all releases were delivered"));
    }
}
