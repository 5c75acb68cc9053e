//! Benchmarks of the router's parts on this machine: inputs and timing.

pub mod addresses;
pub mod classify;
pub mod fib;
pub mod fib_times;
pub mod forward;
pub mod headers;
pub mod peer;
pub mod pipeline;
pub mod plot;
pub mod plugin;
pub mod prefixes;
pub mod under_updates;
