//! The plan: every connection that will be made, known before the first one is.

use core::net::IpAddr;

use nilometer_wire::Time;

/// One connection of the plan: at `start` the client at `source` asks the server at `destination`
/// for a file of `size_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedConnection {
    /// When the client connects, since the traffic began.
    pub start: Time,
    /// The session that makes it.
    pub session: u32,
    /// The interval in which it starts, and to which its bytes belong.
    pub interval: u32,
    /// The client's address.
    pub source: IpAddr,
    /// The server's address.
    pub destination: IpAddr,
    /// Payload bytes that the server sends.
    pub size_bytes: u64,
}
