use core::fmt;

/// Random bits that distinguish one lease from every other, drawn by the caller.
///
/// The source asks for a value that is "unique across all clients and all lock requests". All
/// tokens of a lease derive from its nonce, so two leases with the same nonce could release each
/// other's keys. Draw one for each lease from the operating system's generator.
///
/// ```
/// use redlock_core::Nonce;
///
/// let nonce = Nonce::new(0x0123_4567_89ab_cdef); // 128 random bits
/// assert_ne!(nonce.token(1), nonce.token(2));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Nonce(
    /// In the order of the wire. As bytes they need no alignment, which a lease would pay for several times.
    [u8; 16],
);

impl Nonce {
    /// Creates a nonce from 128 random bits.
    #[must_use]
    pub const fn new(random: u128) -> Self {
        Self(random.to_be_bytes())
    }

    /// Returns the token of the attempt with this number.
    #[must_use]
    pub const fn token(self, attempt: u32) -> Token {
        Token {
            nonce: self,
            attempt,
        }
    }

    /// Returns well-mixed bits for the attempt's retry delay, so that clients which failed together do
    /// not retry together: the finaliser of `SplitMix64` over nonce and attempt.
    pub(crate) const fn jitter(self, attempt: u32) -> u64 {
        let bits = self.bits();
        let seed = (bits as u64) ^ ((bits >> 64) as u64).rotate_left(32);
        let mut x = seed.wrapping_add((attempt as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    const fn bits(self) -> u128 {
        u128::from_be_bytes(self.0)
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.bits())
    }
}

/// The value of a key: the lease that holds it, and the attempt that set it.
///
/// No token is used for a second attempt. Otherwise a late release of attempt 1 could delete the key that
/// attempt 2 has counted.
///
/// On the wire a token is 40 lowercase hexadecimal digits: printable, and as long as the 20 random
/// bytes that the source suggests.
///
/// ```
/// use redlock_core::Nonce;
///
/// let token = Nonce::new(0xabc).token(1);
/// assert_eq!(token.to_string(), "00000000000000000000000000000abc00000001");
/// assert_eq!(token.to_ascii(), *b"00000000000000000000000000000abc00000001");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token {
    nonce: Nonce,
    attempt: u32,
}

impl Token {
    /// The length of a token on the wire, in bytes.
    pub const LEN: usize = 40;

    /// Reads a token from the beginning of a key's value. `None` if the value begins otherwise.
    ///
    /// ```
    /// use redlock_core::{Nonce, Token};
    ///
    /// let token = Nonce::new(0xabc).token(1);
    /// assert_eq!(Token::from_ascii(format!("{token}@web-3").as_bytes()), Some(token));
    /// assert_eq!(Token::from_ascii(b"another client"), None);
    /// ```
    #[must_use]
    pub fn from_ascii(value: &[u8]) -> Option<Self> {
        let digits = value.get(..Self::LEN)?;
        let is_digit = |it: u8| matches!(it, b'0'..=b'9' | b'a'..=b'f');
        let digits = core::str::from_utf8(digits).ok()?;
        let (nonce, attempt) = digits.split_at_checked(32)?;
        let nonce = Nonce::new(u128::from_str_radix(nonce, 16).ok()?);
        let attempt = u32::from_str_radix(attempt, 16).ok()?;
        digits.bytes().all(is_digit).then_some(nonce.token(attempt))
    }

    /// Returns the nonce of the lease.
    #[must_use]
    pub const fn nonce(self) -> Nonce {
        self.nonce
    }

    /// Returns the number of the attempt.
    #[must_use]
    pub const fn attempt(self) -> u32 {
        self.attempt
    }

    /// Returns the token as it goes over the wire.
    #[must_use]
    pub const fn to_ascii(self) -> [u8; Self::LEN] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let (nonce, attempt) = (self.nonce.0, self.attempt.to_be_bytes());
        let mut ascii = [0; Self::LEN];
        let mut i = 0;
        while i < Self::LEN / 2 {
            let byte = if i < 16 { nonce[i] } else { attempt[i - 16] };
            ascii[2 * i] = DIGITS[(byte >> 4) as usize];
            ascii[2 * i + 1] = DIGITS[(byte & 0xf) as usize];
            i += 1;
        }
        ascii
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}{:08x}", self.nonce.bits(), self.attempt)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{format, string::ToString};
    use core::str;

    #[test]
    fn wire_form_is_forty_hex_digits() {
        let nonce = Nonce::new(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
        let token = nonce.token(0xdead_beef);
        let ascii = token.to_ascii();
        let text = str::from_utf8(&ascii).unwrap();
        assert_eq!(text, "0123456789abcdef0011223344556677deadbeef");
        assert_eq!(text, token.to_string());
        assert_eq!(Token::from_ascii(&ascii), Some(token));
        assert_eq!(Token::from_ascii(&ascii[1..]), None, "too short");
        assert_eq!(Token::from_ascii(text.to_uppercase().as_bytes()), None);
        assert_eq!(Token::from_ascii(&[b'+'; 40]), None);
    }

    #[test]
    fn jitter_is_splitmix64() {
        // The first three outputs of the reference implementation for the seed 0.
        let [zero, shifted] = [Nonce::new(0), Nonce::new(1 << 64)];
        assert_eq!(zero.jitter(1), 0xE220_A839_7B1D_CDAF);
        assert_eq!(zero.jitter(2), 0x6E78_9E6A_A1B9_65F4);
        assert_eq!(zero.jitter(3), 0x06C4_5D18_8009_454F);
        assert_eq!(shifted.jitter(1), Nonce::new(1 << 32).jitter(1));
        assert_eq!(Nonce::new((1 << 64) | (1 << 32)).jitter(1), zero.jitter(1));
    }

    #[test]
    fn debugging_shows_the_digits() {
        let nonce = Nonce::new(0xabc);
        assert_eq!(format!("{nonce:?}"), "00000000000000000000000000000abc");
        let token = nonce.token(1);
        assert_eq!(format!("{token:?}"), token.to_string());
    }
}
