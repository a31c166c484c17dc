//! How large a world is.

use std::time::Duration;

use crate::rng::Rng;

/// The numbers of a world, drawn from its seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) servers: usize,
    pub(crate) processes: usize,
    /// In each process.
    pub(crate) users: usize,
    pub(crate) keys: usize,
    pub(crate) max_ttl: Duration,
    /// How long a user waits before it wants a lock, on average.
    pub(crate) think: Duration,
    /// How long a user keeps a lock, on average.
    pub(crate) work: Duration,
}

impl Scale {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let max_ttl = Duration::from_millis(rng.pick(&[1000, 3000, 10_000]));
        Self {
            servers: rng.pick(&[1, 3, 3, 5]),
            processes: rng.usize(2..=4),
            users: rng.usize(1..=4),
            keys: rng.usize(1..=3),
            max_ttl,
            think: max_ttl / rng.pick(&[2, 8, 30]),
            work: max_ttl / rng.pick(&[2, 8, 30]),
        }
    }

    /// Draws a world of more servers and users, which take their time.
    pub(crate) fn draw_crowded(rng: &mut Rng) -> Self {
        let scale = Self::draw(rng);
        Self {
            servers: rng.pick(&[5, 7, 9]),
            processes: rng.usize(3..=5),
            users: rng.usize(6..=9),
            keys: rng.usize(4..=8),
            think: scale.max_ttl / 2,
            work: scale.max_ttl / 30,
            ..scale
        }
    }
}
