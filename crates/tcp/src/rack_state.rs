//! The state of a sender with a record of each segment: the records, its timer's purpose, its tail probe.

use alloc::boxed::Box;

use nilometer_wire::Span;

use crate::config::Config;
use crate::rack::{Rack, Sums};

/// What the timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alarm {
    /// Everything that was sent long enough ago is lost (RFC 6298).
    Timeout,
    /// Segments that are waited for may be lost now (RACK: RFC 8985, 6).
    Reordering,
    /// No acknowledgement came: provoke one (TLP: RFC 8985, 7).
    Tail,
}

/// The records, and what loss recovery keeps beside them.
#[derive(Clone, Debug)]
pub(crate) struct RackState {
    pub rack: Rack,
    pub alarm: Alarm,
    /// Whether the window is being reduced because of a mark.
    pub is_reducing: bool,
    /// Whether a tail probe is to be sent.
    pub probes_tail: bool,
    /// What must be acknowledged before another tail probe, and whether the last one repeated data.
    pub probed: Option<(u64, bool)>,
    /// Least timeout, added to the wait for the tail of one segment: its acknowledgement may be
    /// delayed.
    pub delay: Span,
    pub usage: Usage,
    pub has_tail_probe: bool,
}

/// How much of the window was used lately: what lets it grow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub is_limited: bool,
    /// Most bytes outstanding since the window was last used up.
    pub most: u64,
    /// When this is acknowledged, the judgement is a round trip old.
    pub until: u64,
    pub has_sent: bool,
}

impl RackState {
    /// For a connection whose handshake is about to end.
    pub fn new(config: &Config, mss: u32) -> RackState {
        RackState {
            rack: Rack::new(mss),
            alarm: Alarm::Timeout,
            is_reducing: false,
            probes_tail: false,
            probed: None,
            delay: config.rto_min,
            usage: Usage::default(),
            has_tail_probe: config.tail_probe,
        }
    }

    /// Segments in each state.
    pub const fn segments(&self) -> &Sums {
        self.rack.segments()
    }

    /// Bytes in each state.
    pub const fn bytes(&self) -> &Sums {
        self.rack.bytes()
    }

    /// By how many segments one was overtaken, and how often.
    pub const fn reordering(&self) -> (u64, u64) {
        self.rack.reordering()
    }

    /// Whether a mark is being answered.
    pub const fn is_reducing(&self) -> bool {
        self.is_reducing
    }
}

/// The records of a connection that has the SACK option and uses them.
pub(crate) type Records = Option<Box<RackState>>;
