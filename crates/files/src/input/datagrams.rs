//! A file of export datagrams, one after the other, with nothing between them.
//!
//! A datagram's own bytes determine where it ends. Where no datagram begins, the next one cannot be
//! found, and reading ends.

use std::io::Read;

use nilometer_flow::framing::{self, Extent, extent, well_formed};
use nilometer_flow::netflow5::HEADER_BYTES;

use super::capture::{Ending, ReadError};
use super::window::Window;

/// The longest datagram.
pub const LONGEST_BYTES: usize = framing::DATAGRAM_BYTES_MAX;

/// A file of datagrams being read.
pub struct Datagrams<R> {
    window: Window<R>,
    ending: Ending,
}

/// Is this the beginning of a file of datagrams? `first` is [`LONGEST_BYTES`] of it, or all. A first
/// datagram that is cut or empty does not count.
pub fn is_datagrams(first: &[u8]) -> bool {
    let Extent::Ends(bytes) = extent(first, first.len() < LONGEST_BYTES) else { return false };
    bytes > HEADER_BYTES && first.get(..bytes).is_some_and(|first| well_formed(first).is_some())
}

impl<R: Read> Datagrams<R> {
    /// The datagrams of `window`.
    pub fn new(window: Window<R>) -> Datagrams<R> {
        Datagrams { window, ending: Ending::Whole }
    }

    /// How the file ended; known once [`Datagrams::next_datagram`] has returned `None`.
    pub fn ending(&self) -> &Ending {
        &self.ending
    }

    /// The next whole datagram, or `None` at the end or where the rest cannot be read.
    ///
    /// # Errors
    /// When the stream cannot be read.
    pub fn next_datagram(&mut self) -> Result<Option<&[u8]>, ReadError> {
        let offset = self.window.offset();
        if self.ending != Ending::Whole {
            return Ok(None);
        }
        let mut wanted = HEADER_BYTES;
        let length = loop {
            let first = self.window.peek(wanted)?;
            if first.is_empty() {
                return Ok(None);
            }
            let is_all = first.len() < wanted;
            match extent(first, is_all) {
                Extent::Ends(length) => break length,
                Extent::Needs(bytes) if !is_all => wanted = bytes,
                Extent::Needs(_) => {
                    self.ending = Ending::Cut { offset };
                    return Ok(None);
                }
                Extent::NoExport => {
                    let what = "no export datagram begins here".to_owned();
                    self.ending = Ending::Damaged { offset, what };
                    return Ok(None);
                }
            }
        };
        if self.window.peek(length)?.len() < length {
            self.ending = Ending::Cut { offset };
            return Ok(None);
        }
        self.window.next(length)
    }

    /// Returns the stream, to be read to its end.
    pub fn into_window(self) -> Window<R> {
        self.window
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_flow::netflow5::RECORD_BYTES;

    fn datagram(records: u8) -> Vec<u8> {
        let mut datagram = vec![0, 5, 0, records];
        datagram.resize(HEADER_BYTES + usize::from(records) * RECORD_BYTES, records);
        datagram
    }

    fn read(file: &[u8]) -> (Vec<usize>, Ending) {
        let mut datagrams = Datagrams::new(Window::new(file));
        let mut lengths = Vec::new();
        while let Some(datagram) = datagrams.next_datagram().expect("memory can be read") {
            lengths.push(datagram.len());
        }
        (lengths, datagrams.ending().clone())
    }

    #[test]
    fn finds_the_datagrams_and_where_they_end() {
        let file = [datagram(2), datagram(30), datagram(1)].concat();
        assert!(is_datagrams(&file));
        assert_eq!(read(&file), (vec![120, 1_464, 72], Ending::Whole));
        assert_eq!(read(&file[..1_600]), (vec![120, 1_464], Ending::Cut { offset: 1_584 }));
        let (lengths, ending) = read(&[datagram(2), vec![7; 100]].concat());
        assert_eq!(lengths, [120]);
        assert!(matches!(ending, Ending::Damaged { offset: 120, .. }));
    }

    #[test]
    fn rejects_files_without_datagrams() {
        assert!(!is_datagrams(&datagram(31)), "30 records is the most");
        assert!(!is_datagrams(&datagram(0)), "the first datagram carries records");
        assert!(!is_datagrams(&datagram(2)[..119]), "the first datagram is cut");
        assert!(!is_datagrams(&[0, 9, 0, 1]), "another version");
    }
}
