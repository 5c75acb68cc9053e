//! Where lots are set aside for which memory has no room.

use alloc::borrow::ToOwned;
use alloc::string::String;

/// Lots that were set aside.
pub trait Aside: Sync {
    /// Sets more of a lot aside: of one of those that were gathered, or of one with another number.
    ///
    /// # Errors
    /// Why there is no room for it.
    fn put(&self, lot: usize, bytes: &[u8]) -> Result<(), String>;

    /// How many bytes were taken of a lot.
    fn length(&self, lot: usize) -> u64;

    /// Gives everything that was taken of a lot to `each`, in pieces one behind the other, cut anywhere.
    ///
    /// # Errors
    /// Why it cannot be had.
    fn fetch(&self, lot: usize, each: &mut dyn FnMut(&[u8])) -> Result<(), String>;
}

/// Nothing was set aside, and nothing can be.
#[derive(Clone, Copy, Debug)]
pub struct NothingAside;

impl Aside for NothingAside {
    fn put(&self, _lot: usize, _bytes: &[u8]) -> Result<(), String> {
        Err("nothing can be set aside".to_owned())
    }

    fn length(&self, _lot: usize) -> u64 {
        0
    }

    fn fetch(&self, _lot: usize, _each: &mut dyn FnMut(&[u8])) -> Result<(), String> {
        Ok(())
    }
}
