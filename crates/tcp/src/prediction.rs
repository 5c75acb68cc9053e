//! Header prediction: the two segments that nearly all segments are (Jacobson 1990; Stevens, TCP/IP
//! Illustrated, volume 2, 28.4).
//!
//! In an established connection a segment is nearly always either the next data, from a peer to which
//! nothing of ours is under way, or a bare acknowledgement of new data of ours. A few comparisons
//! show whether it is one of the two, and then most of what the general path checks is known. Any
//! other segment takes the general path, which would treat a predicted segment in the same way.

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
                && sender.rack_state.is_none()
                && self.receiver.takes_next(segment.length);
            if is_expected {
                // A sender with nothing unsent is spent.
                sender.is_spent &= sender.una == sender.last();
                sender.update_window(start, sender.una, window);
                sender.nagle.on_ack();
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
        self.sender.nagle.on_ack();
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
    use crate::segment::{ECE, FIN, SYN};
    use crate::transmit::Chunk;
    use alloc::collections::VecDeque;
    use alloc::format;
    use nilometer_stat::Rng;
    use nilometer_wire::Span;

    /// Delivers a segment on both paths, which must leave the same connection; an unpredicted segment
    /// must leave it unchanged.
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

    /// If `segment` acknowledges something new, the plain path, which the sender chooses itself, and
    /// the general one must leave the same sender. Returns whether the sender chose the plain path.
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

    /// Polls for a segment. A spent sender must have none, and polling it must change nothing.
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
    fn the_predicted_path_agrees_with_the_general_path() {
        let (mut predicted, mut all, mut in_vain, mut plain) = (0, 0, 0, [0; 2]);
        for seed in 0..120u64 {
            let mut rng = Rng::new(seed, 0, 0);
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
                    if rng.below(30) == 0 {
                        ends[end].write(rng.below(20_000));
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
                        let lost = rng.below(60) == 0;
                        let ecn = if rng.below(60) == 0 { Ecn::Congestion } else { out.ecn };
                        let late = if rng.below(40) == 0 { 30 } else { 10 };
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
    /// Established, with 3,000 bytes of ours under way if `sends`; the peer's numbers begin at 1,001.
    fn established(config: Config, sends: bool) -> Connection {
        let config = Config { receive_buffer: 9_000, initial_window: 10, ..config };
        let mut end = Connection::connect(config, 7);
        let now = Time::from_nanos(1_000_000);
        let syn = end.poll_transmit(now).expect("a SYN").segment;
        let mut answer = plain(8, 0);
        (answer.sequence, answer.flags) = (1_000, SYN | ACK);
        answer.set_mss(1_000);
        if config.timestamps {
            answer.set_timestamps(50, syn.timestamps[0]);
        }
        end.receive(now, &answer, Ecn::NotCapable);
        end.write(if sends { 3_000 } else { 0 });
        while end.poll_transmit(now).is_some() {}
        let under_way = end.sender.max - end.sender.una;
        assert_eq!((end.state, under_way), (State::Established, if sends { 3_000 } else { 0 }));
        end
    }

    /// A bare acknowledgement or, with a length, data.
    fn plain(acknowledgement: u32, length: u16) -> Segment {
        let mut segment = Segment::default();
        segment.acknowledge([1_001, acknowledgement], length, 60_000, 0);
        segment
    }

    /// Whether it is predicted; if not, nothing has happened.
    fn predicts(end: &Connection, segment: &Segment, ecn: Ecn) -> bool {
        let mut after = end.clone();
        let is_predicted = after.receive_predicted(Time::from_nanos(9_000_000), segment, ecn);
        assert_eq!(is_predicted, format!("{after:?}") != format!("{end:?}"));
        is_predicted
    }

    type Case = (&'static str, bool, fn(&mut Connection), fn(&mut Segment));

    fn try_all(end: &Connection, segment: Segment, cases: &[Case]) {
        for (why, expected, change_end, change_segment) in cases {
            let (mut end, mut segment) = (end.clone(), segment);
            change_end(&mut end);
            change_segment(&mut segment);
            assert_eq!(predicts(&end, &segment, Ecn::NotCapable), *expected, "{why}");
        }
    }

    const BOTH: [Case; 9] = [
        ("ordinary", true, |_| {}, |_| {}),
        ("pushed", true, |_| {}, |segment| segment.flags |= PSH),
        ("another state", false, |end| end.state = State::CloseWait, |_| {}),
        ("a FIN", false, |_| {}, |segment| segment.flags |= FIN),
        ("an echo of a mark", false, |_| {}, |segment| segment.flags |= ECE),
        ("no acknowledgement", false, |_| {}, |segment| segment.flags = PSH),
        ("later", false, |_| {}, |segment| segment.sequence += 1),
        ("earlier", false, |_| {}, |segment| segment.sequence -= 1),
        ("a report", false, |_| {}, |segment| assert!(segment.push_block(1, 2))),
    ];

    #[test]
    fn the_next_data_is_predicted_where_nothing_of_ours_is_under_way() {
        let end = established(Config::ns2_reno(), false);
        let data = plain(8, 500);
        try_all(&end, data, &BOTH);
        let cases: [Case; 6] = [
            ("as much as the window takes", true, |_| {}, |segment| segment.length = 9_000),
            ("more than the window takes", false, |_| {}, |segment| segment.length = 9_001),
            ("nothing at all", false, |_| {}, |segment| segment.length = 0),
            ("a timestamp", false, |_| {}, |segment| segment.set_timestamps(60, 1)),
            ("a doubtful sender", false, |end| end.sender.is_doubtful = true, |_| {}),
            ("something under way", false, |end| end.sender.max += 1, |_| {}),
        ];
        try_all(&end, data, &cases);
        assert!(!predicts(&end, &data, Ecn::Congestion));
        assert!(predicts(&end, &data, Ecn::Capable0));
        assert!(!predicts(&established(Config::linux(), false), &data, Ecn::NotCapable));
    }

    #[test]
    fn a_bare_acknowledgement_of_something_under_way_is_predicted() {
        let end = established(Config::ns2_reno(), true);
        let ack = plain(1_008, 0);
        try_all(&end, ack, &BOTH);
        let cases: [Case; 5] = [
            ("a byte", true, |_| {}, |segment| segment.acknowledgement = 9),
            ("all", true, |_| {}, |segment| segment.acknowledgement = 3_008),
            ("more than all", false, |_| {}, |segment| segment.acknowledgement = 3_009),
            ("less than before", false, |_| {}, |segment| segment.acknowledgement = 7),
            ("with data", false, |_| {}, |segment| segment.length = 1),
        ];
        try_all(&end, ack, &cases);
        assert!(predicts(&end, &ack, Ecn::Congestion), "marks of bare ones say nothing");
    }

    #[test]
    fn timestamps_are_expected_where_they_were_agreed_on() {
        let config = Config { timestamps: true, ..Config::ns2_reno() };
        for sends in [false, true] {
            let end = established(config, sends);
            let mut segment = if sends { plain(1_008, 0) } else { plain(8, 100) };
            assert!(!predicts(&end, &segment, Ecn::NotCapable));
            for (value, expected) in [(49, false), (50, true), (51, true)] {
                segment.set_timestamps(value, 2);
                assert_eq!(predicts(&end, &segment, Ecn::NotCapable), expected, "{value}");
            }
        }
    }
}
