//! What a device did wrong and when it began: it stopped forwarding, duplicated, damaged, reordered, or passed in a loop.
//!
//! Derived from the fates of packets by the time at which they entered, whatever the order in which fates are
//! decided. Packets are counted in bins of time; the longest run of bins in which everything that entered was lost
//! is an outage, which lasts until the end if no packet passed after it. Bins are doubled in width whenever there
//! are too many.
//!
//! A loop shows in two ways: the same packet leaves again and again, or packets come back to where they came from.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use nilometer_wire::{Span, Time};

use crate::outcome::{Direction, Fate, PacketOutcome};

const BIN_NS: u64 = 10_000_000;
const BINS_MAX: usize = 1 << 14;
/// Fewer lost packets in a row are no outage.
const OUTAGE_PACKETS: u64 = 20;
/// And fewer bins.
const OUTAGE_BINS: usize = 3;
/// Copies of one packet from which on it went round in a loop.
const LOOP_COPIES: u32 = 8;
/// Packets whose copies are counted at once, a power of two.
const COUNTED: usize = 1_024;

/// What a device did wrong to packets of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceFault {
    /// Their direction.
    pub direction: Direction,
    /// What it did.
    pub kind: FaultKind,
}

/// What a device did wrong, with times since the traffic began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// From then on nothing passed, though packets entered.
    Died {
        /// From when on.
        from: Time,
        /// Packets lost.
        lost: u64,
    },
    /// Nothing passed at all.
    PassedNothing {
        /// Packets lost.
        lost: u64,
    },
    /// Nothing passed for a while.
    Outage {
        /// From when on, and when something passed again.
        during: [Time; 2],
        /// Packets lost.
        lost: u64,
        /// How many shorter ones there were.
        others: u64,
    },
    /// One packet left again and again.
    Looped {
        /// When the first such packet entered.
        from: Time,
        /// The most copies of one.
        copies: u32,
    },
    /// Packets came back to where they came from.
    SentBack {
        /// When the first did.
        from: Time,
        /// How many.
        packets: u64,
    },
    /// Packets left more than once.
    Duplicated {
        /// When the first such packet entered.
        from: Time,
        /// Further copies.
        packets: u64,
    },
    /// Packets left with other content.
    Corrupted {
        /// When the first such packet entered.
        from: Time,
        /// How many.
        packets: u64,
    },
    /// Packets left after later ones of their flow.
    Reordered {
        /// When the first such packet entered.
        from: Time,
        /// How many.
        packets: u64,
    },
}

impl fmt::Display for DeviceFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = |at: Time| at.as_secs_f64();
        match self.kind {
            FaultKind::Died { from, lost } => {
                write!(
                    out,
                    "the device died: from {:.2} s on nothing passed, and {lost} ",
                    s(from)
                )?;
                out.write_str("packets were lost")
            }
            FaultKind::PassedNothing { lost } => {
                write!(out, "the device passed nothing: all of {lost} packets were lost")
            }
            FaultKind::Outage { during: [from, to], lost, others } => {
                let (from, to) = (s(from), s(to));
                write!(
                    out,
                    "the device passed nothing from {from:.2} to {to:.2} s: {lost} packets "
                )?;
                out.write_str("were lost")?;
                if others > 0 {
                    write!(out, ", and {others} shorter times")?;
                }
                Ok(())
            }
            FaultKind::Looped { from, copies } => {
                write!(
                    out,
                    "the device looped from {:.3} s on: a packet left {copies} times",
                    s(from)
                )
            }
            FaultKind::SentBack { from, packets } => {
                write!(
                    out,
                    "the device looped from {:.3} s on: it sent {packets} packets ",
                    s(from)
                )?;
                out.write_str("back to where they came from")
            }
            FaultKind::Duplicated { from, packets } => {
                write!(
                    out,
                    "the device duplicated from {:.3} s on: {packets} extra copies",
                    s(from)
                )
            }
            FaultKind::Corrupted { from, packets } => {
                write!(out, "the device corrupted from {:.3} s on: {packets} packets", s(from))
            }
            FaultKind::Reordered { from, packets } => {
                write!(out, "the device reordered from {:.3} s on: {packets} packets", s(from))
            }
        }?;
        match self.direction {
            Direction::ClientToServer => out.write_str(" (to the servers)"),
            Direction::ServerToClient => out.write_str(" (to the clients)"),
        }
    }
}

/// Packets that entered in a bin, and those of them that were lost.
#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    entered: u32,
    lost: u32,
}

/// The first of something, and how often it was.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    first: Option<Time>,
    packets: u64,
}

impl Seen {
    fn add(&mut self, at: Time) {
        self.first = Some(self.first.map_or(at, |first| first.min(at)));
        self.packets += 1;
    }

    fn fault(&self, kind: impl Fn(Time, u64) -> FaultKind) -> Option<FaultKind> {
        self.first.map(|from| kind(from, self.packets))
    }
}

/// The account of one direction.
#[derive(Clone, Debug, Default)]
struct Way {
    bins: Vec<Bin>,
    duplicated: Seen,
    corrupted: Seen,
    reordered: Seen,
    sent_back: Seen,
    /// The copies of a packet, by its entry time and flow. Another packet with the same slot replaces it.
    copies: Vec<(Time, u32, u32)>,
    /// The packet with the most copies.
    looped: Option<(Time, u32)>,
}

/// Watches the fates of packets.
#[derive(Clone, Debug)]
pub struct DeviceWatch {
    ways: [Way; 2],
    /// When the traffic began.
    origin: Time,
    width_ns: u64,
}

impl DeviceWatch {
    /// For traffic that begins at `origin` of the stamps' clock.
    pub fn new(origin: Time) -> DeviceWatch {
        DeviceWatch { ways: Default::default(), origin, width_ns: BIN_NS }
    }

    fn since(&self, at: Time) -> Time {
        Time::ZERO + at.since(self.origin)
    }

    /// The fate of a packet.
    pub fn record(&mut self, outcome: &PacketOutcome) {
        let Some(entered) = outcome.entered_at else { return };
        let at = self.since(entered);
        let way = &mut self.ways[outcome.direction.index()];
        if outcome.reordered {
            way.reordered.add(at);
        }
        match outcome.fate {
            Fate::Duplicated => {
                way.duplicated.add(at);
                return way.copy(at, outcome.flow);
            }
            Fate::Consumed | Fate::Originated => return,
            Fate::Corrupted => way.corrupted.add(at),
            Fate::Forwarded | Fate::Lost => {}
        }
        let mut place = (at.as_nanos() / self.width_ns) as usize;
        while place >= BINS_MAX {
            self.widen();
            place /= 2;
        }
        let bins = &mut self.ways[outcome.direction.index()].bins;
        if bins.len() <= place {
            bins.resize(place + 1, Bin::default());
        }
        let bin = &mut bins[place];
        bin.entered = bin.entered.saturating_add(1);
        bin.lost = bin.lost.saturating_add(u32::from(outcome.fate == Fate::Lost));
    }

    /// A packet of that direction came back to where it came from.
    pub fn sent_back(&mut self, direction: Direction, at: Time) {
        let at = self.since(at);
        self.ways[direction.index()].sent_back.add(at);
    }

    fn widen(&mut self) {
        self.width_ns *= 2;
        for way in &mut self.ways {
            let sum = |two: &[Bin]| Bin {
                entered: two.iter().fold(0, |sum, bin| sum.saturating_add(bin.entered)),
                lost: two.iter().fold(0, |sum, bin| sum.saturating_add(bin.lost)),
            };
            way.bins = way.bins.chunks(2).map(sum).collect();
        }
    }

    /// What the device did wrong, by direction, the gravest first.
    pub fn faults(&self) -> Vec<DeviceFault> {
        let mut found = Vec::new();
        for direction in Direction::ALL {
            let way = &self.ways[direction.index()];
            let kinds = [
                way.outage(self.width_ns),
                way.looped
                    .filter(|looped| looped.1 >= LOOP_COPIES)
                    .map(|(from, copies)| FaultKind::Looped { from, copies }),
                way.sent_back.fault(|from, packets| FaultKind::SentBack { from, packets }),
                way.duplicated.fault(|from, packets| FaultKind::Duplicated { from, packets }),
                way.corrupted.fault(|from, packets| FaultKind::Corrupted { from, packets }),
                way.reordered.fault(|from, packets| FaultKind::Reordered { from, packets }),
            ];
            found.extend(kinds.into_iter().flatten().map(|kind| DeviceFault { direction, kind }));
        }
        found
    }
}

impl Way {
    fn copy(&mut self, at: Time, flow: u32) {
        if self.copies.is_empty() {
            self.copies = vec![(Time::ZERO, 0, 0); COUNTED];
        }
        let mixed = (at.as_nanos() ^ u64::from(flow)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = &mut self.copies[mixed as usize >> 54 & (COUNTED - 1)];
        if (place.0, place.1) != (at, flow) || place.2 == 0 {
            // (The packet itself is the first of its copies.)
            *place = (at, flow, 1);
        }
        place.2 += 1;
        let copies = place.2;
        match &mut self.looped {
            Some((_, most)) if *most >= LOOP_COPIES => *most = copies.max(*most),
            looped => {
                if looped.is_none_or(|(_, most)| most < copies) {
                    *looped = Some((at, copies));
                }
            }
        }
    }

    /// The longest time in which nothing passed.
    fn outage(&self, width_ns: u64) -> Option<FaultKind> {
        let mut longest: Option<([usize; 2], u64)> = None;
        let (mut from, mut lost, mut outages) = (None, 0u64, 0u64);
        let none = Bin { entered: 1, lost: 0 };
        let last = self.bins.iter().rposition(|bin| bin.entered > 0)?;
        for (place, bin) in self.bins[..=last].iter().chain([&none]).enumerate() {
            if bin.lost == bin.entered {
                if bin.entered > 0 {
                    from = from.or(Some(place));
                    lost += u64::from(bin.lost);
                }
                continue;
            }
            let Some(began) = from.take() else { continue };
            let lost = core::mem::take(&mut lost);
            if lost < OUTAGE_PACKETS || place - began < OUTAGE_BINS {
                continue;
            }
            outages += 1;
            if longest.is_none_or(|([from, to], _)| place - began > to - from) {
                longest = Some(([began, place], lost));
            }
        }
        let ([from, to], lost) = longest?;
        let at = |place: usize| Time::ZERO + Span::from_nanos(place as u64 * width_ns);
        let is_first = self.bins[..from].iter().all(|bin| bin.entered == 0);
        Some(match to > last {
            true if is_first => FaultKind::PassedNothing { lost },
            true => FaultKind::Died { from: at(from), lost },
            false => FaultKind::Outage { during: [at(from), at(to)], lost, others: outages - 1 },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    const ORIGIN: Time = Time::from_nanos(5_000_000_000);

    fn at(ms: u64) -> Time {
        ORIGIN + Span::from_nanos(ms * 1_000_000)
    }

    fn outcome(ms: u64, fate: Fate) -> PacketOutcome {
        PacketOutcome {
            direction: Direction::ClientToServer,
            fate,
            entered_at: Some(at(ms)),
            left_at: None,
            bytes: 46,
            flow: 3,
            reordered: false,
        }
    }

    fn watched(outcomes: impl Iterator<Item = PacketOutcome>) -> Vec<alloc::string::String> {
        let mut watch = DeviceWatch::new(ORIGIN);
        outcomes.for_each(|outcome| watch.record(&outcome));
        watch.faults().iter().map(ToString::to_string).collect()
    }

    fn fates(fate: impl Fn(u64) -> Fate) -> impl Iterator<Item = PacketOutcome> {
        (0..4_000).map(move |ms| outcome(ms, fate(ms)))
    }

    #[test]
    fn a_sound_device_and_one_that_loses_by_chance_have_no_fault() {
        assert!(watched(fates(|_| Fate::Forwarded)).is_empty());
        let some = |ms: u64| if ms.is_multiple_of(3) { Fate::Forwarded } else { Fate::Lost };
        assert!(watched(fates(some)).is_empty());
        // Nineteen in a row, and twenty within one bin, are no outage.
        let few = |ms: u64| if (1_000..1_019).contains(&ms) { Fate::Lost } else { Fate::Forwarded };
        assert!(watched(fates(few)).is_empty());
    }

    #[test]
    fn a_dead_device_is_distinguished_from_an_outage() {
        let dead = |ms: u64| if ms < 1_500 { Fate::Forwarded } else { Fate::Lost };
        let message = "the device died: from 1.50 s on nothing passed, and 2500 packets were lost (to \
                    the servers)";
        assert_eq!(watched(fates(dead)), [message]);
        // Losses are decided long after what passed.
        let late = fates(dead).filter(|one| one.fate == Fate::Forwarded);
        assert_eq!(
            watched(late.chain(fates(dead).filter(|one| one.fate == Fate::Lost))),
            [message]
        );
        let message = "the device passed nothing: all of 4000 packets were lost (to the servers)";
        assert_eq!(watched(fates(|_| Fate::Lost)), [message]);
        let away = |ms: u64| match ms {
            500..600 | 1_500..2_000 => Fate::Lost,
            _ => Fate::Forwarded,
        };
        let message = "the device passed nothing from 1.50 to 2.00 s: 500 packets were lost, and 1 \
                    shorter times (to the servers)";
        assert_eq!(watched(fates(away)), [message]);
    }

    #[test]
    fn faults_that_begin_in_mid_trial_are_reported_with_their_time() {
        let mut watch = DeviceWatch::new(ORIGIN);
        for ms in 0..4_000 {
            let fate = if ms == 1_700 { Fate::Corrupted } else { Fate::Forwarded };
            watch.record(&PacketOutcome { reordered: ms > 2_500, ..outcome(ms, fate) });
        }
        for copy in 0..30 {
            watch.record(&outcome(3_000 + copy % 3, Fate::Duplicated));
        }
        watch.sent_back(Direction::ServerToClient, at(1_234));
        let message: Vec<_> = watch.faults().iter().map(ToString::to_string).collect();
        assert_eq!(
            message,
            [
                "the device looped from 3.000 s on: a packet left 11 times (to the servers)",
                "the device duplicated from 3.000 s on: 30 extra copies (to the servers)",
                "the device corrupted from 1.700 s on: 1 packets (to the servers)",
                "the device reordered from 2.501 s on: 1499 packets (to the servers)",
                "the device looped from 1.234 s on: it sent 1 packets back to where they came from \
                 (to the clients)",
            ]
        );
    }

    #[test]
    fn long_trials_have_wider_bins_and_the_same_outage() {
        let mut watch = DeviceWatch::new(ORIGIN);
        for s in 0..3_000u64 {
            let fate = if (1_000..2_000).contains(&s) { Fate::Lost } else { Fate::Forwarded };
            watch.record(&outcome(s * 1_000, fate));
        }
        let [DeviceFault { kind: FaultKind::Outage { during, lost, .. }, .. }] = watch.faults()[..]
        else {
            panic!("one outage: {:?}", watch.faults());
        };
        assert_eq!(lost, 1_000);
        assert!(during[0].as_secs_f64() - 1_000.0 < 0.5 && during[1].as_secs_f64() < 2_000.5);
    }
}
