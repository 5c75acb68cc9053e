//! What two hosts send each other: lines of JSON to begin and to end, and records of frames in between.

use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::net::Ipv4Addr;

use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use nilometer_linux::stamp::Arrival;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The protocol and its version.
pub(super) const PROTOCOL: &str = "nilometer-receive/1";
/// The longest line.
const LINE_BYTES_MAX: u64 = 4_096;
/// Bytes of a record before the frame: its stamp (8), its length (4), and how much of it follows (2).
pub(super) const RECORD_BYTES: usize = 14;
/// The stamp of the record behind the last.
const END_STAMP: u64 = u64::MAX;

/// The receiver's first line on every connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Greeting {
    /// [`PROTOCOL`].
    pub protocol: String,
    /// The version of the program.
    pub version: String,
}

/// The sender's first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Hello {
    /// Requests of eight bytes follow, answered by sixteen.
    Clock,
    /// A trial is to be received.
    Receive(Setup),
}

/// A trial that is to be received: the interface is set up for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Setup {
    /// Whether the device forwards by Ethernet addresses, so that both hosts are neighbours.
    pub is_transparent: bool,
    /// Whether packet sockets may stamp if programs in the driver cannot.
    pub may_fall_back: bool,
}

/// The frames that are to be received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StreamFilter {
    /// The run in their tags.
    pub run: u32,
    /// The network that they come from.
    pub source: (Ipv4Addr, u8),
    /// Frames that the ring holds.
    pub ring_slots: usize,
    /// The longest frame, bytes.
    pub frame_bytes_max: usize,
    /// Whether programs in the driver are to stamp; packet sockets otherwise.
    pub by_driver: bool,
}

/// The answer to either.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// The interface is set up, its link perhaps not up yet.
    InterfaceReady,
    /// Frames are received.
    Receiving {
        /// What takes their stamps, in words.
        stamped_by: String,
    },
    /// Why not.
    Refused(String),
}

/// What the receiver counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Totals {
    /// Frames that it sent on.
    pub received: u64,
    /// Frames that found its ring full.
    pub lost: u64,
    /// The most frames in the ring at once.
    pub most_waiting: u64,
    /// The share of its processors' time that a hypervisor took.
    pub stolen_share: f64,
}

/// Writes a line.
pub(super) fn write_line<T: Serialize>(to: &mut impl Write, message: &T) -> Result<()> {
    let mut line = serde_json::to_string(message)?;
    line.push('\n');
    to.write_all(line.as_bytes()).map_err(in_words)
}

/// Reads a line.
pub(super) fn read_line<T: DeserializeOwned>(from: &mut impl BufRead) -> Result<T> {
    let mut line = String::new();
    from.take(LINE_BYTES_MAX).read_line(&mut line).map_err(in_words)?;
    ensure!(!line.is_empty(), "the other host closed the connection");
    serde_json::from_str(&line).ok().with_context(|| format!("no message of {PROTOCOL}"))
}

/// An error of a connection, in words that say what it means here.
pub(super) fn in_words(error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            anyhow!("the other host does not answer: is it on, and the network to it up?")
        }
        ErrorKind::UnexpectedEof => anyhow!("the other host closed the connection"),
        _ => Error::new(error).context("the connection to the other host"),
    }
}

/// Appends the record of a frame.
pub(super) fn put_record(records: &mut Vec<u8>, arrival: &Arrival<'_>) {
    let kept = u16::try_from(arrival.frame.len()).unwrap_or(u16::MAX);
    records.extend_from_slice(&arrival.stamp_ns.to_le_bytes());
    records.extend_from_slice(&arrival.bytes.to_le_bytes());
    records.extend_from_slice(&kept.to_le_bytes());
    records.extend_from_slice(&arrival.frame[..usize::from(kept)]);
}

/// Appends the record behind the last.
pub(super) fn put_end(records: &mut Vec<u8>) {
    put_record(records, &Arrival { stamp_ns: END_STAMP, bytes: 0, frame: &[] });
}

/// A record at the beginning of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Record<'a> {
    /// Not all of it is there yet.
    Partial,
    /// A frame: its stamp, its length, its bytes.
    Frame(u64, u32, &'a [u8]),
    /// No more frames follow.
    End,
}

/// The first record of these bytes. (A frame takes [`RECORD_BYTES`] and its own bytes.)
pub(super) fn record(bytes: &[u8], frame_bytes_max: usize) -> Result<Record<'_>> {
    let Some((head, rest)) = bytes.split_first_chunk::<RECORD_BYTES>() else {
        return Ok(Record::Partial);
    };
    let (stamp, rest_of_head) = head.split_first_chunk::<8>().expect("fourteen bytes");
    let (length, kept) = rest_of_head.split_first_chunk::<4>().expect("six bytes");
    let stamp_ns = u64::from_le_bytes(*stamp);
    let kept = usize::from(u16::from_le_bytes([kept[0], kept[1]]));
    if stamp_ns == END_STAMP {
        return Ok(Record::End);
    }
    if kept > frame_bytes_max {
        bail!("the receiver sent a frame of {kept} bytes, and {frame_bytes_max} is the most");
    }
    Ok(match rest.get(..kept) {
        Some(frame) => Record::Frame(stamp_ns, u32::from_le_bytes(*length), frame),
        None => Record::Partial,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written_and_partial_ones_wait() {
        let mut bytes = Vec::new();
        put_record(&mut bytes, &Arrival { stamp_ns: 7, bytes: 60, frame: &[1, 2, 3] });
        put_end(&mut bytes);
        let whole = RECORD_BYTES + 3;
        assert_eq!(record(&bytes, 64).expect("sound"), Record::Frame(7, 60, &[1, 2, 3]));
        assert_eq!(record(&bytes[whole..], 64).expect("sound"), Record::End);
        for cut in 0..whole {
            assert_eq!(record(&bytes[..cut], 64).expect("sound"), Record::Partial, "{cut} bytes");
        }
        assert!(record(&bytes, 2).is_err(), "longer than any frame of the trial");
    }

    #[test]
    fn a_line_that_is_too_long_or_no_message_is_refused() {
        let long = format!("\"{}\"\n", "x".repeat(2 * LINE_BYTES_MAX as usize));
        for text in [long.as_str(), "GET / HTTP/1.1\r\n", "", "{\"receive\":{}}\n"] {
            assert!(read_line::<Hello>(&mut text.as_bytes()).is_err(), "{text:.30}");
        }
        let read: Hello = read_line(&mut &b"\"clock\"\n"[..]).expect("a message");
        assert_eq!(read, Hello::Clock);
    }
}
