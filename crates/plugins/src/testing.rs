//! Packets with valid checksums, and an instance that gets them, for the tests of this crate.

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use nilometer_plugin::checksum::{Sum, checksum};
use nilometer_plugin::context::PortNumbers;
use nilometer_plugin::headers::{Fragment, ICMP, ICMPV6, TCP, UDP};
use nilometer_plugin::{Decision, Headers, Packet, Plugin, Running, Services};

/// What an instance wanted.
#[derive(Default)]
pub(crate) struct Wishes {
    pub(crate) emitted: Vec<Vec<u8>>,
    pub(crate) lines: Vec<String>,
    /// The share by the scheduler.
    pub(crate) share_bps: Option<u64>,
}

impl Services for Wishes {
    fn emit(&mut self, packet: &[u8]) -> bool {
        self.emitted.push(packet.to_vec());
        true
    }

    fn log(&mut self, line: &str) {
        self.lines.push(line.to_string());
    }

    fn share_bps(&self) -> Option<u64> {
        self.share_bps
    }
}

/// An instance, a clock, and what it wanted.
pub(crate) struct Bench<P> {
    running: Running<P>,
    pub(crate) now_ns: u64,
    pub(crate) wishes: Wishes,
}

impl<P: Plugin> Bench<P> {
    pub(crate) fn new(configuration: &str) -> Bench<P> {
        let running = Running::new(configuration, 7).expect("a configuration");
        Bench { running, now_ns: 0, wishes: Wishes::default() }
    }

    /// The decision on a packet; its checksums hold afterwards if they did before.
    pub(crate) fn decide(&mut self, bytes: &mut [u8]) -> Decision {
        let held = holds(bytes);
        let ip_bytes = bytes.len() as u16;
        let seen = bytes.len().min(usize::from(P::SEEN_BYTES));
        let mut packet = Packet::new(&mut bytes[..seen], ip_bytes);
        let ports = PortNumbers { input: Some(0), output: None };
        let decision = self.running.process(self.now_ns, ports, &mut packet, &mut self.wishes);
        assert_eq!(holds(bytes), held, "checksums");
        decision
    }

    pub(crate) fn forwarded(&mut self, bytes: &mut [u8]) {
        assert_eq!(self.decide(bytes), Decision::Forward);
    }

    pub(crate) fn dropped(&mut self, bytes: &mut [u8]) {
        assert_eq!(self.decide(bytes), Decision::Drop);
    }

    /// Lets time pass, with the timers in it.
    pub(crate) fn wait(&mut self, ns: u64) {
        let end = self.now_ns + ns;
        while let Some(at) = self.running.timer().filter(|at| *at <= end) {
            self.now_ns = self.now_ns.max(at);
            self.running.timeout(self.now_ns, &mut self.wishes);
        }
        self.now_ns = end;
    }

    pub(crate) fn message(&mut self, message: &str) -> Result<String, String> {
        self.running.message(self.now_ns, message, &mut self.wishes)
    }

    pub(crate) fn counters(&self) -> &[u64] {
        self.running.counters()
    }
}

/// Why a configuration is refused.
pub(crate) fn refused<P: Plugin>(configuration: &str) -> String {
    Running::<P>::new(configuration, 1).err().expect("refused")
}

/// Whether every checksum is valid; a UDP checksum of zero and an incomplete packet count as valid.
pub(crate) fn holds(bytes: &[u8]) -> bool {
    let Some(headers) = Headers::read(bytes) else { return true };
    let is_header_right = bytes[0] >> 4 == 6 || checksum(&bytes[..20]) == 0;
    let (Some(at), Some(sum_at)) = (headers.transport_at, headers.checksum_at()) else {
        return is_header_right;
    };
    let is_absent = headers.protocol == UDP && bytes[sum_at..sum_at + 2] == [0, 0];
    let is_whole = headers.fragment == Fragment::Whole;
    is_header_right && (is_absent || !is_whole || transport_sum(bytes, &headers, at) == 0)
}

fn transport_sum(bytes: &[u8], headers: &Headers, at: usize) -> u16 {
    let mut sum = Sum::default();
    if headers.has_pseudo_header() {
        sum = match (headers.source, headers.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                sum.with(&source.octets()).with(&destination.octets())
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                sum.with(&source.octets()).with(&destination.octets())
            }
            _ => unreachable!(),
        };
        sum = sum.with(&[0, headers.protocol]).with(&((bytes.len() - at) as u16).to_be_bytes());
    }
    sum.with(&bytes[at..]).checksum()
}

/// An IP packet around a transport header and its payload; its checksum, at `sum_at`, is filled in.
pub(crate) fn packet(source: IpAddr, destination: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut header = vec![0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, protocol, 0, 0];
            header[2..4].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
            header.extend(source.octets());
            header.extend(destination.octets());
            let sum = checksum(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            header
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut header = vec![0x60, 0, 0, 0, 0, 0, protocol, 64];
            header[4..6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
            header.extend(source.octets());
            header.extend(destination.octets());
            header
        }
        _ => panic!("two versions"),
    };
    let at = bytes.len();
    bytes.extend(payload);
    let headers = Headers::read(&bytes).expect("a packet");
    if let Some(sum_at) = headers.checksum_at() {
        let sum = transport_sum(&bytes, &headers, at);
        bytes[sum_at..sum_at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    assert!(holds(&bytes));
    bytes
}

fn end(text: &str) -> SocketAddr {
    text.parse().expect("an address and a port")
}

/// A UDP datagram with `payload_bytes` bytes of payload.
pub(crate) fn udp(source: &str, destination: &str, payload_bytes: u16) -> Vec<u8> {
    let data: Vec<u8> = (0..payload_bytes).map(|at| at as u8).collect();
    udp_of(source, destination, &data)
}

/// A UDP datagram with these data.
pub(crate) fn udp_of(source: &str, destination: &str, data: &[u8]) -> Vec<u8> {
    let (source, destination) = (end(source), end(destination));
    let mut payload = Vec::new();
    payload.extend(source.port().to_be_bytes());
    payload.extend(destination.port().to_be_bytes());
    payload.extend((8 + data.len() as u16).to_be_bytes());
    payload.extend([0, 0]);
    payload.extend(data);
    packet(source.ip(), destination.ip(), UDP, &payload)
}

/// A TCP segment without payload, with flags.
pub(crate) fn tcp(source: &str, destination: &str, flags: u8) -> Vec<u8> {
    let (source, destination) = (end(source), end(destination));
    let mut payload = Vec::new();
    payload.extend(source.port().to_be_bytes());
    payload.extend(destination.port().to_be_bytes());
    payload.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 1, 0, 0, 0, 0, 0]);
    packet(source.ip(), destination.ip(), TCP, &payload)
}

/// An ICMP echo (8, or 128 for IPv6) or its reply, with an identifier.
pub(crate) fn icmp_echo(source: &str, destination: &str, kind: u8, identifier: u16) -> Vec<u8> {
    let mut payload = vec![kind, 0, 0, 0];
    payload.extend(identifier.to_be_bytes());
    payload.extend([0, 1, 1, 2, 3, 4, 5, 6, 7, 8]);
    icmp(source, destination, &payload)
}

/// An ICMP error about the beginning of a packet.
pub(crate) fn icmp_error(source: &str, destination: &str, about: &[u8]) -> Vec<u8> {
    let is_ipv4 = about[0] >> 4 == 4;
    let mut payload = vec![if is_ipv4 { 3 } else { 1 }, 1, 0, 0, 0, 0, 0, 0];
    payload.extend(&about[..about.len().min(48)]);
    icmp(source, destination, &payload)
}

fn icmp(source: &str, destination: &str, payload: &[u8]) -> Vec<u8> {
    let source: IpAddr = source.parse().expect("an address");
    let protocol = if source.is_ipv4() { ICMP } else { ICMPV6 };
    packet(source, destination.parse().expect("an address"), protocol, payload)
}
