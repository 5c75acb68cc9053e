//! A stream between two hosts: the client's end here, the server's end at a receiver on another machine.
//!
//! ```text
//!   this host                                   the other host (stream receive)
//!   schedule ─► pacer ─► end 0 ─► device ─► end 1 ─► arrivals
//!     ledger ◄─────────── control connection ───────────┘      frames with their stamps
//!     clock offset ◄───── clock connection ──────────────      exchanges, 20 a second
//! ```
//!
//! Both connections are TCP over a network that is not under test. The receiver sends each frame that it stamped, some
//! 14 bytes more than the frame: a stream of 100,000 frames of 64 bytes a second needs 60 Mbit/s there. What the
//! connection cannot carry for long fills the receiver's ring, and frames that find it full make the trial invalid as
//! everywhere; so do frames that were stamped and are read too late for the ledger.
//!
//! Received times are converted to this host's clock by the offset between both clocks at that time, which is known within
//! bounds ([`nilometer_profile::stream::clock_offset`]).

mod messages;
mod serve;
mod session;

pub use serve::{ReceiverEvent, ReceiverOptions, SessionSeen, serve};
pub use session::{ClockSeen, RemoteArrivals, RemoteEnd, RemoteSetup};
