//! Header prediction: the two segments that nearly all segments are (Jacobson 1990; Stevens, TCP/IP
//! Illustrated, volume 2, 28.4).
//!
//! In an established connection a segment is nearly always either the next data, from a peer to which
//! nothing of ours is under way, or a bare acknowledgement of new data of ours. That it is one of the
//! two shows in a few comparisons, and then most of what the general path asks is known. Whatever is
//! not as predicted takes the general path, which would have done the same.

use nilometer_wire::{Ecn, Time};

use crate::connection::Connection;
use crate::segment::{ACK, PSH, Segment};
use crate::sender::Arrival;
use crate::sequence::wrap;
use crate::state::State;

impl Connection {
    /// Takes the segment if it is as predicted; otherwise nothing has happened.
    #[inline(always)]
    pub(crate) fn receive_predicted(&mut self, now: Time, segment: &Segment, ecn: Ecn) -> bool {
        let is_ordinary = self.state == State::Established
            && segment.flags & !PSH == ACK
            && segment.has_timestamps_alone(self.has_timestamps)
            && segment.sequence == wrap(self.receiver.initial, self.receiver.next);
        if !is_ordinary || (self.has_timestamps && !self.is_timely(now, segment)) {
            return false;
        }
        let sender = &mut self.sender;
        let start = self.receiver.next;
        let una = wrap(sender.initial, sender.una);
        let news = u64::from(segment.acknowledgement.wrapping_sub(una));
        let window = u64::from(segment.window) << self.peer_scale;
        if news == 0 {
            let is_expected = segment.length > 0
                && sender.una == sender.max
                && ecn != Ecn::Congestion
                && !sender.is_doubtful
                && sender.repair.is_none()
                && self.receiver.takes_next(segment.length);
            if is_expected {
                // A sender that has nothing to send has nothing to send.
                sender.is_spent &= sender.una == sender.last();
                sender.update_window(start, sender.una, window);
                sender.hold.on_ack();
                if self.has_timestamps {
                    self.keep_timestamp(now, start, segment);
                }
                self.receiver.take_next(now, segment.length);
            }
            return is_expected;
        }
        if segment.length > 0 || news > sender.max - sender.una {
            return false;
        }
        let ack = sender.una + news;
        sender.is_spent = false;
        let is_bare = !sender.update_window(start, ack, window);
        let is_echoed = self.has_timestamps && sender.timed.is_none();
        let echoed = if is_echoed { self.echoed(now, segment) } else { None };
        let arrival = Arrival { now, segment, echoed, is_bare };
        self.sender.on_ack(ack, &arrival, &mut self.statistics);
        self.sender.hold.on_ack();
        if self.has_timestamps {
            self.keep_timestamp(now, start, segment);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::connection::Outgoing;
    use crate::transmit::Chunk;
    use alloc::collections::VecDeque;
    use alloc::format;
    use nilometer_wire::Span;

    fn next(state: &mut u64, below: u64) -> u64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (*state >> 33) % below
    }

    /// Hands over a segment on both paths, which must leave the same connection; what is not predicted
    /// must have left it alone.
    fn hand(end: &mut Connection, now: Time, segment: &Segment, ecn: Ecn) -> bool {
        let mut general = end.clone();
        let mut predicted = end.clone();
        let is_predicted = predicted.receive_predicted(now, segment, ecn);
        if is_predicted {
            general.receive_synchronized(now, segment, ecn);
            general.sender.is_spent = predicted.sender.is_spent;
        }
        assert_eq!(format!("{general:?}"), format!("{predicted:?}"));
        end.receive(now, segment, ecn);
        is_predicted
    }

    /// An acknowledgement of something new, if that is what `segment` is, must leave the same sender on
    /// the plain path, which the sender chooses itself, and on the general one; whether it chose it.
    fn acknowledge(end: &Connection, now: Time, segment: &Segment) -> bool {
        let una = wrap(end.sender.initial, end.sender.una);
        let news = u64::from(segment.acknowledgement.wrapping_sub(una));
        if news == 0 || news > end.sender.max - end.sender.una {
            return false;
        }
        let (mut plain, mut general) = (end.clone(), end.clone());
        let ack = end.sender.una + news;
        let arrival = Arrival { now, segment, echoed: None, is_bare: true };
        plain.sender.on_ack(ack, &arrival, &mut plain.statistics);
        general.sender.on_ack_unusual(ack, &arrival, &mut general.statistics);
        assert_eq!(format!("{plain:?}"), format!("{general:?}"));
        end.sender.is_plain(segment)
    }

    /// A plain segment of new data must be what the general path sends; whether there is one.
    fn send(end: &Connection, now: Time) -> bool {
        let mut plain = end.clone();
        let sent = plain.sender.transmit_plain(now, &mut plain.statistics);
        let mut general = end.clone();
        if let Some(start) = sent {
            let chunk = general.sender.transmit(now, &mut general.statistics);
            let length = end.sender.window.mss;
            let expected =
                Chunk { start, length, has_fin: false, is_repeat: false, has_cwr: false };
            assert_eq!(chunk, Some(expected));
        }
        assert_eq!(format!("{plain:?}"), format!("{general:?}"));
        sent.is_some()
    }

    /// Asks for a segment. A spent sender must have none, and asking it must change nothing.
    fn ask(end: &mut Connection, now: Time, in_vain: &mut u64) -> Option<Outgoing> {
        let out = end.poll_transmit(now);
        if out.is_none() && end.sender.is_spent {
            let mut other = end.clone();
            other.sender.is_spent = false;
            assert_eq!(other.poll_transmit(now), None);
            other.sender.is_spent = true;
            assert_eq!(format!("{other:?}"), format!("{end:?}"));
            *in_vain += 1;
        }
        out
    }

    /// Two ends that write at random, over ways that lose, mark and reorder.
    #[test]
    fn what_is_predicted_is_what_the_general_path_does() {
        let (mut predicted, mut all, mut in_vain, mut plain) = (0, 0, 0, [0; 2]);
        for seed in 0..120u64 {
            let mut state = seed;
            let profiles = [Config::ns2_reno, Config::rfc, Config::linux, Config::fulltcp];
            let mut config = profiles[seed as usize % 4]();
            config.timestamps = seed % 3 == 0;
            let mut ends =
                [Connection::connect(config, 7), Connection::listen(config, u32::MAX - 5000)];
            let mut ways: [VecDeque<(Time, Segment, Ecn)>; 2] = Default::default();
            let mut now = Time::ZERO;
            for _ in 0..1500 {
                now += Span::from_nanos(1_000_000);
                for end in 0..2 {
                    if next(&mut state, 30) == 0 {
                        ends[end].write(next(&mut state, 20_000));
                    }
                    let due = |way: &VecDeque<(Time, Segment, Ecn)>| {
                        way.front().is_some_and(|first| first.0 <= now)
                    };
                    while due(&ways[end]) {
                        let (_, segment, ecn) = ways[end].pop_front().expect("a segment");
                        all += 1;
                        plain[0] += u64::from(acknowledge(&ends[end], now, &segment));
                        predicted += u64::from(hand(&mut ends[end], now, &segment, ecn));
                    }
                    if ends[end].poll_timeout().is_some_and(|at| at <= now) {
                        ends[end].handle_timeout(now);
                    }
                    plain[1] += u64::from(ends[end].state.sends() && send(&ends[end], now));
                    while let Some(out) = ask(&mut ends[end], now, &mut in_vain) {
                        let lost = next(&mut state, 60) == 0;
                        let ecn = if next(&mut state, 60) == 0 { Ecn::Congestion } else { out.ecn };
                        let late = if next(&mut state, 40) == 0 { 30 } else { 10 };
                        if !lost {
                            let lands = now + Span::from_nanos(1_000_000 * late);
                            ways[1 - end].push_back((lands, out.segment, ecn));
                        }
                    }
                }
            }
        }
        assert!(predicted * 8 > all && predicted < all, "{predicted} of {all}");
        assert!(in_vain * 8 > all, "{in_vain} of {all}");
        assert!(plain.iter().all(|&plain| plain * 40 > all), "{plain:?} of {all}");
    }
}
