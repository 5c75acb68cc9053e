//! Flow records that do not fit into memory: partitions spilled to an unnamed temporary file.

use std::collections::BTreeMap;
use std::env;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard};

use anyhow::{Context, Result};
use nilometer_traffic::partitioner::Partitioner;
use nilometer_traffic::spill::SpillStore;

use nilometer_files::document::draft::nameless;

/// Bytes that are read back at a time.
const READ_BYTES: usize = 1 << 20;

/// Spilled partitions, in the folder that TMPDIR names (`/tmp` where it names none); gone with the process.
#[derive(Debug, Default)]
pub struct SpillFile(Mutex<Pieces>);

#[derive(Debug, Default)]
struct Pieces {
    file: Option<Arc<File>>,
    /// Where the pieces of each partition are: offset and length, bytes.
    of: BTreeMap<usize, Vec<(u64, usize)>>,
    length: u64,
}

impl Pieces {
    fn append(&mut self, partition: usize, bytes: &[u8]) -> Result<()> {
        let folder = env::temp_dir();
        let file = match self.file.take() {
            Some(file) => file,
            None => Arc::new(
                nameless(&folder)
                    .context("too many flow records for memory (--records-in-memory)")?,
            ),
        };
        let file = self.file.insert(file);
        file.write_all_at(bytes, self.length).with_context(|| {
            format!("flow records cannot be set aside in {} (TMPDIR)", folder.display())
        })?;
        self.of.entry(partition).or_default().push((self.length, bytes.len()));
        self.length += bytes.len() as u64;
        Ok(())
    }
}

impl SpillFile {
    /// Spills everything that is in memory.
    ///
    /// # Errors
    /// When there is no room, or no folder to write to.
    pub fn write_all(&mut self, partitioner: &mut Partitioner) -> Result<()> {
        let pieces = self.0.get_mut().expect("no holder panics");
        for (partition, bytes) in partitioner.drain().into_iter().enumerate() {
            pieces.append(partition, &bytes)?;
        }
        Ok(())
    }

    fn pieces(&self) -> MutexGuard<'_, Pieces> {
        self.0.lock().expect("no holder panics")
    }
}

impl SpillStore for SpillFile {
    fn append(&self, partition: usize, bytes: &[u8]) -> Result<(), String> {
        self.pieces().append(partition, bytes).map_err(|error| format!("{error:#}"))
    }

    fn len_bytes(&self, partition: usize) -> u64 {
        let pieces = self.pieces();
        pieces.of.get(&partition).into_iter().flatten().map(|(_, length)| *length as u64).sum()
    }

    fn read(&self, partition: usize, each: &mut dyn FnMut(&[u8])) -> Result<(), String> {
        let (file, pieces) = {
            let pieces = self.pieces();
            let (Some(file), Some(of)) = (&pieces.file, pieces.of.get(&partition)) else {
                return Ok(());
            };
            (file.clone(), of.clone())
        };
        let longest = pieces.iter().map(|(_, length)| *length).max().unwrap_or(0);
        let mut buffer = vec![0; longest.min(READ_BYTES)];
        for (mut offset, length) in pieces {
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
