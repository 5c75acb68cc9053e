//! What one pass over an Ethernet frame says of the IP packet in it: all that forwarding needs.
//!
//! The pass makes the checks of RFC 1812, 5.2.2, and of RFC 8200, 3, in their order, and stops at the
//! first that fails. It copies what filters look at ([`Key`]) and notes where the rest stands, so that
//! no later stage reads the headers again. Addresses are only copied; whether they are allowed is
//! checked elsewhere.

/// Bytes of an Ethernet header without tags.
pub const ETHERNET_BYTES: usize = 14;
/// Bytes of an IPv4 header without options.
pub const IPV4_BYTES: usize = 20;
/// Bytes of an IPv6 header without extensions.
pub const IPV6_BYTES: usize = 40;
/// The most extension headers that are read.
pub const EXTENSIONS_MAX: usize = 8;

/// IANA protocol numbers that are distinguished here.
pub mod protocol {
    /// IPv6 hop-by-hop options.
    pub const HOP_BY_HOP: u8 = 0;
    /// ICMP.
    pub const ICMP: u8 = 1;
    /// IGMP.
    pub const IGMP: u8 = 2;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// IPv6 routing header.
    pub const ROUTING: u8 = 43;
    /// IPv6 fragment header.
    pub const FRAGMENT: u8 = 44;
    /// IPv6 authentication header.
    pub const AUTHENTICATION: u8 = 51;
    /// ICMPv6.
    pub const ICMPV6: u8 = 58;
    /// Nothing behind the headers of IPv6.
    pub const NO_NEXT_HEADER: u8 = 59;
    /// IPv6 destination options.
    pub const DESTINATION_OPTIONS: u8 = 60;
    /// Mobility, the Host Identity Protocol and Shim6: the other extension headers (RFC 7045).
    pub const OTHER_EXTENSIONS: [u8; 3] = [135, 139, 140];
    /// SCTP.
    pub const SCTP: u8 = 132;
}

/// What filters look at: up to 104 bits of an IPv4 packet, and the TCP flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key<A> {
    /// Source address.
    pub source: A,
    /// Destination address.
    pub destination: A,
    /// Source port of TCP, UDP or SCTP; zero where there is none, as in later fragments.
    pub source_port: u16,
    /// Destination port; zero where there is none.
    pub destination_port: u16,
    /// IANA protocol number behind all extension headers.
    pub protocol: u8,
    /// TCP flags as in the header: FIN 0x01 to CWR 0x80; zero where there are none.
    pub flags: u8,
}

/// The key of a packet of either version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnyKey {
    /// IPv4.
    V4(Key<u32>),
    /// IPv6.
    V6(Key<u128>),
}

/// The packet has IPv4 options or an IPv6 hop-by-hop header: the slow path looks at it.
pub const OPTIONS: u8 = 1;
/// The packet is a fragment, first or later.
pub const FRAGMENT: u8 = 2;
/// The packet is a later fragment: its ports are not known.
pub const LATER_FRAGMENT: u8 = 4;
/// IPv4: it must not be fragmented.
pub const DONT_FRAGMENT: u8 = 8;
/// Not of the header: the packet's flow has a reservation.
pub const RESERVED: u8 = 0x20;

/// Where a packet stands in its frame and what its headers say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What filters look at.
    pub key: AnyKey,
    /// Bytes of the IP packet, header included; the frame may be longer (padding).
    pub ip_bytes: u16,
    /// Bytes from the IP header to the transport header, at most 2^16 - 1.
    pub transport_at: u16,
    /// Type of service or traffic class.
    pub traffic_class: u8,
    /// Time to live or hop limit, as it arrived.
    pub hop_limit: u8,
    /// [`OPTIONS`], [`FRAGMENT`], [`LATER_FRAGMENT`], [`DONT_FRAGMENT`].
    pub notes: u8,
}

/// What [`Header`] says, for a packet of known family: no field has to be unpacked again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<A> {
    pub(crate) key: Key<A>,
    pub(crate) ip_bytes: u16,
    pub(crate) transport_at: u16,
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
    pub(crate) notes: u8,
}

impl<A> Fields<A> {
    #[inline]
    fn header(self, any: impl FnOnce(Key<A>) -> AnyKey) -> Header {
        let Fields { key, ip_bytes, transport_at, traffic_class, hop_limit, notes } = self;
        Header { key: any(key), ip_bytes, transport_at, traffic_class, hop_limit, notes }
    }
}

/// What the frame carries if not a sound IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// Another protocol, by ethertype (ARP is 0x0806); below 1536, an 802.3 length.
    Other(u16),
    /// An IP packet that must be discarded silently.
    Fault(Fault),
}

/// Why a packet must be discarded without an error to its sender (RFC 1812, 5.2.2; RFC 8200, 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[repr(u8)]
pub enum Fault {
    /// The frame ends before its headers do (5.2.2 step 1).
    #[error("the frame ends before its headers do")]
    Short,
    /// The IP version is not that of the ethertype (step 3).
    #[error("the IP version is not that of the ethertype")]
    Version,
    /// The IPv4 header length is below five words (step 4).
    #[error("the IPv4 header length is below 20 bytes")]
    HeaderLength,
    /// The IPv4 header checksum is wrong (step 2).
    #[error("the IPv4 header checksum is wrong")]
    HeaderChecksum,
    /// The stated length is shorter than the header or beyond the frame (step 5).
    #[error("the IP length is shorter than the header or beyond the frame")]
    TotalLength,
    /// The chain of extension headers is broken or longer than [`EXTENSIONS_MAX`].
    #[error("the extension headers are broken or too many")]
    Extensions,
}

impl Header {
    /// Reads the headers of an Ethernet frame without its check sequence.
    ///
    /// # Errors
    /// [`Unusable`] where it carries no sound IP packet.
    #[inline]
    pub fn read(frame: &[u8]) -> Result<Header, Unusable> {
        let Some((ethernet, packet)) = frame.split_first_chunk::<ETHERNET_BYTES>() else {
            return Err(Unusable::Fault(Fault::Short));
        };
        match u16::from_be_bytes([ethernet[12], ethernet[13]]) {
            0x0800 => Header::read_ipv4(packet).map_err(Unusable::Fault),
            0x86dd => Header::read_ipv6(packet).map_err(Unusable::Fault),
            other => Err(Unusable::Other(other)),
        }
    }

    /// Reads the headers of an IPv4 packet, behind which there may be padding.
    ///
    /// # Errors
    /// The first check that failed.
    pub fn read_ipv4(packet: &[u8]) -> Result<Header, Fault> {
        Ok(Fields::<u32>::read(packet)?.header(AnyKey::V4))
    }

    /// Reads the headers of an IPv6 packet, behind which there may be padding.
    ///
    /// # Errors
    /// The first check that failed.
    pub fn read_ipv6(packet: &[u8]) -> Result<Header, Fault> {
        Ok(Fields::<u128>::read(packet)?.header(AnyKey::V6))
    }
}

impl Fields<u32> {
    /// Reads the headers of an IPv4 packet.
    #[inline(always)]
    pub(crate) fn read(packet: &[u8]) -> Result<Fields<u32>, Fault> {
        match packet.first_chunk::<IPV4_BYTES>() {
            Some(head) if head[0] == 0x45 => Fields::read_usual(head, packet),
            _ => Fields::read_unusual(packet),
        }
    }

    /// As [`Fields::read`], for the usual header: version 4 and five words. (A caller that uses this
    /// for usual headers and [`Fields::read`] elsewhere for the others gets the fields in registers. A
    /// result that comes from either of two functions goes through memory, stored in one width and
    /// loaded in another, which defeats store-to-load forwarding.)
    #[inline(always)]
    pub(crate) fn read_usual(head: &[u8; IPV4_BYTES], packet: &[u8]) -> Result<Fields<u32>, Fault> {
        Fields::summed(head, packet, IPV4_BYTES, sum_of(head))
    }

    /// As [`Fields::read`], for any other header.
    #[cold]
    fn read_unusual(packet: &[u8]) -> Result<Fields<u32>, Fault> {
        let head = packet.first_chunk::<IPV4_BYTES>().ok_or(Fault::Short)?;
        if head[0] >> 4 != 4 {
            return Err(Fault::Version);
        }
        let header_bytes = usize::from(head[0] & 0x0f) * 4;
        if header_bytes < IPV4_BYTES {
            return Err(Fault::HeaderLength);
        }
        let options = packet.get(IPV4_BYTES..header_bytes).ok_or(Fault::Short)?;
        let sum = sum_of(head) + options.chunks_exact(4).map(sum_of_word).sum::<u64>();
        Fields::summed(head, packet, header_bytes, sum)
    }

    /// As [`Fields::read`], for a header of `header_bytes` whose `sum` is known.
    #[inline(always)]
    fn summed(
        head: &[u8; IPV4_BYTES],
        packet: &[u8],
        header_bytes: usize,
        sum: u64,
    ) -> Result<Fields<u32>, Fault> {
        if !is_all_ones(sum) {
            return Err(Fault::HeaderChecksum);
        }
        let ip_bytes = u16::from_be_bytes([head[2], head[3]]);
        let Some(behind) = packet.get(header_bytes..usize::from(ip_bytes)) else {
            return Err(Fault::TotalLength);
        };
        let fragmentation = u16::from_be_bytes([head[6], head[7]]);
        let mut notes = u8::from(header_bytes > IPV4_BYTES) * OPTIONS;
        notes |= u8::from(fragmentation & 0x4000 != 0) * DONT_FRAGMENT;
        // Fragments are few: a branch is cheaper than what would spare it.
        let mut transport_bytes = behind;
        if fragmentation & 0x3fff != 0 {
            notes |= FRAGMENT;
            if fragmentation & 0x1fff != 0 {
                notes |= LATER_FRAGMENT;
                transport_bytes = &[];
            }
        }
        let transport = Transport::read(head[9], transport_bytes);
        let key = Key {
            source: u32::from_be_bytes([head[12], head[13], head[14], head[15]]),
            destination: u32::from_be_bytes([head[16], head[17], head[18], head[19]]),
            source_port: transport.source_port,
            destination_port: transport.destination_port,
            protocol: head[9],
            flags: transport.flags,
        };
        Ok(Fields {
            key,
            ip_bytes,
            transport_at: header_bytes as u16,
            traffic_class: head[1],
            hop_limit: head[8],
            notes,
        })
    }
}

impl Fields<u128> {
    /// Reads the headers of an IPv6 packet.
    #[inline]
    pub(crate) fn read(packet: &[u8]) -> Result<Fields<u128>, Fault> {
        let head = packet.first_chunk::<IPV6_BYTES>().ok_or(Fault::Short)?;
        if head[0] >> 4 != 6 {
            return Err(Fault::Version);
        }
        let ip_bytes = IPV6_BYTES + usize::from(u16::from_be_bytes([head[4], head[5]]));
        let whole = packet.get(..ip_bytes).ok_or(Fault::TotalLength)?;
        let chain = Chain::read(head[6], whole)?;
        let transport = if chain.notes & LATER_FRAGMENT == 0 {
            Transport::read(chain.protocol, &whole[chain.at..])
        } else {
            Transport::default()
        };
        let key = Key {
            source: address(head, 8),
            destination: address(head, 24),
            source_port: transport.source_port,
            destination_port: transport.destination_port,
            protocol: chain.protocol,
            flags: transport.flags,
        };
        Ok(Fields {
            key,
            ip_bytes: u16::try_from(ip_bytes).map_err(|_| Fault::TotalLength)?,
            transport_at: chain.at as u16,
            traffic_class: head[0] << 4 | head[1] >> 4,
            hop_limit: head[7],
            notes: chain.notes,
        })
    }
}

/// The fields of a transport header that filters look at.
#[derive(Clone, Copy, Default)]
struct Transport {
    source_port: u16,
    destination_port: u16,
    flags: u8,
}

impl Transport {
    /// Protocols change from packet to packet, so there is no branch on the transport.
    #[inline]
    fn read(kind: u8, bytes: &[u8]) -> Transport {
        let masks = MASKS[usize::from(kind)];
        let (first, flags) = match bytes.first_chunk::<14>() {
            Some(head) => (u32::from_be_bytes([head[0], head[1], head[2], head[3]]), head[13]),
            None => (bytes.first_chunk::<4>().map_or(0, |four| u32::from_be_bytes(*four)), 0),
        };
        let ports = first & masks.0;
        Transport {
            source_port: (ports >> 16) as u16,
            destination_port: ports as u16,
            flags: flags & masks.1,
        }
    }
}

/// By protocol number, which bits of the first word are ports, and whether TCP flags follow.
static MASKS: [(u32, u8); 256] = {
    let mut masks = [(0, 0); 256];
    masks[protocol::TCP as usize] = (u32::MAX, u8::MAX);
    masks[protocol::UDP as usize] = (u32::MAX, 0);
    masks[protocol::SCTP as usize] = (u32::MAX, 0);
    masks
};

/// Where a chain of IPv6 extension headers ends.
struct Chain {
    protocol: u8,
    at: usize,
    notes: u8,
}

impl Chain {
    #[inline]
    fn read(first: u8, packet: &[u8]) -> Result<Chain, Fault> {
        let mut chain = Chain { protocol: first, at: IPV6_BYTES, notes: 0 };
        for _ in 0..=EXTENSIONS_MAX {
            let unit = match chain.protocol {
                protocol::HOP_BY_HOP if chain.at == IPV6_BYTES => {
                    chain.notes |= OPTIONS;
                    8
                }
                protocol::ROUTING | protocol::DESTINATION_OPTIONS | protocol::FRAGMENT => 8,
                protocol::AUTHENTICATION => 4,
                other if protocol::OTHER_EXTENSIONS.contains(&other) => 8,
                _ => return Ok(chain),
            };
            let &[next, length, high, low] =
                packet[chain.at..].first_chunk::<4>().ok_or(Fault::Extensions)?;
            let bytes = match chain.protocol {
                protocol::FRAGMENT => {
                    chain.notes |= FRAGMENT;
                    let is_later = u16::from_be_bytes([high, low]) & 0xfff8 != 0;
                    chain.notes |= u8::from(is_later) * LATER_FRAGMENT;
                    8
                }
                protocol::AUTHENTICATION => (usize::from(length) + 2) * unit,
                _ => (usize::from(length) + 1) * unit,
            };
            chain.protocol = next;
            chain.at += bytes;
            if chain.at > packet.len() {
                return Err(Fault::Extensions);
            }
            if chain.notes & LATER_FRAGMENT != 0 {
                return Ok(chain);
            }
        }
        Err(Fault::Extensions)
    }
}

/// The sum of an IPv4 header's ten words, not folded. Its octets may be taken in either order: that
/// only exchanges those of the sum (RFC 1071, 2), and all ones stay all ones.
#[inline(always)]
fn sum_of(head: &[u8; IPV4_BYTES]) -> u64 {
    head.chunks_exact(4).map(sum_of_word).sum()
}

#[inline(always)]
fn sum_of_word(four: &[u8]) -> u64 {
    u64::from(u32::from_ne_bytes([four[0], four[1], four[2], four[3]]))
}

/// Whether a sum of words of 32 bits is all ones when it is folded to 16, as that of a sound header is.
/// Folding keeps what a sum leaves when it is divided by 2^16 - 1, and gives zero to nothing but zero; that
/// it leaves nothing costs one multiplication.
#[inline(always)]
fn is_all_ones(sum: u64) -> bool {
    // The inverse of 2^16 - 1 among numbers of 64 bits: multiples of it become small, and nothing else.
    const INVERSE: u64 = 0xfffe_fffe_fffe_ffff;
    sum != 0 && sum.wrapping_mul(INVERSE) <= u64::MAX / 0xffff
}

fn address(head: &[u8; IPV6_BYTES], at: usize) -> u128 {
    let mut octets = [0; 16];
    octets.copy_from_slice(&head[at..at + 16]);
    u128::from_be_bytes(octets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;

    /// Sums of chance, and those around every multiple that matters.
    #[test]
    fn multiples_of_65535_fold_to_all_ones() {
        let folded = |mut sum: u64| {
            while sum > 0xffff {
                sum = (sum >> 16) + (sum & 0xffff);
            }
            sum
        };
        let mut rng = Rng::new(4, 1, 0);
        let drawn = core::iter::repeat_with(|| rng.next_u64() >> rng.below(64));
        let drawn: alloc::vec::Vec<u64> = drawn.take(100_000).collect();
        let multiples = drawn.iter().map(|sum| sum / 0xffff * 0xffff);
        let near = multiples.flat_map(|sum| [sum, sum.saturating_sub(1), sum.saturating_add(1)]);
        for sum in near.chain(drawn.iter().copied()).chain([0, 0xffff, u64::MAX]) {
            assert_eq!(is_all_ones(sum), folded(sum) == 0xffff, "{sum:#x}");
        }
    }
}
