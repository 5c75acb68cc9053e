//! Whether the segments of a connection carry time stamps, cut options or not.
//!
//! Ends that have agreed on time stamps put them into every segment but resets (RFC 7323, section 3.2), so that
//! the majority of a connection's segments decides. Where a snap length cut the options, their length decides
//! instead. It is a multiple of four. Time stamps take twelve bytes with what pads them, blocks of SACK a
//! multiple of eight and four more with theirs (RFC 2018, section 3): with time stamps options are 12, 24, 32 or
//! 40 bytes long, and of blocks alone 12, 20, 28 or 36. Twelve are time stamps, since one block alone is in few
//! segments. A SYN has other options: segment size, window scale and SACK permitted, padded, are twelve, and
//! longer options include time stamps.

use nilometer_flow::record::tcp_flags::SYN;
use nilometer_wire::packet::TcpSegment;

/// Bytes of time stamps with their padding; and of the usual options of a SYN without them.
const USUAL_BYTES: u8 = 12;
/// Bytes of a block of SACK.
const BLOCK_BYTES: u8 = 8;

/// Segments without time stamps, and with them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stamped {
    counts: [u64; 2],
}

impl Stamped {
    pub fn count(&mut self, segment: &TcpSegment) {
        let is_stamped = segment.time_stamps.is_some()
            || segment.cut_options_bytes.is_some_and(|bytes| is_long_enough(bytes, segment.flags));
        self.counts[usize::from(is_stamped)] += 1;
    }

    /// Do most segments have time stamps?
    pub fn is_usual(&self) -> bool {
        self.counts[1] > self.counts[0]
    }
}

/// Are time stamps among `bytes` bytes of options?
fn is_long_enough(bytes: u8, flags: u8) -> bool {
    match flags & SYN {
        0 => bytes == USUAL_BYTES || (bytes > USUAL_BYTES && bytes.is_multiple_of(BLOCK_BYTES)),
        _ => bytes > USUAL_BYTES,
    }
}
