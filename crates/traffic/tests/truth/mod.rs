//! Sessions whose number is known, and the flow records that an exporter makes of their connections.
//!
//! Nothing here uses the estimator: sessions are in *places*, each of which holds one session at a time, and
//! the number of places in use is the number of active sessions (Harpoon, section 3).

use std::net::{IpAddr, Ipv4Addr};

use nilometer_flow::record::{TCP, tcp_flags};
use nilometer_flow::{EndReason, FlowKey, FlowRecord};
use nilometer_stat::{Alias, Rng};

/// When the original begins, ns since 1970.
pub const ORIGIN_NS: u64 = 1_767_225_600_000_000_000;
/// The exporter's active timeout, ns.
const ACTIVE_NS: u64 = 15_000_000_000;
/// The exporter's inactive timeout, ns.
const INACTIVE_NS: u64 = 5_000_000_000;
/// Payload of a full segment.
const SEGMENT_BYTES: u64 = 1_460;
/// IP and TCP header without options.
const HEADER_BYTES: u64 = 40;
const SECOND_NS: f64 = 1e9;

/// A law of gaps or sizes.
pub type Law = fn(&mut Rng) -> f64;

/// How sessions behave.
#[derive(Clone)]
pub struct Habit {
    /// Sessions that are active in each stretch of time.
    pub active: Vec<usize>,
    /// How long a stretch lasts, s.
    pub stretch_s: f64,
    /// How long a session lasts before another takes its place, s; from half of it to one and a half.
    pub session_s: f64,
    /// Seconds from a session's beginning, or from its latest connection, to the next one.
    pub gap_s: Law,
    /// Payload of a request, bytes.
    pub request_bytes: Law,
    /// Payload of an answer, bytes.
    pub answer_bytes: Law,
    /// Weights of the clients' and the servers' addresses; one address for each session where empty.
    pub weights: [Vec<f64>; 2],
}

/// A connection that was made.
pub struct Made {
    /// Seconds since the original began.
    pub start_s: f64,
    /// Payload each way: request, answer.
    pub bytes: [u64; 2],
    /// Client and server.
    pub ends: [IpAddr; 2],
    /// How long the transfer takes, s.
    lasts_s: f64,
}

/// Sessions and their connections.
pub struct Truth {
    /// By session.
    pub connections: Vec<Made>,
    /// When the original ends, ns since 1970: no packet after that is seen.
    end_ns: u64,
    /// Session-seconds of each stretch over its length: the mean number of active sessions.
    pub active: Vec<f64>,
}

/// Simulates sessions of this habit.
pub fn truth(habit: &Habit, seed: u64) -> Truth {
    let mut rng = Rng::new(seed, 0x7472_7574, 0);
    let duration_s = habit.active.len() as f64 * habit.stretch_s;
    let end_ns = ORIGIN_NS + (duration_s * SECOND_NS) as u64;
    let active = vec![0.0; habit.active.len()];
    let mut made = Truth { connections: Vec::new(), end_ns, active };
    let mut sessions = 0;
    for place in 0..habit.active.iter().copied().max().unwrap_or(0) {
        let mut from = 0;
        while from < habit.active.len() {
            // A place is in use for consecutive stretches that have more sessions than there are places before
            // it.
            let until = (from..habit.active.len()).find(|&at| habit.active[at] <= place);
            let until = until.unwrap_or(habit.active.len());
            let (begin, end) = (from as f64 * habit.stretch_s, until as f64 * habit.stretch_s);
            let mut at = begin - rng.unit() * habit.session_s;
            while at < end {
                let lasts = habit.session_s * (0.5 + rng.unit());
                made.session((at.max(begin), (at + lasts).min(end)), sessions, habit, &mut rng);
                sessions += 1;
                at += lasts;
            }
            from = until.max(from + 1);
        }
    }
    made
}

impl Truth {
    fn session(&mut self, (begin, end): (f64, f64), session: usize, habit: &Habit, rng: &mut Rng) {
        for (stretch, active) in self.active.iter_mut().enumerate() {
            let (from, until) =
                (stretch as f64 * habit.stretch_s, (stretch + 1) as f64 * habit.stretch_s);
            *active += (end.min(until) - begin.max(from)).max(0.0) / habit.stretch_s;
        }
        let ends = [0, 1].map(|side| {
            let weights = &habit.weights[side];
            let rank = match weights.is_empty() {
                true => session,
                false => Alias::new(weights).expect("weights").draw(rng),
            };
            address(side, rank)
        });
        // A place continues in a steady state: the session's first wait began before it.
        let mut at = begin + (habit.gap_s)(rng) * rng.unit();
        while at < end {
            let bytes = [habit.request_bytes, habit.answer_bytes].map(|law| law(rng) as u64);
            // From a slow line to a fast one.
            let bytes_a_second = 20_000.0 * (3.0 * rng.unit()).exp();
            let lasts_s = 0.05 + (bytes[0] + bytes[1]) as f64 / bytes_a_second;
            self.connections.push(Made { start_s: at, bytes, ends, lasts_s });
            at += (habit.gap_s)(rng);
        }
    }

    /// The records of both directions, in the order in which they were exported. Each end is stamped late by
    /// `late_ns`.
    pub fn records(&self, late_ns: impl Fn(&mut Rng) -> u64) -> Vec<FlowRecord> {
        let mut ends = Rng::new(1, 0x7472_7574, 1);
        let mut records = Vec::new();
        for (number, made) in self.connections.iter().enumerate() {
            let key = FlowKey {
                source: made.ends[0],
                destination: made.ends[1],
                source_port: 1_024 + (number % 60_000) as u16,
                destination_port: 443,
                protocol: TCP,
            };
            // Each side acknowledges every second segment of the other.
            let segments = made.bytes.map(|bytes| bytes.div_ceil(SEGMENT_BYTES));
            for side in [0, 1] {
                let key = if side == 0 { key } else { key.reversed() };
                let packets = 3 + segments[side] + segments[1 - side] / 2;
                let start_ns =
                    ORIGIN_NS + (made.start_s * SECOND_NS) as u64 + side as u64 * 20_000_000;
                let way = Way {
                    start_ns,
                    end_ns: start_ns + (made.lasts_s * SECOND_NS) as u64,
                    packets,
                    payload: made.bytes[side],
                };
                way.export(key, self.end_ns, &mut records, &mut || late_ns(&mut ends));
            }
        }
        records.sort_by_key(|record| (record.end_ns, record.key));
        records
    }
}

/// One direction of a connection, with evenly spaced packets.
struct Way {
    start_ns: u64,
    end_ns: u64,
    packets: u64,
    payload: u64,
}

impl Way {
    /// The exporter's records of it until `until_ns`: a new one wherever a timer expired.
    fn export(
        &self,
        key: FlowKey,
        until_ns: u64,
        records: &mut Vec<FlowRecord>,
        late_ns: &mut impl FnMut() -> u64,
    ) {
        let at = |packet: u64| {
            self.start_ns + (self.end_ns - self.start_ns) * packet / (self.packets - 1).max(1)
        };
        let payload = |packet: u64| self.payload * packet / self.packets;
        let seen = (0..self.packets).take_while(|&packet| at(packet) < until_ns).count() as u64;
        let mut first = 0;
        while first < seen {
            let is_of_it = |&packet: &u64| {
                at(packet) < at(first) + ACTIVE_NS && at(packet) - at(packet - 1) < INACTIVE_NS
            };
            let next = (first + 1..seen).take_while(is_of_it).last().unwrap_or(first) + 1;
            let mut flags = tcp_flags::ACK;
            flags |= if first == 0 { tcp_flags::SYN } else { 0 };
            flags |= if next == self.packets { tcp_flags::FIN } else { 0 };
            // Stamps are in whole milliseconds.
            let stamp = |nanos: u64| nanos / 1_000_000 * 1_000_000;
            records.push(FlowRecord {
                key,
                start_ns: stamp(at(first)),
                end_ns: stamp(at(next - 1) + late_ns()),
                packets: next - first,
                octets: payload(next) - payload(first) + HEADER_BYTES * (next - first),
                tcp_flags: flags,
                payload_octets: None,
                opened: None,
                end_reason: EndReason::Unknown,
                sampling_interval: 0,
            });
            first = next;
        }
    }
}

/// A client's address (side 0) or a server's, by rank.
pub fn address(side: usize, rank: usize) -> IpAddr {
    Ipv4Addr::new(10 + side as u8, (rank >> 16) as u8, (rank >> 8) as u8, rank as u8).into()
}

/// Exact ends.
pub fn punctual(_: &mut Rng) -> u64 {
    0
}

/// Ends 454 ± 254 ms late, and never before the packet: Harpoon, Table 2.
pub fn late(ends: &mut Rng) -> u64 {
    (1e6 * (454.0 + 254.0 * ends.normal()).max(0.0)) as u64
}
