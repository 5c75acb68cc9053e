//! `nilometer video encode`: a raw clip into the packets of its sub-bands.

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::Args;
use nilometer_files::document::guard_output;
use nilometer_video::container::{self, Container, end_mark, length_of};
use nilometer_video::encoder::{EncoderError, PACKET_BYTES};
use nilometer_video::packet::PACKET_BYTES_DEFAULT;
use nilometer_video::subband::{Direction, Subband};
use nilometer_video::transform::LEVELS_MAX;
use nilometer_video::{Encoder, EncoderSettings, Frame, FrameSize, Layout, Levels};
use serde::Serialize;

use super::super::Exit;
use super::super::table::Side::{Left, Right};
use super::super::table::{fact, row, table};
use super::raw::{RawReader, Writer};

/// Encode a raw clip into a file of packets, losslessly.
///
/// Luma is decomposed `--levels` times and chroma once less, which gives 9 · levels - 3 sub-bands. Each packet
/// carries coefficients of one sub-band of one frame and can be decoded independently. docs/video.md describes
/// packets and file format.
#[derive(Debug, Args)]
pub struct EncodeArgs {
    /// The clip: consecutive I420 frames (.yuv), without a header.
    #[arg(value_name = "IN.yuv")]
    input: PathBuf,
    /// Width and height of its frames.
    #[arg(long, value_name = "WxH")]
    size: FrameSize,
    /// Frames per second, stored in the file and used for the bit rate.
    #[arg(long, value_name = "F", default_value = "12", value_parser = parse_rate)]
    fps: u32,
    /// Number of decompositions of luma; 4 gives 33 sub-bands.
    #[arg(long, value_name = "N", default_value_t = Levels::PAPER.luma(),
          value_parser = clap::value_parser!(u8).range(1..=i64::from(LEVELS_MAX)))]
    levels: u8,
    /// Maximum packet size in bytes, including the 20-byte label: the payload of a datagram.
    #[arg(long, value_name = "N", default_value_t = PACKET_BYTES_DEFAULT)]
    payload_bytes: usize,
    /// Output file.
    #[arg(short, long, value_name = "OUT.wv")]
    output: PathBuf,
    /// Replace an existing file of packets.
    #[arg(long)]
    force: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// What was made, as JSON.
#[derive(Debug, Serialize)]
struct Encoded {
    format: &'static str,
    size: String,
    frames_per_second: f64,
    levels: u8,
    subbands: u8,
    payload_bytes_max: usize,
    /// Steps of the quantiser: 1, nothing is lost.
    quantiser_step: u32,
    frames: u32,
    raw_bytes: u64,
    packets: u64,
    /// With labels, without headers of UDP and IP.
    bytes: u64,
    bits_per_second: f64,
    packets_by_subband: Vec<u64>,
    bytes_by_subband: Vec<u64>,
}

/// Thousandths of frames in a second.
pub(super) fn parse_rate(text: &str) -> Result<u32, String> {
    let rate: f64 =
        text.parse().map_err(|_| "give frames per second, such as 12 or 29.97".to_owned())?;
    let thousandths = (rate * 1e3).round();
    match (1.0..=f64::from(container::RATE_MAX)).contains(&thousandths) {
        true => Ok(thousandths as u32),
        false => Err("0.001 to 1000 frames per second are possible".to_owned()),
    }
}

/// Runs `nilometer video encode`.
pub(super) fn run(args: &EncodeArgs) -> Result<Exit> {
    let levels = Levels::new(args.levels).ok_or_else(|| anyhow!("--levels {}", args.levels))?;
    let settings =
        EncoderSettings { size: args.size, levels, packet_bytes_max: args.payload_bytes };
    let mut encoder = Encoder::new(settings).map_err(|EncoderError::PacketBytes(bytes)| {
        let (least, most) = (PACKET_BYTES.start(), PACKET_BYTES.end());
        anyhow!("--payload-bytes {bytes}: {least} to {most} are possible")
    })?;
    let inputs = [args.input.clone()];
    let output = guard_output(&args.output, &inputs, args.force, container::MAGIC)?;
    let mut reader = RawReader::open(&args.input, args.size)?;
    let mut frame = Frame::flat(args.size, 0);
    // A clip that is none is refused before anything is begun.
    reader.next(&mut frame)?;
    let mut writer = Writer::new(&output)?;
    let header = Container {
        size: args.size,
        levels,
        packet_bytes_max: args.payload_bytes,
        frames_per_1000_s: args.fps,
    };
    writer.put(&header.header())?;
    let subbands = usize::from(levels.subbands());
    let (mut packets, mut bytes) = (vec![0; subbands], vec![0; subbands]);
    loop {
        let mut written = Ok(());
        encoder.encode(&frame, &mut |label, packet| {
            packets[usize::from(label.subband)] += 1;
            bytes[usize::from(label.subband)] += packet.len() as u64;
            if written.is_ok() {
                written = writer.put(&length_of(&packet)).and_then(|()| writer.put(&packet));
            }
        });
        written?;
        if !reader.next(&mut frame)? {
            break;
        }
    }
    writer.put(&end_mark(reader.frames()))?;
    writer.publish()?;
    let encoded = stated(&header, reader.frames(), packets, bytes);
    let text = match args.json {
        true => serde_json::to_string(&encoded)? + "\n",
        false => shown(&encoded, &Layout::new(args.size, levels)),
    };
    print!("{text}");
    Ok(Exit::Done)
}

fn stated(header: &Container, frames: u32, packets: Vec<u64>, bytes: Vec<u64>) -> Encoded {
    let frames_per_second = f64::from(header.frames_per_1000_s) / 1e3;
    let all_bytes: u64 = bytes.iter().sum();
    Encoded {
        format: "nilometer-video/1",
        size: header.size.to_string(),
        frames_per_second,
        levels: header.levels.luma(),
        subbands: header.levels.subbands(),
        payload_bytes_max: header.packet_bytes_max,
        quantiser_step: 1,
        frames,
        raw_bytes: u64::from(frames) * header.size.frame_bytes() as u64,
        packets: packets.iter().sum(),
        bytes: all_bytes,
        bits_per_second: bits_per_second(all_bytes, frames, frames_per_second),
        packets_by_subband: packets,
        bytes_by_subband: bytes,
    }
}

/// The rate of so many bytes over a clip of so many frames.
pub(super) fn bits_per_second(bytes: u64, frames: u32, frames_per_second: f64) -> f64 {
    8.0 * bytes as f64 * frames_per_second / f64::from(frames.max(1))
}

/// A sub-band as people call it: plane, direction and level.
fn called(subband: &Subband) -> String {
    let direction = match subband.direction {
        Direction::LowLow => "LL",
        Direction::HighLow => "HL",
        Direction::LowHigh => "LH",
        Direction::HighHigh => "HH",
    };
    format!("{} {direction}{}", ["Y", "U", "V"][subband.plane], subband.level)
}

/// The figures for people: the whole, then a line for each sub-band with the rate up to it.
fn shown(encoded: &Encoded, layout: &Layout) -> String {
    let Encoded { frames, frames_per_second, packets, bytes, .. } = *encoded;
    let rate = |bytes| bits_per_second(bytes, frames, frames_per_second);
    let mut text = fact("frames", format_args!("{frames} of {}", encoded.size));
    text += &fact("packets", packets);
    let percent = 100.0 * bytes as f64 / encoded.raw_bytes as f64;
    text += &fact("bytes", format_args!("{bytes}, {percent:.1} % of the raw clip"));
    let mbits = rate(bytes) / 1e6;
    text += &fact("rate", format_args!("{mbits:.3} Mb/s at {frames_per_second} frames/s"));
    let mut rows = vec![row(["sub-band", "", "size", "packets", "bytes", "Mb/s", "up to here"])];
    let mut below = 0;
    for (number, subband) in layout.subbands().iter().enumerate() {
        let bytes = encoded.bytes_by_subband[number];
        below += bytes;
        rows.push(vec![
            number.to_string(),
            called(subband),
            format!("{}x{}", subband.width, subband.height),
            encoded.packets_by_subband[number].to_string(),
            bytes.to_string(),
            format!("{:.3}", rate(bytes) / 1e6),
            format!("{:.3}", rate(below) / 1e6),
        ]);
    }
    text + "\n" + &table(&[Right, Left, Right, Right, Right, Right, Right], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_thousandths() {
        assert_eq!(parse_rate("12"), Ok(12_000));
        assert_eq!(parse_rate("29.97"), Ok(29_970));
        for refused in ["0", "-1", "1001", "nan", "inf", "twelve", ""] {
            assert!(parse_rate(refused).is_err(), "{refused}");
        }
    }
}
