//! RACK against the text of RFC 8985 read aloud, on random traffic.

use super::*;
use alloc::vec::Vec;

const MSS: u64 = 100;

/// A generator of small numbers without a dependency (Marsaglia's xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit.max(1)
    }
}

/// RFC 8985 read aloud: no record is forgotten, every sum is counted anew.
#[derive(Default)]
struct Twin {
    all: Vec<(Sent, bool)>,
    newest: Option<(Time, u64)>,
    rtt: Span,
    least_rtt: Option<Span>,
    highest: u64,
    is_reordered: bool,
}

impl Twin {
    fn on_ack(&mut self, una: u64, blocks: &[(u64, u64)], now: Time) -> u64 {
        let highest = self.highest;
        let mut order = Vec::new();
        for &(left, right) in blocks {
            order.extend(
                (0..self.all.len())
                    .filter(|&at| self.all[at].0.left >= left && self.all[at].0.right <= right),
            );
        }
        order.extend((0..self.all.len()).filter(|&at| self.all[at].0.right <= una));
        let (mut bytes, mut clean, mut last) = (0, true, None::<Time>);
        for at in order {
            let (record, is_acked) = self.all[at];
            let is_cumulative = record.right <= una;
            if !record.is_sacked && !is_acked {
                bytes += record.right - record.left;
                clean &= !record.was_repeated;
                last = last.max(Some(record.at));
                self.highest = self.highest.max(record.right);
                self.is_reordered |= !record.was_repeated && record.left < highest;
                self.deliver(&record, now);
            }
            let (record, is_acked) = &mut self.all[at];
            record.is_sacked |= !is_cumulative;
            record.is_lost = false;
            record.is_repeat_out = false;
            *is_acked |= is_cumulative;
        }
        if let Some(last) = last.filter(|_| clean) {
            let rtt = now.since(last);
            self.least_rtt = Some(self.least_rtt.map_or(rtt, |least| least.min(rtt)));
        }
        bytes
    }

    fn deliver(&mut self, record: &Sent, now: Time) {
        let rtt = now.since(record.at);
        let is_too_soon = self.least_rtt.is_some_and(|least| rtt < least);
        if !(record.was_repeated && is_too_soon) {
            self.rtt = rtt;
            self.newest = self.newest.max(Some((record.at, record.right)));
        }
    }

    fn under_way(&self) -> impl Iterator<Item = &Sent> {
        self.all.iter().filter(|(_, is_acked)| !is_acked).map(|(record, _)| record)
    }

    fn detect(&mut self, now: Time, is_repairing: bool) -> (u64, Option<Span>) {
        let sacked = self.under_way().filter(|record| record.is_sacked).count();
        let no_window = !self.is_reordered && (is_repairing || sacked >= 3);
        let quarter = self.least_rtt.map_or(Span::ZERO, |least| least / 4);
        let patience = self.rtt + if no_window { Span::ZERO } else { quarter };
        let (mut found, mut wait) = (0, None::<Span>);
        for (record, is_acked) in &mut self.all {
            let is_settled =
                *is_acked || record.is_sacked || (record.is_lost && !record.is_repeat_out);
            if is_settled || Some((record.at, record.right)) >= self.newest {
                continue;
            }
            let due = record.at + patience;
            if due <= now {
                found += record.right - record.left;
                record.is_lost = true;
                record.is_repeat_out = false;
            } else {
                wait = wait.max(Some(due.since(now)));
            }
        }
        (found, wait)
    }

    fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        for record in self.under_way() {
            let bytes = record.right - record.left;
            sums.outstanding += bytes;
            sums.sacked += if record.is_sacked { bytes } else { 0 };
            sums.lost += if record.is_lost { bytes } else { 0 };
            sums.repeated += if record.is_repeat_out { bytes } else { 0 };
            sums.waiting += if record.is_lost && !record.is_repeat_out { bytes } else { 0 };
        }
        sums
    }
}

fn blocks(dice: &mut Dice, una: u64, max: u64) -> Vec<(u64, u64)> {
    let segments = (max - una) / MSS;
    let mut block = || {
        let left = una + MSS * (1 + dice.below(segments));
        (left, (left + MSS * (1 + dice.below(3))).min(max))
    };
    let count = if segments > 1 { 2 } else { 0 };
    (0..count).map(|_| block()).filter(|(left, right)| left < right).collect()
}

#[test]
fn records_agree_with_a_literal_implementation_of_the_rfc() {
    for seed in 1..400_u64 {
        let mut dice = Dice(seed * 0x9e37_79b9_7f4a_7c15);
        let (mut rack, mut twin) = (Rack::new(MSS as u32), Twin::default());
        let (mut una, mut max, mut now) = (0, 0, Time(1));
        for step in 0..120 {
            now += Span::from_nanos(dice.below(2_000_000));
            match dice.below(6) {
                0 | 1 => {
                    for _ in 0..dice.below(6) {
                        rack.on_sent(max, max + MSS, now);
                        let last = rack.records[rack.records.len() - 1];
                        twin.all.push((last, false));
                        max += MSS;
                    }
                }
                2 if rack.next_lost().is_some() => {
                    let (left, _) = rack.next_lost().unwrap_or_default();
                    let waits = |it: &&Sent| it.is_lost && !it.is_repeat_out;
                    assert_eq!(twin.under_way().find(waits).map(|it| it.left), Some(left));
                    rack.on_repeated(left, now);
                    let (record, _) = &mut twin.all[(left / MSS) as usize];
                    record.at = now;
                    record.was_repeated = true;
                    record.is_repeat_out = true;
                }
                _ => {
                    if dice.below(3) == 0 {
                        una += MSS * dice.below((max - una) / MSS + 1);
                    }
                    let blocks = blocks(&mut dice, una, max);
                    let delivered = rack.on_ack(una, blocks.iter().copied(), now);
                    assert_eq!(delivered.bytes, twin.on_ack(una, &blocks, now), "{seed}");
                }
            }
            let is_repairing = dice.below(2) == 0;
            let found = rack.detect(now, is_repairing, None);
            assert_eq!(found, twin.detect(now, is_repairing), "{seed} {step}");
            assert_eq!(*rack.bytes(), twin.sums(), "{seed} {step}");
            assert_eq!(rack.segments().outstanding * MSS, rack.bytes().outstanding);
        }
    }
}

#[test]
fn a_timeout_spares_segments_sent_within_a_round_trip() {
    let mut rack = Rack::new(MSS as u32);
    let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
    rack.on_sent(0, MSS, at(0));
    rack.on_sent(MSS, 2 * MSS, at(0));
    rack.on_ack(MSS, core::iter::empty(), at(100));
    rack.on_sent(2 * MSS, 3 * MSS, at(350));
    rack.on_timeout(at(400));
    assert_eq!((rack.bytes().lost, rack.bytes().in_flight()), (MSS, MSS));
    rack.on_timeout(at(450));
    assert_eq!((rack.bytes().lost, rack.bytes().in_flight()), (2 * MSS, 0));
    // What the peer gives up is lost too.
    rack.on_ack(MSS, [(MSS, 2 * MSS)].into_iter(), at(460));
    assert_eq!(rack.bytes().sacked, MSS);
    rack.on_timeout(at(900));
    assert_eq!((rack.bytes().sacked, rack.bytes().lost), (0, 2 * MSS));
}

/// RACK_update: what comes back sooner after a retransmission than any round trip took is the
/// original; what takes as long as the shortest may be either, and counts (RFC 8985, 6.2, step 2).
#[test]
fn a_retransmission_counts_from_the_shortest_round_trip_on() {
    let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
    for (after, counts) in [(49, false), (50, true), (51, true)] {
        let mut rack = Rack::new(MSS as u32);
        for segment in 0..6 {
            rack.on_sent(segment * MSS, (segment + 1) * MSS, at(0));
        }
        rack.on_ack(MSS, core::iter::empty(), at(50));
        rack.on_ack(MSS, [(2 * MSS, 6 * MSS)].into_iter(), at(60));
        rack.detect(at(60), true, None);
        assert_eq!(rack.next_lost(), Some((MSS, 2 * MSS)));
        rack.on_repeated(MSS, at(100));
        let before = (rack.rtt, rack.newest);
        rack.on_ack(6 * MSS, core::iter::empty(), at(100 + after));
        let now = (Span::from_nanos(after * 1_000_000), Some((at(100), 2 * MSS)));
        assert_eq!((rack.rtt, rack.newest), if counts { now } else { before }, "{after} ms");
    }
}
