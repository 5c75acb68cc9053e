//! The sending half: data under way, the processing of acknowledgements, and the timer.
//!
//! The ordinary acknowledgement of a sender without losses passes one function: it moves `una`,
//! perhaps measures the round trip, restarts the timer (a store; the connection's driver may let an
//! earlier alarm fire, which then finds the deadline moved) and informs the controller. Everything
//! else is left to `recovery.rs`; what to send is chosen in `transmit.rs`.

use alloc::boxed::Box;

use nilometer_wire::{Span, Time};

use crate::config::{Config, IdleRestart, Recovery};
use crate::controller::{Acked, Any, Controller, Window};
use crate::doubt::Doubt;
use crate::flight::Flight;
use crate::nagle::Nagle;
use crate::rack_state::{RackState, Records};
use crate::rtt::Estimator;
use crate::scoreboard::Scoreboard;
use crate::segment::Segment;
use crate::sequence::unwrap;
use crate::statistics::Statistics;

/// No deadline.
pub(crate) const NEVER: Time = Time(u64::MAX);
/// An application that never stops writing.
const ENDLESS: u64 = u64::MAX / 4;

/// What the sender is doing about losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing is known to be lost.
    Open,
    /// Fast recovery, until `recover` is acknowledged.
    Recovery,
    /// Slow start over what a timeout (or Tahoe) gave up, until `recover` is acknowledged.
    Loss,
}

/// The fields are in this order in memory: what every segment needs stands first, in five cache
/// lines; with hundreds of connections, cache lines are the cost of a segment.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Sender {
    /// First offset not acknowledged.
    pub una: u64,
    /// Next offset to send; below `max` while going back.
    pub next: u64,
    /// Offset after the highest ever sent.
    pub max: u64,
    /// Offset after the last byte that the application wrote; the FIN's, once there is one.
    pub end: u64,
    /// Right edge of the peer's window.
    pub edge: u64,
    /// Sequence and acknowledgement numbers of the last window update.
    update: (u64, u64),
    pub peer_window_max: u64,
    pub window: Window,
    /// Bytes that may be under way beyond `cwnd`: segments that have left the network according to
    /// duplicate acknowledgements (RFC 5681, 3.2, step 4; RFC 3042).
    pub inflation: i64,
    pub initial: u32,
    pub duplicates: u32,
    /// Timeouts in a row; those that a peer with a closed window has answered count as one.
    pub retries: u8,
    pub phase: Phase,
    /// Whether there is nothing to transmit until something arrives or is written, or a timer runs out.
    pub is_spent: bool,
    pub is_persisting: bool,
    pub probe: bool,
    /// Whether a back-off ends with any progress, not only with a measurement.
    pub forgets_backoff: bool,
    /// Whether the peer takes and sends SACK blocks.
    pub has_sack: bool,
    /// Whether the application closed.
    pub has_fin: bool,
    /// Send the segment at `una` again, whatever the window.
    pub repeat_first: bool,
    /// Whether it was the window that kept the sender from sending.
    pub is_window_limited: bool,
    /// Whether it is pacing that holds back the next segment.
    pub is_paced: bool,
    /// Whether a reduction is still to be signalled to the peer (CWR).
    pub cwr: bool,
    /// Whether the reductions of an episode may yet be taken back: only then is anything in `doubt`.
    pub is_doubtful: bool,
    /// New segments that F-RTO may still send.
    pub probes: u8,
    pub nagle: Nagle,
    /// When the retransmission (or persist) timer runs out.
    pub deadline: Time,
    /// When pacing lets the next segment go.
    pub paced_until: Time,
    /// The records of segments, with [`Recovery::Rack`].
    pub rack_state: Records,
    /// A record of each segment under way, where one is wanted.
    pub flight: Option<Box<Flight>>,
    pub last_sent: Time,
    /// `una` before the last advance, for the acknowledgement heuristic of RFC 6582, 4.1.
    pub previous: u64,
    /// The acknowledgement of data first sent from here on shows that a round trip has passed.
    round_end: u64,
    pub timed: Option<(u64, Time)>,
    pub rtt: Estimator,
    pub controller: Any,
    // What follows is of interest with SACK, when something was lost, or rarely.
    pub scoreboard: Scoreboard,
    pub doubt: Doubt,
    /// Whether needless reductions are taken back.
    pub undoes: bool,
    pub recovery: Recovery,
    pub idle_restart: IdleRestart,
    pub is_impatient: bool,
    pub has_limited_transmit: bool,
    /// `max` when limited transmit began, while `inflation` is its.
    pub limited_from: u64,
    pub recover: u64,
    pub after_timeout: bool,
    pub had_partial: bool,
    pub rescued: bool,
    pub prr: crate::prr::Reduction,
    /// Whether bytes that duplicate acknowledgements reported are not counted again.
    pub counts_reported: bool,
    pub has_prr: bool,
    /// Bytes of the initial window.
    pub initial_window: u64,
    /// Until this is acknowledged, marks do not reduce the window again (RFC 3168, 6.1.2).
    pub reduced_until: u64,
    /// Nor do losses until this is, where a mark has reduced it.
    pub marked_until: u64,
}

impl Sender {
    pub fn new(config: &Config, initial: u32) -> Sender {
        let mss = u32::from(config.mss.max(1));
        let granularity = config.granularity;
        let cwnd = u64::from(config.initial_window.max(1)) * u64::from(mss);
        let window = Window { cwnd, ssthresh: u64::MAX, mss };
        Sender {
            una: 0,
            next: 0,
            max: 0,
            end: 1,
            edge: 1,
            window,
            inflation: 0,
            phase: Phase::Open,
            recovery: config.recovery,
            is_impatient: config.is_impatient,
            has_sack: false,
            has_fin: false,
            repeat_first: false,
            is_window_limited: false,
            is_spent: false,
            has_limited_transmit: config.limited_transmit,
            limited_from: 0,
            nagle: Nagle::new(config.nagle),
            counts_reported: config.recovery == Recovery::Rack,
            duplicates: 0,
            deadline: NEVER,
            is_paced: false,
            paced_until: Time::ZERO,
            timed: None,
            round_end: 1,
            rtt: Estimator::new(config.rto_initial, config.rto_min, config.rto_max, granularity),
            controller: Any::new(config, &window, u64::from(initial)),
            flight: None,
            doubt: Doubt::default(),
            is_doubtful: false,
            probes: 0,
            recover: 0,
            previous: 0,
            after_timeout: false,
            had_partial: false,
            rescued: false,
            scoreboard: Scoreboard::default(),
            prr: crate::prr::Reduction::default(),
            rack_state: None,
            has_prr: config.prr,
            last_sent: Time::ZERO,
            idle_restart: config.idle_restart,
            initial_window: cwnd,
            undoes: config.undo,
            forgets_backoff: config.forget_backoff,
            update: (0, 0),
            peer_window_max: 0,
            retries: 0,
            is_persisting: false,
            probe: false,
            reduced_until: 0,
            marked_until: 0,
            cwr: false,
            initial,
        }
    }

    /// The handshake settled the segment size.
    pub fn begin(&mut self, mss: u32, config: &Config) {
        self.window.mss = mss;
        self.initial_window = u64::from(config.initial_window.max(1)) * u64::from(mss);
        self.window.cwnd = self.initial_window;
        self.controller = Any::new(config, &self.window, u64::from(self.initial));
        let is_recorded = self.recovery == Recovery::Rack;
        if is_recorded {
            self.rack_state = Some(Box::new(RackState::new(config, mss)));
        }
        if self.controller.needs_delivery() || (config.times_each_ack() && !is_recorded) {
            let is_for_timeout = self.controller.needs_delivery() || config.rtt_each_ack;
            self.flight = Some(Box::new(Flight::new(is_for_timeout)));
        }
    }

    /// The application wrote `bytes`.
    pub fn write(&mut self, bytes: u64) {
        self.is_spent = false;
        if !self.has_fin {
            self.end = self.end.saturating_add(bytes).min(ENDLESS);
        }
    }

    /// Offset after everything to be sent so far: data, then the FIN.
    #[inline]
    pub fn last(&self) -> u64 {
        self.end + u64::from(self.has_fin)
    }

    /// Whether a quick check shows that there is nothing to send.
    #[inline(always)]
    pub fn is_silent(&self) -> bool {
        self.is_spent || self.rests()
    }

    /// Whether all that was written is acknowledged, so that there is nothing to send whatever the
    /// windows say.
    #[inline]
    pub fn rests(&self) -> bool {
        self.una == self.last()
            && !self.is_paced
            && !self.repeat_first
            && !self.probe
            && self.flight.is_none()
            && self.rack_state.is_none()
    }

    /// Payload bytes acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.una.min(self.end).saturating_sub(1)
    }

    /// Bytes under way as this kind of recovery counts them.
    #[inline]
    pub fn in_flight(&self) -> u64 {
        if let Some(state) = &self.rack_state {
            return state.bytes().in_flight();
        }
        if self.has_sack && (self.phase != Phase::Open || self.has_holes()) {
            self.scoreboard.pipe(self.una, self.next, self.window.mss)
        } else {
            self.next - self.una
        }
    }

    /// Whether the peer holds anything out of order; known only with SACK.
    #[inline(always)]
    fn has_holes(&self) -> bool {
        self.has_sack && !self.scoreboard.is_empty()
    }

    /// The smallest unacknowledged distance, `next - una`, for window arithmetic outside recovery.
    #[inline]
    pub fn outstanding(&self) -> u64 {
        self.next - self.una
    }

    /// The peer's window field came at `sequence` (RFC 9293, 3.10.7.4); returns whether it changed.
    #[inline(always)]
    pub fn update_window(&mut self, sequence: u64, ack: u64, window: u64) -> bool {
        if (sequence, ack) < self.update {
            return false;
        }
        self.update = (sequence, ack);
        let edge = ack + window;
        let changed = edge != self.edge;
        self.edge = edge;
        self.peer_window_max = self.peer_window_max.max(window);
        if self.is_persisting {
            // A peer that answers is there, however long it has no room (RFC 9293, 3.8.6.1).
            self.retries = 0;
            if changed && edge > self.una {
                self.is_persisting = false;
                self.probe = false;
                self.rtt.forget_backoff();
                self.deadline = NEVER;
            }
        }
        changed
    }

    /// The peer reports that it has no room for what is under way, so it is alive (RFC 9293,
    /// 3.8.6.1). One timeout stays counted, since only the first in a row cuts the threshold.
    pub fn hear_of_no_room(&mut self) {
        self.retries = self.retries.min(1);
    }

    /// An acceptable acknowledgement: `ack` is at most `max`. This function suffices for a sender that
    /// has lost nothing and an ordinary acknowledgement; the general path would find the same.
    #[inline(always)]
    pub fn on_ack(&mut self, ack: u64, arrival: &Arrival<'_>, counts: &mut Statistics) {
        if ack <= self.una || !self.is_plain(arrival.segment) {
            return self.on_ack_unusual(ack, arrival, counts);
        }
        let bytes = ack - self.una;
        let rtt = self.move_una(ack, arrival);
        let round_ended = self.end_round();
        match &mut self.controller {
            // Reno needs nothing else.
            Any::Reno(reno) if self.is_window_limited => reno.grow(&mut self.window, bytes),
            Any::Reno(_) => {}
            _ => self.update_controller(bytes, rtt, false, round_ended, arrival.now),
        }
    }

    /// Whether nothing is lost, in doubt, recorded or reported.
    #[inline(always)]
    pub(crate) fn is_plain(&self, segment: &Segment) -> bool {
        let has_reports = self.duplicates > 0
            || (self.has_sack && (segment.blocks().len() > 0 || !self.scoreboard.is_empty()));
        self.phase == Phase::Open
            && !self.is_doubtful
            && !has_reports
            && self.rack_state.is_none()
            && self.flight.is_none()
    }

    #[inline(never)]
    pub(crate) fn on_ack_unusual(
        &mut self,
        ack: u64,
        arrival: &Arrival<'_>,
        counts: &mut Statistics,
    ) {
        if self.rack_state.is_some() {
            return self.on_ack_recorded(ack, arrival, counts);
        }
        let sacked = if self.has_sack { self.record_blocks(ack, arrival) } else { 0 };
        if self.is_doubtful {
            self.examine(ack, arrival, counts);
        }
        if ack <= self.una {
            if ack == self.una && self.una != self.max {
                self.on_duplicate(sacked, arrival, counts);
            }
            return;
        }
        let bytes = ack - self.una;
        let deadline = self.deadline;
        let rtt = self.move_una(ack, arrival);
        let mut counted = bytes;
        let in_recovery = self.phase == Phase::Recovery;
        let has_reports = self.duplicates > 0 || self.has_holes();
        if self.phase != Phase::Open || has_reports {
            let reported = if self.phase == Phase::Open { self.reported_bytes() } else { 0 };
            let had = self.scoreboard.bytes();
            self.scoreboard.advance(ack);
            let delivered = (bytes + sacked).saturating_sub(had - self.scoreboard.bytes());
            let advance = Advance { bytes, delivered, sacked, deadline };
            self.on_advance(&advance, arrival.now, counts);
            let segment = delivered.min(u64::from(self.window.mss));
            counted = delivered.saturating_sub(reported).max(segment);
        }
        let round_ended = self.end_round();
        self.update_controller(counted, rtt, in_recovery, round_ended, arrival.now);
    }

    /// Everything below `ack` has arrived; returns the round-trip time that this measures, if any.
    #[inline(always)]
    fn move_una(&mut self, ack: u64, arrival: &Arrival<'_>) -> Option<Span> {
        self.previous = self.una;
        self.una = ack;
        self.next = self.next.max(ack);
        self.retries = 0;
        let rtt = self.measure(ack, arrival);
        self.deadline = if ack < self.max { arrival.now + self.rtt.rto() } else { NEVER };
        rtt
    }

    #[inline(never)]
    fn update_controller(
        &mut self,
        bytes: u64,
        rtt: Option<Span>,
        in_recovery: bool,
        round_ended: bool,
        now: Time,
    ) {
        let mut acked = Acked {
            now,
            bytes,
            rtt,
            smoothed_rtt: self.rtt.smoothed(),
            in_flight: self.in_flight(),
            is_window_limited: self.is_window_limited,
            in_recovery,
            round_ended,
            delivery: None,
        };
        if let Some(flight) = &mut self.flight {
            acked.delivery = flight.take_delivery();
        }
        self.controller.on_ack(&mut self.window, &acked);
    }

    #[inline(never)]
    fn on_ack_recorded(&mut self, ack: u64, arrival: &Arrival<'_>, counts: &mut Statistics) {
        if let Some(mut state) = self.rack_state.take() {
            self.on_ack_with_records(&mut state, ack, arrival, counts);
            self.rack_state = Some(state);
        }
    }

    /// Bytes that duplicate acknowledgements have reported, where they are not counted again.
    #[inline]
    fn reported_bytes(&self) -> u64 {
        let counts = self.counts_reported && !self.has_sack;
        if counts { u64::from(self.duplicates) * u64::from(self.window.mss) } else { 0 }
    }

    /// Whether all that was sent when the last round trip ended is acknowledged: another has.
    #[inline]
    pub fn end_round(&mut self) -> bool {
        let has_ended = self.una >= self.round_end;
        if has_ended {
            self.round_end = self.max.max(self.una + 1);
        }
        has_ended
    }

    /// Enters the SACK blocks of an acknowledgement; returns the bytes that are news.
    #[inline]
    fn record_blocks(&mut self, ack: u64, arrival: &Arrival<'_>) -> u64 {
        let mut news = 0;
        for [left, right] in arrival.segment.blocks() {
            let left = unwrap(self.initial, self.una, left).unwrap_or(0);
            let right = unwrap(self.initial, self.una, right).unwrap_or(0);
            // Below the cumulative acknowledgement it is a D-SACK; beyond what was sent, nonsense.
            if left >= right || right > self.max || left <= ack || right <= self.una {
                continue;
            }
            let bytes = self.scoreboard.record(left.max(self.una), right);
            if bytes > 0 {
                news += bytes;
                let is_old = left < self.recover && right > self.scoreboard.retransmitted();
                self.doubt.saw_original |= self.phase == Phase::Loss && is_old;
                if let Some(flight) = &mut self.flight {
                    flight.acknowledge_range(arrival.now, left, right);
                }
            }
        }
        news
    }
}

/// What an acknowledgement moved.
pub(crate) struct Advance {
    /// Bytes acknowledged cumulatively.
    pub bytes: u64,
    /// Bytes that are news, whichever way they were acknowledged.
    pub delivered: u64,
    /// Bytes newly acknowledged selectively.
    pub sacked: u64,
    /// When the retransmission timer would have run out.
    pub deadline: Time,
}

/// What an acknowledgement arrived with.
pub(crate) struct Arrival<'a> {
    pub now: Time,
    pub segment: &'a Segment,
    /// Round-trip time by its echoed timestamp.
    pub echoed: Option<Span>,
    /// Whether it carries neither data nor FIN and does not change the window.
    pub is_bare: bool,
}
