//! The timers and limits of a port's group memberships, with the defaults of RFC 3376, section 8.

use nilometer_wire::Span;

use super::message::Version;

/// Timers and limits; [`Settings::default`] is RFC 3376, 8 and RFC 3810, 9.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The version of queries. Messages of newer ones are ignored, as a router that knows only this
    /// one ignores them (RFC 3376, 7.3.1); for MLD the oldest is the older.
    pub version: Version,
    /// How many packets may be lost, less one, from 1 to 7 (Robustness Variable).
    pub robustness: u8,
    /// From a general query to the next, from 1 s to 31,744 s (Query Interval).
    pub query_interval: Span,
    /// Within which hosts answer, from 0.1 s and less than the interval (Query Response Interval).
    pub response_interval: Span,
    /// Within which hosts answer when a host has left, from 0.1 s to 25 s (Last Member Query
    /// Interval).
    pub last_member_interval: Span,
    /// How many queries are sent then, from 1 to 7 (Last Member Query Count). The product with the
    /// interval is the leave latency.
    pub last_member_count: u8,
    /// Most groups on the port, from 1 to 65,536.
    pub groups_max: usize,
    /// Most sources of a group, from 1 to 1,024.
    pub sources_max: usize,
    /// Most messages that are read in a second, from 1 to 1,000,000, and as many at once after a pause.
    pub messages_per_second: u32,
}

/// A setting outside its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// `robustness` or `last_member_count`.
    #[error("robustness or last_member_count is not from 1 to 7")]
    Count,
    /// `query_interval`, `response_interval` or `last_member_interval`.
    #[error("an interval of queries or responses is out of range")]
    Interval,
    /// `groups_max`, `sources_max` or `messages_per_second`.
    #[error(
        "groups_max is not from 1 to 65,536, sources_max from 1 to 1,024 or messages_per_second \
         from 1 to 1,000,000"
    )]
    Limit,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            version: Version::Newest,
            robustness: 2,
            query_interval: Span::from_secs(125),
            response_interval: Span::from_secs(10),
            last_member_interval: Span::from_secs(1),
            last_member_count: 2,
            groups_max: 1_024,
            sources_max: 64,
            messages_per_second: 1_000,
        }
    }
}

impl Settings {
    /// Whether every setting is in its range.
    ///
    /// # Errors
    /// The first that is not.
    pub fn check(&self) -> Result<(), SettingsError> {
        let tenth = Span::from_secs(1) / 10;
        let counts = [self.robustness, self.last_member_count];
        let queries = Span::from_secs(1)..=Span::from_secs(31_744);
        let last = tenth..=Span::from_secs(25);
        let is_interval_sound = queries.contains(&self.query_interval)
            && (tenth..self.query_interval).contains(&self.response_interval)
            && last.contains(&self.last_member_interval);
        if counts.iter().any(|count| !(1..=7).contains(count)) {
            Err(SettingsError::Count)
        } else if !is_interval_sound {
            Err(SettingsError::Interval)
        } else if !(1..=65_536).contains(&self.groups_max)
            || !(1..=1_024).contains(&self.sources_max)
            || !(1..=1_000_000).contains(&self.messages_per_second)
        {
            Err(SettingsError::Limit)
        } else {
            Ok(())
        }
    }

    /// How long a report counts (Group Membership Interval, Multicast Address Listening Interval).
    pub fn membership_interval(&self) -> Span {
        self.query_interval * u64::from(self.robustness) + self.response_interval
    }

    /// How long a router with a lower address counts as being there (Other Querier Present Interval).
    pub fn other_querier_interval(&self) -> Span {
        self.query_interval * u64::from(self.robustness) + self.response_interval / 2
    }

    /// The leave latency (Last Member Query Time).
    pub fn last_member_time(&self) -> Span {
        self.last_member_interval * u64::from(self.last_member_count)
    }
}
