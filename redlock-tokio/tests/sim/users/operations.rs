//! Users that look who holds a lock, and release locks by force.

use redlock_tokio::{Inspection, Token, Verdict};

use super::{cancel::Cancel, user::User};
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
