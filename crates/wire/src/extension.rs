//! The headers between IP and the transport: IPv6 extension headers (RFC 8200, section 4) and the
//! authentication header of either version (RFC 4302).

use crate::parsed::{Fragment, Malformed};
use crate::view::{Stop, View, word};

/// How many extension headers are followed.
const EXTENSIONS_MAX: usize = 16;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const NO_NEXT_HEADER: u8 = 59;
const DESTINATION_OPTIONS: u8 = 60;
const MOBILITY: u8 = 135;
const HOST_IDENTITY: u8 = 139;
const SHIM6: u8 = 140;

/// Where the chain of headers ended.
pub(crate) struct Chain<'a> {
    /// The first protocol that is not passed over (ESP among them).
    pub(crate) protocol: u8,
    pub(crate) fragment: Fragment,
    /// `None` when the snap length ended inside the chain.
    pub(crate) payload: Option<View<'a>>,
    /// A routing header has segments left.
    pub(crate) underway: bool,
}

/// IPv4 knows one such header, authentication.
pub(crate) fn of_ipv4(protocol: u8, view: View<'_>, fragment: Fragment) -> Result<Chain<'_>, Stop> {
    let start = Chain { protocol, fragment, payload: Some(view), underway: false };
    match (protocol, fragment) {
        (AUTHENTICATION, Fragment::Whole | Fragment::First) => follow(start),
        _ => Ok(start),
    }
}

/// Follows the chain from an IPv6 header's next header field.
pub(crate) fn of_ipv6(next: u8, view: View<'_>) -> Result<Chain<'_>, Stop> {
    follow(Chain {
        protocol: next,
        fragment: Fragment::Whole,
        payload: Some(view),
        underway: false,
    })
}

fn follow(mut chain: Chain<'_>) -> Result<Chain<'_>, Stop> {
    for _ in 0..EXTENSIONS_MAX {
        let Some(view) = chain.payload else { return Ok(chain) };
        if chain.fragment == Fragment::Later || !is_extension(chain.protocol) {
            return Ok(chain);
        }
        match step(&mut chain, view) {
            Ok(true) => {}
            Ok(false) => return Ok(chain),
            Err(Stop::Cut) => chain.payload = None,
            // A fragment may end anywhere: the rest of the chain is in the next one.
            Err(_) if chain.fragment == Fragment::First => chain.payload = None,
            Err(stop) => return Err(stop),
        }
    }
    match chain.payload {
        Some(_) if is_extension(chain.protocol) => Err(Stop::Malformed(Malformed::ExtensionsMany)),
        _ => Ok(chain),
    }
}

fn is_extension(protocol: u8) -> bool {
    matches!(
        protocol,
        HOP_BY_HOP
            | ROUTING
            | FRAGMENT
            | AUTHENTICATION
            | DESTINATION_OPTIONS
            | MOBILITY
            | HOST_IDENTITY
            | SHIM6
    )
}

/// Passes one header; false when it is the last thing in the packet and so the protocol itself.
fn step<'a>(chain: &mut Chain<'a>, view: View<'a>) -> Result<bool, Stop> {
    let head = view.need(8, Malformed::ExtensionShort)?;
    let carries_itself = matches!(chain.protocol, MOBILITY | HOST_IDENTITY | SHIM6);
    if carries_itself && head[0] == NO_NEXT_HEADER {
        return Ok(false);
    }
    let bytes = match chain.protocol {
        FRAGMENT => 8,
        AUTHENTICATION => (usize::from(head[1]) + 2) * 4,
        _ => (usize::from(head[1]) + 1) * 8,
    };
    match chain.protocol {
        FRAGMENT => chain.fragment = place(word(head, 2)),
        ROUTING => chain.underway |= head[3] != 0,
        _ => {}
    }
    chain.protocol = head[0];
    if bytes > view.length() {
        return Err(Stop::Malformed(Malformed::ExtensionShort));
    }
    let cut = bytes > view.seen().len();
    chain.payload = (!cut).then(|| view.skip(bytes));
    Ok(true)
}

/// An atomic fragment (offset 0, nothing follows; RFC 6946) is a whole packet.
fn place(offset_and_more: u16) -> Fragment {
    match (offset_and_more >> 3, offset_and_more & 1) {
        (0, 0) => Fragment::Whole,
        (0, _) => Fragment::First,
        _ => Fragment::Later,
    }
}
