//! `nilometer video decode`: a file of packets into a raw clip.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use nilometer_files::say;
use nilometer_video::container::{
    Container, ContainerError, END_BYTES, HEADER_BYTES, LENGTH_BYTES, frames_at_end, packet_length,
};
use nilometer_video::{Counts, Frame, Receiver};
use serde::Serialize;

use super::super::Exit;
use super::super::table::fact;
use super::encode::bits_per_second;
use super::raw::Writer;

/// Decode a file of packets into a raw clip.
///
/// Missing coefficients are replaced by zeros, or in the three lowest sub-bands by those of the previous frame.
/// Damaged packets are counted and reported; a truncated file is refused.
#[derive(Debug, Args)]
pub struct DecodeArgs {
    /// The file of packets.
    #[arg(value_name = "IN.wv")]
    input: PathBuf,
    /// The clip, consecutive I420 frames; an existing file is not replaced.
    #[arg(short, long, value_name = "OUT.yuv")]
    output: PathBuf,
    /// Use only the N lowest sub-bands, as behind a router that dropped the others.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    keep_bands: Option<u8>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// What became of everything, as JSON.
#[derive(Debug, Serialize)]
struct Decoded {
    format: &'static str,
    size: String,
    frames_per_second: f64,
    levels: u8,
    subbands: u8,
    kept_subbands: u8,
    frames: u64,
    frames_whole: u64,
    frames_partial: u64,
    frames_empty: u64,
    /// `packets = used + above + late + repeated + refused`.
    packets: u64,
    used: u64,
    above: u64,
    late: u64,
    repeated: u64,
    refused: u64,
    /// Of the packets that were used.
    bytes: u64,
    bits_per_second: f64,
    bytes_by_subband: Vec<u64>,
}

/// A file of packets being read.
struct PacketReader {
    file: BufReader<File>,
    shown: String,
    offset: u64,
}

impl PacketReader {
    fn bad(&self, why: ContainerError) -> anyhow::Error {
        anyhow!("{}: at byte {}: {why}", self.shown, self.offset)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        match self.file.read_exact(bytes) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                Err(self.bad(ContainerError::Cut))
            }
            read => read.with_context(|| format!("cannot read {}", self.shown)),
        }
    }

    fn header(&mut self) -> Result<Container> {
        let mut header = [0; HEADER_BYTES];
        // Too short a file is most often something else.
        if self.file.read_exact(&mut header).is_err() {
            return Err(self.bad(ContainerError::Magic));
        }
        let container = Container::read(&header).map_err(|why| self.bad(why))?;
        self.offset = HEADER_BYTES as u64;
        Ok(container)
    }

    /// The next packet into `packet`; behind the last one, how many frames there are.
    fn next(&mut self, packet: &mut Vec<u8>) -> Result<Option<u32>> {
        let mut length = [0; LENGTH_BYTES];
        self.fill(&mut length)?;
        if let Some(length) = packet_length(length).map_err(|why| self.bad(why))? {
            packet.resize(length, 0);
            self.fill(packet)?;
            self.offset += (LENGTH_BYTES + length) as u64;
            return Ok(None);
        }
        let mut end = [0; END_BYTES];
        self.fill(&mut end)?;
        let frames = frames_at_end(end).map_err(|why| self.bad(why))?;
        self.offset += (LENGTH_BYTES + END_BYTES) as u64;
        if self.file.read(&mut [0]).unwrap_or(0) > 0 {
            bail!("{}: at byte {}: there is data after the end mark", self.shown, self.offset);
        }
        Ok(Some(frames))
    }
}

/// Runs `nilometer video decode`.
pub(super) fn run(args: &DecodeArgs) -> Result<Exit> {
    let shown = args.input.display().to_string();
    let file = File::open(&args.input).with_context(|| format!("cannot read {shown}"))?;
    let file = BufReader::with_capacity(1 << 16, file);
    let mut reader = PacketReader { file, shown, offset: 0 };
    let container = reader.header()?;
    let subbands = container.levels.subbands();
    let keep = args.keep_bands.unwrap_or(subbands);
    if keep > subbands {
        bail!("--keep-bands {keep}: {} has {subbands} sub-bands", reader.shown);
    }
    let mut writer = Writer::raw(&args.output, std::slice::from_ref(&args.input))?;
    let mut receiver = Receiver::new(container.size, container.levels, keep);
    let mut bytes = vec![0; subbands.into()];
    let (mut packet, mut written) = (Vec::new(), Ok(()));
    let (mut first_refused, mut frames_seen) = (None, 0);
    let frames = loop {
        let offset = reader.offset;
        if let Some(frames) = reader.next(&mut packet)? {
            break frames;
        }
        match receiver.receive(&packet, &mut |frame, _| write(&mut writer, frame, &mut written)) {
            Ok(label) => {
                frames_seen = u64::from(label.frame) + 1;
                if label.subband < keep {
                    bytes[usize::from(label.subband)] += packet.len() as u64;
                }
            }
            Err(why) => _ = first_refused.get_or_insert((offset, why)),
        }
        if written.is_err() {
            return written.map(|()| Exit::Done);
        }
    };
    // The end mark has the last word, and nothing may be beyond it.
    frames_seen = frames_seen.max(receiver.counts().frames);
    if frames_seen > u64::from(frames) {
        bail!(
            "{}: has {frames} frames by its end mark, and packets of {frames_seen}",
            reader.shown
        );
    }
    let counts = receiver.finish(frames, &mut |frame, _| write(&mut writer, frame, &mut written));
    let counts = counts.map_err(|why| anyhow!("{}: {why}", reader.shown))?;
    written?;
    writer.publish()?;
    if let Some((offset, why)) = first_refused {
        let Counts { packets, used, above, .. } = counts;
        let unused = packets - used - above;
        say!(
            "warning: {unused} of {packets} packets could not be used; the first, at byte {offset}: {why}"
        );
    }
    let decoded = stated(&container, keep, &counts, bytes);
    let text = match args.json {
        true => serde_json::to_string(&decoded)? + "\n",
        false => figures(&decoded),
    };
    print!("{text}");
    Ok(Exit::Done)
}

/// Writes a frame, unless one before it could not be written.
fn write(writer: &mut Writer, frame: &Frame, written: &mut Result<()>) {
    if written.is_ok() {
        *written = writer.put(frame.bytes());
    }
}

fn stated(container: &Container, keep: u8, counts: &Counts, by_subband: Vec<u64>) -> Decoded {
    let frames_per_second = f64::from(container.frames_per_1000_s) / 1e3;
    let bytes = by_subband.iter().sum();
    Decoded {
        format: "nilometer-video/1",
        size: container.size.to_string(),
        frames_per_second,
        levels: container.levels.luma(),
        subbands: container.levels.subbands(),
        kept_subbands: keep,
        frames: counts.frames,
        frames_whole: counts.frames_whole,
        frames_partial: counts.frames_partial,
        frames_empty: counts.frames_empty,
        packets: counts.packets,
        used: counts.used,
        above: counts.above,
        late: counts.late,
        repeated: counts.repeated,
        refused: counts.refused,
        bytes,
        bits_per_second: bits_per_second(bytes, counts.frames as u32, frames_per_second),
        bytes_by_subband: by_subband,
    }
}

fn figures(decoded: &Decoded) -> String {
    let Decoded { frames, frames_whole, frames_partial, frames_empty, .. } = *decoded;
    let Decoded { packets, used, above, late, repeated, refused, .. } = *decoded;
    let of = format_args!("{frames_whole} whole, {frames_partial} partial, {frames_empty} empty");
    let mut text = fact("frames", format_args!("{frames} of {}: {of}", decoded.size));
    let of = format_args!(
        "{used} used, {above} above, {late} late, {repeated} repeated, {refused} refused"
    );
    text += &fact("packets", format_args!("{packets}: {of}"));
    let kept = format_args!("{} of {}", decoded.kept_subbands, decoded.subbands);
    text += &fact("sub-bands", kept);
    let mbits = decoded.bits_per_second / 1e6;
    let rate = decoded.frames_per_second;
    text + &fact("rate", format_args!("{mbits:.3} Mb/s at {rate} frames/s"))
}
