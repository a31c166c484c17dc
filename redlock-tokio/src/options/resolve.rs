use std::time::Duration;

use redlock_core::{
    Drift, FencingToken, KeepAlive, LeaseConfig, Quorum, RetrySchedule, Ttl, Validity,
};

use super::{CommonSettings, LockOptions, OptionsError, QueuePolicy, Renewal, RetryDelay, Switch};

const TTL: Duration = Duration::from_secs(10);
const WAIT: Duration = Duration::from_secs(5);
const MAX_HOLD: Duration = Duration::from_secs(60);
const RETRY_DELAY: RetryDelay = RetryDelay {
    shortest: Duration::from_millis(20),
    longest: Duration::from_millis(200),
};
const MAX_WAITERS_PER_KEY: usize = 1024;
/// A counter must be remembered for longer than an attempt takes, by the difference of wall clocks.
const LONGEST_FENCED: Duration = Duration::from_secs(FencingToken::COUNTER_LIFETIME.as_secs() / 2);

/// Options as a lease needs them, with the defaults of those that are not set.
impl LockOptions {
    pub(crate) fn is_fenced(&self) -> bool {
        self.fencing == Some(Switch::On)
    }

    pub(crate) fn without_label(&self) -> Self {
        Self {
            label: None,
            ..*self
        }
    }

    /// Returns the label, if one is set.
    pub(crate) fn label_if_set(&self) -> Option<&'static str> {
        self.label
    }

    /// Returns the ttl, or the default.
    pub(crate) fn ttl_or_default(&self) -> Duration {
        self.ttl.unwrap_or(TTL)
    }

    pub(crate) fn fails_fast(&self) -> bool {
        self.fail_fast == Some(Switch::On)
    }

    /// Returns how to wait within this process, by options and defaults.
    pub(crate) fn policy(&self, common: &CommonSettings) -> QueuePolicy {
        let streak = common.handover_for.min(self.ttl_or_default() / 2);
        let bound = self.wait_at_most.unwrap_or(Duration::MAX);
        QueuePolicy {
            hands_over: self.handover != Some(Switch::Off),
            streak,
            attempt: streak / 10,
            others_wait: false,
            poller_share: common.poller_share,
            max_waiters_per_key: self.max_waiters_per_key.unwrap_or(MAX_WAITERS_PER_KEY),
            wait: self.wait.unwrap_or(WAIT).min(bound),
        }
    }

    /// Returns the configuration of a lease, by options and defaults.
    pub(crate) fn resolve(
        &self,
        quorum: Quorum,
        drift: Drift,
    ) -> Result<LeaseConfig, OptionsError> {
        let ttl = Ttl::new(self.ttl_or_default())?;
        let validity = Validity::new(ttl, drift)?;
        if self.is_fenced() && ttl.as_duration() > LONGEST_FENCED {
            return Err(OptionsError::TooLongForFence {
                ttl: ttl.as_duration(),
                longest: LONGEST_FENCED,
            });
        }
        let RetryDelay { shortest, longest } = self.retry_delay.unwrap_or(RETRY_DELAY);
        let retry = RetrySchedule::new(shortest..=longest)?;
        let retry = retry.with_probes();
        let retry = match self.max_attempts {
            Some(attempts) => retry.with_max_attempts(attempts),
            None => retry,
        };
        let max_hold = self.max_hold.unwrap_or(MAX_HOLD);
        let keep_alive = match self.renewal {
            Some(Renewal::Never) => KeepAlive::on_demand(max_hold),
            Some(Renewal::Every(interval)) => KeepAlive::every(interval, max_hold, validity)?,
            None => {
                let interval = KeepAlive::default_interval(validity);
                KeepAlive::every(interval, max_hold, validity)?
            }
        };
        Ok(LeaseConfig::new(quorum, validity, retry, keep_alive))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn resolve(options: LockOptions) -> Result<LeaseConfig, OptionsError> {
        options.resolve(Quorum::majority(5).unwrap(), Drift::default())
    }

    #[test]
    fn defaults_are_the_documented_ones() {
        let documented = LockOptions::new()
            .ttl(MS(10_000))
            .wait(MS(5000))
            .retry_delay(MS(20), MS(200))
            .renew_every(MS(10_000) / 3)
            .max_hold(MS(60_000));
        assert_eq!(resolve(LockOptions::new()), resolve(documented));
        assert_eq!(Drift::default(), Drift::new(10, MS(2)));
    }

    #[test]
    fn a_fenced_lock_has_a_ttl_of_half_a_day_at_most() {
        let half_a_day = Duration::from_secs(12 * 60 * 60);
        let longest = LockOptions::new().ttl(half_a_day);
        assert!(resolve(longest.fenced(true)).is_ok());
        let longer = LockOptions::new().ttl(half_a_day + MS(1));
        assert!(resolve(longer).is_ok());
        let error = resolve(longer.fenced(true)).unwrap_err();
        assert!(
            matches!(error, OptionsError::TooLongForFence { .. }),
            "{error}"
        );
    }

    #[test]
    fn a_bound_shortens_a_wait_and_never_lengthens_it() {
        let bound = |millis| LockOptions::new().wait_at_most(MS(millis));
        let waits = |wait| resolve(LockOptions::new().wait(wait));
        assert_eq!(resolve(bound(700)), waits(MS(700)));
        assert_eq!(resolve(bound(700).wait(MS(50))), waits(MS(50)));
        assert_eq!(resolve(bound(700).wait(Duration::MAX)), waits(MS(700)));
        assert_eq!(resolve(bound(60_000)), waits(MS(5000)));
        assert_eq!(resolve(bound(70).or(bound(50).wait(MS(60)))), waits(MS(50)));
        assert_eq!(bound(70).wait_at_most(MS(90)), bound(70));
        assert_eq!(bound(70).policy(&CommonSettings::default()).wait, MS(70));
    }

    #[test]
    fn bad_options_are_named() {
        let error = |options: LockOptions| resolve(options).unwrap_err().to_string();
        let options = LockOptions::new;
        assert!(error(options().ttl(MS(0))).contains("shorter than one millisecond"));
        assert!(error(options().ttl(Duration::MAX)).contains("longer than 100 years"));
        assert!(error(options().ttl(MS(2))).contains("used up by the drift"));
        assert!(error(options().retry_delay(MS(0), MS(9))).contains("retry delay is zero"));
        assert!(error(options().retry_delay(MS(9), MS(8))).contains("longer than the longest"));
        assert!(error(options().renew_every(MS(0))).contains("cannot keep a lock"));
        assert!(error(options().renew_every(MS(9_898))).contains("cannot keep a lock"));
    }

    #[test]
    fn extremes_are_accepted() {
        assert!(resolve(LockOptions::new().ttl(MS(3))).is_ok(), "shortest");
        let longest = LockOptions::new().ttl(Ttl::MAX.as_duration());
        assert!(resolve(longest.wait(Duration::MAX).max_hold(Duration::MAX)).is_ok());
        assert!(resolve(LockOptions::new().wait(MS(0)).max_attempts(0)).is_ok());
    }
}
