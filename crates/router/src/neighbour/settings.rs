//! A neighbour table's limits and timers, with the defaults of RFC 4861, section 10.

use nilometer_wire::Span;

/// Limits and timers. [`Settings::arp`] and [`Settings::discovery`] are the defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Most entries, from 1 to 2^20; those set by hand count.
    pub entries_max: usize,
    /// Most entries that are being resolved for the first time, from 1 to `entries_max`.
    pub unresolved_max: usize,
    /// Most packets that wait for one neighbour, at least 1 (RFC 4861, 7.2.2); the oldest gives way.
    pub waiting_max: usize,
    /// Most packets that wait for all neighbours or for [`super::Table::poll_packet`], at least
    /// `waiting_max`.
    pub packets_max: usize,
    /// Requests to a group or by broadcast before an address counts as failed, from 1 to 255
    /// (MAX_MULTICAST_SOLICIT).
    pub multicast_requests: u8,
    /// Requests to a neighbour of old before it is forgotten, from 1 to 255 (MAX_UNICAST_SOLICIT).
    pub unicast_requests: u8,
    /// From a request to the next for the same address, at least 1 s for ARP (RFC 1122, 2.3.2.1), here
    /// at least 1 ms (RetransTimer).
    pub retransmit: Span,
    /// The mean of how long a neighbour counts as reachable (BaseReachableTime). The value used is
    /// uniform between half of it and one and a half times it, and is redrawn every two hours
    /// (6.3.4).
    pub reachable: Span,
    /// From the use of a stale entry to the first probe (DELAY_FIRST_PROBE_TIME).
    pub delay: Span,
    /// How long an unused stale entry is kept (RFC 1122, 2.3.2.1 requires such a timeout).
    pub stale: Span,
    /// How long a failed address is refused without a request, from 1 to 3 s.
    pub failed: Span,
    /// For how long a change of link-layer address keeps other changes away: with ARP the first of two
    /// different answers counts, as in Linux (`locktime`).
    pub lock: Span,
    /// The seed of the hash's keys and of the reachable time.
    pub seed: u64,
}

/// A setting outside its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// `entries_max`.
    #[error("entries_max is not from 1 to 1,048,576")]
    Entries,
    /// `unresolved_max`.
    #[error("unresolved_max is not from 1 to entries_max")]
    Unresolved,
    /// `waiting_max` or `packets_max`.
    #[error("waiting_max is 0 or more than packets_max")]
    Packets,
    /// `multicast_requests` or `unicast_requests`.
    #[error("multicast_requests or unicast_requests is 0")]
    Requests,
    /// `retransmit`, `reachable`, `delay`, `stale` or `failed`.
    #[error("a timer is below 1 ms, or failed is not from 1 to 3 s")]
    Timer,
}

impl Settings {
    /// For IPv6: the constants of RFC 4861, section 10, and 4,096 entries.
    pub fn discovery(seed: u64) -> Settings {
        Settings {
            entries_max: 4_096,
            unresolved_max: 256,
            waiting_max: 3,
            packets_max: 1_024,
            multicast_requests: 3,
            unicast_requests: 3,
            retransmit: Span::from_secs(1),
            reachable: Span::from_secs(30),
            delay: Span::from_secs(5),
            stale: Span::from_secs(1_200),
            failed: Span::from_secs(2),
            lock: Span::ZERO,
            seed,
        }
    }

    /// For IPv4: the same, and of two answers within a second the first counts.
    pub fn arp(seed: u64) -> Settings {
        Settings { lock: Span::from_secs(1), ..Settings::discovery(seed) }
    }

    /// Whether every setting is in its range.
    ///
    /// # Errors
    /// The first that is not.
    pub fn check(&self) -> Result<(), SettingsError> {
        let millisecond = Span::from_nanos(1_000_000);
        let timers = [self.retransmit, self.reachable, self.delay, self.stale];
        let failed = Span::from_secs(1)..=Span::from_secs(3);
        if !(1..=1 << 20).contains(&self.entries_max) {
            Err(SettingsError::Entries)
        } else if !(1..=self.entries_max).contains(&self.unresolved_max) {
            Err(SettingsError::Unresolved)
        } else if self.waiting_max == 0 || self.packets_max < self.waiting_max {
            Err(SettingsError::Packets)
        } else if self.multicast_requests == 0 || self.unicast_requests == 0 {
            Err(SettingsError::Requests)
        } else if timers.iter().any(|&timer| timer < millisecond) || !failed.contains(&self.failed)
        {
            Err(SettingsError::Timer)
        } else {
            Ok(())
        }
    }
}
