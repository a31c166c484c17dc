//! A user: does everything that the API offers, at random.

use std::{sync::Arc, time::Duration};

use redlock_tokio::{LockError, LockGuard, errors::NotReady};

use super::{
    asked::Asked,
    cancel::Cancel,
    environment::Environment,
    kept::Kept,
    terms::{Terms, around},
};
use crate::{
    process::Stage,
    quiet::{KINDS, UserId},
    requests::{Keys, OpenRequest},
    rng::Rng,
    seen::Seen,
    services::Service,
};

/// A user, and what it needs.
pub(crate) struct User {
    pub(crate) id: UserId,
    pub(crate) environment: Environment,
    pub(crate) service: Service,
    pub(crate) rng: Rng,
}

impl User {
    /// Uses locks until the process or its `Redlock` ends.
    pub(crate) async fn run(mut self) {
        self.environment.records.quiet.lock().arrive(self.id);
        loop {
            let think = self.environment.scale.think;
            self.environment.pause(&mut self.rng, think).await;
            if self.is_over() {
                break;
            }
            self.look_around();
            self.act().await;
        }
    }

    fn is_over(&self) -> bool {
        self.environment.stages.has_come(Stage::End) || self.service.closed_at().is_some()
    }

    async fn act(&mut self) {
        // The first lock in quiet times must come, however long it takes.
        if self.environment.is_calm() && self.rng.chance(400_000) {
            let terms = Terms::usual(&self.environment).wait(Duration::MAX);
            let key = self.key();
            return match self.rng.pick(&KINDS) {
                Keys::Shared => self.lock_and_work(key, terms).await,
                kind => self.read_or_write(kind, key, terms).await,
            };
        }
        if !self.environment.is_calm() && self.rng.chance(60_000) {
            return match self.rng.u8(..3) {
                0 if !self.environment.has_owners() => self.lock_in_a_hurry().await,
                1 => self.crowd().await,
                _ => self.oversleep().await,
            };
        }
        let terms = Terms::draw(&mut self.rng, &self.environment);
        match self.rng.u8(..25) {
            0..5 => {
                let key = self.key();
                self.lock_and_work(key, terms).await;
            }
            5..8 => self.read_or_write_sometimes(terms).await,
            8 => self.try_lock().await,
            9 => self.acquire_permit(terms).await,
            10 | 11 => self.lock_all(terms).await,
            12 | 13 => {
                let cancel = self.cancel_sometimes();
                self.lock_or_cancel(terms.fenced(), cancel).await;
            }
            14 => self.lock_alone(terms).await,
            15 => self.work_with_lock(terms).await,
            16 | 17 => {
                let cancel = Cancel::draw(&mut self.rng, &self.environment.scale);
                self.lock_or_cancel(terms, cancel).await;
            }
            18 => self.get_ready().await,
            19 => self.adopt_and_work().await,
            20 => self.inspect().await,
            21 => self.release_later_alone().await,
            22 => self.run_once().await,
            23 => self.campaign().await,
            _ => self.lock_and_work(String::new(), terms).await,
        }
    }

    /// Makes another user, which does something at the same time.
    pub(super) fn fork(&mut self) -> Self {
        Self {
            id: self.id,
            environment: self.environment.clone(),
            service: self.service.clone(),
            rng: self.rng.fork(),
        }
    }

    /// Draws when something that is seldom cancelled is cancelled.
    pub(super) fn cancel_sometimes(&mut self) -> Cancel {
        Cancel::sometimes(&mut self.rng, &self.environment.scale)
    }

    pub(super) fn key(&mut self) -> String {
        format!("key-{}", self.rng.usize(..self.environment.scale.keys))
    }

    /// Notes that a request for a lock or a permit joins the queue now.
    pub(super) fn ask(&self, keys: &[String], terms: Terms) -> Arc<Asked> {
        self.ask_as(Keys::of(keys), keys, terms)
    }

    /// Notes that a request of this kind joins the queue now.
    pub(super) fn ask_as(&self, kind: Keys, keys: &[String], terms: Terms) -> Arc<Asked> {
        let host = Arc::clone(&self.environment.host);
        let requests = &self.environment.records.requests;
        let now = move || host.now();
        Arc::new(Asked {
            environment: self.environment.clone(),
            service: self.service.clone(),
            terms,
            open: OpenRequest::begin(requests, self.service.id, kind, keys.to_vec(), now),
            at: self.environment.host.timestamp(),
            keys: kind,
        })
    }

    async fn lock_and_work(&mut self, key: String, terms: Terms) {
        if let Some(kept) = self.lock_key(&key, terms).await {
            self.work_under(kept).await;
        }
    }

    pub(super) async fn lock_key(&mut self, key: &str, terms: Terms) -> Option<Kept> {
        let asked = self.ask(&[key.to_owned()], terms);
        let lock = self.service.redlock.lock(key).options(terms.options());
        let outcome = lock.await;
        self.keep(&asked, outcome)
    }

    /// Makes a request, and may give it up at any moment.
    async fn lock_or_cancel(&mut self, terms: Terms, cancel: Cancel) {
        let key = self.key();
        let lock = self.service.redlock.lock(&key).options(terms.options());
        let asked = self.ask(&[key], terms);
        if let Some(kept) = self.wait_for(lock, asked, cancel).await {
            self.work_under(kept).await;
        }
    }

    async fn try_lock(&mut self) {
        let key = self.key();
        let terms = Terms::usual(&self.environment).wait(Duration::ZERO);
        let cancel = self.cancel_sometimes();
        let redlock = self.service.redlock.clone();
        let asked = self.ask(std::slice::from_ref(&key), terms);
        if let Some(kept) = self.wait_for(redlock.try_lock(key), asked, cancel).await {
            self.work_under(kept).await;
        }
    }

    async fn lock_all(&mut self, terms: Terms) {
        let count = self.rng.usize(2..=3);
        let mut keys: Vec<_> = (0..count).map(|_| self.key()).collect();
        keys.sort();
        keys.dedup();
        let terms = terms.fenced_sometimes(&mut self.rng);
        let cancel = self.cancel_sometimes();
        let asked = self.ask(&keys, terms);
        let lock = self.service.redlock.lock_all(keys).options(terms.options());
        let has_several = asked.keys == Keys::Several;
        if let Some(kept) = self.wait_for(lock, asked, cancel).await {
            if has_several && terms.is_fenced {
                self.environment.note(Seen::LockedAllFenced);
            }
            self.work_under(kept).await;
        }
    }

    /// Takes a permit. Processes disagree on the number of permits now and then.
    async fn acquire_permit(&mut self, terms: Terms) {
        let key = format!("permits-{}", self.rng.usize(..2));
        let permits = if self.rng.chance(50_000) { 3 } else { 2 };
        let semaphore = self.service.redlock.semaphore(&key, permits);
        let terms = terms.fenced_sometimes(&mut self.rng);
        let terms = terms.impatient_sometimes(&mut self.rng);
        let cancel = self.cancel_sometimes();
        let asked = self.ask(&[key], terms);
        let request = semaphore.acquire().options(terms.options());
        if let Some(kept) = self.wait_for(request, asked, cancel).await {
            if kept.view().hold.slot() != Some(0) {
                self.environment.note(Seen::PermitOfAnotherSlot);
            }
            self.work_under(kept).await;
        }
    }

    /// Locks a key that nobody else wants. In quiet times that succeeds at once, again and again.
    async fn lock_alone(&mut self, terms: Terms) {
        let key = self.unshared_key();
        for _ in 0..3 {
            let Some(kept) = self.lock_key(&key, terms).await else {
                return;
            };
            self.environment.note(Seen::LockedAlone);
            if self.rng.bool() {
                kept.release(Cancel::Never).await;
            }
        }
    }

    /// Returns a key that nobody else wants: a new one each time, so that nothing of the one before is needed any more.
    pub(super) fn unshared_key(&mut self) -> String {
        let UserId { process, user } = self.id;
        let life = self.environment.host.life;
        format!("alone-{process}-{life}-{user}-{}", self.rng.u32(..))
    }

    /// Waits for the end of a request, or gives it up. Returns the lock, if there is one.
    pub(super) async fn wait_for<R>(
        &mut self,
        request: R,
        asked: Arc<Asked>,
        cancel: Cancel,
    ) -> Option<Kept>
    where
        R: IntoFuture<Output = Result<LockGuard, LockError>>,
    {
        match cancel.run(request.into_future()).await {
            Some(outcome) => self.keep(&asked, outcome),
            None => {
                self.note_cancelled();
                None
            }
        }
    }

    pub(super) fn note_cancelled(&self) {
        let environment = &self.environment;
        environment.tell((self.id, "cancelled"));
        environment.note(Seen::Cancelled);
    }

    /// Judges the end of a request. Returns the lock, if there is one.
    pub(super) fn keep(
        &mut self,
        asked: &Arc<Asked>,
        outcome: Result<LockGuard, LockError>,
    ) -> Option<Kept> {
        match outcome {
            Ok(guard) => {
                let is_watched = self.rng.chance(700_000);
                // Others give up, or need not be served.
                let environment = &self.environment;
                if asked.terms.wait == Duration::MAX {
                    let mut quiet = environment.records.quiet.lock();
                    quiet.serve(self.id, asked.keys, environment.now());
                }
                Some(Kept::new(guard, asked, is_watched))
            }
            Err(error) => {
                asked.judge(&error);
                None
            }
        }
    }

    async fn get_ready(&mut self) {
        let limit = around(&mut self.rng, self.environment.scale.max_ttl / 2);
        let since = self.environment.now();
        let cancel = self.cancel_sometimes();
        let outcome = cancel.run(self.service.redlock.ready(limit)).await;
        let environment = &self.environment;
        let Some(outcome) = outcome else {
            return environment.note(Seen::ReadyCancelled);
        };
        let is_quiet = environment.is_quiet(since);
        let is_possible = match &outcome {
            Ok(()) => true,
            Err(NotReady::ShutDown) => self.service.closed_at().is_some(),
            Err(_) => !is_quiet,
        };
        if !is_possible {
            environment.fail(format_args!("not ready: {outcome:?}"));
        }
        environment.tell((self.id, "ready", outcome.is_ok()));
    }

    /// Looks at all that a `Redlock` says of itself, and at locks that were forgotten.
    fn look_around(&mut self) {
        let redlock = &self.service.redlock;
        let (queue, nodes) = (redlock.queue(), redlock.nodes());
        let environment = &self.environment;
        let old = environment.now().saturating_sub(8 * environment.max_ttl());
        let requests = &environment.records.requests;
        requests.lock().forget_before(old);
        let alive = requests.lock().alive(self.service.id, u64::MAX);
        let requests = alive.requests;
        let limit = self.service.house.max_waiters_total;
        if queue.waiting > limit || queue.waiting > requests {
            environment.fail(format_args!(
                "{queue:?}, {requests} requests, limit {limit}"
            ));
        }
        if nodes.len() != environment.scale.servers && !environment.has_owners() {
            environment.fail(format_args!("{} nodes", nodes.len()));
        }
        let expected = redlock.expected_wait("key-0");
        environment.tell((self.id, queue.keys, queue.waiting, expected));
        environment.drop_ended();
    }
}
