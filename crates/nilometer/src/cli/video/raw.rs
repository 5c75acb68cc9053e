//! Raw clips frame by frame, read and written: whatever their length, one frame is in memory.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use nilometer_files::document::draft::Draft;
use nilometer_files::document::{Output, guard_output};
use nilometer_video::Frame;
use nilometer_video::container::FRAMES_MAX;
use nilometer_video::frame::FrameSize;

/// Bytes of a raw clip at most: a hundred thousand frames of CIF.
const RAW_BYTES_MAX: u64 = 16 << 30;

/// A raw clip being read.
pub(super) struct RawReader {
    file: BufReader<File>,
    shown: String,
    size: FrameSize,
    frames: u32,
    frames_max: u32,
}

impl RawReader {
    pub(super) fn open(path: &Path, size: FrameSize) -> Result<RawReader> {
        let shown = path.display().to_string();
        let file = File::open(path).with_context(|| format!("cannot read {shown}"))?;
        let frames_max = (RAW_BYTES_MAX / size.frame_bytes() as u64).min(FRAMES_MAX.into()) as u32;
        let file = BufReader::with_capacity(1 << 16, file);
        Ok(RawReader { file, shown, size, frames: 0, frames_max })
    }

    /// Frames that were read.
    pub(super) fn frames(&self) -> u32 {
        self.frames
    }

    /// Reads the next frame into `frame`, the first of which has to be there; false where the clip has ended.
    pub(super) fn next(&mut self, frame: &mut Frame) -> Result<bool> {
        let (shown, size, number) = (&self.shown, self.size, self.frames);
        let bytes = frame.bytes_mut();
        let mut filled = 0;
        while filled < bytes.len() {
            let read = self.file.read(&mut bytes[filled..]);
            match read.with_context(|| format!("cannot read {shown}"))? {
                0 => break,
                read => filled += read,
            }
        }
        if filled == 0 {
            ensure!(number > 0, "{shown}: is empty");
            return Ok(false);
        }
        if filled < bytes.len() {
            let whole = bytes.len();
            bail!(
                "{shown}: {filled} bytes remain after {number} frames of {size}, which have {whole} bytes \
                 each; is --size right?"
            );
        }
        if number == self.frames_max {
            bail!("{shown}: has more than {number} frames of {size}, the limit; is --size right?");
        }
        self.frames += 1;
        Ok(true)
    }
}

/// A file being written piece by piece, whole or not at all.
pub(super) struct Writer {
    draft: BufWriter<Draft>,
    shown: String,
    left_bytes: u64,
}

impl Writer {
    pub(super) fn new(output: &Output) -> Result<Writer> {
        let draft = output.draft()?;
        let shown = draft.shown().to_owned();
        let draft = BufWriter::with_capacity(1 << 16, draft);
        Ok(Writer { draft, shown, left_bytes: RAW_BYTES_MAX })
    }

    /// A raw clip. Nothing in such a file says that it is one of ours, so it replaces none.
    pub(super) fn raw(path: &Path, inputs: &[PathBuf]) -> Result<Writer> {
        let there = path.metadata().is_ok_and(|about| about.is_file() && about.len() > 0);
        if there {
            let shown = path.display();
            bail!(
                "{shown} exists already and may be any file, since raw clips have no header; remove it first"
            );
        }
        Writer::new(&guard_output(path, inputs, false, b"")?)
    }

    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let left = self.left_bytes.checked_sub(bytes.len() as u64);
        let Some(left) = left else {
            bail!("{}: would have more than {RAW_BYTES_MAX} bytes, the limit", self.shown);
        };
        self.left_bytes = left;
        let put = self.draft.write_all(bytes);
        put.map_err(|error| anyhow!("cannot write {}: {error}", self.shown))
    }

    /// Gives the file its name.
    pub(super) fn publish(mut self) -> Result<()> {
        let shown = self.shown;
        self.draft.flush().map_err(|error| anyhow!("cannot write {shown}: {error}"))?;
        let draft = self.draft.into_inner();
        draft.map_err(|error| anyhow!("cannot write {shown}: {error}"))?.publish()
    }
}
