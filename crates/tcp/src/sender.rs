//! The sending half: what is under way, what acknowledgements say of it, and the timer.
//!
//! The ordinary acknowledgement of a sender without losses passes one function: it moves `una`,
//! perhaps measures the round trip, restarts the timer (a store; whoever drives the connection may
//! let an earlier alarm come and find it moved) and tells the controller. Everything else leaves to
//! `recovery.rs`; what to send is chosen in `transmit.rs`.

use alloc::boxed::Box;

use nilometer_wire::{Span, Time};

use crate::config::{Config, Recovery};

use crate::controller::{Acked, Any, Controller, Window};
use crate::repair::{Records, Repair};
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

#[derive(Clone, Debug)]
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
    pub window: Window,
    /// Bytes that may be under way beyond `cwnd`: segments that duplicate acknowledgements say
    /// have left the network (RFC 5681, 3.2, step 4; RFC 3042).
    pub inflation: i64,
    pub phase: Phase,
    pub recovery: Recovery,
    /// Whether the peer takes and sends SACK blocks.
    pub has_sack: bool,
    /// Whether the application closed.
    pub has_fin: bool,
    /// Send the segment at `una` again, whatever the window.
    pub repeat_first: bool,
    /// Whether it was the window that kept the sender from sending.
    pub is_window_limited: bool,
    pub has_limited_transmit: bool,
    pub is_nagle: bool,
    pub duplicates: u32,
    /// When the retransmission (or persist) timer runs out.
    pub deadline: Time,
    /// Whether it is pacing that holds back the next segment.
    pub is_paced: bool,
    /// When pacing lets the next segment go.
    pub paced_until: Time,
    pub timed: Option<(u64, Time)>,
    /// Data first sent from here on will tell that a round trip has passed.
    round_end: u64,
    pub rtt: Estimator,
    pub controller: Any,
    // What follows is of interest when something was lost, or rarely.
    pub recover: u64,
    /// `una` before the last advance, for the acknowledgement heuristic of RFC 6582, 4.1.
    pub previous: u64,
    pub after_timeout: bool,
    pub had_partial: bool,
    pub rescued: bool,
    pub scoreboard: Scoreboard,
    pub prr: crate::prr::Reduction,
    /// The records of segments, with [`Recovery::Rack`].
    pub repair: Records,
    pub has_prr: bool,
    pub last_sent: Time,
    /// Sequence and acknowledgement numbers of the last window update.
    update: (u64, u64),
    pub peer_window_max: u64,
    /// Timeouts in a row.
    pub retries: u8,
    pub is_persisting: bool,
    pub probe: bool,
    /// ECN: reductions because of marks wait until this is acknowledged.
    pub reduced_until: u64,
    pub cwr: bool,
    pub initial: u32,
}

impl Sender {
    pub fn new(config: &Config, initial: u32) -> Sender {
        let mss = u32::from(config.mss.max(1));
        let granularity = match config.recovery {
            Recovery::Rack => config.rto_min,
            _ => Span::from_nanos(1_000_000),
        };
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
            has_sack: false,
            has_fin: false,
            repeat_first: false,
            is_window_limited: false,
            has_limited_transmit: config.limited_transmit,
            is_nagle: config.nagle,
            duplicates: 0,
            deadline: NEVER,
            is_paced: false,
            paced_until: Time::ZERO,
            timed: None,
            round_end: 1,
            rtt: Estimator::new(config.rto_initial, config.rto_min, config.rto_max, granularity),
            controller: Any::new(config, &window, u64::from(initial)),
            recover: 0,
            previous: 0,
            after_timeout: false,
            had_partial: false,
            rescued: false,
            scoreboard: Scoreboard::default(),
            prr: crate::prr::Reduction::default(),
            repair: None,
            has_prr: config.prr,
            last_sent: Time::ZERO,
            update: (0, 0),
            peer_window_max: 0,
            retries: 0,
            is_persisting: false,
            probe: false,
            reduced_until: 0,
            cwr: false,
            initial,
        }
    }

    /// The handshake settled the segment size.
    pub fn begin(&mut self, mss: u32, config: &Config) {
        self.window.mss = mss;
        self.window.cwnd = u64::from(config.initial_window.max(1)) * u64::from(mss);
        self.controller = Any::new(config, &self.window, u64::from(self.initial));
        if self.recovery == Recovery::Rack {
            self.repair = Some(Box::new(Repair::new(config, mss)));
        }
    }

    /// The application wrote `bytes`.
    pub fn write(&mut self, bytes: u64) {
        if !self.has_fin {
            self.end = self.end.saturating_add(bytes).min(ENDLESS);
        }
    }

    /// Offset after everything that will ever be sent as it stands: data, then the FIN.
    #[inline]
    pub fn last(&self) -> u64 {
        self.end + u64::from(self.has_fin)
    }

    /// Payload bytes acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.una.min(self.end).saturating_sub(1)
    }

    /// Bytes under way as this kind of recovery counts them.
    #[inline]
    pub fn in_flight(&self) -> u64 {
        if let Some(repair) = &self.repair {
            return repair.bytes().in_flight();
        }
        if self.has_sack && (self.phase != Phase::Open || !self.scoreboard.is_empty()) {
            self.scoreboard.pipe(self.una, self.next, self.window.mss)
        } else {
            self.next - self.una
        }
    }

    /// The smallest unacknowledged distance, `next - una`, for window arithmetic outside recovery.
    #[inline]
    pub fn outstanding(&self) -> u64 {
        self.next - self.una
    }

    /// The peer's window field came with a segment at `sequence` (RFC 9293, 3.10.7.4: SND.WL1,
    /// SND.WL2); returns whether the window changed.
    #[inline]
    pub fn update_window(&mut self, sequence: u64, ack: u64, window: u64) -> bool {
        if (sequence, ack) < self.update {
            return false;
        }
        self.update = (sequence, ack);
        let edge = ack + window;
        let changed = edge != self.edge;
        self.edge = edge;
        self.peer_window_max = self.peer_window_max.max(window);
        if changed && self.is_persisting && edge > self.una {
            self.is_persisting = false;
            self.probe = false;
            self.retries = 0;
            self.rtt.forget_backoff();
            self.deadline = NEVER;
        }
        changed
    }

    /// An acceptable acknowledgement: `ack` is at most `max`, `echoed` the round trip that its
    /// timestamp tells. `is_duplicate` says that it looks like a duplicate of RFC 5681, apart from
    /// its number.
    #[inline]
    pub fn on_ack(&mut self, ack: u64, arrival: &Arrival<'_>, counts: &mut Statistics) {
        if let Some(mut repair) = self.repair.take() {
            self.on_ack_with_records(&mut repair, ack, arrival, counts);
            self.repair = Some(repair);
            return;
        }
        let sacked = if self.has_sack { self.record_blocks(ack, arrival.segment) } else { 0 };
        if ack <= self.una {
            if ack == self.una {
                self.on_duplicate(sacked, arrival, counts);
            }
            return;
        }
        let before = self.in_flight();
        let bytes = ack - self.una;
        self.previous = self.una;
        self.una = ack;
        self.next = self.next.max(ack);
        self.retries = 0;
        let rtt = self.measure(ack, arrival);
        let deadline = self.deadline;
        self.deadline = if ack < self.max { arrival.now + self.rtt.rto() } else { NEVER };
        let mut delivered = bytes;
        if !self.scoreboard.is_empty() || self.phase != Phase::Open {
            let had = self.scoreboard.bytes();
            self.scoreboard.advance(ack);
            delivered = (bytes + sacked).saturating_sub(had - self.scoreboard.bytes());
        }
        let in_recovery = self.phase == Phase::Recovery;
        if self.phase != Phase::Open || self.duplicates > 0 || sacked > 0 {
            let advance = Advance { bytes, delivered, sacked, deadline };
            self.on_advance(&advance, arrival.now, counts);
        }
        let round_ended = self.end_round();
        let acked = Acked {
            now: arrival.now,
            bytes: delivered,
            rtt,
            smoothed_rtt: self.rtt.smoothed(),
            in_flight: before.saturating_sub(bytes),
            is_window_limited: self.is_window_limited,
            in_recovery,
            round_ended,
            delivery: None,
        };
        self.controller.on_ack(&mut self.window, &acked);
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

    /// A round-trip time, if this acknowledgement tells one: of the timed segment, unless something
    /// was sent again meanwhile (Karn and Partridge 1987), or of the echoed timestamp.
    #[inline]
    fn measure(&mut self, ack: u64, arrival: &Arrival<'_>) -> Option<Span> {
        let rtt = match self.timed {
            Some((offset, sent)) if ack > offset => {
                self.timed = None;
                arrival.now.since(sent)
            }
            Some(_) => return None,
            None => arrival.echoed?,
        };
        self.rtt.sample(rtt);
        Some(rtt)
    }

    /// Enters the SACK blocks of an acknowledgement; returns the bytes that are news.
    #[inline]
    fn record_blocks(&mut self, ack: u64, segment: &Segment) -> u64 {
        let mut news = 0;
        for [left, right] in segment.blocks() {
            let left = unwrap(self.initial, self.una, left).unwrap_or(0);
            let right = unwrap(self.initial, self.una, right).unwrap_or(0);
            // Below the cumulative acknowledgement it is a D-SACK; beyond what was sent, nonsense.
            if left >= right || right > self.max || left <= ack || right <= self.una {
                continue;
            }
            news += self.scoreboard.record(left.max(self.una), right);
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
    /// Round-trip time that its echoed timestamp tells.
    pub echoed: Option<Span>,
    /// Whether it carries neither data nor FIN and does not change the window.
    pub is_bare: bool,
}
