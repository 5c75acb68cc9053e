//! Reno: one segment more per round trip, half the window less per loss (RFC 5681).
//!
//! Below `ssthresh` the window doubles each round trip; above it grows by one segment for each window
//! that was acknowledged. RFC 5681 writes that as `cwnd += MSS·MSS / cwnd` per acknowledgement. Here
//! what was acknowledged is counted instead, and the window grows when the count fills it: the same
//! growth without a division, exact in integers, and what RFC 5681 itself recommends (3.1). The
//! window is then always what it was after the last cut plus whole segments.
//!
//! *What* is counted is a choice, [`Growth`]. Bytes are the modern one (appropriate byte counting, RFC
//! 3465): a receiver that delays its acknowledgements does not slow the sender, and one that splits
//! them does not speed it up. Acknowledgements are what ns-2 and 4.3BSD count, and what the studies
//! of the nineties and the closed forms with `b` mean. In slow start bytes count up to two segments
//! for one acknowledgement, and up to one after a timeout (RFC 3465, 2.3), since an acknowledgement
//! that covers much may then only report what had arrived before.

use nilometer_wire::Time;

use super::{Acked, Congestion, Controller, Window};
use crate::config::Growth;

/// Segments that one acknowledgement may add in slow start (RFC 3465, 2.2).
const SLOW_START_LIMIT: u64 = 2;

/// Reno's state: 40 bytes, those that every acknowledgement needs in front.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Reno {
    /// Bytes counted towards the next segment of growth.
    counted: u64,
    growth: Growth,
    /// Whether slow start follows a timeout.
    is_after_timeout: bool,
    /// Window and threshold before the last cut.
    before: Option<(u64, u64)>,
}

impl Reno {
    /// A controller that counts what `growth` says.
    pub const fn new(growth: Growth) -> Reno {
        Reno { growth, is_after_timeout: false, counted: 0, before: None }
    }

    /// `bytes`, not zero, were acknowledged to a sender limited by the window.
    #[inline(always)]
    pub(crate) fn grow(&mut self, window: &mut Window, bytes: u64) {
        if window.cwnd < window.ssthresh {
            self.slow_start(window, bytes);
        } else {
            self.avoid_congestion(window, bytes);
        }
    }

    #[inline(never)]
    fn slow_start(&mut self, window: &mut Window, bytes: u64) {
        let segments = if self.is_after_timeout { 1 } else { SLOW_START_LIMIT };
        let mss = u64::from(window.mss);
        window.cwnd += match self.growth {
            Growth::Bytes => bytes.min(segments * mss),
            Growth::Acknowledgements => mss,
        };
    }

    #[inline(always)]
    fn avoid_congestion(&mut self, window: &mut Window, bytes: u64) {
        self.is_after_timeout = false;
        let mss = u64::from(window.mss);
        self.counted += match self.growth {
            Growth::Bytes => bytes,
            Growth::Acknowledgements => mss,
        };
        if self.counted >= window.cwnd {
            self.counted -= window.cwnd;
            window.cwnd += mss;
        }
    }
}

impl Controller for Reno {
    #[inline]
    fn on_ack(&mut self, window: &mut Window, acked: &Acked) {
        if !acked.in_recovery && acked.is_window_limited && acked.bytes > 0 {
            self.grow(window, acked.bytes);
        }
    }

    fn on_congestion(&mut self, _: Time, window: &mut Window, cause: Congestion, in_flight: u64) {
        let mss = u64::from(window.mss);
        self.before = Some((window.cwnd, window.ssthresh));
        self.counted = 0;
        window.ssthresh = (in_flight / 2).max(2 * mss);
        match cause {
            Congestion::Loss => {}
            Congestion::Marked => window.cwnd = window.ssthresh,
            Congestion::Timeout => {
                window.cwnd = mss;
                self.is_after_timeout = true;
            }
        }
    }

    fn undo(&mut self, _: Time, window: &mut Window) {
        if let Some((cwnd, ssthresh)) = self.before.take() {
            window.cwnd = window.cwnd.max(cwnd);
            window.ssthresh = window.ssthresh.max(ssthresh);
            self.is_after_timeout = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1_000;

    fn window(cwnd: u64, ssthresh: u64) -> Window {
        Window { cwnd: cwnd * MSS, ssthresh: ssthresh * MSS, mss: MSS as u32 }
    }

    fn ack(bytes: u64) -> Acked {
        Acked { bytes, is_window_limited: true, ..Acked::default() }
    }

    #[test]
    fn the_window_doubles_in_slow_start_and_grows_by_one_afterwards() {
        for growth in [Growth::Bytes, Growth::Acknowledgements] {
            let mut reno = Reno::new(growth);
            let mut window = window(1, 16);
            let mut seen = alloc::vec::Vec::new();
            for _ in 0..8 {
                seen.push(window.cwnd / MSS);
                for _ in 0..window.cwnd / MSS {
                    reno.on_ack(&mut window, &ack(MSS));
                }
            }
            assert_eq!(seen, [1, 2, 4, 8, 16, 17, 18, 19]);
        }
    }

    #[test]
    fn delayed_acknowledgements_slow_only_growth_per_acknowledgement() {
        let grown = |growth, cwnd, ssthresh| {
            let mut reno = Reno::new(growth);
            let mut window = window(cwnd, ssthresh);
            for _ in 0..20 {
                reno.on_ack(&mut window, &ack(2 * MSS));
            }
            window.cwnd / MSS - cwnd
        };
        assert_eq!(grown(Growth::Bytes, 20, 1_000), 40);
        assert_eq!(grown(Growth::Acknowledgements, 20, 1_000), 20);
        assert_eq!(grown(Growth::Bytes, 19, 2), 2); // 19 and 20 segments of 40
        assert_eq!(grown(Growth::Acknowledgements, 19, 2), 1);
    }

    #[test]
    fn one_acknowledgement_opens_two_segments_and_after_a_timeout_one() {
        let mut reno = Reno::new(Growth::Bytes);
        let mut window = window(10, 100);
        reno.on_ack(&mut window, &ack(8 * MSS));
        assert_eq!(window.cwnd, 12 * MSS);
        reno.on_congestion(Time::ZERO, &mut window, Congestion::Timeout, 12 * MSS);
        assert_eq!((window.cwnd, window.ssthresh), (MSS, 6 * MSS));
        reno.on_ack(&mut window, &ack(8 * MSS));
        assert_eq!(window.cwnd, 2 * MSS);
    }

    /// RFC 5681, equation 3, in real numbers is the naive twin. It takes half an acknowledgement more
    /// per window, since it grows within one, and has no whole segments.
    #[test]
    fn growth_is_that_of_the_equation() {
        let mut reno = Reno::new(Growth::Acknowledgements);
        let mut window = window(10, 2);
        let mut twin = 10.0_f64;
        for _ in 0..20_000 {
            reno.on_ack(&mut window, &ack(MSS));
            twin += 1.0 / twin;
            let cwnd = window.cwnd as f64 / MSS as f64;
            assert!((cwnd - twin).abs() < 1.6, "{cwnd} against {twin}");
        }
        assert!(twin > 199.0);
    }

    #[test]
    fn loss_halves_the_flight_and_undo_restores_the_window() {
        for cause in [Congestion::Loss, Congestion::Marked, Congestion::Timeout] {
            let mut reno = Reno::new(Growth::Bytes);
            let mut window = window(20, 1_000);
            let before = window;
            reno.on_congestion(Time::ZERO, &mut window, cause, 18 * MSS);
            assert_eq!(window.ssthresh, 9 * MSS);
            let expected = match cause {
                Congestion::Loss => 20,
                Congestion::Marked => 9,
                Congestion::Timeout => 1,
            };
            assert_eq!(window.cwnd, expected * MSS);
            reno.undo(Time::ZERO, &mut window);
            assert_eq!(window, before);
            window.cwnd = MSS;
            reno.undo(Time::ZERO, &mut window);
            assert_eq!(window.cwnd, MSS, "what was put back once is forgotten");
        }
        let mut window = window(1, 1_000);
        Reno::new(Growth::Bytes).on_congestion(Time::ZERO, &mut window, Congestion::Loss, MSS);
        assert_eq!(window.ssthresh, 2 * MSS, "never below two segments");
    }

    #[test]
    fn a_window_that_is_not_used_does_not_grow() {
        let mut reno = Reno::new(Growth::Bytes);
        let mut window = window(10, 100);
        reno.on_ack(&mut window, &Acked { is_window_limited: false, ..ack(MSS) });
        reno.on_ack(&mut window, &Acked { in_recovery: true, ..ack(MSS) });
        assert_eq!(window.cwnd, 10 * MSS);
    }
}
