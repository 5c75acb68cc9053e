//! Packets that follow others onto a wire, stored as runs.
//!
//! A host whose window is larger than its line carries keeps the rest before its transmitter: hundreds
//! of packets, each of which goes into the calendar only when the one before it lands. Kept one by
//! one they would be written to memory that no cache still holds, and read again when none holds it
//! any more. But a host sends its data in order: packet after packet has the same header but for the
//! sequence number, which is higher by the payload's length, and lands the same time after the one
//! before it. So what is kept is the first of such a *run* and how many come after it. A packet that
//! differs in anything begins another run.

use alloc::collections::VecDeque;

use nilometer_wire::{Span, Time};

use crate::packet::Packet;
use crate::parcel::{Annex, Parcel};

/// A packet that follows another, and those after it that are alike.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    /// When the one before the first lands, or a little earlier.
    after: Time,
    /// When the first lands.
    arrival: Time,
    first: Parcel,
    /// How many come after the first.
    more: u32,
}

impl Run {
    /// From one landing to the next.
    #[inline]
    fn step(&self) -> Span {
        self.arrival.since(self.after)
    }

    /// Whether `packet`, which lands at `arrival` and not before `after`, is one more.
    #[inline]
    fn continues(&self, after: Time, arrival: Time, packet: &Packet) -> bool {
        let last = Time(self.arrival.0 + self.step().0 * u64::from(self.more));
        after == last
            && arrival.since(after) == self.step()
            && self.first.is_like(packet, self.more + 1)
    }
}

/// Packets that follow others, first come, first served.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    runs: VecDeque<Run>,
}

impl Followers {
    /// `packet` follows, lands at `arrival` and not before `after`.
    #[inline(always)]
    pub fn push(&mut self, annex: &mut Annex, after: Time, arrival: Time, packet: &Packet) {
        if let Some(run) = self.runs.back_mut()
            && run.continues(after, arrival, packet)
        {
            run.more += 1;
            return;
        }
        let mut run = Run { after, arrival, ..Run::default() };
        annex.stow(packet, &mut run.first);
        self.runs.push_back(run);
    }

    /// The first, if the packet that it follows has landed at `landed`: when it lands itself.
    #[inline(always)]
    pub fn first(&self, landed: Time) -> Option<(Time, &Parcel)> {
        let run = self.runs.front().filter(|run| run.after <= landed)?;
        Some((run.arrival, &run.first))
    }

    /// Drops the first.
    #[inline(always)]
    pub fn drop_first(&mut self) {
        match self.runs.front_mut() {
            Some(run) if run.more > 0 => {
                let step = run.step();
                run.more -= 1;
                run.after = run.arrival;
                run.arrival += step;
                run.first.advance();
            }
            _ => {
                self.runs.pop_front();
            }
        }
    }

    /// When each lands, and its bytes; the first first.
    pub fn landings(&self) -> impl Iterator<Item = (Time, u16)> {
        self.runs.iter().flat_map(|run| {
            let at = |number: u32| Time(run.arrival.0 + run.step().0 * u64::from(number));
            (0..=run.more).map(move |number| (at(number), run.first.bytes))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;

    /// Against a queue of all packets: most continue those before them, some differ in one thing.
    #[test]
    fn runs_are_the_packets_that_they_stand_for() {
        let mut runs = 0;
        for seed in 0..50 {
            let mut rng = Rng::new(seed, 1, 0);
            let (mut followers, mut annex) = (Followers::default(), Annex::default());
            let mut twin: VecDeque<(Time, Time, Packet)> = VecDeque::new();
            let mut next = Packet { bytes: 1500, ..Packet::default() };
            next.segment.length = 1460;
            next.segment.sequence = u32::MAX - 100_000;
            let (mut last, mut back) = (Time::ZERO, Packet::default());
            for _ in 0..3_000 {
                if rng.below(2) == 0 {
                    let (mut after, mut arrival) = (last, last + Span(1_200));
                    match rng.below(60) {
                        0 => next.segment.sequence ^= 1,
                        1 => next.segment.acknowledgement += 1,
                        2 => next.segment.window ^= 1,
                        3 => next.segment.flags ^= nilometer_tcp::segment::PSH,
                        4 => next.segment.set_timestamps(rng.below(9) as u32, 1),
                        5 => _ = next.segment.push_block(1, 2),
                        6 => next.segment.clear_options(),
                        7 => next.bytes ^= 1,
                        8 => next.segment.length ^= 1,
                        9 => next.ecn = nilometer_wire::Ecn::Capable0,
                        10 => next.route.0 ^= 1,
                        11 => next.protocol = crate::packet::Protocol::Udp,
                        12 => arrival += Span(1),
                        13 => after = Time(after.0.saturating_sub(1)),
                        _ => {}
                    }
                    followers.push(&mut annex, after, arrival, &next);
                    twin.push_back((after, arrival, next));
                    let length = u32::from(next.segment.length);
                    next.segment.sequence = next.segment.sequence.wrapping_add(length);
                    last = arrival;
                } else if let Some((after, arrival, packet)) = twin.pop_front() {
                    let before = Time(after.0.saturating_sub(1));
                    assert!(after == before || followers.first(before).is_none());
                    let (lands, parcel) = followers.first(after).expect("it follows");
                    assert_eq!(lands, arrival);
                    annex.unpack(parcel, &mut back);
                    assert_eq!(back, packet, "seed {seed}");
                    followers.drop_first();
                }
                let all = twin.iter().map(|&(_, arrival, packet)| (arrival, packet.bytes));
                assert!(followers.landings().eq(all), "seed {seed}");
                runs += followers.runs.iter().filter(|run| run.more > 0).count();
            }
        }
        assert!(runs > 10_000, "{runs}");
    }
}
