//! Frames of the control protocols, written into a caller's buffer.

use super::Mac;

/// The shortest Ethernet frame without its check sequence, in bytes.
pub(crate) const SHORTEST_BYTES: usize = 60;

/// A buffer, and how much of it is written.
pub(crate) struct Ink<'a> {
    frame: &'a mut [u8],
    at: usize,
}

impl<'a> Ink<'a> {
    /// A frame from `from` to `to`.
    ///
    /// # Panics
    /// Here and later, if the buffer is too short for what is put.
    pub(crate) fn new(frame: &'a mut [u8], to: Mac, from: Mac, kind: u16) -> Ink<'a> {
        let mut ink = Ink { frame, at: 0 };
        ink.put(&to);
        ink.put(&from);
        ink.put(&kind.to_be_bytes());
        ink
    }

    /// Writes on.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.frame[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    /// The length of the frame, padded with zeros to what a link demands.
    pub(crate) fn close(self) -> usize {
        let end = self.at.max(SHORTEST_BYTES);
        self.frame[self.at..end].fill(0);
        end
    }
}
