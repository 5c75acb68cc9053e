//! TCP connections followed packet by packet to their end, as *connection vectors*: which end sent how many
//! bytes, after which data and which pause (Weigle and others, *Tmix*, 2006).
#![no_std]

extern crate alloc;

pub mod connection;
pub mod drawn;
pub mod follower;
mod half;
pub mod headers;
pub mod joined;
mod live;
pub mod measures;
pub mod one_exchange;
pub mod sessions;
pub mod side;
pub mod sizes;
mod stamped;
mod unit;

pub use connection::{Act, Carried, Connection, Opening, Step};
pub use drawn::Drawn;
pub use follower::{Follower, FollowerCounts, Limits};
pub use joined::{RecordDetail, joined};
pub use measures::Ending;
pub use sessions::{Brief, Session, sessions};
pub use side::Side;
pub use sizes::PacketSizes;
