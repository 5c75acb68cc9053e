//! The two ECN bits of the IP header (RFC 3168, section 5).

/// An ECN code point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Ecn {
    /// The transport does not speak ECN.
    #[default]
    NotCapable = 0,
    /// ECT(1): capable; of L4S where that is agreed (RFC 9331).
    Capable1 = 1,
    /// ECT(0): capable.
    Capable0 = 2,
    /// Congestion was experienced on the way.
    Congestion = 3,
}

impl Ecn {
    /// The code point in the two low bits of a type of service or traffic class.
    pub const fn from_bits(bits: u8) -> Ecn {
        match bits & 3 {
            0 => Ecn::NotCapable,
            1 => Ecn::Capable1,
            2 => Ecn::Capable0,
            _ => Ecn::Congestion,
        }
    }

    /// Whether a queue may mark the packet instead of dropping it.
    pub const fn is_capable(self) -> bool {
        !matches!(self, Ecn::NotCapable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_point_is_the_two_low_bits_whatever_stands_above() {
        for dscp in 0..64 {
            for (bits, ecn) in [Ecn::NotCapable, Ecn::Capable1, Ecn::Capable0, Ecn::Congestion]
                .into_iter()
                .enumerate()
            {
                assert_eq!(Ecn::from_bits(dscp << 2 | bits as u8), ecn);
                assert_eq!(ecn.is_capable(), bits != 0);
            }
        }
    }
}
