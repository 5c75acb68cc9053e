//! The account of a router: every packet that arrived or was created has left, was discarded, or is
//! still inside.

/// Packets, by how they came and how they went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Came to a port from outside.
    pub received: u64,
    /// Injected from beside the forwarding plane.
    pub injected: u64,
    /// Made here: errors, replies, requests for addresses, fragments, copies.
    pub made: u64,
    /// Left by a port.
    pub transmitted: u64,
    /// Punted out of the forwarding plane.
    pub punted: u64,
    /// Read here, and at their end: requests and replies of the router's own protocols, packets that
    /// were replaced by their fragments.
    pub absorbed: u64,
    /// Of those that came, those that took a shortcut ([`super::shortcut`]).
    pub by_shortcut: u64,
    /// Packets that the slow path ([`super::slow`]) handled, made here or not.
    pub by_slow_path: u64,
    /// Discarded for one of the reasons of [`crate::discard::Discard`].
    pub discarded: u64,
}

impl Account {
    /// Whether it balances with `inside` here and `dropped` by queues.
    pub fn balances(&self, inside: u64, dropped: u64) -> bool {
        let came = self.received + self.injected + self.made;
        let gone = self.transmitted + self.punted + self.absorbed + self.discarded;
        came == gone + dropped + inside
    }
}
