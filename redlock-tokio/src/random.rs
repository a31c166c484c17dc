#[cfg(feature = "test-util")]
use std::sync::atomic::{AtomicU64, Ordering};
use std::{
    hash::{BuildHasher, DefaultHasher, RandomState},
    sync::Arc,
};

use crate::sync::Mutex;

/// How many bytes are asked for at once: enough for 64 tokens. A system call for each lock is a seventh of the time of a
/// busy key.
const BUFFERED: usize = 1024;

/// The one source of random bits in this crate. Clones share it.
///
/// The bits are those of the operating system. Each client has a buffer of its own, which is never shared between
/// processes: a client works in the tasks of its runtime, and those do not survive a `fork`. A machine that is copied while
/// it runs has the same buffer as its copy, but its connections break, and each connection that is opened again
/// [empties](Self::refill) the buffer.
#[derive(Clone)]
pub(crate) struct Random(Source);

#[derive(Clone)]
enum Source {
    System(Arc<Mutex<Buffer>>),
    #[cfg(feature = "test-util")]
    Seeded(Arc<SplitMix64>),
}

/// Random bytes, of which the first `left` were not yet drawn.
struct Buffer {
    bytes: [u8; BUFFERED],
    left: usize,
}

/// The operating system gave no random bits.
pub(crate) type Failure = getrandom::Error;

impl Buffer {
    #[expect(clippy::disallowed_methods, reason = "this is the one source")]
    fn draw<const N: usize>(&mut self) -> Result<[u8; N], Failure> {
        if self.left < N {
            getrandom::fill(&mut self.bytes)?;
            self.left = self.bytes.len();
        }
        self.left -= N;
        let mut drawn = [0; N];
        drawn.copy_from_slice(&self.bytes[self.left..][..N]);
        Ok(drawn)
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the one source")]
impl Random {
    /// Returns a source whose bits come from the operating system.
    pub(crate) fn system() -> Self {
        let buffer = Buffer {
            bytes: [0; BUFFERED],
            left: 0,
        };
        Self(Source::System(Arc::new(Mutex::new(buffer))))
    }

    /// Creates a source whose bits follow from the seed.
    #[cfg(feature = "test-util")]
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(Source::Seeded(Arc::new(SplitMix64(AtomicU64::new(seed)))))
    }

    /// Lets the next draw ask the operating system for bits.
    pub(crate) fn refill(&self) {
        match &self.0 {
            Source::System(buffer) => buffer.lock().left = 0,
            #[cfg(feature = "test-util")]
            Source::Seeded(_) => {}
        }
    }

    pub(crate) fn u32(&self) -> Result<u32, Failure> {
        match &self.0 {
            Source::System(buffer) => buffer.lock().draw().map(u32::from_ne_bytes),
            #[cfg(feature = "test-util")]
            Source::Seeded(sequence) => Ok((sequence.next() >> 32) as u32),
        }
    }

    pub(crate) fn u128(&self) -> Result<u128, Failure> {
        match &self.0 {
            Source::System(buffer) => buffer.lock().draw().map(u128::from_ne_bytes),
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

    /// The last is drawn although the buffer has bits left.
    #[test]
    fn no_draw_repeats_another() {
        let random = Random::system();
        let clone = random.clone();
        let mut drawn = std::collections::HashSet::new();
        for _ in 0..BUFFERED {
            assert!(drawn.insert(random.u128().unwrap()) && drawn.insert(clone.u128().unwrap()));
        }
        clone.refill();
        assert!(drawn.insert(random.u128().unwrap()));
    }
}
