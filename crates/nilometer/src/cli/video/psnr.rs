//! `nilometer video psnr`: how far a raw clip is from its original.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use nilometer_video::{Distortion, Frame, FrameSize};
use serde::Serialize;

use super::super::Exit;
use super::super::table::Side::Right;
use super::super::table::{fact, row, table};
use super::raw::RawReader;

/// Peak signal-to-noise ratio of two raw clips, of luma and of all planes.
///
/// It is infinite for identical clips: `null` in JSON, with the word `infinite` beside it.
#[derive(Debug, Args)]
pub struct PsnrArgs {
    /// The original: consecutive I420 frames.
    #[arg(value_name = "A.yuv")]
    original: PathBuf,
    /// The copy, with the same number of frames.
    #[arg(value_name = "B.yuv")]
    copy: PathBuf,
    /// Width and height of the frames of both.
    #[arg(long, value_name = "WxH")]
    size: FrameSize,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// The comparison, as JSON.
#[derive(Debug, Serialize)]
struct Compared {
    format: &'static str,
    size: String,
    frames: u32,
    luma: Ratio,
    all_planes: Ratio,
}

/// PSNR of some planes over a clip.
#[derive(Debug, Serialize)]
struct Ratio {
    /// Of the mean squared difference of the whole clip.
    psnr_db: Option<f64>,
    /// `infinite` where that has no value, else `finite`.
    psnr: &'static str,
    /// The mean of the ratios of those frames that differ.
    mean_psnr_db: Option<f64>,
    /// Frames whose ratio is infinite.
    identical_frames: u32,
    psnr_db_by_frame: Vec<Option<f64>>,
}

impl Ratio {
    fn of(frames: &[Distortion]) -> Ratio {
        let whole = frames.iter().copied().fold(Distortion::default(), Distortion::plus);
        let by_frame: Vec<_> = frames.iter().map(|frame| frame.psnr_db()).collect();
        let differ: Vec<f64> = by_frame.iter().flatten().copied().collect();
        Ratio {
            psnr_db: whole.psnr_db(),
            psnr: if whole.is_none() { "infinite" } else { "finite" },
            mean_psnr_db: (!differ.is_empty())
                .then(|| differ.iter().sum::<f64>() / differ.len() as f64),
            identical_frames: (by_frame.len() - differ.len()) as u32,
            psnr_db_by_frame: by_frame,
        }
    }
}

/// Runs `nilometer video psnr`.
pub(super) fn run(args: &PsnrArgs) -> Result<Exit> {
    let mut original = RawReader::open(&args.original, args.size)?;
    let mut copy = RawReader::open(&args.copy, args.size)?;
    let [mut one, mut other] = [Frame::flat(args.size, 0), Frame::flat(args.size, 0)];
    let (mut luma, mut all) = (Vec::new(), Vec::new());
    loop {
        match (original.next(&mut one)?, copy.next(&mut other)?) {
            (true, true) => {
                luma.push(Distortion::luma(&one, &other));
                all.push(Distortion::all_planes(&one, &other));
            }
            (false, false) => break,
            (true, false) => bail!(unequal(args, "more", copy.frames())),
            (false, true) => bail!(unequal(args, "fewer", copy.frames())),
        }
    }
    let compared = Compared {
        format: "nilometer-video-psnr/1",
        size: args.size.to_string(),
        frames: original.frames(),
        luma: Ratio::of(&luma),
        all_planes: Ratio::of(&all),
    };
    let text = match args.json {
        true => serde_json::to_string(&compared)? + "\n",
        false => shown(&compared),
    };
    print!("{text}");
    Ok(Exit::Done)
}

fn unequal(args: &PsnrArgs, how: &str, copied: u32) -> String {
    let (original, copy) = (args.original.display(), args.copy.display());
    let copied = if how == "more" { format!("{copied}") } else { format!("{copied} or more") };
    format!("{original} has {how} frames than {copy}, which has {copied}; give clips of one length")
}

fn shown(compared: &Compared) -> String {
    let decibels =
        |ratio: Option<f64>| ratio.map_or("infinite".to_owned(), |db| format!("{db:.2}"));
    let Compared { luma, all_planes, .. } = compared;
    let mut text = fact("frames", format_args!("{} of {}", compared.frames, compared.size));
    for (name, ratio) in [("luma", luma), ("all planes", all_planes)] {
        let mean = ratio
            .mean_psnr_db
            .map_or(String::new(), |mean| format!("; mean of the frames that differ {mean:.2} dB"));
        let identical = match ratio.identical_frames {
            0 => String::new(),
            frames => format!("; {frames} frames are identical"),
        };
        let whole = match ratio.psnr_db {
            Some(db) => format!("{db:.2} dB"),
            None => "infinite".to_owned(),
        };
        text += &fact(name, whole + &mean + &identical);
    }
    let mut rows = vec![row(["frame", "luma dB", "all planes dB"])];
    for (frame, (luma, all)) in
        luma.psnr_db_by_frame.iter().zip(&all_planes.psnr_db_by_frame).enumerate()
    {
        rows.push(vec![frame.to_string(), decibels(*luma), decibels(*all)]);
    }
    text + "\n" + &table(&[Right], &rows)
}
