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
//! connection cannot carry fills the receiver's ring, and frames that find it full make the trial invalid as everywhere.
//!
//! Received times are converted to this host's clock by the offset between both clocks, which is known within bounds
//! ([`nilometer_profile::stream::clock_offset`]). All delays of a trial may be wrong by that uncertainty, together.

mod messages;
mod serve;
mod session;

pub use serve::{ReceiverOptions, SessionSeen, serve};
pub use session::{ClockSeen, RemoteArrivals, RemoteEnd};
