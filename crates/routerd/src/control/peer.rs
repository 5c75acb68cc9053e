//! The peer of a connection, as far as the control processor needs to know it.

/// The client that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A process of the same user, by the socket.
    Owner,
    /// A client by TCP.
    Remote,
}
