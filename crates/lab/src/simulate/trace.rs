//! The packets of one link of one run as a pcapng capture, with the headers that they would have.
//!
//! A simulated packet is a record of its header fields; here it becomes bytes again, options and
//! checksums included, so that any tool that reads captures reads it. Payload is zeros, and only the
//! beginning of each packet is kept. A stamp is the moment at which the last bit left the
//! transmitter, in nanoseconds since the run began. Flow n goes from 198.18.0.0/16 to 198.19.0.0/16,
//! the benchmarking range (RFC 2544), at the address whose last two bytes are n.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Result, anyhow, bail};
use nilometer_queue::Reason;
use nilometer_sim::run::run;
use nilometer_sim::topology::{Step, Topology};
use nilometer_sim::{Packet, Protocol, Route, Scenario, Tap};
use nilometer_tcp::bytes::{Ends, emit};
use nilometer_traffic::TrafficModel;
use nilometer_wire::checksum::internet_checksum;
use nilometer_wire::{Span, Time, build};

use super::router::RouterFiles;
use nilometer_files::document::results::ResultFile;
use nilometer_files::table::capture::CaptureWriter;

/// Packets kept by default.
const PACKETS: usize = 100_000;
/// Most packets that may be requested.
const PACKETS_MAX: usize = 10_000_000;
/// Bytes of each frame that are kept: all headers and options.
const SNAP_BYTES: usize = 114;
/// Bytes of an IPv4 header without options.
const IP_BYTES: usize = 20;
/// Bytes of the Ethernet header.
const ETHERNET_BYTES: u32 = 14;
/// The number of TCP in an IP header.
const TCP: u8 = 6;

/// What is to be traced: `LINK` or `LINK:LIMIT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRequest {
    /// A declared link; of a group's, the first host's.
    pub link: String,
    /// Most packets, both directions together, from the beginning of the run.
    pub limit: usize,
}

impl std::str::FromStr for TraceRequest {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<TraceRequest> {
        let Some((link, limit)) = text.rsplit_once(':') else {
            return Ok(TraceRequest { link: text.to_owned(), limit: PACKETS });
        };
        match limit.parse() {
            Ok(limit) if (1..=PACKETS_MAX).contains(&limit) => {
                Ok(TraceRequest { link: link.to_owned(), limit })
            }
            _ => bail!("`{limit}` packets; the limit is a number from 1 to {PACKETS_MAX}"),
        }
    }
}

/// One packet that left a transmitter.
#[derive(Clone, Copy, Debug)]
struct Left {
    at: Time,
    is_back: bool,
    packet: Packet,
}

/// Keeps the first packets of a link's two directions. The engine reports each direction's packets
/// in order, but may report one direction far ahead of the other, and beyond the end of the run. So
/// `limit` packets are kept of each, and the first of both are chosen at the end.
struct Tracer {
    links: [usize; 2],
    delay: Span,
    end: Time,
    limit: usize,
    left: [Vec<Left>; 2],
}

impl Tracer {
    /// The first packets of both directions, as they left.
    fn into_first(self) -> Vec<Left> {
        let mut left = self.left.concat();
        left.sort_by_key(|left| left.at);
        left.truncate(self.limit);
        left
    }
}

impl Tap for Tracer {
    fn transmitted(&mut self, link: usize, arrival: Time, packet: &Packet) {
        let Some(way) = self.links.iter().position(|&traced| traced == link) else { return };
        let at = Time(arrival.0 - self.delay.0);
        if self.left[way].len() < self.limit && at <= self.end {
            self.left[way].push(Left { at, is_back: way == 1, packet: *packet });
        }
    }

    fn dropped(&mut self, _link: usize, _now: Time, _reason: Reason, _packet: &Packet) {}

    fn delivered(&mut self, _member: usize, _now: Time, _packet: &Packet) {}
}

/// The link's number in the scenario.
///
/// # Errors
/// No link of that name.
pub fn check(request: &TraceRequest, scenario: &Scenario) -> Result<usize> {
    Ok(Topology::new(scenario)?.wire("--trace", &request.link)?)
}

/// Makes one run again and writes what passed the link; returns how many packets that were.
///
/// # Errors
/// No such link, or a file that cannot be written.
pub fn trace(
    request: &TraceRequest,
    scenario: &Scenario,
    (models, routers): (&[TrafficModel], &RouterFiles),
    seed: u64,
    to: &ResultFile,
) -> Result<u64> {
    let topology = Topology::new(scenario)?;
    let wire = topology.wire("--trace", &request.link)?;
    let links = [false, true].map(|is_back| topology.link(Step { wire, is_back }, 0) as usize);
    let delay = scenario.link[wire].delay;
    let assembly = routers.assemble(scenario, models, seed)?;
    let (end, limit) = (Time::ZERO + assembly.duration, request.limit);
    let tracer = Tracer { links, delay, end, limit, left: Default::default() };
    let ended = run(assembly, seed, tracer, &mut |_| true);
    let (_, tracer) = ended.ok_or_else(|| anyhow!("the run did not end"))?;
    let mut writer = CaptureWriter::create(to, &request.link)?;
    for left in &tracer.into_first() {
        let frame = build::ethernet(&ip_packet(&left.packet));
        let kept = &frame[..frame.len().min(SNAP_BYTES)];
        let original = (u32::from(left.packet.bytes) + ETHERNET_BYTES).max(frame.len() as u32);
        writer.write(left.at.as_nanos(), !left.is_back, original, kept)?;
    }
    writer.finish()
}

/// The addresses of a packet's flow, in the direction of its route.
fn ends(packet: &Packet) -> Ends {
    let flow = packet.route.flow();
    let [high, low] = (flow as u16).to_be_bytes();
    let port = 10_000 + (flow >> 16) as u16;
    let end = |network: u8, port| -> SocketAddr {
        (IpAddr::V4(Ipv4Addr::new(198, network, high, low)), port).into()
    };
    let (client, server) = (end(18, port), end(19, 5_001));
    if packet.route == Route::out(flow) {
        Ends { source: client, destination: server }
    } else {
        Ends { source: server, destination: client }
    }
}

/// The packet as it would be on a wire.
fn ip_packet(packet: &Packet) -> Vec<u8> {
    let ends = ends(packet);
    let mut bytes = match packet.protocol {
        Protocol::Udp => {
            let payload = vec![0; usize::from(packet.segment.length)];
            build::udp(ends.source, ends.destination, &payload)
        }
        Protocol::Tcp => {
            let mut segment = Vec::new();
            emit(&packet.segment, &ends, &mut segment);
            build::ip_packet(ends.source.ip(), ends.destination.ip(), TCP, segment)
        }
    };
    bytes[1] = packet.ecn as u8;
    bytes[10..12].fill(0);
    let checksum = internet_checksum(&[&bytes[..IP_BYTES]]);
    bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_direction_reported_ahead_does_not_cut_the_other_off() {
        let left = [Vec::new(), Vec::new()];
        let (links, delay, end) = ([4, 5], Span(7), Time(1_000));
        let mut tracer = Tracer { links, delay, end, limit: 10, left };
        for at in (0..2_000).step_by(20) {
            tracer.transmitted(5, Time(at + 7), &Packet::default());
            tracer.transmitted(6, Time(at + 7), &Packet::default());
        }
        for at in (10..2_000).step_by(20) {
            tracer.transmitted(4, Time(at + 7), &Packet::default());
        }
        let first = tracer.into_first();
        let expected: Vec<(u64, bool)> = (0..10).map(|n| (n * 10, n % 2 == 0)).collect();
        assert_eq!(first.iter().map(|l| (l.at.0, l.is_back)).collect::<Vec<_>>(), expected);
        let mut tracer = Tracer { links, delay, end, limit: 10, left: Default::default() };
        for at in [999, 1_000, 1_001, 1_002] {
            tracer.transmitted(4, Time(at + 7), &Packet::default());
        }
        assert_eq!(tracer.into_first().len(), 2, "what left within the run");
    }

    #[test]
    fn a_trace_request_is_a_link_and_a_limit() {
        let request = |text: &str| text.parse::<TraceRequest>();
        let plain = request("line").expect("a link");
        assert_eq!((plain.link.as_str(), plain.limit), ("line", PACKETS));
        let limited = request("a:b:7").expect("a link and a limit");
        assert_eq!((limited.link.as_str(), limited.limit), ("a:b", 7));
        assert!(request("line:0").is_err() && request("line:x").is_err());
    }
}
