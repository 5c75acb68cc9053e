//! `nilometer video synthetic`: a clip for those who have none.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use nilometer_video::container::FRAMES_MAX;
use nilometer_video::{FrameSize, SyntheticClip};
use serde::Serialize;

use super::super::Exit;
use super::super::table::fact;
use super::raw::Writer;

/// Generate a synthetic raw clip: a moving zone plate, which contains every frequency, and noise.
///
/// It is free of copyright; the same seed gives the same clip on every machine.
#[derive(Debug, Args)]
pub struct SyntheticArgs {
    /// Width and height of its frames.
    #[arg(long, value_name = "WxH", default_value_t = FrameSize::QCIF)]
    size: FrameSize,
    /// Number of frames.
    #[arg(long, value_name = "N", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(FRAMES_MAX)))]
    frames: u32,
    /// Seed of the noise.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The clip, consecutive I420 frames; an existing file is not replaced.
    #[arg(short, long, value_name = "OUT.yuv")]
    output: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// What was made, as JSON.
#[derive(Debug, Serialize)]
struct Made {
    format: &'static str,
    size: String,
    seed: u64,
    frames: u32,
    bytes: u64,
}

/// Runs `nilometer video synthetic`.
pub(super) fn run(args: &SyntheticArgs) -> Result<Exit> {
    let mut writer = Writer::raw(&args.output, &[])?;
    let clip = SyntheticClip::new(args.size, args.seed);
    for number in 0..args.frames {
        writer.put(clip.frame(number).bytes())?;
    }
    writer.publish()?;
    let made = Made {
        format: "nilometer-video-clip/1",
        size: args.size.to_string(),
        seed: args.seed,
        frames: args.frames,
        bytes: u64::from(args.frames) * args.size.frame_bytes() as u64,
    };
    if args.json {
        println!("{}", serde_json::to_string(&made)?);
    } else {
        let seed = format_args!("{} of {}, seed {}", made.frames, made.size, made.seed);
        print!("{}{}", fact("frames", seed), fact("bytes", made.bytes));
    }
    Ok(Exit::Done)
}
