//! The forwarding plane manager's protocol of FRR (`dplane_fpm_nl`): netlink messages in a TCP stream.
//!
//! A frame is four bytes (version 1, kind 1 for netlink, and a length in network order that counts them:
//! FRR's `fpm/fpm.h`) and one or more netlink messages. A connection begins with everything zebra knows, next-hop objects
//! first, so a reconnection begins a resynchronisation. Zebra may replace a route by a withdrawal and
//! an announcement of the same prefix in one frame; here that is one change, so that no packet in
//! between is without a route.
//!
//! Bytes arrive in whatever pieces TCP makes. They are read into a [`Stream`]'s own room and frames are
//! handed out from there, so that nothing is copied but the cut frame at the end, once in a read.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use crate::route_update::RouteUpdate;
use crate::rtnetlink::{self, Ignored, Messages, TABLE_MAIN};

/// Bytes before a frame's messages.
pub const HEADER_BYTES: usize = 4;
const VERSION: u8 = 1;
const KIND_NETLINK: u8 = 1;
/// Two of the longest frames.
const ROOM_BYTES: usize = 1 << 17;

/// Why the stream cannot be read any further; the connection is useless then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FpmFault {
    /// Another version of the protocol than 1.
    #[error("FPM version {0}, not 1")]
    Version(u8),
    /// A frame of another kind than netlink (2 is protobuf).
    #[error("an FPM frame of kind {0}, not netlink: load dplane_fpm_nl")]
    Kind(u8),
    /// A frame shorter than its own header.
    #[error("an FPM frame of {0} bytes")]
    Length(u16),
}

/// What was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FpmCounters {
    /// Bytes of whole frames.
    pub bytes: u64,
    /// Frames.
    pub frames: u64,
    /// Messages that held an update.
    pub messages: u64,
    /// Withdrawals that an announcement in their frame made one change with.
    pub exchanges: u64,
    /// Frames whose rest could not be read: a message contradicted itself.
    pub malformed: u64,
    /// Routes of the table of the router's own addresses, which zebra does not send.
    pub local: u64,
    /// Messages without an update, and why.
    pub ignored: Ignored,
}

/// One direction of a connection, as far as it was received.
#[derive(Debug)]
pub struct Stream {
    room: Box<[u8]>,
    begin: usize,
    end: usize,
    counters: FpmCounters,
}

impl Stream {
    /// Nothing received yet.
    pub fn new() -> Stream {
        let room = vec![0; ROOM_BYTES].into_boxed_slice();
        Stream { room, begin: 0, end: 0, counters: FpmCounters::default() }
    }

    /// Where to put the next bytes; never empty after [`Stream::updates`] has returned.
    pub fn space(&mut self) -> &mut [u8] {
        if self.begin > 0 {
            self.room.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
        }
        &mut self.room[self.end..]
    }

    /// Records that `count` bytes have been read into the space.
    ///
    /// # Panics
    /// When the space was smaller.
    pub fn filled(&mut self, count: usize) {
        assert!(count <= self.room.len() - self.end, "more bytes than there was space for");
        self.end += count;
    }

    /// Forgets a cut frame: the connection has ended.
    pub fn reset(&mut self) {
        (self.begin, self.end) = (0, 0);
    }

    /// What was read so far.
    pub fn counters(&self) -> FpmCounters {
        self.counters
    }

    /// Appends the updates of all complete frames.
    ///
    /// # Errors
    /// When the bytes are not a frame; the frames before them have been read.
    pub fn updates(&mut self, updates: &mut Vec<RouteUpdate>) -> Result<(), FpmFault> {
        while let Some((messages, length)) = frame(&self.room[self.begin..self.end])? {
            self.counters.bytes += length as u64;
            self.counters.frames += 1;
            read_frame(messages, updates, &mut self.counters);
            self.begin += length;
        }
        Ok(())
    }
}

impl Default for Stream {
    fn default() -> Stream {
        Stream::new()
    }
}

/// The messages of the frame at the head of `bytes` and the frame's length; nothing while it is cut.
///
/// # Errors
/// When the bytes there are not a frame.
#[inline]
pub fn frame(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, FpmFault> {
    let Some(&[version, kind, high, low]) = bytes.first_chunk() else { return Ok(None) };
    let length = u16::from_be_bytes([high, low]);
    if version != VERSION {
        return Err(FpmFault::Version(version));
    }
    if kind != KIND_NETLINK {
        return Err(FpmFault::Kind(kind));
    }
    if usize::from(length) < HEADER_BYTES {
        return Err(FpmFault::Length(length));
    }
    let length = usize::from(length);
    Ok(bytes.get(HEADER_BYTES..length).map(|messages| (messages, length)))
}

/// Appends the updates in a frame's messages.
#[inline]
pub fn read_frame(messages: &[u8], updates: &mut Vec<RouteUpdate>, counters: &mut FpmCounters) {
    let first = updates.len();
    for message in Messages::new(messages) {
        match message.and_then(|message| rtnetlink::read(&message, &mut counters.ignored)) {
            Ok(Some((TABLE_MAIN, update))) => {
                counters.messages += 1;
                updates.push(update);
            }
            Ok(Some(_)) => counters.local += 1,
            Ok(None) => {}
            Err(_) => {
                counters.malformed += 1;
                break;
            }
        }
    }
    if updates.len() - first > 1 {
        exchange(first, updates, counters);
    }
}

/// Removes each withdrawal that an announcement of the same prefix in the same frame follows.
fn exchange(first: usize, updates: &mut Vec<RouteUpdate>, counters: &mut FpmCounters) {
    let mut announced = BTreeSet::new();
    let mut kept = Vec::new();
    for update in updates.drain(first..).rev() {
        match &update {
            RouteUpdate::Announce { prefix, .. } => drop(announced.insert(*prefix)),
            RouteUpdate::Withdraw { prefix, .. } if announced.contains(prefix) => {
                counters.exchanges += 1;
                continue;
            }
            _ => {}
        }
        kept.push(update);
    }
    updates.extend(kept.into_iter().rev());
}
