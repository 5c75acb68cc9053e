//! PPP (RFC 1661), its HDLC-like framing (RFC 1662) and its session over Ethernet (RFC 2516).

use super::{ethertype, mpls};
use crate::parsed::Malformed;
use crate::view::{Payload, Stop, View, word};

/// A PPPoE session header, then PPP.
pub(crate) fn session(view: View<'_>, headers_left: u8) -> Result<Payload<'_>, Stop> {
    const VERSION_1_TYPE_1: u8 = 0x11;
    const SESSION_DATA: u8 = 0;
    let head = view.need(6, Malformed::LinkHeaderShort)?;
    if head[0] != VERSION_1_TYPE_1 || head[1] != SESSION_DATA {
        return Ok(Payload::Other(Some(ethertype::PPPOE_SESSION)));
    }
    let length = usize::from(word(head, 4));
    let payload = view.skip(6);
    if length > payload.length() {
        return Err(Stop::Malformed(Malformed::PppoeLength));
    }
    frame(payload.limit(length), headers_left)
}

/// A PPP frame, with its address and control bytes (ff 03) or with them compressed away.
pub(crate) fn frame(view: View<'_>, headers_left: u8) -> Result<Payload<'_>, Stop> {
    let view = match view.seen() {
        [0xff, 0x03, ..] => view.skip(2),
        _ => view,
    };
    // An odd first byte is a protocol number compressed to one byte (RFC 1661, section 6.5).
    let first = view.need(1, Malformed::LinkHeaderShort)?[0];
    let (protocol, payload) = match first & 1 {
        1 => (u16::from(first), view.skip(1)),
        _ => (word(view.need(2, Malformed::LinkHeaderShort)?, 0), view.skip(2)),
    };
    match protocol {
        0x0021 => Ok(Payload::Ip(payload, Some(4))),
        0x0057 => Ok(Payload::Ip(payload, Some(6))),
        0x0281 => mpls::labels(ethertype::MPLS, payload, headers_left),
        0x0283 => mpls::labels(ethertype::MPLS_UPSTREAM, payload, headers_left),
        _ => Ok(Payload::Other(None)),
    }
}
