//! Users that read or write under a lock of readers and writers, whose key others lock, too.

use std::time::Duration;

use super::{cancel::Cancel, terms::Terms, user::User};
use crate::{registry::Share, requests::Keys, seen::Seen};

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
        let elsewhere = || {
            let registry = environment.registry();
            registry.reader_elsewhere(&environment.host, &key)
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
        let before = elsewhere();
        let asked = self.ask_as(kind, std::slice::from_ref(&key), terms);
        let request = request.options(terms.options());
        let Some(kept) = self.wait_for(request, asked, cancel).await else {
            return;
        };
        if kind == Keys::Read {
            environment.note(Seen::Read);
            match elsewhere() {
                Some(Share::Reader) => environment.note(Seen::ReadBesideRead),
                Some(Share::Downgraded) => environment.note(Seen::ReadBesideDowngraded),
                None => {}
            }
        } else {
            environment.note(Seen::Write);
            if before.is_some() {
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
