//! The two ends of a connection.

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// Sent the SYN. Where no SYN was seen: the end with the higher port, and the first to speak where both
    /// ports are the same.
    Client,
    /// The other end.
    Server,
}

impl Side {
    /// Both, the client first: the order of every pair here.
    pub const BOTH: [Side; 2] = [Side::Client, Side::Server];

    /// The other end.
    pub fn other(self) -> Side {
        match self {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        }
    }

    /// Its place in a pair.
    pub fn index(self) -> usize {
        self as usize
    }
}
