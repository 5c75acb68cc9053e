//! What an exposed server demands of its clients, and how much it lets them hold.
//!
//! Any client that can connect can request a terabyte and then do nothing. A timer that each byte
//! restarts does not catch it, so time is bounded from the beginning, and rates from below:
//!
//! - The sixteen bytes of a request's header must arrive within [`Limits::request_time`] after the
//!   connection got its place, however they trickle.
//! - From then on a connection must carry [`Limits::lowest_rate`] over every [`Limits::rate_window`],
//!   the rest of its request and its answer taken together. Only bytes of the answer that the client
//!   has *acknowledged* count: bytes in a send buffer prove nothing about the reader. A connection
//!   with everything acknowledged carries nothing more, so it has one window to close.
//! - When every place is taken, the address that holds most of them makes room for one that holds
//!   fewer ([`super::place_table`]).
//! - Bytes under way, handed to TCP and not acknowledged, are bounded over all connections
//!   ([`super::under_way`]).
//! - A client that is given up is reset, so that the kernel keeps no send buffer for it. Listeners
//!   have `SO_LINGER` with zero time and Linux passes it on to the sockets they accept: every close is
//!   abortive, also the one at the end of a process that was killed. Where all is acknowledged and
//!   both ends have closed, there is nothing to abort, and no reset is sent.
//!
//! The rates follow from the slowest client worth waiting for: 250 bytes a second is the share of each
//! of 32 connections in a device of 64 kbit/s, and a minute rides out TCP's retransmissions, five of
//! which in a row take 31 s.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::under_way::RESERVE_MIN_BYTES;

/// The limits of a server that strangers can reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long the beginning of a request may take; more than zero.
    pub request_time: Duration,
    /// Bytes a second that a connection carries at least over each window; 0 is no limit.
    pub lowest_rate: u64,
    /// How long such a window is; more than zero.
    pub rate_window: Duration,
    /// Bytes that may be handed to TCP and not be acknowledged, over all connections of one loop.
    pub under_way_bytes: u64,
}

impl Default for Limits {
    /// 10 s for a request's header, 250 bytes a second over 60 s, 256 MiB under way.
    fn default() -> Limits {
        Limits {
            request_time: Duration::from_secs(10),
            lowest_rate: 250,
            rate_window: Duration::from_secs(60),
            under_way_bytes: 256 << 20,
        }
    }
}

impl Limits {
    /// Bytes that a connection carries at least in a window.
    pub fn window_bytes(&self) -> u64 {
        (self.lowest_rate as f64 * self.rate_window.as_secs_f64()) as u64
    }

    /// Checks whether a server with `places` places can keep these limits.
    ///
    /// # Errors
    /// One line: a time of zero, or too few bytes under way for each place to have some.
    pub fn check(&self, places: usize) -> Result<()> {
        ensure!(!self.request_time.is_zero(), "a request must be given some time");
        ensure!(!self.rate_window.is_zero(), "a lowest rate needs a window of some time");
        let least = 2 * RESERVE_MIN_BYTES * places as u64;
        ensure!(
            self.under_way_bytes >= least,
            "{} bytes under way are too few for {places} places; allow {least}, or fewer places",
            self.under_way_bytes
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inconsistent_limits_are_refused() {
        let usual = Limits::default();
        assert!(usual.check(16_384).is_ok());
        assert_eq!(usual.window_bytes(), 15_000);
        let error = usual.check(40_000).unwrap_err().to_string();
        assert!(error.contains("268435456 bytes") && error.contains("allow 327680000"), "{error}");
        assert!(Limits { request_time: Duration::ZERO, ..usual.clone() }.check(1).is_err());
        assert!(Limits { rate_window: Duration::ZERO, ..usual }.check(1).is_err());
    }
}
