//! Random draws of a world.

use std::ops::{Deref, DerefMut};

/// A generator whose draws follow from its seed.
pub(crate) struct Rng(fastrand::Rng);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        // Seeds that follow each other must not give similar runs.
        Self(fastrand::Rng::with_seed(
            seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5D17,
        ))
    }

    /// Makes another generator, whose draws do not disturb those of this one.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.0.fork())
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.0.usize(..from.len())]
    }

    /// Returns true `per_million` times of a million.
    pub(crate) fn chance(&mut self, per_million: u32) -> bool {
        // Never draws for a fault that is switched off.
        per_million > 0 && self.0.u32(..1_000_000) < per_million
    }

    /// Draws a time of about `mean`, often much shorter and sometimes several times longer: the product of two
    /// uniform draws.
    pub(crate) fn around(&mut self, mean: u64) -> u64 {
        let first = self.0.u64(..=2 * mean);
        self.0.u64(..=2 * first)
    }
}

impl Deref for Rng {
    type Target = fastrand::Rng;

    fn deref(&self) -> &fastrand::Rng {
        &self.0
    }
}

impl DerefMut for Rng {
    fn deref_mut(&mut self) -> &mut fastrand::Rng {
        &mut self.0
    }
}
