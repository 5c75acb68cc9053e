//! Numbers in the floating form of queries (RFC 3376, 4.1.1 and 4.1.7; RFC 3810, 5.1.3).

/// The number that a code of a sign bit, three bits of exponent and `bits` of mantissa stands for.
pub(super) fn decode(code: u32, bits: u32) -> u32 {
    let linear = 1 << (bits + 3);
    if code < linear {
        return code;
    }
    let exponent = code >> bits & 7;
    (code & ((1 << bits) - 1) | 1 << bits) << (exponent + 3)
}

/// The greatest code that stands for no more than `value`.
pub(super) fn encode(value: u32, bits: u32) -> u32 {
    let linear = 1 << (bits + 3);
    if value < linear {
        return value;
    }
    let exponent = (value.ilog2() - bits - 3).min(7);
    let mantissa = (value >> (exponent + 3)).min((2 << bits) - 1);
    linear | exponent << bits | mantissa & ((1 << bits) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_round_trips_in_order() {
        for (bits, codes) in [(4, 256u32), (12, 65_536)] {
            let mut before = None;
            for code in 0..codes {
                let value = decode(code, bits);
                assert_eq!(encode(value, bits), code);
                assert!(before < Some(value), "code {code}");
                assert!(code == 0 || encode(value - 1, bits) < code);
                before = Some(value);
            }
            assert_eq!(encode(u32::MAX, bits), codes - 1);
        }
        // Values beyond the greatest are encoded as the greatest.
        assert!((31_744..300_000).all(|value| encode(value, 4) == 0xff));
        assert_eq!((decode(0xff, 4), decode(0xffff, 12)), (31_744, 8_387_584));
    }
}
