//! Open-loop streams of test frames: schedule, lengths, flows and ledger.
//!
//! A stream is a function of its settings and a seed ([`Schedule`]): the sender and the keeper of the
//! [`Ledger`] compute it independently, and none of it has to be stored. Each frame carries a [`Tag`] of
//! sixteen bytes behind its UDP header, so that the smallest frame of Ethernet has room for it.
//!
//! Frame sizes are those of RFC 2544, section 9: they count the four bytes of the frame check sequence, which no
//! program sees. A frame of 64 bytes is handled as 60, with an IP packet of 46 in it.

pub mod capture;
pub mod clock_offset;
pub mod comb;
pub mod flows;
pub mod frame;
pub mod ledger;
mod lengths;
pub mod schedule;
pub mod sizes;
pub mod spacing;
pub mod tag;
pub mod validity;

pub use flows::{FlowAddresses, Flows};
pub use frame::FrameMaker;
pub use ledger::{Ledger, Packet};
pub use schedule::{Even, Schedule, Scheduled, StreamSettings};
pub use sizes::Sizes;
pub use spacing::Spacing;
pub use tag::Tag;
