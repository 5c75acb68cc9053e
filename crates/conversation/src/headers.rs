//! The share of headers in the bytes that flow records count, learnt from directions that only acknowledge.
//!
//! Exporters count bytes of packets. Harpoon subtracts 40 from each (60 with IPv6), the headers without options, and
//! is right where hosts send no options. Most send TCP's time stamps, twelve bytes more in each packet: a request of
//! 400 bytes whose answer is acknowledged by five packets looks like one of 484. But a direction that only
//! acknowledges shows how long a header is, and hosts are consistent: both ends of a pair send time stamps or
//! neither does (RFC 7323, section 1.3). So the connections of two hosts in which one direction only acknowledges
//! decide for all connections between them. Where there is no such connection nothing is known, and only bare
//! headers are subtracted.

use alloc::collections::BTreeMap;
use core::net::IpAddr;

use crate::connection::{Carried, Connection, Opening};
use crate::side::Side;

/// Bare IP and TCP headers, IPv4 and IPv6.
const BARE_BYTES: [u64; 2] = [40, 60];
/// Bytes of time stamps in each packet.
const STAMP_BYTES: u64 = 12;
/// Bytes of a SYN's other options: maximum segment size, window scale, SACK permitted.
const SYN_BYTES: u64 = 8;
/// Packets that a direction must have to be evidence; in fewer, the options of its SYN weigh too much.
const PACKETS_MIN: u64 = 4;

/// The two hosts, the lower address first.
fn pair(one: &Connection) -> [IpAddr; 2] {
    let (client, server) = (one.client.ip(), one.server.ip());
    [client.min(server), client.max(server)]
}

fn bare_bytes(one: &Connection) -> u64 {
    BARE_BYTES[usize::from(one.client.is_ipv6())]
}

/// Does a direction that only acknowledges have time stamps? `None` where it carries data, or has too few
/// packets.
fn shows_time_stamps(way: &Carried, bare: u64) -> Option<bool> {
    let options = way.octets.checked_sub(bare.checked_mul(way.packets)?)?;
    let is_telling = way.payload_bytes == 0 && way.packets >= PACKETS_MIN;
    is_telling.then_some(2 * options >= STAMP_BYTES * way.packets)
}

/// Subtracts time stamps from the payload that connections of records seem to carry, where records count bytes of
/// packets and not payload; returns how many connections were changed.
pub fn without_time_stamps(connections: &mut [Connection]) -> u64 {
    let mut votes: BTreeMap<[IpAddr; 2], [u64; 2]> = BTreeMap::new();
    for one in &*connections {
        for has_stamps in
            one.carried.iter().filter_map(|way| shows_time_stamps(way, bare_bytes(one)))
        {
            votes.entry(pair(one)).or_default()[usize::from(has_stamps)] += 1;
        }
    }
    let mut changed = 0;
    for one in connections {
        let [without, with] = votes.get(&pair(one)).copied().unwrap_or_default();
        one.has_time_stamps = with > without;
        if !one.has_time_stamps {
            continue;
        }
        changed += 1;
        let has_syn = matches!(one.opening, Opening::Seen | Opening::Refused);
        let per_packet = bare_bytes(one) + STAMP_BYTES;
        for side in Side::BOTH {
            let way = &mut one.carried[side.index()];
            let headers = way.packets.saturating_mul(per_packet);
            let beside = headers.saturating_add(if has_syn { SYN_BYTES } else { 0 });
            way.payload_bytes = way.payload_bytes.min(way.octets.saturating_sub(beside));
            way.data_bytes = way.payload_bytes;
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    /// A connection of hosts of these numbers: packets and payload each way, with `options` bytes of options in
    /// each packet and eight more in a SYN, as records that count only bytes show it.
    fn recorded(hosts: [u8; 2], ways: [(u64, u64); 2], options: u64) -> Connection {
        let way = |(packets, payload): (u64, u64)| {
            let octets = payload + packets * (40 + options) + 8;
            let seems = octets - 40 * packets;
            let payload_bytes = if octets <= 72 * packets { 0 } else { seems };
            Carried {
                packets,
                octets,
                data_bytes: payload_bytes,
                payload_bytes,
                ..Carried::default()
            }
        };
        let end = |host: u8, port: u16| (IpAddr::from([192, 0, 2, host]), port).into();
        Connection {
            client: end(hosts[0], 40_000),
            server: end(hosts[1], 80),
            start_ns: 0,
            end_ns: 1,
            opening: Opening::Seen,
            syns: 1,
            handshake_ns: [None; 2],
            is_concurrent: false,
            has_time_stamps: false,
            steps: Vec::new(),
            carried: ways.map(way),
        }
    }

    fn payload(one: &Connection) -> [u64; 2] {
        one.carried.each_ref().map(|way| way.payload_bytes)
    }

    #[test]
    fn a_request_of_four_hundred_bytes_is_one_of_four_hundred() {
        let exchange = |hosts| recorded(hosts, [(7, 400), (6, 5_000)], 12);
        let upload = recorded([1, 2], [(60, 80_000), (30, 0)], 12);
        let mut all = vec![exchange([1, 2]), upload, exchange([1, 3])];
        assert_eq!(payload(&all[0])[0], 492, "as it seems");
        assert_eq!(without_time_stamps(&mut all), 2);
        assert_eq!(payload(&all[0]), [400, 5_000]);
        assert_eq!(payload(&all[1]), [80_000, 0]);
        // There is no evidence for the other pair.
        assert_eq!((payload(&all[2])[0], all[2].has_time_stamps), (492, false));
    }

    #[test]
    fn hosts_without_time_stamps_are_read_as_before() {
        let download = recorded([1, 2], [(30, 0), (60, 80_000)], 0);
        let mut all = vec![recorded([1, 2], [(7, 400), (6, 5_000)], 0), download];
        let before = all.clone();
        assert_eq!(without_time_stamps(&mut all), 0);
        assert_eq!(all, before);
        // With three packets, a SYN's options cannot be distinguished from options in every packet.
        let mut short = vec![recorded([1, 2], [(3, 0), (60, 80_000)], 12)];
        assert_eq!(without_time_stamps(&mut short), 0);
    }
}
