//! The experiment in figures, as JSON: PSNR and sub-bands of each receiver under each contender.

use std::ops::Range;

use nilometer_wire::Span;
use serde::Serialize;

use super::clip::Clip;
use super::layers::LAYER_ENDS;
use super::punctual::{ThreadPunctuality, complaints};
use super::{Contender, FrameSeen, LiveRuns, RunOutcome, VideoPlan, ViewerOutcome};
use crate::trial::config::Clock;

/// Frames of a row of the paper's figure 8.
pub const FRAMES_A_ROW: usize = 8;
/// The largest squared difference of two samples.
const PEAK_SQUARED: f64 = 255.0 * 255.0;

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct VideoComparison {
    /// What this is, and its version.
    pub format: &'static str,
    /// The clock by which it was played.
    pub clock: Clock,
    /// Whether all threads were punctual enough; nothing in virtual time, where none can be late.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid: Option<bool>,
    /// Why it is not valid.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub why: Vec<String>,
    /// The clip, as it was named.
    pub clip: String,
    /// Width and height.
    pub size: String,
    /// Frames before the clip begins again.
    pub clip_frames: usize,
    /// Frames in a second.
    pub frames_per_second: f64,
    /// The clip's average rate, with UDP, IPv4 and Ethernet.
    pub clip_bits_per_second: u64,
    /// What the narrow links carry.
    pub link_bits_per_second: u64,
    /// Frames that were sent.
    pub frames: u32,
    /// When cross traffic began and ended, seconds since the first frame.
    pub burst_s: [f64; 2],
    /// The seed.
    pub seed: u64,
    /// The first sub-band beyond each layer of layered multicast.
    pub layer_ends: Vec<u8>,
    /// Of each contender.
    pub contenders: Vec<ContenderResult>,
}

/// What became of one contender.
#[derive(Clone, Debug, Serialize)]
pub struct ContenderResult {
    /// `plain`, `active` or `layered`.
    pub contender: &'static str,
    /// Packets of the video that were sent.
    pub sent_packets: u64,
    /// D1 to D3.
    pub receivers: Vec<ReceiverResult>,
    /// How punctual each thread was by the real clock.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<ThreadPunctuality>,
}

/// What one receiver got.
#[derive(Clone, Debug, Serialize)]
pub struct ReceiverResult {
    /// `D1` to `D3`.
    pub receiver: String,
    /// Streams of cross traffic that share its link in the burst.
    pub cross_streams: usize,
    /// The scheduler's share for the video then.
    pub share_bits_per_second: u64,
    /// The video's received rate in the second half of the burst, as the link counts.
    pub late_burst_bits_per_second: f64,
    /// Packets of the video that were received, and those used in a frame.
    pub packets: u64,
    /// See `packets`.
    pub used_packets: u64,
    /// Packets of cross traffic that came.
    pub cross_packets: u64,
    /// Packets that its router dropped in queues (cross traffic too), and in the plugin.
    pub dropped_by_queues: u64,
    /// See `dropped_by_queues`.
    pub dropped_by_plugin: u64,
    /// Frames that were sent in the burst.
    pub burst: BurstResult,
    /// PSNR of luma of every frame; nothing where it is the original.
    pub psnr_db_by_frame: Vec<Option<f64>>,
    /// Figure 8: of every eight frames, how many had each sub-band whole.
    pub subbands_by_8_frames: Vec<Vec<u8>>,
    /// Since which second how many layers were joined; empty but for layered multicast.
    pub layers: Vec<(f64, usize)>,
}

/// The frames that were sent while there was cross traffic.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BurstResult {
    /// How many.
    pub frames: usize,
    /// Those that are the original.
    pub identical_frames: usize,
    /// Those that miss more than their highest sub-bands.
    pub disturbed_frames: usize,
    /// From the beginning of the burst to the first frame from which on none is disturbed, 0 where none is; nothing where
    /// fewer than eight frames are left then.
    pub reaction_ms: Option<f64>,
    /// PSNR of luma, of the mean squared difference of all of them; nothing where all are identical.
    pub psnr_db: Option<f64>,
}

impl BurstResult {
    fn of(clip: &Clip, plan: &VideoPlan, frames: &[FrameSeen]) -> BurstResult {
        let range = burst_frames(clip, plan);
        let seen = &frames[range.clone()];
        let squares = |db: f64| PEAK_SQUARED / 10f64.powf(db / 10.0);
        let differ = || seen.iter().filter_map(|frame| frame.psnr_db);
        let mean = differ().map(squares).sum::<f64>() / seen.len().max(1) as f64;
        let settled = match seen.iter().rposition(|frame| !frame.is_undisturbed()) {
            None => Some(range.start),
            Some(last) if last + FRAMES_A_ROW < seen.len() => Some(range.start + last + 1),
            Some(_) => None,
        };
        let reaction = settled.map(|frame| {
            let sent = clip.frame_time() * frame as u64;
            Span(sent.0.saturating_sub(plan.burst.0.0)).as_secs_f64() * 1e3
        });
        BurstResult {
            frames: seen.len(),
            identical_frames: seen.len() - differ().count(),
            disturbed_frames: seen.iter().filter(|frame| !frame.is_undisturbed()).count(),
            reaction_ms: reaction,
            psnr_db: (mean > 0.0).then(|| 10.0 * (PEAK_SQUARED / mean).log10()),
        }
    }
}

/// The frames that are sent while there is cross traffic, the one among them that is being sent when it begins.
pub fn burst_frames(clip: &Clip, plan: &VideoPlan) -> Range<usize> {
    let (frame, frames) = (clip.frame_time().0, u64::from(plan.frames));
    let [first, end] = [plan.burst.0.0 / frame, plan.burst.1.0.div_ceil(frame)];
    first.min(frames) as usize..end.min(frames) as usize
}

impl VideoComparison {
    /// The result of a plan in virtual time, for a clip with this name.
    pub fn of(name: &str, clip: &Clip, plan: &VideoPlan, runs: &[RunOutcome]) -> VideoComparison {
        let link = plan.link(clip).bits_per_second();
        let contender = |(contender, run): (&Contender, &RunOutcome)| ContenderResult {
            contender: contender.name(),
            sent_packets: run.sent_packets,
            receivers: (0..)
                .zip(&run.viewers)
                .map(|(cross, seen)| ReceiverResult::of(clip, plan, (cross, link), seen))
                .collect(),
            threads: run.threads.clone(),
        };
        VideoComparison {
            format: "nilometer-video-compare/1",
            clock: Clock::Virtual,
            valid: None,
            why: Vec::new(),
            clip: name.to_owned(),
            size: clip.size().to_string(),
            clip_frames: clip.len(),
            frames_per_second: clip.frames_per_second(),
            clip_bits_per_second: clip.rate().bits_per_second(),
            link_bits_per_second: link,
            frames: plan.frames,
            burst_s: [plan.burst.0, plan.burst.1].map(Span::as_secs_f64),
            seed: plan.seed,
            layer_ends: LAYER_ENDS.to_vec(),
            contenders: Contender::ALL.iter().zip(runs).map(contender).collect(),
        }
    }

    /// The result by the real clock, which is not valid where threads were late.
    pub fn live(name: &str, clip: &Clip, plan: &VideoPlan, live: &LiveRuns) -> VideoComparison {
        let threads = live.runs.iter().map(|run| &run.threads[..]);
        let mut why = complaints(Contender::ALL.into_iter().zip(threads));
        let valid = Some(why.is_empty());
        why.extend(live.refused.iter().filter(|_| valid == Some(false)).cloned());
        let clock = Clock::Real;
        VideoComparison { clock, valid, why, ..VideoComparison::of(name, clip, plan, &live.runs) }
    }
}

impl ReceiverResult {
    fn of(
        clip: &Clip,
        plan: &VideoPlan,
        (cross, link): (usize, u64),
        seen: &ViewerOutcome,
    ) -> ReceiverResult {
        let half_s = (plan.burst.1 - plan.burst.0).as_secs_f64() / 2.0;
        ReceiverResult {
            receiver: format!("D{}", cross + 1),
            cross_streams: cross,
            share_bits_per_second: link / (cross as u64 + 1),
            late_burst_bits_per_second: seen.late_burst_bytes as f64 * 8.0 / half_s,
            packets: seen.video_packets,
            used_packets: seen.used_packets,
            cross_packets: seen.cross_packets,
            dropped_by_queues: seen.dropped_by_queues,
            dropped_by_plugin: seen.dropped_by_plugin,
            burst: BurstResult::of(clip, plan, &seen.frames),
            psnr_db_by_frame: seen.frames.iter().map(|frame| frame.psnr_db).collect(),
            subbands_by_8_frames: seen
                .frames
                .chunks(FRAMES_A_ROW)
                .map(|some| (0..clip.subbands()).map(|at| times_whole(some, at)).collect())
                .collect(),
            layers: seen.subscriptions.iter().map(|(at, to)| (at.as_secs_f64(), *to)).collect(),
        }
    }
}

fn times_whole(frames: &[FrameSeen], subband: usize) -> u8 {
    frames.iter().filter(|frame| frame.whole[subband]).count() as u8
}

#[cfg(test)]
mod tests {
    use nilometer_video::{Frame, FrameSize};

    use super::*;

    fn seen(psnr_db: Option<f64>, missing: Range<usize>) -> FrameSeen {
        FrameSeen { psnr_db, whole: (0..33).map(|at| !missing.contains(&at)).collect() }
    }

    #[test]
    fn a_reaction_ends_with_the_last_frame_that_is_disturbed() {
        let clip = Clip::new(vec![Frame::flat(FrameSize::QCIF, 3)], 10_000).expect("a clip");
        let plan = VideoPlan::new(&clip, 3.0, [0.45, 2.0], 1).expect("a plan");
        assert_eq!(burst_frames(&clip, &plan), 4..20);
        let mut frames = vec![seen(None, 0..0); 30];
        frames[5] = seen(Some(20.0), 1..2);
        frames[7] = seen(Some(30.0), 9..10);
        frames[8] = seen(Some(30.0), 30..33);
        let burst = BurstResult::of(&clip, &plan, &frames);
        assert_eq!((burst.frames, burst.identical_frames, burst.disturbed_frames), (16, 13, 2));
        // Frame 8 is sent at 0.8 s, the burst begins at 0.45.
        assert!((burst.reaction_ms.expect("it settles") - 350.0).abs() < 1e-6, "{burst:?}");
        // The mean of 650.25, 65.025 twice, and nothing.
        let expected = 10.0 * (65_025.0_f64 / ((650.25 + 2.0 * 65.025) / 16.0)).log10();
        assert!((burst.psnr_db.expect("finite") - expected).abs() < 1e-9, "{burst:?}");
        frames[12] = seen(Some(9.0), 0..33);
        assert!(!frames[12].is_undisturbed(), "nothing of the lowest has come");
        assert_eq!(BurstResult::of(&clip, &plan, &frames).reaction_ms, None, "seven are left");
        let none = vec![seen(Some(30.0), 31..33); 30];
        assert_eq!(BurstResult::of(&clip, &plan, &none).reaction_ms, Some(0.0));
    }

    #[test]
    fn impossible_times_are_refused() {
        let clip = Clip::new(vec![Frame::flat(FrameSize::QCIF, 3)], 10_000).expect("a clip");
        for (seconds, burst) in [
            (0.0, [0.0, 0.0]),
            (241.0, [1.0, 2.0]),
            (9.0, [5.0, 5.0]),
            (9.0, [1.0, 10.0]),
            (f64::NAN, [0.0, 1.0]),
        ] {
            assert!(VideoPlan::new(&clip, seconds, burst, 1).is_err(), "{seconds} {burst:?}");
        }
    }
}
