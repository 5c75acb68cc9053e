//! Pipes: inputs that can be read only once, and the error for commands that read twice.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use anyhow::{Result, bail};

/// The error for packets that come through a pipe, with what to do.
pub const ONCE: &str = "captures are read twice, and a pipe can be read once: write it to a file first \
                        (`... > capture.pcap`) and give that file";

/// Can it be read only once?
pub fn is_pipe(input: &Path) -> bool {
    input == Path::new("-") || input.metadata().is_ok_and(|about| about.file_type().is_fifo())
}

/// Refuses an input that can be read only once.
///
/// # Errors
/// If it is a pipe or the like; the error says what to do.
pub fn can_be_read_again(input: &Path) -> Result<()> {
    if is_pipe(input) {
        bail!("{}: {ONCE}", input.display());
    }
    Ok(())
}
