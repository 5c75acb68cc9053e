//! The schedule of a stream: each frame's due time, length and flow, in order.

use nilometer_wire::{Span, Time};

use super::sizes::{SizeDraw, Sizes};
use super::spacing::{Spacing, Times, grouped};

/// What a stream is to be.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamSettings {
    /// When frames are due.
    pub spacing: Spacing,
    /// How long they are; a recording has sizes of its own.
    pub sizes: Sizes,
    /// Frames a second on average, above zero.
    pub pps: f64,
    /// How long it lasts.
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

/// A stream of frames of one size in groups that follow one another at one distance, known without drawing it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Even {
    /// Frames that are due together.
    pub group: u32,
    /// Time for each frame, ns.
    pub gap_ns: f64,
    /// Frames in all.
    pub frames: u64,
    /// How long each is, with its check sequence.
    pub frame_bytes: u16,
}

impl Even {
    /// The values for such a stream; `None` for any other.
    pub fn of(settings: &StreamSettings) -> Option<Even> {
        let (Some(group), Sizes::Fixed(frame_bytes)) = (settings.spacing.group(), settings.sizes)
        else {
            return None;
        };
        let mut even = Even { group, gap_ns: 1e9 / settings.pps, frames: 0, frame_bytes };
        even.frames = even.due_by(settings.length.as_nanos());
        Some(even)
    }

    /// When the frame of a number is due, ns after the beginning.
    pub fn due_ns(&self, number: u64) -> u64 {
        grouped(number, self.group, self.gap_ns)
    }

    /// How many frames are due before that time.
    pub fn due_by(&self, ns: u64) -> u64 {
        let group = u64::from(self.group);
        let about = (ns as f64 / self.gap_ns) as u64 / group;
        // (Rounding may have it one group too far.)
        let mut groups = about.saturating_sub(1);
        while self.due_ns(groups * group) < ns {
            groups += 1;
        }
        groups * group
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
    fn an_even_stream_is_known_without_drawing_it() {
        for (group, pps) in [(1, 1_000.0), (1, 3.0), (7, 977.7), (1_000, 650.0), (1, 333_333.3)] {
            let spacing = if group == 1 { Spacing::Constant } else { Spacing::Bursts(group) };
            let sizes = Sizes::Fixed(64);
            let settings = StreamSettings { pps, sizes, ..settings(spacing) };
            let even = Even::of(&settings).expect("an even stream");
            let all: Vec<Scheduled> = Schedule::new(&settings).collect();
            assert_eq!((even.frames, even.group), (all.len() as u64, group));
            for (one, number) in all.iter().zip(0..) {
                assert_eq!(one.at.as_nanos(), even.due_ns(number));
            }
        }
        assert_eq!(Even::of(&settings(Spacing::Poisson)), None);
        assert_eq!(Even::of(&settings(Spacing::Constant)), None, "a mix of sizes");
    }

    #[test]
    fn it_ends_with_its_time_and_flows_take_turns() {
        let all: Vec<Scheduled> = Schedule::new(&settings(Spacing::Constant)).collect();
        assert_eq!(all.len(), 2_000);
        assert_eq!(all[1_999].at.as_nanos(), 1_999_000_000);
        assert!(all.iter().zip(0..).all(|(one, number)| one.flow == number % 3));
    }
}
