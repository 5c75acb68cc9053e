//! Whole clips: lossless with all packets, worse step by step with fewer sub-bands.
//!
//! Real clips are read below `NILOMETER_DATA` (`video/derived`, decompressed by `xz`); none of them is shipped.

use std::path::PathBuf;
use std::process::Command;

use nilometer_stat::Rng;
use nilometer_video::container::{self, Container, end_mark, length_of};
use nilometer_video::frame::raw_frames;
use nilometer_video::{
    Counts, Distortion, Encoder, EncoderSettings, Frame, FrameSize, Levels, Receiver, SyntheticClip,
};

const SIZE: FrameSize = FrameSize::QCIF;
const SUBBANDS: u8 = Levels::PAPER.subbands();
/// The paper's frames in a second.
const FRAMES_PER_S: f64 = 12.0;
/// By how much fewer sub-bands may be better, decibels: a detail can spoil what a coarser one has got wrong.
const TOLERANCE_DB: f64 = 0.05;

/// A clip, its packets, and their bytes by sub-band.
struct Coded {
    frames: Vec<Frame>,
    packets: Vec<Vec<u8>>,
    bytes: Vec<usize>,
}

fn coded(frames: Vec<Frame>) -> Coded {
    let mut encoder = Encoder::new(EncoderSettings::new(SIZE)).expect("an encoder");
    let (mut packets, mut bytes) = (Vec::new(), vec![0; SUBBANDS.into()]);
    for frame in &frames {
        encoder.encode(frame, &mut |label, packet| {
            assert!(packet.len() <= 1_400);
            bytes[usize::from(label.subband)] += packet.len();
            packets.push(packet);
        });
    }
    Coded { frames, packets, bytes }
}

impl Coded {
    /// The distortion of luma and of all planes with the lowest `keep` sub-bands, and what became of packets.
    fn kept(&self, keep: u8) -> (Distortion, Distortion, Counts) {
        let mut receiver = Receiver::new(SIZE, Levels::PAPER, keep);
        let (mut luma, mut all) = (Distortion::default(), Distortion::default());
        let mut originals = self.frames.iter();
        let mut judge = |copy: &Frame, _: &[_]| {
            let original = originals.next().expect("as many frames as there were");
            luma = luma.plus(Distortion::luma(original, copy));
            all = all.plus(Distortion::all_planes(original, copy));
        };
        for packet in &self.packets {
            receiver.receive(packet, &mut judge).expect("a packet of ours");
        }
        let counts = receiver.finish(self.frames.len() as u32, &mut judge).expect("the end");
        assert!(originals.next().is_none());
        (luma, all, counts)
    }

    /// Bits in a second of the lowest `keep` sub-bands, with labels.
    fn bits_per_s(&self, keep: u8) -> f64 {
        let bytes: usize = self.bytes[..keep.into()].iter().sum();
        (8 * bytes) as f64 * FRAMES_PER_S / self.frames.len() as f64
    }

    /// All packets make the clip; each sub-band that is dropped from the top makes it worse.
    fn hold(&self, name: &str) {
        let (_, whole, counts) = self.kept(SUBBANDS);
        assert!(whole.is_none(), "{name}: all packets are the clip to the last bit");
        assert_eq!(counts.used, self.packets.len() as u64);
        assert_eq!(counts.frames_whole, self.frames.len() as u64);
        let mut better = [f64::INFINITY; 2];
        for keep in (1..=SUBBANDS).rev() {
            let (luma, all, counts) = self.kept(keep);
            assert_eq!(counts.used + counts.above, self.packets.len() as u64);
            let [luma, all] = [luma, all].map(|one| one.psnr_db().unwrap_or(f64::INFINITY));
            let rate = self.bits_per_s(keep) / 1e6;
            println!(
                "{name}: {keep:2} sub-bands {rate:.3} Mb/s, luma {luma:.2} dB, all {all:.2} dB"
            );
            for (worse, better) in [luma, all].into_iter().zip(&mut better) {
                assert!(worse <= *better + TOLERANCE_DB, "{name}: {keep} sub-bands");
                *better = better.min(worse);
            }
        }
        assert!(better[1] > 5.0 && better[1] < 30.0, "{name}: one sub-band of 33: {better:?}");
    }
}

/// The frames of a public clip; prints in one line what is skipped if it is missing.
fn public(file: &str) -> Option<Vec<Frame>> {
    let Some(folder) = std::env::var_os("NILOMETER_DATA") else {
        println!("skipped: {file} (set NILOMETER_DATA)");
        return None;
    };
    let path = PathBuf::from(folder).join("video/derived").join(file);
    let unpacked = Command::new("xz").args(["-dc"]).arg(&path).output();
    match unpacked {
        Ok(output) if output.status.success() => {
            Some(raw_frames(SIZE, &output.stdout).expect("whole frames").collect())
        }
        _ => {
            println!("skipped: {file} (it is not there, or xz is not)");
            None
        }
    }
}

fn synthetic(frames: u32) -> Vec<Frame> {
    let clip = SyntheticClip::new(SIZE, 1);
    (0..frames).map(|number| clip.frame(number)).collect()
}

#[test]
fn the_synthetic_clip_is_lossless_and_worse_with_each_subband_less() {
    coded(synthetic(12)).hold("synthetic");
}

#[test]
fn foreman_is_lossless_and_worse_with_each_subband_less() {
    let Some(frames) = public("foreman_qcif_100f.yuv.xz") else { return };
    assert_eq!(frames.len(), 100);
    let coded = coded(frames);
    coded.hold("foreman");
    // Raw it is 3.65 Mb/s; the paper's rate, of the camera's original, is 2.6 Mb/s.
    assert!(coded.bits_per_s(SUBBANDS) < 2.6e6);
}

#[test]
fn akiyo_is_lossless() {
    let Some(frames) = public("akiyo_qcif_300f.yuv.xz") else { return };
    let coded = coded(frames);
    let (_, whole, counts) = coded.kept(SUBBANDS);
    assert!(whole.is_none() && counts.frames_whole == 300);
    println!("akiyo: {:.3} Mb/s", coded.bits_per_s(SUBBANDS) / 1e6);
}

/// What dropping by frequency is for (DER, figure 8): to lose as many bytes by chance is far worse.
#[test]
fn dropping_high_subbands_is_better_than_losing_as_much_by_chance() {
    // The share of a link that the paper's Foreman gets beside one flow of cross traffic: 1.5 of its 2.6 Mb/s.
    const SHARE: f64 = 1.5 / 2.6;
    let Some(frames) = public("foreman_qcif_100f.yuv.xz") else { return };
    let clip = coded(frames);
    let fits = |keep: &u8| clip.bits_per_s(*keep) <= SHARE * clip.bits_per_s(SUBBANDS);
    let keep = (0..=SUBBANDS).rev().find(fits).expect("nothing fits everywhere");
    let scaled = clip.kept(keep).0.psnr_db().expect("something is missing");

    let mut rng = Rng::new(1, 0xd409, 0);
    let mut receiver = Receiver::new(SIZE, Levels::PAPER, SUBBANDS);
    let mut luma = Distortion::default();
    let mut originals = clip.frames.iter();
    let mut judge = |copy: &Frame, _: &[_]| {
        luma = luma.plus(Distortion::luma(originals.next().expect("a frame"), copy));
    };
    for packet in &clip.packets {
        if rng.unit() < SHARE {
            receiver.receive(packet, &mut judge).expect("a packet of ours");
        }
    }
    receiver.finish(clip.frames.len() as u32, &mut judge).expect("the end");
    let by_chance = luma.psnr_db().expect("something is missing");
    println!(
        "foreman at {SHARE:.3} of its rate: {keep} sub-bands {scaled:.2} dB, by chance {by_chance:.2} dB"
    );
    assert!(scaled > by_chance + 5.0, "{scaled} dB by sub-band, {by_chance} dB by chance");
}

#[test]
fn a_container_has_the_clip_whole() {
    let clip = coded(synthetic(3));
    let levels = Levels::PAPER;
    let header =
        Container { size: SIZE, levels, packet_bytes_max: 1_400, frames_per_1000_s: 12_000 };
    let mut file = header.header().to_vec();
    for packet in &clip.packets {
        file.extend(length_of(packet));
        file.extend(packet);
    }
    file.extend(end_mark(3));
    let mut receiver = Receiver::new(SIZE, levels, SUBBANDS);
    let mut frames = Vec::new();
    let read = container::packets(&file, &mut |container, packet| {
        assert_eq!(*container, header);
        receiver.receive(packet, &mut |frame, _| frames.push(frame.clone())).expect("a packet");
    });
    let (_, count) = read.expect("a whole file");
    receiver.finish(count, &mut |frame, _| frames.push(frame.clone())).expect("the end");
    assert_eq!(frames, clip.frames);
}
