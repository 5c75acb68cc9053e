//! Wave Video scaled to the bandwidth that the scheduler gives it: the highest sub-bands go first (DER, 5.1).
//!
//! The packets of a frame arrive from the lowest sub-band to the highest, each labelled with frame and sub-band
//! (`docs/video.md`). So a token bucket is enough that fills at the flow's share of the link and holds what the share
//! carries in the time of a frame and a quarter: when it is empty, the rest of the frame is its finest details, and
//! all of that is dropped, however much the bucket fills meanwhile. The sub-bands without which there is no picture
//! always pass, and the next frames pay for them.
//!
//! The plugin reads the share from the scheduler every 50 ms, as in the paper. So it follows a change of load within
//! 50 ms and a frame, before the queue behind has grown by more than what arrived in that time.

use alloc::format;
use alloc::string::String;

use nilometer_plugin::headers::UDP;
use nilometer_plugin::{Context, Decision, Packet, Plugin, Settings};

const PACKETS: usize = 0;
const DROPPED: usize = 1;
const DROPPED_BYTES: usize = 2;
const FRAMES: usize = 3;
const SCALED_FRAMES: usize = 4;
const UNLABELLED: usize = 5;

/// The time between two queries to the scheduler (DER, 5.2).
const ASKED_EVERY_NS: u64 = 50_000_000;
/// The time of a frame until two have arrived: 12 a second.
const FRAME_NS: u64 = 83_333_333;
/// The times of a frame that are accepted: 200 a second to one a second.
const FRAME_NS_RANGE: (u64, u64) = (5_000_000, 1_000_000_000);
/// What a packet begins with: `W`, and the version.
const LABEL: [u8; 2] = [b'W', 1];
/// Bytes of the label that are read: magic, version, sub-band, levels, frame.
const LABEL_BYTES: usize = 8;
/// Bytes of a UDP header.
const UDP_BYTES: usize = 8;
const SECOND_NS: u128 = 1_000_000_000;

/// Drops the highest sub-bands of each frame of one video, as far as its share of the link is too small.
///
/// Settings: `percent=N`, how much of its share the video uses, 97 unless given, so that the queue behind drains;
/// `overhead=N`, the bytes that the link adds to an IP packet as its scheduler counts, 14 unless given; `keep=N`, the
/// lowest sub-bands that always pass, 3 unless given. Stands on the output side.
pub struct WaveVideo {
    percent: u64,
    overhead_bytes: u64,
    kept_subbands: u8,
    /// Bits per second that it may use; unlimited if the scheduler does not report a share.
    rate_bps: Option<u64>,
    asked_ns: Option<u64>,
    /// Bytes, scaled by 10⁹ and 8: what a bit per second gives in a nanosecond is one.
    bucket: i128,
    filled_ns: u64,
    frame: Option<Frame>,
    frame_ns: u64,
}

/// The frame that is passing.
#[derive(Clone, Copy)]
struct Frame {
    number: u32,
    began_ns: u64,
    /// From this sub-band on nothing of it passes.
    cut: Option<u8>,
}

/// The label of a packet.
struct Label {
    subband: u8,
    frame: u32,
}

impl Label {
    fn read(packet: &Packet<'_>) -> Option<Label> {
        let headers = packet.headers().filter(|headers| headers.protocol == UDP)?;
        let at = headers.transport_at? + UDP_BYTES;
        let label = packet.bytes().get(at..at + LABEL_BYTES)?;
        let frame = u32::from_be_bytes([label[4], label[5], label[6], label[7]]);
        (label[..2] == LABEL).then_some(Label { subband: label[2], frame })
    }
}

/// Bytes as the bucket counts.
fn scaled(bytes: u64) -> i128 {
    i128::from(bytes) * 8 * SECOND_NS as i128
}

impl WaveVideo {
    /// Queries the share when that is due, and fills the bucket.
    fn fill(&mut self, context: &Context<'_>) {
        let now = context.now_ns();
        let is_first = self.asked_ns.is_none();
        if self.asked_ns.is_none_or(|last| now >= last + ASKED_EVERY_NS) {
            let share = context.share_bps();
            self.rate_bps = share.map(|share| share / 100 * self.percent);
            self.asked_ns = Some(now);
        }
        let rate = i128::from(self.rate_bps.unwrap_or(0));
        let most = rate * i128::from(self.frame_ns) * 5 / 4;
        let came = rate * i128::from(now.saturating_sub(self.filled_ns));
        self.bucket = if is_first { most } else { (self.bucket + came).clamp(-most, most) };
        self.filled_ns = now;
    }

    /// The frame of a label, which may be the first packet of it.
    fn frame_of(&mut self, label: &Label, context: &mut Context<'_>) -> Frame {
        let now = context.now_ns();
        match self.frame {
            // A packet of an earlier frame is late, and is treated like one of the current frame.
            Some(frame)
                if label.frame <= frame.number && frame.number - label.frame < u32::MAX / 2 =>
            {
                frame
            }
            before => {
                if let Some(before) =
                    before.filter(|before| label.frame == before.number.wrapping_add(1))
                {
                    let (least, most) = FRAME_NS_RANGE;
                    let took = now.saturating_sub(before.began_ns).clamp(least, most);
                    self.frame_ns = (7 * self.frame_ns + took) / 8;
                }
                context.count(FRAMES, 1);
                Frame { number: label.frame, began_ns: now, cut: None }
            }
        }
    }
}

impl Plugin for WaveVideo {
    const NAME: &'static str = "wave-video";
    const VERSION: &'static str = "1.0.0";
    const SEEN_BYTES: u16 = 96;
    const COUNTERS: &'static [&'static str] =
        &["packets", "dropped", "dropped_bytes", "frames", "scaled_frames", "unlabelled"];

    fn new(configuration: &str) -> Result<WaveVideo, String> {
        let mut settings = Settings::parse(configuration)?;
        let percent: u64 = settings.optional("percent")?.unwrap_or(97);
        let overhead_bytes: u64 = settings.optional("overhead")?.unwrap_or(14);
        let kept_subbands = settings.optional("keep")?.unwrap_or(3);
        settings.finish()?;
        if !(1..=100).contains(&percent) {
            return Err(format!("`percent={percent}` is not from 1 to 100"));
        }
        if overhead_bytes > 1_000 {
            return Err(format!("`overhead={overhead_bytes}` is more than 1000 bytes"));
        }
        Ok(WaveVideo {
            percent,
            overhead_bytes,
            kept_subbands,
            rate_bps: None,
            asked_ns: None,
            bucket: 0,
            filled_ns: 0,
            frame: None,
            frame_ns: FRAME_NS,
        })
    }

    fn process(&mut self, packet: &mut Packet<'_>, context: &mut Context<'_>) -> Decision {
        context.count(PACKETS, 1);
        let Some(label) = Label::read(packet) else {
            context.count(UNLABELLED, 1);
            return Decision::Forward;
        };
        self.fill(context);
        let mut frame = self.frame_of(&label, context);
        let cost = scaled(u64::from(packet.ip_bytes()) + self.overhead_bytes);
        let is_free = self.rate_bps.is_none() || label.subband < self.kept_subbands;
        let is_cut = frame.cut.is_some_and(|cut| label.subband >= cut);
        let passes = is_free || !is_cut && self.bucket >= cost;
        if passes && self.rate_bps.is_some() {
            self.bucket -= cost;
        }
        if !passes {
            if frame.cut.is_none() {
                context.count(SCALED_FRAMES, 1);
            }
            frame.cut = Some(frame.cut.map_or(label.subband, |cut| cut.min(label.subband)));
            context.count(DROPPED, 1);
            context.count(DROPPED_BYTES, packet.ip_bytes().into());
        }
        self.frame = Some(frame);
        if passes { Decision::Forward } else { Decision::Drop }
    }

    fn message(&mut self, message: &str, _: &mut Context<'_>) -> Result<String, String> {
        if message != "share" {
            return Err(format!("`{message}` is not a message; `share` is one"));
        }
        Ok(match self.rate_bps {
            None => "the scheduler does not say".into(),
            Some(rate) => format!("{rate} bit/s, {} ms a frame", self.frame_ns / 1_000_000),
        })
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::testing::{Bench, refused, udp_of};

    const SUBBANDS: u8 = 33;

    /// A packet of a sub-band.
    fn labelled(frame: u32, subband: u8, bytes: usize) -> Vec<u8> {
        let mut payload = alloc::vec![0; bytes];
        payload[..4].copy_from_slice(&[b'W', 1, subband, 4]);
        payload[4..8].copy_from_slice(&frame.to_be_bytes());
        udp_of("10.0.0.1:5", "10.0.0.2:6", &payload)
    }

    /// Frames, 12 a second, of 33 packets of 250 bytes: 0.9 Mb/s with headers. The sub-bands that passed, by frame.
    fn pass(bench: &mut Bench<WaveVideo>, frames: core::ops::Range<u32>) -> Vec<Vec<u8>> {
        let mut passed = Vec::new();
        for frame in frames {
            let mut of_frame = Vec::new();
            for subband in 0..SUBBANDS {
                if bench.decide(&mut labelled(frame, subband, 250)) == Decision::Forward {
                    of_frame.push(subband);
                }
                bench.wait(100_000);
            }
            bench.wait(FRAME_NS - 3_300_000);
            passed.push(of_frame);
        }
        passed
    }

    #[test]
    fn the_lowest_sub_bands_pass_as_far_as_the_share_goes() {
        let mut bench = Bench::<WaveVideo>::new("");
        bench.wishes.share_bps = Some(500_000);
        let passed = pass(&mut bench, 0..100);
        for (frame, subbands) in passed.iter().enumerate().skip(2) {
            let expected: Vec<u8> = (0..subbands.len() as u8).collect();
            assert_eq!(*subbands, expected, "frame {frame}: none above one that was dropped");
            // 97 % of 500,000 bits in a twelfth of a second are 17.3 packets of 292 bytes.
            assert!((16..=18).contains(&subbands.len()), "frame {frame}: {subbands:?}");
        }
        let bytes: usize = passed.iter().map(|subbands| subbands.len() * 292).sum();
        let rate = bytes as f64 * 8.0 / (100.0 / 12.0);
        assert!((rate / 485_000.0 - 1.0).abs() < 0.02, "{rate}");
    }

    #[test]
    fn where_the_share_suffices_nothing_is_lost() {
        let mut bench = Bench::<WaveVideo>::new("");
        for share in [None, Some(3_000_000), Some(1_000_000)] {
            bench.wishes.share_bps = share;
            let from = bench.counters()[FRAMES] as u32;
            // (The scheduler is queried within 50 ms.)
            let passed = pass(&mut bench, from..from + 30);
            assert!(passed[2..].iter().all(|subbands| subbands.len() == 33), "{share:?}");
        }
    }

    #[test]
    fn a_change_of_load_is_met_within_50_ms_and_a_frame() {
        let mut bench = Bench::<WaveVideo>::new("");
        bench.wishes.share_bps = Some(3_000_000);
        pass(&mut bench, 0..10);
        bench.wishes.share_bps = Some(500_000);
        let down = pass(&mut bench, 10..14);
        assert!(down[1].len() <= 18, "{:?}", down[1]);
        bench.wishes.share_bps = Some(3_000_000);
        let up = pass(&mut bench, 14..18);
        assert_eq!((up[1].len(), up[3].len()), (33, 33));
    }

    #[test]
    fn the_lowest_subbands_always_pass() {
        let mut bench = Bench::<WaveVideo>::new("keep=3");
        bench.wishes.share_bps = Some(10_000);
        let passed = pass(&mut bench, 0..20);
        assert!(passed[2..].iter().all(|subbands| *subbands == [0, 1, 2]), "{passed:?}");
        assert_eq!(bench.counters()[SCALED_FRAMES], 20);
    }

    #[test]
    fn unlabelled_packets_pass_and_late_ones_share_the_fate_of_their_frame() {
        let mut bench = Bench::<WaveVideo>::new("");
        bench.wishes.share_bps = Some(100_000);
        bench.forwarded(&mut udp_of("10.0.0.1:5", "10.0.0.2:6", &[0; 100]));
        bench.forwarded(&mut [0; 3]);
        assert_eq!(bench.counters()[UNLABELLED], 2);
        pass(&mut bench, 5..6);
        bench.dropped(&mut labelled(4, 30, 250));
        bench.forwarded(&mut labelled(4, 0, 250));
        assert_eq!(bench.counters()[FRAMES], 1);
    }

    #[test]
    fn settings_out_of_range_are_refused() {
        assert!(refused::<WaveVideo>("percent=0").contains("1 to 100"));
        assert!(refused::<WaveVideo>("overhead=1001").contains("1000"));
        assert!(refused::<WaveVideo>("keep=x").contains("keep"));
    }
}
