//! The embedded input: synthetic flow records, so that the main job runs with no file at all.
//!
//! A minute of an imagined access network, with known properties of real ones, and labelled as
//! synthetic wherever it is shown: files with a lognormal body and a Pareto tail of exponent 1.2,
//! Zipf-distributed addresses, pairs that connect in bursts with pauses up to five seconds, three
//! intervals whose volumes differ by more than twofold, and the other content of every real export:
//! acknowledgement flows, short requests, look-ups over UDP, connections whose start or end was
//! missed. The records pass through the estimation like any other input.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nilometer_flow::record::{TCP, UDP, tcp_flags};
use nilometer_flow::{EndReason, FlowKey, FlowRecord};
use nilometer_stat::{Alias, Rng, parametric};

use crate::random_streams;

/// How long the imagined minute lasts, seconds.
pub const DURATION_S: f64 = 60.0;
/// IntervalDuration, seconds.
pub const INTERVAL_S: f64 = 20.0;
/// The longest inter-connection time, seconds.
pub const BOUND_S: f64 = 5.0;
/// Connections of each interval.
const CONNECTIONS: [usize; 3] = [3_900, 13_100, 7_600];
/// The moment it begins: 2026-01-01, ns since 1970.
pub const ORIGIN_NS: u64 = 1_767_225_600_000_000_000;

const CLIENTS: usize = 400;
const SERVERS: usize = 250;
const SYN_ACK_FIN: u8 = tcp_flags::SYN | tcp_flags::ACK | tcp_flags::FIN | tcp_flags::PSH;

/// The records, in the order in which they started.
pub fn records() -> Vec<FlowRecord> {
    let mut rng = Rng::new(2004, random_streams::SYNTHETIC, 0);
    let mut made = Vec::new();
    for (interval, &connections) in CONNECTIONS.iter().enumerate() {
        let start_s = interval as f64 * INTERVAL_S;
        let mut minute = Minute { rng: &mut rng, made: &mut made };
        minute.interval(start_s, connections);
    }
    made.sort_by_key(|record| (record.start_ns, record.key));
    made
}

struct Minute<'a> {
    rng: &'a mut Rng,
    made: &'a mut Vec<FlowRecord>,
}

impl Minute<'_> {
    /// Sessions one after another until the interval holds its connections.
    fn interval(&mut self, start_s: f64, connections: usize) {
        let popularity = |ranks| {
            Alias::new(&parametric::zipf_weights(ranks, 0.9)).expect("Zipf weights are positive")
        };
        let (clients, servers) = (popularity(CLIENTS), popularity(SERVERS));
        let mut left = connections;
        while left > 0 {
            let v6 = self.rng.unit() < 0.25;
            let client = address(v6, 0, clients.draw(self.rng));
            let server = address(v6, 1, servers.draw(self.rng));
            let mut at = self.rng.unit() * self.gap();
            while at < INTERVAL_S && left > 0 {
                self.connection(client, server, start_s + at);
                at += self.gap();
                left -= 1;
            }
        }
    }

    /// Bursts of connections, and pauses up to the bound.
    fn gap(&mut self) -> f64 {
        let mean = if self.rng.unit() < 0.6 { 0.12 } else { 1.4 };
        loop {
            let gap = self.rng.exponential(mean);
            if gap <= BOUND_S {
                return gap;
            }
        }
    }

    fn file_bytes(&mut self) -> u64 {
        let bytes = if self.rng.unit() < 0.88 {
            parametric::lognormal(self.rng, 8.16, 1.1)
        } else {
            parametric::pareto(self.rng, 1.2, 9_000.0)
        };
        (bytes as u64).clamp(100, 20_000_000)
    }

    fn connection(&mut self, client: IpAddr, server: IpAddr, start_s: f64) {
        let file = self.file_bytes();
        let request = 30 + self.rng.below(60);
        let lasts_s = 0.02 + file as f64 / 2.0e6;
        let key = FlowKey {
            source: client,
            destination: server,
            source_port: 1_024 + self.rng.below(64_000) as u16,
            destination_port: 443,
            protocol: TCP,
        };
        let segments = file.div_ceil(1_448);
        let (up, down) = (segments / 2 + 5, segments + 3);
        let span = (start_s, lasts_s);
        let chance = self.rng.unit();
        let flags = match chance {
            c if c < 0.02 => SYN_ACK_FIN & !tcp_flags::SYN,
            c if c < 0.05 => SYN_ACK_FIN & !tcp_flags::FIN,
            _ => SYN_ACK_FIN,
        };
        self.made.push(record(key, span, (up, request), flags, true));
        self.made.push(record(key.reversed(), span, (down, file), flags, false));
        if chance > 0.8 {
            let lookup = FlowKey { destination_port: 53, protocol: UDP, ..key };
            self.made.push(record(lookup, (start_s, 0.001), (1, 44), 0, true));
        }
    }
}

/// An address of side 0 (clients) or 1 (servers), by rank, from the benchmarking range (RFC 2544) and
/// the documentation prefix (RFC 3849).
fn address(v6: bool, side: u8, rank: usize) -> IpAddr {
    let [high, low] = (rank as u16 + 1).to_be_bytes();
    if v6 {
        let segments = [0x2001, 0xdb8, u16::from(side), 0, 0, 0, 0, rank as u16 + 1];
        IpAddr::V6(Ipv6Addr::from(segments))
    } else {
        IpAddr::V4(Ipv4Addr::new(198, 18 + side, high, low))
    }
}

fn record(
    key: FlowKey,
    (start_s, lasts_s): (f64, f64),
    (packets, payload): (u64, u64),
    flags: u8,
    from_client: bool,
) -> FlowRecord {
    let start_ns = ORIGIN_NS + (start_s * 1e9) as u64;
    let headers = match (key.protocol, key.source.is_ipv4()) {
        (TCP, true) => 52,
        (TCP, false) => 72,
        (_, true) => 28,
        (_, false) => 48,
    };
    FlowRecord {
        key,
        start_ns,
        end_ns: (start_ns + (lasts_s * 1e9) as u64).min(ORIGIN_NS + (DURATION_S * 1e9) as u64),
        packets,
        octets: payload + packets * headers,
        tcp_flags: flags,
        payload_octets: Some(payload),
        opened: (key.protocol == TCP).then_some(from_client),
        end_reason: EndReason::EndOfFlow,
        sampling_interval: 0,
    }
}
