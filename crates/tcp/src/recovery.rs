//! Loss recovery: Tahoe, Reno, NewReno and SACK as four answers to the same three questions.
//!
//! When does it begin? With the third duplicate acknowledgement (RFC 5681), with SACK as soon as
//! the scoreboard says that the first segment is lost (RFC 6675). What does an acknowledgement mean
//! that does not cover all that was under way when it began? Reno takes it as the end (RFC 2581),
//! NewReno as the next hole (RFC 6582), SACK as nothing special. And what does a timeout leave?
//! Everything under way counts as lost: without SACK the sender goes back to `una` and continues
//! from there as BSD does, with SACK it sends what the scoreboard lacks.
//!
//! After a timeout duplicate acknowledgements may be the echo of segments sent needlessly, so that
//! they are ignored until more than `recover` was acknowledged (RFC 6582, the careful variant),
//! unless the acknowledgement heuristic of its section 4.1 shows a loss.

use nilometer_wire::Time;

use crate::config::Recovery;
use crate::controller::{Congestion, Controller};
use crate::doubt::Step;
use crate::prr::{Progress, Reduction};
use crate::scoreboard::DUPLICATE_THRESHOLD;
use crate::sender::{Advance, Arrival, Phase, Sender};
use crate::statistics::Statistics;

impl Sender {
    /// An acknowledgement that does not advance `una`; with SACK, its blocks newly covered `sacked`
    /// bytes.
    #[inline(never)]
    pub(crate) fn on_duplicate(
        &mut self,
        sacked: u64,
        arrival: &Arrival<'_>,
        counts: &mut Statistics,
    ) {
        let is_duplicate = if self.has_sack { sacked > 0 } else { arrival.is_bare };
        if !is_duplicate {
            return;
        }
        self.report_losses(arrival.now, self.lost_edge());
        self.duplicates = self.duplicates.saturating_add(1);
        match self.phase {
            Phase::Open => self.count_duplicate(sacked, arrival.now, counts),
            Phase::Recovery if self.has_sack => self.reduce(sacked, false),
            Phase::Recovery => self.inflation += i64::from(self.window.mss),
            Phase::Loss => {}
        }
        if self.controller.needs_delivery() {
            self.report_delivery(sacked, arrival.now);
        }
    }

    fn count_duplicate(&mut self, sacked: u64, now: Time, counts: &mut Statistics) {
        let is_lost = self.duplicates >= DUPLICATE_THRESHOLD
            || (self.has_sack && self.scoreboard.is_lost(self.una, self.window.mss));
        if is_lost && self.may_recover() {
            self.enter(sacked, now, counts);
        } else if self.has_limited_transmit && self.duplicates < DUPLICATE_THRESHOLD {
            if self.inflation == 0 {
                self.limited_from = self.max;
            }
            self.inflation = i64::from(self.duplicates) * i64::from(self.window.mss);
        }
    }

    /// Whether duplicate acknowledgements mean a new loss.
    fn may_recover(&self) -> bool {
        if !self.after_timeout || self.has_sack || self.una > self.recover {
            return true;
        }
        let mss = u64::from(self.window.mss);
        let is_heuristic = matches!(self.recovery, Recovery::NewReno);
        is_heuristic && self.window.cwnd > mss && self.una - self.previous <= 4 * mss
    }

    /// FlightSize (RFC 5681), the base of a reduction. With SACK most of what is outstanding may have
    /// arrived long ago, when a repair was lost and the sender went on; then it was the window that
    /// was too much, and in recovery the window before it.
    fn flight_size(&self) -> u64 {
        let mut outstanding = self.outstanding();
        if self.phase == Phase::Open {
            // Segments that limited transmit released do not count (RFC 3042, section 2): what is
            // beyond the window and has left since it began.
            let beyond = outstanding.saturating_sub(self.window.cwnd);
            let beyond = beyond.next_multiple_of(u64::from(self.window.mss));
            let released = beyond.min(self.max - self.limited_from);
            outstanding -= released.min(self.inflation.max(0) as u64).min(outstanding);
        }
        match self.phase {
            _ if !self.has_sack => outstanding,
            Phase::Recovery => outstanding.min(self.prr.flight()),
            Phase::Open | Phase::Loss => outstanding.min(self.window.cwnd),
        }
    }

    /// Fast retransmit, and what follows it.
    fn enter(&mut self, sacked: u64, now: Time, counts: &mut Statistics) {
        counts.fast_recoveries += 1;
        let mss = i64::from(self.window.mss);
        let flight = self.flight_size();
        // One reduction per window, of marks and losses together (RFC 3168, 6.1.2).
        let was_marked = self.una < self.marked_until && !self.controller.owns_recovery();
        if was_marked {
            self.trust();
        } else {
            self.controller.on_congestion(now, &mut self.window, Congestion::Loss, flight);
            self.doubt(Step::Off);
            self.schedule_cwr();
        }
        self.recover = self.max;
        self.after_timeout = false;
        self.had_partial = false;
        self.rescued = false;
        self.timed = None;
        self.inflation = 0;
        self.deadline = now + self.rtt.rto();
        if self.recovery == Recovery::Tahoe {
            self.window.cwnd = mss as u64;
            self.duplicates = 0;
            self.phase = Phase::Loss;
            self.next = self.una;
            return;
        }
        self.phase = Phase::Recovery;
        self.repeat_first = true;
        let owns = self.controller.owns_recovery();
        if self.has_sack {
            self.scoreboard.begin(self.una);
            // The mark has reduced the window, but not yet what is under way.
            self.prr = Reduction::begin(if was_marked { self.outstanding() } else { flight });
            self.reduce(sacked, false);
        } else {
            self.inflation = i64::from(DUPLICATE_THRESHOLD) * mss;
        }
        let sets_itself = owns || (self.has_sack && self.has_prr);
        if !sets_itself {
            self.window.cwnd = self.window.ssthresh;
        }
    }

    /// Lets PRR set the window after `delivered` bytes.
    fn reduce(&mut self, delivered: u64, is_safe: bool) {
        if !self.has_prr || self.controller.owns_recovery() {
            return;
        }
        let progress = Progress { delivered, pipe: self.in_flight(), is_safe };
        self.window.cwnd = self.prr.cwnd(&progress, self.window.ssthresh, self.window.mss);
    }

    /// `una` moved while something was amiss.
    #[inline(never)]
    pub(crate) fn on_advance(&mut self, advance: &Advance, now: Time, counts: &mut Statistics) {
        if self.has_sack {
            self.report_losses(now, self.lost_edge());
        }
        match self.phase {
            Phase::Open => {
                self.duplicates = u32::from(advance.sacked > 0);
                self.inflation = 0;
            }
            Phase::Recovery if self.una >= self.recover => self.leave(),
            Phase::Recovery => self.on_partial(advance),
            Phase::Loss if self.una >= self.recover => {
                self.phase = Phase::Open;
                self.duplicates = 0;
                self.inflation = 0;
                self.scoreboard.unlose();
            }
            Phase::Loss => {}
        }
        let is_open = self.phase == Phase::Open && self.has_sack;
        if is_open && self.una < self.max && self.scoreboard.is_lost(self.una, self.window.mss) {
            self.enter(advance.sacked, now, counts);
        }
    }

    /// Everything that was under way when recovery began has arrived.
    fn leave(&mut self) {
        self.phase = Phase::Open;
        self.repeat_first = false;
        self.duplicates = 0;
        self.inflation = 0;
        if self.controller.owns_recovery() {
            return;
        }
        let mss = u64::from(self.window.mss);
        self.window.cwnd = match self.recovery {
            // Without a burst (RFC 6582, section 3.2, step 3, option 1).
            Recovery::NewReno => self.window.ssthresh.min(self.outstanding().max(mss) + mss),
            _ => self.window.ssthresh,
        };
    }

    fn on_partial(&mut self, advance: &Advance) {
        match self.recovery {
            Recovery::Sack | Recovery::Rack => {
                let is_safe = !self.scoreboard.is_lost(self.una, self.window.mss);
                self.reduce(advance.delivered, is_safe);
            }
            Recovery::NewReno => {
                self.repeat_first = true;
                let mss = i64::from(self.window.mss);
                let bytes = advance.bytes.min(i64::MAX as u64) as i64;
                self.inflation -= bytes - if bytes >= mss { mss } else { 0 };
                if self.had_partial && self.is_impatient {
                    self.deadline = advance.deadline;
                }
                self.had_partial = true;
            }
            Recovery::Reno | Recovery::Tahoe => self.leave(),
        }
    }

    /// The retransmission timer ran out with something under way.
    pub(crate) fn on_timeout(&mut self, now: Time, counts: &mut Statistics) {
        if let Some(mut state) = self.rack_state.take() {
            self.on_alarm(&mut state, now, counts);
            self.rack_state = Some(state);
            return;
        }
        counts.timeouts += 1;
        if let Some(flight) = &mut self.flight {
            flight.forget_lost_edge();
        }
        self.report_losses(now, self.max);
        self.doubt_timeout();
        if self.retries == 0 {
            let flight = self.flight_size();
            self.controller.on_congestion(now, &mut self.window, Congestion::Timeout, flight);
        } else if !self.controller.owns_recovery() {
            // The threshold stays what it was (RFC 5681, section 3.1, equation 4).
            self.window.cwnd = u64::from(self.window.mss);
        }
        self.schedule_cwr();
        self.retries = self.retries.saturating_add(1);
        self.rtt.back_off();
        self.deadline = now + self.rtt.rto();
        self.phase = Phase::Loss;
        self.after_timeout = true;
        self.recover = self.max;
        self.repeat_first = false;
        self.duplicates = 0;
        self.inflation = 0;
        self.timed = None;
        if self.has_sack {
            self.scoreboard.lose_all(self.una, self.max);
        } else {
            self.next = self.una;
        }
    }

    /// The window was reduced, for any reason: the next new data signals that to a peer that echoes
    /// marks (CWR).
    pub(crate) fn schedule_cwr(&mut self) {
        self.cwr = true;
    }

    /// Whether the segment of new data that ends at `right` and is leaving has to signal a reduction
    /// (CWR). Until it is acknowledged, the peer echoes marks of the window that was reduced, and
    /// those do not reduce it again (RFC 3168, 6.1.2).
    pub(crate) fn carries_cwr(&mut self, right: u64) -> bool {
        let carries = core::mem::take(&mut self.cwr);
        if carries {
            self.reduced_until = right;
        }
        carries
    }

    /// Whether an echo with an acknowledgement of `ack` is of a window that was not reduced.
    pub(crate) fn is_new_mark(&self, ack: u64) -> bool {
        !self.cwr && ack >= self.reduced_until && self.phase == Phase::Open
    }

    /// The peer echoed a congestion mark and acknowledged `ack` (RFC 3168, section 6.1.2): once per
    /// window.
    pub(crate) fn on_mark(&mut self, ack: u64, now: Time, counts: &mut Statistics) {
        if let Some(mut state) = self.rack_state.take() {
            self.on_mark_with_records(&mut state, ack, now, counts);
            self.rack_state = Some(state);
            return;
        }
        if !self.is_new_mark(ack) {
            return;
        }
        counts.marks_answered += 1;
        // What was reduced before is not taken back any more: there was congestion.
        self.trust();
        self.schedule_cwr();
        self.marked_until = self.max;
        let flight = self.outstanding();
        self.controller.on_congestion(now, &mut self.window, Congestion::Marked, flight);
    }
}
