//! Who is on the other side of a door, as those behind it need to know.

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A process of the same user, by the socket.
    Owner,
    /// Somebody by TCP.
    Remote,
}
