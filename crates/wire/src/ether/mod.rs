//! Ethernet and what may stand between its addresses and IP: VLAN tags, LLC, SNAP, fabric tags.

mod mpls;
pub(crate) mod ppp;

use crate::parsed::Malformed;
use crate::view::{Payload, Stop, View, word};

/// Ethertypes behind which parsing continues.
pub(crate) mod ethertype {
    pub(crate) const IPV4: u16 = 0x0800;
    pub(crate) const IPV6: u16 = 0x86dd;
    pub(crate) const VLAN: u16 = 0x8100;
    pub(crate) const SERVICE_VLAN: u16 = 0x88a8;
    pub(crate) const OLD_QINQ: u16 = 0x9100;
    pub(crate) const TRANSPARENT_ETHERNET: u16 = 0x6558;
    pub(crate) const PPP: u16 = 0x880b;
    pub(crate) const MPLS: u16 = 0x8847;
    pub(crate) const MPLS_UPSTREAM: u16 = 0x8848;
    pub(crate) const PPPOE_SESSION: u16 = 0x8864;
    pub(crate) const CISCO_REDIRECT: u16 = 0x883e;
    pub(crate) const FABRIC_PATH: u16 = 0x8903;
}

/// An Ethernet frame, with `headers_left` further headers allowed before IP.
pub(crate) fn frame(frame: View<'_>, headers_left: u8) -> Result<Payload<'_>, Stop> {
    let head = frame.need(14, Malformed::LinkHeaderShort)?;
    typed(word(head, 12), frame.skip(14), headers_left)
}

/// What follows a type field: an ethertype, or below 1536 the length of an 802.3 frame with LLC.
pub(crate) fn typed(kind: u16, view: View<'_>, headers_left: u8) -> Result<Payload<'_>, Stop> {
    let Some(left) = headers_left.checked_sub(1) else {
        return Err(Stop::Malformed(Malformed::LinkHeadersMany));
    };
    match kind {
        ethertype::IPV4 => Ok(Payload::Ip(view, Some(4))),
        ethertype::IPV6 => Ok(Payload::Ip(view, Some(6))),
        ethertype::VLAN | ethertype::SERVICE_VLAN | ethertype::OLD_QINQ => {
            let tag = view.need(4, Malformed::LinkHeaderShort)?;
            typed(word(tag, 2), view.skip(4), left)
        }
        ethertype::PPPOE_SESSION => ppp::session(view, left),
        ethertype::MPLS | ethertype::MPLS_UPSTREAM => mpls::labels(kind, view, left),
        ethertype::TRANSPARENT_ETHERNET => frame(view, left),
        ethertype::PPP => ppp::frame(view, left),
        ethertype::FABRIC_PATH => frame(view.skip(2), left),
        ethertype::CISCO_REDIRECT => redirected(view),
        0..=1500 => logical_link(view.limit(usize::from(kind)), left),
        _ => Ok(Payload::Other(Some(kind))),
    }
}

/// WCCP in GRE: version 1 puts IPv4 here, version 2 a redirect header of four bytes before it.
fn redirected(view: View<'_>) -> Result<Payload<'_>, Stop> {
    let first = view.need(1, Malformed::LinkHeaderShort)?[0];
    let header_bytes = if first >> 4 == 4 { 0 } else { 4 };
    Ok(Payload::Ip(view.skip(header_bytes), Some(4)))
}

/// IEEE 802.2: SNAP with an ethertype, IP named by its own service access point, or no IP.
pub(crate) fn logical_link(view: View<'_>, headers_left: u8) -> Result<Payload<'_>, Stop> {
    const SNAP: [u8; 3] = [0xaa, 0xaa, 0x03];
    const IP: [u8; 3] = [0x06, 0x06, 0x03];
    match view.seen() {
        [a, b, c, 0, 0, 0 | 0xf8, high, low, ..] if [*a, *b, *c] == SNAP => {
            match u16::from_be_bytes([*high, *low]) {
                kind @ 0..0x0600 => Ok(Payload::Other(Some(kind))),
                kind => typed(kind, view.skip(8), headers_left),
            }
        }
        [a, b, c, ..] if [*a, *b, *c] == IP => Ok(Payload::Ip(view.skip(3), Some(4))),
        _ => Ok(Payload::Other(None)),
    }
}
