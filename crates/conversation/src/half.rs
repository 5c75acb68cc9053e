//! One direction of a connection: its sequence space, and what its sender knows of the other.

use alloc::collections::VecDeque;

use crate::connection::Carried;
use crate::unit::Unit;

/// The farthest that a segment, or an acknowledgement, may stand beyond what was sent and still belong to this
/// connection: 16 MiB, as in the flow meter.
pub(crate) const JUMP_MAX_BYTES: i64 = 16 << 20;
/// Segments that are remembered until they are acknowledged; beyond this number the last one absorbs what
/// follows.
const UNDER_WAY_MAX: usize = 1_024;

/// One direction.
#[derive(Debug, Default)]
pub(crate) struct Half {
    /// The sequence number of offset 0, once it is known.
    base: Option<u32>,
    /// The offset behind the last byte known to have been sent; behind the FIN once one was sent.
    pub high: u64,
    /// The offset of the FIN.
    pub fin: Option<u64>,
    /// How far the sender of this direction has acknowledged the other one.
    pub acknowledged: u64,
    /// When the last byte that it has acknowledged passed, ns.
    pub acknowledged_ns: u64,
    /// Segments that passed and are not known to have arrived: the offset behind each, and when it passed,
    /// ns.
    under_way: VecDeque<(u64, u64)>,
    /// The unit that may continue.
    pub unit: Option<Unit>,
    /// When this direction last did something new, ns.
    pub last_ns: u64,
    /// When it last sent data, new or not, ns.
    pub active_ns: u64,
    /// Counts of what it sent.
    pub carried: Carried,
}

impl Half {
    /// A direction in which nothing was sent yet, of a connection that begins at `start_ns`.
    pub fn new(start_ns: u64) -> Half {
        Half {
            acknowledged_ns: start_ns,
            last_ns: start_ns,
            active_ns: start_ns,
            ..Half::default()
        }
    }

    /// Is its sequence space known?
    pub fn is_anchored(&self) -> bool {
        self.base.is_some()
    }

    /// Makes this sequence number offset 0.
    pub fn anchor(&mut self, sequence: u32) {
        self.base = Some(sequence);
    }

    /// The offset of a sequence number, relative to the first byte of this direction; negative before it. If no
    /// byte is known yet, this sequence number becomes offset 0.
    pub fn offset(&mut self, sequence: u32) -> i64 {
        self.base.get_or_insert(sequence);
        self.peek(sequence).unwrap_or(0)
    }

    /// The offset of a sequence number, if the sequence space of this direction is known.
    pub fn peek(&self, sequence: u32) -> Option<i64> {
        let here = self.base?.wrapping_add(self.high as u32);
        Some(self.high as i64 + i64::from(sequence.wrapping_sub(here) as i32))
    }

    /// Does the data of this direction begin at this sequence number?
    pub fn begins_at(&self, sequence: u32) -> bool {
        self.peek(sequence) == Some(0)
    }

    /// Is this sequence number farther away from where this direction stands than any of its own could be?
    /// True for a direction of which nothing is known.
    pub fn is_elsewhere(&self, sequence: u32) -> bool {
        let apart = |offset: i64| (offset - self.high as i64).abs() > JUMP_MAX_BYTES;
        self.peek(sequence).is_none_or(apart)
    }

    /// Is this offset too far ahead to be of this connection?
    pub fn is_astray(&self, offset: i64) -> bool {
        offset > self.high as i64 + JUMP_MAX_BYTES
    }

    /// The offset behind the last byte of data, without the FIN.
    pub fn data_high(&self) -> u64 {
        self.fin.unwrap_or(self.high)
    }

    /// Everything up to this offset has passed.
    pub fn passed(&mut self, to: u64, stamp_ns: u64) {
        self.high = to;
        if self.under_way.len() < UNDER_WAY_MAX {
            self.under_way.push_back((to, stamp_ns));
        } else if let Some(last) = self.under_way.back_mut() {
            *last = (to, stamp_ns);
        }
    }

    /// The last segment that passed passes again.
    pub fn passed_again(&mut self, stamp_ns: u64) {
        if let Some(last) = self.under_way.back_mut() {
            last.1 = stamp_ns;
        }
    }

    /// Everything up to this offset is acknowledged; returns when its last byte passed, ns. `None` if it had
    /// been acknowledged before.
    pub fn arrived(&mut self, to: u64) -> Option<u64> {
        while self.under_way.front().is_some_and(|&(end, _)| end < to) {
            self.under_way.pop_front();
        }
        let &(end, passed_ns) = self.under_way.front()?;
        if end == to {
            self.under_way.pop_front();
        }
        Some(passed_ns)
    }
}
