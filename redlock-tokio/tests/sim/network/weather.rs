//! How badly connections behave.

use crate::{
    clock::{MICRO, MILLI, SECOND},
    configuration::{Answers, Configuration},
    rng::Rng,
};

/// How badly connections behave. Chances are per million.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weather {
    /// The mean of the delay in one direction, on a short way.
    pub(crate) delay: u64,
    pub(crate) tail: Tail,
    /// Some messages take much longer.
    pub(crate) slow: u32,
    /// Some answers take seconds, and everything behind them waits.
    pub(crate) very_late: u32,
    pub(crate) reset_before: u32,
    pub(crate) reset_after: u32,
    pub(crate) connect_hangs: u32,
    pub(crate) connect_refused: u32,
    pub(crate) connect_slow: u32,
    /// Connections that a restart leaves half-open, so that nothing comes back on them.
    pub(crate) half_open: u32,
    /// Batches that get too few answers.
    pub(crate) missing: u32,
    /// Batches that get too many answers.
    pub(crate) surplus: u32,
    /// Answers that make no sense.
    pub(crate) rubbish: u32,
    /// Batches whose answers belong to other commands of the batch.
    pub(crate) out_of_step: u32,
    pub(crate) invalidation_lost: u32,
    pub(crate) invalidation_late: u32,
    pub(crate) invalidation_doubled: u32,
    pub(crate) invalidation_invented: u32,
    /// Marks of writers that do not arrive.
    pub(crate) mark_lost: u32,
    pub(crate) mark_late: u32,
    pub(crate) mark_repeated: u32,
}

/// How the delays of messages are distributed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tail {
    /// None takes more than four times the mean.
    #[default]
    Short,
    /// One of a thousand takes hundreds of times as long as the others.
    Heavy,
}

/// No message takes longer by itself.
const LONGEST_DELAY: u64 = 4 * SECOND;

impl Weather {
    pub(crate) fn draw(rng: &mut Rng, configuration: &Configuration) -> Self {
        let often = |per_million: u32| (per_million * configuration.severity).min(200_000);
        let only_if = |is_on: bool, per_million| if is_on { often(per_million) } else { 0 };
        Self {
            delay: rng.pick(&[200 * MICRO, MILLI, 5 * MILLI]),
            tail: rng.pick(&[Tail::Short, Tail::Heavy]),
            slow: often(1000),
            very_late: often(200),
            reset_before: often(200),
            reset_after: often(200),
            connect_hangs: often(20_000),
            connect_refused: often(20_000),
            connect_slow: often(20_000),
            half_open: 200_000,
            missing: only_if(configuration.answers == Answers::Senseless, 5_000),
            surplus: only_if(configuration.answers == Answers::Senseless, 5_000),
            rubbish: only_if(configuration.answers == Answers::Senseless, 10_000),
            out_of_step: only_if(configuration.answers == Answers::OutOfStep, 20_000),
            invalidation_lost: often(20_000),
            invalidation_late: often(20_000),
            invalidation_doubled: often(20_000),
            invalidation_invented: 500_000,
            mark_lost: rng.pick(&[0, 100_000, 1_000_000]),
            mark_late: 100_000,
            mark_repeated: 100_000,
        }
    }

    /// Returns that of a network without faults.
    pub(crate) fn calm() -> Self {
        Self {
            delay: MILLI,
            ..Self::default()
        }
    }

    /// Draws how long a message takes over a way that is so many times as long as a short one.
    pub(crate) fn draw_delay(&self, rng: &mut Rng, distance: u64) -> u64 {
        let mean = self.delay * distance;
        let delay = match self.tail {
            Tail::Short => rng.around(mean),
            // The inverse of a uniform draw: half of the delays are shorter than the mean.
            Tail::Heavy => (mean / 2).saturating_mul(1_000_000) / rng.u64(1..=1_000_000),
        };
        delay.min(LONGEST_DELAY) + 50 * MICRO
    }
}
