//! Users that read or write under a lock of readers and writers, whose key others lock, too.

use std::time::Duration;

use super::{cancel::Cancel, terms::Terms, user::User};
use crate::{requests::Keys, seen::Seen};

impl User {
    /// Reads or writes, under terms that suit that.
    pub(super) async fn read_or_write_sometimes(&mut self, terms: Terms) {
        let key = self.key();
        let kind = self.rng.pick(&[Keys::Read, Keys::Read, Keys::Write]);
        let terms = terms.impatient_sometimes(&mut self.rng);
        let terms = match kind {
            Keys::Write => terms.fenced_sometimes(&mut self.rng),
            _ => terms,
        };
        self.read_or_write(kind, key, terms).await;
    }

    /// Reads or writes. A request that must be served is not cancelled.
    pub(super) async fn read_or_write(&mut self, kind: Keys, key: String, terms: Terms) {
        let environment = self.environment.clone();
        let is_read_elsewhere = || {
            let registry = environment.registry();
            registry.is_read_elsewhere(&environment.host, &key)
        };
        let cancel = match terms.wait {
            Duration::MAX => Cancel::Never,
            _ => self.cancel_sometimes(),
        };
        let lock = self.service.redlock.rw_lock(&key);
        let request = match kind {
            Keys::Read => lock.read(),
            _ => lock.write(),
        };
        let was_read_elsewhere = is_read_elsewhere();
        let asked = self.ask_as(kind, std::slice::from_ref(&key), terms);
        let request = request.options(terms.options());
        let Some(kept) = self.wait_for(request, asked, cancel).await else {
            return;
        };
        if kind == Keys::Read {
            if is_read_elsewhere() {
                environment.note(Seen::ReadBesideRead);
            }
        } else {
            if was_read_elsewhere {
                environment.note(Seen::WriteAfterRead);
            }
            if self.rng.chance(300_000) {
                let work = environment.work();
                environment.pause(&mut self.rng, work / 4).await;
                let cancel = self.cancel_sometimes();
                kept.downgrade(cancel).await;
            }
        }
        self.work_under(kept).await;
    }
}
