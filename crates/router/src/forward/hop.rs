//! One hop: the time to live falls by one, and the checksum follows it.
//!
//! A router decrements the TTL by one whatever the packet's delay, and discards a packet that would
//! leave with zero (RFC 1812, 5.3.1; RFC 8200, 3). A packet that arrives with one or zero therefore
//! ends here, unless it is for the router itself: the last hop may use up the TTL (4.2.2.9), so it is
//! only checked on forwarded packets.
//!
//! The header checksum is the complement of a ones' complement sum, so a changed word need not be
//! summed with the other nine: HC' = ~(~HC + ~m + m') (RFC 1624, equation 3). The older formula of
//! RFC 1141 leaves 0xffff where a full sum gives zero. TTL is the upper byte of its word, and ~m + m'
//! is the same for every m when the TTL falls by one: 0xfeff. The sum ~HC + 0xfeff is never zero, so
//! its complement is never 0xffff, and neither is that of a header which is not all zeros: equation 3
//! and the full sum agree in every bit.

use crate::header::{IPV4_BYTES, IPV6_BYTES};

/// TTL of packets that the router sends on its own account, unless set otherwise (RFC 1812, 4.2.2.9,
/// with the number of RFC 1700).
pub const ORIGINATED: u8 = 64;

/// The packet may not be forwarded any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Its time to live is used up: time exceeded, code 0.
    Expired,
    /// There is no IP header here: nothing was changed.
    NoHeader,
}

/// Does a packet that arrived with `hop_limit` end at a router it is not addressed to?
#[inline]
pub const fn expires(hop_limit: u8) -> bool {
    hop_limit <= 1
}

/// The checksum after a word that it covers changed from `old` to `new` (RFC 1624, equation 3).
#[inline]
pub const fn adjusted(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = (!checksum as u32) + (!old as u32) + new as u32;
    let sum = (sum & 0xffff) + (sum >> 16);
    !(((sum & 0xffff) + (sum >> 16)) as u16)
}

/// Takes one from the TTL of the IPv4 packet that begins here, and adjusts its checksum.
///
/// # Errors
/// [`Stopped`], and the packet is unchanged: ICMP quotes the packet as it came in.
#[inline]
pub fn decrement_ipv4(packet: &mut [u8]) -> Result<(), Stopped> {
    let head = packet.first_chunk_mut::<IPV4_BYTES>().ok_or(Stopped::NoHeader)?;
    if expires(head[8]) {
        return Err(Stopped::Expired);
    }
    head[8] -= 1;
    let checksum = u16::from_be_bytes([head[10], head[11]]);
    let sum = u32::from(!checksum) + 0xfeff;
    let checksum = !(((sum & 0xffff) + (sum >> 16)) as u16);
    [head[10], head[11]] = checksum.to_be_bytes();
    Ok(())
}

/// Takes one from the hop limit of the IPv6 packet that begins here.
///
/// # Errors
/// [`Stopped`], and the packet is as it was.
#[inline]
pub fn decrement_ipv6(packet: &mut [u8]) -> Result<(), Stopped> {
    let head = packet.first_chunk_mut::<IPV6_BYTES>().ok_or(Stopped::NoHeader)?;
    if expires(head[7]) {
        return Err(Stopped::Expired);
    }
    head[7] -= 1;
    Ok(())
}

/// Limits the time to live or hop limit of the IP packet that begins here to `most`, and adjusts the checksum: for
/// the value that labels leave (RFC 3443, 3.1). Anything but IP stays as it is.
pub fn limit(packet: &mut [u8], most: u8) {
    match packet.first().map(|first| first >> 4) {
        Some(4) if packet.len() >= IPV4_BYTES && packet[8] > most => {
            let word = |packet: &[u8], at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
            let old = word(packet, 8);
            packet[8] = most;
            let checksum = adjusted(word(packet, 10), old, word(packet, 8));
            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        Some(6) if packet.len() >= IPV6_BYTES => packet[7] = packet[7].min(most),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;
    use nilometer_wire::checksum::internet_checksum;

    const PURPOSE: u32 = u32::from_be_bytes(*b"hops");

    /// A header of random bytes with its right checksum.
    fn header(rng: &mut Rng) -> [u8; IPV4_BYTES] {
        let mut head = [0; IPV4_BYTES];
        head.fill_with(|| rng.next_u64() as u8);
        head[0] = 0x45;
        summed(head)
    }

    fn summed(mut head: [u8; IPV4_BYTES]) -> [u8; IPV4_BYTES] {
        [head[10], head[11]] = [0, 0];
        [head[10], head[11]] = internet_checksum(&[&head]).to_be_bytes();
        head
    }

    /// All 2^16 values of the word of TTL and protocol under each of sixteen headers.
    #[test]
    fn the_checksum_follows_the_ttl_as_a_full_sum_would() {
        let mut rng = Rng::new(1, PURPOSE, 0);
        for _ in 0..16 {
            let base = header(&mut rng);
            for value in 0..=u16::MAX {
                let mut head = base;
                [head[8], head[9]] = value.to_be_bytes();
                let before = summed(head);
                let mut after = before;
                if value >> 8 <= 1 {
                    assert_eq!(decrement_ipv4(&mut after), Err(Stopped::Expired));
                    assert_eq!(after, before);
                } else {
                    assert_eq!(decrement_ipv4(&mut after), Ok(()));
                    head[8] -= 1;
                    assert_eq!(after, summed(head), "TTL and protocol {value:#06x}");
                }
            }
        }
    }

    /// Every checksum there is: one word is turned until the header has it.
    #[test]
    fn every_checksum_is_followed() {
        let mut head = header(&mut Rng::new(2, PURPOSE, 0));
        head[8] = 64;
        let mut seen = 0;
        for word in 0..=u16::MAX {
            [head[4], head[5]] = word.to_be_bytes();
            let mut after = summed(head);
            assert_eq!(decrement_ipv4(&mut after), Ok(()));
            assert_eq!(internet_checksum(&[&after]), 0);
            assert_ne!(after[10..12], [0xff, 0xff], "RFC 1141's slip");
            seen += 1;
        }
        assert_eq!(seen, 1 << 16);
    }

    #[test]
    fn any_word_may_change() {
        let mut rng = Rng::new(3, PURPOSE, 0);
        for _ in 0..100_000 {
            let mut head = header(&mut rng);
            let at = 2 * [1, 2, 3, 4, 6, 7, 8, 9][rng.below(8) as usize];
            let (old, new) = (crate::forward::word(&head, at), rng.next_u64() as u16);
            let checksum = adjusted(crate::forward::word(&head, 10), old, new);
            [head[at], head[at + 1]] = new.to_be_bytes();
            assert_eq!(checksum.to_be_bytes(), summed(head)[10..12]);
        }
        // RFC 1624's own example.
        assert_eq!(adjusted(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn a_hop_limit_of_one_or_zero_expires() {
        for hop_limit in 0..=u8::MAX {
            assert_eq!(expires(hop_limit), hop_limit < 2);
            let mut packet = [0x60; IPV6_BYTES];
            packet[7] = hop_limit;
            let before = packet;
            match decrement_ipv6(&mut packet) {
                Ok(()) => assert_eq!(packet[7], hop_limit - 1),
                Err(stopped) => assert_eq!((stopped, packet), (Stopped::Expired, before)),
            }
        }
        for bytes in 0..IPV6_BYTES {
            let mut packet = [0xff; IPV6_BYTES];
            assert_eq!(decrement_ipv6(&mut packet[..bytes]), Err(Stopped::NoHeader));
            assert_eq!(decrement_ipv4(&mut packet[..bytes]).is_err(), bytes < IPV4_BYTES);
        }
    }
}
