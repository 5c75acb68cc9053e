//! Reassembly of datagrams in fragments that are addressed to the router itself.
//!
//! Forwarded packets are never reassembled (RFC 1812, 5.2.6; RFC 8200, 4.5); packets for the router
//! must be (4.2.2.8). Fragments wait under source, destination, identification and, in IPv4,
//! protocol until none is missing, or until 60 seconds after the first that came (RFC 8200, 4.5;
//! RFC 1122, 3.3.2). A datagram that times out is handed back: if its first fragment is there, the
//! sender gets an ICMP error (time exceeded, code 1).
//!
//! Overlapping fragments serve only attacks: the whole datagram is silently dropped, with the
//! fragments of it that are yet to come (RFC 5722), in either version. A fragment that repeats
//! another byte for byte is ignored (RFC 8200, 4.5). An IPv4 fragment of TCP that hides its flags,
//! and a second one that could overwrite them, are dropped (RFC 1858, 3). An IPv6 packet that is
//! its only fragment is whole at once (RFC 6946).
//!
//! Memory has two bounds, datagrams and bytes; past either the oldest datagram goes. Each fragment
//! is accounted for once: delivered, repeated, discarded for a reason, or waiting.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use nilometer_wire::{Span, Time};

use super::fragment::sum_header;
use super::icmp::Problem;
use super::{double_word, ipv4_extent, ipv6_extent, word};
use crate::header::{EXTENSIONS_MAX, IPV6_BYTES, protocol};

/// Bytes of TCP that a first fragment must hold, so that the flags are among them (RFC 1858, 3.2).
const TCP_BYTES_MIN: usize = 16;
const DATAGRAM_BYTES_MAX: usize = 65_535;
/// Number of [`Reason`]s.
pub const REASONS: usize = 6;

/// Why a fragment was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Reason {
    /// It is no sound fragment: no payload, or one that is not a multiple of eight bytes.
    Unsound,
    /// The datagram would be longer than 65,535 bytes.
    TooLong,
    /// It overlaps another, or belongs to a datagram in which two did, or its end moved.
    Overlap,
    /// It hides the flags of a TCP header, or lies over them.
    Tiny,
    /// Its datagram was the oldest when there was no more room.
    Evicted,
    /// Its datagram ran out of time.
    Expired,
}

/// What became of a fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It waits for the others, or repeats one that is there.
    Waiting,
    /// The datagram is whole: an IP packet without a trace of fragmentation.
    Whole(Vec<u8>),
    /// It was dropped; in some cases of IPv6 the sender gets an ICMP error.
    Dropped(Reason, Option<Problem>),
}

/// Bounds and patience.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The most datagrams that wait, at least one.
    pub datagrams_max: usize,
    /// The most bytes of payload that wait. One datagram is always let in.
    pub bytes_max: usize,
    /// The reassembly timeout, from the first fragment that arrived.
    pub patience: Span,
}

impl Default for Settings {
    /// 64 datagrams, a megabyte, 60 seconds.
    fn default() -> Settings {
        Settings { datagrams_max: 64, bytes_max: 1 << 20, patience: Span::from_secs(60) }
    }
}

/// Where all fragments went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReassemblyCounters {
    /// Fragments that came.
    pub received: u64,
    /// Those that became part of a whole datagram.
    pub delivered: u64,
    /// Those that repeated another.
    pub repeated: u64,
    /// Those that were dropped, by [`Reason`].
    pub dropped: [u64; REASONS],
    /// Those that wait.
    pub waiting: u64,
}

/// A datagram that ran out of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expired {
    /// The port by which a fragment of it came first.
    pub port: u16,
    /// Its first fragment, if that came: the sender is to be sent [`Problem::Reassembly`].
    pub first: Option<Vec<u8>>,
}

/// Source, destination, identification, and protocol and version.
type Key = (u128, u128, u32, u8, bool);

/// A fragment, taken apart.
struct Piece<'a> {
    key: Key,
    /// The header that the whole packet will have.
    head: Vec<u8>,
    payload: &'a [u8],
    /// Bytes of payload before it.
    start: usize,
    is_last: bool,
    /// IPv6: where the offset stands, for a complaint.
    offset_at: u16,
}

#[derive(Debug, Default)]
struct Datagram {
    began: Time,
    port: u16,
    /// Payloads by where they start; they never overlap.
    pieces: BTreeMap<usize, Vec<u8>>,
    bytes: usize,
    /// Bytes of the whole payload, once the last fragment came.
    total: Option<usize>,
    head: Option<Vec<u8>>,
    /// The first fragment as it came, to be quoted.
    first: Option<Vec<u8>>,
    /// Two fragments disagreed: later ones are dropped.
    is_void: bool,
}

/// Puts fragments together.
#[derive(Debug)]
pub struct Reassembler {
    settings: Settings,
    datagrams: BTreeMap<Key, Datagram>,
    bytes: usize,
    account: ReassemblyCounters,
}

impl Reassembler {
    /// Nothing waits yet.
    pub fn new(settings: Settings) -> Reassembler {
        Reassembler {
            settings,
            datagrams: BTreeMap::new(),
            bytes: 0,
            account: ReassemblyCounters::default(),
        }
    }

    /// Where all fragments went so far.
    pub fn account(&self) -> ReassemblyCounters {
        let waiting = self.datagrams.values().map(|datagram| datagram.pieces.len() as u64).sum();
        ReassemblyCounters { waiting, ..self.account }
    }

    /// Bytes of payload that wait.
    pub fn waiting_bytes(&self) -> usize {
        self.bytes
    }

    /// Takes a fragment of either version that came by `port`, an IP packet with or without padding
    /// behind it. Fragments of a datagram may come by different ports.
    pub fn push(&mut self, now: Time, port: u16, packet: &[u8]) -> Outcome {
        self.account.received += 1;
        let Some(piece) = take_apart(packet) else { return self.dropped(Reason::Unsound, None) };
        if let Err((reason, problem)) = check(&piece) {
            return self.dropped(reason, problem);
        }
        if piece.key.4 && piece.start == 0 && piece.is_last {
            self.account.delivered += 1;
            return Outcome::Whole(join(piece.head, [piece.payload].into_iter()));
        }
        let key = piece.key;
        if !self.datagrams.contains_key(&key) {
            if self.datagrams.len() >= self.settings.datagrams_max.max(1) {
                self.evict();
            }
            self.datagrams.insert(key, Datagram { began: now, port, ..Datagram::default() });
        }
        let Some(datagram) = self.datagrams.get_mut(&key) else { return Outcome::Waiting };
        let bytes = datagram.bytes;
        match datagram.place(&piece, packet) {
            Placed::Repeated => self.account.repeated += 1,
            Placed::Disagrees(fragments) => {
                self.bytes -= bytes;
                self.account.dropped[Reason::Overlap as usize] += fragments;
                return self.dropped(Reason::Overlap, None);
            }
            Placed::New => self.bytes += piece.payload.len(),
        }
        if datagram.is_whole() {
            return self.deliver(key);
        }
        while self.bytes > self.settings.bytes_max && self.datagrams.len() > 1 {
            self.evict();
        }
        Outcome::Waiting
    }

    /// When the next datagram runs out of time.
    pub fn next_timeout(&self) -> Option<Time> {
        let began = self.datagrams.values().map(|datagram| datagram.began).min()?;
        Some(began + self.settings.patience)
    }

    /// Drops one datagram that has run out of time at `now`; nothing when there is none.
    pub fn expire(&mut self, now: Time) -> Option<Expired> {
        if self.next_timeout()? > now {
            return None;
        }
        let datagram = self.remove_oldest(Reason::Expired)?;
        let first = datagram.first.filter(|_| !datagram.is_void);
        Some(Expired { port: datagram.port, first })
    }

    fn dropped(&mut self, reason: Reason, problem: Option<Problem>) -> Outcome {
        self.account.dropped[reason as usize] += 1;
        Outcome::Dropped(reason, problem)
    }

    fn evict(&mut self) {
        self.remove_oldest(Reason::Evicted);
    }

    fn remove_oldest(&mut self, reason: Reason) -> Option<Datagram> {
        let oldest = self.datagrams.iter().min_by_key(|(_, datagram)| datagram.began);
        let key = *oldest?.0;
        let datagram = self.datagrams.remove(&key)?;
        self.bytes -= datagram.bytes;
        self.account.dropped[reason as usize] += datagram.pieces.len() as u64;
        Some(datagram)
    }

    fn deliver(&mut self, key: Key) -> Outcome {
        let Some(datagram) = self.datagrams.remove(&key) else { return Outcome::Waiting };
        self.bytes -= datagram.bytes;
        let fragments = datagram.pieces.len() as u64;
        let head = datagram.head.unwrap_or_default();
        if head.len() + datagram.bytes > DATAGRAM_BYTES_MAX + usize::from(key.4) * IPV6_BYTES {
            self.account.dropped[Reason::TooLong as usize] += fragments;
            return Outcome::Dropped(Reason::TooLong, None);
        }
        self.account.delivered += fragments;
        Outcome::Whole(join(head, datagram.pieces.values().map(Vec::as_slice)))
    }
}

/// What placing a fragment showed.
enum Placed {
    New,
    Repeated,
    /// With the number of fragments that were there, which are dropped.
    Disagrees(u64),
}

impl Datagram {
    fn place(&mut self, piece: &Piece<'_>, packet: &[u8]) -> Placed {
        let end = piece.start + piece.payload.len();
        if self.is_void {
            return Placed::Disagrees(0);
        }
        let is_same = |there: &Vec<u8>| there == piece.payload;
        if self.pieces.get(&piece.start).is_some_and(is_same)
            && piece.is_last == (self.total == Some(end))
        {
            return Placed::Repeated;
        }
        let before = self.pieces.range(..end).next_back();
        let overlaps = before.is_some_and(|(start, there)| start + there.len() > piece.start);
        let furthest = self.pieces.last_key_value().map_or(0, |(start, there)| start + there.len());
        let moves_end = match self.total {
            Some(total) => piece.is_last || end > total,
            None => piece.is_last && furthest > end,
        };
        if overlaps || moves_end {
            let fragments = self.pieces.len() as u64;
            let (began, port) = (self.began, self.port);
            *self = Datagram { began, port, is_void: true, ..Datagram::default() };
            return Placed::Disagrees(fragments);
        }
        if piece.is_last {
            self.total = Some(end);
        }
        if piece.start == 0 {
            self.head = Some(piece.head.clone());
            self.first = Some(packet.to_vec());
        }
        self.pieces.insert(piece.start, piece.payload.to_vec());
        self.bytes += piece.payload.len();
        Placed::New
    }

    /// The pieces do not overlap, so as many bytes as there should be are all of them.
    fn is_whole(&self) -> bool {
        self.total == Some(self.bytes) && self.head.is_some()
    }
}

/// Refuses what is invalid whatever the other fragments are.
fn check(piece: &Piece<'_>) -> Result<(), (Reason, Option<Problem>)> {
    let (is_v6, bytes) = (piece.key.4, piece.payload.len());
    let reported = |pointer: u16| is_v6.then_some(Problem::Parameter { pointer });
    let is_only = piece.start == 0 && piece.is_last;
    if bytes == 0 && !is_only || !piece.is_last && !bytes.is_multiple_of(8) {
        return Err((Reason::Unsound, reported(4))); // at the payload length
    }
    let overhead = if is_v6 { 0 } else { piece.head.len() };
    if overhead + piece.start + bytes > DATAGRAM_BYTES_MAX {
        return Err((Reason::TooLong, reported(piece.offset_at)));
    }
    let is_tcp = piece.key.3 == protocol::TCP;
    let hides = piece.start == 0 && !piece.is_last && bytes < TCP_BYTES_MIN;
    if is_tcp && (hides || piece.start == 8) {
        return Err((Reason::Tiny, None));
    }
    Ok(())
}

fn take_apart(packet: &[u8]) -> Option<Piece<'_>> {
    if packet.first()? >> 4 == 6 { take_apart_ipv6(packet) } else { take_apart_ipv4(packet) }
}

fn take_apart_ipv4(packet: &[u8]) -> Option<Piece<'_>> {
    let (header_bytes, total_bytes) = ipv4_extent(packet)?;
    let [source, destination] = [12, 16].map(|at| u128::from(double_word(packet, at)));
    let flags = word(packet, 6);
    let mut head = packet[..header_bytes].to_vec();
    head[6..8].fill(0);
    Some(Piece {
        key: (source, destination, u32::from(word(packet, 4)), packet[9], false),
        head,
        payload: &packet[header_bytes..total_bytes],
        start: usize::from(flags & 0x1fff) * 8,
        is_last: flags & 0x2000 == 0,
        offset_at: 6,
    })
}

fn take_apart_ipv6(packet: &[u8]) -> Option<Piece<'_>> {
    let packet = &packet[..ipv6_extent(packet)?];
    let (mut next_at, mut at) = (6, IPV6_BYTES);
    for _ in 0..EXTENSIONS_MAX {
        let here = packet.get(at..at + 8)?;
        match packet[next_at] {
            protocol::FRAGMENT => {
                let address = |from: usize| {
                    (from..from + 16)
                        .step_by(4)
                        .fold(0, |sum: u128, at| sum << 32 | u128::from(double_word(packet, at)))
                };
                let mut head = packet[..at].to_vec();
                head[next_at] = here[0];
                let id = double_word(here, 4);
                return Some(Piece {
                    // The protocol of a later fragment is not certain, and not part of the key.
                    key: (address(8), address(24), id, 0, true),
                    head,
                    payload: &packet[at + 8..],
                    start: usize::from(word(here, 2) & 0xfff8),
                    is_last: here[3] & 1 == 0,
                    offset_at: u16::try_from(at + 2).ok()?,
                });
            }
            protocol::HOP_BY_HOP if at == IPV6_BYTES => {}
            protocol::ROUTING | protocol::DESTINATION_OPTIONS => {}
            _ => return None,
        }
        next_at = at;
        at += (usize::from(here[1]) + 1) * 8;
    }
    None
}

/// A header and its payload, with the lengths and the checksum of the whole.
fn join<'a>(mut packet: Vec<u8>, pieces: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    for piece in pieces {
        packet.extend_from_slice(piece);
    }
    if packet[0] >> 4 == 4 {
        let total_bytes = packet.len() as u16;
        packet[2..4].copy_from_slice(&total_bytes.to_be_bytes());
        sum_header(&mut packet);
    } else {
        let payload_bytes = (packet.len() - IPV6_BYTES) as u16;
        packet[4..6].copy_from_slice(&payload_bytes.to_be_bytes());
    }
    packet
}
