//! Flow records that memory has no room for: set aside in a file without a name, lot by lot.

use std::env;
use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result};
use nilometer_traffic::gather::{Aside, Gathered};

use crate::table::draft::nameless;

/// Bytes that are read back at a time.
const READ_BYTES: usize = 1 << 20;

/// What was set aside, in the folder that TMPDIR names (`/tmp` where it names none); gone with the process.
#[derive(Debug, Default)]
pub struct SetAside {
    file: Option<File>,
    /// Where the pieces of each lot are: offset and length, bytes.
    pieces: Vec<Vec<(u64, usize)>>,
    length: u64,
}

impl SetAside {
    /// Sets aside all that is held.
    ///
    /// # Errors
    /// When there is no room, or no folder to write to.
    pub fn put(&mut self, gathered: &mut Gathered) -> Result<()> {
        let folder = env::temp_dir();
        let file = match self.file.take() {
            Some(file) => file,
            None => nameless(&folder).context("too many flow records for memory (--hold)")?,
        };
        let file = self.file.insert(file);
        let lots = gathered.set_aside();
        self.pieces.resize(lots.len(), Vec::new());
        for (lot, pieces) in lots.into_iter().zip(&mut self.pieces) {
            file.write_all_at(&lot, self.length).with_context(|| {
                format!("flow records cannot be set aside in {} (TMPDIR)", folder.display())
            })?;
            pieces.push((self.length, lot.len()));
            self.length += lot.len() as u64;
        }
        Ok(())
    }
}

impl Aside for SetAside {
    fn length(&self, lot: usize) -> u64 {
        let pieces = self.pieces.get(lot).into_iter().flatten();
        pieces.map(|(_, length)| *length as u64).sum()
    }

    fn fetch(&self, lot: usize, each: &mut dyn FnMut(&[u8])) -> Result<(), String> {
        let (Some(file), Some(pieces)) = (&self.file, self.pieces.get(lot)) else {
            return Ok(());
        };
        let mut buffer = vec![0; pieces.iter().map(|(_, length)| *length).max().unwrap_or(0)];
        buffer.truncate(READ_BYTES);
        for &(mut offset, length) in pieces {
            let end = offset + length as u64;
            while offset < end {
                let bytes = usize::try_from(end - offset).map_or(READ_BYTES, |n| n.min(READ_BYTES));
                file.read_exact_at(&mut buffer[..bytes], offset).map_err(|e| e.to_string())?;
                each(&buffer[..bytes]);
                offset += bytes as u64;
            }
        }
        Ok(())
    }
}
