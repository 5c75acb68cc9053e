//! Spurious reductions of the window: detected and undone.
//!
//! A timeout or three duplicate acknowledgements may be caused by delay or reordering alone. Three
//! signs show that. *Eifel* (RFC 3522): the first acknowledgement after the retransmission echoes a
//! timestamp from before it. *F-RTO* (RFC 5682): after a timeout the first acknowledgement that
//! advances is answered with new data instead of repeats; if the next one advances too, or reports
//! originals, they had only been slow. *D-SACK* (RFC 3708): the receiver reports that everything
//! sent again arrived twice. Window and threshold are then restored (RFC 4015).

use nilometer_wire::Time;

use crate::controller::Controller;
use crate::doubt::{Doubt, Step};
use crate::sender::{Arrival, Phase, Sender};
use crate::sequence::unwrap;
use crate::statistics::Statistics;
use crate::timestamps;

/// How many new segments F-RTO sends after the first acknowledgement.
const PROBES: u8 = 2;

impl Sender {
    /// An episode of recovery begins.
    pub(crate) fn doubt(&mut self, step: Step) {
        self.is_doubtful = self.undoes;
        self.probes = 0;
        let step = if self.undoes { step } else { Step::Off };
        self.doubt = Doubt {
            start: self.una,
            until: u64::MAX,
            reduced_until: self.reduced_until,
            had_to_tell: self.cwr,
            step,
            ..Doubt::default()
        };
    }

    /// The timer ran out. If it had already run out and nothing was acknowledged since, the
    /// controller remembers the state before the first timeout, and the first repeat is the one to
    /// compare with.
    pub(crate) fn doubt_timeout(&mut self) {
        match (self.phase, self.retries) {
            (Phase::Loss, 1..) => self.doubt.step = Step::Off,
            (Phase::Open | Phase::Recovery, 0) => self.doubt(Step::First),
            _ => self.doubt(Step::Off),
        }
    }

    /// Nothing will be taken back.
    pub(crate) fn trust(&mut self) {
        self.doubt = Doubt::default();
        self.is_doubtful = false;
        self.probes = 0;
    }

    /// `bytes` were sent again.
    pub(crate) fn doubt_repeat(&mut self, now: Time, bytes: u64) {
        self.doubt.stamp.get_or_insert(timestamps::at(now));
        self.doubt.unexplained += bytes;
    }

    /// Looks for signs in an acknowledgement of `ack` that nothing had been lost; takes the
    /// episode's reductions back if so. Called while an episode is open.
    #[inline(never)]
    pub(crate) fn examine(&mut self, ack: u64, arrival: &Arrival<'_>, counts: &mut Statistics) {
        if ack < self.una {
            return;
        }
        self.explain(ack, arrival);
        let segment = arrival.segment;
        let advances = ack > self.una && self.phase != Phase::Open;
        let is_early = match self.doubt.stamp {
            // Whatever was sent again would have been echoed with its own timestamp.
            Some(stamp) if advances && segment.has_timestamps() && segment.timestamps[1] != 0 => {
                (segment.timestamps[1].wrapping_sub(stamp) as i32) < 0
            }
            _ => false,
        };
        let is_explained = self.doubt.stamp.is_some() && self.doubt.unexplained == 0;
        if is_early || is_explained || self.follow(ack) {
            self.take_back(arrival.now, counts);
        } else if self.phase == Phase::Open {
            // Reports of duplicates come at most a round trip after the end of the episode.
            self.doubt.until = self.doubt.until.min(self.max);
            self.is_doubtful = ack < self.doubt.until;
        }
    }

    /// A D-SACK block explains bytes that were sent again.
    fn explain(&mut self, ack: u64, arrival: &Arrival<'_>) {
        let mut blocks = arrival.segment.blocks();
        let Some([left, right]) = blocks.next() else { return };
        let around = blocks.next();
        let offset = |number| unwrap(self.initial, self.una, number).unwrap_or(0);
        let (left, right) = (offset(left), offset(right));
        let is_inside = around.is_some_and(|[l, r]| offset(l) <= left && right <= offset(r));
        if left >= self.doubt.start && left < right && (right <= ack || is_inside) {
            self.doubt.unexplained = self.doubt.unexplained.saturating_sub(right - left);
        }
    }

    /// F-RTO: whether this acknowledgement shows that the timeout was spurious.
    fn follow(&mut self, ack: u64) -> bool {
        let advances = ack > self.una;
        let saw_original = core::mem::take(&mut self.doubt.saw_original);
        match self.doubt.step {
            Step::Off => false,
            Step::First | Step::Second if saw_original => true,
            _ if ack >= self.recover => {
                self.doubt.step = Step::Off;
                self.probes = 0;
                false
            }
            Step::First if advances && self.next_is_new() => {
                self.doubt.step = Step::Second;
                self.probes = PROBES;
                self.next = self.max;
                false
            }
            Step::Second if advances => true,
            Step::First | Step::Second => {
                self.go_back(ack);
                false
            }
        }
    }

    /// The timeout was right: continue with repeats.
    fn go_back(&mut self, from: u64) {
        if self.doubt.step == Step::Second && !self.has_sack {
            self.next = from;
        }
        self.doubt.step = Step::Off;
        self.probes = 0;
    }

    fn next_is_new(&self) -> bool {
        self.max < self.last() && self.max < self.edge
    }

    fn take_back(&mut self, now: Time, counts: &mut Statistics) {
        counts.undone += 1;
        self.controller.undo(now, &mut self.window);
        if !self.doubt.had_to_tell {
            self.cwr = false;
            self.reduced_until = self.doubt.reduced_until;
        }
        self.trust();
        self.phase = Phase::Open;
        self.repeat_first = false;
        self.after_timeout = false;
        self.duplicates = 0;
        self.inflation = 0;
        self.next = self.max;
        self.scoreboard.unlose();
        self.rtt.forget_backoff();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    /// F-RTO continues only with new data (RFC 5682, section 2.1, step 2): there has to be some,
    /// and the peer's window has to have room for it.
    #[test]
    fn new_data_is_what_was_written_and_fits_the_peers_window() {
        let mut sender = Sender::new(&Config::rfc(), 0);
        let mut is_new = |max, end, has_fin, edge| {
            (sender.max, sender.end, sender.has_fin, sender.edge) = (max, end, has_fin, edge);
            sender.next_is_new()
        };
        assert!(is_new(5_001, 8_001, false, 9_001));
        assert!(is_new(5_001, 5_002, false, 5_002), "a byte");
        assert!(!is_new(5_001, 5_001, false, 9_001), "nothing was written");
        assert!(is_new(5_001, 5_001, true, 9_001), "a FIN");
        assert!(!is_new(5_002, 5_001, true, 9_001), "which was sent");
        assert!(!is_new(5_001, 8_001, false, 5_001), "no room");
        assert!(!is_new(5_001, 8_001, false, 4_001), "less than none");
    }
}
