//! Models of known truths, of records and of connections: what is estimated, planned and played.

mod embedded;
mod harpoon;
mod joint;
mod limits;
mod partitioner;
#[path = "../performed/mod.rs"]
mod performed;
mod sampled;
mod sampled_sizes;
#[path = "../truth/sampling.rs"]
mod sampling;
mod table_2;
mod thinned;
#[path = "../truth/mod.rs"]
mod truth;
mod unflagged;
mod vectors;
