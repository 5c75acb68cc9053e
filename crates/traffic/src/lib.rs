//! A workload: estimated from flow records, planned as sessions, judged against its model.
#![no_std]

extern crate alloc;

pub mod activity;
pub mod burstiness;
pub mod by_hand;
pub mod chain;
pub mod compare;
pub mod connections;
mod driven;
pub mod estimate;
pub mod fidelity;
mod files;
mod flows;
pub mod gather;
mod generation;
mod intervals;
pub mod lengths;
pub mod limits;
mod lots;
pub mod model;
mod model_error;
pub mod of_vectors;
mod others;
mod pairs;
pub mod plan;
pub mod pool;
mod popularity;
mod purpose;
pub mod round_trips;
pub mod runner;
mod sampled;
mod sampled_records;
pub mod script;
mod segments;
mod services;
pub mod sessions;
mod spans;
pub mod spatial;
mod store;
pub mod synthetic;
mod thinned;
mod told;
pub mod udp;
mod unflagged;
mod unseen;
pub mod vector_plan;
pub mod vectors;
pub mod volume;
mod waiting;

pub use model::TrafficModel;
pub use plan::{Plan, PlannedConnection, Planner};
