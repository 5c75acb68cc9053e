//! What TCP sends through a fault box: data, some of it sent again, and acknowledgements, many of them alike.

use nilometer_stat::Rng;

use crate::wire::Regime;

/// One connection's packets of one direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Random payload over IPv6: what is sent again has the same bytes, until the time stamp's next millisecond.
    Data,
    /// The same over IPv4, where each packet has an identification of its own.
    Numbered,
    /// Zeros over IPv6, the checksum left to the device: packets differ in their sequence numbers alone.
    Zeros,
    /// Acknowledgements over IPv6 with time stamps, two of three like the one before.
    Acks,
    /// Without options, over IPv6.
    BareAcks,
    /// Over IPv4 with identification zero, without options.
    UnnumberedAcks,
}

const KINDS: [Kind; 6] =
    [Kind::Data, Kind::Numbered, Kind::Zeros, Kind::Acks, Kind::BareAcks, Kind::UnnumberedAcks];

/// A packet that is to be sent.
#[derive(Clone, Debug)]
pub struct Segment {
    pub at_ns: u64,
    pub connection: usize,
    pub bytes: Vec<u8>,
    /// How often these bytes, or those with another identification, have been sent before.
    pub turn: u32,
}

/// One connection.
pub struct Connection {
    number: usize,
    kind: Kind,
    sequence: u32,
    identification: u16,
    next_ns: u64,
}

impl Connection {
    pub fn all(count: usize) -> Vec<Connection> {
        let of = |number: usize| Connection {
            number,
            kind: KINDS[number % KINDS.len()],
            sequence: 1_000 * number as u32,
            identification: 0,
            next_ns: 1_000_000 + 37_000 * number as u64,
        };
        (0..count).map(of).collect()
    }

    /// The next new segment: bursts of some packets, then nothing for a while.
    pub fn next(&mut self, regime: &Regime, rng: &mut Rng) -> Segment {
        let at_ns = self.next_ns;
        let is_burst = rng.below(10) < 8;
        let longest_ns = if is_burst { regime.gap_ns } else { regime.pause_ns };
        self.next_ns += 1_000 + rng.below(longest_ns);
        let is_alike = rng.below(3) < 2;
        let payload = match self.kind {
            Kind::Data | Kind::Numbered => [100, 1_000, 1_448][rng.below(3) as usize],
            Kind::Zeros => 1_448,
            Kind::Acks | Kind::BareAcks | Kind::UnnumberedAcks => 0,
        };
        if payload > 0 || !is_alike {
            self.sequence = self.sequence.wrapping_add(payload.max(724));
        }
        self.identification = self.identification.wrapping_add(1);
        let bytes = self.packet(at_ns, payload as usize, rng);
        Segment { at_ns, connection: self.number, bytes, turn: 0 }
    }

    /// The same segment again at another time.
    pub fn again(&mut self, segment: &Segment, at_ns: u64) -> Segment {
        let mut bytes = segment.bytes.clone();
        if self.kind == Kind::Numbered {
            self.identification = self.identification.wrapping_add(1);
            bytes[4..6].copy_from_slice(&self.identification.to_be_bytes());
        }
        if at_ns / 1_000_000 != segment.at_ns / 1_000_000 && self.number % 12 < 6 {
            let header = if bytes[0] >> 4 == 4 { 20 } else { 40 };
            stamp(&mut bytes[header..], at_ns);
        }
        Segment { at_ns, bytes, turn: segment.turn + 1, ..*segment }
    }

    pub fn sends_again(&self) -> bool {
        matches!(self.kind, Kind::Data | Kind::Numbered | Kind::Zeros)
    }

    fn packet(&self, at_ns: u64, payload: usize, rng: &mut Rng) -> Vec<u8> {
        let is_six = !matches!(self.kind, Kind::Numbered | Kind::UnnumberedAcks);
        let has_options = !matches!(self.kind, Kind::BareAcks | Kind::UnnumberedAcks);
        let header = if is_six { 40 } else { 20 };
        let tcp = if has_options { 32 } else { 20 };
        let mut bytes = vec![0; header + tcp + payload];
        let (addresses, segment) = bytes.split_at_mut(header);
        let host = self.number as u8;
        if is_six {
            let length = (tcp + payload) as u16;
            addresses[0] = 0x60;
            addresses[4..6].copy_from_slice(&length.to_be_bytes());
            addresses[6..8].copy_from_slice(&[6, 64]);
            (addresses[8], addresses[23], addresses[24], addresses[39]) = (0xfd, host, 0xfd, 1);
        } else {
            let length = (header + tcp + payload) as u16;
            let has_number = self.kind == Kind::Numbered;
            let number = if has_number { self.identification } else { 0 };
            addresses[0] = 0x45;
            addresses[2..4].copy_from_slice(&length.to_be_bytes());
            addresses[4..6].copy_from_slice(&number.to_be_bytes());
            addresses[6..10].copy_from_slice(&[0x40, 0, 64, 6]);
            addresses[12..20].copy_from_slice(&[198, 18, 0, host, 198, 19, 0, 1]);
        }
        segment[..4].copy_from_slice(&[0x80, host, 0x01, 0xbb]);
        let place = if payload > 0 { 4..8 } else { 8..12 };
        segment[place].copy_from_slice(&self.sequence.to_be_bytes());
        (segment[12], segment[13], segment[14]) = ((tcp as u8 / 4) << 4, 0x10, 0x40);
        if has_options {
            stamp(segment, at_ns);
        }
        if self.kind != Kind::Zeros {
            segment[tcp..].fill_with(|| rng.below(256) as u8);
            let ticks = if has_options { (at_ns / 1_000_000) as u32 } else { 0 };
            let sum = self.sequence.wrapping_mul(0x9e37).wrapping_add(ticks);
            segment[16..18].copy_from_slice(&(sum as u16).to_be_bytes());
        }
        bytes
    }
}

/// The option of time stamps, in milliseconds (RFC 7323).
fn stamp(segment: &mut [u8], at_ns: u64) {
    segment[20..24].copy_from_slice(&[1, 1, 8, 10]);
    segment[24..28].copy_from_slice(&((at_ns / 1_000_000) as u32).to_be_bytes());
}
