//! The transport header: TCP, UDP, SCTP and ICMP.

use crate::parsed::{Fragment, Malformed, TcpSegment, TimeStamps, Transport};
use crate::view::{Stop, View, double_word, word};

pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;
pub(crate) const SCTP: u8 = 132;

const TCP_HEADER_BYTES: usize = 20;
/// Bytes of a UDP header.
pub(crate) const UDP_HEADER_BYTES: usize = 8;

/// Reads what follows an IP header. A header that the snap length cut is read as far as it makes
/// sense (ports of a datagram, a segment up to its window); below that it is `Cut`.
pub(crate) fn parse(protocol: u8, view: View<'_>, fragment: Fragment) -> Result<Transport, Stop> {
    if fragment == Fragment::Later {
        return Ok(Transport::Other);
    }
    let (header_bytes, enough_bytes) = match protocol {
        TCP => (TCP_HEADER_BYTES, 16),
        UDP => (UDP_HEADER_BYTES, 4),
        SCTP => (12, 4),
        ICMP | ICMPV6 => (4, 2),
        _ => return Ok(Transport::Other),
    };
    if view.length() < header_bytes {
        return match fragment {
            Fragment::Whole => Err(Stop::Malformed(Malformed::TransportShort)),
            _ => Ok(Transport::Cut),
        };
    }
    let head = view.seen();
    if head.len() < enough_bytes {
        return Ok(Transport::Cut);
    }
    match protocol {
        TCP => tcp(head, view.length(), fragment),
        UDP => udp(head, view.length(), fragment),
        SCTP => Ok(Transport::Sctp { source_port: word(head, 0), destination_port: word(head, 2) }),
        _ => Ok(Transport::Icmp { kind: head[0], code: head[1] }),
    }
}

fn tcp(head: &[u8], length: usize, fragment: Fragment) -> Result<Transport, Stop> {
    let header_bytes = usize::from(head[12] >> 4) * 4;
    let options_continue = fragment == Fragment::First;
    if header_bytes < TCP_HEADER_BYTES || (header_bytes > length && !options_continue) {
        return Err(Stop::Malformed(Malformed::TcpDataOffset));
    }
    Ok(Transport::Tcp(TcpSegment {
        source_port: word(head, 0),
        destination_port: word(head, 2),
        sequence: double_word(head, 4),
        acknowledgement: double_word(head, 8),
        flags: head[13],
        window: word(head, 14),
        payload_bytes: length.saturating_sub(header_bytes) as u32,
        time_stamps: time_stamps(options(head, header_bytes)),
        cut_options_bytes: cut_options_bytes(options(head, header_bytes), header_bytes),
    }))
}

/// The captured part of the options of a TCP header of `header_bytes` bytes.
#[inline(always)]
pub(crate) fn options(head: &[u8], header_bytes: usize) -> &[u8] {
    head.get(TCP_HEADER_BYTES..header_bytes.min(head.len())).unwrap_or_default()
}

/// Bytes of the options of a TCP header of `header_bytes` bytes, if `captured` does not hold all of
/// them.
pub(crate) fn cut_options_bytes(captured: &[u8], header_bytes: usize) -> Option<u8> {
    let stated = header_bytes.saturating_sub(TCP_HEADER_BYTES);
    (captured.len() < stated).then_some(stated as u8)
}

/// The time stamps among the options of a segment; none behind an option that makes no sense.
pub(crate) fn time_stamps(mut options: &[u8]) -> Option<TimeStamps> {
    const END: u8 = 0;
    const NOTHING: u8 = 1;
    const TIME_STAMPS: u8 = 8;
    loop {
        options = match options {
            [END, ..] | [] => return None,
            [NOTHING, rest @ ..] => rest,
            [TIME_STAMPS, 10, stamps @ ..] => {
                let stamps: &[u8; 8] = stamps.first_chunk()?;
                return Some(TimeStamps {
                    value: double_word(stamps, 0),
                    echo: double_word(stamps, 4),
                });
            }
            [_, length, ..] if *length >= 2 => options.get(usize::from(*length)..)?,
            _ => return None,
        }
    }
}

fn udp(head: &[u8], length: usize, fragment: Fragment) -> Result<Transport, Stop> {
    let stated = match head.get(4..6) {
        Some(field) if fragment == Fragment::Whole => usize::from(word(field, 0)),
        _ => 0,
    };
    let length = match stated {
        0 => length, // a jumbogram, segmentation offload, a fragment, or not captured
        stated if stated < UDP_HEADER_BYTES || stated > length => {
            return Err(Stop::Malformed(Malformed::UdpLength));
        }
        stated => stated,
    };
    Ok(Transport::Udp {
        source_port: word(head, 0),
        destination_port: word(head, 2),
        payload_bytes: (length - UDP_HEADER_BYTES) as u32,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_stamps_are_found_among_other_options_and_only_whole() {
        let stamps = [8, 10, 0, 0, 1, 2, 0xff, 0, 0, 3];
        let expected = Some(TimeStamps { value: 0x0102, echo: 0xff00_0003 });
        let behind = |before: &[u8]| time_stamps(&[before, &stamps].concat());
        assert_eq!(behind(&[]), expected);
        assert_eq!(behind(&[1, 1]), expected);
        assert_eq!(behind(&[2, 4, 5, 0xb4, 4, 2, 1, 3, 3, 7]), expected);
        for nothing in [&[0][..], &[2, 0], &[2, 1], &[2, 200], &[8, 9]] {
            assert_eq!(behind(nothing), None, "{nothing:?}");
        }
        for cut in 0..stamps.len() {
            assert_eq!(time_stamps(&stamps[..cut]), None);
        }
    }

    #[test]
    fn options_are_cut_where_the_header_states_more_than_there_is() {
        for (captured, header_bytes, expected) in
            [(0, 20, None), (12, 32, None), (11, 32, Some(12)), (0, 60, Some(40)), (0, 24, Some(4))]
        {
            assert_eq!(cut_options_bytes(&[1; 40][..captured], header_bytes), expected);
        }
    }
}
