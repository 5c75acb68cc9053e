//! Is a capture traffic to be metered, or exports to be decoded?
//!
//! A capture that carries nothing but exports was taken in front of a collector, and the user wants
//! the flows that the exporter saw, not the flow of the exports themselves. A single other IP
//! packet shows that it is ordinary traffic. So the first packets are held until one decides: at
//! once in ordinary captures, after a thousand packets or at the end in captures of exports.

use super::capture::CapturedPacket;

/// Packets held at most before the choice is made.
const HELD_MAX: usize = 1_024;
/// Bytes of frames held at most.
const HELD_MAX_BYTES: usize = 16 * 1024 * 1024;

/// What a capture is read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAs {
    /// Packets, metered into flow records.
    Packets,
    /// Exports, decoded into the records they carry.
    Exports,
}

/// The evidence of one packet for this choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// It is an export.
    Export,
    /// It is another IP packet.
    Traffic,
    /// Nothing: it is not IP or cannot be read.
    Nothing,
}

/// The first packets of a capture, held until the choice is made.
#[derive(Debug, Default)]
pub struct Preamble {
    held: Vec<Held>,
    bytes: usize,
    exports: usize,
}

#[derive(Debug)]
struct Held {
    stamp_ns: Option<u64>,
    link_type: u32,
    original_bytes: u32,
    frame: Vec<u8>,
}

impl Preamble {
    /// Holds a packet; returns the choice once it is made.
    pub fn weigh(&mut self, packet: &CapturedPacket<'_>, evidence: Evidence) -> Option<ReadAs> {
        self.bytes += packet.frame.len();
        self.exports += usize::from(evidence == Evidence::Export);
        self.held.push(Held {
            stamp_ns: packet.stamp_ns,
            link_type: packet.link_type,
            original_bytes: packet.original_bytes,
            frame: packet.frame.to_vec(),
        });
        if evidence == Evidence::Traffic {
            Some(ReadAs::Packets)
        } else if self.held.len() == HELD_MAX || self.bytes >= HELD_MAX_BYTES {
            Some(self.verdict())
        } else {
            None
        }
    }

    /// The choice at the end of the capture.
    pub fn verdict(&self) -> ReadAs {
        if self.exports > 0 { ReadAs::Exports } else { ReadAs::Packets }
    }

    /// The packets held, in their order.
    pub fn packets(&self) -> impl Iterator<Item = CapturedPacket<'_>> {
        self.held.iter().map(|held| CapturedPacket {
            stamp_ns: held.stamp_ns,
            link_type: held.link_type,
            original_bytes: held.original_bytes,
            frame: &held.frame,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(frame: &[u8]) -> CapturedPacket<'_> {
        CapturedPacket { stamp_ns: Some(7), link_type: 1, original_bytes: 99, frame }
    }

    #[test]
    fn one_packet_of_traffic_decides_at_once() {
        let mut preamble = Preamble::default();
        assert_eq!(preamble.weigh(&packet(b"arp"), Evidence::Nothing), None);
        assert_eq!(preamble.weigh(&packet(b"v5"), Evidence::Export), None);
        assert_eq!(preamble.weigh(&packet(b"tcp"), Evidence::Traffic), Some(ReadAs::Packets));
        let held: Vec<_> = preamble.packets().collect();
        assert_eq!(held, [packet(b"arp"), packet(b"v5"), packet(b"tcp")]);
    }

    #[test]
    fn packets_held_before_a_decision_have_a_limit() {
        for (evidence, read_as) in
            [(Evidence::Export, ReadAs::Exports), (Evidence::Nothing, ReadAs::Packets)]
        {
            let mut preamble = Preamble::default();
            let mut decided = None;
            while decided.is_none() {
                decided = preamble.weigh(&packet(b"x"), evidence);
            }
            assert_eq!(decided, Some(read_as));
            assert_eq!(preamble.held.len(), HELD_MAX);
        }
        let mut preamble = Preamble::default();
        let big = packet(&[0; HELD_MAX_BYTES]);
        assert_eq!(preamble.weigh(&big, Evidence::Export), Some(ReadAs::Exports));
        assert_eq!(Preamble::default().verdict(), ReadAs::Packets);
    }
}
