//! The trial: the main job, from an input to a directory of results.

pub mod account;
mod apart;
pub mod aside;
pub mod clock;
pub mod config;
mod heading;
mod hosts;
pub mod judge;
pub mod leg;
pub mod losses;
pub mod meter;
pub mod original;
pub mod outcome;
pub mod part;
pub mod planning;
pub mod progress;
pub mod recorded;
pub mod repeats;
pub mod router;
pub mod run;
pub mod signals;
pub mod source;
pub mod telling;
mod threads;
mod told_queues;
mod verdict;
mod warnings;
