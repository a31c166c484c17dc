#[cfg(feature = "test-util")]
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use std::{
    fmt,
    hash::{BuildHasher, DefaultHasher, RandomState},
};

/// The one source of random bits in this crate. Clones of a seeded source share its sequence.
#[derive(Clone)]
pub(crate) struct Random(Source);

#[derive(Clone)]
enum Source {
    System,
    #[cfg(feature = "test-util")]
    Seeded(Arc<SplitMix64>),
}

/// The operating system gave no random bits.
pub(crate) type Failure = getrandom::Error;

#[expect(clippy::disallowed_methods, reason = "this is the one source")]
impl Random {
    /// Returns the operating system's source.
    pub(crate) const fn system() -> Self {
        Self(Source::System)
    }

    /// Creates a source whose bits follow from the seed.
    #[cfg(feature = "test-util")]
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(Source::Seeded(Arc::new(SplitMix64(AtomicU64::new(seed)))))
    }

    pub(crate) fn u32(&self) -> Result<u32, Failure> {
        match &self.0 {
            Source::System => getrandom::u32(),
            #[cfg(feature = "test-util")]
            Source::Seeded(sequence) => Ok((sequence.next() >> 32) as u32),
        }
    }

    pub(crate) fn u64(&self) -> Result<u64, Failure> {
        match &self.0 {
            Source::System => getrandom::u64(),
            #[cfg(feature = "test-util")]
            Source::Seeded(sequence) => Ok(sequence.next()),
        }
    }

    pub(crate) fn u128(&self) -> Result<u128, Failure> {
        match &self.0 {
            Source::System => {
                let mut bytes = [0; 16];
                getrandom::fill(&mut bytes)?;
                Ok(u128::from_ne_bytes(bytes))
            }
            #[cfg(feature = "test-util")]
            Source::Seeded(sequence) => {
                let high = u128::from(sequence.next());
                Ok(high << 64 | u128::from(sequence.next()))
            }
        }
    }

    /// Returns a hasher for one table. Clones of the hasher hash alike. Without its secret key, nobody can choose
    /// values with equal hashes.
    pub(crate) fn hasher(&self) -> DefaultHasher {
        match &self.0 {
            // The standard library takes its keys from the operating system, and never fails.
            Source::System => RandomState::new().build_hasher(),
            #[cfg(feature = "test-util")]
            Source::Seeded(sequence) => {
                use std::hash::Hasher;

                let mut hasher = DefaultHasher::new();
                // As long as the key of `SipHash`.
                for _ in 0..2 {
                    hasher.write_u64(sequence.next());
                }
                hasher
            }
        }
    }
}

impl fmt::Debug for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Source::System => "Random::system",
            #[cfg(feature = "test-util")]
            Source::Seeded(_) => "Random::seeded",
        })
    }
}

/// The generator of that name (Steele, Lea and Flood, 2014). Its state only grows, so it needs no mutex.
#[cfg(feature = "test-util")]
struct SplitMix64(AtomicU64);

#[cfg(feature = "test-util")]
impl SplitMix64 {
    fn next(&self) -> u64 {
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        let before = self.0.fetch_add(STEP, Ordering::Relaxed);
        let mut bits = before.wrapping_add(STEP);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }
}

#[cfg(test)]
mod tests {
    use std::hash::Hasher;

    use super::*;

    /// Draws of every kind.
    fn draws(random: &Random) -> (u32, u64, u128, u64) {
        (
            random.u32().unwrap(),
            random.u64().unwrap(),
            random.u128().unwrap(),
            random.hasher().finish(),
        )
    }

    #[test]
    fn the_sequence_of_a_seed_is_that_of_the_reference_implementation() {
        let random = Random::seeded(1_234_567);
        let first: Vec<_> = (0..3).map(|_| random.u64().unwrap()).collect();
        assert_eq!(
            first,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    #[test]
    fn equal_seeds_draw_alike_and_different_seeds_do_not() {
        let first = draws(&Random::seeded(7));
        assert_eq!(draws(&Random::seeded(7)), first);
        let other = draws(&Random::seeded(8));
        assert!(first.0 != other.0 && first.1 != other.1);
        assert!(first.2 != other.2 && first.3 != other.3);
    }

    #[test]
    fn clones_share_one_sequence() {
        let random = Random::seeded(7);
        let clone = random.clone();
        assert_ne!(clone.u128().unwrap(), random.u128().unwrap());
    }

    #[test]
    fn two_sources_of_the_system_draw_differently() {
        let (one, other) = (draws(&Random::system()), draws(&Random::system()));
        // Two draws of 32 bits are equal too often for a test.
        assert!(one.1 != other.1 && one.2 != other.2 && one.3 != other.3);
    }
}
