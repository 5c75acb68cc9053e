//! Congestion control: how much may be under way, decided from what was acknowledged and what was lost.
//!
//! A sender keeps a [`Window`]; loss recovery (which segment to send again, and how many during
//! recovery) is the sender's, growth and reduction are the controller's. The same controller serves
//! every kind of recovery, so that CUBIC with SACK and CUBIC with NewReno are both possible.

mod bbr;
mod cubic;
mod hystart;
mod linux;
mod reno;

use alloc::boxed::Box;

use nilometer_wire::{Rate, Span, Time};

use crate::config::{Algorithm, Config};
pub use bbr::Bbr;
pub use cubic::Cubic;
pub use linux::LinuxCubic;
pub use reno::Reno;

/// Congestion window and slow-start threshold of one sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Bytes that may be under way.
    pub cwnd: u64,
    /// Below it the window is in slow start, bytes (RFC 5681).
    pub ssthresh: u64,
    /// The sender's maximum segment size, bytes.
    pub mss: u32,
}

/// What a controller learns from an acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
pub struct Acked {
    /// When it came.
    pub now: Time,
    /// Bytes newly acknowledged or, with SACK, newly reported as received.
    pub bytes: u64,
    /// Round-trip time measured by this acknowledgement, if one was.
    pub rtt: Option<Span>,
    /// The smoothed round-trip time (RFC 6298), if there is one.
    pub smoothed_rtt: Option<Span>,
    /// Bytes under way now that it came.
    pub in_flight: u64,
    /// Whether the window, and not the application or the peer, was what held the sender back.
    pub is_window_limited: bool,
    /// Whether the sender is recovering from loss.
    pub in_recovery: bool,
    /// Whether a round trip has passed: data first sent after the last such moment was acknowledged.
    pub round_ended: bool,
    /// Delivery rate over the acknowledged packet's flight (draft-ietf-ccwg-bbr, 4.1), if it could
    /// be measured; only measured where [`Controller::needs_delivery`] is true.
    pub delivery: Option<Delivery>,
}

/// A delivery-rate sample: of the acknowledged segments, the one sent last.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    /// Bytes per second delivered over the sample; zero when its interval was too short for a measurement.
    pub bytes_per_second: u64,
    /// Whether the application had too little to send while the sample was under way.
    pub is_app_limited: bool,
    /// Bytes found lost since the segment was sent.
    pub lost: u64,
    /// All bytes delivered by the connection so far.
    pub delivered: u64,
    /// What `delivered` was when the segment was sent.
    pub prior_delivered: u64,
    /// Bytes under way when the segment was sent, itself included.
    pub sent_in_flight: u64,
}

/// A segment that was found lost.
#[derive(Clone, Copy, Debug)]
pub struct Lost {
    /// When it was found.
    pub now: Time,
    /// Its payload bytes.
    pub bytes: u64,
    /// Bytes found lost since it was sent, itself included.
    pub lost: u64,
    /// All bytes delivered by the connection so far.
    pub delivered: u64,
    /// Bytes under way when it was sent, itself included.
    pub sent_in_flight: u64,
    /// Whether the application had too little to send when it was sent.
    pub is_app_limited: bool,
}

/// The sign of congestion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// Segments were found lost from acknowledgements; once per window of data.
    Loss,
    /// The peer echoed a mark (RFC 3168); once per window of data.
    Marked,
    /// The retransmission timer ran out.
    Timeout,
}

/// A congestion controller.
///
/// The sender calls [`Controller::on_lost`] for each segment that it finds lost, then
/// [`Controller::on_congestion`] if that begins a recovery, then [`Controller::on_ack`] for the
/// acknowledgement that showed it.
pub trait Controller {
    /// New data was acknowledged. Grows the window; called during recovery too, where most do
    /// nothing.
    fn on_ack(&mut self, window: &mut Window, acked: &Acked);

    /// Congestion: sets `ssthresh`; sets `cwnd` on [`Congestion::Marked`] and on
    /// [`Congestion::Timeout`] (RFC 5681: one segment). After [`Congestion::Loss`] the sender's
    /// recovery sets `cwnd`, unless [`Controller::owns_recovery`]. `in_flight` is what was under
    /// way, bytes.
    fn on_congestion(&mut self, now: Time, window: &mut Window, cause: Congestion, in_flight: u64);

    /// A retransmission timeout or a recovery proved needless (RFC 3522, 4015; D-SACK): restores
    /// what [`Controller::on_congestion`] remembered.
    fn undo(&mut self, now: Time, window: &mut Window);

    /// A segment was found lost; only called where [`Controller::needs_delivery`].
    fn on_lost(&mut self, _window: &mut Window, _lost: &Lost) {}

    /// Sending begins again with nothing under way, because the application had had nothing to send
    /// for `idle`.
    fn on_restart(&mut self, _now: Time, _window: &mut Window, _idle: Span) {}

    /// The rate at which segments should leave, if this controller paces.
    fn pacing_rate(&self) -> Option<Rate> {
        None
    }

    /// Whether the controller sets `cwnd` itself during recovery too (BBR).
    fn owns_recovery(&self) -> bool {
        false
    }

    /// Whether [`Acked::delivery`] and [`Controller::on_lost`] are of use; measuring them costs the
    /// sender a record of each segment.
    fn needs_delivery(&self) -> bool {
        false
    }
}

/// One of the controllers, chosen by a [`Config`] and called without a table.
#[derive(Clone, Debug)]
pub enum Any {
    /// RFC 5681.
    Reno(Reno),
    /// RFC 9438.
    Cubic(Cubic),
    /// RFC 9438 as Linux computes it.
    LinuxCubic(LinuxCubic),
    /// draft-ietf-ccwg-bbr; boxed, since it is large and rare.
    Bbr(Box<Bbr>),
}

impl Any {
    /// The controller that `config` names, for a connection that starts with `window`. `seed` is the
    /// connection's own (BBR draws the moments of its probes from it).
    pub fn new(config: &Config, window: &Window, seed: u64) -> Any {
        match config.algorithm {
            Algorithm::Cubic => Any::Cubic(Cubic::new(config.hystart)),
            Algorithm::LinuxCubic => Any::LinuxCubic(LinuxCubic::new(config.hystart)),
            Algorithm::Bbr => Any::Bbr(Box::new(Bbr::new(window, seed))),
            Algorithm::Reno => Any::Reno(Reno::new(config.growth)),
        }
    }
}

/// Passes a call on to the controller in use.
macro_rules! each {
    ($any:expr, $controller:ident => $call:expr) => {
        match $any {
            Any::Reno($controller) => $call,
            Any::Cubic($controller) => $call,
            Any::LinuxCubic($controller) => $call,
            Any::Bbr($controller) => $call,
        }
    };
}

impl Controller for Any {
    #[inline]
    fn on_ack(&mut self, window: &mut Window, acked: &Acked) {
        each!(self, controller => controller.on_ack(window, acked));
    }

    fn on_congestion(&mut self, now: Time, window: &mut Window, cause: Congestion, in_flight: u64) {
        each!(self, controller => controller.on_congestion(now, window, cause, in_flight));
    }

    fn undo(&mut self, now: Time, window: &mut Window) {
        each!(self, controller => controller.undo(now, window));
    }

    fn on_lost(&mut self, window: &mut Window, lost: &Lost) {
        each!(self, controller => controller.on_lost(window, lost));
    }

    fn on_restart(&mut self, now: Time, window: &mut Window, idle: Span) {
        each!(self, controller => controller.on_restart(now, window, idle));
    }

    #[inline]
    fn pacing_rate(&self) -> Option<Rate> {
        each!(self, controller => controller.pacing_rate())
    }

    #[inline]
    fn owns_recovery(&self) -> bool {
        each!(self, controller => controller.owns_recovery())
    }

    #[inline]
    fn needs_delivery(&self) -> bool {
        each!(self, controller => controller.needs_delivery())
    }
}
