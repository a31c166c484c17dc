//! The options that a user asks for.

use std::time::Duration;

use redlock_tokio::LockOptions;

use super::environment::Environment;
use crate::{rng::Rng, services::MOST_WAITERS_OF_TERMS};

/// Options, as a user knows them that must judge what follows from them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) ttl: Duration,
    pub(crate) wait: Duration,
    pub(crate) max_hold: Duration,
    pub(crate) max_attempts: Option<u32>,
    /// That of the house if `None`.
    pub(crate) max_waiters: Option<usize>,
    pub(crate) is_renewed: bool,
    pub(crate) is_handed_over: bool,
    pub(crate) is_fenced: bool,
    /// No lock with these options is possible.
    pub(crate) is_invalid: bool,
    /// What the fields above do not say.
    others: LockOptions,
}

impl Terms {
    /// The options of a `Redlock`.
    pub(crate) fn usual(environment: &Environment) -> Self {
        Self {
            ttl: environment.scale.max_ttl,
            wait: Duration::from_secs(5),
            max_hold: 2 * environment.scale.max_ttl,
            max_attempts: None,
            max_waiters: None,
            is_renewed: environment.configuration.renews,
            is_handed_over: true,
            is_fenced: false,
            is_invalid: false,
            others: LockOptions::new(),
        }
    }

    /// Wants a lock for some milliseconds.
    pub(crate) fn hurried(rng: &mut Rng, environment: &Environment) -> Self {
        Self {
            ttl: Duration::from_millis(rng.u64(4..60)),
            wait: around(rng, Duration::from_millis(50)),
            is_renewed: false,
            ..Self::usual(environment)
        }
    }

    /// Wants a lock that ends by itself soon.
    pub(crate) fn drowsy(environment: &Environment) -> Self {
        Self {
            ttl: environment.scale.max_ttl / 4,
            is_renewed: false,
            is_fenced: true,
            ..Self::usual(environment)
        }
    }

    /// Draws any options. Most often the usual ones, so that locks can be handed over.
    pub(crate) fn draw(rng: &mut Rng, environment: &Environment) -> Self {
        let wait = around(rng, environment.scale.max_ttl);
        let mut terms = Self::usual(environment).wait(wait);
        if rng.chance(500_000) {
            return terms;
        }
        for _ in 0..rng.u8(1..=4) {
            if !terms.is_invalid {
                terms.draw_another(rng, environment);
            }
        }
        terms
    }

    fn draw_another(&mut self, rng: &mut Rng, environment: &Environment) {
        match rng.u8(..11) {
            0 | 1 => self.ttl = environment.scale.max_ttl / rng.u32(2..=4),
            2 => self.max_hold = around(rng, environment.scale.max_ttl / 2),
            3 => {
                self.is_renewed = true;
                // Shorter than the shortest ttl, which may come later.
                let interval = environment.scale.max_ttl / rng.u32(6..=20);
                self.others = self.others.renew_every(interval);
            }
            4 => self.is_renewed = false,
            5 => self.is_handed_over = false,
            6 => {
                let max_waiters = rng.usize(..=MOST_WAITERS_OF_TERMS);
                self.max_waiters = Some(max_waiters);
                self.others = self.others.max_waiters_per_key(max_waiters);
            }
            7 => {
                let shortest = Duration::from_millis(rng.u64(1..50));
                self.others = self.others.retry_delay(shortest, 4 * shortest);
            }
            8 => {
                let attempts = rng.u32(..4);
                self.max_attempts = Some(attempts.max(1));
                self.others = self.others.max_attempts(attempts);
            }
            9 => {
                let bound = around(rng, environment.scale.max_ttl / 4);
                self.wait = self.wait.min(bound);
                self.others = self.others.wait_at_most(bound);
            }
            _ => {
                let invalid = self.invalid(rng, environment);
                if rng.chance(200_000) {
                    *self = invalid;
                }
            }
        }
    }

    fn invalid(mut self, rng: &mut Rng, environment: &Environment) -> Self {
        self.is_invalid = true;
        match rng.u8(..4) {
            0 => self.ttl = Duration::ZERO,
            1 if environment.configuration.limits_ttl() => {
                self.ttl = environment.scale.max_ttl + Duration::from_millis(1);
            }
            2 => {
                self.is_renewed = true;
                self.others = self.others.renew_every(environment.scale.max_ttl);
            }
            _ => self.others = self.others.retry_delay(Duration::ZERO, Duration::ZERO),
        }
        self
    }

    /// Returns the options as the API takes them.
    pub(crate) fn options(&self) -> LockOptions {
        let options = self.others.ttl(self.ttl).wait(self.wait);
        let options = options.max_hold(self.max_hold).fenced(self.is_fenced);
        let options = options.handover(self.is_handed_over);
        if self.is_renewed {
            options
        } else {
            options.no_renewal()
        }
    }

    pub(crate) fn wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    pub(crate) fn fenced(self) -> Self {
        Self {
            is_fenced: true,
            ..self
        }
    }

    /// The same with a fencing token, now and then.
    pub(crate) fn fenced_sometimes(mut self, rng: &mut Rng) -> Self {
        self.is_fenced |= rng.chance(300_000);
        self
    }

    /// The same without waiting, now and then.
    pub(crate) fn impatient_sometimes(self, rng: &mut Rng) -> Self {
        if rng.chance(200_000) {
            self.wait(Duration::ZERO)
        } else {
            self
        }
    }
}

pub(crate) fn around(rng: &mut Rng, mean: Duration) -> Duration {
    Duration::from_nanos(rng.around(mean.as_nanos() as u64))
}
