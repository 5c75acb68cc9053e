//! The schedule of a stream: of each frame when it is due, how long it is and whose, in order.

use nilometer_wire::{Span, Time};

use super::sizes::{SizeDraw, Sizes};
use super::spacing::{Spacing, Times};

/// What a stream is to be.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamSettings {
    /// When frames are due.
    pub spacing: Spacing,
    /// How long they are; a recording has sizes of its own.
    pub sizes: Sizes,
    /// Frames a second on average, above zero.
    pub pps: f64,
    /// How long it goes on.
    pub length: Span,
    /// How many flows take turns, above zero.
    pub flows: u32,
    /// Seed of everything drawn by chance.
    pub seed: u64,
    /// Which of the streams of a run it is.
    pub stream: u8,
}

impl StreamSettings {
    /// Bytes of a frame on average, with its check sequence.
    pub fn mean_bytes(&self) -> f64 {
        match &self.spacing {
            Spacing::Recorded(recording) => recording.mean_bytes(),
            _ => self.sizes.mean_bytes(),
        }
    }

    /// The longest frame, with its check sequence.
    pub fn longest_bytes(&self) -> u16 {
        match &self.spacing {
            Spacing::Recorded(recording) => recording.longest_bytes(),
            _ => self.sizes.longest_bytes(),
        }
    }
}

/// A frame of the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduled {
    /// When it is due, after the beginning of the stream.
    pub at: Time,
    /// How long it is, with its check sequence.
    pub frame_bytes: u16,
    /// The number of its flow.
    pub flow: u32,
}

/// The frames of a stream in order; its sequence numbers count them from 0.
#[derive(Clone, Debug)]
pub struct Schedule {
    settings: StreamSettings,
    times: Times,
    sizes: SizeDraw,
    count: u64,
}

impl Schedule {
    /// From the beginning.
    ///
    /// # Panics
    /// When the rate or the number of flows is zero.
    pub fn new(settings: &StreamSettings) -> Schedule {
        assert!(settings.pps > 0.0 && settings.flows > 0, "a stream has a rate and a flow");
        let StreamSettings { pps, seed, stream, .. } = *settings;
        Schedule {
            times: Times::new(settings.spacing.clone(), pps, seed, stream),
            sizes: SizeDraw::new(settings.sizes, seed, stream),
            settings: settings.clone(),
            count: 0,
        }
    }
}

impl Iterator for Schedule {
    type Item = Scheduled;

    fn next(&mut self) -> Option<Scheduled> {
        let at = Time::from_nanos(self.times.next());
        if at.as_nanos() >= self.settings.length.as_nanos() {
            return None;
        }
        let frame_bytes = match &self.settings.spacing {
            Spacing::Recorded(recording) => recording.frame_bytes(self.count),
            _ => self.sizes.next(),
        };
        let flow = (self.count % u64::from(self.settings.flows)) as u32;
        self.count += 1;
        Some(Scheduled { at, frame_bytes, flow })
    }
}

#[cfg(test)]
mod tests {
    use super::super::sizes::TRIMODAL;
    use super::*;
    use alloc::vec::Vec;

    fn settings(spacing: Spacing) -> StreamSettings {
        StreamSettings {
            spacing,
            sizes: Sizes::Mix(TRIMODAL),
            pps: 1_000.0,
            length: Span::from_secs(2),
            flows: 3,
            seed: 7,
            stream: 0,
        }
    }

    #[test]
    fn a_seed_repeats_a_schedule_and_another_does_not() {
        for spacing in [Spacing::Poisson, Spacing::SelfSimilar(0.8)] {
            let one = settings(spacing);
            let all: Vec<Scheduled> = Schedule::new(&one).collect();
            assert!(Schedule::new(&one).eq(all.iter().copied()));
            assert!(!Schedule::new(&StreamSettings { seed: 8, ..one.clone() }).eq(all.clone()));
            assert!(!Schedule::new(&StreamSettings { stream: 1, ..one }).eq(all));
        }
    }

    #[test]
    fn it_ends_with_its_time_and_flows_take_turns() {
        let all: Vec<Scheduled> = Schedule::new(&settings(Spacing::Constant)).collect();
        assert_eq!(all.len(), 2_000);
        assert_eq!(all[1_999].at.as_nanos(), 1_999_000_000);
        assert!(all.iter().zip(0..).all(|(one, number)| one.flow == number % 3));
    }
}
