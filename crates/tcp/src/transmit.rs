//! What the sender sends next, if anything.
//!
//! The ordinary answer, the next segment of new data if the window has room for all of it, is found
//! in a few comparisons, on a path of its own ([`Sender::transmit_plain`]) that gives up where
//! anything else may have to be sent; the general path would give the same answer. Repairs come
//! first. Small segments wait: for the acknowledgement of what is under way (RFC 896), or for the
//! peer's window to open by a worthwhile step (RFC 9293, 3.8.6.2.1); when nothing is under way that
//! could open it, the persist timer probes it (3.8.6.1).
//!
//! A sender is polled until it has nothing, so that every second poll would be in vain. Hence its
//! result is computed beforehand: when a segment of new data leaves, it is known whether the window
//! has room for another, and when an acknowledgement arrives, that nothing else waits. The sender
//! is then *spent* until something arrives or is written, or a timer runs out.

use nilometer_wire::Time;

use crate::config::IdleRestart;
use crate::controller::{Any, Controller};
use crate::doubt::Step;
use crate::sender::{NEVER, Phase, Sender};
use crate::statistics::Statistics;

/// What to send: offsets `[start, right)`, including the FIN's if it is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub start: u64,
    /// Payload bytes.
    pub length: u32,
    pub has_fin: bool,
    /// Whether any of it was sent before.
    pub is_repeat: bool,
    /// Whether it signals that the window was reduced (RFC 3168).
    pub has_cwr: bool,
}

impl Sender {
    /// The offset of the next segment if it is a full one of new data, more is under way, there is
    /// nothing else to send or repeat, and no record beyond bytes is kept. It is what
    /// [`Sender::transmit`] would have chosen, and is entered into the account as sent; otherwise
    /// nothing has happened.
    #[inline(always)]
    pub(crate) fn transmit_plain(&mut self, now: Time, counts: &mut Statistics) -> Option<u64> {
        let has_requests = self.repeat_first | self.has_fin | self.cwr | self.is_persisting;
        let is_plain = !has_requests && self.probes == 0 && self.phase == Phase::Open;
        let is_recorded = self.rack_state.is_some() || self.flight.is_some();
        if !is_plain || is_recorded || now < self.paced_until || self.paces() {
            return None;
        }
        let (start, mss) = (self.next, u64::from(self.window.mss));
        let right = start + mss;
        let is_next = start == self.max && self.una < start && self.deadline != NEVER;
        if !is_next || right > self.end.min(self.edge) || self.room() < mss.max(1) {
            return None;
        }
        self.is_paced = false;
        self.probe = false;
        self.next = right;
        self.max = right;
        self.last_sent = now;
        counts.bytes_sent += mss;
        if self.timed.is_none() {
            self.timed = Some((right - 1, now));
        }
        self.look_ahead(now);
        Some(start)
    }

    /// Whether the controller spaces segments.
    #[inline(always)]
    fn paces(&self) -> bool {
        !matches!(self.controller, Any::Reno(_)) && self.controller.pacing_rate().is_some()
    }

    /// The next segment, entered into the account as sent.
    #[inline(never)]
    pub(crate) fn transmit(&mut self, now: Time, counts: &mut Statistics) -> Option<Chunk> {
        if self.rack_state.is_some() {
            return self.transmit_recorded(now, counts);
        }
        let is_selective = self.has_sack && self.phase != Phase::Open;
        let is_ordinary = !self.repeat_first && !is_selective && self.probes == 0;
        if is_ordinary && self.next >= self.last() {
            return self.pause();
        }
        if now < self.paced_until {
            self.is_paced = true;
            return None;
        }
        self.is_paced = false;
        let mut chunk = if is_ordinary { self.choose_next(now)? } else { self.choose_repair(now)? };
        self.enter_sent(now, &chunk, counts);
        if self.flight.is_some() {
            self.record_sent(now, &chunk, self.in_flight());
        }
        chunk.has_cwr = !chunk.is_repeat && self.carries_cwr(self.next);
        if is_ordinary && !chunk.is_repeat {
            self.look_ahead(now);
        }
        Some(chunk)
    }

    #[inline(never)]
    fn transmit_recorded(&mut self, now: Time, counts: &mut Statistics) -> Option<Chunk> {
        let mut state = self.rack_state.take()?;
        let chunk = self.transmit_with_records(&mut state, now, counts);
        self.rack_state = Some(state);
        chunk
    }

    /// New data has just been sent: notes whether the window has no room for more, which saves a poll.
    #[inline(always)]
    fn look_ahead(&mut self, now: Time) {
        let is_full = self.next < self.last() && !self.has_room(self.next_length());
        if is_full && now >= self.paced_until {
            self.is_window_limited = true;
            self.is_spent = true;
        }
    }

    /// All that was written has been sent.
    #[inline]
    fn pause(&mut self) -> Option<Chunk> {
        self.is_paced = false;
        self.is_window_limited = self.room() < u64::from(self.window.mss);
        if !self.is_window_limited && self.flight.is_some() {
            self.record_pause(self.in_flight());
        }
        None
    }

    #[inline(never)]
    fn choose_repair(&mut self, now: Time) -> Option<Chunk> {
        if self.repeat_first {
            self.repeat_first = false;
            return Some(self.first());
        }
        if self.probes > 0 {
            return self.choose_probe();
        }
        if self.doubt.step == Step::Second { None } else { self.choose_selectively(now) }
    }

    /// New data by which F-RTO distinguishes delay from loss, regardless of the congestion window.
    fn choose_probe(&mut self) -> Option<Chunk> {
        self.probes -= 1;
        let right = self.last().min(self.next + u64::from(self.window.mss)).min(self.edge);
        if self.next >= right {
            self.probes = 0;
            return None;
        }
        Some(self.chunk(self.next, right))
    }

    /// Sending begins again with nothing under way.
    #[inline(never)]
    fn resume(&mut self, now: Time) {
        let idle = now.since(self.last_sent);
        let timeout = self.rtt.rto();
        if self.last_sent == Time::ZERO || idle <= timeout {
            return;
        }
        let restart = self.window.cwnd.min(self.initial_window);
        match self.idle_restart {
            IdleRestart::Never => {}
            IdleRestart::Initial => self.window.cwnd = restart,
            IdleRestart::Decay => {
                let kept = self.window.cwnd / 4 * 3;
                self.window.ssthresh = self.window.ssthresh.max(kept);
                let halvings = (idle.0 / timeout.0.max(1)).min(63);
                self.window.cwnd = (self.window.cwnd >> halvings).max(restart);
            }
        }
        self.last_sent = now;
        self.controller.on_restart(now, &mut self.window, idle);
    }

    /// Bytes that the congestion window still permits, for an account without a scoreboard.
    #[inline(always)]
    fn room(&self) -> u64 {
        let room = self.window.cwnd as i64 + self.inflation - self.outstanding() as i64;
        room.max(0) as u64
    }

    /// Payload bytes of the next segment of new data.
    #[inline(always)]
    fn next_length(&self) -> u64 {
        u64::from(self.window.mss).min(self.end.saturating_sub(self.next))
    }

    /// Whether the congestion window has room for a segment of `length` bytes, or a FIN.
    #[inline(always)]
    fn has_room(&self, length: u64) -> bool {
        self.room() >= length.max(1)
    }

    /// `[start, right)` cut to a segment and to what there is.
    #[inline(always)]
    pub(crate) fn chunk(&self, start: u64, right: u64) -> Chunk {
        let end = right.min(self.end).min(start + u64::from(self.window.mss));
        let length = end.saturating_sub(start) as u32;
        let next = start + u64::from(length);
        let has_fin = self.has_fin && next == self.end && right > self.end;
        Chunk { start, length, has_fin, is_repeat: start < self.max, has_cwr: false }
    }

    /// The first segment not acknowledged.
    fn first(&mut self) -> Chunk {
        let mut right = self.max.max(self.una + 1);
        if self.has_sack {
            right = self.scoreboard.first_left().map_or(right, |left| left.min(right));
        }
        let chunk = self.chunk(self.una, right);
        if self.has_sack {
            self.scoreboard.sent(self.una + u64::from(chunk.length) + u64::from(chunk.has_fin));
        }
        chunk
    }

    /// The segment at `next`: new data, or what a timeout went back to.
    #[inline(always)]
    fn choose_next(&mut self, now: Time) -> Option<Chunk> {
        if self.una == self.max {
            self.resume(now);
        }
        let length = self.next_length();
        if !self.has_room(length) {
            self.is_window_limited = true;
            return None;
        }
        if self.next < self.max {
            let limit = if self.max > self.end { self.max } else { self.max.min(self.end) };
            return Some(self.chunk(self.next, limit));
        }
        let has_fin = self.has_fin && self.next + length == self.end;
        let right = self.next + length + u64::from(has_fin);
        if right > self.edge {
            return self.squeeze(now);
        }
        let is_small = length < u64::from(self.window.mss) && !has_fin;
        if is_small && !self.probe && self.nagle.keeps(self.outstanding() > 0) {
            self.is_window_limited = false;
            self.persist(now);
            return None;
        }
        self.probe = false;
        let (start, length) = (self.next, length as u32);
        Some(Chunk { start, length, has_fin, is_repeat: false, has_cwr: false })
    }

    /// The peer's window has no room for the whole segment: half of the largest window it ever
    /// offered is worth sending; otherwise the persist timer runs while nothing else is under way.
    #[inline(never)]
    fn squeeze(&mut self, now: Time) -> Option<Chunk> {
        self.is_window_limited = false;
        let usable = self.edge.saturating_sub(self.next);
        let is_worth_it = usable > 0
            && (usable == self.end - self.next
                || usable >= self.peer_window_max.div_ceil(2)
                || usable >= u64::from(self.window.mss));
        if is_worth_it || (self.probe && usable > 0) {
            self.probe = false;
            return Some(self.chunk(self.next, self.next + usable));
        }
        self.persist(now);
        None
    }

    /// Starts the persist timer if nothing is under way that could release what is held back.
    fn persist(&mut self, now: Time) {
        if self.una == self.max && self.deadline == NEVER {
            self.is_persisting = true;
            self.deadline = now + self.rtt.rto();
        }
    }

    /// The persist timer ran out: probe the window, or send what little fits.
    pub(crate) fn on_persist(&mut self, now: Time) {
        self.retries = self.retries.saturating_add(1);
        self.rtt.back_off();
        self.probe = true;
        self.deadline = now + self.rtt.rto();
    }

    /// NextSeg of RFC 6675, as long as the window has room for a segment.
    fn choose_selectively(&mut self, now: Time) -> Option<Chunk> {
        let mss = self.window.mss;
        let pipe = self.scoreboard.pipe(self.una, self.next, mss);
        if self.window.cwnd < pipe + u64::from(mss) {
            self.is_window_limited = true;
            return None;
        }
        if let Some((left, right)) = self.scoreboard.next_lost(self.una, mss) {
            return Some(self.hole(left, right.min(self.max)));
        }
        if let Some(chunk) = self.choose_new(now, pipe) {
            return Some(chunk);
        }
        if self.phase == Phase::Loss {
            return None;
        }
        if let Some((left, right)) = self.scoreboard.next_hole(self.una) {
            return Some(self.hole(left, right));
        }
        self.rescue()
    }

    fn hole(&mut self, left: u64, right: u64) -> Chunk {
        let chunk = self.chunk(left, right);
        self.scoreboard.sent(left + u64::from(chunk.length) + u64::from(chunk.has_fin));
        chunk
    }

    /// New data during recovery.
    pub(crate) fn choose_new(&mut self, now: Time, pipe: u64) -> Option<Chunk> {
        if self.next >= self.last() {
            return None;
        }
        let inflation = self.inflation;
        // What `choose_next` calls outstanding is here the pipe.
        self.inflation = (self.outstanding() - pipe.min(self.outstanding())) as i64;
        let chunk = self.choose_next(now);
        self.inflation = inflation;
        chunk
    }

    /// One segment at the end of what is under way, once per recovery (rule 4 of NextSeg): when the
    /// tail is lost nothing above it will be acknowledged.
    fn rescue(&mut self) -> Option<Chunk> {
        let highest = self.scoreboard.highest()?;
        if self.rescued || highest >= self.max {
            return None;
        }
        self.rescued = true;
        let left = highest.max(self.una).max(self.max.saturating_sub(u64::from(self.window.mss)));
        Some(self.chunk(left, self.max))
    }

    #[inline(always)]
    pub(crate) fn enter_sent(&mut self, now: Time, chunk: &Chunk, counts: &mut Statistics) {
        let length = u64::from(chunk.length);
        let right = chunk.start + length + u64::from(chunk.has_fin);
        counts.bytes_sent += length;
        if chunk.is_repeat {
            counts.retransmitted_segments += 1;
            counts.retransmitted_bytes += length;
            self.timed = None;
            if self.is_doubtful {
                self.doubt_repeat(now, length);
            }
        } else if self.timed.is_none() {
            self.timed = Some((right - 1, now));
        }
        self.next = self.next.max(right);
        self.max = self.max.max(self.next);
        if self.is_persisting {
            // The persist timer's turns are none of this segment's.
            self.is_persisting = false;
            self.retries = 0;
            self.deadline = NEVER;
        }
        if self.deadline == NEVER {
            self.deadline = now + self.rtt.rto();
        }
        self.last_sent = now;
        if self.phase == Phase::Recovery {
            self.prr.sent(length);
        }
        if let Some(rate) = self.controller.pacing_rate() {
            self.paced_until = self.paced_until.max(now) + rate.span_of(length);
        }
    }
}

#[cfg(test)]
mod tests;
