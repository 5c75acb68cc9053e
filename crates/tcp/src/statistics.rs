//! What one end counted.

/// Counts since the connection began. The last three change with every segment, and so do the fields
/// that follow this in a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Statistics {
    /// Segments sent again, payload, SYN or FIN.
    pub retransmitted_segments: u64,
    /// Payload bytes sent again.
    pub retransmitted_bytes: u64,
    /// Payload bytes received that had been received before.
    pub duplicate_bytes: u64,
    /// Segments that arrived before what precedes them.
    pub out_of_order_segments: u64,
    /// Fast recoveries begun (with Tahoe: fast retransmits).
    pub fast_recoveries: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Reductions that were undone because nothing had been lost.
    pub undone: u64,
    /// Reductions because of an echoed mark (RFC 3168).
    pub marks_answered: u64,
    /// Segments received with a congestion mark.
    pub marks_received: u64,
    /// Segments dropped because they did not fit the connection: outside of the window, old
    /// timestamps, no ACK.
    pub refused_segments: u64,
    /// Segments received, of any kind.
    pub segments_received: u64,
    /// Segments sent, of any kind.
    pub segments_sent: u64,
    /// Payload bytes sent, those sent again included.
    pub bytes_sent: u64,
}
