//! A stretch of a packet: the bytes of it that were captured, beside how long it really was.
//!
//! A capture with a snap length keeps the first bytes of a frame and its original length. Every
//! parser here asks a [`View`] for the bytes it needs and learns which of two things is wrong when
//! they are not there: the capture was cut (`Stop::Cut`, no fault of the packet), or the packet
//! itself ends too early (`Stop::Malformed`).

use crate::parsed::Malformed;

/// Why a parser could not continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The snap length ended the captured bytes here.
    Cut,
    /// The packet contradicts itself, or ends too early at its original length.
    Malformed(Malformed),
}

/// Captured bytes and the original length of the stretch they begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    seen: &'a [u8],
    length: usize,
}

impl<'a> View<'a> {
    /// A whole frame. An `original_bytes` below what was captured is an error of the capture's
    /// writer; the captured length replaces it.
    pub(crate) fn new(seen: &'a [u8], original_bytes: u32) -> View<'a> {
        View { seen, length: seen.len().max(original_bytes as usize) }
    }

    /// The original length of this stretch, bytes.
    pub(crate) fn length(self) -> usize {
        self.length
    }

    /// The bytes of it that were captured.
    pub(crate) fn seen(self) -> &'a [u8] {
        self.seen
    }

    /// The first `bytes` bytes, or why they are not there; `why` is the packet's fault if it is one.
    pub(crate) fn need(self, bytes: usize, why: Malformed) -> Result<&'a [u8], Stop> {
        match self.seen.get(..bytes) {
            Some(head) => Ok(head),
            None if bytes <= self.length => Err(Stop::Cut),
            None => Err(Stop::Malformed(why)),
        }
    }

    /// What follows the first `bytes` bytes; empty when nothing does.
    pub(crate) fn skip(self, bytes: usize) -> View<'a> {
        View {
            seen: self.seen.get(bytes..).unwrap_or_default(),
            length: self.length.saturating_sub(bytes),
        }
    }

    /// The same stretch, ended after `bytes` bytes: what follows is padding or a trailer.
    pub(crate) fn limit(self, bytes: usize) -> View<'a> {
        let length = self.length.min(bytes);
        View { seen: &self.seen[..self.seen.len().min(length)], length }
    }

    /// The same bytes as the beginning of something that later fragments continue.
    pub(crate) fn continued(self) -> View<'a> {
        View { seen: self.seen, length: self.length.max(usize::from(u16::MAX)) }
    }
}

/// What stands behind a link header, or inside a tunnel.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload<'a> {
    /// IP, of the given version where the header before it named one.
    Ip(View<'a>, Option<u8>),
    /// Something else, with its ethertype where it has one.
    Other(Option<u16>),
}

/// The big-endian 16-bit word at `at`; the caller has checked that these bytes are there.
#[inline]
pub(crate) fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The big-endian 32-bit word at `at`; the caller has checked that these bytes are there.
#[inline]
pub(crate) fn double_word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
