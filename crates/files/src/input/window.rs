//! A window that slides over a stream: the bytes at hand, read ahead in large steps.
//!
//! A container requests as many bytes as its next record needs and gets them as one slice, without a
//! copy if they are already in the buffer. The buffer grows only to the longest request, so the
//! container's limit on a record is also the limit on memory.

use std::io::{self, Read};

/// How much is read ahead: large enough that the cost of system calls is negligible.
const STEP_BYTES: usize = 256 * 1024;

/// Bytes of a stream, read ahead.
pub struct Window<R> {
    source: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    offset: u64,
    ended: bool,
}

impl<R: Read> Window<R> {
    /// A window at the beginning of `source`.
    pub fn new(source: R) -> Window<R> {
        Window { source, buffer: vec![0; STEP_BYTES], start: 0, end: 0, offset: 0, ended: false }
    }

    /// How many bytes of the stream have been consumed.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The bytes that have been read ahead; more may come behind them.
    #[inline]
    pub fn at_hand(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The next `count` bytes, or those that are left when the stream ends before.
    pub fn peek(&mut self, count: usize) -> io::Result<&[u8]> {
        if self.end - self.start < count {
            self.fill(count)?;
        }
        Ok(&self.buffer[self.start..self.end.min(self.start + count)])
    }

    /// Consumes `count` bytes that were seen by [`Window::peek`].
    ///
    /// # Panics
    /// When more is consumed than was seen.
    pub fn take(&mut self, count: usize) {
        assert!(count <= self.end - self.start, "a window takes only what it has seen");
        self.start += count;
        self.offset += count as u64;
    }

    /// Consumes and returns the next `count` bytes; `None` (and nothing consumed) when the stream
    /// ends before.
    pub fn next(&mut self, count: usize) -> io::Result<Option<&[u8]>> {
        if self.end - self.start < count {
            self.fill(count)?;
            if self.end - self.start < count {
                return Ok(None);
            }
        }
        let from = self.start;
        self.take(count);
        Ok(Some(&self.buffer[from..from + count]))
    }

    /// Skips `count` bytes unread; returns how many there were before the stream ended.
    pub fn skip(&mut self, count: u64) -> io::Result<u64> {
        let mut left = count;
        while left > 0 {
            let want = left.min(STEP_BYTES as u64) as usize;
            let here = self.peek(want)?.len();
            if here == 0 {
                break;
            }
            self.take(here);
            left -= here as u64;
        }
        Ok(count - left)
    }

    fn fill(&mut self, count: usize) -> io::Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.buffer.len() < count {
            self.buffer.resize(count, 0);
        }
        while self.end < count && !self.ended {
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.ended = true,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source that hands out its bytes three at a time.
    struct Dripping<'a>(&'a [u8]);

    impl Read for Dripping<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let count = into.len().min(3).min(self.0.len());
            into[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    #[test]
    fn shows_every_byte_once_in_order() {
        let stream: Vec<u8> = (0..=255).collect();
        let mut window = Window::new(Dripping(&stream));
        let mut seen = Vec::new();
        for count in [1, 7, 30, 2, 100] {
            seen.extend_from_slice(window.next(count).unwrap().expect("bytes are left"));
        }
        assert_eq!(window.peek(4).unwrap(), &stream[140..144]);
        assert_eq!(window.skip(10).unwrap(), 10);
        assert_eq!(seen, stream[..140]);
        assert_eq!(window.offset(), 150);
        assert!(window.next(107).unwrap().is_none(), "only 106 bytes are left");
        assert_eq!(window.peek(1_000).unwrap(), &stream[150..]);
        assert_eq!(window.skip(1_000).unwrap(), 106);
        assert_eq!(window.offset(), 256);
    }

    #[test]
    fn grows_for_a_long_request() {
        let stream = vec![5u8; 3 * STEP_BYTES];
        let mut window = Window::new(&stream[..]);
        assert_eq!(window.next(10).unwrap().map(<[u8]>::len), Some(10));
        assert_eq!(window.next(2 * STEP_BYTES).unwrap().map(<[u8]>::len), Some(2 * STEP_BYTES));
        assert_eq!(window.skip(u64::MAX).unwrap(), STEP_BYTES as u64 - 10);
    }
}
