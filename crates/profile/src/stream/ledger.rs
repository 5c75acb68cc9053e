//! The ledger of a stream: when each frame was due, sent and received, and its fate.
//!
//! Frames are identified by their sequence numbers, so nothing is guessed: a received number identifies the frame
//! that was sent. A second one is a duplicate (RFC 5560), one whose bytes differ is corrupted, one that has not
//! arrived within the longest wait is lost (RFC 7680). A frame is reordered when one of its flow with a higher
//! number arrived before it (RFC 4737, section 3.3, by flow). A frame whose tag cannot be read counts as
//! originated by the device, and its original as lost.
//!
//! Frames wait in a window for their fate. It is as long as the wait, and has a limit: beyond it the oldest is
//! decided early and counted ([`Counts::overflow`]), which makes the trial invalid.
//!
//! Two delays are measured: from the moment at which a frame was sent, and from that at which it was due. Where the
//! sender fell behind, only the second shows what a packet of an independent source would have met (measuring only
//! the first would be coordinated omission).

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use nilometer_stat::Histogram;
use nilometer_wire::{Span, Time};

use super::schedule::{Schedule, Scheduled};
use crate::outcome::{Counts, Direction, Fate, PacketOutcome};

/// The account of one frame, reported once, and of each further copy of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Its number in the stream.
    pub sequence: u64,
    /// When it was due, its length and its flow.
    pub scheduled: Scheduled,
    /// When it was sent; `None` if its timestamp was lost.
    pub sent: Option<Time>,
    /// When it, or this copy of it, arrived.
    pub received: Option<Time>,
    /// What became of it.
    pub fate: Fate,
    /// A later frame of its flow arrived before it.
    pub reordered: bool,
}

impl Packet {
    /// In the form that the profiler's delays over time and by size take; `None` if its timestamp was lost.
    pub fn outcome(&self, direction: Direction) -> Option<PacketOutcome> {
        Some(PacketOutcome {
            direction,
            fate: self.fate,
            entered_at: Some(self.sent?),
            left_at: self.received,
            bytes: u32::from(self.scheduled.frame_bytes) - 18,
            flow: self.scheduled.flow,
            reordered: self.reordered,
        })
    }
}

/// How long a ledger waits, and for how many frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A frame that has not arrived for this long is lost.
    pub wait: Span,
    /// Frames that may wait for their fate.
    pub window_max: usize,
}

/// Histograms of a stream, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Timings {
    /// From sent to received, of frames that arrived unharmed.
    pub delay: Histogram,
    /// From due to received, of the same.
    pub delay_scheduled: Histogram,
    /// From due to sent, of all with a known timestamp.
    pub pacing: Histogram,
    /// Frames that were sent more than the bound after they were due.
    pub slipped: u64,
    /// When the last frame was sent.
    pub last_sent: Option<Time>,
    /// The latest frame: by how much, and when it was due.
    pub latest: Option<(Span, Time)>,
}

/// A frame whose fate is open.
#[derive(Clone, Copy, Debug)]
struct Open {
    scheduled: Scheduled,
    sent: Option<Time>,
    received: Option<Time>,
    is_damaged: bool,
    is_reordered: bool,
}

/// The account of one stream.
#[derive(Debug)]
pub struct Ledger {
    schedule: Schedule,
    limits: Limits,
    /// A frame sent more than this after it was due was sent too late.
    slip: Span,
    open: VecDeque<Open>,
    /// The number of the first in `open`.
    base: u64,
    /// By flow: the number after the highest that arrived, and when that arrived.
    newest: Vec<(u64, Time)>,
    counts: Counts,
    timings: Timings,
    unstamped: u64,
    late: u64,
}

impl Ledger {
    /// An empty one for a stream of `flows` flows. Frames that are sent later than `slip` are counted.
    pub fn new(schedule: Schedule, flows: u32, limits: Limits, slip: Span) -> Ledger {
        Ledger {
            schedule,
            limits,
            slip,
            open: VecDeque::new(),
            base: 0,
            newest: vec![(0, Time::ZERO); flows as usize],
            counts: Counts::default(),
            timings: Timings::default(),
            unstamped: 0,
            late: 0,
        }
    }

    /// The frame of that number, if its fate is open; a number further ahead than the window is not
    /// one of ours.
    pub fn scheduled(&mut self, sequence: u64) -> Option<Scheduled> {
        let at = sequence.checked_sub(self.base)?;
        if at >= self.limits.window_max as u64 {
            return None;
        }
        while self.open.len() as u64 <= at {
            let scheduled = self.schedule.next()?;
            let open = Open {
                scheduled,
                sent: None,
                received: None,
                is_damaged: false,
                is_reordered: false,
            };
            self.open.push_back(open);
        }
        Some(self.open[at as usize].scheduled)
    }

    /// That frame was sent. Those before it are decided where their wait is over or there is no room.
    pub fn sent(&mut self, sequence: u64, at: Time, sink: &mut impl FnMut(Packet)) {
        while sequence.saturating_sub(self.base) >= self.limits.window_max as u64
            && self.scheduled(self.base).is_some()
        {
            self.counts.overflow += 1;
            self.decide_oldest(sink);
        }
        if self.scheduled(sequence).is_none() {
            return;
        }
        self.open[(sequence - self.base) as usize].sent = Some(at);
        self.decide(at, sink);
    }

    /// A frame of that number arrived; `is_damaged` if its bytes differ from those that were sent.
    pub fn received(
        &mut self,
        sequence: u64,
        at: Time,
        is_damaged: bool,
        sink: &mut impl FnMut(Packet),
    ) {
        self.counts.left += 1;
        let Some(scheduled) = self.scheduled(sequence) else {
            if sequence < self.base {
                self.late += 1;
            }
            self.counts.originated += 1;
            return;
        };
        let newest = &mut self.newest[scheduled.flow as usize];
        let is_reordered = sequence + 1 < newest.0 && newest.1 <= at;
        let open = &mut self.open[(sequence - self.base) as usize];
        if open.received.is_some() {
            self.counts.duplicated += 1;
            let sent = open.sent;
            return sink(Packet {
                sequence,
                scheduled,
                sent,
                received: Some(at),
                fate: Fate::Duplicated,
                reordered: false,
            });
        }
        (open.received, open.is_damaged, open.is_reordered) = (Some(at), is_damaged, is_reordered);
        if sequence + 1 > newest.0 {
            *newest = (sequence + 1, at);
        }
    }

    /// A frame arrived that is none of those that were sent.
    pub fn originated(&mut self) {
        self.counts.left += 1;
        self.counts.originated += 1;
    }

    /// Decides the fate of all that has waited long enough by that time.
    pub fn decide(&mut self, now: Time, sink: &mut impl FnMut(Packet)) {
        while let Some(oldest) = self.open.front() {
            let since = oldest.sent.unwrap_or(oldest.scheduled.at);
            // (A frame that is due and was not sent waits for its stamp.)
            let is_over = oldest.sent.is_some() && since + self.limits.wait <= now;
            let is_old = oldest.sent.is_none() && oldest.scheduled.at + self.limits.wait * 4 <= now;
            if !is_over && !is_old {
                break;
            }
            self.decide_oldest(sink);
        }
    }

    fn decide_oldest(&mut self, sink: &mut impl FnMut(Packet)) {
        let Some(open) = self.open.pop_front() else { return };
        let sequence = self.base;
        self.base += 1;
        self.counts.entered += 1;
        let fate = match (open.received, open.is_damaged) {
            (None, _) => Fate::Lost,
            (_, true) => Fate::Corrupted,
            (_, false) => Fate::Forwarded,
        };
        let Open { scheduled, sent, received, is_reordered, .. } = open;
        let packet = Packet { sequence, scheduled, sent, received, fate, reordered: is_reordered };
        self.book(&packet);
        sink(packet);
    }

    fn book(&mut self, packet: &Packet) {
        match packet.fate {
            Fate::Lost => self.counts.lost += 1,
            fate => {
                self.counts.matched += 1;
                self.counts.corrupted += u64::from(fate == Fate::Corrupted);
            }
        }
        self.counts.reordered += u64::from(packet.reordered);
        self.unstamped += u64::from(packet.sent.is_none());
        let Some(sent) = packet.sent else { return };
        let slip = sent.since(packet.scheduled.at);
        self.timings.pacing.record(slip.as_nanos());
        self.timings.last_sent = self.timings.last_sent.max(Some(sent));
        self.timings.slipped += u64::from(slip > self.slip);
        if self.timings.latest.is_none_or(|(most, _)| slip > most) {
            self.timings.latest = Some((slip, packet.scheduled.at));
        }
        let Some(received) = packet.received else { return };
        self.counts.early += u64::from(received < sent);
        if packet.fate == Fate::Forwarded {
            self.timings.delay.record(received.since(sent).as_nanos());
            self.timings.delay_scheduled.record(received.since(packet.scheduled.at).as_nanos());
        }
    }

    /// The stream is over, and `sent` frames were sent: decides the rest of them. Frames that were due and not sent
    /// have no fate.
    pub fn finish(&mut self, sent: u64, sink: &mut impl FnMut(Packet)) {
        while self.base < sent && self.scheduled(self.base).is_some() {
            self.decide_oldest(sink);
        }
        self.open.clear();
    }

    /// Frames by fate. Once it is finished, they balance.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Delays and pacing.
    pub fn timings(&self) -> &Timings {
        &self.timings
    }

    /// Frames whose transmit timestamp was lost.
    pub fn unstamped(&self) -> u64 {
        self.unstamped
    }

    /// Frames that arrived after they had been counted as lost; they are among the originated.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Frames whose fate is open.
    pub fn waiting(&self) -> usize {
        self.open.iter().filter(|open| open.sent.is_some() && open.received.is_none()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::super::schedule::StreamSettings;
    use super::super::{Sizes, Spacing};
    use super::*;
    use alloc::collections::BTreeMap;
    use nilometer_stat::Rng;

    const FLOWS: u32 = 3;

    fn ns(ns: u64) -> Time {
        Time::from_nanos(ns)
    }

    fn settings(frames: u64) -> StreamSettings {
        StreamSettings {
            spacing: Spacing::Constant,
            sizes: Sizes::Fixed(64),
            pps: 1e6,
            length: Span::from_nanos(frames * 1_000),
            flows: FLOWS,
            seed: 1,
            stream: 0,
        }
    }

    fn ledger(frames: u64, limits: Limits) -> Ledger {
        let schedule = Schedule::new(&settings(frames));
        Ledger::new(schedule, FLOWS, limits, Span::from_nanos(50))
    }

    const LIMITS: Limits = Limits { wait: Span::from_nanos(100_000), window_max: 1_000 };

    /// The fate of each frame, derived from the whole record at once.
    fn naive(arrivals: &[(u64, Time, bool)], sent: u64) -> BTreeMap<u64, (Fate, bool, u64)> {
        let mut fates = BTreeMap::new();
        for sequence in 0..sent {
            let places = || arrivals.iter().enumerate().filter(|(_, one)| one.0 == sequence);
            let copies = places().count() as u64;
            let fate = match places().next() {
                None => (Fate::Lost, false, 0),
                Some((place, one)) => {
                    let fate = if one.2 { Fate::Corrupted } else { Fate::Forwarded };
                    let flow = |n: u64| n % u64::from(FLOWS);
                    let is_overtaken = arrivals[..place]
                        .iter()
                        .any(|other| flow(other.0) == flow(sequence) && other.0 > sequence);
                    (fate, is_overtaken, copies - 1)
                }
            };
            fates.insert(sequence, fate);
        }
        fates
    }

    /// A device that loses, repeats, damages and holds back; the events of both sides in the order of their times.
    #[test]
    fn agrees_with_the_naive_twin() {
        for round in 0..200 {
            let mut rng = Rng::new(28, 4, round);
            let sent = 1 + rng.below(300);
            let mut arrivals = Vec::new();
            for sequence in 0..sent {
                let at = sequence * 1_000 + rng.below(40);
                let copies = [0, 1, 1, 1, 1, 1, 1, 2, 3][rng.below(9) as usize];
                let hold = if rng.below(8) == 0 { rng.below(20_000) } else { 0 };
                let is_damaged = rng.below(6) == 0;
                for copy in 0..copies {
                    let left = ns(at + 500 + hold + copy * 10 + rng.below(10));
                    arrivals.push((sequence, left, is_damaged));
                }
            }
            arrivals.sort_by_key(|one| one.1);
            let expected = naive(&arrivals, sent);
            let mut ledger = ledger(sent + 50, LIMITS);
            let mut reported: BTreeMap<u64, (Option<(Fate, bool)>, u64)> = BTreeMap::new();
            let mut sink = |packet: Packet| {
                let entry = reported.entry(packet.sequence).or_default();
                match packet.fate {
                    Fate::Duplicated => entry.1 += 1,
                    fate => assert!(entry.0.replace((fate, packet.reordered)).is_none()),
                }
            };
            let mut coming = arrivals.iter().peekable();
            for sequence in 0..sent {
                let now = ns(sequence * 1_000 + 5);
                while let Some(one) = coming.next_if(|one| one.1 < now) {
                    ledger.received(one.0, one.1, one.2, &mut sink);
                }
                ledger.sent(sequence, now, &mut sink);
            }
            coming.for_each(|one| ledger.received(one.0, one.1, one.2, &mut sink));
            ledger.finish(sent, &mut sink);
            let counts = ledger.counts();
            assert_eq!(counts.balance(), Ok(()));
            assert_eq!((counts.entered, counts.left), (sent, arrivals.len() as u64));
            assert_eq!((counts.originated, counts.overflow, ledger.unstamped()), (0, 0, 0));
            let reported = reported.into_iter().map(|(number, (fate, copies))| {
                let (fate, reordered) = fate.expect("each is told once");
                (number, (fate, reordered, copies))
            });
            assert_eq!(reported.collect::<BTreeMap<_, _>>(), expected, "round {round}");
        }
    }

    #[test]
    fn both_delays_and_the_slip_are_measured() {
        let mut ledger = ledger(3, LIMITS);
        let mut sink = |_| {};
        for (sequence, sent, received) in [(0, 0, 400), (1, 1_080, 1_480), (2, 2_000, 2_400)] {
            ledger.sent(sequence, ns(sent), &mut sink);
            ledger.received(sequence, ns(received), false, &mut sink);
        }
        ledger.finish(3, &mut sink);
        let timings = ledger.timings();
        assert_eq!((timings.delay.count(), timings.pacing.count(), timings.slipped), (3, 3, 1));
        assert_eq!(timings.latest, Some((Span::from_nanos(80), ns(1_000))));
        assert_eq!(timings.last_sent, Some(ns(2_000)));
        assert_eq!((timings.delay.mean(), timings.delay_scheduled.count()), (Some(400.0), 3));
        let mean = timings.delay_scheduled.mean().expect("three");
        assert!((mean - (400.0 + 480.0 + 400.0) / 3.0).abs() < 1e-9);
    }

    #[test]
    fn late_frames_count_as_lost_and_the_ledger_balances() {
        let limits = Limits { wait: Span::from_nanos(2_000), window_max: 1_000 };
        let mut ledger = ledger(10, limits);
        let mut sink = |_| {};
        (0..10).for_each(|number| ledger.sent(number, ns(number * 1_000), &mut sink));
        ledger.received(0, ns(9_500), false, &mut sink);
        ledger.received(9, ns(9_600), false, &mut sink);
        ledger.received(5_000, ns(9_700), false, &mut sink);
        ledger.originated();
        ledger.finish(10, &mut sink);
        let counts = ledger.counts();
        assert_eq!((counts.lost, counts.matched, counts.originated, ledger.late()), (9, 1, 3, 1));
        assert_eq!(counts.balance(), Ok(()));
    }

    #[test]
    fn a_full_window_is_counted() {
        let limits = Limits { wait: Span::from_secs(1), window_max: 4 };
        let mut ledger = ledger(10, limits);
        let mut reported = Vec::new();
        (0..10).for_each(|n| ledger.sent(n, ns(n * 1_000), &mut |packet| reported.push(packet)));
        assert_eq!((ledger.counts().overflow, reported.len()), (6, 6));
        ledger.finish(10, &mut |packet| reported.push(packet));
        assert!(reported.iter().zip(0..).all(|(packet, number)| packet.sequence == number));
        assert_eq!((ledger.counts().entered, ledger.counts().lost), (10, 10));
    }
}
