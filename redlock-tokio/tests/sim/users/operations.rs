//! Users that look who holds a lock, and release locks by force.

use futures::FutureExt;
use redlock_tokio::{Inspection, LossReason, Token, Verdict};
use tokio::time::sleep;

use super::{asked::LAST_ATTEMPT, cancel::Cancel, terms::Terms, user::User};
use crate::{clock::SECOND, seen::Seen};

impl User {
    /// Looks who has a key. A while later, releases by force some of what there was.
    pub(super) async fn inspect(&mut self) {
        let key = if self.rng.chance(200_000) {
            format!("permits-{}", self.rng.usize(..2))
        } else {
            self.key()
        };
        let mut inspection = self.look_up(&key).await;
        let (environment, work) = (self.environment.clone(), self.environment.work());
        environment.pause(&mut self.rng, work / 4).await;
        // In quiet times, all locks of others must be as they say.
        if environment.is_calm() || inspection.holders().is_empty() || self.rng.bool() {
            return;
        }
        if self.rng.bool() {
            inspection.retain(|_| self.rng.bool());
        }
        let cancel = self.cancel_sometimes();
        self.force_unlock(&inspection, cancel).await;
    }

    /// Releases a lock by force that nobody else wants.
    pub(super) async fn force_alone(&mut self) {
        let environment = self.environment.clone();
        let is_quiet = environment.is_quiet(environment.now());
        let fail = |text: &str, inspection: &Inspection| {
            if is_quiet {
                environment.fail(format_args!("{text}: {inspection}"));
            }
        };
        let key = self.unshared_key();
        let terms = Terms::usual(&environment.scale);
        let before = self.look_up(&key).await;
        if before.verdict() != Verdict::Free {
            fail("a new key is not free", &before);
        }
        let Some(mut kept) = self.lock_key(&key, terms).await else {
            return;
        };
        let inspection = self.look_up(&key).await;
        let hold = kept.view().hold.clone();
        match inspection.verdict() {
            Verdict::Held { by, remaining }
                if by.token() == Some(hold.token()) && remaining >= hold.remaining() => {}
            _ => fail("not what the holder has", &inspection),
        }
        // A seat of a cluster that shares its server with another is owed the release, and never gets it.
        if environment.is_calm() && !all_answer(&inspection) {
            return;
        }
        let is_another = self.rng.bool();
        if is_another {
            kept.release(Cancel::Never).await;
            let Some(another) = self.lock_key(&key, terms).await else {
                return;
            };
            kept = another;
        }
        self.force_unlock(&inspection, Cancel::Never).await;
        if terms.is_renewed {
            sleep(terms.ttl / 3 + LAST_ATTEMPT).await;
        } else {
            drop(kept.view().hold.extend().await);
        }
        let loss = kept.view().hold.lost().now_or_never();
        let expected = (!is_another).then_some(LossReason::KeysLost);
        if loss == expected {
            environment.note(match loss {
                Some(_) => Seen::LostByForce,
                None => Seen::SurvivedForce,
            });
        } else {
            fail(&format!("{loss:?} instead of {expected:?}"), &inspection);
        }
    }

    /// Asks who has a key. In quiet times, the answer must be what the holders know. At any time, what is held is not
    /// free.
    async fn look_up(&mut self, key: &str) -> Inspection {
        let (environment, service) = (self.environment.clone(), self.service.clone());
        let holders = || environment.registry().holders(key);
        let (before, since) = (holders(), environment.now());
        let inspection = service.redlock.inspect(key).await;
        let inspection = inspection.expect("the key is good");
        let (after, named) = (holders(), named_by(&inspection));
        environment.tell((self.id, "inspects", inspection.to_string()));
        environment.note(match inspection.verdict() {
            _ if !inspection.permits().is_empty() => Seen::InspectedPermits,
            Verdict::Free => Seen::InspectedFree,
            Verdict::Held { .. } => Seen::InspectedHeld,
            Verdict::Shared { .. } => Seen::InspectedShared,
            _ => Seen::InspectedWithoutMajority,
        });
        let mut lasting = before.iter().filter(|(id, _)| after.contains_key(id));
        // That nobody has the key is said by nodes that cannot have forgotten a lock. A node that answers later may
        // have lost the key, by a foreign client or without extensions, after it was restored on one that has answered
        // before.
        let is_taken = environment.network.lock().foreign_delete_at >= since;
        let took = environment.now() - since;
        let is_soon = took < environment.max_ttl() / 4 && !is_taken;
        if environment.configuration.keeps_keys()
            && inspection.verdict() == Verdict::Free
            && is_soon
        {
            let mut held = lasting.clone();
            let held = held.find(|it| !environment.registry().was_forced(*it.1));
            if let Some(held) = held {
                environment.fail(format_args!("{held:?} holds it: {inspection}"));
            }
        }
        if environment.is_quiet(since) {
            let is_gone = |token: &Token| {
                let released_at = environment.network.lock().releases.released_at(*token);
                released_at.is_some_and(|at| at + SECOND < since)
            };
            // A seat of a cluster may share its server with another, and has no vote then for this process.
            let may_rest_on_others = environment.has_owners() && is_unknown(&inspection);
            let all_are_named =
                lasting.all(|(_, token)| named.contains(token) || may_rest_on_others);
            let all_answer = all_answer(&inspection) || environment.has_owners();
            if !all_are_named || !all_answer || named.iter().any(is_gone) {
                let text = format_args!("{before:?} hold it, and then {after:?}: {inspection}");
                environment.fail(text);
            }
        }
        inspection
    }

    /// Releases by force what was found.
    async fn force_unlock(&mut self, inspection: &Inspection, cancel: Cancel) {
        let environment = &self.environment;
        let holders = inspection.holders();
        for token in holders.iter().filter_map(|it| it.token()) {
            environment.force(token);
        }
        let unlocking = self.service.redlock.force_unlock(inspection);
        let report = cancel.run(unlocking).await;
        let report = report.map(|it| it.nodes);
        environment.note(match &report {
            None => Seen::ForcedCancelled,
            Some(nodes) if nodes.iter().any(|it| it.deleted.is_err()) => Seen::ForcedUnconfirmed,
            Some(nodes) if nodes.iter().all(|it| matches!(it.deleted, Ok(0))) => {
                Seen::ForcedTooLate
            }
            Some(_) => Seen::Forced,
        });
        environment.tell((self.id, "has released by force", format!("{holders:?}")));
    }
}

fn all_answer(inspection: &Inspection) -> bool {
    inspection.nodes().iter().all(|it| it.state.is_ok())
}

/// Returns whether too few nodes have answered to tell all of it.
fn is_unknown(inspection: &Inspection) -> bool {
    verdicts(inspection).any(|it| it == Verdict::Unknown)
}

fn verdicts(inspection: &Inspection) -> impl Iterator<Item = Verdict> {
    let permits = inspection.permits().into_values();
    permits.chain([inspection.verdict()])
}

/// Returns the tokens that have the key, alone or as a reader, or a permit, as the nodes say together.
fn named_by(inspection: &Inspection) -> Vec<Token> {
    let holders = verdicts(inspection).flat_map(|it| match it {
        Verdict::Held { by, .. } => vec![by],
        Verdict::Shared { readers } => readers.into_iter().map(|(reader, _)| reader).collect(),
        _ => Vec::new(),
    });
    holders.filter_map(|it| it.token()).collect()
}
