//! What a user knows of its lock, and what it checks.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use redlock_tokio::{
    Acquisition, ExtendError, Hold, Key, LossReason, NodeState, ReleaseOutcome, Timestamp, Token,
};

use super::{
    asked::{self, Asked, LAST_ATTEMPT},
    cancel::Cancel,
    environment::Environment,
};
use crate::{clock::SECOND, judge::HoldId, registry::keys_on_nodes, requests::Keys, seen::Seen};

/// What a user knows of its lock.
pub(crate) struct View {
    pub(crate) id: HoldId,
    pub(crate) hold: Hold,
    pub(crate) asked: Arc<Asked>,
    /// Whether its writer has become a reader.
    is_downgraded: AtomicBool,
    /// Whether it was valid when the work under it ended.
    pub(super) was_valid: AtomicBool,
    /// How many of the nodes that have granted it are not needed. None of another's lock that was handed over.
    spare: usize,
    /// When the user got it, by the clock of the process.
    got_at: Timestamp,
}

/// Extensions and timers are this much apart from what a user computes, at most.
const SLACK: Duration = Duration::from_millis(3);

/// How often another process may get a lock during a wait in quiet times, if it is longer than a line may be out of
/// order.
const MOST_STREAKS: u32 = 10;
const DISORDER: u64 = 5 * SECOND;

/// Several processes that are not called wait for each other's turn, which each of them has once a second at most.
const DISORDER_OF_POLLERS: u64 = 20 * SECOND;

impl View {
    /// Notes that a user has a lock.
    pub(crate) fn new(hold: &Hold, asked: &Arc<Asked>, is_watched: bool) -> Self {
        let environment = &asked.environment;
        let is_shared = asked.keys == Keys::Read;
        let mut registry = environment.registry();
        let id = registry.begin(&environment.host, hold, is_shared, is_watched);
        drop(registry);
        environment.note(Seen::Acquired);
        environment.tell(("has", id, hold.fencing_token()));
        Self {
            id,
            hold: hold.view(),
            asked: Arc::clone(asked),
            is_downgraded: AtomicBool::new(false),
            was_valid: AtomicBool::new(false),
            spare: 0,
            got_at: environment.host.timestamp(),
        }
    }

    /// Notes that the request does not wait any more, and checks that it has overtaken none.
    pub(super) fn check_order(&self) {
        let open = &self.asked.open;
        if let Some(other) = open.granted() {
            let text = format_args!("{other:?} came earlier than {:?}", open.id);
            self.environment().fail(text);
        }
    }

    /// Checks what the world must be like when a lock is granted. Notes which nodes have granted it.
    pub(super) fn check_grant(&mut self, acquisition: &Acquisition) {
        let asked = Arc::clone(&self.asked);
        let (environment, terms) = (&asked.environment, &asked.terms);
        let fail = |text: &str| environment.fail(format_args!("{text}: {acquisition}"));
        if !self.hold.is_valid() {
            fail("a lock was granted that is not valid");
        }
        if terms.is_invalid || asked.keys == Keys::Bad {
            fail("a lock was granted that is impossible");
        }
        if self.hold.fencing_token().is_some() != terms.is_fenced {
            fail("a lock has a fencing token or not, unlike what its user wants");
        }
        self.check_order();
        // A successor needs time to work, and renewal time to fail.
        let is_granted = matches!(acquisition, Acquisition::Granted { .. });
        let is_short = self.hold.remaining() + SLACK < terms.ttl / 2;
        if !is_granted && is_short && !self.stood_still() {
            fail("less than half of the ttl is left");
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
            }
            Acquisition::Joined { .. } => {
                environment.note(Seen::ReadJoined);
                if asked.keys != Keys::Read || !terms.is_handed_over {
                    fail("such a lock is never shared");
                }
            }
            Acquisition::Granted {
                granted_by,
                votes_needed,
                attempts,
                ..
            } => {
                self.spare = granted_by.len().saturating_sub(*votes_needed);
                if self.hold.remaining() > terms.ttl {
                    fail("a lock is valid for longer than its ttl");
                }
                if granted_by.len() < *votes_needed {
                    fail("too few votes");
                }
                if terms.max_attempts.is_some_and(|most| *attempts > most) {
                    fail("too many attempts");
                }
                let streaks = asked.open.note_streak();
                let since = self.since();
                let stands_in_line = asked.keys == Keys::Shared && terms.max_attempts.is_none();
                let disorder = if asked.service.is_notified {
                    DISORDER
                } else {
                    DISORDER_OF_POLLERS
                };
                let is_long = since + disorder < environment.now();
                // It may stand in another line than those for whom another node votes.
                let nodes = asked.service.redlock.nodes();
                let all_vote = nodes.iter().all(|it| it.state == NodeState::Voting);
                if streaks > MOST_STREAKS
                    && stands_in_line
                    && is_long
                    && all_vote
                    && environment.is_quiet(since)
                {
                    fail(&format!(
                        "another process had {streaks} streaks during the wait"
                    ));
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

    pub(super) async fn watch(self: Arc<Self>) {
        let reason = self.hold.lost().await;
        self.environment().registry().lost(self.id);
        self.check_loss(reason);
    }

    /// Checks that the world implies the reason of a loss.
    pub(crate) fn check_loss(&self, reason: LossReason) {
        let environment = self.environment();
        environment.note(asked::loss_seen_as(reason));
        environment.tell(("lost", self.id, format!("{reason:?}")));
        let is_possible = match reason {
            LossReason::MaxHold => self.held_for() + SLACK >= self.asked.terms.max_hold,
            LossReason::Expired => !self.asked.terms.is_renewed || self.nodes_may_fail(),
            LossReason::KeysLost | LossReason::VotesWithdrawn => self.nodes_may_fail(),
            _ => false,
        };
        self.check_cause(is_possible, format_args!("is lost: {reason}"));
        if self.hold.is_valid() {
            environment.fail(format_args!("{:?} is valid, though it is lost", self.id));
        }
    }

    /// Waits for the loss of the lock, or gives that up.
    pub(crate) async fn lost(&self, cancel: Cancel) {
        match cancel.run(self.hold.lost()).await {
            Some(reason) => self.check_loss(reason),
            None => self.environment().note(Seen::LossWatchCancelled),
        }
    }

    /// Extends the lock, by this ttl or by its own.
    pub(crate) async fn extend(&self, ttl: Option<Duration>, cancel: Cancel) {
        let (before, at) = (self.hold.remaining(), self.environment().host.timestamp());
        let hold = &self.hold;
        let result = match ttl {
            Some(ttl) => cancel.run(hold.extend_for(ttl)).await,
            None => cancel.run(hold.extend()).await,
        };
        let host = &self.environment().host;
        let passed = host.timestamp().saturating_duration_since(at);
        let is_shorter = hold.remaining() + passed + SLACK < before;
        if is_shorter && hold.is_valid() {
            self.environment()
                .fail(format_args!("an extension has shortened {:?}", self.id));
        }
        self.check_longest();
        match result {
            Some(Ok(())) => self.environment().note(Seen::Extended),
            Some(Err(error)) => self.check_extension(ttl, &error),
            None => self.environment().note(Seen::ExtensionCancelled),
        }
    }

    pub(crate) fn check_extension(&self, ttl: Option<Duration>, error: &ExtendError) {
        let environment = self.environment();
        let is_too_long = ttl.is_some_and(|it| it > environment.scale.max_ttl);
        let (seen, is_possible) = match error {
            ExtendError::InvalidTtl(_) => (Seen::ExtensionInvalid, is_too_long),
            ExtendError::MaxHold { .. } => (
                Seen::ExtensionAfterMaxHold,
                self.held_for() + SLACK >= self.asked.terms.max_hold,
            ),
            ExtendError::NoQuorum { .. } => (Seen::ExtensionFailed, self.nodes_may_fail()),
            ExtendError::Lost(_) => (Seen::ExtensionTooLate, !self.hold.is_valid()),
            // The guard lives.
            _ => (Seen::ExtensionFailed, false),
        };
        environment.note(seen);
        environment.tell(("not extended", self.id, seen));
        self.check_cause(is_possible, format_args!("fails: {error}"));
    }

    /// Checks how a release has ended. `None` if it was cancelled.
    pub(super) fn check_release(&self, outcome: Option<ReleaseOutcome>, was_valid: bool) {
        let environment = self.environment();
        environment.tell(("released", self.id, format!("{outcome:?}")));
        let majority = environment.scale.servers / 2 + 1;
        let (seen, is_possible) = match outcome {
            None => (Seen::ReleaseCancelled, true),
            Some(ReleaseOutcome::Released) => (
                Seen::ReleaseConfirmed,
                self.keys_on_servers()
                    .is_none_or(|it| it + majority <= environment.scale.servers),
            ),
            Some(ReleaseOutcome::HandedOver) => (
                Seen::ReleaseHandedOver,
                was_valid && self.may_be_handed_over(),
            ),
            Some(ReleaseOutcome::NotHeld) => {
                (Seen::ReleaseTooLate, !was_valid || self.nodes_may_fail())
            }
            Some(ReleaseOutcome::Unconfirmed) => (Seen::ReleaseUnconfirmed, self.nodes_may_fail()),
            Some(_) => (Seen::ReleaseUnconfirmed, false),
        };
        environment.note(seen);
        if let Some(outcome) = outcome {
            self.check_cause(is_possible, format_args!("is {outcome:?}"));
        }
        if self.hold.is_valid() {
            environment.fail(format_args!("{:?} is valid after its release", self.id));
        }
    }

    fn check_cause(&self, is_possible: bool, what: fmt::Arguments<'_>) {
        if !is_possible && !self.stood_still() {
            let text = format_args!("nothing implies that {:?} {what}", self.id);
            self.environment().fail(text);
        }
    }

    /// Notes that the lock is to be released when this time has passed since it was taken, or was released then.
    pub(super) fn note_later_release(&self, time: Duration, asked_at: u64) {
        let (environment, host) = (self.environment(), &self.environment().host);
        let [until, end] =
            [self.held_since(), self.got_at].map(|since| host.when(since.saturating_add(time)));
        let is_over = until <= asked_at;
        environment.tell(("later release", self.id, time));
        environment.note(if is_over {
            Seen::ReleasedLaterThanDue
        } else {
            Seen::ToBeReleasedLater
        });
        // An answer that makes no sense may say that the keys are gone, and then they are released.
        let until = if environment.has_senseless_answers() {
            asked_at
        } else {
            until.max(asked_at)
        };
        self.environment().registry().release_at(self.id, until);
        self.environment().registry().keep(host, end);
        // After its time it is released or handed over at once, and without faults no lock is lost.
        if end > environment.now() && !self.is_quiet() {
            environment.network.lock().releases.delay(self.hold.token());
        }
    }

    /// Returns how long it is until a later release, by the clock of the process.
    pub(super) fn until_release(&self, time: Duration) -> Duration {
        let end = self.got_at.saturating_add(time);
        end.saturating_duration_since(self.environment().host.timestamp())
    }

    /// Notes that others may share the lock of a writer from now on.
    pub(super) fn share(&self) {
        self.is_downgraded.store(true, Relaxed);
        self.environment().registry().share(self.id);
    }

    /// Writes to the resource that the lock protects.
    pub(crate) fn write(&self) {
        self.check_longest();
        let key = self.key_on_nodes();
        let Some(token) = self.hold.fencing_token() else {
            return;
        };
        let is_taken = self.environment().registry().write(self.id, &key, token);
        self.environment().tell(("writes", self.id, is_taken));
        self.environment().note(if is_taken {
            Seen::FencedWrite
        } else {
            Seen::StaleWrite
        });
    }

    /// Returns whether a lock whose guard nobody drops has ended by itself.
    pub(crate) fn has_ended_by_itself(&self) -> bool {
        self.check_longest();
        !self.hold.is_valid()
    }

    /// Checks that the lock is not valid for longer than `max_hold` and a ttl after the grant.
    pub(crate) fn check_longest(&self) {
        let now = self.environment().host.timestamp();
        let until = now.saturating_add(self.hold.remaining());
        // `max_hold` counts from the last reader that joins: within half a ttl of the acquisition, or of the downgrade.
        let joining = match self.asked.keys {
            Keys::Read => self.asked.terms.ttl / 2,
            Keys::Write if self.is_downgraded.load(Relaxed) => {
                self.asked.terms.max_hold + self.asked.terms.ttl / 2
            }
            _ => Duration::ZERO,
        };
        let longest =
            joining + self.asked.terms.max_hold + self.environment().scale.max_ttl + SLACK;
        if self.hold.is_valid() && until.saturating_duration_since(self.got_at) > longest {
            let text = format_args!("{:?} is valid for longer than max_hold and a ttl", self.id);
            self.environment().fail(text);
        }
    }

    pub(super) fn environment(&self) -> &Environment {
        &self.asked.environment
    }

    fn nodes_may_fail(&self) -> bool {
        let was_forced = self.environment().registry().was_forced(self.hold.token());
        was_forced || self.asked.nodes_may_fail(self.spare)
    }

    fn since(&self) -> u64 {
        self.asked.open.since
    }

    /// Returns the earliest time from which `max_hold` may count, by the clock of the process: the start of the attempt
    /// that won, or the moment at which the lock was handed over.
    fn held_since(&self) -> Timestamp {
        self.asked.at.max(self.got_at.saturating_sub(LAST_ATTEMPT))
    }

    fn is_quiet(&self) -> bool {
        self.environment().is_quiet(self.since())
    }

    fn stood_still(&self) -> bool {
        self.environment().stood_still_since(self.since())
    }

    /// Returns for how long the lock is held at the most, by the clock of the process.
    fn held_for(&self) -> Duration {
        let now = self.environment().host.timestamp();
        now.saturating_duration_since(self.held_since())
    }

    /// Returns whether it is no lock of one key that nobody shares.
    pub(super) fn is_shared(&self) -> bool {
        let is_shared = matches!(self.asked.keys, Keys::Read | Keys::Permit | Keys::Several);
        is_shared || self.is_downgraded.load(Relaxed)
    }

    /// Returns whether others of the process may keep the lock after its holder.
    fn may_be_handed_over(&self) -> bool {
        if self.asked.keys == Keys::Adopted {
            return false;
        }
        if self.asked.keys == Keys::Read || self.is_downgraded.load(Relaxed) {
            return true;
        }
        let has_several = self.hold.keys().count() > 1;
        self.asked.terms.is_handed_over && !self.asked.terms.is_fenced && !has_several
    }

    /// Returns the name that nodes have for the first key.
    fn key_on_nodes(&self) -> String {
        keys_on_nodes(&self.hold).swap_remove(0)
    }

    /// Returns how many servers have the first key, without those that have changed since the request began: a promoted
    /// replica may bring the key back. `None` if a voter is not one server for ever.
    fn keys_on_servers(&self) -> Option<usize> {
        if self.environment().has_owners() {
            return None;
        }
        let key = Key::new(self.key_on_nodes()).expect("it was locked");
        let token: Token = self.hold.token();
        let network = self.environment().network.lock();
        let at = network.at();
        let addresses = 0..self.environment().scale.servers;
        let machines = addresses.map(|address| network.machine(address));
        let counted = machines.filter(|it| !network.has_changed(*it, self.since()));
        let have = counted.filter(|machine| network.servers[*machine].holds(at, &key, token));
        Some(have.count())
    }
}
