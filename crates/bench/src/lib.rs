//! The router's parts on this machine: what they are asked, and how they are timed.

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
