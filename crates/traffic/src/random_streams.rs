//! The numbers of random streams: no two uses of a seed share one.

/// Gaps between the arrivals of a slot, by slot.
pub const GAPS: u32 = 1;
/// Address pairs, by interval and slot.
pub const PAIRS: u32 = 2;
/// Exchanges between colliding pairs, by interval.
pub const EXCHANGES: u32 = 3;
/// File sizes and their distribution over intervals.
pub const SIZES: u32 = 4;
/// Trials of Figure 4's algorithm, by interval and trial.
pub const FIGURE_4: u32 = 5;
/// Sampling floors, by figure.
pub const FLOORS: u32 = 6;
/// The synthetic flow records.
pub const SYNTHETIC: u32 = 7;
/// Sessions of stated laws.
pub const STATED: u32 = 8;
/// Contents of sessions, of a joint table.
pub const SESSIONS: u32 = 9;
/// Weights of address pairs, by pair.
pub const THINNED: u32 = 10;
