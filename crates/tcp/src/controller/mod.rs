//! Congestion control: how much may be under way, decided from what was acknowledged and what was lost.
//!
//! A sender keeps a [`Window`]; loss recovery (which segment to send again, and how many during
//! recovery) is the sender's, growth and reduction are the controller's. The same controller serves
//! every kind of recovery, so that CUBIC with SACK and CUBIC with NewReno are both possible.

use nilometer_wire::{Rate, Span, Time};

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

/// What an acknowledgement told.
#[derive(Clone, Copy, Debug)]
pub struct Acked {
    /// When it came.
    pub now: Time,
    /// Bytes newly acknowledged or, with SACK, newly reported as received.
    pub bytes: u64,
    /// Round-trip time measured by this acknowledgement, if one was.
    pub rtt: Option<Span>,
    /// The smoothed round-trip time (RFC 6298), if there is one.
    pub smoothed_rtt: Option<Span>,
    /// Bytes under way before it came.
    pub in_flight: u64,
    /// Whether the window, and not the application or the peer, was what held the sender back.
    pub is_window_limited: bool,
    /// Whether the sender is recovering from loss.
    pub in_recovery: bool,
    /// Whether a round trip has passed: data first sent after the last such moment was acknowledged.
    pub round_ended: bool,
    /// Delivery rate over the acknowledged packet's flight (draft-cheng-iccrg-delivery-rate), if it
    /// could be measured.
    pub delivery: Option<Delivery>,
}

/// A delivery-rate sample.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    /// Bytes per second delivered over the sample.
    pub bytes_per_second: u64,
    /// Whether the application had too little to send while the sample was under way.
    pub is_app_limited: bool,
    /// Bytes found lost during the sample.
    pub lost: u64,
    /// All bytes delivered by the connection so far.
    pub delivered: u64,
}

/// What said that there is congestion.
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
pub trait Controller {
    /// New data was acknowledged. Grows the window; called during recovery too, where most do
    /// nothing.
    fn on_ack(&mut self, window: &mut Window, acked: &Acked);

    /// Congestion: sets `ssthresh`; sets `cwnd` on [`Congestion::Marked`] and on
    /// [`Congestion::Timeout`] (RFC 5681: one segment). After [`Congestion::Loss`] the sender's
    /// recovery sets `cwnd`. `in_flight` is what was under way, bytes.
    fn on_congestion(&mut self, now: Time, window: &mut Window, cause: Congestion, in_flight: u64);

    /// A retransmission timeout or a recovery proved needless (RFC 3522, 4015; D-SACK): what
    /// [`Controller::on_congestion`] remembered is put back.
    fn undo(&mut self, window: &mut Window);

    /// The rate at which segments should leave, if this controller paces.
    fn pacing_rate(&self) -> Option<Rate> {
        None
    }

    /// Whether the controller sets `cwnd` itself during recovery too (BBR).
    fn owns_recovery(&self) -> bool {
        false
    }
}
