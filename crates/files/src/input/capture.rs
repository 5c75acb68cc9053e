//! A capture being read, whichever container it is in.

use std::io::Read;

pub use super::captured::{CapturedPacket, Ending, FRAME_MAX_BYTES, HeaderError, ReadError};
use super::pcap::Pcap;
use super::pcapng::Pcapng;
use super::window::Window;

/// A capture being read, whichever container it is in.
pub enum Capture<R> {
    /// A pcap file.
    Pcap(Pcap<R>),
    /// A pcapng file.
    Pcapng(Box<Pcapng<R>>),
}

impl<R: Read> Capture<R> {
    /// The next packet, or `None` at the end or where the rest cannot be read.
    ///
    /// # Errors
    /// When the stream cannot be read.
    pub fn next_packet(&mut self) -> Result<Option<CapturedPacket<'_>>, ReadError> {
        match self {
            Capture::Pcap(pcap) => pcap.next_packet(),
            Capture::Pcapng(pcapng) => pcapng.next_packet(),
        }
    }

    /// Passes to `take` the packets that have been read ahead, possibly none, until it fails.
    ///
    /// # Errors
    /// When `take` fails.
    #[inline]
    pub fn take_read<E>(
        &mut self,
        take: impl FnMut(&CapturedPacket<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Capture::Pcap(pcap) => pcap.take_read(take),
            Capture::Pcapng(_) => Ok(()),
        }
    }

    /// How the capture ended; known once [`Capture::next_packet`] has returned `None`.
    pub fn ending(&self) -> &Ending {
        match self {
            Capture::Pcap(pcap) => pcap.ending(),
            Capture::Pcapng(pcapng) => pcapng.ending(),
        }
    }

    /// LINKTYPE numbers declared so far, sorted, each once; a capture may declare none.
    pub fn link_types(&self) -> Vec<u32> {
        match self {
            Capture::Pcap(pcap) => vec![pcap.link_type()],
            Capture::Pcapng(pcapng) => pcapng.link_types(),
        }
    }

    /// Name of the container.
    pub fn container(&self) -> &'static str {
        match self {
            Capture::Pcap(_) => "pcap",
            Capture::Pcapng(_) => "pcapng",
        }
    }

    /// Returns the stream, to be read to its end.
    pub fn into_window(self) -> Window<R> {
        match self {
            Capture::Pcap(pcap) => pcap.into_window(),
            Capture::Pcapng(pcapng) => pcapng.into_window(),
        }
    }
}
