//! Loss recovery from a record of each segment: RACK, tail loss probes, proportional reduction.
//!
//! What Linux has done since 4.18, and RFC 8985 describes. It differs from the recovery by a
//! scoreboard in three things. What is lost is found by time ([`crate::rack`]), so that one block
//! can begin a recovery a moment later, when the reordering window has passed, and a lost
//! retransmission is sent again without a timeout. When acknowledgements stop coming, one segment
//! is sent after two round trips to provoke one (RFC 8985, section 7), instead of a timeout later.
//! And every reduction of the window, including the one for a mark, is proportional (RFC 9937).
//!
//! One timer serves three purposes, as at most one is of use at a time: looking again for losses,
//! probing the tail, and the retransmission timeout.

use nilometer_wire::{Span, Time};

use crate::controller::{Acked, Congestion, Controller};
use crate::prr::{Progress, Reduction};
use crate::rack::Sums;
use crate::rack_state::{Alarm, RackState};
use crate::sender::{Arrival, NEVER, Phase, Sender};
use crate::sequence::unwrap;
use crate::statistics::Statistics;
use crate::transmit::Chunk;

/// Added to what RACK and the probe wait for: the peer's and our own timers are not exact.
const MARGIN: Span = Span::from_nanos(2_000_000);

impl Sender {
    /// An acknowledgement, also one from before `una`: its blocks may be news.
    pub(crate) fn on_ack_with_records(
        &mut self,
        state: &mut RackState,
        ack: u64,
        arrival: &Arrival<'_>,
        counts: &mut Statistics,
    ) {
        let now = arrival.now;
        let before = self.una;
        let had_outstanding = self.max > before;
        if ack > before {
            self.previous = before;
            self.una = ack;
            self.next = self.next.max(ack);
            self.retries = 0;
        }
        let (initial, una, max) = (self.initial, self.una, self.max);
        let blocks = arrival.segment.blocks().filter_map(|block| {
            let [left, right] = block.map(|edge| unwrap(initial, una, edge).unwrap_or(0));
            (left < right && right <= max && right > una).then_some((left, right))
        });
        state.rack.know_rtt(self.rtt.smoothed());
        let delivered = state.rack.on_ack(una, blocks, now);
        let rtt = match delivered.rtt {
            Some((first, _)) => Some(first),
            None => arrival.echoed.filter(|_| una > before),
        };
        if let Some(rtt) = rtt {
            self.rtt.sample(rtt);
        }
        self.end_tail_probe(state, delivered.bytes, now);
        let is_repairing = self.phase != Phase::Open;
        let (found, wait) = state.rack.detect(now, is_repairing, self.rtt.smoothed());
        let delivery = self.sample_flight(arrival);
        self.report_recorded_losses(&state.rack, now);
        self.change_phase(state, now, counts);
        let in_flight = state.bytes().in_flight();
        let is_new = una > before;
        if self.phase == Phase::Recovery || state.is_reducing {
            let is_safe = is_new && found == 0 && !state.is_reducing;
            let progress = Progress { delivered: delivered.bytes, pipe: in_flight, is_safe };
            self.reduce_proportionally(&progress);
        }
        let round_ended = self.end_round();
        let is_raising = is_new || (state.reordering().0 > 3 && delivered.bytes > 0);
        if is_raising && had_outstanding {
            let acked = Acked {
                now,
                bytes: delivered.bytes,
                rtt: delivered.rtt.map(|(_, last)| last).or(rtt),
                smoothed_rtt: self.rtt.smoothed(),
                in_flight,
                is_window_limited: self.may_grow(state),
                in_recovery: self.phase == Phase::Recovery || state.is_reducing,
                round_ended,
                delivery,
            };
            self.controller.on_ack(&mut self.window, &acked);
        }
        self.rearm(state, wait, is_new, now);
    }

    /// Whether the window was used enough to grow: used up, or in slow start more than half of it.
    fn may_grow(&self, state: &RackState) -> bool {
        let is_slow_start = self.window.cwnd < self.window.ssthresh;
        state.usage.is_limited || (is_slow_start && self.window.cwnd < 2 * state.usage.most)
    }

    fn reduce_proportionally(&mut self, progress: &Progress) {
        if progress.delivered > 0 && !self.controller.owns_recovery() {
            self.window.cwnd = self.prr.cwnd(progress, self.window.ssthresh, self.window.mss);
        }
    }

    /// The phase after an acknowledgement or an alarm, by what is lost and what is acknowledged.
    fn change_phase(&mut self, state: &mut RackState, now: Time, counts: &mut Statistics) {
        match self.phase {
            Phase::Recovery if self.una >= self.recover => self.end_reduction(state),
            Phase::Loss if self.una >= self.recover => self.phase = Phase::Open,
            Phase::Open if state.is_reducing && self.una > self.recover => {
                self.end_reduction(state);
            }
            _ => {}
        }
        if self.phase == Phase::Open && state.bytes().lost > 0 {
            counts.fast_recoveries += 1;
            self.phase = Phase::Recovery;
            let was_reducing = core::mem::take(&mut state.is_reducing);
            let goes_on = was_reducing && !self.controller.owns_recovery();
            if goes_on {
                self.recover = self.max;
            } else {
                self.begin_reduction(now, Congestion::Loss);
            }
        }
    }

    fn begin_reduction(&mut self, now: Time, cause: Congestion) {
        let cwnd = self.window.cwnd;
        self.controller.on_congestion(now, &mut self.window, cause, cwnd);
        if !self.controller.owns_recovery() {
            self.window.cwnd = cwnd;
        }
        self.recover = self.max;
        self.schedule_cwr();
        self.prr = Reduction::begin(cwnd);
    }

    fn end_reduction(&mut self, state: &mut RackState) {
        self.phase = Phase::Open;
        state.is_reducing = false;
        if !self.controller.owns_recovery() {
            self.window.cwnd = self.window.ssthresh;
        }
    }

    /// The peer echoed a mark: once per window.
    pub(crate) fn on_mark_with_records(
        &mut self,
        state: &mut RackState,
        ack: u64,
        now: Time,
        counts: &mut Statistics,
    ) {
        if state.is_reducing || !self.is_new_mark(ack) {
            return;
        }
        counts.marks_answered += 1;
        self.begin_reduction(now, Congestion::Marked);
        state.is_reducing = true;
    }

    /// Evaluates a tail probe (RFC 8985, 7.4): if it repaired a loss, that was congestion.
    fn end_tail_probe(&mut self, state: &mut RackState, delivered: u64, now: Time) {
        let Some((until, was_repeat)) = state.probed else { return };
        if self.una < until {
            return;
        }
        if !was_repeat {
            state.probed = None;
        } else if self.una > until {
            state.probed = None;
            if self.phase == Phase::Open && !state.is_reducing {
                self.begin_reduction(now, Congestion::Loss);
                self.end_reduction(state);
            }
        } else if delivered == 0 {
            state.probed = None; // a duplicate: both copies arrived
        }
    }

    /// Sets the timer after an acknowledgement.
    fn rearm(&mut self, state: &mut RackState, wait: Option<Span>, is_new: bool, now: Time) {
        if self.una >= self.max {
            if !self.is_persisting {
                self.deadline = NEVER;
            }
        } else if let Some(wait) = wait {
            state.alarm = Alarm::Reordering;
            self.deadline = now + wait + MARGIN;
        } else if is_new && !self.arm_tail(state, self.rtt.rto(), now) {
            self.arm_timeout(state, now);
        }
    }

    fn arm_timeout(&mut self, state: &mut RackState, now: Time) {
        let had_other = state.alarm != Alarm::Timeout;
        state.alarm = Alarm::Timeout;
        let rto = self.rtt.rto();
        // Another alarm may have postponed the timeout of the first segment.
        let since = state.rack.first_sent().filter(|_| had_other).unwrap_or(now);
        self.deadline = (since + rto).max(now);
    }

    /// Sets the timer to probe the tail, at the latest after `limit`; not while losses are
    /// repaired.
    fn arm_tail(&mut self, state: &mut RackState, limit: Span, now: Time) -> bool {
        let is_one = state.segments().outstanding == 1;
        let is_repairing = self.phase != Phase::Open || state.segments().sacked > 0;
        if !state.has_tail_probe || is_repairing || self.una >= self.max {
            return false;
        }
        let wait = match self.rtt.smoothed() {
            Some(smoothed) => smoothed * 2 + if is_one { state.delay } else { MARGIN },
            None => Span::from_secs(1),
        };
        state.alarm = Alarm::Tail;
        self.deadline = now + if limit > Span::ZERO { wait.min(limit) } else { wait };
        true
    }

    /// The timer ran out.
    pub(crate) fn on_alarm(&mut self, state: &mut RackState, now: Time, counts: &mut Statistics) {
        match state.alarm {
            Alarm::Reordering => {
                let is_repairing = self.phase != Phase::Open;
                let smoothed = self.rtt.smoothed();
                let (found, wait) = state.rack.detect(now, is_repairing, smoothed);
                self.report_recorded_losses(&state.rack, now);
                if found > 0 && !is_repairing {
                    self.change_phase(state, now, counts);
                    let pipe = state.bytes().in_flight();
                    let delivered = u64::from(self.window.mss);
                    self.reduce_proportionally(&Progress { delivered, pipe, is_safe: false });
                }
                self.rearm(state, wait, false, now);
                if wait.is_none() {
                    self.arm_timeout(state, now);
                }
            }
            Alarm::Tail if state.probed.is_none() => {
                state.probes_tail = true;
                state.alarm = Alarm::Timeout;
                self.deadline = now + self.rtt.rto();
            }
            Alarm::Tail => self.arm_timeout(state, now),
            Alarm::Timeout => self.on_timeout_with_records(state, now, counts),
        }
    }

    fn on_timeout_with_records(
        &mut self,
        state: &mut RackState,
        now: Time,
        counts: &mut Statistics,
    ) {
        counts.timeouts += 1;
        if self.phase != Phase::Loss || self.retries == 0 {
            let cwnd = self.window.cwnd;
            self.controller.on_congestion(now, &mut self.window, Congestion::Timeout, cwnd);
        }
        state.rack.on_timeout(now);
        self.report_recorded_losses(&state.rack, now);
        if !self.controller.owns_recovery() {
            self.window.cwnd = state.bytes().in_flight() + u64::from(self.window.mss);
        }
        state.is_reducing = false;
        state.probed = None;
        self.phase = Phase::Loss;
        self.recover = self.max;
        self.schedule_cwr();
        self.retries = self.retries.saturating_add(1);
        self.rtt.back_off();
        self.deadline = now + self.rtt.rto();
    }

    /// The next segment of a sender with records, entered as sent.
    pub(crate) fn transmit_with_records(
        &mut self,
        state: &mut RackState,
        now: Time,
        counts: &mut Statistics,
    ) -> Option<Chunk> {
        if now < self.paced_until {
            self.is_paced = true;
            return None;
        }
        self.is_paced = false;
        self.is_window_limited = false;
        let Some(chunk) = self.choose_with_records(state, now) else {
            self.judge_usage(state);
            let Sums { waiting, .. } = *state.bytes();
            let in_flight = state.bytes().in_flight();
            let has_room = in_flight + u64::from(self.window.mss) <= self.window.cwnd;
            if self.next >= self.last() && waiting == 0 && has_room {
                self.record_pause(in_flight);
            }
            return None;
        };
        self.enter_sent(now, &chunk, counts);
        self.timed = None;
        self.account_with_records(state, now, &chunk);
        self.record_sent(now, &chunk, state.bytes().in_flight());
        Some(Chunk { has_cwr: !chunk.is_repeat && self.carries_cwr(self.next), ..chunk })
    }

    /// A probe, a repair, or new data.
    fn choose_with_records(&mut self, state: &mut RackState, now: Time) -> Option<Chunk> {
        let in_flight = state.bytes().in_flight();
        if state.probes_tail {
            state.probes_tail = false;
            let chunk = self.tail(state);
            state.probed = chunk.map(|chunk| {
                let right = chunk.start + u64::from(chunk.length) + u64::from(chunk.has_fin);
                (self.max.max(right), chunk.is_repeat)
            });
            return chunk;
        }
        if let Some((left, right)) = state.rack.next_lost() {
            let fits = in_flight + (right - left).min(u64::from(self.window.mss));
            return (fits <= self.window.cwnd).then(|| self.chunk(left, right));
        }
        let chunk = self.choose_new(now, in_flight);
        chunk.or_else(|| self.last_of_all())
    }

    /// What ends the stream goes even if the congestion window is full.
    fn last_of_all(&self) -> Option<Chunk> {
        let remains = self.end.saturating_sub(self.next);
        let is_last = self.has_fin && self.next <= self.end && remains < u64::from(self.window.mss);
        (is_last && self.end < self.edge).then(|| self.chunk(self.next, self.end + 1))
    }

    /// A segment that provokes an acknowledgement: new if there is one, otherwise the last again.
    fn tail(&self, state: &RackState) -> Option<Chunk> {
        let right = self.last().min(self.next + u64::from(self.window.mss));
        if self.next < self.last() && right <= self.edge {
            return Some(self.chunk(self.next, self.last()));
        }
        state.rack.last().map(|(left, right)| self.chunk(left, right))
    }

    /// Enters what was chosen, and sets the timer for it.
    fn account_with_records(&mut self, state: &mut RackState, now: Time, chunk: &Chunk) {
        state.usage.has_sent = true;
        if state.is_reducing {
            self.prr.sent(u64::from(chunk.length));
        }
        let right = chunk.start + u64::from(chunk.length) + u64::from(chunk.has_fin);
        if chunk.is_repeat {
            state.rack.on_repeated(chunk.start, now);
            if chunk.start == self.una && state.alarm == Alarm::Timeout {
                self.deadline = now + self.rtt.rto();
            }
            return;
        }
        let was_idle = state.segments().outstanding == 0;
        state.rack.on_sent(chunk.start, right, now);
        if state.alarm == Alarm::Reordering && !was_idle {
            return;
        }
        if was_idle || state.alarm == Alarm::Tail {
            self.arm_timeout(state, now);
        }
        let is_probe = state.probed.is_some_and(|(until, _)| until == right);
        if !is_probe {
            let first = state.rack.first_sent().unwrap_or(now);
            let limit = (first + self.rtt.rto()).since(now);
            self.arm_tail(state, limit, now);
        }
    }

    fn judge_usage(&mut self, state: &mut RackState) {
        let sums = state.bytes();
        let (outstanding, in_flight) = (sums.outstanding, sums.in_flight());
        let usage = &mut state.usage;
        let has_more = self.next < self.last() && self.is_window_limited;
        let is_limited = has_more || in_flight + u64::from(self.window.mss) > self.window.cwnd;
        if !(usage.has_sent || has_more) {
            return;
        }
        usage.has_sent = false;
        let is_old = self.una >= usage.until;
        if is_old || is_limited || (!usage.is_limited && outstanding > usage.most) {
            usage.is_limited = is_limited;
            usage.most = outstanding;
            usage.until = self.next;
        }
    }
}

#[cfg(test)]
mod tests;
