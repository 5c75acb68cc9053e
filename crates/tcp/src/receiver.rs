//! The receiving half: order out of disorder, and what to acknowledge when.
//!
//! Payload is counted, not stored, so that reassembly is a set of ranges. Data in order takes one
//! branch past it. An acknowledgement is owed at once after anything unusual (RFC 5681, 4.2: out of
//! order, a filled gap, a duplicate, a FIN, outside of the window), and otherwise with every second
//! segment or when the timer of the delayed acknowledgement runs out (RFC 1122, 4.2.3.2).
//!
//! SACK blocks follow RFC 2018: the block of the newest segment first, then those reported most
//! recently; a duplicate is reported before them (RFC 2883).

use nilometer_wire::{Span, Time};

use crate::config::Config;
use crate::ranges::{Range, Ranges};
use crate::segment::Segment;
use crate::sequence::{unwrap, wrap};
use crate::statistics::Statistics;

/// How many of the newest blocks are remembered for repeating.
const RECENT_LIMIT: usize = 4;

/// Where the FIN is that has not been seen: beyond everything.
const UNSEEN: u64 = u64::MAX;

/// What is to be done about acknowledging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    Delayed,
    Now,
}

/// In this order in memory: what data in order needs fills two cache lines.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Receiver {
    /// Offset expected next: the SYN of the peer is 0.
    pub next: u64,
    /// Right edge of the largest window announced.
    pub edge: u64,
    /// What had been acknowledged when the last acknowledgement left (Last.ACK.sent of RFC 7323).
    pub acknowledged: u64,
    pub delayed_until: Time,
    /// When data that was acknowledged at once last arrived.
    quick_at: Time,
    delay: Span,
    /// The peer's initial sequence number.
    pub initial: u32,
    buffer: u32,
    pub due: Due,
    /// In-order segments since the last acknowledgement.
    unacknowledged: u8,
    /// Segments that one acknowledgement may cover; 1 when nothing is delayed.
    every: u8,
    /// Segments that are still acknowledged at once, so that the peer's slow start is not slowed.
    quick: u8,
    /// Shift of our window field, once both ends agreed to scale.
    scale: Option<u8>,
    auto_read: bool,
    pub has_fin: bool,
    /// Whether a SACK option belongs on the next acknowledgement: derived from `held` and `duplicate`,
    /// so that data in order need not look at either.
    has_blocks: bool,
    /// The window field of a receiver that takes everything at once, and what it announces.
    field: u16,
    announced: u32,
    /// Offset of the peer's FIN, or [`UNSEEN`].
    fin: u64,
    /// Bytes that the application took, when it takes them itself.
    taken: u64,
    held: Ranges,
    duplicate: Option<Range>,
    recent: [u64; RECENT_LIMIT],
    ranges_limit: usize,
}

impl Receiver {
    pub fn new(config: &Config) -> Receiver {
        let mut receiver = Receiver {
            next: 0,
            edge: 0,
            due: Due::Nothing,
            unacknowledged: 0,
            every: if config.delayed_ack.is_some() { config.ack_every.max(1) } else { 1 },
            quick: config.quick_acks,
            scale: None,
            auto_read: config.auto_read,
            has_fin: false,
            has_blocks: false,
            field: 0,
            announced: 0,
            delayed_until: Time(u64::MAX),
            quick_at: Time(0),
            delay: config.delayed_ack.unwrap_or(Span::ZERO),
            initial: 0,
            buffer: config.receive_buffer,
            taken: 0,
            fin: UNSEEN,
            acknowledged: 0,
            held: Ranges::default(),
            recent: [0; RECENT_LIMIT],
            duplicate: None,
            ranges_limit: config.receive_buffer as usize / 512 + 64,
        };
        receiver.set_scale(None);
        receiver
    }

    /// Both ends agreed to scale, ours by `scale`.
    pub fn set_scale(&mut self, scale: Option<u8>) {
        self.scale = scale;
        let shift = scale.unwrap_or(0);
        self.field = (self.buffer >> shift).min(65_535) as u16;
        self.announced = u32::from(self.field) << shift;
    }

    /// Whether both ends agreed to scale.
    pub fn scales(&self) -> bool {
        self.scale.is_some()
    }

    /// The peer's SYN arrived with this sequence number.
    pub fn begin(&mut self, initial: u32) {
        self.initial = initial;
        self.next = 1;
        self.acknowledged = 0;
        self.edge = 1 + self.room();
    }

    /// Payload bytes received in order.
    pub fn delivered(&self) -> u64 {
        self.next.saturating_sub(1 + u64::from(self.has_fin))
    }

    /// A SYN announced only `window` bytes.
    pub fn limit_edge(&mut self, window: u64) {
        self.edge = self.next + window;
    }

    /// Nothing is acknowledged any more.
    pub fn silence(&mut self) {
        self.due = Due::Nothing;
        self.delayed_until = Time(u64::MAX);
    }

    /// Bytes that the application may take.
    pub fn readable(&self) -> u64 {
        if self.auto_read { 0 } else { self.delivered() - self.taken }
    }

    /// The application takes up to `bytes`; returns how many there were. Opens the window and owes
    /// an acknowledgement when that opens it by a worthwhile step (RFC 9293, 3.8.6.2.2).
    pub fn read(&mut self, bytes: u64, mss: u32) -> u64 {
        let taken = bytes.min(self.readable());
        self.taken += taken;
        let step = u64::from(mss).min(u64::from(self.buffer) / 2);
        let edge = self.next + self.room();
        let was_small = self.edge.saturating_sub(self.next) < 2 * u64::from(mss);
        if taken > 0 && was_small && edge >= self.edge + step && !self.has_fin {
            self.due = Due::Now;
        }
        taken
    }

    fn room(&self) -> u64 {
        u64::from(self.buffer).saturating_sub(self.readable())
    }

    #[inline]
    pub fn acknowledge_now(&mut self) {
        self.due = Due::Now;
    }

    /// The acknowledgement number, and the window field; what was owed is thereby paid.
    #[inline(always)]
    pub fn acknowledge(&mut self, mss: u32) -> (u32, u16) {
        self.due = Due::Nothing;
        self.unacknowledged = 0;
        self.delayed_until = Time(u64::MAX);
        self.acknowledged = self.next;
        if self.auto_read {
            self.edge = self.edge.max(self.next + u64::from(self.announced));
            return (wrap(self.initial, self.next), self.field);
        }
        let scale = self.scale.unwrap_or(0);
        let field = (self.window_without_silliness(mss) >> scale).min(65_535);
        self.edge = self.edge.max(self.next + (field << scale));
        (wrap(self.initial, self.next), field as u16)
    }

    /// The window that may be announced: the right edge never moves back, and forth only by a
    /// segment or half of the buffer (RFC 9293, 3.8.6.2.2).
    fn window_without_silliness(&self, mss: u32) -> u64 {
        let step = u64::from(mss).min(u64::from(self.buffer) / 2);
        let now = self.edge.saturating_sub(self.next);
        let room = self.room();
        // Rounded up, or the scale would take back what was announced.
        let scale = self.scale.unwrap_or(0);
        let now = (now + (1 << scale) - 1) >> scale << scale;
        if room >= now + step { room } else { now }
    }

    /// Whether a segment may be received (RFC 9293, 3.10.7.4), by its first offset if that is not
    /// before the SYN, and its length in sequence numbers.
    #[inline]
    pub fn accepts(&self, start: Option<u64>, length: u32) -> bool {
        let Some(start) = start else { return false };
        let end = start + u64::from(length);
        if length == 0 {
            start == self.next || (start > self.next && start < self.edge)
        } else {
            end > self.next && start < self.edge
        }
    }

    /// The offset of a segment's first byte.
    #[inline]
    pub fn offset(&self, sequence: u32) -> Option<u64> {
        unwrap(self.initial, self.next, sequence)
    }

    /// Whether payload of `length` bytes that begins at [`Receiver::next`] is all that there is to take.
    #[inline]
    pub fn takes_next(&self, length: u16) -> bool {
        let is_in_order = !self.has_blocks || self.held.is_empty();
        is_in_order && self.fin == UNSEEN && self.next + u64::from(length) <= self.edge
    }

    /// Takes what [`Receiver::takes_next`] said it takes.
    #[inline]
    pub fn take_next(&mut self, now: Time, length: u16) {
        self.next += u64::from(length);
        self.delay_acknowledgement(now);
    }

    /// Takes the payload and FIN of an acceptable segment that starts at `start`.
    #[inline]
    pub fn take(&mut self, now: Time, start: u64, segment: &Segment, counts: &mut Statistics) {
        let is_plain = segment.flags & (crate::segment::FIN | crate::segment::SYN) == 0;
        if start == self.next && is_plain && self.takes_next(segment.length) {
            self.take_next(now, segment.length);
            return;
        }
        self.take_unusual(start, segment, counts);
    }

    #[inline(always)]
    fn delay_acknowledgement(&mut self, now: Time) {
        self.unacknowledged = self.unacknowledged.saturating_add(1);
        if self.due == Due::Now {
            return;
        }
        if self.unacknowledged >= self.every || self.quick > 0 {
            self.quick = self.quick.saturating_sub(1);
            self.quick_at = now;
            self.due = Due::Now;
        } else if self.due == Due::Nothing {
            self.due = Due::Delayed;
            self.delayed_until = now + self.delay;
        }
    }

    /// This end sends data. An end that does so before a delayed acknowledgement of the last data would have been
    /// due is in a conversation, in which answers carry the acknowledgements: it acknowledges nothing more at once
    /// (Linux's interactive mode, `tcp_event_data_sent`; it also leaves that mode when a delayed acknowledgement's
    /// timer runs out, which is not done here).
    #[inline(always)]
    pub fn on_data_sent(&mut self, now: Time) {
        if self.quick > 0 && self.quick_at > Time(0) && now < self.quick_at + self.delay {
            self.quick = 0;
        }
    }

    #[inline(never)]
    fn take_unusual(&mut self, start: u64, segment: &Segment, counts: &mut Statistics) {
        self.due = Due::Now;
        let has_fin = segment.has(crate::segment::FIN);
        let end = start + u64::from(segment.length);
        if has_fin && end <= self.edge && self.fin == UNSEEN && end >= self.next {
            self.fin = end;
        }
        // Nothing beyond the window or the FIN is taken.
        let end = end.min(self.edge).min(self.fin);
        if start < end {
            self.note_duplicate(start, end, counts);
        }
        if start > self.next {
            counts.out_of_order_segments += 1;
            self.hold(start, end);
        } else if end > self.next {
            self.next = end;
            self.held.discard_below(self.next);
            if let Some(first) = self.held.first().filter(|first| first.left == self.next) {
                self.next = first.right;
                self.held.discard_below(first.right);
            }
        }
        if self.fin == self.next && !self.has_fin {
            self.next += 1;
            self.has_fin = true;
        }
        self.note_blocks();
    }

    fn note_blocks(&mut self) {
        self.has_blocks = self.duplicate.is_some() || !self.held.is_empty();
    }

    fn hold(&mut self, start: u64, end: u64) {
        if start >= end || self.held.len() >= self.ranges_limit {
            return;
        }
        self.held.insert(start, end);
        // The newest goes first; older entries in the same block add nothing.
        let block = self.held.holding(start).unwrap_or(Range { left: start, right: end });
        let mut kept = [start, 0, 0, 0];
        let others = self.recent.iter().filter(|at| !(block.left..block.right).contains(*at));
        for (place, at) in kept[1..].iter_mut().zip(others) {
            *place = *at;
        }
        self.recent = kept;
    }

    /// Counts the part of `[start, end)` that had arrived before, and keeps its first range for a D-SACK block.
    fn note_duplicate(&mut self, start: u64, end: u64, counts: &mut Statistics) {
        let below = end.min(self.next).saturating_sub(start);
        let inside = self.held.bytes_between(start.max(self.next), end);
        counts.duplicate_bytes += below + inside;
        if below > 0 {
            self.duplicate = Some(Range { left: start, right: start + below });
        } else if let Some(block) = self.held.at_or_above(start).filter(|_| inside > 0) {
            let left = block.left.max(start);
            self.duplicate = Some(Range { left, right: block.right.min(end) });
        }
    }

    /// A segment wholly below the window came: it is a duplicate to be reported (RFC 2883).
    pub fn note_old(&mut self, start: Option<u64>, length: u16, counts: &mut Statistics) {
        if let Some(start) = start.filter(|_| length > 0)
            && start + u64::from(length) <= self.next
        {
            self.note_duplicate(start, start + u64::from(length), counts);
            self.note_blocks();
        }
    }

    /// Whether a SACK option belongs on the next acknowledgement.
    #[inline]
    pub fn has_blocks(&self) -> bool {
        self.has_blocks
    }

    /// The peer does not accept SACK blocks: drop the report of a duplicate.
    pub fn forget_duplicate(&mut self) {
        self.duplicate = None;
        self.note_blocks();
    }

    /// Adds the SACK blocks, after the acknowledgement number and the timestamps.
    pub fn push_blocks(&mut self, segment: &mut Segment) {
        let mut reported: [Option<Range>; RECENT_LIMIT + 1] = [None; RECENT_LIMIT + 1];
        let push = |segment: &mut Segment, block: Range| {
            let (left, right) = (wrap(self.initial, block.left), wrap(self.initial, block.right));
            segment.push_block(left, right)
        };
        if let Some(block) = self.duplicate {
            push(segment, block);
            if let Some(around) = self.held.holding(block.left).filter(|b| b.left >= self.next) {
                push(segment, around);
                reported[RECENT_LIMIT] = Some(around);
            }
        }
        for (place, at) in self.recent.iter().enumerate() {
            let Some(block) = self.held.holding(*at) else { continue };
            if reported.contains(&Some(block)) {
                continue;
            }
            if !push(segment, block) {
                break;
            }
            reported[place] = Some(block);
        }
        self.forget_duplicate();
    }
}
