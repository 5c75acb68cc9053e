//! Disciplines beside naive twins, and the laws that they follow.

mod any;
mod delay_twins;
mod distributed;
mod fifo_twins;
mod laws;
mod reserved;
mod round_robin_twins;
mod shares;
mod sharing;
mod token_bucket;
#[path = "../twin/mod.rs"]
mod twin;
mod voq;
