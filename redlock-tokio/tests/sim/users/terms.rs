//! The options that a user asks for.

use std::time::Duration;

use redlock_tokio::LockOptions;

use crate::{rng::Rng, scale::Scale, services::MOST_WAITERS_OF_TERMS};

/// Options, as a user knows them that must judge what follows from them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) options: LockOptions,
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
}

impl Terms {
    /// The options of a `Redlock`.
    pub(crate) fn usual(scale: &Scale) -> Self {
        let (ttl, max_hold) = (scale.max_ttl, 2 * scale.max_ttl);
        let options = LockOptions::new().ttl(ttl).max_hold(max_hold);
        Self {
            options: if scale.renews {
                options
            } else {
                options.no_renewal()
            },
            ttl,
            wait: Duration::from_secs(5),
            max_hold,
            max_attempts: None,
            max_waiters: None,
            is_renewed: scale.renews,
            is_handed_over: true,
            is_fenced: false,
            is_invalid: false,
        }
    }

    /// Waits for a lock for as long as anybody can have to wait.
    pub(crate) fn patient(scale: &Scale) -> Self {
        Self::usual(scale).wait(Duration::MAX)
    }

    /// Wants a lock for some milliseconds.
    pub(crate) fn hurried(rng: &mut Rng, scale: &Scale) -> Self {
        let ttl = Duration::from_millis(rng.u64(4..60));
        let wait = around(rng, Duration::from_millis(50));
        Self::usual(scale).wait(wait).ttl(ttl).unrenewed()
    }

    /// Wants a lock that ends by itself soon.
    pub(crate) fn drowsy(scale: &Scale) -> Self {
        Self::usual(scale)
            .ttl(scale.max_ttl / 4)
            .unrenewed()
            .fenced()
    }

    /// Waits for a moment only.
    pub(crate) fn impatient(scale: &Scale) -> Self {
        Self::usual(scale).wait(Duration::from_millis(1))
    }

    /// Draws any options. Most often the usual ones, so that locks can be handed over.
    pub(crate) fn draw(rng: &mut Rng, scale: &Scale) -> Self {
        let wait = around(rng, scale.max_ttl);
        let mut terms = Self::usual(scale).wait(wait);
        if rng.chance(500_000) {
            return terms;
        }
        for _ in 0..rng.u8(1..=4) {
            terms = terms.with_another(rng, scale);
        }
        terms
    }

    fn with_another(self, rng: &mut Rng, scale: &Scale) -> Self {
        if self.is_invalid {
            return self;
        }
        match rng.u8(..11) {
            0 | 1 => self.ttl(scale.max_ttl / rng.u32(2..=4)),
            2 => self.max_hold(around(rng, scale.max_ttl / 2)),
            3 => {
                // Shorter than the shortest ttl, which may come later.
                let options = self.options.renew_every(scale.max_ttl / rng.u32(6..=20));
                Self {
                    options,
                    is_renewed: true,
                    ..self
                }
            }
            4 => self.unrenewed(),
            5 => Self {
                options: self.options.handover(false),
                is_handed_over: false,
                ..self
            },
            6 => {
                let max_waiters = rng.usize(..=MOST_WAITERS_OF_TERMS);
                Self {
                    options: self.options.max_waiters_per_key(max_waiters),
                    max_waiters: Some(max_waiters),
                    ..self
                }
            }
            7 => {
                let shortest = Duration::from_millis(rng.u64(1..50));
                self.set(self.options.retry_delay(shortest, 4 * shortest))
            }
            8 => {
                let attempts = rng.u32(..4);
                Self {
                    options: self.options.max_attempts(attempts),
                    max_attempts: Some(attempts.max(1)),
                    ..self
                }
            }
            9 => {
                let bound = around(rng, scale.max_ttl / 4);
                Self {
                    options: self.options.wait_at_most(bound),
                    wait: self.wait.min(bound),
                    ..self
                }
            }
            _ => self.invalid(rng, scale),
        }
    }

    fn invalid(self, rng: &mut Rng, scale: &Scale) -> Self {
        let options = match rng.u8(..4) {
            0 => self.options.ttl(Duration::ZERO),
            1 if scale.limits_ttl => self.options.ttl(scale.max_ttl + Duration::from_millis(1)),
            2 => self.options.renew_every(scale.max_ttl),
            _ => self.options.retry_delay(Duration::ZERO, Duration::ZERO),
        };
        let is_invalid = rng.chance(200_000);
        if is_invalid {
            Self {
                options,
                is_invalid,
                ..self
            }
        } else {
            self
        }
    }

    pub(crate) fn wait(self, wait: Duration) -> Self {
        Self {
            options: self.options.wait(wait),
            wait,
            ..self
        }
    }

    pub(crate) fn max_hold(self, max_hold: Duration) -> Self {
        Self {
            options: self.options.max_hold(max_hold),
            max_hold,
            ..self
        }
    }

    /// The same with a fencing token, now and then.
    pub(crate) fn fenced_sometimes(self, rng: &mut Rng) -> Self {
        if rng.chance(300_000) {
            self.fenced()
        } else {
            self
        }
    }

    /// The same without waiting, now and then.
    pub(crate) fn impatient_sometimes(self, rng: &mut Rng) -> Self {
        if rng.chance(200_000) {
            self.wait(Duration::ZERO)
        } else {
            self
        }
    }

    pub(crate) fn fenced(self) -> Self {
        Self {
            options: self.options.fenced(true),
            is_fenced: true,
            ..self
        }
    }

    fn unrenewed(self) -> Self {
        Self {
            options: self.options.no_renewal(),
            is_renewed: false,
            ..self
        }
    }

    fn ttl(self, ttl: Duration) -> Self {
        Self {
            options: self.options.ttl(ttl),
            ttl,
            ..self
        }
    }

    fn set(self, options: LockOptions) -> Self {
        Self { options, ..self }
    }
}

pub(crate) fn around(rng: &mut Rng, mean: Duration) -> Duration {
    Duration::from_nanos(rng.around(mean.as_nanos() as u64))
}
