//! The packets of captures counted by kind, for the refusal of a capture in which the wanted kind is absent.
//!
//! UDP is classified by the ports that IANA registers; a tunnel on any other port counts as other UDP.

use nilometer_wire::packet::{IpPacket, Transport};

/// IANA protocol numbers.
const TCP: u8 = 6;
const ESP: u8 = 50;
const AH: u8 = 51;

nilometer_wire::named! {
    /// A kind of packet.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum PacketKind {
        /// A TCP segment with its header.
        Tcp = "TCP",
        /// A TCP segment whose header was cut off, by the snap length or by fragmentation.
        TcpCut = "TCP without its header",
        /// UDP port 443.
        Quic = "QUIC (UDP port 443)",
        /// UDP port 53.
        Dns = "DNS",
        /// UDP port 51820.
        WireGuard = "WireGuard",
        /// UDP port 1194.
        OpenVpn = "OpenVPN",
        /// ESP, AH, and UDP ports 500 and 4500.
        Ipsec = "IPsec",
        /// Other UDP.
        Udp = "other UDP",
        /// ICMP and ICMPv6.
        Icmp = "ICMP",
        /// SCTP.
        Sctp = "SCTP",
        /// Any other protocol above IP.
        Other = "other IP protocols",
    }
}

impl PacketKind {
    /// The kind of a packet.
    pub fn of(packet: &IpPacket) -> PacketKind {
        match (packet.transport, packet.protocol) {
            (Transport::Tcp(_), _) => PacketKind::Tcp,
            (_, TCP) => PacketKind::TcpCut,
            (Transport::Udp { source_port, destination_port, .. }, _) => {
                let ports = [destination_port, source_port];
                ports.into_iter().find_map(PacketKind::of_port).unwrap_or(PacketKind::Udp)
            }
            (Transport::Icmp { .. }, _) => PacketKind::Icmp,
            (Transport::Sctp { .. }, _) => PacketKind::Sctp,
            (_, ESP | AH) => PacketKind::Ipsec,
            (_, _) => PacketKind::Other,
        }
    }

    fn of_port(port: u16) -> Option<PacketKind> {
        match port {
            53 => Some(PacketKind::Dns),
            443 => Some(PacketKind::Quic),
            500 | 4_500 => Some(PacketKind::Ipsec),
            1_194 => Some(PacketKind::OpenVpn),
            51_820 => Some(PacketKind::WireGuard),
            _ => None,
        }
    }

    /// Is its payload hidden by encryption?
    pub fn is_encrypted_tunnel(self) -> bool {
        matches!(self, PacketKind::WireGuard | PacketKind::OpenVpn | PacketKind::Ipsec)
    }
}

/// The number of packets of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    packets: [u64; PacketKind::ALL.len()],
}

impl Contents {
    /// Counts a packet.
    pub fn take(&mut self, packet: &IpPacket) {
        self.packets[PacketKind::of(packet) as usize] += 1;
    }

    /// The packets of a kind.
    pub fn of(&self, kind: PacketKind) -> u64 {
        self.packets[kind as usize]
    }

    /// The kinds that occurred, the most frequent first.
    pub fn met(&self) -> Vec<(PacketKind, u64)> {
        let all = PacketKind::ALL.into_iter().map(|kind| (kind, self.of(kind)));
        let mut met: Vec<(PacketKind, u64)> = all.filter(|(_, packets)| *packets > 0).collect();
        met.sort_by_key(|(_, packets)| std::cmp::Reverse(*packets));
        met
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_wire::build;
    use nilometer_wire::link::LinkType;
    use nilometer_wire::packet::{Parsed, parse};

    const GRE: u8 = 47;

    fn udp(port: u16) -> IpPacket {
        let from = ([10, 0, 0, 1], 40_000).into();
        let frame = build::ethernet(&build::udp(from, ([10, 0, 0, 2], port).into(), b"ask"));
        match parse(LinkType::Ethernet, &frame, frame.len() as u32) {
            Parsed::Ip(packet) => packet,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn kinds_are_counted_the_most_frequent_first() {
        let mut contents = Contents::default();
        [53, 51_820, 51_820, 9_999].map(udp).iter().for_each(|packet| contents.take(packet));
        let bare = |protocol, transport| IpPacket { protocol, transport, ..udp(53) };
        contents.take(&bare(TCP, Transport::Cut));
        contents.take(&bare(ESP, Transport::Other));
        contents.take(&bare(GRE, Transport::Other));
        let met = contents.met();
        assert_eq!(met[0], (PacketKind::WireGuard, 2));
        assert_eq!(met.iter().map(|(_, packets)| packets).sum::<u64>(), 7);
        for kind in [
            PacketKind::Dns,
            PacketKind::Udp,
            PacketKind::TcpCut,
            PacketKind::Ipsec,
            PacketKind::Other,
        ] {
            assert_eq!(contents.of(kind), 1, "{}", kind.name());
        }
    }

    #[test]
    fn kinds_stand_in_their_places() {
        for (at, kind) in PacketKind::ALL.into_iter().enumerate() {
            assert_eq!(at, kind as usize);
        }
    }
}
