//! Users in a hurry, users that oversleep, and crowds.

use std::time::Duration;

use super::{
    terms::{Terms, around},
    user::User,
};

/// How many requests come at once. An estimate needs eight holds, and the queue is not empty by then.
const CROWD: u32 = 16;

/// How long each of a crowd keeps the lock, on average.
const SHORT_WORK: Duration = Duration::from_millis(20);

impl User {
    /// Wants a lock for so short a time that it may be over before a majority has answered.
    pub(super) async fn lock_in_a_hurry(&mut self) {
        let key = self.key();
        let terms = Terms::hurried(&mut self.rng, &self.environment);
        if let Some(kept) = self.lock_key(&key, terms).await {
            kept.view().write();
        }
    }

    /// Writes long after the lock is over, as a user that was asleep. Others may have written since.
    pub(super) async fn oversleep(&mut self) {
        let key = self.key();
        let terms = Terms::drowsy(&self.environment);
        if let Some(kept) = self.lock_key(&key, terms).await {
            kept.view().write();
            let length = self.environment.scale.max_ttl;
            self.environment.pause(&mut self.rng, length).await;
            kept.view().write();
        }
    }

    /// Makes many requests for one key at once, and meanwhile some that do not want to wait for long.
    pub(super) async fn crowd(&mut self) {
        let key = self.key();
        let members: Vec<_> = (0..CROWD)
            .map(|_| tokio::spawn(self.fork().lock_briefly(key.clone())))
            .collect();
        for _ in 0..8 {
            self.environment.pause(&mut self.rng, SHORT_WORK * 3).await;
            let terms = Terms::usual(&self.environment).wait(Duration::from_millis(1));
            drop(self.lock_key(&key, terms).await);
        }
        for member in members {
            // The hook has noted a panic.
            let _ = member.await;
        }
    }

    async fn lock_briefly(mut self, key: String) {
        let terms = Terms::usual(&self.environment);
        let kept = self.lock_key(&key, terms).await;
        if kept.is_some() {
            let work = SHORT_WORK / 2 + around(&mut self.rng, SHORT_WORK / 2);
            tokio::time::sleep(work).await;
        }
    }
}
