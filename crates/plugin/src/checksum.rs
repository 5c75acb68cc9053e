//! The internet checksum: over bytes (RFC 1071), and brought up to date for a change (RFC 1624).

/// The ones' complement sum of 16-bit words, not yet folded.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// Adds `bytes`, which begin at an even place; an odd last byte is the upper half of a word.
    #[must_use]
    pub fn with(mut self, bytes: &[u8]) -> Sum {
        let mut words = bytes.chunks_exact(2);
        for word in &mut words {
            self.0 += u64::from(u16::from_be_bytes([word[0], word[1]]));
        }
        if let [last] = words.remainder() {
            self.0 += u64::from(*last) << 8;
        }
        self
    }

    /// The checksum: the complement of the folded sum.
    pub fn checksum(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }
}

/// The checksum over `bytes`.
pub fn checksum(bytes: &[u8]) -> u16 {
    Sum::default().with(bytes).checksum()
}

/// `checksum` after a word that it covers was changed: HC' = ~(~HC + ~m + m') (RFC 1624, equation 3).
#[inline]
pub fn updated(checksum: u16, old: u16, new: u16) -> u16 {
    let mut sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    !(sum as u16)
}

/// `checksum` after an even number of bytes at an even place was changed.
pub fn updated_bytes(checksum: u16, old: &[u8], new: &[u8]) -> u16 {
    let words = |bytes: &[u8]| u16::from_be_bytes([bytes[0], bytes[1]]);
    let pairs = old.chunks_exact(2).zip(new.chunks_exact(2));
    pairs.fold(checksum, |sum, (old, new)| updated(sum, words(old), words(new)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1624_has_its_result() {
        // Section 4: HC = 0xDD2F, m = 0x5555, m' = 0x3285 gives 0x0000, which equation 1 gets wrong.
        assert_eq!(updated(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn an_incremental_update_agrees_with_a_new_checksum() {
        let mut bytes = [0u8; 64];
        let mut state = 7u32;
        for round in 0..2_000u32 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let at = (state >> 24) as usize % 31 * 2 + 2;
            let new = ((state >> 8) as u16).to_be_bytes();
            let before = checksum(&bytes);
            let after = updated_bytes(before, &[bytes[at], bytes[at + 1]], &new);
            bytes[at..at + 2].copy_from_slice(&new);
            bytes[0] = 1; // never all zero, where a sum has two forms
            if round > 0 {
                assert_eq!(after, checksum(&bytes), "round {round}");
            }
        }
    }

    #[test]
    fn an_odd_byte_is_the_upper_half_of_a_word() {
        assert_eq!(checksum(&[1, 2, 3]), checksum(&[1, 2, 3, 0]));
    }
}
