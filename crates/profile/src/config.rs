//! The limits of a matcher of packets.

use nilometer_wire::Span;

/// The limits of a matcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatcherConfig {
    /// The longest time a packet may take through the device; one that takes longer is lost, and
    /// what leaves later is originated.
    pub horizon: Span,
    /// By how much clock noise may make a packet seem to leave before it entered.
    pub early_max: Span,
    /// The most packets held per direction and side, at least 1. Beyond it the oldest are decided early, and counted
    /// in [`Counts::overflow`](crate::outcome::Counts::overflow). A packet takes about 80 bytes, and each distinct
    /// content 100 to 200 more.
    pub pending_max: usize,
}

impl Default for MatcherConfig {
    /// Two seconds, five microseconds, and a million packets (262,144 a second for two horizons).
    fn default() -> MatcherConfig {
        MatcherConfig {
            horizon: Span::from_secs(2),
            early_max: Span::from_nanos(5_000),
            pending_max: 1 << 20,
        }
    }
}
