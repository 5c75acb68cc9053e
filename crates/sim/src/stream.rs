//! Packet streams as nodes: a source of frames that are alike, and a recorder of what arrives.
//!
//! Both are nodes over frames, under either clock. A source sends at its own times whatever happens to its frames
//! (open loop); if the driver is late, it sends what is due, and the intended times remain those of the schedule.

use alloc::vec::Vec;

use nilometer_stat::Rng;
use nilometer_wire::memory::{Memory, Place};
use nilometer_wire::{Node, Port, Span, Time};

const PURPOSE_GAP: u32 = 0x5354_0001;

/// The times at which a source sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// One frame after the other, this far apart.
    Constant(Span),
    /// A Poisson process with this mean gap.
    Poisson(Span),
    /// Frames per burst, and the time from the beginning of one burst to that of the next.
    Bursts(u32, Span),
}

/// A source of frames at its only port.
#[derive(Clone, Debug)]
pub struct Stream {
    frame: Vec<u8>,
    spacing: Spacing,
    left: u64,
    sent: u64,
    next: Time,
    gaps: Rng,
    no_room: u64,
}

impl Stream {
    /// Sends `count` frames with these bytes, the first at `start`.
    pub fn new(frame: Vec<u8>, spacing: Spacing, start: Time, count: u64, seed: u64) -> Stream {
        let gaps = Rng::new(seed, PURPOSE_GAP, 0);
        Stream { frame, spacing, left: count, sent: 0, next: start, gaps, no_room: 0 }
    }

    /// Frames that the memory had no room for, which were not sent.
    pub fn no_room(&self) -> u64 {
        self.no_room
    }

    fn gap(&mut self) -> Span {
        match self.spacing {
            Spacing::Constant(gap) => gap,
            Spacing::Poisson(mean) => {
                let exponential = -libm::log(1.0 - self.gaps.unit());
                Span::from_nanos((mean.as_nanos() as f64 * exponential) as u64)
            }
            Spacing::Bursts(frames, gap) if self.sent.is_multiple_of(u64::from(frames.max(1))) => {
                gap
            }
            Spacing::Bursts(..) => Span::ZERO,
        }
    }
}

impl<M: Memory> Node<Place, M> for Stream {
    /// Frames that arrive are returned to the memory.
    fn receive(&mut self, _: Time, _: Port, frame: &Place, memory: &mut M) {
        memory.give(*frame);
    }

    fn handle_timeout(&mut self, _: Time, _: &mut M) {}

    fn poll_transmit(&mut self, now: Time, frame: &mut Place, memory: &mut M) -> Option<Port> {
        while self.left > 0 && self.next <= now {
            self.left -= 1;
            self.sent += 1;
            let gap = self.gap();
            self.next += gap;
            let Some(place) = memory.take(self.frame.len() as u16) else {
                self.no_room += 1;
                continue;
            };
            memory.frame_mut(place).copy_from_slice(&self.frame);
            *frame = place;
            return Some(Port(0));
        }
        None
    }

    fn poll_timeout(&self) -> Option<Time> {
        (self.left > 0).then_some(self.next)
    }
}

/// A frame that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When.
    pub at: Time,
    /// By which port.
    pub port: Port,
    /// Its bytes.
    pub frame: Vec<u8>,
}

/// Keeps what arrives, up to a limit.
#[derive(Clone, Debug)]
pub struct Recorder {
    arrivals: Vec<Arrival>,
    limit: usize,
    /// Frames beyond the limit.
    pub beyond: u64,
}

impl Recorder {
    /// Of `limit` frames at most.
    pub fn new(limit: usize) -> Recorder {
        Recorder { arrivals: Vec::new(), limit, beyond: 0 }
    }

    /// What arrived, in order.
    pub fn arrivals(&self) -> &[Arrival] {
        &self.arrivals
    }
}

impl<M: Memory> Node<Place, M> for Recorder {
    fn receive(&mut self, now: Time, port: Port, frame: &Place, memory: &mut M) {
        if self.arrivals.len() < self.limit {
            let bytes = memory.frame(*frame).to_vec();
            self.arrivals.push(Arrival { at: now, port, frame: bytes });
        } else {
            self.beyond += 1;
        }
        memory.give(*frame);
    }

    fn handle_timeout(&mut self, _: Time, _: &mut M) {}

    fn poll_transmit(&mut self, _: Time, _: &mut Place, _: &mut M) -> Option<Port> {
        None
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;
    use alloc::vec;

    use nilometer_wire::memory::HeapMemory;

    use super::*;
    use crate::virtual_clock::{Cable, VirtualClock};
    use nilometer_wire::Turns;

    /// When frames of a spacing arrive over a cable that takes no time, microseconds.
    fn arrivals(spacing: Spacing, count: u64) -> Vec<u64> {
        let start = Time::from_nanos(5_000);
        let mut stream = Stream::new(vec![1; 60], spacing, start, count, 3);
        let (mut sink, mut memory) = (Recorder::new(10_000), HeapMemory::new(100));
        let cable = Cable { ends: [(0, Port(0)), (1, Port(0))], rate: None, delay: Span::ZERO };
        let nodes: Vec<Box<dyn Node<Place, HeapMemory> + '_>> =
            vec![Box::new(&mut stream), Box::new(&mut sink)];
        let mut clock = VirtualClock::new(nodes, &[cable], Turns { batch: 1, ..Turns::default() });
        assert!(!clock.run_until(Time::from_nanos(1 << 40), &mut memory, &mut ()));
        drop(clock);
        assert_eq!(memory.taken(), 0);
        sink.arrivals().iter().map(|it| it.at.as_nanos() / 1_000).collect()
    }

    #[test]
    fn frames_leave_by_their_schedule() {
        let gap = Span::from_nanos(10_000);
        assert_eq!(arrivals(Spacing::Constant(gap), 4), [5, 15, 25, 35]);
        assert_eq!(arrivals(Spacing::Bursts(2, gap), 5), [5, 5, 15, 15, 25]);
        let poisson = arrivals(Spacing::Poisson(gap), 2_000);
        let mean = (poisson[1_999] - poisson[0]) as f64 / 1_999.0;
        assert!((mean - 10.0).abs() < 0.7, "{mean}");
        let short = poisson.windows(2).filter(|pair| pair[1] - pair[0] < 7).count() as f64;
        // 1 - exp(-0.7)
        assert!((short / 1_999.0 - 0.503).abs() < 0.05, "{short}");
    }
}
