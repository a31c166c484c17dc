//! Randomness that is the same on every machine and in every year, so that a seed stays a replay.

/// xoshiro256**, seeded through `SplitMix64` as its authors advise.
pub(crate) struct Rng([u64; 4]);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        let mut x = seed;
        Self(std::array::from_fn(|_| {
            x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = x;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^ (z >> 31)
        }))
    }

    pub(crate) fn next(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.0;
        let drawn = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        drawn
    }

    /// Draws from `0..end`. The bias of the multiplication is of no matter here.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// Draws from `first..=last`.
    pub(crate) fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    pub(crate) fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }

    /// Returns true `per_million` times of a million.
    pub(crate) fn chance(&mut self, per_million: u32) -> bool {
        // Never draws for a fault that is switched off.
        per_million > 0 && self.below(1_000_000) < u64::from(per_million)
    }

    /// Draws a time of about `mean`, often much shorter and now and then several times longer: the
    /// product of two uniform draws.
    pub(crate) fn around(&mut self, mean: u64) -> u64 {
        let first = self.below(2 * mean + 1);
        self.below(2 * first + 1)
    }
}
