use std::{num::NonZero, time::Duration};

/// A time of up to an hour, in few bytes: there are some for each lock. A longer one counts as
/// [`Duration::MAX`].
///
/// It is stored as one more, so that an `Option` is as small.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Micros(NonZero<u32>);

impl Micros {
    pub(crate) const ZERO: Self = Self(NonZero::<u32>::MIN);
    const MAX: Self = Self(NonZero::<u32>::MAX);
}

impl Default for Micros {
    fn default() -> Self {
        Self::ZERO
    }
}

impl From<Duration> for Micros {
    fn from(time: Duration) -> Self {
        let micros = u32::try_from(time.as_micros()).ok();
        let stored = micros.and_then(|micros| NonZero::new(micros.checked_add(1)?));
        stored.map_or(Self::MAX, Self)
    }
}

impl From<Micros> for Duration {
    fn from(time: Micros) -> Self {
        match time {
            Micros::MAX => Self::MAX,
            Micros(stored) => Self::from_micros(u64::from(stored.get()) - 1),
        }
    }
}
