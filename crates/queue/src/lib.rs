//! Queueing disciplines (buffer management and scheduling) and distributed queueing.
#![no_std]

extern crate alloc;

pub mod aal5;
pub mod any;
pub mod blue;
mod bounded;
pub mod broadcast;
pub mod capacity;
pub mod codel;
pub mod discipline;
pub mod distributed;
pub mod dq_plus;
pub mod drr;
mod fifos;
pub mod fq_codel;
pub mod hashing;
mod heap;
pub mod ledger;
mod lengths;
mod limits;
pub mod pie;
pub mod push_out;
pub mod qsdrr;
mod ranking;
pub mod red;
pub mod reserved;
pub mod round_robin;
pub mod settings;
mod settings_error;
pub mod shaper;
pub mod sharing;
pub mod tail_drop;
pub mod tdrr;
pub mod token_bucket;
pub mod voq;

pub use any::Any;
pub use capacity::Capacity;
pub use discipline::{Backlog, Discipline, Drops, Packet, Reason};
pub use fifos::End;
pub use hashing::Hashing;
pub use ledger::{Ledger, Tally};
pub use reserved::{Contract, ContractError, RESERVED_QUEUES_MAX, Reserved, ReservedState};
pub use round_robin::{QueueState, WeightError};
pub use settings::{DisciplineKind, Settings, SettingsError};
pub use shaper::Shaper;
pub use sharing::{Alpha, Shares, Sharing};
pub use tail_drop::{TailDrop, VirtualTailDrop};
pub use token_bucket::{Policer, TokenBucket};
