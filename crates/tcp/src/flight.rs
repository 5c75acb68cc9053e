//! A record of each segment under way: round-trip times and delivery rates for controllers that
//! need them.
//!
//! Reno needs one round-trip time per window, which the sender measures without any record. Slow
//! start that watches the delay (RFC 9406) needs one from each acknowledgement, BBR also the rate
//! at which data was delivered while a segment was under way (draft-ietf-ccwg-bbr, section 4.1):
//! what arrived between its departure and its acknowledgement, over the longer of the time to send
//! that and the time to have it acknowledged. Segments are entered at the end and leave at the
//! front; a segment sent again is found by bisection and entered anew in its place.

use alloc::collections::VecDeque;

use nilometer_wire::{Span, Time};

use crate::controller::{Delivery, Lost};

const SACKED: u8 = 1;
const LOST: u8 = 2;
const REPEATED: u8 = 4;
const APP_LIMITED: u8 = 8;
const PICOS_PER_SECOND: f64 = 1e12;

/// A segment under way; it begins where the one before it ends.
#[derive(Clone, Copy, Debug)]
struct Sent {
    right: u64,
    at: Time,
    /// When the first segment of its flight was sent.
    first_at: Time,
    delivered_at: Time,
    delivered: u64,
    lost: u64,
    in_flight: u64,
    length: u32,
    marks: u8,
}

/// Of the segments just delivered, the one sent last, from which samples are taken.
#[derive(Clone, Copy, Debug)]
struct Newest(Sent);

#[derive(Clone, Debug, Default)]
pub(crate) struct Flight {
    list: VecDeque<Sent>,
    /// Bytes delivered, and when the last of them were.
    delivered: u64,
    delivered_at: Time,
    first_at: Time,
    lost: u64,
    /// Until this many bytes were delivered, samples are limited by the application.
    app_limited: u64,
    /// Below it every segment was looked at for loss.
    lost_edge: u64,
    newest: Option<Newest>,
    /// What the last acknowledgement measured.
    measured: Option<Delivery>,
    least_rtt: Option<Span>,
    is_for_timeout: bool,
}

impl Flight {
    /// No segments yet. Their round-trip times are for the controller, and for the timeout if it
    /// `is_for_timeout`: RFC 6298's averages are meant for one sample per window, and with one of
    /// each acknowledgement forget the deviation within a round trip (RFC 7323, appendix G).
    pub fn new(is_for_timeout: bool) -> Flight {
        Flight { is_for_timeout, ..Flight::default() }
    }

    /// Whether round-trip times are for the timeout, too.
    pub fn is_for_timeout(&self) -> bool {
        self.is_for_timeout
    }

    /// `[start, right)` was sent, with `in_flight` bytes under way including it.
    pub fn sent(&mut self, now: Time, start: u64, right: u64, in_flight: u64) {
        if self.list.is_empty() {
            self.first_at = now;
            self.delivered_at = now;
        }
        let mut entry = Sent {
            right,
            at: now,
            first_at: self.first_at,
            delivered_at: self.delivered_at,
            delivered: self.delivered,
            lost: self.lost,
            in_flight,
            length: (right - start) as u32,
            marks: if self.app_limited > 0 { APP_LIMITED } else { 0 },
        };
        if self.list.back().is_none_or(|last| last.right <= start) {
            self.list.push_back(entry);
            return;
        }
        let from = self.list.partition_point(|sent| sent.right <= start);
        for old in self.list.range_mut(from..) {
            if old.right - u64::from(old.length) >= right {
                break;
            }
            if old.marks & SACKED == 0 {
                (entry.right, entry.length) = (old.right, old.length);
                entry.marks |= REPEATED;
                *old = entry;
            }
        }
    }

    /// Nothing to send though the window is open: `in_flight` bytes are under way.
    pub fn application_pauses(&mut self, in_flight: u64) {
        self.app_limited = (self.delivered + in_flight).max(1);
    }

    /// Everything below `una` has arrived.
    pub fn acknowledge(&mut self, now: Time, una: u64) {
        while let Some(first) = self.list.front_mut() {
            if first.right > una {
                let left = first.right - u64::from(first.length);
                if left < una {
                    first.length = (first.right - una) as u32;
                }
                break;
            }
            let sent = *first;
            self.list.pop_front();
            self.deliver(now, sent);
        }
    }

    /// `[left, right)` has arrived out of order.
    pub fn acknowledge_range(&mut self, now: Time, left: u64, right: u64) {
        let from = self.list.partition_point(|sent| sent.right <= left);
        for at in from..self.list.len() {
            let Some(sent) = self.list.get_mut(at).filter(|sent| sent.right <= right) else {
                break;
            };
            let before = *sent;
            sent.marks = (sent.marks | SACKED) & !LOST;
            self.deliver(now, before);
        }
    }

    fn deliver(&mut self, now: Time, sent: Sent) {
        if sent.marks & SACKED != 0 {
            return;
        }
        self.delivered += u64::from(sent.length);
        self.delivered_at = now;
        let is_newest = self
            .newest
            .is_none_or(|Newest(other)| (sent.at, sent.delivered) >= (other.at, other.delivered));
        if is_newest {
            self.newest = Some(Newest(sent));
        }
    }

    /// The delivery rate that the last [`Flight::sample`] found.
    pub fn take_delivery(&mut self) -> Option<Delivery> {
        self.measured.take()
    }

    /// Evaluates the acknowledgement at `now`, all its ranges entered; returns its round-trip time.
    pub fn sample(&mut self, now: Time) -> Option<Span> {
        if self.app_limited > 0 && self.delivered > self.app_limited {
            self.app_limited = 0;
        }
        self.measured = None;
        let Newest(sent) = self.newest.take()?;
        let rtt = (sent.marks & REPEATED == 0).then(|| now.since(sent.at));
        if let Some(rtt) = rtt {
            self.least_rtt = Some(self.least_rtt.map_or(rtt, |least| least.min(rtt)));
        }
        self.first_at = sent.at;
        let sending = sent.at.since(sent.first_at);
        let interval = sending.max(self.delivered_at.since(sent.delivered_at));
        // Too short an interval is an artefact of acknowledgements that came in a bunch.
        let is_long_enough = self.least_rtt.is_some_and(|least| interval >= least);
        let bytes = self.delivered - sent.delivered;
        let rate = if is_long_enough && interval > Span::ZERO {
            (bytes as f64 * PICOS_PER_SECOND / interval.0 as f64) as u64
        } else {
            0
        };
        self.measured = Some(Delivery {
            bytes_per_second: rate,
            is_app_limited: sent.marks & APP_LIMITED != 0,
            lost: self.lost - sent.lost,
            delivered: self.delivered,
            prior_delivered: sent.delivered,
            sent_in_flight: sent.in_flight,
        });
        rtt
    }

    /// What lies below `edge` and did not arrive is lost; calls `tell` for each segment not yet
    /// known to be lost.
    pub fn lose_below(&mut self, now: Time, edge: u64, mut tell: impl FnMut(&Lost)) {
        if edge <= self.lost_edge {
            return;
        }
        let from = self.list.partition_point(|sent| sent.right <= self.lost_edge);
        self.lost_edge = edge;
        for at in from..self.list.len() {
            if self.list[at].right > edge {
                break;
            }
            self.lose(now, at, &mut tell);
        }
    }

    /// The segment that ends at `right` is lost.
    pub fn lose_one(&mut self, now: Time, right: u64, mut tell: impl FnMut(&Lost)) {
        let at = self.list.partition_point(|sent| sent.right < right);
        if at < self.list.len() {
            self.lose(now, at, &mut tell);
        }
    }

    fn lose(&mut self, now: Time, at: usize, tell: &mut impl FnMut(&Lost)) {
        let sent = &mut self.list[at];
        if sent.marks & (SACKED | LOST) != 0 {
            return;
        }
        sent.marks |= LOST;
        self.lost += u64::from(sent.length);
        tell(&Lost {
            now,
            bytes: u64::from(sent.length),
            lost: self.lost - sent.lost,
            delivered: self.delivered,
            sent_in_flight: sent.in_flight,
            is_app_limited: sent.marks & APP_LIMITED != 0,
        });
    }

    /// A timeout: everything is looked at again.
    pub fn forget_lost_edge(&mut self) {
        self.lost_edge = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Algorithm, Config, Recovery};
    use crate::segment::Segment;
    use crate::sender::{Arrival, Sender};
    use crate::statistics::Statistics;

    /// Lets go all that was written, as fast as pacing does.
    fn send(sender: &mut Sender, now: &mut Time) {
        let mut counts = Statistics::default();
        while sender.transmit(*now, &mut counts).is_some() || sender.is_paced {
            *now = sender.paced_until.max(*now);
        }
    }

    /// With either kind of loss recovery, pauses are recorded and data in flight is counted in the same way.
    #[test]
    fn both_loss_recoveries_record_bytes_in_flight_and_application_pauses() {
        for recovery in [Recovery::Sack, Recovery::Rack] {
            let config = Config { recovery, algorithm: Algorithm::Bbr, ..Config::linux() };
            let mut sender = Sender::new(&config, 0);
            sender.has_sack = true;
            sender.begin(1_000, &config);
            (sender.una, sender.next, sender.max, sender.edge) = (1, 1, 1, 1 << 30);
            sender.write(6_000);
            let mut now = Time::from_nanos(1_000_000);
            send(&mut sender, &mut now);
            let paused = sender.flight.as_ref().map(|flight| flight.app_limited);
            assert_eq!(paused, Some(6_000), "{recovery:?}");
            let mut segment = Segment::default();
            segment.push_block(1_001, 6_001);
            now += Span::from_nanos(20_000_000);
            let arrival = Arrival { now, segment: &segment, echoed: None, is_bare: true };
            sender.on_ack(1, &arrival, &mut Statistics::default());
            // The first is repaired, and two are new.
            sender.write(2_000);
            send(&mut sender, &mut now);
            let last = sender.flight.as_ref().and_then(|flight| flight.list.back());
            assert_eq!(last.map(|sent| (sent.right, sent.in_flight)), Some((8_001, 3_000)));
        }
    }

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    /// Four segments of a thousand bytes, ten milliseconds apart from 10 ms on.
    fn four() -> Flight {
        let mut flight = Flight::new(true);
        for k in 0..4 {
            flight.sent(at(10 + 10 * k), 1_000 * k, 1_000 * (k + 1), 1_000 * (k + 1));
        }
        flight
    }

    /// Delivery rate estimation (draft-ietf-ccwg-bbr, 4.1): bytes delivered since the segment left,
    /// over the longer of the time it took to send them and to have them acknowledged.
    #[test]
    fn a_sample_is_of_the_newest_segment_that_arrived() {
        let mut flight = four();
        flight.acknowledge(at(60), 1_000);
        assert_eq!(flight.sample(at(60)), Some(Span::from_nanos(50_000_000)));
        let delivery = flight.take_delivery().expect("a sample");
        assert_eq!((delivery.delivered, delivery.prior_delivered), (1_000, 0));
        assert_eq!((delivery.bytes_per_second, delivery.sent_in_flight), (20_000, 1_000));
        assert!(flight.take_delivery().is_none(), "it is told once");
        flight.acknowledge_range(at(90), 2_000, 4_000);
        assert_eq!(flight.sample(at(90)), Some(Span::from_nanos(50_000_000)));
        let delivery = flight.take_delivery().expect("a sample");
        assert_eq!((delivery.delivered, delivery.bytes_per_second), (3_000, 37_500));
        // What has arrived already is no news.
        flight.acknowledge_range(at(95), 2_000, 4_000);
        assert!(flight.sample(at(95)).is_none() && flight.take_delivery().is_none());
        // It took 56 ms from the last one's leaving to this one's, the longer of the two.
        flight.sent(at(96), 4_000, 5_000, 2_000);
        flight.acknowledge_range(at(97), 4_000, 5_000);
        assert_eq!(flight.sample(at(97)), Some(Span::from_nanos(1_000_000)));
        let rate = flight.take_delivery().map(|delivery| delivery.bytes_per_second);
        assert_eq!(rate, Some(17_857));
    }

    /// An interval below the shortest round trip gives no rate, one as long does.
    #[test]
    fn an_interval_shorter_than_any_round_trip_gives_no_rate() {
        for (now, expected) in [(215, 0), (249, 0), (250, 20_000)] {
            let mut flight = four();
            flight.acknowledge(at(60), 1_000);
            flight.sample(at(60));
            flight.acknowledge(at(95), 4_000);
            flight.sample(at(95));
            flight.sent(at(200), 4_000, 5_000, 1_000);
            flight.sent(at(210), 4_000, 5_000, 1_000);
            flight.acknowledge(at(now), 5_000);
            assert_eq!(flight.sample(at(now)), None, "sent again");
            let rate = flight.take_delivery().map(|delivery| delivery.bytes_per_second);
            assert_eq!(rate, Some(expected), "{now} ms");
        }
    }

    /// A segment sent again gives no round-trip time, and a part of one stays a segment.
    #[test]
    fn retransmitted_segments_give_no_round_trip() {
        let mut flight = four();
        flight.sent(at(70), 1_000, 3_000, 4_000);
        flight.acknowledge(at(90), 1_000);
        assert_eq!(flight.sample(at(90)), Some(Span::from_nanos(80_000_000)));
        flight.acknowledge(at(100), 1_500);
        assert_eq!(flight.sample(at(100)), None, "nothing whole");
        flight.acknowledge(at(110), 2_000);
        assert_eq!(flight.sample(at(110)), None, "it was sent again");
        let delivered = flight.take_delivery().map(|delivery| delivery.delivered);
        assert_eq!(delivered, Some(1_500), "of the second only what was left");
        flight.acknowledge(at(120), 4_000);
        assert_eq!(flight.sample(at(120)), None, "the third was the newest");
    }

    /// Each loss is reported once, up to its edge and no further.
    #[test]
    fn losses_are_reported_once() {
        let mut reported = alloc::vec::Vec::new();
        let mut flight = four();
        flight.acknowledge_range(at(60), 1_000, 2_000);
        let mut lose = |flight: &mut Flight, edge| {
            flight.lose_below(at(70), edge, |lost| reported.push((lost.bytes, lost.lost, edge)));
        };
        lose(&mut flight, 999);
        lose(&mut flight, 1_000);
        lose(&mut flight, 1_000);
        lose(&mut flight, 3_999);
        flight.forget_lost_edge();
        lose(&mut flight, 3_999);
        lose(&mut flight, 4_000);
        assert_eq!(reported, [(1_000, 1_000, 1_000), (1_000, 2_000, 3_999), (1_000, 3_000, 4_000)]);
        let mut flight = four();
        for (right, expected) in [(2_000, 1), (2_000, 1), (4_000, 2), (4_001, 2), (9_000, 2)] {
            flight.lose_one(at(70), right, |lost| assert_eq!(lost.sent_in_flight, right));
            assert_eq!(flight.lost, 1_000 * expected, "{right}");
        }
    }

    /// What is sent in a pause is limited by the application, until all of before is delivered.
    #[test]
    fn a_pause_ends_when_the_data_in_flight_are_delivered() {
        let mut flight = Flight::new(true);
        flight.sent(at(10), 0, 1_000, 1_000);
        flight.application_pauses(1_000);
        flight.sent(at(20), 1_000, 2_000, 2_000);
        // All that was sent before, and then a byte more than that.
        for (now, una, expected, until) in [(60, 1_000, false, 1_000), (70, 2_000, true, 0)] {
            flight.acknowledge(at(now), una);
            flight.sample(at(now));
            let delivery = flight.take_delivery().expect("a sample");
            assert_eq!((delivery.is_app_limited, flight.app_limited), (expected, until), "{una}");
        }
        flight.sent(at(80), 2_000, 3_000, 1_000);
        flight.acknowledge(at(120), 3_000);
        flight.sample(at(120));
        assert_eq!(flight.take_delivery().map(|delivery| delivery.is_app_limited), Some(false));
        flight.application_pauses(0);
        assert_eq!(flight.app_limited, 3_000);
    }
}
