//! How badly connections behave.

use crate::{
    clock::{MICRO, MILLI, SECOND},
    configuration::{Answers, Configuration},
    rng::Rng,
    seen::Seen,
};

/// How badly connections behave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    /// The mean of the delay in one direction, on a short way.
    pub(crate) delay: u64,
    pub(crate) tail: Tail,
    /// Faults come this many times more often. None comes if it is 0.
    severity: u32,
    answers: Answers,
    /// How many marks of writers do not arrive, of a million.
    marks_lost: u32,
}

/// How the delays of messages are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    /// None takes more than four times the mean.
    Short,
    /// One of a thousand takes hundreds of times as long as the others.
    Heavy,
}

/// No message takes longer by itself.
const LONGEST_DELAY: u64 = 4 * SECOND;

impl Weather {
    pub(crate) fn draw(rng: &mut Rng, configuration: &Configuration) -> Self {
        Self {
            delay: rng.pick(&[200 * MICRO, MILLI, 5 * MILLI]),
            tail: rng.pick(&[Tail::Short, Tail::Heavy]),
            severity: configuration.severity,
            answers: configuration.answers,
            marks_lost: rng.pick(&[0, 100_000, 1_000_000]),
        }
    }

    /// Returns that of a network without faults.
    pub(crate) fn calm() -> Self {
        Self {
            delay: MILLI,
            tail: Tail::Short,
            severity: 0,
            answers: Answers::Sound,
            marks_lost: 0,
        }
    }

    /// Returns how often something befalls a message, a batch or a connection, of a million.
    pub(crate) fn chance(&self, of: Seen) -> u32 {
        let often = |per_million: u32| (per_million * self.severity).min(200_000);
        match (of, self.answers) {
            _ if self.severity == 0 => 0,
            (Seen::VeryLate | Seen::ResetBefore | Seen::ResetAfter, _) => often(200),
            (Seen::Slow, _) => often(1000),
            (Seen::ConnectHangs | Seen::ConnectRefused | Seen::ConnectSlow, _) => often(20_000),
            (Seen::HalfOpen, _) => 200_000,
            (Seen::AnswersMissing | Seen::AnswersDoubled, Answers::Senseless) => often(5_000),
            (Seen::Rubbish, Answers::Senseless) => often(10_000),
            (Seen::AnswersOutOfStep, Answers::OutOfStep) => often(20_000),
            (Seen::InvalidationLost | Seen::InvalidationLate | Seen::InvalidationDoubled, _) => {
                often(20_000)
            }
            (Seen::InvalidationInvented, _) => 500_000,
            (Seen::MarkLost, _) => self.marks_lost,
            (Seen::MarkLate | Seen::MarkRepeated, _) => 100_000,
            _ => 0,
        }
    }

    /// Returns whether some answers make no sense.
    pub(crate) fn has_senseless_answers(&self) -> bool {
        [Seen::Rubbish, Seen::AnswersOutOfStep]
            .iter()
            .any(|it| self.chance(*it) > 0)
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
