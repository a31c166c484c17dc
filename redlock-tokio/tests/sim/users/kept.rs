//! A guard in the hands of a user, who checks what the guard says.

use std::time::Duration;

use futures::FutureExt;
use redlock_tokio::{
    Acquisition, ExtendError, Hold, LockGuard, LossReason, ReleaseOutcome, Timestamp, Token,
};
use tokio::task::AbortHandle;

use super::{
    asked::{self, Asked, Keys},
    environment::Environment,
    terms::Terms,
};
use crate::{
    judge::HoldId,
    registry::{Registry, Write},
    requests::ServiceId,
    seen::Seen,
};

/// A guard whose end is noted before it is dropped.
pub(crate) struct Kept {
    guard: Option<LockGuard>,
    watcher: Option<AbortHandle>,
    view: View,
    /// Dropped after the guard: until then, the request keeps others from the key.
    _asked: Asked,
}

/// What a user knows of its lock.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) id: HoldId,
    pub(crate) hold: Hold,
    pub(crate) terms: Terms,
    environment: Environment,
    service: ServiceId,
    /// How many of the nodes that have granted it are not needed. None of another's lock that was handed over.
    spare: usize,
    /// When it was asked for, by the clock of the process.
    asked_at: Timestamp,
    /// When the user got it, by the clock of the process.
    got_at: Timestamp,
    /// When it was asked for, in true time.
    since: u64,
}

/// Whether a task watches for the loss of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    Task,
    Nobody,
}

/// Extensions and timers are this much apart from what a user computes, at most.
const SLACK: Duration = Duration::from_millis(3);

impl Kept {
    pub(crate) fn new(guard: LockGuard, asked: Asked, watch: Watch) -> Self {
        let mut view = View::new(guard.hold(), &asked, watch == Watch::Task);
        let acquisition = guard.acquisition();
        view.check_grant(&acquisition, &asked);
        if let Acquisition::Granted {
            granted_by,
            votes_needed,
            ..
        } = &acquisition
        {
            view.spare = granted_by.len().saturating_sub(*votes_needed);
        }
        let watcher = (watch == Watch::Task).then(|| {
            let view = view.clone();
            tokio::spawn(async move { view.watch().await }).abort_handle()
        });
        Self {
            guard: Some(guard),
            watcher,
            view,
            _asked: asked,
        }
    }

    pub(crate) fn view(&self) -> &View {
        &self.view
    }

    /// Releases the lock, and waits for that.
    pub(crate) async fn release(mut self) -> ReleaseOutcome {
        let Some(guard) = self.take() else {
            return ReleaseOutcome::NotHeld;
        };
        let was_valid = guard.is_valid();
        let outcome = guard.release().await.outcome;
        self.view.check_release(outcome, was_valid);
        outcome
    }

    /// Moves the guard to a place that outlives the runtime.
    pub(crate) fn outlive(self) {
        let environment = self.view.environment.clone();
        let dropping = Box::new(move || self.check_after_runtime());
        let outliving = &environment.records.outliving;
        outliving.push(&environment.host, dropping);
    }

    /// Drops the guard after its runtime has gone. The lock must be lost.
    fn check_after_runtime(self) -> Result<(), String> {
        let hold = &self.view.hold;
        let loss = hold.lost().now_or_never();
        if hold.is_valid() || loss.is_none() {
            let process = self.view.environment.host.process;
            return Err(format!(
                "a lock of process {process} outlives its runtime: {loss:?}"
            ));
        }
        Ok(())
    }

    fn take(&mut self) -> Option<LockGuard> {
        let guard = self.guard.take()?;
        self.view.environment.records.registry.release(self.view.id);
        self.stop_watching();
        Some(guard)
    }

    fn stop_watching(&mut self) {
        if let Some(watcher) = self.watcher.take() {
            watcher.abort();
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl View {
    /// Notes that a user has a lock.
    pub(crate) fn new(hold: &Hold, asked: &Asked, is_watched: bool) -> Self {
        let environment = asked.environment.clone();
        let registry = &environment.records.registry;
        let id = registry.begin(&environment.host, hold, is_watched);
        environment.note(Seen::Acquired);
        environment.tell(("has", id, hold.fencing_token()));
        Self {
            id,
            hold: hold.clone(),
            terms: asked.terms,
            service: asked.service.id,
            spare: 0,
            since: asked.ticket.since(),
            asked_at: asked.at,
            got_at: environment.host.timestamp(),
            environment,
        }
    }

    /// Checks what the world must be like when a lock is granted.
    fn check_grant(&self, acquisition: &Acquisition, asked: &Asked) {
        let (environment, terms) = (&self.environment, &self.terms);
        let fail = |text: &str| environment.fail(format_args!("{text}: {acquisition}"));
        if !self.hold.is_valid() {
            fail("a lock was granted that is not valid");
        }
        if asked.must_be_invalid() || asked.keys == Keys::Bad {
            fail("a lock was granted that is impossible");
        }
        if self.hold.fencing_token().is_some() != terms.is_fenced {
            fail("a lock has a fencing token or not, unlike what its user wants");
        }
        if let Some(other) = asked.ticket.granted() {
            fail(&format!(
                "{other:?} came earlier than {:?}",
                asked.ticket.id
            ));
        }
        match acquisition {
            Acquisition::HandedOver { .. } => {
                environment.note(Seen::HandedOver);
                if terms.is_fenced || asked.keys == Keys::Several {
                    fail("such a lock is never handed over");
                }
                if asked.keys == Keys::Alone {
                    fail("nobody else has this key");
                }
                // A successor needs time to work, and renewal time to fail.
                if self.hold.remaining() + SLACK < terms.ttl / 2 && !self.stood_still() {
                    fail("less than half of the ttl is left");
                }
            }
            Acquisition::Granted {
                granted_by,
                votes_needed,
                attempts,
                ..
            } => {
                if self.hold.remaining() > terms.ttl {
                    fail("a lock is valid for longer than its ttl");
                }
                if granted_by.len() < *votes_needed {
                    fail("too few votes");
                }
                if terms.max_attempts.is_some_and(|most| *attempts > most) {
                    fail("too many attempts");
                }
                let quorum = environment.scale.servers / 2 + 1;
                let keys = self.keys_on_servers();
                if self.is_quiet() && keys.is_some_and(|it| it < quorum) {
                    fail("too few servers have the key");
                }
            }
            _ => fail("an acquisition of an unknown kind"),
        }
    }

    async fn watch(self) {
        let reason = self.hold.lost().await;
        self.environment.records.registry.lost(self.id);
        self.check_loss(reason);
    }

    /// Checks that the world implies the reason of a loss.
    pub(crate) fn check_loss(&self, reason: LossReason) {
        let environment = &self.environment;
        environment.note(asked::loss_seen_as(reason));
        environment.tell(("lost", self.id, format!("{reason:?}")));
        let is_possible = match reason {
            LossReason::MaxHold => self.held_for() + SLACK >= self.terms.max_hold,
            LossReason::Expired => !self.terms.is_renewed || self.nodes_may_fail(),
            LossReason::KeysLost | LossReason::VotesWithdrawn => self.nodes_may_fail(),
            _ => false,
        };
        if !is_possible && !self.stood_still() {
            environment.fail(format_args!(
                "nothing implies that {:?} is lost: {reason}",
                self.id
            ));
        }
        if self.hold.is_valid() {
            environment.fail(format_args!("{:?} is valid, though it is lost", self.id));
        }
    }

    /// Extends the lock, by this ttl or by its own.
    pub(crate) async fn extend(&self, ttl: Option<Duration>) {
        let (before, at) = (self.hold.remaining(), self.environment.host.timestamp());
        let result = match ttl {
            Some(ttl) => self.hold.extend_for(ttl).await,
            None => self.hold.extend().await,
        };
        let passed = self
            .environment
            .host
            .timestamp()
            .saturating_duration_since(at);
        let is_shorter = self.hold.remaining() + passed + SLACK < before;
        match result {
            Ok(()) => {
                self.environment.note(Seen::Extended);
                if is_shorter && self.hold.is_valid() {
                    self.environment
                        .fail(format_args!("an extension has shortened {:?}", self.id));
                }
            }
            Err(error) => self.check_extension(ttl, &error),
        }
    }

    fn check_extension(&self, ttl: Option<Duration>, error: &ExtendError) {
        let environment = &self.environment;
        let kind = asked::extension_kind(error);
        environment.tell(("not extended", self.id, kind));
        let is_too_long = ttl.is_some_and(|it| it > environment.scale.max_ttl);
        let (seen, is_possible) = match error {
            ExtendError::InvalidTtl(_) => (Seen::ExtensionInvalid, is_too_long),
            ExtendError::MaxHold { .. } => (
                Seen::ExtensionAfterMaxHold,
                self.held_for() + SLACK >= self.terms.max_hold,
            ),
            ExtendError::NoQuorum { .. } => (Seen::ExtensionFailed, self.nodes_may_fail()),
            ExtendError::Lost(_) => (Seen::ExtensionTooLate, !self.hold.is_valid()),
            // The guard lives.
            _ => (Seen::ExtensionFailed, false),
        };
        environment.note(seen);
        if !is_possible && !self.stood_still() {
            environment.fail(format_args!(
                "nothing implies that {:?} fails: {error}",
                self.id
            ));
        }
    }

    fn check_release(&self, outcome: ReleaseOutcome, was_valid: bool) {
        let environment = &self.environment;
        environment.tell(("released", self.id, format!("{outcome:?}")));
        let majority = environment.scale.servers / 2 + 1;
        let (seen, is_possible) = match outcome {
            ReleaseOutcome::Released => (
                Seen::ReleaseConfirmed,
                self.keys_on_servers()
                    .is_none_or(|it| it + majority <= environment.scale.servers),
            ),
            ReleaseOutcome::HandedOver => (
                Seen::ReleaseHandedOver,
                was_valid && self.terms.is_handed_over && !self.terms.is_fenced,
            ),
            ReleaseOutcome::NotHeld => (Seen::ReleaseTooLate, !was_valid || self.nodes_may_fail()),
            ReleaseOutcome::Unconfirmed => (Seen::ReleaseUnconfirmed, self.nodes_may_fail()),
            _ => (Seen::ReleaseUnconfirmed, false),
        };
        environment.note(seen);
        if !is_possible && !self.stood_still() {
            environment.fail(format_args!(
                "nothing implies that {:?} is {outcome:?}",
                self.id
            ));
        }
    }

    /// Writes to the resource that the lock protects.
    pub(crate) fn write(&self) {
        let key = String::from_utf8_lossy(self.hold.key().as_bytes()).into_owned();
        let Some(token) = self.hold.fencing_token() else {
            return;
        };
        let write = self
            .environment
            .records
            .registry
            .write(self.id, &key, token);
        self.environment.tell(("writes", self.id, write));
        self.environment.note(match write {
            Write::Taken => Seen::FencedWrite,
            Write::Stale => Seen::StaleWrite,
        });
    }

    /// Checks that a lock whose guard nobody drops ends by itself. Returns whether it has ended.
    pub(crate) fn has_ended_by_itself(&self) -> bool {
        if !self.hold.is_valid() {
            return true;
        }
        let now = self.environment.host.timestamp();
        let longest = self.terms.max_hold + self.environment.scale.max_ttl + SLACK;
        if now.saturating_duration_since(self.got_at) > longest {
            let text = format_args!("{:?} is held for longer than max_hold and a ttl", self.id);
            self.environment.fail(text);
        }
        false
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.environment.records.registry
    }

    fn nodes_may_fail(&self) -> bool {
        let Self {
            service,
            spare,
            since,
            ..
        } = *self;
        let ttl = self.terms.ttl;
        self.environment.nodes_may_fail(service, spare, ttl, since)
    }

    fn is_quiet(&self) -> bool {
        self.environment.records.quiet.since(self.since)
    }

    fn stood_still(&self) -> bool {
        let registry = &self.environment.records.registry;
        registry.stood_still_since(&self.environment.host, self.since)
    }

    /// Returns for how long the lock is held at the most, by the clock of the process.
    fn held_for(&self) -> Duration {
        let now = self.environment.host.timestamp();
        now.saturating_duration_since(self.asked_at)
    }

    /// Returns how many servers have the first key. `None` if a voter is not one server for ever.
    fn keys_on_servers(&self) -> Option<usize> {
        if self.environment.has_owners {
            return None;
        }
        let (key, token): (_, Token) = (self.hold.key(), self.hold.token());
        let network = self.environment.network.lock();
        let at = network.at();
        let addresses = 0..self.environment.scale.servers;
        let machines = addresses.map(|address| network.machine(address));
        let have = machines.filter(|machine| network.servers[*machine].holds(at, key, token));
        Some(have.count())
    }
}
