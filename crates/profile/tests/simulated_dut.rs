//! A simulated device that drops, repeats, swaps and corrupts known packets is reported exactly.
//!
//! "Exactly" means packet by packet: the outcomes are those that the device would report itself,
//! timestamps included. That can be required only where an outside observer sees enough, so the
//! scenario avoids four things that no observer can decide: look-alikes in flight together are only
//! forwarded (which of two identical packets was lost?); packets that differ in one word alone are
//! not corrupted (which of two lost ones was it?); pure ACKs are corrupted by a single bit, since
//! two of one flow differ in two words; and lengths do not change.

use nilometer_profile::{
    Counts, Direction, Fate, Fingerprint, Matcher, MatcherConfig, PacketOutcome,
};
use nilometer_stat::Rng;
use nilometer_wire::{Span, Time};

const PACKETS: usize = 20_000;
const FLOWS: usize = 200;
const MICRO: u64 = 1_000_000;
const HORIZON: Span = Span::from_secs(1);

fn one_in(rng: &mut Rng, count: u64) -> bool {
    rng.below(count) == 0
}

/// What a flow sends.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// IPv4 TCP segments of 200 to 1500 bytes, random payload.
    Bulk,
    /// IPv6 UDP of 100 to 1280 bytes, random payload.
    Datagram,
    /// IPv6 pure ACKs, each with its own acknowledgment number.
    Ack,
    /// IPv6 pure ACKs, eight identical ones in a row.
    SameAck,
    /// IPv4 UDP of 500 zeros, distinguished by the identification field alone.
    Zeros,
    /// The same IPv4 UDP packet again, every 1.1 horizons.
    Beacon,
}

struct Flow {
    number: usize,
    way: Direction,
    kind: Kind,
    sent: u32,
    beacon_due: u64,
}

impl Flow {
    fn new(number: usize) -> Flow {
        use Kind::*;
        let kind = [Bulk, Datagram, Ack, SameAck, Bulk, Zeros, Datagram, Ack, Bulk, Beacon];
        let way = Direction::ALL[number / 10 % 2];
        Flow { number, way, kind: kind[number % 10], sent: 0, beacon_due: 0 }
    }

    fn next_packet(&mut self, rng: &mut Rng) -> Vec<u8> {
        self.sent += 1;
        let (length, protocol) = match self.kind {
            Kind::Bulk => (200 + rng.below(1301) as usize, 6),
            Kind::Datagram => (100 + rng.below(1181) as usize, 17),
            Kind::Ack | Kind::SameAck => (60, 6),
            Kind::Zeros => (528, 17),
            Kind::Beacon => (90, 17),
        };
        let mut packet = vec![0; length];
        let ports = match self.kind {
            Kind::Bulk | Kind::Zeros | Kind::Beacon => {
                let id = if self.kind == Kind::Beacon { 0 } else { self.sent as u16 };
                header_v4(&mut packet, protocol, id, [198, 18, 0, self.number as u8]);
                20
            }
            _ => {
                header_v6(&mut packet, protocol, self.number as u8);
                40
            }
        };
        packet[ports..ports + 4].copy_from_slice(&[0x80, self.number as u8, 0x01, 0xbb]);
        match self.kind {
            Kind::Bulk | Kind::Datagram => {
                packet[ports + 4..].fill_with(|| rng.below(256) as u8);
            }
            Kind::Ack | Kind::SameAck => {
                let every = if self.kind == Kind::Ack { 1 } else { 8 };
                let acknowledged = self.sent.div_ceil(every) * 2_896;
                packet[ports + 8..ports + 12].copy_from_slice(&acknowledged.to_be_bytes());
                packet[ports + 16..ports + 18]
                    .copy_from_slice(&(!acknowledged as u16).to_be_bytes());
            }
            Kind::Zeros | Kind::Beacon => (),
        }
        packet
    }
}

fn header_v4(packet: &mut [u8], protocol: u8, id: u16, source: [u8; 4]) {
    let length = packet.len() as u16;
    packet[..2].copy_from_slice(&[0x45, 0x02]);
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet[4..6].copy_from_slice(&id.to_be_bytes());
    packet[8..10].copy_from_slice(&[64, protocol]);
    packet[12..16].copy_from_slice(&source);
    packet[16..20].copy_from_slice(&[198, 19, 0, 1]);
}

fn header_v6(packet: &mut [u8], protocol: u8, host: u8) {
    let payload = packet.len() as u16 - 40;
    packet[0] = 0x60;
    packet[4..6].copy_from_slice(&payload.to_be_bytes());
    packet[6..8].copy_from_slice(&[protocol, 64]);
    packet[8] = 0xfd;
    packet[23] = host;
    packet[24] = 0xfd;
    packet[39] = 1;
}

/// What forwarding does to every packet: one hop less, another checksum, sometimes a CE mark.
fn forward(packet: &mut [u8], rng: &mut Rng) {
    let marked = one_in(rng, 10);
    if packet[0] >> 4 == 4 {
        packet[8] -= 1;
        packet[10] ^= rng.below(256) as u8;
        packet[1] |= u8::from(marked) * 0b11;
    } else {
        packet[7] -= 1;
        packet[1] |= u8::from(marked) * 0b0011_0000;
    }
}

/// Flips one bit of a port, or up to three bits behind the ports (one of a pure ACK).
fn corrupt(packet: &mut [u8], kind: Kind, rng: &mut Rng) {
    let ports = if packet[0] >> 4 == 4 { 20 } else { 40 };
    let behind = (packet.len() - ports - 4) as u64;
    if one_in(rng, 2) {
        packet[ports + rng.below(4) as usize] ^= 1 << rng.below(8);
        return;
    }
    let word = rng.below(behind / 4) as usize;
    let flips = if kind == Kind::Ack { 1 } else { 1 + rng.below(3) as usize };
    // Consecutive words, so that no flip takes an earlier one back.
    for flip in 0..flips {
        let at = ports + 4 + (word + flip) % (behind as usize / 4) * 4 + rng.below(4) as usize;
        packet[at] ^= 1 << rng.below(8);
    }
}

/// A packet inside the device.
struct Inside {
    at: u64,
    bytes: Vec<u8>,
    flow: usize,
}

#[derive(Clone, Copy)]
struct Stamp {
    at: Time,
    print: Fingerprint,
    consumed: bool,
}

/// One direction of the device: first in, first out, except for its faults, which it records.
#[derive(Default)]
struct Device {
    entries: Vec<Stamp>,
    exits: Vec<Stamp>,
    truth: Vec<PacketOutcome>,
    known: Counts,
    free_at: u64,
    /// By flow: a packet that will leave just behind the next one of its flow.
    held: Vec<Option<Inside>>,
    /// A packet that will leave just behind the next one of another flow.
    aside: Option<Inside>,
}

impl Device {
    fn new() -> Device {
        Device { held: (0..FLOWS).map(|_| None).collect(), ..Device::default() }
    }

    fn tell(&mut self, fate: Fate, entered_at: Option<u64>, left_at: Option<u64>, bytes: &[u8]) {
        let print = Fingerprint::of(bytes);
        self.truth.push(PacketOutcome {
            direction: Direction::ClientToServer,
            fate,
            entered_at: entered_at.map(Time),
            left_at: left_at.map(Time),
            bytes: bytes.len() as u32,
            flow: print.flow,
            reordered: false,
        });
    }

    fn exit(&mut self, at: u64, bytes: &[u8]) {
        self.known.left += 1;
        self.exits.push(Stamp { at: Time(at), print: Fingerprint::of(bytes), consumed: false });
    }

    /// Lets `packet` leave at the next moment after `at`; returns that moment.
    fn leave(&mut self, mut packet: Inside, at: u64, reordered: bool, rng: &mut Rng) -> u64 {
        let at = at.max(self.free_at + 1 + rng.below(1_000));
        self.free_at = at;
        self.tell(Fate::Forwarded, Some(packet.at), Some(at), &packet.bytes);
        self.truth.last_mut().expect("just told").reordered = reordered;
        self.known.matched += 1;
        self.known.reordered += u64::from(reordered);
        self.known.early += u64::from(at < packet.at);
        forward(&mut packet.bytes, rng);
        self.exit(at, &packet.bytes);
        at
    }

    fn take(&mut self, now: u64, bytes: Vec<u8>, flow: usize, kind: Kind, rng: &mut Rng) {
        let print = Fingerprint::of(&bytes);
        let consumed = kind == Kind::Datagram && one_in(rng, 60);
        self.known.entered += 1;
        self.entries.push(Stamp { at: Time(now), print, consumed });
        if consumed {
            self.known.consumed += 1;
            return self.tell(Fate::Consumed, Some(now), None, &bytes);
        }
        if self.aside.as_ref().is_some_and(|aside| aside.flow == flow) {
            let aside = self.aside.take().expect("just seen");
            self.leave(aside, now, false, rng);
        }
        let packet = Inside { at: now, bytes, flow };
        match (kind, rng.below(100)) {
            (Kind::SameAck, _) | (_, 10..) => self.pass(packet, rng),
            (_, 0..2) => {
                self.known.lost += 1;
                self.tell(Fate::Lost, Some(now), None, &packet.bytes);
            }
            (_, 2..4) => self.repeat(packet, rng),
            (Kind::Zeros, 4..6) => self.pass(packet, rng),
            (_, 4..6) => self.damage(packet, kind, rng),
            (Kind::Beacon, _) => self.pass(packet, rng),
            (_, 6..8) if self.held[flow].is_none() => self.held[flow] = Some(packet),
            _ if self.aside.is_none() && self.held[flow].is_none() => self.aside = Some(packet),
            _ => self.pass(packet, rng),
        }
    }

    /// Forwards, now and then with a stamp up to 4 µs before its entry.
    fn pass(&mut self, packet: Inside, rng: &mut Rng) {
        let (flow, now) = (packet.flow, packet.at);
        let early = one_in(rng, 200).then(|| now - (1 + rng.below(4)) * MICRO);
        let at = early.unwrap_or(now + (5 + rng.below(300)) * MICRO);
        self.leave(packet, at, false, rng);
        self.release(flow, rng);
    }

    fn repeat(&mut self, packet: Inside, rng: &mut Rng) {
        let (flow, now, bytes) = (packet.flow, packet.at, packet.bytes.clone());
        let mut at = self.leave(packet, now + 20 * MICRO, false, rng);
        for _ in 0..=rng.below(2) {
            at += (1 + rng.below(1_000)) * MICRO;
            let mut copy = bytes.clone();
            forward(&mut copy, rng);
            self.exit(at, &copy);
            self.tell(Fate::Duplicated, Some(now), Some(at), &bytes);
            self.known.duplicated += 1;
        }
        self.release(flow, rng);
    }

    fn damage(&mut self, packet: Inside, kind: Kind, rng: &mut Rng) {
        let (flow, now) = (packet.flow, packet.at);
        let at = (now + 30 * MICRO).max(self.free_at + 1);
        self.free_at = at;
        self.tell(Fate::Corrupted, Some(now), Some(at), &packet.bytes);
        self.known.matched += 1;
        self.known.corrupted += 1;
        let mut bytes = packet.bytes;
        corrupt(&mut bytes, kind, rng);
        forward(&mut bytes, rng);
        self.exit(at, &bytes);
        self.release(flow, rng);
    }

    /// A packet of `flow` has just left: releases those that waited to leave behind it.
    fn release(&mut self, flow: usize, rng: &mut Rng) {
        if let Some(held) = self.held[flow].take() {
            self.leave(held, self.free_at, true, rng);
        }
        if let Some(aside) = self.aside.take() {
            self.leave(aside, self.free_at, false, rng);
        }
    }

    fn originate(&mut self, now: u64, rng: &mut Rng) {
        let mut bytes = vec![0; 56 + rng.below(500) as usize];
        bytes[20..].fill_with(|| rng.below(256) as u8);
        header_v4(&mut bytes, 1, rng.below(65_536) as u16, [198, 18, 255, 254]);
        self.exit(now, &bytes);
        self.tell(Fate::Originated, None, Some(now), &bytes);
        self.known.originated += 1;
    }

    /// The end of the run: what is still inside leaves, with nothing to overtake it.
    fn drain(&mut self, now: u64, rng: &mut Rng) {
        let aside = self.aside.take();
        for packet in self.held.iter_mut().filter_map(Option::take).chain(aside).collect::<Vec<_>>()
        {
            self.leave(packet, now, false, rng);
        }
        self.exits.sort_by_key(|exit| exit.at);
    }
}

/// Runs all flows through both directions of the device.
fn run(seed: u64) -> [Device; 2] {
    let mut rng = Rng::new(seed, 0, 0);
    let mut flows: Vec<Flow> = (0..FLOWS).map(Flow::new).collect();
    let mut devices = [Device::new(), Device::new()];
    let mut now = 1_000 * MICRO;
    let mut sent = 0;
    while sent < PACKETS {
        now += rng.below(500 * MICRO);
        let flow = &mut flows[rng.below(FLOWS as u64) as usize];
        let device = &mut devices[flow.way.index()];
        if one_in(&mut rng, 100) {
            device.originate(now + 7, &mut rng);
        }
        if flow.kind == Kind::Beacon {
            if now < flow.beacon_due {
                continue;
            }
            flow.beacon_due = now + HORIZON.0 / 10 * 11;
        }
        let bytes = flow.next_packet(&mut rng);
        device.take(now, bytes, flow.number, flow.kind, &mut rng);
        sent += 1;
    }
    for (device, way) in devices.iter_mut().zip(Direction::ALL) {
        device.drain(now, &mut rng);
        device.truth.iter_mut().for_each(|outcome| outcome.direction = way);
    }
    devices
}

/// Feeds the stamps as a meter would: by windows of 5 ms, now one side first, now the other.
fn measure(devices: &[Device; 2]) -> (Matcher, Vec<PacketOutcome>) {
    let mut matcher = Matcher::new(MatcherConfig { horizon: HORIZON, ..Default::default() });
    let mut outcomes = Vec::new();
    let mut fed = [(0, 0); 2];
    let ends = devices.iter().flat_map(|device| [device.entries.last(), device.exits.last()]);
    let end = ends.flatten().map(|stamp| stamp.at).max().expect("packets");
    let mut until = Time::ZERO;
    while until <= end {
        until += Span::from_nanos(5_000_000);
        for ((device, way), (entered, left)) in devices.iter().zip(Direction::ALL).zip(&mut fed) {
            for side in 0..2 {
                if (side == 0) == (until.0 / 5_000_000_000).is_multiple_of(2) {
                    for stamp in device.entries[*entered..].iter().take_while(|s| s.at < until) {
                        matcher.entered(way, stamp.at, &stamp.print, stamp.consumed);
                        *entered += 1;
                    }
                } else {
                    for stamp in device.exits[*left..].iter().take_while(|s| s.at < until) {
                        matcher.left(way, stamp.at, &stamp.print);
                        *left += 1;
                    }
                }
            }
        }
        matcher.expire(until, &mut |outcome| outcomes.push(outcome));
    }
    matcher.finish(&mut |outcome| outcomes.push(outcome));
    (matcher, outcomes)
}

#[test]
fn every_packet_is_reported_as_it_fared() {
    for seed in 1..=5 {
        let devices = run(seed);
        let (matcher, mut outcomes) = measure(&devices);
        for (device, way) in devices.iter().zip(Direction::ALL) {
            let counts = matcher.counts(way);
            assert_eq!(counts, device.known, "seed {seed}, {way:?}");
            assert_eq!(counts.balance(), Ok(()));
            assert_eq!(counts.undecided(), 0);
            let Counts { lost, consumed, originated, duplicated, .. } = counts;
            let Counts { reordered, corrupted, early, .. } = counts;
            let faults = [lost, consumed, originated, duplicated, reordered, corrupted, early];
            assert!(faults.iter().all(|&count| count >= 20), "each fault occurs often: {faults:?}");
        }
        assert_eq!(matcher.total().entered, PACKETS as u64);
        let mut truth: Vec<PacketOutcome> = devices.into_iter().flat_map(|d| d.truth).collect();
        truth.sort();
        outcomes.sort();
        for (outcome, truth) in outcomes.iter().zip(&truth) {
            assert_eq!(outcome, truth, "seed {seed}");
        }
        assert_eq!(outcomes.len(), truth.len());
    }
}
