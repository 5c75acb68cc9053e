//! Limits of an estimate's memory that grows with its input.

/// Limits of an estimate. Input that goes beyond one of them is refused with an error that names it.
///
/// Laws, shapes and intervals have bounds of their own, beyond which they are less exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Addresses of clients, and as many of servers: 32 bytes each, and up to three times that while more are
    /// merged.
    pub addresses: usize,
    /// Times at which hosts of records without flags came and went, for all hosts together: 24 bytes each, 32 if
    /// the host's address is IPv6, and twice that while more are merged. Two times may become one when more of a
    /// host's flows are seen; the limit applies at any moment.
    pub host_times: usize,
    /// Records without flags with impossible stamps: 56 bytes each, and three times that while they are looked up.
    pub doubtful: usize,
    /// Starts and answers of an address pair with too many flows for one batch, which are kept until its last flow is
    /// measured: 32 bytes for a connection that began or a sampled flow, and 8 for a connection
    /// that was answered or a conversation of UDP. Address pairs that share a slot are kept together.
    pub pair_events: usize,
    /// Records of one pair of sockets, some 400 bytes each while they are processed. If more may be processed
    /// together in any case ([`MemoryBudget::batch`](crate::partitioner::MemoryBudget)), that is the limit.
    pub per_socket_pair: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            addresses: 1 << 25,
            host_times: 1 << 25,
            doubtful: 1 << 22,
            pair_events: 1 << 26,
            per_socket_pair: 1 << 24,
        }
    }
}
