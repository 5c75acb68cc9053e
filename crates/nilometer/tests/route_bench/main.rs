//! `route bench` of the router's parts; that of the whole, `forward`, is alone, as it wants the processors.

mod classify;
#[path = "../common/mod.rs"]
mod common;
mod fib;
mod pipeline;
