//! Changes fields of a packet, with the checksums that cover them.

use core::net::IpAddr;

use crate::checksum::{updated, updated_bytes};
use crate::headers::{Fragment, Headers, UDP, word};
use crate::packet::{Packet, Unseen};

const IPV4_CHECKSUM_AT: usize = 10;

/// One of the two ends of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Source,
    Destination,
}

impl Packet<'_> {
    /// Sets the differentiated services code point, and leaves the ECN bits.
    ///
    /// # Errors
    /// If it is not an IP packet, or its header is not visible.
    pub fn set_dscp(&mut self, dscp: u8) -> Result<(), Unseen> {
        let [first, second] = *self.bytes.first_chunk::<2>().ok_or(Unseen)?;
        let dscp = dscp & 0x3f;
        match first >> 4 {
            4 if self.bytes.len() > IPV4_CHECKSUM_AT + 1 => {
                let new = [first, dscp << 2 | second & 3];
                self.replace(0, &new, IPV4_CHECKSUM_AT);
            }
            6 => {
                let new = [0x60 | dscp >> 2, (dscp & 3) << 6 | second & 0x3f];
                self.bytes_mut()[..2].copy_from_slice(&new);
            }
            _ => return Err(Unseen),
        }
        Ok(())
    }

    /// Sets the source address, and brings the checksums up to date.
    ///
    /// # Errors
    /// If the address is of another version, or a checksum that covers it is not visible. Nothing
    /// is changed then.
    pub fn set_source(&mut self, address: IpAddr) -> Result<(), Unseen> {
        self.set_address(End::Source, address)
    }

    /// Sets the destination address, as [`Packet::set_source`] sets the source.
    ///
    /// # Errors
    /// As [`Packet::set_source`].
    pub fn set_destination(&mut self, address: IpAddr) -> Result<(), Unseen> {
        self.set_address(End::Destination, address)
    }

    /// Sets the source port of TCP or UDP, and brings the checksum up to date.
    ///
    /// # Errors
    /// If there is none, or the checksum is not visible. Nothing is changed then.
    pub fn set_source_port(&mut self, port: u16) -> Result<(), Unseen> {
        self.set_port(End::Source, port)
    }

    /// Sets the destination port, as [`Packet::set_source_port`] sets the source.
    ///
    /// # Errors
    /// As [`Packet::set_source_port`].
    pub fn set_destination_port(&mut self, port: u16) -> Result<(), Unseen> {
        self.set_port(End::Destination, port)
    }

    /// Sets a word of the transport header, `offset` bytes from its beginning, under its checksum.
    ///
    /// # Errors
    /// If the place, which must be even, or the checksum is not visible. Nothing is changed then.
    pub fn set_transport_word(&mut self, offset: usize, new: u16) -> Result<(), Unseen> {
        let headers = self.headers().ok_or(Unseen)?;
        let at = headers.transport_at.ok_or(Unseen)? + offset;
        let checksum_at = headers.checksum_at().ok_or(Unseen)?;
        if self.bytes.len() < (at + 2).max(checksum_at + 2) || offset % 2 == 1 {
            return Err(Unseen);
        }
        self.replace_transport(at, &new.to_be_bytes(), &headers, checksum_at);
        Ok(())
    }

    fn set_address(&mut self, end: End, address: IpAddr) -> Result<(), Unseen> {
        let headers = self.headers().ok_or(Unseen)?;
        let is_same_version = headers.source.is_ipv4() == address.is_ipv4();
        // Of a later fragment the checksum is elsewhere: in the first, which is changed by itself.
        let checksum_at = headers.checksum_at().filter(|_| headers.has_pseudo_header());
        let is_cut = match headers.fragment {
            Fragment::Later => false,
            _ if headers.transport_at.is_none() => usize::from(self.ip_bytes()) > self.bytes.len(),
            _ => checksum_at.is_some_and(|at| self.bytes.len() < at + 2),
        };
        if !is_same_version || is_cut {
            return Err(Unseen);
        }
        match address {
            IpAddr::V4(address) => {
                let at = if end == End::Source { 12 } else { 16 };
                let new = address.octets();
                if let Some(checksum_at) = checksum_at {
                    self.cover(at, &new, &headers, checksum_at);
                }
                self.replace(at, &new, IPV4_CHECKSUM_AT);
            }
            IpAddr::V6(address) => {
                let at = if end == End::Source { 8 } else { 24 };
                let new = address.octets();
                if let Some(checksum_at) = checksum_at {
                    self.cover(at, &new, &headers, checksum_at);
                }
                self.bytes_mut()[at..at + 16].copy_from_slice(&new);
            }
        }
        Ok(())
    }

    fn set_port(&mut self, end: End, port: u16) -> Result<(), Unseen> {
        self.ports().ok_or(Unseen)?;
        self.set_transport_word(if end == End::Source { 0 } else { 2 }, port)
    }

    /// Replaces bytes that the checksum at another place covers.
    fn replace(&mut self, at: usize, new: &[u8], checksum_at: usize) {
        let bytes = self.bytes_mut();
        let sum = updated_bytes(word(bytes, checksum_at), &bytes[at..at + new.len()], new);
        bytes[at..at + new.len()].copy_from_slice(new);
        bytes[checksum_at..checksum_at + 2].copy_from_slice(&sum.to_be_bytes());
    }

    fn replace_transport(&mut self, at: usize, new: &[u8; 2], headers: &Headers, sum_at: usize) {
        if at == sum_at {
            self.bytes_mut()[at..at + 2].copy_from_slice(new);
            return;
        }
        self.cover(at, new, headers, sum_at);
        self.bytes_mut()[at..at + 2].copy_from_slice(new);
    }

    /// Brings the transport's checksum up to date for bytes that are about to be replaced.
    fn cover(&mut self, at: usize, new: &[u8], headers: &Headers, sum_at: usize) {
        let bytes = self.bytes_mut();
        let old = word(bytes, sum_at);
        // UDP without a checksum (RFC 768) stays without one.
        if headers.protocol == UDP && old == 0 {
            return;
        }
        let mut sum = old;
        for (place, new) in (at..).step_by(2).zip(new.chunks_exact(2)) {
            sum = updated(sum, word(bytes, place), word(new, 0));
        }
        if headers.protocol == UDP && sum == 0 {
            sum = 0xffff;
        }
        bytes[sum_at..sum_at + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;
    use core::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use crate::checksum::{Sum, checksum};
    use crate::headers::{ICMP, ICMPV6, TCP};

    /// A packet with valid checksums, of a version and a protocol.
    fn packet(version: u8, protocol: u8) -> Vec<u8> {
        let header = if version == 4 { 20 } else { 40 };
        let mut bytes: Vec<u8> = vec![0; header + 40];
        for (at, byte) in bytes[header..].iter_mut().enumerate() {
            *byte = (at * 37) as u8;
        }
        bytes[0] = version << 4 | 5;
        bytes[1] = if version == 4 { 2 } else { 0x2f }; // ECT(0), and of IPv6 a flow label behind it
        if version == 4 {
            bytes[2..4].copy_from_slice(&60u16.to_be_bytes());
            bytes[8..10].copy_from_slice(&[64, protocol]);
            bytes[12..20].copy_from_slice(&[10, 0, 0, 1, 192, 0, 2, 9]);
        } else {
            bytes[4..8].copy_from_slice(&[0, 40, protocol, 64]);
            bytes[8] = 0xfd;
            bytes[24] = 0x20;
        }
        let at = Headers::read(&bytes).and_then(|headers| headers.checksum_at()).expect("known");
        bytes[at..at + 2].fill(0);
        let sum = transport_sum(&bytes);
        bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        if version == 4 {
            let sum = checksum(&bytes[..20]);
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        bytes
    }

    fn transport_sum(bytes: &[u8]) -> u16 {
        let headers = Headers::read(bytes).expect("a packet");
        let at = headers.transport_at.expect("a first fragment");
        let mut sum = Sum::default();
        if headers.has_pseudo_header() {
            let addresses = if bytes[0] >> 4 == 4 { &bytes[12..20] } else { &bytes[8..40] };
            sum = sum.with(addresses).with(&[0, headers.protocol]);
            sum = sum.with(&((bytes.len() - at) as u16).to_be_bytes());
        }
        sum.with(&bytes[at..]).checksum()
    }

    fn holds(bytes: &[u8]) -> bool {
        let header = bytes[0] >> 4 == 6 || checksum(&bytes[..20]) == 0;
        header && transport_sum(bytes) == 0
    }

    #[test]
    fn checksums_hold_after_every_change() {
        for (version, protocol) in [(4, TCP), (4, UDP), (4, ICMP), (6, TCP), (6, UDP), (6, ICMPV6)]
        {
            let mut bytes = packet(version, protocol);
            assert!(holds(&bytes), "{version} {protocol}: as made");
            let mut packet = Packet::new(&mut bytes, 0);
            let (to, from): (IpAddr, IpAddr) = match version {
                4 => (Ipv4Addr::new(203, 0, 113, 7).into(), Ipv4Addr::BROADCAST.into()),
                _ => (Ipv6Addr::LOCALHOST.into(), Ipv6Addr::from([0xa5; 16]).into()),
            };
            assert!(!packet.is_changed());
            packet.set_source(from).expect("seen");
            packet.set_destination(to).expect("seen");
            packet.set_dscp(46).expect("seen");
            assert_eq!(packet.dscp(), Some(46));
            let beside = if version == 4 { 3 } else { 0x3f };
            assert_eq!(packet.bytes()[1] & beside, if version == 4 { 2 } else { 0x2f }, "ECN");
            assert_eq!(packet.addresses(), Some((from, to)));
            if matches!(protocol, TCP | UDP) {
                packet.set_source_port(1).expect("seen");
                packet.set_destination_port(65_535).expect("seen");
                assert_eq!(packet.ports(), Some((1, 65_535)));
            }
            packet.set_transport_word(4, 0xbeef).expect("seen");
            assert!(packet.is_changed());
            assert!(holds(&bytes), "{version} {protocol}");
        }
    }

    #[test]
    fn a_udp_checksum_is_never_rewritten_to_zero() {
        let mut bytes = packet(4, UDP);
        let mut reached = false;
        for port in 0..=u16::MAX {
            Packet::new(&mut bytes, 60).set_source_port(port).expect("seen");
            let sum = word(&bytes, 26);
            assert_ne!(sum, 0);
            reached |= sum == 0xffff;
        }
        assert!(reached);
        bytes[26..28].fill(0);
        Packet::new(&mut bytes, 60).set_source_port(9).expect("seen");
        assert_eq!(word(&bytes, 26), 0, "without a checksum it stays so");
    }

    #[test]
    fn headers_beyond_the_seen_bytes_are_not_half_changed() {
        let bytes = packet(4, TCP);
        for seen in 0..38 {
            let mut cut = bytes[..seen].to_vec();
            let mut packet = Packet::new(&mut cut, 60);
            assert!(packet.set_source(Ipv4Addr::LOCALHOST.into()).is_err(), "{seen} bytes");
            assert!(packet.set_source_port(1).is_err());
            assert_eq!(cut, bytes[..seen]);
        }
    }
}
