//! ICMP errors: the packet inside one is translated, and the checksums around it (RFC 5508, 4).

use core::net::{IpAddr, Ipv4Addr};

use nilometer_plugin::checksum::{updated, updated_bytes};
use nilometer_plugin::headers::{TCP, UDP, word};
use nilometer_plugin::{Headers, Packet};

use super::mappings::Endpoint;

/// Bytes of an ICMP header in front of the packet that it is about.
const ICMP_BYTES: usize = 8;
/// Bytes of the packet inside that are looked at: a header with options, and a transport's first words.
const INSIDE_BYTES_MAX: usize = 80;

/// One of the two ends of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Source,
    Destination,
}

/// Translates one end of the packet inside an ICMP error: `translated` returns the new endpoint for the old. Nothing
/// is changed if there is none.
pub(super) fn translate_error(
    packet: &mut Packet<'_>,
    headers: &Headers,
    end: End,
    translated: impl FnOnce(Endpoint) -> Option<Endpoint>,
) -> Option<Endpoint> {
    let icmp_at = headers.transport_at?;
    let inside_at = icmp_at + ICMP_BYTES;
    let seen = packet.bytes().get(inside_at..)?;
    let length = seen.len().min(INSIDE_BYTES_MAX) & !1;
    let mut before = [0; INSIDE_BYTES_MAX];
    before[..length].copy_from_slice(&seen[..length]);
    let before = &before[..length];
    let inside = Headers::read(before)?;
    let address = match (end, inside.source, inside.destination) {
        (End::Source, IpAddr::V4(address), _) | (End::Destination, _, IpAddr::V4(address)) => {
            address
        }
        _ => return None,
    };
    let port_at = port_at(&inside, before, end)?;
    let old = Endpoint { protocol: inside.protocol, address, port: word(before, port_at) };
    let new = translated(old)?;
    let bytes = packet.bytes_mut();
    let rewritten = &mut bytes[inside_at..inside_at + length];
    rewrite(rewritten, &inside, end, port_at, &new);
    let sum =
        updated_bytes(word(bytes, icmp_at + 2), before, &bytes[inside_at..inside_at + length]);
    bytes[icmp_at + 2..icmp_at + 4].copy_from_slice(&sum.to_be_bytes());
    Some(new)
}

/// Where the port or the identifier of an end lies.
fn port_at(inside: &Headers, bytes: &[u8], end: End) -> Option<usize> {
    let offset = match (inside.protocol, end) {
        (TCP | UDP, End::Source) => 0,
        (TCP | UDP, End::Destination) => 2,
        // An echo or another query, whose identifier is that of both ends.
        (1, _) if matches!(bytes.get(inside.transport_at?)?, 0 | 8 | 13..=16) => 4,
        _ => return None,
    };
    let at = inside.transport_at? + offset;
    (bytes.len() >= at + 2).then_some(at)
}

fn rewrite(bytes: &mut [u8], inside: &Headers, end: End, port_at: usize, new: &Endpoint) {
    let address_at = if end == End::Source { 12 } else { 16 };
    let address: Ipv4Addr = new.address;
    let covers_address = matches!(inside.protocol, TCP | UDP);
    let changes = [
        (address_at, word(&address.octets(), 0), true),
        (address_at + 2, word(&address.octets(), 2), true),
        (port_at, new.port, false),
    ];
    // The transport's checksum may lie beyond what the error has of the packet.
    let sum_at = inside.checksum_at().filter(|at| bytes.len() >= at + 2);
    let sum_at = sum_at.filter(|at| inside.protocol != UDP || word(bytes, *at) != 0);
    for (at, value, is_address) in changes {
        let old = word(bytes, at);
        bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
        if is_address {
            update(bytes, 10, old, value);
        }
        if let Some(sum_at) = sum_at.filter(|_| !is_address || covers_address) {
            update(bytes, sum_at, old, value);
        }
    }
}

fn update(bytes: &mut [u8], sum_at: usize, old: u16, new: u16) {
    let sum = updated(word(bytes, sum_at), old, new);
    bytes[sum_at..sum_at + 2].copy_from_slice(&sum.to_be_bytes());
}
