//! A port's operations, counters and errors: the one trait of every kind of interface.
//!
//! A loop over ports uses four operations, for a batch of packets at a time:
//!
//! ```text
//!   receive    descriptors of frames that have come, appended to a batch
//!   transmit   as many packets of a queue as the device has room for; the rest stays queued
//!   flush      once per batch: what was transmitted goes to the wire now
//!   wait       sleep until one of the ports has something to do
//! ```
//!
//! Nothing is dropped on the way out: a packet that the device has no room for stays with the
//! caller, whose queueing discipline decides what becomes of it. What the kernel dropped before a
//! frame reached us, and every frame that a port itself refuses, is counted under its reason
//! ([`PortStatistics`]).
//!
//! A port that has nothing to do costs nothing: [`wait`] sleeps in `ppoll`. A link that goes down
//! and an interface that is removed are values ([`PortError`]); the first passes, the second does
//! not.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use super::memory::{Packet, PacketMemory};
use super::netlink::MacAddress;

/// What a port does with a transport checksum that the sender's kernel left to its card.
///
/// Such a packet carries the sum of the pseudo-header in its checksum field, which is the only sign
/// of it once it is a plain frame. Hosts behind a veth send all of their TCP like this unless their
/// checksum offload is off.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ChecksumOffload {
    /// Frames are sent as they are.
    #[default]
    AsIs,
    /// A packet whose checksum field holds just the sum of its pseudo-header is sent as one that
    /// is still to be summed, by the kernel or a card. The payload is not read. A complete
    /// checksum has this very value once in 65,536 packets; it is then computed again.
    Partial,
}

/// What a port has counted since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortStatistics {
    /// Frames received and passed on.
    pub rx_packets: u64,
    /// Their bytes, from the Ethernet header on.
    pub rx_bytes: u64,
    /// Frames taken from the caller to be sent.
    pub tx_packets: u64,
    /// Their bytes, from the Ethernet header on.
    pub tx_bytes: u64,
    /// Frames that the kernel dropped on the way in, for none of the reasons below.
    pub rx_dropped: u64,
    /// Descriptors that the kernel found invalid in the fill ring.
    pub rx_invalid: u64,
    /// Frames dropped because the receive ring was full: the program was too slow.
    pub rx_ring_full: u64,
    /// Frames that found no chunk to be received into: the fill ring had run dry.
    pub rx_fill_empty: u64,
    /// Frames refused because they are longer than the link's MTU or a chunk allows: unsegmented
    /// super-packets of a host whose segmentation offload is on.
    pub rx_oversize: u64,
    /// Frames delivered by the kernel with the checksum still to be filled in, where it reports that.
    pub rx_partial_checksum: u64,
    /// Frames sent with the checksum still to be filled in.
    pub tx_partial_checksum: u64,
    /// Frames that the kernel refused to send, and descriptors that it found invalid.
    pub tx_invalid: u64,
    /// How often a batch did not fit and stayed, in part, with the caller.
    pub tx_full: u64,
}

impl PortStatistics {
    /// All frames that came in and were not passed on, for any reason.
    pub fn rx_lost(&self) -> u64 {
        self.rx_dropped
            + self.rx_invalid
            + self.rx_ring_full
            + self.rx_fill_empty
            + self.rx_oversize
    }
}

/// Why a port's operation failed.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The interface was removed, or its driver detached the port; it will not come back.
    #[error("the interface {name} is gone")]
    Gone {
        /// The interface.
        name: String,
    },
    /// The interface is down; packets already taken wait for it to come up.
    #[error("the interface {name} is down")]
    Down {
        /// The interface.
        name: String,
    },
    /// The kernel refused something.
    #[error("cannot {what} {name}: {error}")]
    System {
        /// The interface.
        name: String,
        /// What was to be done to it.
        what: &'static str,
        /// The kernel's reason.
        error: io::Error,
    },
}

/// A port's operations; each takes the one memory that the port was opened with.
pub trait PortIo {
    /// Appends the descriptors of at most `max` received frames to `batch`; returns how many there
    /// were. The caller holds their chunks from then on.
    ///
    /// # Errors
    ///
    /// `Down` where the kind of port notices it, `Gone` when the interface was removed.
    fn receive(
        &mut self,
        memory: &mut PacketMemory,
        batch: &mut Vec<Packet>,
        max: usize,
    ) -> Result<usize, PortError>;

    /// Takes packets from the front of the queue while the device has room; returns how many were
    /// taken. The others stay in the queue.
    ///
    /// # Errors
    ///
    /// As [`PortIo::receive`]; packets that were not taken are still in the queue.
    fn transmit(
        &mut self,
        memory: &mut PacketMemory,
        packets: &mut VecDeque<Packet>,
    ) -> Result<usize, PortError>;

    /// Notifies the device, once for a batch, that there is something to send, and takes back the
    /// chunks of sent packets.
    ///
    /// # Errors
    ///
    /// As [`PortIo::receive`]; what was taken stays taken and is sent by a later flush.
    fn flush(&mut self, memory: &mut PacketMemory) -> Result<(), PortError>;

    /// How many packets [`PortIo::transmit`] would take now, after taking back what was sent; a
    /// port that cannot know returns how many it would try.
    fn room(&mut self, memory: &mut PacketMemory) -> usize;

    /// How many packets of the memory the device has taken and not given back yet: they are being sent. A
    /// port that copies what it sends has none.
    fn sending(&self) -> u32 {
        0
    }

    /// Names the descriptors and events to sleep on; `blocked` when packets wait for room.
    fn interest(&mut self, blocked: bool, each: &mut impl FnMut(RawFd, i16));

    /// The counters.
    ///
    /// # Errors
    ///
    /// When the kernel's counters cannot be read.
    fn statistics(&mut self) -> Result<PortStatistics, PortError>;

    /// The interface's name.
    fn name(&self) -> &str;

    /// Its Ethernet address when it was opened.
    fn mac(&self) -> MacAddress;

    /// The greatest IP packet that it carried when it was opened, in bytes.
    fn mtu_bytes(&self) -> u32;

    /// Whether the link carries traffic: this end and the other are up.
    ///
    /// # Errors
    ///
    /// `Gone` when the interface was removed.
    fn link_is_up(&self) -> Result<bool, PortError>;

    /// Closes the port and takes back every chunk that it was lent. (A port that is only dropped
    /// closes as well, and its chunks stay lent until the memory itself goes.)
    fn close(self, memory: &mut PacketMemory);
}

/// The methods of a [`PortIo`] that concern its `interface`.
macro_rules! of_interface {
    () => {
        fn name(&self) -> &str {
            self.interface.name()
        }

        fn mac(&self) -> MacAddress {
            self.interface.mac()
        }

        fn mtu_bytes(&self) -> u32 {
            self.interface.mtu_bytes()
        }

        fn link_is_up(&self) -> Result<bool, PortError> {
            self.interface.is_up()
        }
    };
}
pub(super) use of_interface;

/// Sleeps until a port has received something, has room again (if `blocked` is true for its number:
/// packets wait for it), or failed, and at most for `timeout`; returns whether it was one of those.
///
/// # Errors
///
/// When the kernel refuses to wait at all.
pub fn wait(
    ports: &mut [impl PortIo],
    blocked: impl Fn(usize) -> bool,
    timeout: Duration,
) -> io::Result<bool> {
    let mut interests = Vec::new();
    for (number, port) in ports.iter_mut().enumerate() {
        port.interest(blocked(number), &mut |fd, events| interests.push((fd, events)));
    }
    wait_with(&interests, timeout)
}

/// Sleeps until one of the `interests`, descriptors and events, has come about, and at most for
/// `timeout`; whether one has.
///
/// # Errors
///
/// When the kernel refuses to wait at all.
pub fn wait_with(interests: &[(RawFd, i16)], timeout: Duration) -> io::Result<bool> {
    let poll = |&(fd, events): &(RawFd, i16)| libc::pollfd { fd, events, revents: 0 };
    let mut polls: Vec<libc::pollfd> = interests.iter().map(poll).collect();
    let timeout = libc::timespec {
        tv_sec: timeout.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(timeout.subsec_nanos() as i32),
    };
    let count = polls.len() as libc::nfds_t;
    // SAFETY: the array has `count` live entries, the time is live, no mask is given.
    let ready = unsafe { libc::ppoll(polls.as_mut_ptr(), count, &timeout, std::ptr::null()) };
    if ready >= 0 {
        return Ok(ready > 0);
    }
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        error => Err(error),
    }
}
