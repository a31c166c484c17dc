//! Locks that users give away, and others adopt.

use std::{sync::Arc, time::UNIX_EPOCH};

use redlock_tokio::{
    LockError, LockGuard, LockTicket,
    errors::{AdoptError, TicketError},
};

use super::{asked::Asked, cancel::Cancel, kept::Kept, terms::Terms, user::User};
use crate::{requests::Keys, seen::Seen};

/// The tickets that are under way between users.
#[derive(Default)]
pub(crate) struct Tickets(Vec<Sent>);

/// How many are under way at most. The oldest are lost.
const MAX_TICKETS: usize = 8;

struct Sent {
    ticket: LockTicket,
    /// The key as users name it.
    key: String,
    /// When the lock was given away, in true time.
    at: u64,
    /// How often anybody has tried to adopt the lock, and how often that has succeeded.
    tries: u32,
    adoptions: u32,
}

impl Tickets {
    fn send(&mut self, sent: Sent) {
        self.0.push(sent);
        if self.0.len() > MAX_TICKETS {
            self.0.remove(0);
        }
    }
}

impl User {
    /// Gives a lock away, if that is possible. In quiet times the user adopts it at once.
    pub(super) async fn give(&mut self, kept: Kept) {
        let (environment, view) = (self.environment.clone(), Arc::clone(kept.view()));
        let key = view.hold.key().as_bytes();
        let key = key.strip_prefix(self.service.redlock.prefix());
        let key = String::from_utf8_lossy(key.expect("it has the prefix")).into_owned();
        let was_valid = view.hold.is_valid();
        let ticket = match kept.give() {
            Ok(ticket) => ticket,
            Err(TicketError::Lost(_)) if !was_valid => return,
            Err(TicketError::Shared { .. }) if view.is_shared() => return,
            Err(error) => return environment.fail(format_args!("not given away: {error}")),
        };
        environment.tell(("given away", view.id));
        let token = view.hold.token();
        // Nobody releases it.
        environment.network.lock().releases.settle(token);
        let sent = Sent {
            ticket,
            key,
            at: environment.now(),
            tries: 0,
            adoptions: 0,
        };
        if environment.is_calm() {
            drop(self.adopt(sent).await);
        } else {
            environment.records.tickets.lock().send(sent);
        }
    }

    /// Adopts a lock that some user has given away, perhaps one that was adopted before.
    pub(super) async fn adopt_and_work(&mut self) {
        let tickets = self.environment.records.tickets.clone();
        let now = self.environment.now();
        let sent = {
            let tickets = &mut tickets.lock().0;
            let index = self.rng.usize(..tickets.len().max(1));
            // The giver's time may be ahead of this process.
            let has_arrived = tickets.get(index).is_some_and(|it| it.at <= now);
            has_arrived.then(|| tickets.remove(index))
        };
        let Some(sent) = sent else {
            return;
        };
        if let Some(kept) = self.adopt(sent).await {
            self.work_under(kept).await;
        }
    }

    async fn adopt(&mut self, mut sent: Sent) -> Option<Kept> {
        let environment = self.environment.clone();
        let mut terms = Terms::usual(&environment);
        if self.rng.chance(200_000) || sent.ticket.fencing_token().is_some() {
            terms = terms.fenced();
        }
        let asked = self.ask_as(Keys::Adopted, std::slice::from_ref(&sent.key), terms);
        // A lock that nobody adopts outlives the processes.
        let cancel = match environment.is_calm() {
            true => Cancel::Never,
            false => self.cancel_sometimes(),
        };
        let adoption = self.service.redlock.adopt(sent.ticket.clone());
        let adoption = adoption.options(terms.options());
        sent.tries += 1;
        let outcome = cancel.run(adoption.into_future()).await;
        sent.adoptions += u32::from(matches!(outcome, Some(Ok(_))));
        self.judge(&asked, &sent, outcome.as_ref());
        if self.rng.chance(500_000) && !environment.is_calm() {
            // It is delivered twice.
            environment.records.tickets.lock().send(sent);
        }
        let guard = outcome?.ok()?;
        self.keep(&asked, Ok(guard))
    }

    /// Judges the end of an adoption. `None` if it was cancelled.
    fn judge(&self, asked: &Asked, sent: &Sent, outcome: Option<&Result<LockGuard, AdoptError>>) {
        let (environment, host) = (&self.environment, &self.environment.host);
        let end = sent.ticket.expires_at().duration_since(UNIX_EPOCH);
        let is_over = end.is_ok_and(|end| end <= host.wall());
        let is_quiet = environment.is_quiet(sent.at);
        let (seen, is_possible) = match outcome {
            None => (Seen::AdoptionCancelled, true),
            Some(Ok(_)) => (Seen::Adopted, self.may_adopt(sent)),
            Some(Err(AdoptError::Expired)) => (Seen::TicketExpired, is_over),
            Some(Err(AdoptError::Gone(_))) => (Seen::TicketUsed, !is_quiet || sent.tries > 1),
            Some(Err(AdoptError::Lock(LockError::TooSlow(_)))) => (Seen::TooSlow, !is_quiet),
            Some(Err(AdoptError::Lock(error))) => {
                asked.judge(error);
                (Seen::AdoptionFailed, true)
            }
            Some(Err(_)) => (Seen::AdoptionFailed, false),
        };
        environment.note(seen);
        environment.tell((self.id, "adopts", seen, sent.tries));
        if !is_possible && !environment.stood_still_since(sent.at) {
            environment.fail(format_args!(
                "nothing implies this of an adoption: {outcome:?}, after {} others",
                sent.adoptions
            ));
        }
    }

    /// Returns whether this is the first adoption, or a late request has brought the giver's token back.
    fn may_adopt(&self, sent: &Sent) -> bool {
        let token = sent.ticket.giver().token().expect("of this crate");
        let network = self.environment.network.lock();
        sent.adoptions == 1 || network.releases.came_back(token)
    }
}
