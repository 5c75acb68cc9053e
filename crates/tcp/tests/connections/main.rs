//! Two ends of a connection, over pipes and queues that lose, mark and reorder.

mod bottleneck;
mod bytes;
mod closed_forms;
mod fall_floyd;
mod handshake;
mod marks;
mod noise;
#[path = "../pipe/mod.rs"]
mod pipe;
mod senders;
mod spurious;
mod transfer;
