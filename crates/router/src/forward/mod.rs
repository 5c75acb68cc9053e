//! What forwarding does to a packet, by RFC 1812 for IPv4 and RFC 8200 with RFC 4443 for IPv6.
//!
//! Each file here is one decision or one change to a packet's bytes: pure, without a port or a clock,
//! and never a panic whatever the bytes. The pipeline that receives, looks up, queues and sends calls
//! them in the order of RFC 1812, 5.2.1. The clauses, and what holds each, are in `docs/rfc1812.md`.

pub mod echo;
pub mod ecmp;
pub mod ecn;
pub mod extension;
pub mod fragment;
pub mod hop;
pub mod icmp;
pub mod icmp_suppression;
pub mod limit;
pub mod martian;
pub mod options;
mod problem;
pub mod reassemble;
pub mod redirect;
pub mod report;
pub mod source_fragment;
pub mod tiny;
pub mod urpf;

/// The 16-bit word at `at`; zero beyond the end.
#[inline]
fn word(bytes: &[u8], at: usize) -> u16 {
    match bytes.get(at..at + 2) {
        Some(pair) => u16::from_be_bytes([pair[0], pair[1]]),
        None => 0,
    }
}

/// Bytes of the IPv4 header and of the packet, where a sound header begins `packet` and the packet
/// is all there.
#[inline]
fn ipv4_extent(packet: &[u8]) -> Option<(usize, usize)> {
    let first = *packet.first()?;
    let header_bytes = usize::from(first & 0x0f) * 4;
    let total_bytes = usize::from(word(packet, 2));
    let is_sound = first >> 4 == 4
        && header_bytes >= crate::header::IPV4_BYTES
        && total_bytes >= header_bytes
        && total_bytes <= packet.len();
    is_sound.then_some((header_bytes, total_bytes))
}

/// Bytes of the IPv6 packet, where a header begins `packet` and the packet is all there.
#[inline]
fn ipv6_extent(packet: &[u8]) -> Option<usize> {
    let total_bytes = crate::header::IPV6_BYTES + usize::from(word(packet, 4));
    let is_sound = packet.first()? >> 4 == 6 && total_bytes <= packet.len();
    is_sound.then_some(total_bytes)
}

/// The 32-bit word at `at`; zero beyond the end.
#[inline]
fn double_word(bytes: &[u8], at: usize) -> u32 {
    u32::from(word(bytes, at)) << 16 | u32::from(word(bytes, at + 2))
}
