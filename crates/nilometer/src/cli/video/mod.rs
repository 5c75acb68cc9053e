//! `nilometer video`: clips into packets of wavelet sub-bands, back, through routers, and how good they still are.

use anyhow::Result;
use clap::{Args, Subcommand};

use super::Exit;

mod compare;
mod decode;
mod encode;
mod psnr;
mod raw;
mod synthetic;

/// Arguments of `nilometer video`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct VideoArgs {
    #[command(subcommand)]
    command: VideoCommand,
}

#[derive(Debug, Subcommand)]
enum VideoCommand {
    /// Encode a raw clip into a file of packets, losslessly.
    Encode(encode::EncodeArgs),
    /// Decode a file of packets into a raw clip, from all sub-bands or from the lowest ones.
    Decode(decode::DecodeArgs),
    /// Compare a raw clip with its original: PSNR by frame and in total.
    Psnr(psnr::PsnrArgs),
    /// Generate a synthetic raw clip: a moving zone plate and noise.
    Synthetic(synthetic::SyntheticArgs),
    /// Send a clip through three routers: plain queueing, active dropping and layered multicast, side by side.
    Compare(compare::CompareArgs),
}

/// Runs `nilometer video`.
///
/// # Errors
/// One line with the reason.
pub fn run(args: &VideoArgs) -> Result<Exit> {
    match &args.command {
        VideoCommand::Encode(args) => encode::run(args),
        VideoCommand::Decode(args) => decode::run(args),
        VideoCommand::Psnr(args) => psnr::run(args),
        VideoCommand::Synthetic(args) => synthetic::run(args),
        VideoCommand::Compare(args) => compare::run(args),
    }
}
