//! Users that run jobs once in the whole fleet, and that want to lead it.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use futures::{FutureExt, future::BoxFuture};
use redlock_tokio::{Candidate, Election, Hold, LockError, OnceOutcome, errors::WithLockError};
use tokio::time::{sleep, timeout};

use super::{
    asked::Asked, environment::Environment, terms::Terms, user::User, view::View, work::WorkMark,
};
use crate::seen::Seen;

/// How far the wall clock was ahead that has run each fire time.
pub(crate) type Runs = BTreeMap<u32, Duration>;

impl User {
    /// Runs the job of the last fire time, unless another process does.
    pub(super) async fn run_once(&mut self) {
        let environment = self.environment.clone();
        if environment.is_calm() {
            return;
        }
        let (records, period) = (&environment.records, environment.scale.max_ttl);
        let terms = Terms::usual(&environment).wait(Duration::from_secs(1));
        let number = environment.host.wall().as_nanos() / period.as_nanos();
        let number = u32::try_from(number).expect("less than 2 ^ 32 periods since 1970");
        let asked = self.ask(&[format!("once-{number}")], terms);
        let begun = ahead(&environment);
        let work = environment.work() / 2;
        let once = self
            .service
            .redlock
            .once("job", UNIX_EPOCH + period * number);
        let run = once.options(terms.options()).run(|hold: &Hold| {
            let mark = WorkMark::new(View::new(hold, &asked, true));
            let environment = environment.clone();
            // Less than half of the span, by all clocks.
            let latest = ahead(&environment) + period * 48 / 100;
            let mut runs = environment.records.runs.lock();
            let before = runs.insert(number, ahead(&environment));
            let is_second = before.is_some_and(|before| before <= latest);
            if is_second && ahead(&environment) == begun {
                environment.fail(format_args!("fire time {number} is run again"));
            }
            let host = &environment.host;
            let end = host.when(host.timestamp().saturating_add(period));
            environment.registry().keep(host, end);
            // It is kept for as long as it is valid, and expires by itself then.
            environment.network.lock().releases.settle(hold.token());
            async move {
                sleep(work).await;
                mark.end();
            }
            .boxed()
        });
        let cancel = self.cancel_sometimes();
        let outcome = cancel.run(run).await;
        if ahead(&environment) != begun || matches!(outcome, Some(Err(WithLockError::Lost(_)))) {
            records.runs.lock().remove(&number);
        }
        match outcome {
            Some(Ok(OnceOutcome::Ran(()))) => environment.note(Seen::RanOnce),
            Some(Ok(OnceOutcome::RunElsewhere(_))) => environment.note(Seen::RunElsewhere),
            Some(Ok(OnceOutcome::Missed { .. })) => environment.note(Seen::RunMissed),
            Some(Err(WithLockError::Lock(error))) => asked.judge(&error),
            Some(Err(_)) => environment.note(Seen::WorkDropped),
            None => environment.note(Seen::WorkCancelled),
        }
    }

    /// Wants to lead, for some time.
    pub(super) async fn campaign(&mut self) {
        let environment = self.environment.clone();
        if environment.is_calm() {
            return;
        }
        let terms = Terms::usual(&environment);
        let asked = self.ask(&["leader".to_owned()], terms);
        let election = self
            .service
            .redlock
            .elect("leader")
            .options(terms.options());
        let candidate = Arc::new(election.candidate());
        environment.registry().campaign(&candidate);
        let resigns = self.rng.chance(300_000);
        let leading = lead(election, candidate, asked, resigns);
        let limit = terms.ttl * self.rng.u32(1..=4) / 2;
        match timeout(limit, leading).await {
            Ok(Ok(())) => {}
            Ok(Err(LockError::ShutDown)) if self.service.closed_at().is_some() => {}
            Ok(Err(error)) => environment.fail(format_args!("an election has ended: {error}")),
            Err(_) => environment.note(Seen::CampaignCancelled),
        }
    }
}

/// Leads whenever the process is elected. Owns all that it needs, so that the compiler sees that another thread may run it.
fn lead(
    election: Election,
    candidate: Arc<Candidate>,
    asked: Arc<Asked>,
    resigns: bool,
) -> BoxFuture<'static, Result<(), LockError>> {
    let leading = election.run(move |hold: &Hold| {
        let mark = WorkMark::new(View::new(hold, &asked, true));
        let (environment, candidate) = (asked.environment.clone(), Arc::clone(&candidate));
        if !candidate.is_leader() && hold.is_valid() {
            environment.fail("a leader does not know that it leads");
        }
        let work = environment.work();
        async move {
            sleep(work).await;
            if resigns {
                environment.note(Seen::Resigned);
                candidate.resign();
                sleep(work).await;
            }
            mark.end();
        }
        .boxed()
    });
    leading.boxed()
}

/// Returns by how much a wall clock is ahead of the true time.
fn ahead(environment: &Environment) -> Duration {
    let host = &environment.host;
    host.wall().saturating_sub(Duration::from_nanos(host.now()))
}
