//! `route bench` of the router's parts; the test of the whole, `forward`, is separate, as it needs the
//! processors.

mod classify;
#[path = "../common/mod.rs"]
mod common;
mod fib;
mod pipeline;
