//! Losses as `result.json` reports them: by direction, place and reason, and those unexplained.

use serde::{Deserialize, Serialize};

/// The directions, as they are called in files.
pub const WAYS: [&str; 2] = ["to_servers", "to_clients"];

/// Packets that did not get through for one reason in one place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// `to_servers` or `to_clients`.
    pub direction: String,
    /// The port, `client` or `server`, or the host's interface at the other end of its link.
    pub port: String,
    /// Where there: `link`, `device`, `filter`, `router`, `input queue`, `output queue`, `host`, `waiting`.
    pub place: String,
    /// Why, by the name of its counter.
    pub reason: String,
    /// How many.
    pub packets: u64,
}

/// Packets that the meter reports as lost and no counter has, by direction; negative where counters
/// have more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unexplained {
    /// From the clients.
    pub to_servers: i64,
    /// From the servers.
    pub to_clients: i64,
}

impl Unexplained {
    /// By direction: to the servers, to the clients.
    pub fn ways(&self) -> [i64; 2] {
        [self.to_servers, self.to_clients]
    }
}
