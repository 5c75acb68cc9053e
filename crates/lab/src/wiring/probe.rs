//! Packets that test the path through a device, and their fate.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use nilometer_linux::memory::{MemoryConfig, Packet, PacketMemory};
use nilometer_linux::namespace::Namespace;
use nilometer_linux::netlink::MacAddress;
use nilometer_linux::packet_port::{PacketPort, PacketPortConfig};
use nilometer_linux::port_io::PortIo;
use nilometer_wire::build;
use nilometer_wire::link::LinkType;
use nilometer_wire::packet::{IpPacket, Parsed, Transport, parse};

/// What each probe begins with behind its UDP header: no other packets do.
const MARK: [u8; 8] = *b"NILOPROB";
/// The mark and a number.
const PAYLOAD_BYTES_MIN: usize = 16;
const ETHERNET_BYTES: usize = 14;
const ARP: u16 = 0x0806;
/// The port that probes are sent to: discard (RFC 863).
const DISCARD: u16 = 9;
/// The first of the ports that they are sent from (RFC 6335 6), and how many there are: a probe's
/// number selects one.
const SOURCE_PORTS: (u16, u64) = (49_152, 16_384);
/// Frames of a batch.
const BATCH: usize = 64;

/// A probe: a UDP datagram with a number of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Which it is.
    pub number: u64,
    /// The host that sends it.
    pub source: IpAddr,
    /// The destination.
    pub destination: IpAddr,
    /// The IP packet's length, which may not be changed on the way: it must not be fragmented.
    pub ip_bytes: u32,
}

impl Probe {
    /// The bytes of headers and number.
    pub fn ip_bytes_min(is_ipv6: bool) -> u32 {
        let header_bytes = if is_ipv6 { 40 } else { 20 };
        header_bytes + 8 + PAYLOAD_BYTES_MIN as u32
    }

    /// The port that it is sent from, which an ICMP error about it quotes.
    pub fn source_port(&self) -> u16 {
        SOURCE_PORTS.0 + (self.number % SOURCE_PORTS.1) as u16
    }

    /// Where it comes from.
    pub fn from(&self) -> SocketAddr {
        SocketAddr::new(self.source, self.source_port())
    }

    /// Where it goes to.
    pub fn to(&self) -> SocketAddr {
        SocketAddr::new(self.destination, DISCARD)
    }

    fn frame(&self, from: MacAddress, to: MacAddress) -> Vec<u8> {
        let bytes_min = Probe::ip_bytes_min(self.source.is_ipv6());
        let filler = self.ip_bytes.saturating_sub(bytes_min) as usize;
        let mut payload = MARK.to_vec();
        payload.extend(self.number.to_be_bytes());
        payload.resize(payload.len() + filler, 0);
        let packet = build::udp(self.from(), self.to(), &payload);
        let mut frame = build::ethernet(&packet);
        frame[..6].copy_from_slice(&to);
        frame[6..12].copy_from_slice(&from);
        frame
    }
}

/// A frame received at one of the lab's ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A probe, with the source that it has there.
    Probe {
        /// Which one.
        number: u64,
        /// Its source address.
        source: SocketAddr,
        /// And where it is for.
        destination: SocketAddr,
    },
    /// A request for an Ethernet address.
    ArpRequest {
        /// The sender.
        sender: Ipv4Addr,
        /// The requested address.
        target: Ipv4Addr,
    },
    /// An ICMP or ICMPv6 error.
    Error {
        /// The sender of the error.
        from: IpAddr,
        /// What.
        what: IcmpError,
        /// The source port of the datagram that it is about.
        port: u16,
    },
    /// Anything else.
    Other,
}

/// The meaning of an ICMP (RFC 792) or ICMPv6 (RFC 4443) error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpError {
    /// No route to the destination.
    NoRoute,
    /// A filter denies it.
    Prohibited,
    /// The next hop or the host does not answer.
    HostUnreachable,
    /// The packet is too long for the next link.
    TooBig,
    /// The hop limit came to zero on the way.
    TimeExceeded,
}

impl IcmpError {
    fn of(is_ipv6: bool, kind: u8, code: u8) -> Option<IcmpError> {
        Some(match (is_ipv6, kind, code) {
            (false, 3, 4) | (true, 2, _) => IcmpError::TooBig,
            (false, 3, 0 | 6 | 11) | (true, 1, 0) => IcmpError::NoRoute,
            // (Filters that reject also answer as if nothing listened at a port.)
            (false, 3, 3 | 9 | 10 | 13) | (true, 1, 1 | 4 | 5 | 6) => IcmpError::Prohibited,
            (false, 3, 1 | 5 | 7 | 12) | (true, 1, 3) => IcmpError::HostUnreachable,
            (false, 11, 0) | (true, 3, 0) => IcmpError::TimeExceeded,
            _ => return None,
        })
    }
}

/// The meaning of a frame for the wiring check.
pub fn sight(frame: &[u8]) -> Seen {
    match parse(LinkType::Ethernet, frame, frame.len() as u32) {
        Parsed::Ip(packet) => sight_of_ip(&packet, frame),
        Parsed::NotIp(Some(ARP)) => arp_request(&frame[ETHERNET_BYTES..]).unwrap_or(Seen::Other),
        _ => Seen::Other,
    }
}

fn sight_of_ip(packet: &IpPacket, frame: &[u8]) -> Seen {
    let is_ipv6 = packet.source.is_ipv6();
    match packet.transport {
        Transport::Udp { source_port, destination_port, .. } => {
            let payload_at = ETHERNET_BYTES + if is_ipv6 { 48 } else { 28 };
            let payload = frame.get(payload_at..payload_at + PAYLOAD_BYTES_MIN);
            match payload.and_then(|payload| payload.split_first_chunk::<8>()) {
                Some((mark, number)) if *mark == MARK => Seen::Probe {
                    number: u64::from_be_bytes(number.try_into().expect("eight bytes are left")),
                    source: SocketAddr::new(packet.source, source_port),
                    destination: SocketAddr::new(packet.destination, destination_port),
                },
                _ => Seen::Other,
            }
        }
        Transport::Icmp { kind, code } => match IcmpError::of(is_ipv6, kind, code) {
            Some(what) => match quoted_port(&frame[ETHERNET_BYTES..]) {
                Some(port) => Seen::Error { from: packet.source, what, port },
                None => Seen::Other,
            },
            None => Seen::Other,
        },
        _ => Seen::Other,
    }
}

/// The source port of the packet without options that an ICMP error without options quotes: at least eight bytes
/// behind its IP header are there (RFC 792).
fn quoted_port(packet: &[u8]) -> Option<u16> {
    let header_bytes = if packet.first()? >> 4 == 6 { 40 } else { 20 };
    let at = header_bytes + 8 + header_bytes;
    Some(u16::from_be_bytes(packet.get(at..at + 2)?.try_into().ok()?))
}

/// A request of RFC 826 for IPv4 over Ethernet.
fn arp_request(arp: &[u8]) -> Option<Seen> {
    const REQUEST_OF_IPV4: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 1];
    if arp.get(..8)? != REQUEST_OF_IPV4 {
        return None;
    }
    let address = |at: usize| {
        let bytes: [u8; 4] = arp.get(at..at + 4)?.try_into().ok()?;
        Some(Ipv4Addr::from(bytes))
    };
    Some(Seen::ArpRequest { sender: address(14)?, target: address(24)? })
}

/// A host's interface, by which frames are sent and seen as they are.
pub struct ProbePort {
    port: PacketPort,
    memory: PacketMemory,
    batch: Vec<Packet>,
}

impl ProbePort {
    /// Opens one of an interface of a lab's namespace, while it is up.
    ///
    /// # Errors
    /// When the kernel refuses a packet socket.
    pub fn open(namespace: &Namespace, interface: &str) -> Result<ProbePort> {
        namespace.enter(|| {
            let config = MemoryConfig { chunks: 512, ..MemoryConfig::default() };
            let mut memory = PacketMemory::new(config)?;
            let config = PacketPortConfig {
                reserve: 128,
                shows_what_it_sends: true,
                ..PacketPortConfig::default()
            };
            let port = PacketPort::open(&mut memory, interface, &config)?;
            Ok(ProbePort { port, memory, batch: Vec::new() })
        })
    }

    /// Sends a probe to the Ethernet address that leads on.
    ///
    /// # Errors
    /// When the interface is down or gone.
    pub fn send(&mut self, probe: &Probe, to: MacAddress) -> Result<()> {
        let frame = probe.frame(self.port.mac(), to);
        let buffer = self.memory.take().context("no memory for a probe")?;
        let packet = buffer.packet(frame.len() as u16);
        self.memory.frame_mut(&packet).copy_from_slice(&frame);
        let mut queue = VecDeque::from([packet]);
        let sent = self.port.transmit(&mut self.memory, &mut queue);
        queue.into_iter().for_each(|packet| self.memory.give(packet));
        sent?;
        self.port.flush(&mut self.memory)?;
        Ok(())
    }

    /// The frames received since the last call.
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn seen(&mut self) -> Result<Vec<Seen>> {
        let mut seen = Vec::new();
        loop {
            self.batch.clear();
            let count = self.port.receive(&mut self.memory, &mut self.batch, BATCH)?;
            for packet in self.batch.drain(..) {
                seen.push(sight(self.memory.frame(&packet)));
                self.memory.give(packet);
            }
            if count == 0 {
                return Ok(seen);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 18, 0, 1));
    const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 19, 0, 1));

    #[test]
    fn a_probe_is_recognised_by_its_number_and_gives_its_sender() {
        for (source, destination) in
            [(CLIENT, SERVER), ("fd00::1".parse().expect("v6"), "fd00::2".parse().expect("v6"))]
        {
            for ip_bytes in [0, 1_500] {
                let probe = Probe { number: 77, source, destination, ip_bytes };
                let frame = probe.frame([2; 6], [4; 6]);
                let [source, destination] = [probe.from(), probe.to()];
                assert_eq!(sight(&frame), Seen::Probe { number: 77, source, destination });
                let bytes = ip_bytes.max(Probe::ip_bytes_min(probe.source.is_ipv6())) as usize;
                assert_eq!(frame.len(), (14 + bytes).max(60));
                assert_eq!((&frame[..6], &frame[6..12]), (&[4; 6][..], &[2; 6][..]));
            }
        }
        let stranger = build::udp(SocketAddr::new(CLIENT, 9), SocketAddr::new(SERVER, 9), &[1; 40]);
        assert_eq!(sight(&build::ethernet(&stranger)), Seen::Other);
    }

    #[test]
    fn arp_requests_and_icmp_errors_are_distinguished() {
        let mut arp = vec![0, 1, 8, 0, 6, 4, 0, 1];
        arp.extend([2; 6]);
        arp.extend([198, 19, 255, 2]);
        arp.extend([0; 6]);
        arp.extend([198, 19, 255, 6]);
        let request =
            Seen::ArpRequest { sender: [198, 19, 255, 2].into(), target: [198, 19, 255, 6].into() };
        assert_eq!(sight(&build::ethernet_of(ARP, &arp)), request);
        arp[7] = 2;
        assert_eq!(sight(&build::ethernet_of(ARP, &arp)), Seen::Other, "a reply");
        for (kind, code, what) in [
            (3, 0, IcmpError::NoRoute),
            (3, 4, IcmpError::TooBig),
            (3, 13, IcmpError::Prohibited),
            (3, 1, IcmpError::HostUnreachable),
            (11, 0, IcmpError::TimeExceeded),
        ] {
            let probe = Probe { number: 5, source: CLIENT, destination: SERVER, ip_bytes: 0 };
            let mut body = vec![0; 4];
            body.extend(&probe.frame([2; 6], [4; 6])[14..14 + 28]);
            let packet = build::icmp(SERVER, CLIENT, kind, code, &body);
            let port = probe.source_port();
            assert_eq!(sight(&build::ethernet(&packet)), Seen::Error { from: SERVER, what, port });
        }
        let packet = build::icmp(SERVER, CLIENT, 0, 0, &[0; 60]);
        assert_eq!(sight(&build::ethernet(&packet)), Seen::Other, "an echo's reply");
    }
}
