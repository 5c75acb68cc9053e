//! Sequence numbers: 32 bits on the wire that wrap, 64-bit offsets inside that do not.
//!
//! Offset 0 is the SYN, offset 1 the first byte of data, and the FIN takes the offset after the
//! last byte. Inside the state machine, offsets are compared as plain integers; only this file
//! handles wrapping (RFC 9293, section 3.4).

/// The sequence number of `offset` when the SYN has the number `initial`.
#[inline]
pub const fn wrap(initial: u32, offset: u64) -> u32 {
    initial.wrapping_add(offset as u32)
}

/// The offset of `number` that lies within 2³¹ of `reference`; nothing when that is before the SYN.
#[inline]
pub const fn unwrap(initial: u32, reference: u64, number: u32) -> Option<u64> {
    let distance = number.wrapping_sub(wrap(initial, reference)) as i32;
    reference.checked_add_signed(distance as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_survive_the_wire_wherever_the_numbers_wrap() {
        for initial in [0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_fff0, u32::MAX] {
            for reference in [0u64, 5, 1 << 31, (1 << 32) - 3, 1 << 32, (1 << 40) + 12_345] {
                for distance in [0i64, 1, -1, 1000, -1000, 0x7fff_ffff, -0x8000_0000] {
                    let Some(offset) = reference.checked_add_signed(distance) else {
                        continue;
                    };
                    let number = wrap(initial, offset);
                    assert_eq!(unwrap(initial, reference, number), Some(offset));
                }
            }
        }
    }

    #[test]
    fn numbers_before_the_syn_have_no_offset() {
        assert_eq!(unwrap(1000, 0, 999), None);
        assert_eq!(unwrap(1000, 5, 1000), Some(0));
        assert_eq!(unwrap(0, 0, u32::MAX), None);
    }
}
