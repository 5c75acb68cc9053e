//! The router's parts on this machine: what they are asked, and how they are timed.

pub mod addresses;
pub mod classify;
pub mod clock;
pub mod fib;
pub mod headers;
pub mod pipeline;
pub mod prefixes;
