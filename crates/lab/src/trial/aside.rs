//! Flow records that memory has no room for: set aside in a file without a name, lot by lot.

use std::env;
use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result};
use nilometer_traffic::gather::{Aside, Gathered};

use crate::table::draft::nameless;

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
    fn fetch(&self, lot: usize) -> Result<Vec<u8>, String> {
        let (Some(file), Some(pieces)) = (&self.file, self.pieces.get(lot)) else {
            return Ok(Vec::new());
        };
        let mut bytes = vec![0; pieces.iter().map(|(_, length)| length).sum()];
        let mut rest = bytes.as_mut_slice();
        for &(offset, length) in pieces {
            let (piece, others) = rest.split_at_mut(length);
            file.read_exact_at(piece, offset).map_err(|error| error.to_string())?;
            rest = others;
        }
        Ok(bytes)
    }
}
