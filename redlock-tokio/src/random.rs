#[cfg(feature = "test-util")]
use std::sync::atomic::{AtomicU64, Ordering};
use std::{
    fmt,
    hash::{BuildHasher, DefaultHasher, RandomState},
    sync::Arc,
};

use rand::{
    Rng, SeedableRng,
    rngs::{StdRng, SysRng},
};

use crate::sync::Mutex;

/// How often a generator is drawn from before the operating system gives it a new seed.
const DRAWS_PER_SEED: u32 = 4096;

/// The one source of random bits in this crate. Clones share it.
///
/// The bits come from a [`StdRng`], a stream cipher with a seed of the operating system, since a system call for each lock
/// is a seventh of the time of a busy key. Each client has a generator of its own, which is never shared between
/// processes: a client works in the tasks of its runtime, and those do not survive a `fork`. A machine that is copied while
/// it runs has the same generator as its copy, but its connections break, and each connection that is opened again asks
/// for a [new seed](Self::reseed).
#[derive(Clone)]
pub(crate) struct Random(Source);

#[derive(Clone)]
enum Source {
    System(Arc<Mutex<Generator>>),
    #[cfg(feature = "test-util")]
    Seeded(Arc<SplitMix64>),
}

/// A generator that asks for a seed when it has none or has used it up.
#[derive(Default)]
struct Generator {
    generator: Option<StdRng>,
    draws: u32,
}

/// The operating system gave no random bits.
pub(crate) type Failure = rand::rngs::SysError;

#[expect(clippy::disallowed_methods, reason = "this is the one source")]
impl Generator {
    fn seeded(&mut self) -> Result<&mut StdRng, Failure> {
        let generator = self.generator.take_if(|_| self.draws < DRAWS_PER_SEED);
        let generator = match generator {
            Some(generator) => generator,
            None => {
                self.draws = 0;
                StdRng::try_from_rng(&mut SysRng)?
            }
        };
        self.draws += 1;
        Ok(self.generator.insert(generator))
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the one source")]
impl Random {
    /// Returns a source whose seeds come from the operating system.
    pub(crate) fn system() -> Self {
        Self(Source::System(Arc::default()))
    }

    /// Creates a source whose bits follow from the seed.
    #[cfg(feature = "test-util")]
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(Source::Seeded(Arc::new(SplitMix64(AtomicU64::new(seed)))))
    }

    /// Lets the next draw ask the operating system for a seed.
    pub(crate) fn reseed(&self) {
        match &self.0 {
            Source::System(generator) => generator.lock().generator = None,
            #[cfg(feature = "test-util")]
            Source::Seeded(_) => {}
        }
    }

    pub(crate) fn u32(&self) -> Result<u32, Failure> {
        match &self.0 {
            Source::System(generator) => Ok(generator.lock().seeded()?.next_u32()),
            #[cfg(feature = "test-util")]
            Source::Seeded(sequence) => Ok((sequence.next() >> 32) as u32),
        }
    }

    pub(crate) fn u128(&self) -> Result<u128, Failure> {
        match &self.0 {
            Source::System(generator) => {
                let mut bytes = [0; 16];
                generator.lock().seeded()?.fill_bytes(&mut bytes);
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
            Source::System(_) => RandomState::new().build_hasher(),
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
            Source::System(_) => "Random::system",
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
    fn draws(random: &Random) -> (u32, u128, u64) {
        (
            random.u32().unwrap(),
            random.u128().unwrap(),
            random.hasher().finish(),
        )
    }

    #[test]
    fn the_sequence_of_a_seed_is_that_of_the_reference_implementation() {
        let sequence = SplitMix64(AtomicU64::new(1_234_567));
        assert_eq!(
            [(); 3].map(|()| sequence.next()),
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
        assert!(first.0 != other.0 && first.1 != other.1 && first.2 != other.2);
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
        assert!(one.1 != other.1 && one.2 != other.2);
    }

    /// The second half is drawn after a new seed.
    #[test]
    fn no_draw_repeats_another() {
        let random = Random::system();
        let clone = random.clone();
        let mut drawn = std::collections::HashSet::new();
        for _ in 0..DRAWS_PER_SEED {
            assert!(drawn.insert(random.u128().unwrap()) && drawn.insert(clone.u128().unwrap()));
        }
        clone.reseed();
        assert!(drawn.insert(random.u128().unwrap()));
    }
}
