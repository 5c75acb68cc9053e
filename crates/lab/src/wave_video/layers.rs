//! Layers and flows: which sub-bands make a layer, and the groups and ports by which a scheduler distinguishes
//! flows.
//!
//! A layer of layered multicast is a group of its own. To a scheduler that looks at addresses and ports each would
//! be a flow with a share of its own, and the video would have seven shares where the paper's has one. So the groups
//! are chosen such that routers which spread flows over [`QUEUES`] queues have them all in one, and each stream of
//! cross traffic in another.

use std::net::{Ipv4Addr, SocketAddrV4};

use nilometer_router::forward::ecmp::flow_hash;
use nilometer_router::header::{AnyKey, Header, Key, protocol};

/// Queues that routers spread flows over, by the remainder of their hash.
pub(super) const QUEUES: u32 = 64;
/// The queue of the video; cross traffic has those behind it.
const VIDEO_QUEUE: u32 = 7;
/// The first sub-band beyond each layer: the coarse ones, then a level of luma or of chroma, and the finest one by one,
/// since they are most of the bytes.
pub(super) const LAYER_ENDS: [u8; 7] = [12, 21, 24, 30, 31, 32, 33];
/// UDP ports of the video and of cross traffic.
pub(super) const VIDEO_PORT: u16 = 5_004;
pub(super) const CROSS_PORT: u16 = 9;
/// Where groups are sought (RFC 2365, 6.2: within an organisation).
const GROUPS: u32 = 0xefc0_0000;
const TRIED_MOST: u32 = 1 << 16;

/// The layer of a sub-band.
pub(super) fn layer_of(subband: u8) -> usize {
    LAYER_ENDS.iter().position(|end| subband < *end).unwrap_or(LAYER_ENDS.len() - 1)
}

/// The queue that routers with this seed have for a flow.
pub(super) fn queue_of(seed: u64, from: SocketAddrV4, to: SocketAddrV4) -> u32 {
    let key = Key {
        source: u32::from(*from.ip()),
        destination: u32::from(*to.ip()),
        source_port: from.port(),
        destination_port: to.port(),
        protocol: protocol::UDP,
        flags: 0,
    };
    let header = Header {
        key: AnyKey::V4(key),
        ip_bytes: 0,
        transport_at: 0,
        traffic_class: 0,
        hop_limit: 0,
        notes: 0,
    };
    flow_hash(seed, &header, None) as u32 % QUEUES
}

/// `count` groups whose packets from this source share one queue in routers with this seed.
pub(super) fn groups(seed: u64, from: SocketAddrV4, count: usize) -> Vec<SocketAddrV4> {
    (1..TRIED_MOST)
        .map(|number| SocketAddrV4::new(Ipv4Addr::from(GROUPS + number), VIDEO_PORT))
        .filter(|group| queue_of(seed, from, *group) == VIDEO_QUEUE)
        .take(count)
        .collect()
}

/// Where a stream of cross traffic comes from, so that it has a queue of its own.
pub(super) fn cross_source(
    seed: u64,
    from: Ipv4Addr,
    to: SocketAddrV4,
    stream: u32,
) -> Option<SocketAddrV4> {
    (10_000..u16::MAX)
        .map(|port| SocketAddrV4::new(from, port))
        .find(|from| queue_of(seed, *from, to) == VIDEO_QUEUE + 1 + stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_runs_of_subbands() {
        let layers: Vec<usize> = (0..33).map(layer_of).collect();
        assert!(layers.is_sorted());
        assert_eq!((layers[0], layers[11], layers[12], layers[32]), (0, 0, 1, 6));
    }

    #[test]
    fn layers_have_one_queue_and_cross_traffic_has_others() {
        let from = "198.18.0.2:5004".parse().expect("an address");
        for seed in [1, 9] {
            let groups = groups(seed, from, LAYER_ENDS.len());
            assert_eq!(groups.len(), 7);
            assert!(groups.iter().all(|group| group.ip().is_multicast()));
            let to = "198.18.3.2:9".parse().expect("an address");
            let streams: Vec<u32> = (0..2)
                .filter_map(|stream| cross_source(seed, *from.ip(), to, stream))
                .map(|source| queue_of(seed, source, to))
                .collect();
            assert_eq!(streams, [VIDEO_QUEUE + 1, VIDEO_QUEUE + 2]);
        }
    }
}
