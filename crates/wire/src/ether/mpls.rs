//! MPLS label stacks (RFC 3032) and the Ethernet pseudowires inside them (RFC 4448).
//!
//! No field says what follows the bottom of the stack. Routers look at the first nibble: 4 and 6 are
//! IP. A pseudowire carries Ethernet, behind a control word whose first nibble is 0 or directly, and
//! since most Ethernet addresses begin with a zero nibble too, both readings are tried; the frame is
//! opened only if exactly one of them arrives at a sound IP version.

use super::frame;
use crate::parsed::Malformed;
use crate::view::{Payload, Stop, View};

/// Headers allowed inside a pseudowire; few, since two readings are tried at each.
const PSEUDOWIRE_HEADERS_MAX: u8 = 4;

/// Passes the label stack announced by `kind`.
pub(crate) fn labels(kind: u16, view: View<'_>, headers_left: u8) -> Result<Payload<'_>, Stop> {
    const BOTTOM_OF_STACK: u8 = 0x01;
    let mut rest = view;
    for _ in 0..headers_left {
        let label = rest.need(4, Malformed::LinkHeaderShort)?;
        rest = rest.skip(4);
        if label[2] & BOTTOM_OF_STACK != 0 {
            return Ok(below(kind, rest, headers_left));
        }
    }
    Err(Stop::Malformed(Malformed::LinkHeadersMany))
}

fn below(kind: u16, view: View<'_>, headers_left: u8) -> Payload<'_> {
    match view.seen().first().map(|byte| byte >> 4) {
        Some(version @ (4 | 6)) => Payload::Ip(view, Some(version)),
        Some(0) => {
            let left = headers_left.min(PSEUDOWIRE_HEADERS_MAX).saturating_sub(1);
            match (pseudowire(view.skip(4), left), pseudowire(view, left)) {
                (Some(payload), None) | (None, Some(payload)) => payload,
                _ => Payload::Other(Some(kind)),
            }
        }
        Some(_) => {
            let left = headers_left.min(PSEUDOWIRE_HEADERS_MAX).saturating_sub(1);
            pseudowire(view, left).unwrap_or(Payload::Other(Some(kind)))
        }
        None => Payload::Other(Some(kind)),
    }
}

/// The IP inside an Ethernet frame, if the bytes read as one.
fn pseudowire(view: View<'_>, headers_left: u8) -> Option<Payload<'_>> {
    match frame(view, headers_left) {
        Ok(Payload::Ip(inner, version))
            if inner.seen().first().map(|byte| byte >> 4) == version =>
        {
            Some(Payload::Ip(inner, version))
        }
        _ => None,
    }
}
