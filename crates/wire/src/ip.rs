//! The IP header, IPv4 (RFC 791) or IPv6 (RFC 8200).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::extension;
use crate::parsed::{Fragment, Malformed};
use crate::view::{Stop, View, word};

const IPV4_HEADER_BYTES: usize = 20;
pub(crate) const IPV6_HEADER_BYTES: usize = 40;
const NO_NEXT_HEADER: u8 = 59;

/// One IP header, and what it carries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layer<'a> {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
    pub(crate) total_bytes: u32,
    pub(crate) fragment: Fragment,
    /// What follows the header and its extensions; `None` when the snap length cut these.
    pub(crate) payload: Option<View<'a>>,
    /// A routing header still holds the final destination, so a pseudo-header cannot be built.
    pub(crate) underway: bool,
}

/// Reads an IP header, of `version` if the header before it named one.
pub(crate) fn parse(view: View<'_>, version: Option<u8>) -> Result<Layer<'_>, Stop> {
    let nibble = view.need(1, Malformed::IpHeaderShort)?[0] >> 4;
    match nibble {
        4 if version != Some(6) => ipv4(view),
        6 if version != Some(4) => ipv6(view),
        _ => Err(Stop::Malformed(Malformed::IpVersion)),
    }
}

fn ipv4(view: View<'_>) -> Result<Layer<'_>, Stop> {
    const MORE_FRAGMENTS: u16 = 0x2000;
    const FRAGMENT_OFFSET: u16 = 0x1fff;
    let head = view.need(IPV4_HEADER_BYTES, Malformed::IpHeaderShort)?;
    let header_bytes = usize::from(head[0] & 0x0f) * 4;
    if header_bytes < IPV4_HEADER_BYTES {
        return Err(Stop::Malformed(Malformed::Ipv4HeaderLength));
    }
    let total_bytes = match usize::from(word(head, 2)) {
        0 => view.length(), // segmentation offload: the length is filled in after the capture
        stated => stated,
    };
    let whole = bounded(view, header_bytes, total_bytes)?;
    let fragment = match word(head, 6) {
        flags if flags & FRAGMENT_OFFSET != 0 => Fragment::Later,
        flags if flags & MORE_FRAGMENTS != 0 => Fragment::First,
        _ => Fragment::Whole,
    };
    let chain = extension::of_ipv4(head[9], whole.skip(header_bytes), fragment)?;
    Ok(Layer {
        source: Ipv4Addr::new(head[12], head[13], head[14], head[15]).into(),
        destination: Ipv4Addr::new(head[16], head[17], head[18], head[19]).into(),
        protocol: chain.protocol,
        traffic_class: head[1],
        hop_limit: head[8],
        total_bytes: total_bytes as u32,
        fragment,
        payload: chain.payload,
        underway: false,
    })
}

fn ipv6(view: View<'_>) -> Result<Layer<'_>, Stop> {
    let head = view.need(IPV6_HEADER_BYTES, Malformed::IpHeaderShort)?;
    let total_bytes = match usize::from(word(head, 4)) {
        // A jumbogram (RFC 2675), or segmentation offload.
        0 if head[6] != NO_NEXT_HEADER => view.length(),
        payload => IPV6_HEADER_BYTES + payload,
    };
    let whole = bounded(view, IPV6_HEADER_BYTES, total_bytes)?;
    let chain = extension::of_ipv6(head[6], whole.skip(IPV6_HEADER_BYTES))?;
    Ok(Layer {
        source: ipv6_address(head, 8),
        destination: ipv6_address(head, 24),
        protocol: chain.protocol,
        traffic_class: head[0] << 4 | head[1] >> 4,
        hop_limit: head[7],
        total_bytes: total_bytes as u32,
        fragment: chain.fragment,
        payload: chain.payload,
        underway: chain.underway,
    })
}

fn ipv6_address(head: &[u8], at: usize) -> IpAddr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&head[at..at + 16]);
    Ipv6Addr::from(octets).into()
}

fn bounded(view: View<'_>, header_bytes: usize, total_bytes: usize) -> Result<View<'_>, Stop> {
    if total_bytes < header_bytes {
        return Err(Stop::Malformed(Malformed::IpLengthShort));
    }
    if total_bytes > view.length() {
        return Err(Stop::Malformed(Malformed::IpLengthBeyondFrame));
    }
    Ok(view.limit(total_bytes))
}
