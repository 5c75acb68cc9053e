//! Open-loop streams through a device: sent at their times, stamped in the driver, every frame accounted for.
//!
//! ```text
//!   schedule ─► pacer ─► end 0 ─► device ─► end 1 ─► receiver ─► ledger ─► result, rows, page
//!                 │  tc egress stamps          XDP stamps   ▲
//!                 └────────── departures ───────────────────┘
//! ```
//!
//! What a trial is made of ([`ends::End`], [`trial::Trial`]) does not depend on how the interfaces are made: the testbed's
//! namespaces do for the devices that the lab starts itself.

pub mod added;
mod arrival_source;
pub mod calibrate;
pub mod calibration_page;
pub mod checks;
pub mod config;
pub mod derive;
pub mod device;
pub mod ends;
mod figures;
pub mod live;
pub mod outcome;
mod pacer;
mod page;
pub mod pattern;
mod receiver;
pub mod remote;
pub mod rows;
pub mod run;
pub mod transmit;
pub mod trial;
