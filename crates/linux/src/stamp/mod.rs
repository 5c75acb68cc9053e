//! Stamps of test frames, taken in the driver: as they leave one interface, and as they come in by another.
//!
//! ```text
//!   sender ─► tc egress ─► driver ════ device ════ driver ─► XDP ─► dropped
//!              program:                                       program:
//!              stamp by sequence number                       stamp, first of all; frame
//!                 │                                               │
//!              Departures (a record ring)                     Arrivals (a ring of slots)
//! ```
//!
//! Both stamps are of `bpf_ktime_get_ns`, the clock CLOCK_MONOTONIC, so that they need no conversion. A frame that
//! leaves is stamped as the last thing before the driver has it (tc egress, in front of the queueing discipline, of which a veth has none); one that
//! comes in is stamped by the first instruction of an XDP program, before the kernel makes a packet of it where the
//! driver runs such programs ([`Attachment::Native`]). The frame itself is copied into the ring, so that the reader
//! can compare every byte, and is not passed on; all others pass to the kernel.
//!
//! A test frame is identified by the bytes behind its UDP header: the run in the four from [`RUN_AT`] on, the
//! sequence number in the last seven of the eight from [`PLACE_AT`] on. A frame from the run's source network is one
//! as well, whatever its bytes, since a device may have damaged them.
//!
//! Rings are bounded and no writer waits for their reader: what finds no room is counted, at both ends. If the
//! system does not permit loading BPF programs, packet sockets stamp ([`crate::ring`]), later and with more noise.

mod arrivals;
mod counted;
mod departures;
mod layout;
pub mod live;
mod live_program;
mod program;
pub mod sender;
mod socket;
#[cfg(test)]
mod tests;

use std::net::Ipv4Addr;

use anyhow::Result;

pub use crate::xdp::Attachment;
use arrivals::ArrivalRing;
use counted::CountedArrivals;
use departures::DepartureRing;
use socket::{SocketArrivals, SocketDepartures};

/// The offset of a test frame's run.
pub const RUN_AT: usize = 42;
/// The offset of its stream, in one byte, and its sequence number, in seven.
pub const PLACE_AT: usize = 46;
/// Where the check of both stands, four bytes of any linear code, and where the UDP checksum does.
pub const CHECK_AT: usize = PLACE_AT + 8;
const CHECKSUM_AT: usize = 40;
/// The least length of a test frame.
pub const FRAME_BYTES_MIN: usize = 58;

/// Which frames are test frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// The run in their tags.
    pub run: u32,
    /// The network that they come from, and the length of its prefix, 1 to 32.
    pub source: (Ipv4Addr, u8),
}

/// Where stamps are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamping {
    /// Programs in the driver, or right behind it if it has no hook for them.
    Driver,
    /// Packet sockets.
    Socket,
    /// No stamps: frames are only counted on arrival, which shows the cost of stamps.
    Off,
}

/// A frame that came in.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// When, ns of CLOCK_MONOTONIC.
    pub stamp_ns: u64,
    /// How long it was, without its check sequence.
    pub bytes: u32,
    /// Its first bytes, as many as were requested.
    pub frame: &'a [u8],
}

/// The stamps of frames that leave an interface, in the order in which they leave.
pub enum Departures {
    /// By a program.
    Driver(DepartureRing),
    /// By a packet socket.
    Socket(SocketDepartures),
    /// Departures are not stamped.
    Off,
}

impl Departures {
    /// Begins to stamp what leaves an interface of the calling thread's namespace. `slots` stamps, a power of two,
    /// are kept until they are read.
    ///
    /// # Errors
    /// When there is no such interface, or the system does not let us.
    pub fn open(interface: &str, run: u32, slots: usize, stamping: Stamping) -> Result<Departures> {
        match stamping {
            Stamping::Driver => DepartureRing::open(interface, run, slots).map(Departures::Driver),
            Stamping::Socket => {
                SocketDepartures::open(interface, run, slots).map(Departures::Socket)
            }
            Stamping::Off => Ok(Departures::Off),
        }
    }

    /// Passes sequence number and stamp of every frame that has left to `each`; returns how many there were.
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn drain(&mut self, each: impl FnMut(u64, u64)) -> Result<usize> {
        match self {
            Departures::Driver(ring) => Ok(ring.drain(each)),
            Departures::Socket(ring) => ring.drain(each),
            Departures::Off => Ok(0),
        }
    }

    /// Stamps that were lost because they were not read in time.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn lost(&mut self) -> Result<u64> {
        match self {
            Departures::Driver(ring) => Ok(ring.lost()),
            Departures::Socket(ring) => ring.lost(),
            Departures::Off => Ok(0),
        }
    }
}

/// Test frames that come in by an interface, stamped, in the order in which they come.
pub enum Arrivals {
    /// By a program.
    Driver(ArrivalRing),
    /// By a packet socket.
    Socket(SocketArrivals),
    /// Not stamped: they are counted.
    Counted(CountedArrivals),
}

impl Arrivals {
    /// Begins to stamp what comes in by an interface of the calling thread's namespace. `slots` frames, a power of two,
    /// of `frame_bytes_max` bytes each are kept until they are read.
    ///
    /// # Errors
    /// When there is no such interface, or the system does not let us.
    pub fn open(
        interface: &str,
        watched: Watched,
        (slots, frame_bytes_max): (usize, usize),
        stamping: Stamping,
    ) -> Result<Arrivals> {
        match stamping {
            Stamping::Driver => {
                ArrivalRing::open(interface, watched, slots, frame_bytes_max).map(Arrivals::Driver)
            }
            Stamping::Socket => SocketArrivals::open(interface, watched, slots, frame_bytes_max)
                .map(Arrivals::Socket),
            Stamping::Off => CountedArrivals::open(interface, watched).map(Arrivals::Counted),
        }
    }

    /// Passes every frame that has arrived to `each`, a ring full at most; returns how many there were. Frames that
    /// are only counted are not passed.
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn drain(&mut self, each: impl FnMut(Arrival<'_>)) -> Result<usize> {
        match self {
            Arrivals::Driver(ring) => Ok(ring.drain(each)),
            Arrivals::Socket(ring) => ring.drain(each),
            Arrivals::Counted(counted) => Ok(counted.drain()),
        }
    }

    /// Frames that found no room.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn lost(&mut self) -> Result<u64> {
        match self {
            Arrivals::Driver(ring) => Ok(ring.lost()),
            Arrivals::Socket(ring) => ring.lost(),
            Arrivals::Counted(_) => Ok(0),
        }
    }

    /// Frames that were in the ring at once, at most.
    pub fn most_waiting(&self) -> u64 {
        match self {
            Arrivals::Driver(ring) => ring.most_waiting(),
            Arrivals::Socket(_) | Arrivals::Counted(_) => 0,
        }
    }

    /// What takes the stamps, in words.
    pub fn described(&self) -> &'static str {
        match self {
            Arrivals::Driver(ring) => match ring.attachment() {
                Attachment::Native => "first instruction of native XDP",
                Attachment::Generic => "first instruction of generic XDP, behind the driver",
            },
            Arrivals::Counted(_) => "none: frames are counted by the first instructions of XDP",
            Arrivals::Socket(_) => "packet socket, as the driver passes the frame to the kernel",
        }
    }
}

/// The clock of the stamps, ns (CLOCK_MONOTONIC).
pub fn monotonic_ns() -> u64 {
    nanoseconds(rustix::time::ClockId::Monotonic)
}

fn nanoseconds(clock: rustix::time::ClockId) -> u64 {
    let time = rustix::time::clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
