//! Storage for partitions that do not fit in memory.

use alloc::borrow::ToOwned;
use alloc::string::String;

/// Storage of spilled partitions, by number.
pub trait SpillStore: Sync {
    /// Appends to a partition: one of the partitioner's, or, under another number, a part of a large one.
    ///
    /// # Errors
    /// Why there is no room for it.
    fn append(&self, partition: usize, bytes: &[u8]) -> Result<(), String>;

    /// Bytes stored of a partition.
    fn len_bytes(&self, partition: usize) -> u64;

    /// Passes everything stored of a partition to `each`, in order, in pieces that may be cut anywhere.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn read(&self, partition: usize, each: &mut dyn FnMut(&[u8])) -> Result<(), String>;
}

/// No storage: nothing can be spilled.
#[derive(Clone, Copy, Debug)]
pub struct NoSpill;

impl SpillStore for NoSpill {
    fn append(&self, _partition: usize, _bytes: &[u8]) -> Result<(), String> {
        Err("nothing can be set aside".to_owned())
    }

    fn len_bytes(&self, _partition: usize) -> u64 {
        0
    }

    fn read(&self, _partition: usize, _each: &mut dyn FnMut(&[u8])) -> Result<(), String> {
        Ok(())
    }
}
