/// A hash slot of a cluster: CRC16 (XMODEM) of a key, modulo 16384 (the Redis cluster specification, "Key
/// distribution model").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct KeySlot(u16);

impl KeySlot {
    pub(super) const COUNT: u16 = 1 << 14;

    /// Returns the slot of a key. If the key has a [hash tag](Self::hash_tag), the slot depends on the tag
    /// alone.
    pub(super) fn of(key: &[u8]) -> Self {
        Self(crc16(Self::hash_tag(key).unwrap_or(key)) % Self::COUNT)
    }

    /// Returns the slot with this number, or `None` if the number is 16384 or more.
    pub(super) fn new(number: u16) -> Option<Self> {
        (number < Self::COUNT).then_some(Self(number))
    }

    /// Returns the slot of a voter, counted from zero, of `voters` voters: the middle of its part of all slots.
    ///
    /// # Panics
    ///
    /// If there is no such voter.
    pub(super) fn of_voter(voter: usize, voters: usize) -> Self {
        assert!(voter < voters, "voter {voter} of {voters}");
        let number = (2 * voter + 1) * usize::from(Self::COUNT) / (2 * voters);
        // Smaller than the count, since the first factor is smaller than the divisor.
        Self(number as u16)
    }

    pub(super) const fn number(self) -> u16 {
        self.0
    }

    /// Returns the smallest decimal number that is in this slot, to use as a hash tag. Tries some ten
    /// thousand numbers, so keep the result.
    pub(super) fn tag(self) -> String {
        (0_u32..)
            .map(|number| number.to_string())
            .find(|number| Self(crc16(number.as_bytes()) % Self::COUNT) == self)
            .expect("CRC16 reaches each slot with numbers of five or six digits")
    }

    /// Returns the hash tag of a key: the bytes between the first `{` and the first `}` after it, unless
    /// there are none.
    pub(super) fn hash_tag(key: &[u8]) -> Option<&[u8]> {
        let begin = 1 + key.iter().position(|byte| *byte == b'{')?;
        let len = key[begin..].iter().position(|byte| *byte == b'}')?;
        (len > 0).then(|| &key[begin..begin + len])
    }
}

/// The CRC16 of the cluster specification (XMODEM: polynomial 1021, initial value 0).
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 {
                shifted
            } else {
                shifted ^ 0x1021
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(key: &[u8]) -> u16 {
        KeySlot::of(key).number()
    }

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        // The check value of CRC16 XMODEM, and the answers of `CLUSTER KEYSLOT`.
        assert_eq!(slot(b"123456789"), 0x31c3);
        assert_eq!(slot(b"somekey"), 11_058);
        assert_eq!(slot(b"foo{hash_tag}"), 2_515);
        assert_eq!(slot(b"{user1000}.following"), slot(b"user1000"));
        assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
        assert_eq!(slot(b"foo{bar}{zap}"), slot(b"bar"));
        assert_eq!(slot(b"foo{}{bar}"), slot(b"foo{}{bar}"));
    }
}
