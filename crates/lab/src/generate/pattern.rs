//! What both ends send.

/// Payload repeats after this many bytes.
pub(super) const PATTERN_BYTES: usize = 65_536;

/// Bytes that neither compress well nor need a generator: the low bytes of a multiplicative walk.
pub(super) fn pattern() -> Box<[u8]> {
    let mut walk = 0x9E37_79B9_7F4A_7C15_u64;
    let next = |_| {
        walk = walk.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (walk >> 56) as u8
    };
    (0..PATTERN_BYTES).map(next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_uses_every_byte_about_equally() {
        let mut counts = [0u32; 256];
        pattern().iter().for_each(|&byte| counts[usize::from(byte)] += 1);
        assert!(counts.iter().all(|count| (128..=512).contains(count)), "{counts:?}");
    }
}
